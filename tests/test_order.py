"""The promise: the order of the classes never changes, in any type, on any finite input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import log_softmax, softmax
from sklearn.base import clone

import monocal as mc
from hostile import DTYPES, assert_order_kept, bent, finite_rows, hard_rows, masked_set, narrow
from monocal.arrays import ordered_exp
from monocal.core.statistics import STATISTICS

CALIBRATORS = [
    mc.TemperatureScaling(),
    mc.MCCT(),
    mc.MCCT(shrinkage=0),
    mc.MCCTInverse(shrinkage=0),
    mc.MCCT(top_k=2),
    mc.MCCT(top_k=5, shrinkage=0),
    mc.MCCT(input="probabilities"),
    mc.ConditionalMCCT(statistics=tuple(STATISTICS), shrinkage=0.3),
    mc.ConditionalMCCT(statistics=tuple(STATISTICS), shrinkage=0.3, top_k=1),
    mc.ConditionalMCCT(statistics=tuple(STATISTICS), shrinkage=0.3, top_k=4),
]


@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=repr)
@pytest.mark.parametrize("m", [2, 3, 60])
def test_hard_rows_keep_their_order(calibrator, m):
    z, y = bent(m, n=250)
    calibrator = clone(calibrator)
    if (calibrator.top_k or m) > m:
        calibrator.set_params(top_k=m)
    of_probabilities = calibrator.input == "probabilities"
    cal = calibrator.fit(softmax(z, axis=1) if of_probabilities else z, y)
    for dtype in DTYPES:
        rows = narrow(hard_rows(m, 1), dtype)
        if of_probabilities:
            rows = softmax(rows.astype(np.float64), axis=1).astype(dtype)
        for result in (cal.predict_proba(rows), cal.transform(rows)):
            assert result.dtype == dtype
            assert_order_kept(rows, result)
        np.testing.assert_array_equal(cal.predict(rows), rows.argmax(axis=1))


def test_a_thousand_classes():
    rng = np.random.default_rng(0)
    z = (rng.normal(size=(150, 1000)) * 3).astype(np.float32)
    y = np.argsort(-z, axis=1)[np.arange(150), np.minimum(rng.geometric(0.4, 150) - 1, 999)]
    cal = mc.MCCT(shrinkage=0.1).fit(z, y)
    assert len(cal.rank_map_.starts) > 3
    for rows in (z, np.round(z * 2) / 2, z - 50, z.astype(np.float16)):
        assert_order_kept(rows, cal.predict_proba(rows))
        assert_order_kept(rows, cal.transform(rows))


@settings(max_examples=80, deadline=None)
@given(finite_rows(20, 6), st.sampled_from(DTYPES), st.sampled_from([0, 1]))
def test_any_finite_row(rows, dtype, which):
    rows = narrow(rows, dtype)
    assert_order_kept(rows, BENT[which].predict_proba(rows))
    assert_order_kept(rows, BENT[which].transform(rows))


BENT = [
    mc.MCCT(shrinkage=0).fit(*bent(6)),
    mc.ConditionalMCCT(statistics=tuple(STATISTICS), shrinkage=0.3, by_class=False).fit(*bent(6)),
]


@settings(max_examples=20, deadline=None)
@given(hnp.arrays(np.float32, (30, 8), elements=st.floats(-30, 30, width=32)), st.integers(0, 7))
def test_any_calibration_set_gives_an_order_preserving_map(z, label):
    y = (np.arange(30) * 3 + label) % 8
    span = float(np.ptp(z.astype(np.float64), axis=1).max())
    if 0 < span < 1e-6:
        with pytest.raises(mc.InputError, match="less than any classifier's"):
            mc.MCCT().fit(z, y)
        return
    for top_k in (None, 3):
        cal = mc.MCCT(shrinkage=0.01, top_k=top_k).fit(z, y)
        assert_order_kept(z, cal.predict_proba(z))
        assert_order_kept(np.round(z), cal.predict_proba(np.round(z)))


@pytest.mark.parametrize("tiny", [1e-6, 1e-9, 1e-20, 6.6e-40])
def test_differences_without_meaning_give_no_runaway_parameters(tiny):
    z = np.zeros((30, 8), dtype=np.float32)
    z[0, :2] = tiny, -1
    for top_k in (None, 3):
        cal = mc.MCCT(shrinkage=0.01, top_k=top_k).fit(z, np.arange(30) * 3 % 8)
        assert cal.solution_.converged
        assert np.abs(cal.weights_).max() < 1e12
        assert_order_kept(z, cal.predict_proba(z))


@pytest.mark.parametrize("cal", [mc.TemperatureScaling(), mc.MCCT(), mc.ConditionalMCCT()])
def test_units_without_meaning_are_refused(cal):
    z, y = bent(6)
    for scale, word in ((1e6, "more than"), (1e307, "more than"), (1e-9, "less than"), (1e-300, "less than")):
        with pytest.raises(mc.InputError, match=word):
            cal.fit(np.clip(z * scale, -1.7e308, 1.7e308), y)
    # Rows that lie apart do not hide that each is flat; one that overflows is one row, not the unit of all.
    with pytest.raises(mc.InputError, match="less than"):
        cal.fit(z * 1e-12 + np.arange(len(z))[:, None], y)
    lone = z.copy()
    lone[0, :2] = 1e308, -1e308
    assert np.isfinite(cal.fit(lone, np.where(np.arange(len(y)) == 0, 0, y)).score(z, y))
    cal = clone(cal).set_params(
        prior_rows=0
    )  # the likelihood knows no unit; the classifier's own probabilities have one
    expected = cal.fit(z, y).predict_proba(z)
    for scale in (1e-5, 1e-2, 10.0):
        np.testing.assert_allclose(cal.fit(z * scale, y).predict_proba(z * scale), expected, atol=5e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_is_monotone_in_the_last_bit(dtype):
    rng = np.random.default_rng(0)
    for centre in (-1e-3, -0.5, -1.0, -3.3, -17.0, -40.0, -86.9, -95.0):
        x = np.full(200_000, centre, dtype=dtype)
        x = np.cumsum(np.full(200_000, np.spacing(dtype(abs(centre))), dtype=dtype)) + dtype(centre)
        x = np.minimum(np.sort(x), 0)
        assert (np.diff(ordered_exp(x)) >= 0).all()
    x = np.repeat(rng.uniform(-30, 0, 37).astype(dtype), 53)
    for offset in range(9):  # the same number anywhere in an array has the same exp
        part = ordered_exp(x[offset:])
        assert len(np.unique(part)) <= 37


def test_shift_changes_nothing_and_log_softmax_is_the_same():
    z, y = bent(10)
    cal = mc.MCCT(shrinkage=0).fit(z, y)
    p = cal.predict_proba(z)
    np.testing.assert_allclose(cal.predict_proba(z + 37.5), p, rtol=1e-9, atol=1e-14)
    logp = log_softmax(z, axis=1)
    np.testing.assert_allclose(cal.predict_proba(logp), p, rtol=1e-9, atol=1e-14)
    again = mc.MCCT(shrinkage=0).fit(logp, y)
    np.testing.assert_allclose(again.predict_proba(logp), p, rtol=1e-4, atol=1e-6)


def test_ties_get_the_mean_of_their_ranks():
    z, y = bent(5)
    cal = mc.MCCT(shrinkage=0).fit(z, y)
    row = np.array([[3.0, 1.0, 3.0, -2.0, 3.0]])
    by_rank = cal.weights_ * (np.sort(row[0]) - row.min()) + cal.biases_
    expected = np.array([by_rank[2:].mean(), by_rank[1], by_rank[2:].mean(), by_rank[0], by_rank[2:].mean()])
    np.testing.assert_allclose(cal.transform(row)[0], expected - expected[0], rtol=1e-12)


def test_only_minus_infinity_hides_a_class():
    """A large negative number is the lowest logit of its row, from which the others are measured."""
    z, y, mask = masked_set(8)
    cal = mc.MCCT(shrinkage=0.1).fit(z, y)
    assert np.ptp(cal.weights_) > 0
    number = np.where(mask, -3e38, z)
    hidden, shown = cal.predict_proba(z), cal.predict_proba(number)
    assert_order_kept(number, shown)
    masked = mask.any(axis=1)
    assert (shown.max(axis=1) >= hidden.max(axis=1) - 1e-12).all()
    assert shown[masked].max(axis=1).min() > 0.99
    assert hidden[masked].max(axis=1).min() < 0.9


@pytest.mark.parametrize("top_k", [None, 3, 5])
def test_masked_classes_stay_at_zero(top_k):
    z, y, mask = masked_set(8)
    cal = mc.MCCT(shrinkage=0.1, top_k=top_k).fit(z, y)
    assert cal.solution_.converged
    p = cal.predict_proba(z)
    assert (p[mask] == 0).all()
    assert (p[~mask] > 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert_order_kept(z, p)
