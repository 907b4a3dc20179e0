"""A whole run on small sets: what it writes, that it continues after a stop, and what it says to odd input."""

import csv
import json
import re
import runpy
import sys

import numpy as np
import pandas as pd
import pytest

import monocal as mc
from experiments import tables
from experiments.plan import FULL, make_plan
from experiments.reproduce import find_datasets, reproduce
from experiments.trials import run_trial
from monocal.data import read_splits

FEW = ("uncalibrated", "ts", "vs", "mcct_published", "mcct_i_published", "mcct")
FIGURES = ("figure1_order", "figure2_data", "figure3_top_k_ece", "figure4_top_k_time", "figure5_parameters")


@pytest.fixture(scope="module")
def finished(small_sets, tiny, tmp_path_factory):
    """A finished run with its page in Markdown: (folder, markdown, data frame of trials)."""
    folder = tmp_path_factory.mktemp("run")
    page = folder / "docs" / "page.md"
    trials, _ = reproduce(small_sets, folder / "out", settings=tiny, methods=FEW, jobs=1, markdown=page)
    return folder / "out", page, trials


def rows_of(folder):
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_everything_is_written(finished):
    folder, markdown, trials = finished
    assert len(list((folder / "trials").glob("*.json"))) == len(trials) == len(rows_of(folder))
    assert (trials.message == "").all()
    for name in FIGURES:
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (markdown.with_suffix("") / f"{name}.svg").exists()
        assert f"(page/{name}.svg)" in markdown.read_text(encoding="utf-8")
        assert f"(figures/{name}.svg)" in (folder / "results.md").read_text(encoding="utf-8")
    page = (folder / "index.html").read_text(encoding="utf-8")  # which needs no other file
    assert page.count('src="data:image/svg+xml;base64,') == 5
    assert not re.search(r'<script|(src|href)="(?!data:|#)', page)
    text = (folder / "results.md").read_text(encoding="utf-8")
    assert text.count("### Table") == 7
    worst = trials[trials.method.str.endswith("published") & trials.fitted.map(lambda f: "stopped_nll" in f)]
    assert f"in up to {100 * worst.rows_reordered.max():.2f} % of the test rows" in text
    assert "MCCT: 0 of 600 rows re-ordered" in text


def test_numbers_are_those_of_the_library(finished, small_sets):
    folder, _, trials = finished
    splits = read_splits(small_sets / "more_classes.npz")
    whole = trials[(trials.set == "more_classes") & (trials.n_cal == 200) & (trials.top_k == 12)]
    for label, calibrator in (("TS", mc.TemperatureScaling(prior_rows=0)), ("MCCT", mc.MCCT())):
        probs = calibrator.fit(splits.cal.values, splits.cal.labels).predict_proba(splits.test.values)
        (row,) = whole[whole.label == label].itertuples()
        for metric in ("ece", "kde_ece", "eq_bin_ece", "nll", "brier", "accuracy"):
            expected = mc.evaluate(probs, splits.test.labels, metrics=[metric])[metric].value
            assert getattr(row, metric) == pytest.approx(expected, rel=1e-9)
        assert row.rows_reordered == row.accuracy_change == 0.0
        shown = f"{100 * mc.metrics.ece(probs, splits.test.labels):.2f}"
        table = (folder / "results.md").read_text(encoding="utf-8").split("### Table 1")[1]
        assert shown in next(line for line in table.split("\n") if line.startswith(r"| more\_classes"))


def test_a_run_continues_with_what_is_missing(finished, small_sets, tiny, monkeypatch):
    folder, _, trials = finished
    files = sorted((folder / "trials").glob("*.json"))
    files[0].unlink()
    files[1].write_text(files[1].read_text()[:50])  # cut off, as by a full disk
    ran = []
    monkeypatch.setattr("experiments.trials.run_trial", lambda t, f: ran.append(t) or run_trial(t, f))
    again, _ = reproduce(small_sets, folder, settings=tiny, methods=FEW, jobs=1)
    assert {t.file_name for t in ran} == {files[0].name, files[1].name}
    numbers = ["set", "method", "seed", "n_cal", "ece", "nll", "rows_reordered"]
    pd.testing.assert_frame_equal(again[numbers], trials[numbers])


def test_a_method_that_fails_is_reported_and_the_run_continues(small_sets, tiny, tmp_path, monkeypatch):
    def fail(self, *_):
        raise ValueError("no luck")

    monkeypatch.setattr(mc.VectorScaling, "fit", fail)
    trials, _ = reproduce(small_sets, tmp_path / "out", settings=tiny, methods=("ts", "vs"), jobs=1)
    assert set(trials[trials.message != ""].label) == {"VS"}
    text = (tmp_path / "out" / "results.md").read_text(encoding="utf-8")
    assert "ValueError: no luck" in text
    assert tables.FAILED in text


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_the_command_and_its_refusals(small_sets, tmp_path, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["reproduce", "--quick", "--jobs=1", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            runpy.run_module("experiments.reproduce", run_name="__main__")
        return end.value.code, *capsys.readouterr()

    out = tmp_path / "out"
    code, printed, said = run(
        "--data", small_sets / "few_classes.npz", "--out", out, "--methods", "uncalibrated,ts"
    )
    assert code == 0, said
    assert (out / "index.html").as_uri() in printed
    for arguments, message in (
        (("--data", tmp_path / "nowhere", "--out", tmp_path / "a"), "nowhere"),
        (("--data", small_sets, "--out", small_sets), "holds other files"),
        (("--data", small_sets, "--out", out, "--markdown", "page.html"), "should end in .md"),
        (("--data", small_sets, "--out", out, "--methods", "magic"), "unknown methods magic"),
    ):
        code, _, said = run(*arguments)
        assert code == 2
        assert message in said


def test_the_full_plan_is_the_papers(small_sets):
    datasets, left_out = find_datasets(small_sets)
    assert left_out == []
    plan = make_plan(datasets, FULL, 0, ("ts", "diag", "mcct"))
    assert len([t for t in plan.tables if t.method == "diag"]) == 10 * len(datasets)
    assert len([t for t in plan.tables if t.method == "ts"]) == len(datasets)
    assert len({t.file_name for t in plan.trials}) == len(plan.trials)
    assert all(len(t.rows()) == (t.n_cal or t.dataset.n_cal) for t in plan.trials)
    small, large = (
        t
        for t in plan.sizes
        if t.method == "ts" and t.seed == 0 and t.n_cal in (20, 100) and t.dataset == datasets[0]
    )
    assert set(small.rows()) <= set(large.rows())


def test_ranks_are_of_values_as_shown():
    mean = pd.DataFrame({"TS": [1.234, 2.0], "MCCT": [1.231, 1.0], "VS": [1.5, np.nan]}, index=["a", "b"])
    table = tables.Table(tables.TABLES[0], "", mean, mean * np.nan, mean.map(lambda _: ""))
    np.testing.assert_array_equal(table.ranks(), [[1.5, 1.5, 3.0], [2.0, 1.0, np.nan]])
    assert "| a | **1.23** | **1.23** | 1.50 |" in table.to_markdown()
    assert "| b | 2.00 | **1.00** | – |" in table.to_markdown()


@pytest.mark.parametrize(
    ("printed", "ours", "spread", "expected"),
    [
        (1.06, 1.064, np.nan, "same"),
        (1.06, 1.08, np.nan, "near"),
        (1.06, 1.09, 0.02, "near"),
        (1.06, 1.09, np.nan, "different"),
    ],
)
def test_how_values_match(printed, ours, spread, expected):
    assert tables.match(printed, ours, spread) == expected


def test_a_set_of_the_paper_is_recognised_by_its_values(shared_logits, tmp_path, tiny):
    data = shared_logits("nncal_cifar10_densenet40")
    np.savez(
        tmp_path / "anything.npz",
        **{name: getattr(data, name) for name in ("logits_val", "y_val", "logits_test", "y_test")},
    )
    few = type(tiny)(seeds=1, draws=1, fractions=(), counts=(), curve_sets=0, rank_sets=0)
    _, comparisons = reproduce(
        tmp_path / "anything.npz", tmp_path / "out", settings=few, methods=("uncalibrated", "ts"), jobs=1
    )
    (comparison,) = comparisons
    assert comparison.network == "DenseNet-40 on CIFAR-10"
    assert set(comparison.values.match) == {"same"}
    assert (
        json.loads(next((tmp_path / "out" / "trials").glob("*.ts.*")).read_text())["configuration"]["method"]
        == "ts"
    )
