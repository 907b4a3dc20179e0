"""The rule for review keeps its promise on new rows, and says so where nothing can be promised."""

import math

import numpy as np
import pytest
from scipy.stats import binom

import monocal as mc
from monocal.metrics import review_rule


def draw(rng, n, shift=0.0):
    """Confidences, and whether the answers were right: calibrated, or over-confident by ``shift``."""
    p = rng.beta(6, 1, n)
    return p, rng.random(n) < p - shift


@pytest.mark.parametrize(("n", "shift"), [(1000, 0.0), (4000, 0.04)])
def test_the_promise_holds_on_new_rows(n, shift):
    rng = np.random.default_rng(0)
    fresh = rng.beta(6, 1, 50_000)
    broken, trials = 0, 200
    for _ in range(trials):
        rule = review_rule(*draw(rng, n, shift), max_error=0.05, confidence=0.9)
        automated = fresh[fresh > rule.threshold]
        broken += bool(len(automated)) and (1 - automated + shift).mean() > 0.05
    assert broken <= binom.ppf(0.999, trials, 0.1)


def test_more_rows_automate_more():
    rng = np.random.default_rng(1)
    shares = [review_rule(*draw(rng, n), max_error=0.05).automated for n in (300, 3000, 30_000)]
    assert shares == sorted(shares)
    assert shares[-1] > 0.4  # of the .47 that an oracle would let out


def test_what_it_reports_is_what_its_threshold_does():
    p, right = draw(np.random.default_rng(2), 5000)
    rule = review_rule(p, right, max_error=0.05)
    out = p > rule.threshold
    assert (rule.n, rule.n_automated, rule.n_wrong) == (5000, out.sum(), (~right[out]).sum())
    assert rule.error <= rule.upper <= 0.05
    assert "at most 5 % with 95 % confidence" in str(rule)
    labels = [line.get_label() for line in mc.RiskCoverageDisplay.from_rule(rule).plot().ax_.lines]
    assert f"go out without review: {100 * rule.automated:.1f} %" in labels


def test_columns_of_classes_are_answers_by_the_largest():
    rng = np.random.default_rng(3)
    probs = rng.dirichlet(np.full(4, 0.3), 4000)
    labels = (probs.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1)
    one = review_rule(probs, labels, max_error=0.1)
    other = review_rule(probs.max(axis=1), labels == probs.argmax(axis=1), max_error=0.1)
    assert (one.threshold, one.n_wrong) == (other.threshold, other.n_wrong)


@pytest.mark.parametrize("n", [1, 148, 149])
def test_too_few_rows_promise_nothing(n):
    rule = review_rule(np.full(n, 0.99), np.ones(n))
    if n == 149:
        assert rule.automated == 1.0
        assert review_rule(np.full(n, 0.99), np.arange(n) > 0).automated == 0.0
        return
    assert (rule.threshold, rule.n_automated) == (math.inf, 0)
    assert "149 rows without a mistake" in str(rule)


def test_ties_go_out_together_or_not_at_all():
    rng = np.random.default_rng(4)
    p = rng.choice([0.6, 0.8, 0.99], 5000)
    rule = review_rule(p, rng.random(5000) < p, max_error=0.05)
    assert rule.n_automated == (p == 0.99).sum()


def test_every_group_has_a_rule_of_its_own():
    rng = np.random.default_rng(5)
    p, right = draw(rng, 6000)
    site = np.array(["a", "b"])[np.arange(6000) % 2]
    right = np.where(site == "b", rng.random(6000) < p - 0.2, right)
    rule = review_rule(p, right, max_error=0.05, groups=site)
    assert rule.groups["a"].automated > 0.3
    assert rule.groups["b"].automated == rule.to_dict()["groups"]["b"]["n_automated"] == 0
    alone = review_rule(p[site == "a"], right[site == "a"], max_error=0.05)
    assert rule.groups["a"].threshold == alone.threshold


def test_the_cheapest_threshold():
    p, right = draw(np.random.default_rng(6), 20_000)
    rule = review_rule(p, right, cost_error=10, cost_review=1)
    costs = [np.where(p > t, 10 * ~right, 1).mean() for t in np.linspace(0, 1, 401)]
    assert rule.cost <= min(costs) + 1e-12
    assert rule.threshold == pytest.approx(0.9, abs=0.03)  # of calibrated confidences: 1 - 1 / 10
    assert review_rule(p, np.zeros(20_000), cost_error=10, cost_review=1).n_automated == 0


@pytest.mark.parametrize(
    ("probs", "labels", "options", "message"),
    [
        ([0.5, 1.2], [0, 1], {}, "row 1 is 1.2"),
        ([0.5, np.nan], [0, 1], {}, "row 1 is nan"),
        (["a", "b"], [0, 1], {}, "every entry must be a confidence"),
        ([0.5, 0.6], [0, 2], {}, "whether the answer was right"),
        ([0.5, 0.6], [0, 1, 1], {}, "one label for each"),
        ([0.5, 0.6], [0, 1], {"max_error": 0}, "max_error"),
        ([0.5, 0.6], [0, 1], {"cost_error": 1}, "both cost_error and cost_review"),
        ([0.5, 0.6], [0, 1], {"cost_error": 1, "cost_review": 1, "max_error": 0.1}, "either max_error"),
    ],
)
def test_refusals(probs, labels, options, message):
    with pytest.raises(mc.InputError, match=message):
        review_rule(probs, labels, **options)
