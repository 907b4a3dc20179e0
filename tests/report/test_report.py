"""The report end to end: figures, honesty about how they were made, hostile input."""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
import time

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

import monocal as mc
from monocal.data import LogitsSet
from monocal.errors import FileError, InputError
from monocal.report import Trial, collect, compare_methods, default_methods

QUICK = {"n_boot": 20}
ALONE = {"methods": False, **QUICK}


def test_figures_are_those_of_the_library_on_the_test_set(sets, report):
    cal, test = sets
    probs = mc.ConditionalMCCT(n_knots=3).fit(cal.values, cal.labels).predict_proba(test.values)
    assert report.after.evaluation["ece"].value == pytest.approx(mc.metrics.ece(probs, test.labels), abs=1e-6)
    before = softmax(test.values.astype(float), axis=1)
    assert report.before.evaluation["nll"].value == pytest.approx(mc.metrics.nll(before, test.labels))
    assert report.audit.preserved
    assert "test set, which the fit has not seen" in report.judged_how
    # An over-confident model is called so.
    assert re.search(r"Over-confident by \d+(\.\d)? points", report.to_html())


def test_the_page_has_everything_and_needs_nothing(sets, report):
    html = report.to_html()
    content = base64.b64decode(re.search(r'href="data:application/json;base64,([^"]+)"', html)[1]).decode()
    fingerprint = json.loads(content)["data"]["sha256"]
    for words in (
        "Verdict",
        "What to do",
        "before and after",
        "Where the error sits",
        "Methods compared",
        "two classes change places",
        "Certificate",
        "What the calibrator does",
        fingerprint,
        mc.__version__,
        "labels were one-hot",
        "prefers-color-scheme: dark",
        "@media print",
    ):
        assert words in html
    assert not re.search(r"https?://|<script|(?:src|href)=\"(?!data:|#)", html)
    assert html.count("<details>") == html.count("</details>") >= 5
    # The calibrator in the page is the one described.
    loaded, rows = mc.persistence.from_json(content), sets[1].values[:50]
    np.testing.assert_array_equal(loaded.predict_proba(rows), report.calibrator.predict_proba(rows))


def test_one_set_is_cross_validated_and_the_page_says_so(sets):
    cal = sets[0]
    made = collect(cal, calibrator=mc.TemperatureScaling(), **ALONE)
    assert "5-fold cross-validation" in made.to_html()
    assert made.n_judged == made.cal.n_samples == 1500
    in_sample = mc.TemperatureScaling().fit(cal.values, cal.labels)
    assert made.calibrator.temperature_ == pytest.approx(in_sample.temperature_)
    assert made.after.evaluation["nll"].value > mc.metrics.nll(
        in_sample.predict_proba(cal.values), cal.labels
    )


def test_a_fitted_calibrator_is_judged_as_it_is(sets):
    cal, test = sets
    fitted = mc.TemperatureScaling().fit(cal.values[:100], cal.labels[:100])
    few = {"MCCT": mc.MCCT()}
    made = collect(cal, test, calibrator=fitted, methods=few, **QUICK)
    assert made.calibrator is fitted
    assert made.shown == "temperature scaling as given"
    assert [r.name for r in made.methods.results] == ["uncalibrated", "MCCT", made.shown]
    alone = collect(cal, calibrator=fitted, methods=few, **QUICK)
    assert "flatter" in alone.judged_how
    assert alone.shown == "temperature scaling as given"
    assert alone.verdict.advice.startswith("The calibrator given is not compared: ")
    assert alone.verdict.advice.endswith("Use MCCT: the only method judged that keeps the order.")


def test_user_text_is_never_markup(sets):
    nasty = '<script>alert(1)</script> & "quotes"'
    cal = LogitsSet(sets[0].values[:200], sets[0].labels[:200], name=nasty, notes=(nasty,))
    html = collect(cal, methods={nasty: mc.MCCT()}, title=nasty, **QUICK).to_html()
    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4  # title, heading, method, note


@pytest.mark.timed
def test_methods_that_fail_or_come_too_late_are_named(sets):
    class Broken(mc.MCCT):
        def fit(self, X, y, **options):
            raise RuntimeError("no luck today")

    trial, names = Trial.of(*sets), []
    tried = {"broken": Broken(), "TS": mc.TemperatureScaling()}
    result = compare_methods(trial, tried, n_boot=5, on_method=names.append)
    assert names == ["broken", "TS"]
    assert result["broken"].note == "failed: no luck today"
    assert result.recommended == "TS"
    late = compare_methods(trial, {"TS": mc.TemperatureScaling()}, n_boot=5, time_limit=-1.0)
    assert late.recommended is None
    assert "not tried" in late["TS"].note
    # The verdict names the same method however little time there is, and says which others were not judged.
    made = collect(*sets, time_limit=-1, **QUICK)
    assert "not tried" in made.to_html()
    assert made.verdict.advice.startswith("Use conditional MCCT: ")
    assert "Not judged: temperature scaling, " in str(made.verdict)


@pytest.mark.timed
def test_a_slow_method_is_stopped_and_leaves_time_for_the_next(sets):
    class Slow(mc.MCCT):
        def fit(self, X, y, **options):
            try:
                while True:
                    time.sleep(0.01)
            except Exception:  # what stops it must get past such a line
                pass

    # Unless it is stopped it never ends; a third of the time is its share, however busy the machine.
    tried = {"slow": Slow(), "TS": mc.TemperatureScaling()}
    result = compare_methods(Trial.of(*sets), tried, n_boot=5, time_limit=2.1)
    assert re.fullmatch(r"stopped after (0\.\d|1\.0) seconds", result["slow"].note)
    assert result.recommended == "TS"
    assert not any("(run)" in thread.name for thread in threading.enumerate())


def test_by_default_every_calibrator_takes_part_that_trains_no_network():
    result = default_methods("probabilities")
    added = set(default_methods(networks=True)) - set(result)
    assert added == {"parameterized temperature scaling", "intra order preserving"}
    assert next(iter(result)) == "temperature scaling"
    assert {"MCCT", "conditional MCCT", "Dirichlet calibration"} <= set(result)
    assert all(method.input == "probabilities" for method in result.values())
    assert not any(isinstance(method, mc.MCCTInverse) for method in result.values())


def test_the_page_shows_what_is_recommended_or_what_was_asked_for(sets):
    few = {
        "temperature scaling": mc.TemperatureScaling(),
        "MCCT": mc.MCCT(),
        "conditional": mc.ConditionalMCCT(),
    }
    free = collect(*sets, methods=few, **QUICK)
    assert free.shown == free.methods.recommended == "conditional"
    assert type(free.calibrator) is mc.ConditionalMCCT
    assert free.verdict.advice.startswith("Use conditional: ")
    asked = collect(*sets, calibrator=few["MCCT"], methods=few, **QUICK)
    assert asked.shown == asked.methods.asked == "MCCT"
    assert asked.methods.recommended == "conditional"
    assert "conditional" in asked.verdict.advice
    del few["conditional"]
    listed = collect(*sets, methods=few, **QUICK)
    assert listed.shown == listed.methods.recommended in few


def test_a_shift_of_the_labels_is_said_with_the_remedy(sets):
    cal, test = sets
    kept = np.flatnonzero(test.labels < 10)
    for data, shifted in ((LogitsSet(test.values[kept], test.labels[kept]), True), (test, False)):
        message = str(collect(cal, data, calibrator=mc.TemperatureScaling(), **ALONE).verdict)
        assert ("The class frequencies of calibration and test rows differ" in message) == shifted
        assert ("LabelShift(calibrator, prior=...)" in message) == shifted


def test_the_price_of_order_and_what_moved():
    data, names = mc.data.synthetic(1600, 4, seed=0), ("World", "Sports", "Business", "Science")
    biased = data.values + np.array([4.0, 0, 0, 0])
    halves = slice(0, 800), slice(800, 1600)
    parts = [LogitsSet(biased[rows], data.labels[rows], class_names=names) for rows in halves]
    made = collect(*parts, methods={"TS": mc.TemperatureScaling(), "vector": mc.VectorScaling()}, **QUICK)
    assert made.shown == made.methods.recommended == "TS"
    assert made.methods.recommended_free == "vector"
    assert "Keeping the order costs" in str(made.verdict)
    assert "Where the order may change, use vector." in str(made.verdict)
    move = made.methods.price[1].moves[0]
    assert f"{names[move.before]} → {names[move.after]}</th><td>{move.rows}<" in made.to_html()


def test_groups_before_and_after(sets):
    cal, test = sets
    late = np.arange(len(test.labels)) >= 750  # half of the rows are far too sure
    uneven = LogitsSet(np.where(late[:, None], 4.0, 1.0) * test.values / 2.5, test.labels)
    groups = np.where(late, "late", "early")
    made = collect(cal, uneven, groups=groups, calibrator=mc.TemperatureScaling(), **ALONE)
    by_class, by_group = made.groups
    assert by_class["before"].kind == "predicted class"
    assert set(by_class["before"].names) <= {f"class {c}" for c in range(30)}
    assert by_group["before"]["late"].off
    html = made.to_html().replace("\u00a0", " ").replace("&#39;", "'")
    for kind in ("predicted class", "group"):
        assert f"Over-confidence by {kind}, before and after calibration" in html
    assert f"before calibration: {by_group['before'].verdict}" in html
    with pytest.raises(InputError, match="groups: expected one value for each of the 1500 rows"):
        collect(cal, test, groups=groups[:10], calibrator=mc.TemperatureScaling(), **ALONE)
    # Groups of a test set are no context of the fit: the verdict says what to do.
    few = {"conditional MCCT": mc.ConditionalMCCT()}
    differ = collect(cal, uneven, groups=late, methods=few, **QUICK)
    assert differ.methods.differ
    assert "as its context=" in str(differ.verdict)
    assert not collect(cal, test, groups=np.arange(1500) % 2, methods=few, **QUICK).methods.differ


def test_a_method_that_reorders_is_not_recommended(sets):
    class Reordering(mc.MCCT):
        preserves_order = False
        preserves_top1 = False

        def _probabilities(self, logits):
            return np.roll(super()._probabilities(logits), 1, axis=1)

        def _calibrate(self, logits):
            return np.roll(super()._calibrate(logits), 1, axis=1)

    made = collect(*sets, calibrator=Reordering(), methods={"TS": mc.TemperatureScaling()}, **QUICK)
    assert made.methods.recommended == "TS"
    assert not made.audit.preserved
    assert "does not guarantee the order" in made.to_html()
    one_class = (np.tile([5.0, 0, 0, 0], (40, 1)) + sets[0].values[:40, :4] / 50, np.arange(40) % 4)
    assert "Groups" in collect(one_class, calibrator=Reordering(), **ALONE).to_html()


def test_odd_but_allowed_rows():
    for n in (2, 7):
        rng = np.random.default_rng(n)
        few = collect((rng.normal(size=(n, 3)), rng.integers(3, size=n)), n_boot=5)
        assert "cross-validation" in few.to_html()
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(60, 4)) * 3
    logits[::4, 0] = -np.inf
    logits[1::4] = 0.0
    logits[2::4] = [1e4, 0, 0, 0]
    labels = np.where(np.arange(60) % 4 == 0, 1, rng.integers(4, size=60))
    html = collect((logits, labels), n_boot=5).to_html()
    assert not re.search(r"\bnan\b", re.sub(r"base64,[^\"]+", "", html).lower())
    assert "∞" in html  # the uncalibrated NLL


FIVE = np.zeros((6, 5)), np.arange(6) % 5


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ([([[1.0, 2.0]], [0])], {}, "one row cannot be split"),
        (["rows"], {}, "expected a LogitsSet"),
        ([([[1.0], [2.0]], [0, 0])], {}, "two classes"),
        ([([[1.0, np.nan]], [0])], {}, "NaN"),
        ([([[1.0, 2.0], [3.0, 1.0]], [0, 2])], {}, "label 2 in row 1"),
        ([FIVE, (np.zeros((4, 3)), [0, 1, 2, 0])], {}, "5 classes"),
        ([FIVE], {"calibrator": mc.MCCT(input="probabilities")}, "input='logits'"),
        ([FIVE], {"calibrator": object()}, "one of monocal's"),
    ],
)
def test_bad_input_is_refused_in_words(arguments, options, says):
    with pytest.raises(InputError, match=says):
        collect(*arguments, **options)


def test_write_report_refuses_before_it_works_and_leaves_nothing_behind(sets, tmp_path):
    path, steps = tmp_path / "report.html", []
    path.write_text("mine")
    with pytest.raises(FileError, match="exists already"):
        mc.write_report(path, *sets, on_step=steps.append)
    assert steps == []
    assert path.read_text() == "mine"
    with pytest.raises(InputError):
        mc.write_report(tmp_path / "new.html", (np.zeros((0, 3)), []))
    assert list(tmp_path.iterdir()) == [path]
    options = {"calibrator": mc.TemperatureScaling(), "force": True, "on_step": steps.append}
    made = mc.write_report(path, *sets, **options, **ALONE)
    assert steps == ["fitting", "measuring"]
    assert path.read_text(encoding="utf-8") == made.to_html()


def test_real_logits(shared_logits):
    data = shared_logits("nncal_cifar10_densenet40")
    parts = (data.logits_val, data.y_val), (data.logits_test, data.y_test)
    made = collect(*parts, calibrator=mc.MCCT(), **ALONE)
    assert made.before.curve.ece == pytest.approx(0.0550, abs=5e-5)
    assert [s.gap > 0 for s in made.before.curve.stretches() if s.end == 1.0] == [True]
    assert made.after.curve.ece < 0.012


def test_without_matplotlib_the_page_has_no_charts_and_says_so(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    html = report.to_html()
    assert "<svg" not in html
    assert "monocal[plots]" in html
    assert report.verdict.headline in html.replace("\u00a0", " ")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(mc.MissingExtraError, match=r"monocal\[cli\]"):
        report.to_html()


@pytest.mark.parametrize("frames", [False, True])
def test_columns_are_matched_by_name(frames):
    names, data = np.array(["a", "b", "c"]), mc.data.synthetic(300, 3)
    values, sets = data.values + np.array([2.0, 0.0, -1.0]), []
    for places in (np.arange(3), np.array([1, 2, 0])):
        one = LogitsSet(values[:, places], np.argsort(places)[data.labels], class_names=tuple(names[places]))
        if frames:
            one = pd.DataFrame(one.values, columns=one.class_names), names[places][one.labels]
        sets.append(one)
    made = [collect(sets[0], test, calibrator=mc.VectorScaling(), methods=False, n_boot=0) for test in sets]
    same, swapped = (one.after.evaluation["nll"].value for one in made)
    assert swapped == pytest.approx(same)
