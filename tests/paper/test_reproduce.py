"""The whole run on small sets: what it writes, that it goes on after a kill, and what it says to odd input."""

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from dataclasses import asdict

import numpy as np
import psutil
import pytest

import monocal as mc
from monocal.data import digits_example, find, read_splits, write
from monocal.paper import reproduce
from monocal.paper.cells import Cell, Dataset, read_result
from monocal.paper.columns import METHODS
from monocal.paper.worker import run_cell
from monocal.workers import Worker

FEW = ("uncalibrated", "ts", "vs", "mcct_published", "mcct_i_published", "mcct")
FIGURES = (
    "figure1_order",
    "figure2_data",
    "figure3_top_k_ece",
    "figure4_top_k_time",
    "figure5_parameters",
)


@pytest.fixture(scope="module")
def finished(small_sets, tiny, tmp_path_factory):
    """A finished run with its page in Markdown beside it: (folder, markdown, outcome, calls of progress)."""
    folder = tmp_path_factory.mktemp("run")
    calls = []
    outcome = reproduce(
        small_sets,
        folder / "out",
        settings=tiny,
        methods=FEW,
        jobs=1,
        markdown=folder / "docs" / "page.md",
        progress=lambda *call: calls.append(call),
    )
    return folder / "out", folder / "docs" / "page.md", outcome, calls


def rows_of(folder):
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_everything_is_written(finished):
    folder, markdown, outcome, calls = finished
    assert outcome.n_failed == outcome.n_reused == 0
    assert outcome.n_sets == 2
    assert len(list((folder / "cells").glob("*.json"))) == outcome.n_cells == len(rows_of(folder))
    assert [done for done, _, _ in calls] == list(range(outcome.n_cells + 1))
    assert {total for _, total, _ in calls} == {outcome.n_cells}
    for name in FIGURES:
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (folder / "figures" / f"{name}.svg").read_bytes()
        assert (markdown.with_suffix("") / f"{name}.svg").exists()
        assert f"(page/{name}.svg)" in markdown.read_text(encoding="utf-8")
        assert f"(figures/{name}.svg)" in (folder / "results.md").read_text(encoding="utf-8")
    assert (folder / "tables.tex").read_text(encoding="utf-8").count(r"\begin{table*}") == 7
    assert (folder / "tables.md").read_text(encoding="utf-8").count("## Table") == 7
    run = json.loads((folder / "run.json").read_text())
    assert run["cells"]["all"] == outcome.n_cells
    assert {"monocal", "numpy", "scipy", "python"} <= set(run["versions"])


def test_every_result_carries_configuration_versions_and_times(finished):
    folder, *_ = finished
    for path in (folder / "cells").glob("*.json"):
        result = json.loads(path.read_text())
        assert {"set", "data", "method", "parameters", "seed", "n_cal", "top_k"} <= set(
            result["configuration"]
        )
        assert result["versions"]["monocal"] == mc.__version__
        assert result["times"]["total_seconds"] >= result["times"]["fit_seconds"] >= 0
        assert result["times"]["finished"].endswith("+00:00")


def test_numbers_are_those_of_the_library(finished, small_sets):
    folder, *_ = finished
    splits = read_splits(small_sets / "more_classes.npz")
    whole = [
        row
        for row in rows_of(folder)
        if row["set"] == "more_classes" and row["n_cal"] == "200" and row["top_k"] == "12"
    ]
    for label, calibrator in (("TS", mc.TemperatureScaling(prior_rows=0)), ("MCCT", mc.MCCT())):
        probs = calibrator.fit(splits.cal.values, splits.cal.labels).predict_proba(splits.test.values)
        (row,) = [row for row in whole if row["method"] == label]
        for metric in ("ece", "kde_ece", "eq_bin_ece", "nll", "brier", "accuracy"):
            expected = mc.evaluate(probs, splits.test.labels, metrics=[metric])[metric].value
            assert float(row[metric]) == pytest.approx(expected, rel=1e-9)
        assert float(row["rows_reordered"]) == float(row["accuracy_change"]) == 0.0
        shown = f"{100 * mc.metrics.ece(probs, splits.test.labels):.2f}"
        table = (folder / "tables.md").read_text(encoding="utf-8").split("## Table 2")[0]
        assert shown in next(line for line in table.split("\n") if line.startswith(r"| more\_classes"))


def test_findings_are_made_from_the_numbers(finished):
    folder, *_ = finished
    text = (folder / "results.md").read_text(encoding="utf-8")
    published = [row for row in rows_of(folder) if row["method"] in ("MCCT published", "MCCT-I published")]
    # The tables show the fit with the most ranks of each set; those with fewer are for the figures.
    most = {
        name: max(int(r["top_k"]) for r in published if r["set"] == name)
        for name in {r["set"] for r in published}
    }
    worst = max(
        100 * float(row["rows_reordered"])
        for row in published
        if row["n_cal"] == "200" and int(row["top_k"]) == most[row["set"]]
    )
    assert f"in up to {worst:.2f} % of the test rows" in text
    assert "MCCT: 0 of 600 rows re-ordered" in text
    assert "the top 8 ranks only, for time" in text  # what was capped is said
    assert "0.00†" in text or re.search(r"\d†", text)


def test_started_again_nothing_is_redone(finished, small_sets, tiny):
    folder, *_ = finished
    before = {path.name: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()}
    outcome = reproduce(small_sets, folder, settings=tiny, methods=FEW, jobs=1)
    assert outcome.n_reused == outcome.n_cells
    assert {path.name: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()} == before


def test_same_seed_same_numbers_on_any_number_of_processes(finished, small_sets, tiny, tmp_path):
    folder, *_ = finished
    reproduce(small_sets, tmp_path / "again", settings=tiny, methods=FEW, jobs=2)

    def numbers(where):
        return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows_of(where)]

    assert len(numbers(folder)) > 10
    assert numbers(tmp_path / "again") == numbers(folder)


RUN = """
import json, sys, time
from pathlib import Path
from monocal.paper import Settings, reproduce
import monocal.paper.running as running

real = running.run_cell
def slowly(cell, folder):
    time.sleep(0.05)
    return real(cell, folder)
running.run_cell = slowly
reproduce(sys.argv[1], sys.argv[2], settings=Settings(**json.loads(sys.argv[3])), methods=sys.argv[4].split(","), jobs=1)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a system with SIGKILL")
def test_a_killed_run_goes_on_where_it_was(small_sets, tiny, tmp_path, finished):
    out = tmp_path / "out"
    arguments = [str(small_sets), str(out), json.dumps(asdict(tiny)), ",".join(FEW)]
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    try:
        end = time.monotonic() + 300
        while time.monotonic() < end and len(list(out.glob("cells/*.json"))) < 5:
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = {path.name: path.stat().st_mtime_ns for path in out.glob("cells/[!.]*.json")}
    assert len(done) >= 5
    assert not (out / "index.html").exists()
    outcome = reproduce(small_sets, out, settings=tiny, methods=FEW, jobs=1)
    assert 5 <= outcome.n_reused == len(done) < outcome.n_cells
    assert {name: (out / "cells" / name).stat().st_mtime_ns for name in done} == done
    assert (out / "tables.md").read_bytes() == (finished[0] / "tables.md").read_bytes()


def command_of(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # another test's child, which has ended
        return ""


def test_a_worker_that_dies_costs_time_only(small_sets, tiny, tmp_path, finished):
    killed = []

    def kill_one(done, total, cell):
        workers = [p for p in psutil.Process().children() if "monocal.workers" in command_of(p)]
        if done == 3 and not killed and workers:
            workers[0].kill()
            killed.append(workers[0])

    outcome = reproduce(small_sets, tmp_path / "out", settings=tiny, methods=FEW, jobs=2, progress=kill_one)
    assert killed
    assert outcome.n_failed == 0
    assert (tmp_path / "out" / "tables.md").read_bytes() == (finished[0] / "tables.md").read_bytes()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a system with SIGKILL")
def test_workers_end_with_a_run_that_was_killed(small_sets, tiny, tmp_path):
    arguments = [str(small_sets), str(tmp_path / "out"), json.dumps(asdict(tiny)), ",".join(FEW)]
    process = subprocess.Popen([sys.executable, "-c", RUN.replace("jobs=1", "jobs=2"), *arguments])
    end = time.monotonic() + 300
    while time.monotonic() < end and not list(tmp_path.glob("out/cells/*.json")):
        assert process.poll() is None
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert len(workers) == 2
    assert psutil.wait_procs(workers, timeout=120)[1] == []


def test_a_result_is_the_same_when_it_is_read_again(small_sets, tmp_path, monkeypatch):
    odd = {"kkt": np.inf, "lowest_nll": -np.inf, "weights": [np.inf, 1.0], "status": "converged"}
    monkeypatch.setattr("monocal.paper.worker._fitted", lambda *rest: odd)
    cell = Cell(Dataset.of(find(small_sets)[0]), "mcct")
    made = run_cell(cell, tmp_path)
    assert made["fitted"] == odd
    assert read_result(tmp_path, cell) == made


@pytest.mark.parametrize("threads", [1, 2])
def test_example_data_do_not_depend_on_the_number_of_threads(threads):
    with Worker(threads) as worker:
        found = worker.call(digits_example)
    assert np.array_equal(found.cal.values, digits_example().cal.values)


def test_workers_that_always_die_end_in_one_sentence(small_sets, tiny, tmp_path, monkeypatch):
    def broken(cells, folder, jobs):
        raise BrokenExecutor("killed")
        yield

    monkeypatch.setattr("monocal.paper.running._run_missing", broken)
    with pytest.raises(mc.InputError, match="fewer jobs"):
        reproduce(small_sets, tmp_path / "out", settings=tiny, methods=("ts",), jobs=2)


class InThisProcess(contextlib.nullcontext):
    """Stands in for a worker."""

    def __init__(self, threads):
        super().__init__(self)

    def call(self, function, *arguments):
        return function(*arguments)


def test_a_method_that_fails_is_reported_and_the_others_stand(small_sets, tiny, tmp_path, monkeypatch):
    class Broken:
        def get_params(self):
            return {}

        def fit(self, X, y):
            raise ValueError("no <b>luck</b> | today")

    monkeypatch.setitem(
        METHODS, "vs", METHODS["vs"].__class__("VS", lambda seed, top_k: Broken(), in_paper=True)
    )
    monkeypatch.setattr("monocal.paper.running.Worker", InThisProcess)  # where the broken method is
    outcome = reproduce(
        small_sets, tmp_path / "out", settings=tiny, methods=("uncalibrated", "ts", "vs"), jobs=1
    )
    assert outcome.n_failed == sum(row["status"] == "failed" for row in rows_of(tmp_path / "out")) > 0
    page = outcome.page.read_text(encoding="utf-8")
    assert "ValueError: no &lt;b&gt;luck&lt;/b&gt; | today" in page
    assert "–‡" in page
    # A failed cell is tried again, with a method that works now.
    monkeypatch.undo()
    again = reproduce(
        small_sets, tmp_path / "out", settings=tiny, methods=("uncalibrated", "ts", "vs"), jobs=1
    )
    assert again.n_failed == 0


def test_example_data_when_there_is_none(tiny, tmp_path):
    outcome = reproduce(None, tmp_path / "out", settings=tiny, methods=("uncalibrated", "ts"), jobs=1)
    assert outcome.n_sets == 2
    assert [place.name for place in find(tmp_path / "out" / "example-data")] == ["digits", "synthetic"]


def test_unusable_input_is_refused_in_one_sentence(tmp_path, small_sets):
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "file").write_text("x")
    for data, out, words in (
        (tmp_path / "nowhere", "a", "There is no folder"),
        (empty, "b", "holds no pair of calibration and test sets"),
        (small_sets, "file", "cannot be used for results"),
        (small_sets, "file/below", "cannot be used for results"),
    ):
        with pytest.raises(mc.FileError, match=words) as told:
            reproduce(data, tmp_path / out, methods=("ts",))
        assert "\n" not in str(told.value)
    with pytest.raises(mc.FileError, match=r"should end in \.md"):
        reproduce(small_sets, tmp_path / "c", methods=("ts",), markdown=tmp_path / "page")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("not yours")
    with pytest.raises(mc.FileError, match="holds other files"):
        reproduce(small_sets, tmp_path / "mine", methods=("ts",))
    assert (tmp_path / "mine" / "index.html").read_text() == "not yours"
    with pytest.raises(mc.InputError, match="magic"):
        reproduce(small_sets, tmp_path / "c", methods=("magic",))
    with pytest.raises(mc.InputError, match="jobs"):
        reproduce(small_sets, tmp_path / "d", methods=("ts",), jobs=0)
    # Where nothing could be run, nothing was made.
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "file", "mine"}


def test_bad_files_are_left_out_and_named(tiny, tmp_path):
    sets = tmp_path / "sets"
    sets.mkdir()
    good = digits_example()
    write(sets / "good.npz", good)
    (sets / "cut.npz").write_bytes((sets / "good.npz").read_bytes()[:500])
    (sets / "evil.pkl").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    values = good.cal.values.copy()
    values[3, 1] = np.nan
    write(
        sets / "nan.npz",
        {"logits_val": values, "y_val": good.cal.labels, "logits_test": values, "y_test": good.cal.labels},
    )
    outcome = reproduce(sets, tmp_path / "out", settings=tiny, methods=("uncalibrated", "ts"), jobs=1)
    assert outcome.n_sets == 1
    assert len(outcome.left_out) == 3
    page = outcome.page.read_text(encoding="utf-8")
    for name in ("cut.npz", "evil.pkl", "nan.npz"):
        assert sum(name in why for why in outcome.left_out) == 1
        assert name in page
    assert not (tmp_path / "pwned").exists()


def test_published_figures_of_the_papers_own_file(shared_logits, tmp_path):
    """Rows "Densenet 40" of Tables 1, 2 and 3: the one set here that the paper used."""
    given = shared_logits("nncal_cifar10_densenet40")
    write(tmp_path / "densenet40.npz", {name: x for name, x in vars(given).items() if x is not None})
    (location,) = find(tmp_path)
    dataset = Dataset.of(location)
    printed = {
        "uncalibrated": (5.50, 5.01, 5.49),
        "ts": (0.95, 1.14, 0.92),
        "mcct_published": (1.06, 1.30, 1.09),
        "mcct_i_published": (1.06, 1.30, 1.09),
    }
    for method, (ece, kde, eq_bin) in printed.items():
        metrics = run_cell(Cell(dataset, method), tmp_path)["metrics"]
        assert round(100 * metrics["ece"], 2) == pytest.approx(ece, abs=0.0101)
        assert round(100 * metrics["kde_ece"], 2) == pytest.approx(kde, abs=0.0101)
        assert round(10 * metrics["eq_bin_ece"], 2) == pytest.approx(eq_bin, abs=0.0101)
