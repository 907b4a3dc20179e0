"""Pages over the grid of cases: from two classes to a thousand, from thirty rows to ten thousand, nothing to mend, nothing wrong.

What must hold of every one: it ships what it recommends, one number has one interval, and no sentence is false or odd.
"""

from __future__ import annotations

import base64
import re
from html import unescape

import numpy as np
import pytest

import monocal as mc
from monocal.data import LogitsSet, synthetic
from monocal.report import collect
from monocal.report.deadline import TimedTrial

# classes, rows, how over-confident; 0: every label is right, and surely so
CASES = [
    (2, 30, 2.5),
    (2, 300, 1.0),
    (2, 10_000, 2.5),
    (3, 30, 1.0),
    (3, 1000, 2.5),
    (10, 60, 0.0),
    (10, 300, 2.5),
    (10, 10_000, 1.0),
    (100, 30, 2.5),
    (100, 1000, 1.0),
    (1000, 200, 2.5),
]
METHODS = {
    "temperature scaling": mc.TemperatureScaling(),
    "MCCT": mc.MCCT(),
    "conditional MCCT": mc.ConditionalMCCT(),
    "isotonic calibration": mc.IsotonicCalibration(),
    "spline calibration": mc.SplineCalibration(),
}


def data(m, n, over):
    if over == 0:
        labels = np.arange(n) % m
        return LogitsSet(9.0 * np.eye(m)[labels] + np.random.default_rng(0).normal(size=(n, m)), labels)
    return synthetic(n, m, seed=n + m, overconfidence=over)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "{}x{}-{}".format(*case))
def made(request):
    m, n, over = request.param
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # no process beside this one: it would take longer than the methods
        patch.setattr(TimedTrial, "judge", lambda self, method, seconds: self._trial.judge(method))
        return collect(data(m, n, over), methods=METHODS, n_boot=5), over


def text_of(html):
    body = re.sub(r"<(style|script|title|desc)\b.*?</\1>|<svg.*?</svg>", " ", html, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", "\n", body)).replace("\u00a0", " ")


def sentences(html):
    """Paragraphs, list items and captions, without their markup."""
    found = re.findall(r"<(?:p|li|figcaption)\b[^>]*>(.*?)</(?:p|li|figcaption)>", html, flags=re.DOTALL)
    plain = (unescape(re.sub(r"<svg.*?</svg>|<[^>]+>", "", one, flags=re.DOTALL)).strip() for one in found)
    return [one.replace("\u00a0", " ") for one in plain]


ODD = {
    "not a number": r"\bnan\b|\bNone\b(?! of)|\binf\b",
    "a zero with a minus": r"[-−]0(\.0+)?(?![\d.])",
    "an interval of zeros": r"interval 0\.0+ to 0\.0+\b",
    "a range of one": r"\b(?:ranks? |between )([\d.,]+)(?: %)? (?:to|and) \1\b(?!\.\d)",
    "a change from a value to itself": r"(?<![\d.])([\d.]+(?: %)?) → \1(?![\d.])",
    "a plural of one": r"(?<![\d,.])1 (rows|ranks|samples|pairs|points|classes|others|methods)\b",
    "a stop too many": r"\.\.|\. \.|,\.|:\.",
    "an empty number": r"\(\)|\( |  ",
}


@pytest.mark.parametrize("what", ODD)
def test_no_sentence_is_odd(made, what):
    found = [one for one in sentences(made[0].to_html()) if re.search(ODD[what], one)]
    assert found == []


def test_the_page_ships_what_it_recommends(made):
    report, _ = made
    methods = report.methods
    html = report.to_html()
    if methods.recommended == "uncalibrated":
        assert "Ship the model as it is" in report.verdict.advice
        assert report.shown == methods.best(keeping=True).name
    else:
        assert report.shown == methods.recommended
        assert report.shown in report.verdict.advice
    assert type(report.calibrator) is type(METHODS[report.shown])
    saved = re.search(r'href="data:application/json;base64,([^"]+)"', html)[1]
    loaded = mc.persistence.from_json(base64.b64decode(saved).decode())
    assert type(loaded) is type(report.calibrator)
    assert html.index('class="verdict') < html.index("What was wrong")


def test_one_number_has_one_interval(made):
    report, _ = made
    for name, side in (("uncalibrated", report.before), (report.shown, report.after)):
        assert report.methods[name].evaluation is side.evaluation


def test_what_is_said_of_the_parameters_is_true(made):
    report, _ = made
    told, shown = text_of(report.to_html()), report.parameters
    if shown is None:
        return
    if "It is temperature scaling" in told:
        assert np.ptp(shown.weight) == 0
        assert not shown.varies
    if report.n_classes == 2:
        assert "by rank, the top rank" not in report.to_html()  # one effect, shown once
    drawn = report.to_html().count("of the top ranks against the")
    varied = [c for c in report.effects for which in ("weight", "bias") if c.varies(which)]
    assert (drawn > 0) == (bool(varied) and report.n_classes > 2)


def test_the_verdict_fits_the_data(made):
    report, over = made
    state, rows = report.verdict.state, report.n_judged
    if over > 1 and rows >= 300:
        assert state == "bad"
        # Of two classes P(class 1) is judged: a sharp predictor claims too much above 1/2, and too little below.
        wrong = "too high here and too low there" if report.n_classes == 2 else "over-confident"
        assert wrong in report.verdict.headline
    if over == 1 and rows >= 1000:
        assert state != "bad"
    if rows < 200:
        assert state != "good"
    if over == 0:
        assert "rows show little" in report.verdict.headline


def test_every_chart_has_ticks_that_differ_and_a_name_in_words(made):
    for chart in re.findall(r'<svg[^>]*class="chart".*?</svg>', made[0].to_html(), flags=re.DOTALL):
        name = re.search(r'aria-label="([^"]+)"', chart)[1]
        assert "_" not in name
        assert name[0].isupper()
        if name.startswith("Reliability"):
            continue  # two charts in one, from 0 to 1
        at = re.findall(
            r'<text x="([\d.]+)" y="([\d.]+)" class="tick" text-anchor="(middle|end)">([^<]+)<', chart
        )
        for side in ("middle", "end"):
            labels = [(x if side == "end" else y, words) for x, y, anchor, words in at if anchor == side]
            for line in {place for place, _ in labels}:
                on_axis = [
                    words for place, words in labels if place == line and re.match(r"^[−\d.,]+( %)?$", words)
                ]
                assert len(set(on_axis)) == len(on_axis), name
