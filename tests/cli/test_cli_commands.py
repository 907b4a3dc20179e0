"""Every command does what its help says: what it prints, what it writes, what code it ends with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import CAL, TEST

import monocal as mc
from monocal import persistence
from monocal.registry import find_method

Run = Callable[..., Any]


def test_fit_saves_what_the_library_would_fit(run: Run) -> None:
    result = run("fit", "cal.npz", "-o", "cal.json", "--method", "mcct")
    assert "MCCT fitted on 500 samples of 5 classes" in result.stdout
    loaded = mc.load("cal.json")
    expected = mc.MCCT().fit(CAL.values, CAL.labels)
    np.testing.assert_array_equal(loaded.predict_proba(TEST.values), expected.predict_proba(TEST.values))
    answer = persistence.describe("cal.json")
    assert answer["data"] == persistence.fingerprint(CAL.values, CAL.labels)
    assert (
        answer["metrics"]["after"]["metrics"]["nll"]["value"]
        < answer["metrics"]["before"]["metrics"]["nll"]["value"]
    )


def test_fit_takes_parameters(run: Run) -> None:
    run(
        "fit", "cal.npz", "-o", "a.json", "-m", "MCCT", "--top-k", 2, "--shrinkage", "cv", "--set", "tol=1e-5"
    )
    parameters = mc.load("a.json").get_params()
    assert (parameters["top_k"], parameters["shrinkage"], parameters["tol"]) == (2, "cv", 1e-5)
    run("fit", "cal.npz", "-o", "b.json", "-m", "mcct", "--shrinkage", 0.5, "--set", "top_k=none")
    parameters = mc.load("b.json").get_params()
    assert (parameters["top_k"], parameters["shrinkage"]) == (None, 0.5)


def test_every_method_listed_can_be_fitted_by_its_name(run: Run) -> None:
    for name in ("temperature-scaling", "TemperatureScaling", "temperature", "Temperature Scaling"):
        assert type(find_method(name)[1]) is mc.TemperatureScaling
    quick = [info for info in mc.all_calibrators() if not info.extras and not info.published]
    assert len(quick) > 10
    for info in quick:
        run("fit", "cal.npz", "-o", "cal.json", "--force", "-m", info.name)
        assert repr(mc.load("cal.json")) == repr(info.make())


def test_fit_uses_the_calibration_part(run: Run) -> None:
    run("fit", "both.npz", "-o", "cal.json")
    assert persistence.describe("cal.json")["data"] == persistence.fingerprint(CAL.values, CAL.labels)
    run("fit", "both.npz", "-o", "test.json", "--part", "test")
    assert persistence.describe("test.json")["data"] == persistence.fingerprint(TEST.values, TEST.labels)


def test_fit_that_does_not_converge_ends_with_3(run: Run) -> None:
    result = run(
        "fit", "cal.npz", "-o", "cal.json", "-m", "mcct", "--set", "max_iter=1", "--set", "tol=1e-12", code=3
    )
    assert "warning: cal.npz: MCCT did not converge" in result.stderr
    assert "--set max_iter" in result.stderr
    assert mc.load("cal.json").solution_.converged is False


def test_fit_on_probabilities(run: Run, folder: Path) -> None:
    np.savez(folder / "p.npz", probabilities=CAL.truth, labels=CAL.labels)
    run("fit", "p.npz", "-o", "cal.json")
    assert mc.load("cal.json").input == "probabilities"
    np.save(folder / "out.npy", CAL.truth)
    np.save(folder / "y.npy", CAL.labels)
    result = run("fit", "out.npy", "--labels", "y.npy", "-o", "refused.json", code=1)
    assert "all values lie between 0 and 1" in result.stderr
    assert "Say --kind probabilities, or --kind logits" in result.stderr
    run("fit", "out.npy", "--labels", "y.npy", "--input", "probabilities", "-o", "stated.json")
    assert mc.load("stated.json").input == "probabilities"


def test_names_can_be_given(run: Run, folder: Path) -> None:
    np.savez(folder / "odd.npz", first=CAL.values, second=TEST.values[:, :2], truth=CAL.labels)
    run("fit", "odd.npz", "--logits-name", "first", "--labels-name", "truth", "-o", "cal.json")
    assert persistence.describe("cal.json")["data"]["shape"] == [500, 5]
    table = (
        ",".join("abcde")
        + ",cls\n"
        + "".join(
            ",".join(map(str, [*row, label])) + "\n"
            for row, label in zip(CAL.values, CAL.labels, strict=True)
        )
    )
    (folder / "table.csv").write_text(table)
    run("fit", "table.csv", "--logits-name", "a,b,c,d,e", "--labels-name", "cls", "-o", "table.json")
    assert persistence.describe("table.json")["data"] is not None


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".csv", ".parquet", ".safetensors", ".h5"])
def test_apply_writes_every_format(run: Run, suffix: str) -> None:
    run("fit", "cal.npz", "-o", "cal.json")
    run("apply", "cal.json", "test.npz", "-o", f"probs{suffix}")
    result = mc.read(f"probs{suffix}", kind="probabilities")
    expected = mc.load("cal.json").predict_proba(TEST.values)
    np.testing.assert_allclose(result.values, expected, rtol=1e-6)
    if suffix == ".npy":
        assert result.labels is None
    else:
        np.testing.assert_array_equal(result.labels, TEST.labels)


def test_apply_needs_no_labels_and_can_write_logits(run: Run) -> None:
    run("fit", "cal.npz", "-o", "cal.json")
    run("apply", "cal.json", "unlabelled.npz", "--as", "logits", "-o", "logits.npz")
    with np.load("logits.npz") as arrays:
        assert arrays.files == ["logits"]
        np.testing.assert_array_equal(arrays["logits"], mc.load("cal.json").transform(TEST.values))


def test_apply_in_blocks_is_apply_at_once(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("fit", "cal.npz", "-o", "cal.json")
    np.save(folder / "test.npy", TEST.values)
    monkeypatch.setattr("monocal.cli.fit_apply._BLOCK", 5 * 7)
    run("apply", "cal.json", "test.npy", "-o", "probs.npy")
    # Matrix products may round otherwise for another number of rows.
    np.testing.assert_allclose(
        np.load("probs.npy"), mc.load("cal.json").predict_proba(TEST.values), rtol=1e-5, atol=1e-7
    )


def test_evaluate_shows_before_and_after(run: Run) -> None:
    run("fit", "cal.npz", "-o", "cal.json")
    result = json.loads(run("evaluate", "test.npz", "-c", "cal.json", "--n-boot", 20, "--json").stdout)
    after = mc.evaluate(mc.load("cal.json").predict_proba(TEST.values), TEST.labels, n_boot=20)
    assert result["after"] == json.loads(json.dumps(after.to_dict()))
    assert result["before"]["metrics"]["ece"]["value"] > result["after"]["metrics"]["ece"]["value"]
    assert result["ece_floor"]["observed"] == pytest.approx(result["after"]["metrics"]["ece"]["value"])
    text = run("evaluate", "test.npz", "-c", "cal.json", "--n-boot", 0).stdout
    assert "before" in text
    assert "Perfectly calibrated, these rows would show" in text


def test_evaluate_splits_the_losses(run: Run) -> None:
    run("fit", "cal.npz", "-o", "parts.json", "--method", "temperature-scaling")
    result = json.loads(
        run("evaluate", "test.npz", "-c", "parts.json", "--decompose", "--n-boot", 0, "--json").stdout
    )
    for side in ("before", "after"):
        nll = result[side]["decomposition"]["nll"]
        assert nll["total"] == pytest.approx(result[side]["metrics"]["nll"]["value"])
        assert nll["calibration"] + nll["refinement"] == pytest.approx(nll["total"])
    before, after = (result[side]["decomposition"]["nll"]["calibration"] for side in ("before", "after"))
    assert before > after + 0.01
    text = run("evaluate", "test.npz", "-c", "parts.json", "--decompose", "--n-boot", 0).stdout
    assert (
        f"before: NLL {result['before']['metrics']['nll']['value']:.4f} = {before:.4f} calibration +" in text
    )


def test_evaluate_of_applied_probabilities_is_evaluate_with_the_calibrator(run: Run) -> None:
    run("fit", "cal.npz", "-o", "cal.json")
    run("apply", "cal.json", "test.npz", "-o", "probs.npz")
    metrics = ("--metrics", "nll,ece", "--n-boot", 0, "--json")
    direct = json.loads(run("evaluate", "test.npz", "-c", "cal.json", *metrics).stdout)["after"]
    assert json.loads(run("evaluate", "probs.npz", *metrics).stdout)["value"] == direct


def test_evaluate_on_the_calibration_data_says_so(run: Run) -> None:
    run("fit", "cal.npz", "-o", "cal.json")
    assert "fitted on these very data" in run("evaluate", "cal.npz", "-c", "cal.json", "--n-boot", 0).stderr
    assert (
        "fitted on these very data" not in run("evaluate", "test.npz", "-c", "cal.json", "--n-boot", 0).stderr
    )


@pytest.mark.parametrize(
    ("arguments", "how"),
    [
        (("cal.npz", "--test", "test.npz"), "500 samples to calibrate on, 400 others to judge on"),
        (("both.npz",), "500 samples to calibrate on, 400 others to judge on"),
        (("cal.npz",), "5-fold cross-validation of 500 samples"),
    ],
)
def test_compare_recommends_with_a_reason(run: Run, arguments: tuple[str, ...], how: str) -> None:
    few = ("--methods", "temperature,mcct,vector", "--n-boot", 20)
    result = json.loads(run("compare", *arguments, *few, "--json").stdout)
    assert result["judged_on"] == how
    names = [one["name"] for one in result["methods"]]
    assert len(names) == 4
    assert "uncalibrated" in names
    losses = [one["evaluation"]["metrics"]["nll"]["value"] for one in result["methods"]]
    assert losses == sorted(losses)
    chosen = next(one for one in result["methods"] if one["name"] == result["recommended"])
    assert chosen["guarantees_order"]
    assert result["recommended"] in result["reason"]
    text = run("compare", *arguments, *few).stdout
    assert how in text
    assert "rows re-ordered" in text


def test_compare_judges_as_the_library_does(run: Run) -> None:
    result = run("compare", "cal.npz", "--test", "test.npz", "--methods", "mcct", "--n-boot", 0, "--json")
    (mcct,) = (one for one in json.loads(result.stdout)["methods"] if one["name"] != "uncalibrated")
    probs = mc.MCCT().fit(CAL.values, CAL.labels).predict_proba(TEST.values)
    assert mcct["evaluation"]["metrics"]["nll"]["value"] == pytest.approx(
        mc.metrics.nll(probs, TEST.labels), abs=1e-9
    )


def test_audit_of_a_calibrator_that_keeps_the_order(run: Run) -> None:
    run("fit", "cal.npz", "-o", "cal.json")
    run("apply", "cal.json", "test.npz", "-o", "probs.npz")
    for arguments in (("test.npz", "probs.npz"), ("probs.npz", "test.npz"), ("test.npz", "-c", "cal.json")):
        assert "was kept" in run("audit", *arguments).stdout
        assert json.loads(run("audit", *arguments, "--json").stdout)["preserved"] is True


def test_audit_finds_what_was_moved(run: Run, folder: Path) -> None:
    moved = TEST.values.copy()
    moved[7] = -moved[7]
    moved[9, 0] = np.nextafter(moved[9, 0], np.float32(99))
    np.savez(folder / "moved.npz", logits=moved)
    for arguments in (("test.npz", "moved.npz"), ("moved.npz", "test.npz")):
        assert "was not kept" in run("audit", *arguments, code=3).stdout
        counts = json.loads(run("audit", *arguments, "--json", code=3).stdout)["all"]
        assert counts["rows_inverted"] == 1
        assert counts["inverted_pairs"] == 10
        assert counts["top1_changed"] == 1


def test_audit_compares_probabilities_with_logits_exactly(run: Run, folder: Path) -> None:
    # Neighbouring small probabilities have the same logarithm: no detour may call that a change of order.
    small = np.array([[1e-30, np.nextafter(1e-30, 1), 1.0, 0.0]])
    np.savez(folder / "before.npz", probabilities=small)
    np.savez(folder / "after.npz", logits=np.array([[1.0, 2.0, 3.0, -np.inf]]))
    assert json.loads(run("audit", "before.npz", "after.npz", "--json").stdout)["preserved"]


def test_report_is_one_page(run: Run) -> None:
    run("report", "both.npz", "-o", "report.html", "--no-compare", "--title", "My own title")
    page = Path("report.html").read_text()
    assert "My own title" in page
    assert page.rstrip().endswith("</html>")
    run("fit", "cal.npz", "-o", "cal.json", "-m", "mcct")
    arguments = (
        "report",
        "cal.npz",
        "--test",
        "test.npz",
        "-c",
        "cal.json",
        "--no-compare",
        "-o",
        "report.html",
        "--force",
    )
    result = json.loads(run(*arguments, "--json").stdout)
    probs = mc.load("cal.json").predict_proba(TEST.values)
    assert result["after"]["metrics"]["nll"]["value"] == pytest.approx(
        mc.metrics.nll(probs, TEST.labels), abs=1e-6
    )
    assert result["order"]["preserved"]


def test_export_to_onnx(run: Run) -> None:
    runtime = pytest.importorskip("onnxruntime")
    run("fit", "cal.npz", "-o", "cal.json")
    run("export", "cal.json", "--to", "onnx", "-o", "cal.onnx")
    session = runtime.InferenceSession("cal.onnx")
    (result,) = session.run(None, {session.get_inputs()[0].name: TEST.values})
    np.testing.assert_allclose(result, mc.load("cal.json").predict_proba(TEST.values), atol=1e-6)


def test_export_to_torch(run: Run) -> None:
    torch = pytest.importorskip("torch")
    run("fit", "cal.npz", "-o", "cal.json")
    result = run("export", "cal.json", "--to", "torch", "-o", "cal.pt2")
    assert "warning" not in result.stderr
    module = torch.export.load("cal.pt2").module()
    actual = module(torch.from_numpy(TEST.values)).detach().numpy()
    np.testing.assert_allclose(actual, mc.load("cal.json").predict_proba(TEST.values), atol=1e-6)


@pytest.mark.parametrize("columns", [1, 2])  # a file with one score is fitted as two columns
@pytest.mark.parametrize("context", [{}, {"context": ["a", "b"] * 20}])
def test_export_of_one_score_per_row(run: Run, context: dict[str, list[str]], columns: int) -> None:
    torch, runtime = pytest.importorskip("torch"), pytest.importorskip("onnxruntime")
    s = np.linspace(-3, 3, 40, dtype=np.float32)
    X = s if columns == 1 else np.stack([0 * s, s], axis=1)
    cal = mc.BinaryMCCT(input="scores").fit(X, np.sin(7 * s) + s > 0, **context)
    cal.save("cal.json")
    codes = cal.context_.codes(context["context"]).astype(float) if context else None
    run("export", "cal.json", "--to", "onnx", "--ndim", "1", "-o", "cal.onnx")
    run("export", "cal.json", "--to", "torch", "--ndim", "1", "-o", "cal.pt2")
    feed = {"scores": s} if codes is None else {"scores": s, "context": codes}
    results = [
        runtime.InferenceSession("cal.onnx").run(None, feed)[0],
        torch.export.load("cal.pt2").module()(*map(torch.tensor, feed.values())).numpy(),
    ]
    for result in results:
        np.testing.assert_allclose(result, cal.predict_proba(s, **context), atol=1e-6)


def test_demo_runs_the_commands_and_leaves_their_files(run: Run, folder: Path) -> None:
    made = folder / "monocal-demo"
    made.mkdir()
    (made / "report.html").write_text("of an earlier demo")
    text = run("demo").stdout
    assert (made / "report.html").resolve().as_uri() in text
    assert (made / "report.html").read_text().rstrip().endswith("</html>")
    for command in ("fit", "apply", "evaluate", "report"):
        assert f"$ monocal {command} monocal-demo" in text
    digits = mc.read_splits(made / "digits.npz")
    calibrator = mc.load(made / "calibrator.json")
    applied = mc.read(made / "probabilities.npz")
    np.testing.assert_array_equal(applied.values, calibrator.predict_proba(digits.test.values))
    (made / "notes.txt").write_text("mine")
    assert "notes.txt" in run("demo", code=1).stderr
    result = json.loads(run("demo", "--json", "--force").stdout)
    assert {Path(name).name for name in result["files"]} == set(os.listdir(made)) - {"notes.txt"}


def test_infinity_in_json_is_a_string_that_float_reads(run: Run, folder: Path) -> None:
    np.savez(folder / "sure.npz", probabilities=[[1.0, 0.0], [0.5, 0.5]], labels=[1, 0])
    text = run("evaluate", "sure.npz", "--json", "--n-boot", "5").stdout
    result = json.loads(text, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    estimate = result["value"]["metrics"]["nll"]
    assert estimate["value"] == "Infinity"
    assert float(estimate["value"]) == np.inf


def test_review_finds_a_threshold_or_ends_with_code_3(run: Run, folder: Path) -> None:
    run("fit", "cal.npz", "-o", "cal.json", "-m", "mcct")
    result = json.loads(run("review", "test.npz", "-c", "cal.json", "--max-error", 0.3, "--json").stdout)
    assert 0 < result["automated"] <= 1
    assert result["error"] <= 0.3
    text = run(
        "review", "test.npz", "--max-error", 0.3, "--groups", "predicted", "--picture", "rule.png"
    ).stdout
    assert "may go out without review" in text
    assert (folder / "rule.png").stat().st_size > 1000
    assert "No threshold can promise" in run("review", "test.npz", "--max-error", 0.00001, code=3).stdout


def test_a_calibrator_with_context_finds_its_columns_in_every_command(run: Run) -> None:
    rng = np.random.default_rng(3)
    site = np.where(np.arange(400) % 2, "north", "south")
    score = rng.normal(size=400) * 2
    label = rng.random(400) < 1 / (1 + np.exp(-score / 2))
    np.savetxt("a.csv", np.c_[score, label, site], "%s,%s,%s", header="margin,label,site", comments="")
    error = run("fit", "a.csv", "-m", "sigmoid", "--context", "site", "-o", "cal.json", code=1).stderr
    assert "PlattScaling takes none. Use --method binary-mcct" in error
    run("fit", "a.csv", "-m", "binary-mcct", "--context", "site", "-o", "cal.json")
    for command in ("evaluate", "check", "monitor"):
        run(command, "a.csv", "-c", "cal.json")
    run("apply", "cal.json", "a.csv", "-o", "b.csv")
    assert "rows" in run("audit", "a.csv", "-c", "cal.json", code=3).stdout
    error = run("report", "a.csv", "-c", "cal.json", "-o", "r.html", code=1).stderr
    assert "use monocal evaluate --calibrator" in error


@pytest.fixture
def rare(folder: Path) -> str:
    """A file of P(class 1) as a classifier with balanced weights has it, where few rows are of class 1."""
    rng = np.random.default_rng(0)
    z = rng.normal(-5.5, 2, 3000)
    y = (rng.random(3000) < 1 / (1 + np.exp(-z))).astype(int)
    table = np.c_[1 / (1 + np.exp(-z - 4)), y]
    np.savetxt("rare.csv", table, "%.6f,%d", header="probability,label", comments="")
    return "rare.csv"


def test_two_classes_are_judged_by_the_probability_of_class_1(run: Run, rare: str) -> None:
    far = json.loads(run("check", rare, "--json", code=1).stdout)
    assert far["metric"] == "positive_ece"
    assert far["observed"] > 0.1  # where the ECE of the predicted class is small
    table = run("compare", rare, "--methods", "sigmoid,ts", "--n-boot", 20).stdout
    line = next(line for line in table.splitlines() if line.startswith("uncalibrated"))
    assert f"{100 * far['observed']:.2f} %" in line
    text = run("evaluate", rare, "--n-boot", 0).stdout
    assert f"{100 * far['observed']:.2f} % is more than chance" in text
    assert "an ECE of P(class 1) of" in text


@pytest.mark.parametrize(
    ("name", "kind", "note"),
    [
        ("platt", mc.PlattScaling, "keeps the ranking of the rows"),
        ("sigmoid", mc.PlattScaling, "keeps the ranking of the rows"),
        ("logistic", mc.PlattScaling, "keeps the ranking of the rows"),
        ("beta", mc.BetaCalibration, "keeps the ranking of the rows"),
        ("venn-abers", mc.VennAbers, "keeps the ranking of the rows"),
        ("isotonic", mc.IsotonicCalibration, "ranking of the rows"),
        ("ts", mc.TemperatureScaling, ""),
    ],
)
def test_methods_mean_what_users_of_scikit_learn_mean(
    run: Run, rare: str, name: str, kind: type, note: str
) -> None:
    result = run("fit", rare, "-m", name, "-o", "cal.json")
    assert type(mc.load("cal.json")) is kind
    assert note in result.stderr
    assert ("ranking" in result.stderr) == bool(note)
    if name == "isotonic":
        assert mc.load("cal.json").mode == "one_vs_rest"
    if name != "ts":
        run("check", rare, "-c", "cal.json")


def test_a_method_that_may_change_the_order_is_taken_with_its_reason(run: Run) -> None:
    data = mc.data.synthetic(2000, 5, seed=1)
    np.savez("biased.npz", logits=data.values - 4.0 * np.eye(5)[2], labels=data.labels)
    result = run("fit", "biased.npz", "-o", "cal.json")
    assert type(mc.load("cal.json")) is mc.StructuredMCCT
    assert "the order of the classes is the obstacle: '2' is predicted too rarely" in result.stderr
