"""The order audit against a loop over all pairs."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import softmax
from scipy.stats import kendalltau

import monocal as mc


def loop_audit(before, after):
    inverted = broken = made = rows = 0
    for x, y in zip(before, after, strict=True):
        pairs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i, j in combinations(range(len(x)), 2)]
        here = sum(a * b < 0 for a, b in pairs)
        inverted, rows = inverted + here, rows + (here > 0)
        broken += sum(a == 0 and b != 0 for a, b in pairs)
        made += sum(a != 0 and b == 0 for a, b in pairs)
    return rows, inverted, broken, made


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(2, 19), st.data())
def test_counts_equal_those_of_a_loop(n, m, data):
    """Few distinct values, so that ties of every kind occur."""
    grid = hnp.arrays(np.float64, (n, m), elements=st.integers(-3, 3).map(float))
    before, after = data.draw(grid), data.draw(grid)
    audit = mc.order_audit(before, after, input="logits").all
    counts = audit.rows_inverted, audit.inverted_pairs, audit.ties_broken, audit.ties_made
    assert counts == loop_audit(before, after)
    assert audit.top1_changed == (before.argmax(axis=1) != after.argmax(axis=1)).sum()


@pytest.mark.parametrize("m", [2, 64, 65, 1000])
def test_inverted_pairs_agree_with_kendalls_tau(m):
    before, after = np.random.default_rng(m).standard_normal((2, 4, m))
    expected = sum(
        round((1 - kendalltau(x, y).statistic) * m * (m - 1) / 4) for x, y in zip(before, after, strict=True)
    )
    assert mc.order_audit(before, after, input="logits").all.inverted_pairs == expected


def test_reversal_inverts_every_pair_in_every_block():
    n, m = 1200, 1000
    before = np.random.default_rng(0).permuted(np.tile(np.arange(m, dtype=np.float32), (n, 1)), axis=1)
    audit = mc.order_audit(before, -before, input="logits")
    assert audit.all.inverted_pairs == n * m * (m - 1) // 2
    assert audit.all.share_inverted == audit.all.share_top1_changed == 1
    assert not audit.preserved


def test_a_monotone_map_is_preserved_and_merging_ties_counts_as_made():
    before = np.array([[3.0, 1.0, 2.0], [0.0, -np.inf, 5.0]])
    assert mc.order_audit(before, np.exp(before), input="logits").preserved
    audit = mc.order_audit(before, np.minimum(before, 2), input="logits")
    assert audit.preserved
    assert audit.all.ties_made == 1


def test_uncertain_rows_are_those_below_the_confidence():
    before = np.array([[0.9, 0.06, 0.04], [0.5, 0.3, 0.2], [0.75, 0.15, 0.1]])
    after = before[:, [0, 2, 1]].copy()
    after[1] = [0.3, 0.5, 0.2]
    audit = mc.order_audit(before, after)
    assert (audit.all.rows, audit.uncertain.rows) == (3, 1)
    assert (audit.all.top1_changed, audit.uncertain.top1_changed) == (1, 1)
    assert (audit.all.inverted_pairs, audit.uncertain.inverted_pairs) == (3, 1)
    assert mc.order_audit(before, after, uncertain_below=0.95).uncertain == audit.all
    logits = mc.order_audit(np.log(before), np.log(after), input="logits")
    assert logits.to_dict() == json.loads(json.dumps(audit.to_dict()))
    assert mc.order_audit([[0.9, 0.1]], [[0.9, 0.1]]).uncertain.share_inverted == 0
    assert "not kept" in repr(audit)


def test_probabilities_lose_what_logits_keep():
    logits = np.array([[0.0, -800.0, -900.0]])
    probs = softmax(logits, axis=1)
    assert mc.order_audit(logits, logits[:, [0, 2, 1]], input="logits").all.inverted_pairs == 1
    assert mc.order_audit(probs, probs[:, [0, 2, 1]]).all.inverted_pairs == 0
