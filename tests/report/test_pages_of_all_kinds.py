"""Pages over the grid of cases: from two classes to a thousand, from thirty rows to ten thousand.

What must hold of every one: it shows what it recommends, one number has one interval, and no sentence is false or odd.
"""

from __future__ import annotations

import base64
import re
from html import unescape

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

import monocal as mc
from monocal.data import LogitsSet, synthetic
from monocal.registry import method_name
from monocal.report import collect
from monocal.report.trial import TimedTrial
from monocal.selection import recommend

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'monocal[plots]'")

# classes, rows, how over-confident; 0: every label is right, and surely so
CASES = [
    (2, 30, 2.5),
    (2, 300, 1.0),
    (2, 5000, 2.5),
    (3, 30, 1.0),
    (3, 1000, 2.5),
    (10, 60, 0.0),
    (10, 300, 2.5),
    (10, 5000, 1.0),
    (100, 30, 2.5),
    (100, 1000, 1.0),
    (1000, 200, 2.5),
]


def methods_of(m, **parameters):
    kinds = [mc.TemperatureScaling, mc.MCCT, mc.ConditionalMCCT, mc.IsotonicCalibration, mc.SplineCalibration]
    kinds += [mc.BinaryMCCT, mc.PlattScaling] if m == 2 else []
    return {method_name(kind): kind(**parameters) for kind in kinds}


def data(m, n, over):
    if over == 0:
        labels = np.arange(n) % m
        return LogitsSet(9.0 * np.eye(m)[labels] + np.random.default_rng(0).normal(size=(n, m)), labels)
    return synthetic(n, m, seed=n + m, overconfidence=over)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "{}x{}-{}".format(*case))
def made(request):
    m, n, over = request.param
    with pytest.MonkeyPatch.context() as patch:  # no other process: it would take longer than the methods
        patch.setattr(TimedTrial, "judge", lambda self, method, seconds: self._trial.judge(method))
        report = collect(data(m, n, over), methods=methods_of(m), n_boot=5)
    return report, over, report.to_html()


ODD = {
    "not a number": r"\bnan\b|\bNone\b(?! of)|\binf\b",
    "a zero with a minus": r"[-−]0(\.0+)?(?![\d.])",
    "an interval of zeros": r"interval 0\.0+ to 0\.0+\b",
    "a range of one": r"\b(?:ranks? |of )([\d.,]+)(?: %)? (?:to|and) \1\b(?!\.\d)",
    "a change from a value to itself": r"(?<![\d.])([\d.]+(?: %)?) → \1(?![\d.])",
    "a plural of one": r"(?<![\d,.])1 (rows|ranks|samples|pairs|points|classes|others|methods)\b",
    "a stop too many": r"\.\.|\. \.|,\.|:\.",
    "an empty number": r"\(\)|\( |  ",
}


def test_no_sentence_is_odd(made):
    plain = re.sub(r"<svg.*?</svg>", "", made[2], flags=re.DOTALL)
    paragraphs = re.findall(r"<(?:p|li)\b[^>]*>(.*?)</(?:p|li)>", plain, flags=re.DOTALL)
    texts = [
        unescape(re.sub(r"<[^>]+>", "", one)).strip().translate({10: " ", 160: " "}) for one in paragraphs
    ]
    for what, pattern in ODD.items():
        assert [one for one in texts if re.search(pattern, one)] == [], what


def test_the_page_shows_what_is_recommended_for_the_rows(made):
    report, over, html = made
    methods, rows = report.methods, data(report.cal.n_classes, report.cal.n_samples, over)
    advised = recommend(rows.values, rows.labels)
    assert report.shown == methods.default == advised.title
    assert type(report.calibrator) is type(advised.calibrator)
    assert report.shown in report.verdict.advice
    if methods.recommended == "uncalibrated":
        assert "No calibration is recommended" in report.verdict.advice
        assert methods.harm
    else:
        assert not methods.clearly_worse(report.shown, "uncalibrated")
    saved = re.search(r'href="data:application/json;base64,([^"]+)"', html)[1]
    loaded = mc.persistence.from_json(base64.b64decode(saved).decode())
    assert type(loaded) is type(report.calibrator)
    places = [html.index(part) for part in ('class="verdict', "<svg", "What to do", "<details>")]
    assert places == sorted(places)
    for side in (report.before, report.after):  # one number has one interval
        nll = side.evaluation["nll"]
        if nll.low is not None:
            assert html.count(f"<td>{nll.value:.4f}<small>{nll.low:.4f} – {nll.high:.4f}</small>") >= 2


def test_the_verdict_fits_the_data(made):
    report, over, html = made
    state, headline, rows = report.verdict.state, report.verdict.headline, report.n_judged
    if over > 1 and rows >= 300:
        assert state == "bad"
        # Of two classes P(class 1) is judged: a sharp predictor claims too much above 1/2, and too little below.
        assert ("P(class 1) is off by" if report.cal.n_classes == 2 else "over-confident") in headline
    if over == 1 and rows >= 1000:
        assert state != "bad"
    if rows < 100 and over <= 1:
        assert state == "few"
    assert (state == "few") == headline.startswith("Too few rows to say")
    if report.cal.n_classes == 2:
        assert report.before.curve.edges[[0, -1]].tolist() == [0, 1]
        assert "P(class 1)" in html
        assert "class-wise" not in html


def test_an_imbalanced_classifier_with_balanced_weights():
    shape = {"n_features": 20, "n_informative": 6, "weights": [0.99], "flip_y": 0.0, "class_sep": 0.9}
    X, y = make_classification(12_000, **shape, random_state=1)
    model = LogisticRegression(class_weight="balanced", max_iter=500).fit(X[:6000], y[:6000])
    p = model.predict_proba(X)
    parts = slice(6000, 9000), slice(9000, 12_000)
    cal, test = (LogitsSet(p[rows], y[rows], "probabilities", name="rare") for rows in parts)
    report = collect(cal, test, methods={"binary MCCT": mc.BinaryMCCT(input="probabilities")}, n_boot=20)
    off = 100 * (p[9000:, 1].mean() - y[9000:].mean())
    assert off > 10
    assert report.verdict.state == "bad"
    assert f"P(class 1) is too high by {off:.0f} points" in report.verdict.headline
    assert report.verdict.advice.startswith("Use binary MCCT")
    before, after = (side.evaluation["positive_ece"].value for side in (report.before, report.after))
    assert after < before / 10
    assert "better" in report.verdict.details[0]
    assert all(f"{100 * value:.2f}" in report.to_html() for value in (before, after))


def test_groups_that_differ_are_the_context_of_the_method():
    rows, groups = synthetic(1800, 4, seed=2), np.array(["north", "south", "east"])[np.arange(1800) % 3]
    values = np.where((groups == "east")[:, None], 3.0, 1.0) * rows.values
    options = {"groups": groups, "methods": methods_of(4), "n_boot": 5}
    report = collect((values, rows.labels), **options)
    assert report.context
    assert report.shown == "conditional MCCT with context"
    assert "they are its context" in report.verdict.advice
    assert "context=groups" in report.to_html()
    assert report.groups[-1]["before"].off.any()
    assert not report.groups[-1]["after"].off.any()
    halved = collect((values / 2, rows.labels), **options)
    assert halved.methods.recommended == "uncalibrated"  # north and south are right as they are
    assert halved.verdict.advice.startswith("No calibration is recommended: conditional MCCT with context")
    assert "No calibrator is recommended here" in halved.to_html()
    alike = collect((rows.values, rows.labels), **options)
    assert not alike.context
    assert alike.shown == "conditional MCCT"


def test_two_classes_with_groups_are_judged_by_p_of_class_one():
    generator = np.random.default_rng(4)
    z, groups = 1.5 * generator.standard_normal(4000), np.array(["young", "old"])[np.arange(4000) % 2]
    y = (generator.random(4000) < expit(z + np.where(groups == "old", 1, -1))).astype(int)
    rows = np.stack([expit(-z), expit(z)], axis=1)
    methods = methods_of(2, input="probabilities")
    report = collect((rows, y), kind="probabilities", groups=groups, methods=methods, n_boot=5)
    html = report.to_html().replace("\u00a0", " ")
    assert report.shown == "binary MCCT with context"
    assert "mc.BinaryMCCT(input=&#34;probabilities&#34;)" in html
    assert "keeps the ranking of the rows (AUC) within each group" in report.verdict.advice
    assert html.count("kept within each group") == 2  # the card and the table
    (sides,) = report.groups
    assert sides["before"]["old"].high < -0.1
    assert sides["before"]["young"].low > 0.1
    text = f"Before calibration: {sides['before'].verdict} After: none of 2 groups is off"
    assert text in str(report.verdict)
    assert "Keeping the ranking" not in html  # what the context gains is not what the ranking costs
    # Errors of the groups cancel on average: the headline says by how much probabilities are off, not by how little the mean is.
    curve = report.before.curve
    assert abs(curve.mean_confidence - curve.mean_accuracy) < curve.ece / 3
    assert f"off by {100 * curve.ece:.1f} points on average" in report.verdict.headline


def test_no_group_that_is_off_stands_below_the_word_trustworthy():
    """Right on average, under-confident in one group and over-confident in the other."""
    rows, groups = (
        synthetic(3000, 4, seed=2, overconfidence=1.0),
        np.array(["north", "south"])[np.arange(3000) % 2],
    )
    softer = softmax(np.where((groups == "north")[:, None], 0.75, 1.35) * rows.values, axis=1)
    report = collect((softer, rows.labels), kind="probabilities", groups=groups, methods=False, n_boot=5)
    assert not report.before.floor.more_than_chance
    assert report.groups[-1]["before"].off.any()
    assert report.verdict.headline.startswith(
        "Trustworthy on average, but 2 of 2 groups are off beyond chance"
    )


def test_an_impossible_label_is_no_chance():
    """Calibrated, but one probability is 0 that is not."""
    rows = synthetic(400, 3, overconfidence=1.0)
    p = softmax(rows.values, axis=1)
    p[5] = np.where(np.arange(3) == rows.labels[5], 0.0, 0.5)
    report = collect((p, rows.labels), kind="probabilities", methods=False, n_boot=5)
    assert not report.before.floor.more_than_chance
    assert report.verdict.headline == "Not trustworthy as it is: it gives a label no probability at all."


def test_where_the_order_is_the_obstacle_the_verdict_says_so_first():
    rows = synthetic(2000, 4, seed=0)
    methods = methods_of(4) | {"structured MCCT": mc.StructuredMCCT()}
    report = collect((rows.values + np.array([4.0, 0, 0, 0]), rows.labels), methods=methods, n_boot=5)
    assert report.shown == "structured MCCT"
    assert report.verdict.advice.startswith("Use structured MCCT: the order of the classes is the obstacle")
    assert "Keeping the order costs" in str(report.verdict)
    assert "Where the order may change" not in str(report.verdict)
    assert sum(move.rows for move in report.methods.price[1].moves) == report.methods.price[1].moved
