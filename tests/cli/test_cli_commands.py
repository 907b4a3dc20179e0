"""Every command does what its help says: what it prints, what it writes, what code it ends with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_helpers import CAL, TEST, Run, result_of
from scipy.special import softmax

import monocal as mc
from monocal import persistence
from monocal.registry import find_method

# fit


def test_fit_saves_what_the_library_would_fit(run: Run) -> None:
    result = run("fit cal.npz -o cal.json --method mcct")
    assert "MCCT fitted on 500 samples of 5 classes" in result.stdout
    assert "On held-out folds:" in result.stdout
    expected = mc.MCCT().fit(CAL.values, CAL.labels).predict_proba(TEST.values)
    np.testing.assert_array_equal(mc.load("cal.json").predict_proba(TEST.values), expected)
    saved = persistence.describe("cal.json")
    assert saved["data"] == persistence.fingerprint(CAL.values, CAL.labels)
    after, before = (saved["metrics"][side]["metrics"]["nll"]["value"] for side in ("after", "before"))
    assert after < before


def test_fit_takes_parameters(run: Run) -> None:
    run("fit cal.npz -o a.json -m MCCT --top-k 2 --shrinkage cv --set tol=1e-5")
    parameters = mc.load("a.json").get_params()
    assert (parameters["top_k"], parameters["shrinkage"], parameters["tol"]) == (2, "cv", 1e-5)
    run("fit cal.npz -o b.json -m mcct --shrinkage 0.5 --set top_k=none")
    parameters = mc.load("b.json").get_params()
    assert (parameters["top_k"], parameters["shrinkage"]) == (None, 0.5)


def test_every_method_listed_can_be_fitted_by_its_name(run: Run) -> None:
    for name in ("temperature-scaling", "TemperatureScaling", "temperature", "Temperature Scaling"):
        assert type(find_method(name)[1]) is mc.TemperatureScaling
    np.savez("few.npz", logits=CAL.values[:80], labels=CAL.labels[:80])
    quick = [info for info in mc.all_calibrators() if not info.extras and not info.published]
    assert len(quick) > 10
    for info in quick:
        run("fit few.npz -o cal.json --force -m", info.name)
        assert repr(mc.load("cal.json")) == repr(info.make())


def test_fit_uses_the_calibration_part(run: Run) -> None:
    run("fit both.npz -o cal.json -m ts")
    assert persistence.describe("cal.json")["data"] == persistence.fingerprint(CAL.values, CAL.labels)
    run("fit both.npz -o test.json -m ts --part test")
    assert persistence.describe("test.json")["data"] == persistence.fingerprint(TEST.values, TEST.labels)


def test_fit_that_does_not_converge_ends_with_3(run: Run) -> None:
    result = run("fit cal.npz -o cal.json -m mcct --set max_iter=1 --set tol=1e-12", code=3)
    assert "warning: cal.npz: MCCT did not converge" in result.stderr
    assert "--set max_iter" in result.stderr
    assert mc.load("cal.json").solution_.converged is False


def test_fit_on_probabilities(run: Run) -> None:
    np.savez("p.npz", probabilities=CAL.truth, labels=CAL.labels)
    run("fit p.npz -o cal.json")
    assert mc.load("cal.json").input == "probabilities"
    np.save("out.npy", CAL.truth)
    np.save("y.npy", CAL.labels)
    result = run("fit out.npy --labels y.npy -o refused.json", code=1)
    assert "Say --kind probabilities, or --kind logits" in result.stderr
    run("fit out.npy --labels y.npy --input probabilities -o stated.json")
    assert mc.load("stated.json").input == "probabilities"


def test_a_method_that_may_change_the_order_is_taken_with_its_reason(run: Run) -> None:
    data = mc.data.synthetic(2000, 5, seed=1)
    np.savez("biased.npz", logits=data.values - 4.0 * np.eye(5)[2], labels=data.labels)
    result = run("fit biased.npz -o cal.json")
    assert type(mc.load("cal.json")) is mc.StructuredMCCT
    assert "the order of the classes is the obstacle: '2' is predicted too rarely" in result.stderr


# apply


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".csv", ".parquet", ".safetensors", ".h5"])
def test_apply_writes_every_format(run: Run, calibrator: mc.MCCT, suffix: str) -> None:
    run("apply cal.json test.npz -o", f"probs{suffix}")
    result = mc.read(f"probs{suffix}", kind="probabilities")
    np.testing.assert_allclose(result.values, calibrator.predict_proba(TEST.values), rtol=1e-6)
    if suffix == ".npy":
        assert result.labels is None
    else:
        np.testing.assert_array_equal(result.labels, TEST.labels)


def test_apply_needs_no_labels_and_can_write_logits(run: Run, calibrator: mc.MCCT) -> None:
    run("apply cal.json unlabelled.npz --as logits -o logits.npz")
    with np.load("logits.npz") as arrays:
        assert arrays.files == ["logits"]
        np.testing.assert_array_equal(arrays["logits"], calibrator.transform(TEST.values))


def test_apply_in_blocks_is_apply_at_once(
    run: Run, calibrator: mc.MCCT, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("test.npy", TEST.values)
    monkeypatch.setattr("monocal.cli.fit_apply._BLOCK", 5 * 7)
    run("apply cal.json test.npy -o probs.npy")
    # Matrix products may round otherwise for another number of rows.
    expected = calibrator.predict_proba(TEST.values)
    np.testing.assert_allclose(np.load("probs.npy"), expected, rtol=1e-5, atol=1e-7)


# evaluate


def test_evaluate_shows_before_and_after(run: Run, calibrator: mc.MCCT) -> None:
    result = result_of(run, "evaluate test.npz -c cal.json --n-boot 20 --decompose")
    after = mc.evaluate(calibrator.predict_proba(TEST.values), TEST.labels, n_boot=20)
    assert result["after"]["metrics"] == json.loads(json.dumps(after.to_dict()))["metrics"]
    assert result["before"]["metrics"]["ece"]["value"] > result["after"]["metrics"]["ece"]["value"]
    assert result["ece_floor"]["observed"] == pytest.approx(result["after"]["metrics"]["ece"]["value"])
    removable = []
    for side in ("before", "after"):
        nll = result[side]["decomposition"]["nll"]
        assert nll["total"] == pytest.approx(result[side]["metrics"]["nll"]["value"])
        assert nll["calibration"] + nll["refinement"] == pytest.approx(nll["total"])
        removable.append(nll["calibration"])
    assert removable[0] > removable[1] + 0.01
    text = run("evaluate test.npz -c cal.json --decompose --n-boot 0").stdout
    assert "Perfectly calibrated, these rows would show" in text
    assert f"= {removable[0]:.4f} calibration +" in text


def test_evaluate_of_applied_probabilities_is_evaluate_with_the_calibrator(
    run: Run, calibrator: mc.MCCT
) -> None:
    run("apply cal.json test.npz -o probs.npz")
    direct = result_of(run, "evaluate test.npz -c cal.json --metrics nll,ece --n-boot 0")["after"]
    assert result_of(run, "evaluate probs.npz --metrics nll,ece --n-boot 0")["value"] == direct


def test_evaluate_on_the_calibration_data_says_so(run: Run) -> None:
    run("fit cal.npz -o cal.json -m ts")
    for path, same in (("cal.npz", True), ("test.npz", False)):
        said = run("evaluate", path, "-c", "cal.json", "--n-boot", 0).stderr
        assert ("fitted on these very data" in said) == same


def test_infinity_in_json_is_a_string_that_float_reads(run: Run) -> None:
    np.savez("sure.npz", probabilities=[[1.0, 0.0], [0.5, 0.5]], labels=[1, 0])
    text = run("evaluate sure.npz --json --n-boot 5").stdout
    result = json.loads(text, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    estimate = result["value"]["metrics"]["nll"]
    assert estimate["value"] == "Infinity"
    assert float(estimate["value"]) == np.inf


# compare


@pytest.mark.parametrize(
    ("files", "how"),
    [
        ("cal.npz --test test.npz", "500 samples to calibrate on, 400 others to judge on"),
        ("both.npz", "500 samples to calibrate on, 400 others to judge on"),
        ("cal.npz", "5-fold cross-validation of 500 samples"),
    ],
)
@pytest.mark.usefixtures("here")
def test_compare_recommends_with_a_reason(run: Run, files: str, how: str) -> None:
    command = f"compare {files} --methods temperature,mcct,vector --n-boot 20"
    result = result_of(run, command)
    assert result["judged_on"] == how
    methods = {one["name"]: one for one in result["methods"]}
    assert len(methods) == 4
    assert "uncalibrated" in methods
    losses = [one["evaluation"]["metrics"]["nll"]["value"] for one in methods.values()]
    assert losses == sorted(losses)
    assert methods[result["recommended"]]["guarantees_order"]
    assert result["recommended"] in result["reason"]
    if "--test" in files:
        text = run(command).stdout
        assert how in text
        assert "rows re-ordered" in text


@pytest.mark.usefixtures("here")
def test_compare_judges_as_the_library_does(run: Run, calibrator: mc.MCCT) -> None:
    result = result_of(run, "compare cal.npz --test test.npz --methods mcct --n-boot 0")
    (mcct,) = (one for one in result["methods"] if one["name"] != "uncalibrated")
    expected = mc.metrics.nll(calibrator.predict_proba(TEST.values), TEST.labels)
    assert mcct["evaluation"]["metrics"]["nll"]["value"] == pytest.approx(expected, abs=1e-9)


def biased(path: str, seed: int, rows: Any = slice(None)) -> None:
    data = mc.data.synthetic(800, 4, seed=seed)
    kept = rows(data.labels) if callable(rows) else rows
    np.savez(path, logits=(data.values + np.array([3.0, 0.0, -3.0, 0.0]))[kept], labels=data.labels[kept])


@pytest.mark.usefixtures("here")
def test_what_the_order_costs_and_whether_frequencies_differ(run: Run) -> None:
    biased("biased.npz", 0)
    biased("same.npz", 1)
    biased("other.npz", 1, lambda labels: labels < 2)
    methods = "--methods temperature-scaling,structured-mcct --n-boot 0"
    result = result_of(run, f"compare biased.npz --test same.npz {methods}")
    assert result["price_of_order"]["method"] == "structured MCCT"
    assert result["price_of_order"]["nll"]["low"] > 0
    assert not result["label_shift"]["shifted"]
    assert result["recommended"] == result["recommended_if_order_may_change"] == "structured MCCT"
    assert result["reason"].startswith("Use structured MCCT: the order of the classes is the obstacle")
    text = " ".join(run(f"compare biased.npz --test other.npz {methods}").stdout.split())
    assert "Keeping the order gains" in text  # of the rows of two classes alone
    assert "The class frequencies of calibration and test rows differ" in text
    assert "LabelShift(calibrator, prior=...)" in text


# audit


def test_audit_of_a_calibrator_that_keeps_the_order(run: Run, calibrator: mc.MCCT) -> None:
    run("apply cal.json test.npz -o probs.npz")
    for files in ("test.npz probs.npz", "probs.npz test.npz", "test.npz -c cal.json"):
        assert "was kept" in run(f"audit {files}").stdout
        assert result_of(run, f"audit {files}")["preserved"] is True


def test_audit_finds_what_was_moved(run: Run) -> None:
    moved = TEST.values.copy()
    moved[7] = -moved[7]
    moved[9, 0] = np.nextafter(moved[9, 0], np.float32(99))
    np.savez("moved.npz", logits=moved)
    for files in ("test.npz moved.npz", "moved.npz test.npz"):
        assert "was not kept" in run(f"audit {files}", code=3).stdout
        counts = result_of(run, f"audit {files}", code=3)["all"]
        assert [counts[name] for name in ("rows_inverted", "inverted_pairs", "top1_changed")] == [1, 10, 1]


def test_audit_compares_probabilities_with_logits_exactly(run: Run) -> None:
    # Neighbouring small probabilities have the same logarithm: no detour may call that a change of order.
    small = np.array([[1e-30, np.nextafter(1e-30, 1), 1.0, 0.0]])
    np.savez("before.npz", probabilities=small)
    np.savez("after.npz", logits=np.array([[1.0, 2.0, 3.0, -np.inf]]))
    assert result_of(run, "audit before.npz after.npz")["preserved"]


# report, export, demo, review


def test_report_is_one_page(run: Run, calibrator: mc.MCCT) -> None:
    subject = np.where(np.arange(400) % 2, "law", "art")
    np.savez("known.npz", logits=TEST.values, labels=TEST.labels, subject=subject)
    files = "report cal.npz --test known.npz -c cal.json --no-compare"
    result = result_of(run, f"{files} --groups subject -o report.html --title Mine")
    after = mc.metrics.nll(calibrator.predict_proba(TEST.values), TEST.labels)
    assert result["after"]["metrics"]["nll"]["value"] == pytest.approx(after, abs=1e-6)
    assert result["order"]["preserved"]
    assert result["verdict"]["headline"].startswith("Not trustworthy as it is: over-confident by")
    page = Path("report.html").read_text()
    assert page.rstrip().endswith("</html>")
    for text in ("Mine", "Over-confidence by group, before and after calibration", "law"):
        assert text in page
    assert "sex" in run(f"{files} -o other.html --groups sex", code=1).stderr
    assert not Path("other.html").exists()
    shown = run("report both.npz -m temperature --no-compare -o report.html --force").stdout
    assert "Not trustworthy as it is" in shown


@pytest.mark.parametrize(
    "columns", [1, 2, 5]
)  # of one score, which may be fitted as two columns, or of five classes
@pytest.mark.parametrize("context", [{}, {"context": ["a", "b"] * 20}])
def test_exports(run: Run, context: dict[str, list[str]], columns: int) -> None:
    torch, runtime = pytest.importorskip("torch"), pytest.importorskip("onnxruntime")
    s = np.linspace(-3, 3, 40, dtype=np.float32)
    if columns == 5:
        X, cal = CAL.values[:40], mc.ConditionalMCCT().fit(CAL.values[:40], CAL.labels[:40], **context)
        rows, name, ndim = X, "logits", []
    else:
        X = s if columns == 1 else np.stack([0 * s, s], axis=1)
        cal = mc.BinaryMCCT(input="scores").fit(X, np.sin(7 * s) + s > 0, **context)
        rows, name, ndim = s, "scores", ["--ndim", 1]
    cal.save("cal.json")
    feed = {name: rows}
    if context:
        feed["context"] = cal.context_.codes(context["context"]).astype(float)
    run("export cal.json --to onnx -o cal.onnx", *ndim)
    assert "warning" not in run("export cal.json --to torch -o cal.pt2", *ndim).stderr
    results = [
        runtime.InferenceSession("cal.onnx").run(None, feed)[0],
        torch.export.load("cal.pt2").module()(*map(torch.tensor, feed.values())).detach().numpy(),
    ]
    for result in results:
        np.testing.assert_allclose(result, cal.predict_proba(rows, **context), atol=1e-6)


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
    applied = mc.read(made / "probabilities.npz").values
    np.testing.assert_array_equal(
        applied, mc.load(made / "calibrator.json").predict_proba(digits.test.values)
    )
    (made / "notes.txt").write_text("mine")
    assert "notes.txt" in run("demo", code=1).stderr
    result = result_of(run, "demo --force")
    assert {Path(name).name for name in result["files"]} == set(os.listdir(made)) - {"notes.txt"}


def test_review_finds_a_threshold_or_ends_with_code_3(run: Run, calibrator: mc.MCCT) -> None:
    result = result_of(run, "review test.npz -c cal.json --max-error 0.3")
    assert 0 < result["automated"] <= 1
    assert result["error"] <= 0.3
    text = run("review test.npz --max-error 0.3 --groups predicted --picture rule.png").stdout
    assert "may go out without review" in text
    assert Path("rule.png").stat().st_size > 1000
    assert "No threshold can promise" in run("review test.npz --max-error 0.00001", code=3).stdout


# Two classes


def test_a_calibrator_with_context_finds_its_columns_in_every_command(run: Run) -> None:
    rng = np.random.default_rng(3)
    site = np.where(np.arange(400) % 2, "north", "south")
    score = rng.normal(size=400) * 2
    label = rng.random(400) < 1 / (1 + np.exp(-score / 2))
    np.savetxt("a.csv", np.c_[score, label, site], "%s,%s,%s", header="margin,label,site", comments="")
    error = run("fit a.csv -m sigmoid --context site -o cal.json", code=1).stderr
    assert "PlattScaling takes none. Use --method binary-mcct" in error
    run("fit a.csv -m binary-mcct --context site -o cal.json")
    for command in ("evaluate", "check", "monitor"):
        run(command, "a.csv", "-c", "cal.json")
    run("apply cal.json a.csv -o b.csv")
    assert "rows" in run("audit a.csv -c cal.json", code=3).stdout
    assert "use monocal evaluate" in run("report a.csv -c cal.json -o r.html", code=1).stderr


@pytest.fixture
def rare(run: Run) -> Run:
    """rare.csv: P(class 1) as a classifier with balanced weights has it, where few rows are of class 1."""
    rng = np.random.default_rng(0)
    z = rng.normal(-5.5, 2, 3000)
    y = (rng.random(3000) < 1 / (1 + np.exp(-z))).astype(int)
    table = np.c_[1 / (1 + np.exp(-z - 4)), y]
    np.savetxt("rare.csv", table, "%.6f,%d", header="probability,label", comments="")
    return run


@pytest.mark.usefixtures("here")
def test_two_classes_are_judged_by_the_probability_of_class_1(rare: Run) -> None:
    far = result_of(rare, "check rare.csv", code=1)
    assert far["metric"] == "positive_ece"
    assert far["observed"] > 0.1  # where the ECE of the predicted class is small
    seen = f"{100 * far['observed']:.2f} %"
    table = rare("compare rare.csv --methods sigmoid,ts --n-boot 20").stdout
    assert seen in next(line for line in table.splitlines() if line.startswith("uncalibrated"))
    text = rare("evaluate rare.csv --n-boot 0").stdout
    assert f"{seen} is more than chance" in text
    assert "an ECE of P(class 1) of" in text


@pytest.mark.parametrize(
    ("name", "kind", "note"),
    [
        ("platt", mc.PlattScaling, "keeps the ranking of the rows"),
        ("sigmoid", mc.PlattScaling, "keeps the ranking of the rows"),
        ("venn-abers", mc.VennAbers, "keeps the ranking of the rows"),
        ("isotonic", mc.IsotonicCalibration, "ranking of the rows"),
        ("ts", mc.TemperatureScaling, ""),
    ],
)
def test_methods_mean_what_users_of_scikit_learn_mean(rare: Run, name: str, kind: type, note: str) -> None:
    result = rare("fit rare.csv -o cal.json -m", name)
    assert type(mc.load("cal.json")) is kind
    assert note in result.stderr
    assert ("ranking" in result.stderr) == bool(note)
    if name == "isotonic":
        assert mc.load("cal.json").mode == "one_vs_rest"
    if name != "ts":
        rare("check rare.csv -c cal.json")


# Samples of lm-evaluation-harness


def write_samples(path: str, n: int, seed: int, most: int) -> list[list[float]]:
    """Questions with three to ``most`` options, log-likelihoods twice as steep as they should be."""
    rng = np.random.default_rng(seed)
    values = [(-20 + 2 * rng.standard_normal(rng.integers(3, most + 1))).tolist() for _ in range(n)]
    targets = [str(rng.choice(len(v), p=softmax(np.array(v) / 2))) for v in values]
    lines = [
        {"doc_id": i, "target": target, "filtered_resps": [[str(x), "False"] for x in v]}
        for i, (v, target) in enumerate(zip(values, targets, strict=True))
    ]
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return values


def test_from_samples_of_a_language_model_to_probabilities(run: Run) -> None:
    write_samples("samples.jsonl", 300, 0, 5)
    values = write_samples("other.jsonl", 50, 1, 4)
    said = run("fit samples.jsonl -o cal.json")
    assert "300 rows, logits of 5 classes" in said.stdout
    assert "the log-likelihoods of the options were read as logits" in said.stderr
    assert "questions have 3 to 5 options" in said.stderr
    judged = result_of(run, "evaluate other.jsonl -c cal.json --n-boot 0")
    assert judged["after"]["metrics"]["nll"]["value"] < judged["before"]["metrics"]["nll"]["value"]
    run("apply cal.json other.jsonl -o out.csv")  # its longest question has four options
    out = pd.read_csv("out.csv")
    assert out["id"].tolist() == list(range(50))
    for row, sample in zip(out.filter(like="probabilities").to_numpy(), values, strict=True):
        assert (row[len(sample) :] == 0).all()
        assert (np.argsort(row[: len(sample)]) == np.argsort(sample)).all()
        assert abs(row.sum() - 1) < 1e-6
    run("fit other.jsonl -m ts -o four.json")
    refused = run("apply four.json samples.jsonl -o no.csv", code=1)
    assert "samples.jsonl has 5 classes, but the calibrator was fitted on 4" in refused.stderr
