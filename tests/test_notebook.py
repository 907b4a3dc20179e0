"""What a notebook shows of an object: a short table, and scikit-learn's picture of an estimator."""

from __future__ import annotations

import re

import pytest

import monocal as mc
from monocal.data import LogitsSet


def shown():
    data = mc.data.synthetic(300, 3)
    cal = mc.ConditionalMCCT().fit(data.values, data.labels)
    nasty = LogitsSet(data.values, data.labels, name="<script>", class_names=("a", "<b>", "c"))
    return {
        "Solution": (cal.solution_, "objective"),
        "Explanation": (cal.explain(), "atoms are active"),
        "LogitsSet": (nasty, "&lt;b&gt;"),
        "Evaluation": (mc.evaluate(cal.predict_proba(data.values), data.labels, n_boot=5), "brier"),
    }


@pytest.mark.parametrize("name", ["Solution", "Explanation", "LogitsSet", "Evaluation"])
def test_objects_have_a_short_table(name):
    thing, says = shown()[name]
    html = thing._repr_html_()
    assert html.startswith("<table>")
    assert says in html
    assert "<script>" not in html
    assert html.count("<tr>") == html.count("</tr>") <= 40
    assert not re.search(r"\bnan\b", html)


@pytest.mark.parametrize("estimator", [mc.MCCT(), mc.BinaryMCCT(), mc.CalibratedClassifier()])
def test_estimators_have_the_picture_of_scikit_learn(estimator):
    assert type(estimator).__name__ in estimator._repr_html_()
    assert "sk-" in estimator._repr_html_()
