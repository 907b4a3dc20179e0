"""Files that were once misread, each with its command: the file is read as it is meant, or refused with what to type."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax

import monocal as mc

Run = Callable[..., Any]
RNG = np.random.default_rng(8)
N = 240
NAMES = ["cat", "dog", "owl"]
Z = RNG.normal(size=(N, 3)) * 2
LABELS = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)
PROBS = softmax(Z, axis=1)
SCORE = RNG.normal(size=N) * 2
HITS = (RNG.random(N) < expit(SCORE / 2)).astype(int)
P = expit(SCORE)


def pets(values: np.ndarray = Z, **more: Any) -> pd.DataFrame:
    frame = pd.DataFrame(values, columns=NAMES).assign(**more)
    return frame.assign(label=[NAMES[j] for j in LABELS])


def scores(values: Any = SCORE, labels: Any = HITS, name: str = "score", label: str = "label") -> Any:
    return pd.DataFrame({name: values, label: labels})


def fit(run: Run, frame: pd.DataFrame, *options: object, code: int = 0) -> Any:
    frame.to_csv("a.csv", index=False)
    result = run("fit", "a.csv", "-o", "cal.json", "--force", *options, code=code)
    return result if code else mc.load("cal.json")


def follow(run: Run, error: str, *arguments: object) -> None:
    """The first option that a message names, typed after the command that it refused."""
    option, value = re.search(r"(--[a-z-]+)(?: ([^\s;]+))?", error).groups()
    words = [] if value is None or option == "--drop-missing" else [value.rstrip(",.")]
    run(*arguments, option, *words)


# Logits, probabilities, percent


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (scores(P.round(2)), "probabilities"),
        (scores(100 * P), "percent"),
        (pets(PROBS), "probabilities"),
        (pets((100 * PROBS).round()), "percent"),
    ],
)
def test_what_looks_like_something_else_is_not_fitted(run: Run, frame: pd.DataFrame, kind: str) -> None:
    message = fit(run, frame, code=1).stderr
    assert f"Say --kind {kind}, or --kind logits if they are logits" in message
    assert not Path("cal.json").exists()
    for command in (("compare", "a.csv"), ("report", "a.csv", "-o", "r.html"), ("evaluate", "a.csv")):
        assert f"--kind {kind}" in run(*command, code=1).stderr
    follow(run, message, "fit", "a.csv", "-o", "cal.json")
    assert mc.load("cal.json").input == "probabilities"
    run("apply", "cal.json", "a.csv", "-o", "out.csv", "--kind", kind)
    fit(run, frame, "--kind", "logits")  # who says so is believed
    with pytest.warns(UserWarning, match=f"Say kind='{kind}'"):
        mc.read(frame)


def test_a_name_says_it_as_well(run: Run) -> None:
    for name in ("prob", "p", "y_pred_proba", "prob_yes"):
        assert fit(run, scores(P, name=name)).input == "probabilities"
    assert fit(run, scores(name="log_odds")).input == "logits"
    assert "--kind percent" in fit(run, scores(100 * P, name="prob"), code=1).stderr
    assert "--kind percent" in fit(run, scores(100 * P), "--kind", "probabilities", code=1).stderr


@pytest.mark.parametrize(("m", "digits"), [(3, 2), (40, 3)])
def test_rows_that_miss_one_by_their_rounding_are_divided_by_their_sum(run: Run, m: int, digits: int) -> None:
    rounded = RNG.dirichlet(np.ones(m), 400).round(digits)
    off = np.abs(rounded.sum(axis=1) - 1)
    assert off.max() > 10.0**-digits / 2
    frame = pd.DataFrame(rounded, columns=[f"prob_{j}" for j in range(m)])
    frame.to_csv("a.csv", index=False)
    frame.to_parquet("a.parquet")
    for data in (mc.read("a.csv"), mc.read("a.parquet")):
        np.testing.assert_allclose(data.values.sum(axis=1), 1, atol=1e-12)
        assert any("by the rounding of their entries" in note for note in data.notes)
        assert (np.diff(np.take_along_axis(data.values, rounded.argsort(axis=1), 1), axis=1) >= 0).all()


def test_rows_that_miss_one_by_more_are_refused(tmp_path: Path) -> None:
    wrong = PROBS.round(2)
    wrong[5] = [0.5, 0.4, 0.07]  # three entries of two decimals may miss 1 by .015
    with pytest.raises(mc.FileError, match=r"row 5 sums to 0\.97"):
        mc.read(pets(wrong), kind="probabilities")
    small = np.random.default_rng(0).uniform(
        0, 0.0009, (200, 1500)
    )  # that none of them reaches 0.001 is no rounding
    for dtype in (np.float64, np.float32):
        np.savez(tmp_path / "a.npz", probs=small.astype(dtype), labels=np.arange(200))
        with pytest.raises(mc.FileError, match=r"row 0 sums to 0\.6"):
            mc.read(tmp_path / "a.npz")


# Classes


def test_columns_that_no_label_names_are_no_classes(run: Run) -> None:
    age = RNG.integers(20, 80, N)
    calibrator = fit(run, pets(age=age, site=["a", "b"] * (N // 2)))
    assert list(calibrator.feature_names_in_) == NAMES
    alone = fit(run, pets())
    for one in (calibrator, alone):
        del one.feature_names_in_
    np.testing.assert_array_equal(calibrator.predict_proba(Z), alone.predict_proba(Z))
    # What the labels do not decide, the rows that sum to one do.
    odd = RNG.normal(size=N)
    assert list(fit(run, pets(PROBS, odd=odd), "--kind", "probabilities").feature_names_in_) == NAMES
    two = np.where(LABELS == 2, 0, LABELS)  # owl is the label of no row, and still a class
    frame = pets(PROBS).assign(label=[NAMES[j] for j in two])
    assert list(fit(run, frame, "--kind", "probabilities").feature_names_in_) == NAMES
    # Logits that a label might name are asked about, and the message can be followed.
    message = fit(run, pets(odd=odd), code=1).stderr
    assert "neither names nor labels say whether each is of a class" in message
    follow(run, message, "fit", "a.csv", "-o", "cal.json", "--force")
    assert list(mc.load("cal.json").feature_names_in_) == NAMES
    # A file to apply it to needs no labels: the calibrator knows its classes.
    pets(odd=odd, age=age).drop(columns="label").to_csv("new.csv", index=False)
    run("apply", "cal.json", "new.csv", "-o", "out.csv")
    assert list(pd.read_csv("out.csv").columns) == [*NAMES, "odd", "age", *(f"{n}_calibrated" for n in NAMES)]


def test_numbers_as_labels_leave_what_no_label_needs(run: Run) -> None:
    frame = pets(age=RNG.integers(20, 80, N)).assign(label=LABELS)
    assert list(fit(run, frame).feature_names_in_) == NAMES
    message = fit(run, pets(odd=RNG.normal(size=N)).assign(label=LABELS), code=1).stderr
    assert "has the columns 'cat', 'dog', 'owl', 'odd', and neither names nor labels say" in message
    follow(run, message, "fit", "a.csv", "-o", "cal.json", "--force")
    assert list(mc.load("cal.json").feature_names_in_) == NAMES


def test_two_scores_are_asked_about(run: Run) -> None:
    other = SCORE + RNG.normal(size=N)
    noise = RNG.normal(size=N)
    for columns in (
        {"model_a": SCORE, "model_b": other},
        {"risk": P, "height": noise},
        {"prob_a": P, "prob_b": expit(other)},
    ):
        message = fit(run, pd.DataFrame(columns).assign(label=HITS), code=1).stderr
        assert "neither names nor labels say whether each is of a class" in message
        follow(run, message, "fit", "a.csv", "-o", "cal.json", "--force", "--kind", "logits")
        assert mc.load("cal.json").n_features_in_ == 2
    message = run("fit", "a.csv", "-o", "b.json", "--logits-name", "prob_a,prob_b", code=1).stderr
    assert "name the columns of the classes with --logits-name" in message
    two = pd.DataFrame({"logit_no": noise - SCORE / 2, "logit_yes": noise + SCORE / 2}).assign(label=HITS)
    assert list(fit(run, two).feature_names_in_) == ["no", "yes"]  # a score for each class
    ids = pd.DataFrame({"patient": range(1000, 1000 + N), "margin_": SCORE}).assign(outcome=HITS)
    assert fit(run, ids).n_features_in_ == 2
    assert "other columns: 'patient'" in run("fit", "a.csv", "-o", "c.json").stdout


def test_a_cell_that_is_no_number_is_named(run: Run) -> None:
    frame = pets(age=RNG.integers(20, 80, N)).astype(object)
    frame.loc[4, "dog"] = "?"
    assert "column 'dog' has '?' in row 4 (counting from 0)" in fit(run, frame, code=1).stderr
    cells = scores([f"{100 * p:.1f} %" for p in P], name="probability")
    assert "leave the % signs out and say --kind percent" in fit(run, cells, code=1).stderr


# Text


@pytest.mark.parametrize(("separator", "decimal"), [(";", ","), ("\t", "."), ("|", ",")])
def test_separators_and_decimal_commas(run: Run, folder: Path, separator: str, decimal: str) -> None:
    frame = pets(age=RNG.integers(20, 80, N))
    frame.to_csv("a.csv", index=False, sep=separator, decimal=decimal)
    run("fit", "a.csv", "-o", "cal.json", "-m", "ts")
    expected = mc.TemperatureScaling().fit(Z, LABELS).temperature_
    assert mc.load("cal.json").temperature_ == pytest.approx(expected, rel=1e-9)
    spelt = "\\t" if separator == "\t" else separator
    run("fit", "a.csv", "-o", "b.json", "-m", "ts", "--sep", spelt, "--decimal", decimal)
    run("apply", "cal.json", "a.csv", "-o", "out.csv")
    assert (folder / "out.csv").read_text().startswith("cat,dog,owl,age,label,cat_calibrated,")
    written = pd.read_csv("out.csv")  # one notation of numbers in one table
    np.testing.assert_allclose(written[NAMES], Z, rtol=1e-12)
    run("evaluate", "out.csv", "--logits-name", ",".join(NAMES), "--n-boot", 0)


@pytest.mark.parametrize(("factor", "options"), [(1, []), (100, ["--kind", "percent"])])
def test_a_column_of_confidences_is_one_score(run: Run, factor: int, options: list[str]) -> None:
    frame = scores(P.round(2) * factor, name="confidence", label="correct").assign(id=range(N))
    fit(run, frame, *options)
    expected = mc.BinaryMCCT(input="probabilities").fit(P.round(2), HITS)
    result = mc.load("cal.json").predict_proba(P[:9])
    np.testing.assert_allclose(result, expected.predict_proba(P[:9]), rtol=1e-9)


# Labels


@pytest.mark.parametrize(
    ("no", "yes"),
    [(False, True), ("No", "Yes"), (-1, 1), ("negative", "positive")],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_labels_of_two_classes(run: Run, no: Any, yes: Any, suffix: str) -> None:
    frame = scores(labels=[yes if hit else no for hit in HITS])
    (frame.to_csv if suffix == ".csv" else frame.to_parquet)(f"a{suffix}", index=False)
    run("fit", f"a{suffix}", "-o", "cal.json")
    expected = mc.BinaryMCCT().fit(SCORE, HITS).predict_proba(SCORE)
    result = mc.load("cal.json")
    del_names = result.__dict__.pop("feature_names_in_", None)
    assert del_names is None or list(del_names) == [str(no), str(yes)]
    p = result.predict_proba(np.stack([0 * SCORE, SCORE], 1))[:, 1]
    np.testing.assert_allclose(p, expected, atol=1e-6)
    run("apply", "cal.json", f"a{suffix}", "-o", "out.csv")
    out = pd.read_csv("out.csv")
    assert list(out.columns) == ["score", "label", "score_calibrated"]
    np.testing.assert_allclose(out["score_calibrated"], expected, atol=1e-6)
    run("evaluate", f"a{suffix}", "-c", "cal.json")


def test_names_of_classes_are_kept_for_later_commands(run: Run) -> None:
    words = np.where(HITS == 1, "ham", "spam")
    fit(run, scores(labels=words), "--classes", "spam,ham")
    evaluation = json.loads(run("evaluate", "a.csv", "-c", "cal.json", "--json").stdout)
    assert evaluation["after"]["metrics"]["auc"]["value"] == pytest.approx(mc.metrics.auc(P, HITS))
    np.savez("a.npz", logits=Z, labels=np.array(NAMES)[LABELS])
    run("fit", "a.npz", "-o", "cal.json", "--force", "--classes", ",".join(NAMES))
    run("check", "a.npz", "-c", "cal.json", "--max-ece-excess", "1")


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (scores(labels=np.where(HITS == 1, "spam", "ham")), [], "say --classes ham,spam or"),
        (scores(label="died"), [], "name them with --labels-name died"),
        (
            pd.DataFrame({"bmi": SCORE + 25, "pulse": P + 70, "risk": P}).assign(label=HITS),
            ["--kind", "probabilities"],
            "say --logits-name risk for one score,",
        ),
        (scores(P, name="risk"), [], "say --kind probabilities"),
        (pets(PROBS), ["--kind", "percent"], "say --kind probabilities"),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, str) else "",
)
def test_the_advice_of_a_message_works(
    run: Run, frame: pd.DataFrame, options: list[str], message: str
) -> None:
    """An option that the message names, typed after the command that it refused, is what was missing."""
    error = fit(run, frame, *options, code=1).stderr
    assert message in " ".join(error.replace("Say", "say").split())
    follow(run, error[error.lower().index("say" if "say" in message else "name them") :], *_FIT, *options)


_FIT = ("fit", "a.csv", "-o", "cal.json", "--force")


def test_predicted_classes_are_no_scores(run: Run) -> None:
    frame = pd.DataFrame({"y_pred": HITS, "y_true": HITS[::-1]})
    assert "has no column of logits or probabilities: it holds 'y_pred'" in fit(run, frame, code=1).stderr


def test_the_column_that_apply_calibrated_is_named(run: Run) -> None:
    fit(run, scores(P), "--kind", "probabilities")
    run("apply", "cal.json", "a.csv", "-o", "out.csv")
    result = run("check", "out.csv")
    assert "'score_calibrated' was read, which apply has calibrated" in result.stderr
    assert "points" in result.stdout


def test_a_sheet_of_text_and_the_index_of_pandas_are_passed_over(run: Run) -> None:
    with pd.ExcelWriter("a.xlsx") as book:
        pd.DataFrame({"about": ["read me"]}).to_excel(book, sheet_name="info")
        scores().to_excel(book, sheet_name="data")
    result = run("fit", "a.xlsx", "-o", "cal.json")
    assert "logits of 2 classes in the column 'score', labels in 'label'." in " ".join(result.stdout.split())


def test_usual_names_of_labels() -> None:
    for word in (
        "y_test",
        "outcome",
        "actual_label",
        "target",
        "is_correct",
        "truth",
        "gold_label",
        "class_id",
    ):
        assert mc.read(scores(label=word)).labels is not None
        assert mc.read(pets().rename(columns={"label": word})).class_names == tuple(NAMES)


def test_missing_values_are_counted(run: Run) -> None:
    frame = pets(age=RNG.integers(20, 80, N).astype(float))
    frame.loc[3:5, "cat"] = np.nan
    frame.loc[9, "label"] = None
    frame.loc[20, "age"] = np.nan  # which is no class
    message = fit(run, frame, code=1).stderr
    assert "missing values in 4 of 240 rows (3 in 'cat', 1 in 'label'), first in row 3" in message
    assert "leave these rows out with --drop-missing" in message
    follow(run, message, "fit", "a.csv", "-o", "cal.json", "-m", "ts")
    left = np.setdiff1d(np.arange(N), [3, 4, 5, 9])
    expected = mc.TemperatureScaling().fit(Z[left], LABELS[left]).temperature_
    assert mc.load("cal.json").temperature_ == pytest.approx(expected, rel=1e-6)
    run("apply", "cal.json", "a.csv", "-o", "out.csv", "--drop-missing")
    assert len(pd.read_csv("out.csv")) == N - 3
    run("evaluate", "a.csv", "-c", "cal.json", "--drop-missing", "--groups", "predicted")


# apply keeps what it read


def test_apply_keeps_all_columns_as_they_stand(run: Run, folder: Path) -> None:
    fit(run, scores(P), "--kind", "probabilities")
    (folder / "new.csv").write_text('id,score,text\n0001,0.910,"a, b"\n0002,0.50,c\n')
    run("apply", "cal.json", "new.csv", "-o", "out.csv", "--kind", "probabilities")
    lines = (folder / "out.csv").read_text().splitlines()
    assert lines[0] == "id,score,text,score_calibrated"
    assert lines[1].replace('"', "").startswith("0001,0.910,a, b,0.")
    again = mc.read("out.csv")
    assert (again.kind, again.columns) == ("probabilities", ("score_calibrated",))
    run(
        "apply", "cal.json", "out.csv", "-o", "twice.csv", "--kind", "probabilities"
    )  # of what it was fitted on
    assert (folder / "twice.csv").read_text() == (folder / "out.csv").read_text()
    run("apply", "cal.json", "new.csv", "-o", "z.csv", "--as", "logits", "--kind", "probabilities")
    assert pd.read_csv("z.csv").columns[-1] == "score_calibrated_logit"


# Many labels


def many() -> pd.DataFrame:
    z = RNG.normal(size=(N, 3)) * 2
    y = (RNG.random(z.shape) < expit(z / 2 - 1)).astype(float)
    y[:20, 1] = np.nan
    labels = pd.DataFrame(y, columns=["y_a", "y_b", "y_c"])
    return pd.DataFrame(expit(z), columns=["p_a", "p_b", "p_c"]).join(labels)


def test_many_labels_are_fitted_applied_and_evaluated(run: Run) -> None:
    frame = many()
    calibrator = fit(run, frame)
    Y = np.where(frame.filter(like="y_").isna(), -1, frame.filter(like="y_")).astype(int)
    P = frame.filter(like="p_").to_numpy()
    expected = mc.MultilabelMCCT(input="probabilities").fit(P, Y).predict_proba(P)
    assert type(calibrator) is mc.MultilabelMCCT
    assert list(calibrator.feature_names_in_) == ["a", "b", "c"]
    frame[["p_c", "p_a", "p_b"]].assign(id=range(N)).to_csv("new.csv", index=False)
    run("apply", "cal.json", "new.csv", "-o", "out.csv")
    out = pd.read_csv("out.csv")
    assert list(out.columns) == ["p_c", "p_a", "p_b", "id", *(f"p_{x}_calibrated" for x in "cab")]
    np.testing.assert_allclose(out.iloc[:, 4:], expected[:, [2, 0, 1]], atol=1e-12)
    result = json.loads(run("evaluate", "a.csv", "-c", "cal.json", "--json").stdout)
    assert set(result["after"]["labels"]) == {"a", "b", "c"}
    assert result["after"]["labels"]["b"]["rows"] == N - 20
    assert result["after"]["macro"]["nll"] < result["before"]["macro"]["nll"]
    assert "off beyond chance" in run("evaluate", "a.csv").stdout
    run("apply", "cal.json", "a.csv", "-o", "after.csv")  # with the labels, next to the scores as they were
    after = json.loads(run("evaluate", "after.csv", "--json").stdout)["value"]
    assert after["macro"] == pytest.approx(result["after"]["macro"], rel=1e-9)
    for command in (("compare", "a.csv"), ("audit", "a.csv", "a.csv"), ("check", "a.csv")):
        code = 2 if command[0] == "check" else 1
        assert "fit, apply, evaluate and report take such files" in run(*command, code=code).stderr
    assert "multilabel-mcct; leave it out" in fit(run, frame, "-m", "mcct", code=1).stderr


@pytest.mark.parametrize("test", [[], ["--test", "b.csv", "-c", "cal.json"]])
def test_the_report_on_many_labels_has_a_row_for_each(run: Run, test: list[str]) -> None:
    fit(run, many())
    many()[["p_c", "p_a", "p_b", "y_c", "y_a", "y_b"]].to_csv("b.csv", index=False)
    result = json.loads(run("report", "a.csv", *test, "-o", "r.html", "--json").stdout)
    assert result["before"]["off"]
    assert not result["after"]["off"]
    assert result["after"]["macro"]["nll"] < result["before"]["macro"]["nll"]
    page = Path("r.html").read_text()
    for text in (result["verdict"]["headline"].partition(";")[0], "calibrator.json", *"abc"):
        assert text in page


def test_options_of_classes_are_refused_for_many_labels(run: Run) -> None:
    many().assign(w=1.0).to_csv("a.csv", index=False)
    for command, options in {
        "evaluate": "--groups y_a,--metrics nll,--decompose,--all,--explain,--weights-name w,--n-boot 9",
        "report": "--groups y_a,--all,--no-compare,--time-limit 9",
    }.items():
        out = ["-o", "r.html"] if command == "report" else []
        for option in options.split(","):
            error = run(command, "a.csv", *out, *option.split(), code=1).stderr
            assert f"leave out {option.split()[0]}," in error, error
    seeds = [run("evaluate", "a.csv", "--seed", seed, "--json").stdout for seed in ("0", "0", "1")]
    assert seeds[0] == seeds[1] != seeds[2]


def test_one_label_out_of_many_columns_is_a_class(run: Run) -> None:
    hot = pd.DataFrame(np.eye(3, dtype=int)[LABELS], columns=["y_a", "y_b", "y_c"])
    frame = pd.DataFrame(PROBS, columns=["p_a", "p_b", "p_c"]).join(hot)
    assert mc.read(frame).labels.tolist() == LABELS.tolist()
    assert type(fit(run, frame, "-m", "mcct")) is mc.MCCT


def test_labels_alone_are_given_with_their_option(run: Run) -> None:
    np.savetxt("numbers.txt", LABELS, "%d")
    Path("words.txt").write_text("\n".join(NAMES[j] for j in LABELS))
    pets(PROBS).drop(columns="label").to_csv("outputs.csv", index=False)
    np.save("numbers.npy", LABELS)
    np.save("labels.npy", LABELS)
    for path in ("labels.npy", "numbers.npy", "numbers.txt", "words.txt"):
        assert "with --labels" in run("fit", path, "-o", "cal.json", code=1).stderr
    for labels in ("numbers.txt", "words.txt"):
        run("fit", "outputs.csv", "--labels", labels, "--kind", "probabilities", "-o", "cal.json", "--force")


@pytest.mark.parametrize("orient", ["split", "values"])
def test_json_of_another_form_says_how_to_write_it(run: Run, orient: Any) -> None:
    pets().to_json("a.json", orient=orient)
    error = run("fit", "a.json", "-o", "cal.json", code=1).stderr
    assert "to_json(orient='records')" in error or 'such as {"logits": [0.3, 2.1], "label": 1}' in error
    pets().to_json("a.json", orient="records")
    run("fit", "a.json", "-o", "cal.json")


def test_the_column_named_for_labels_is_no_id(run: Run) -> None:
    frame = pd.DataFrame({"id": range(N), "score": SCORE, "won": HITS})
    assert "--labels-name won" in fit(run, frame, code=1).stderr
