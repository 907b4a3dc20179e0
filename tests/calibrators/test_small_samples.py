"""A few calibration rows from real networks, all labels right among them: calibrating must not be much worse than not."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import monocal as mc
from monocal.calibrators.cone_calibrator import FOLDS, one_standard_error_rule

METHODS = [mc.TemperatureScaling, mc.MCCT, mc.ConditionalMCCT]
# The most that a fit on so many rows may lose; benchmarks/small_samples.py measures it over all sets and many draws.
LIMITS = {20: 0.30, 100: 0.08}
SURE = ["nncal_cifar10_densenet40", "toplabel_cifar10_wide_resnet_flsd53", "text_20news"]


def nll(logits, labels):
    return -log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(labels)), labels].mean()


@pytest.mark.parametrize("name", SURE)
@pytest.mark.parametrize("size", LIMITS)
@pytest.mark.parametrize("kind", METHODS)
def test_all_labels_right(shared_logits, name, size, kind):
    data = shared_logits(name)
    right = np.flatnonzero(data.logits_val.argmax(axis=1) == data.y_val)
    rows = np.random.default_rng(size).permutation(right)[:size]
    cal = kind().fit(data.logits_val[rows], data.y_val[rows])
    assert cal.solution_.converged
    excess = nll(cal.transform(data.logits_test), data.y_test) - nll(data.logits_test, data.y_test)
    assert excess < LIMITS[size]


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("n", [1, 3, 25])
def test_probabilities_that_are_all_right(kind, n):
    p = softmax(np.random.default_rng(n).normal(size=(n, 6)) * 4, axis=1)
    p[0] = np.eye(6)[0]  # certain of one class
    cal = kind(input="probabilities").fit(p, p.argmax(axis=1))
    assert cal.solution_.converged
    wrong = cal.predict_proba(np.array([[0.7, 0.2, 0.05, 0.03, 0.01, 0.01]]))
    assert -np.log(wrong[0, 1]) < 6


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("kind", METHODS)
def test_finite_in_any_unit(kind, unit):
    z = np.random.default_rng(0).normal(size=(30, 5)) * 3 * unit
    cal = kind().fit(z, z.argmax(axis=1))
    assert cal.solution_.converged
    # Doing nothing is not much better if one row in ten turns out to be wrong.
    labels = np.where(np.arange(30) % 10 == 0, np.argsort(z, axis=1)[:, -2], z.argmax(axis=1))
    assert nll(cal.transform(z), labels) < nll(z, labels) + 0.1


def test_many_rows_drown_the_prior(shared_logits):
    data = shared_logits("toplabel_cifar10_resnet50_brier")
    for kind in METHODS:
        values = [
            nll(kind(prior_rows=n).fit(data.logits_val, data.y_val).transform(data.logits_test), data.y_test)
            for n in (0, 8)
        ]
        assert abs(values[1] - values[0]) < 5e-4


def test_the_prior_is_so_many_rows_labelled_by_the_classifier():
    """With a weight of their own, rows repeated with every class as label are the same prior."""
    rng = np.random.default_rng(3)
    z, y = rng.normal(size=(40, 4)) * 3, rng.integers(4, size=40)
    own = 15 / 16 * softmax(z, axis=1) + 1 / 16 * softmax(z / 10, axis=1)
    pseudo = np.repeat(z, 4, axis=0), np.tile(np.arange(4), 40), 8 / 40 * own.ravel()
    by_hand = mc.MCCT(prior_rows=0, shrinkage=0, tol=1e-9).fit(
        np.concatenate([z, pseudo[0]]),
        np.concatenate([y, pseudo[1]]),
        np.concatenate([np.ones(40), pseudo[2]]),
    )
    cal = mc.MCCT(prior_rows=8, shrinkage=0, tol=1e-9).fit(z, y)
    np.testing.assert_allclose(cal.predict_proba(z), by_hand.predict_proba(z), atol=1e-6)


@pytest.mark.parametrize("bad", [-1, "many", None, np.nan])
@pytest.mark.parametrize("kind", METHODS)
def test_the_prior_is_a_number(kind, bad):
    with pytest.raises(mc.InputError, match="prior_rows must be"):
        kind(prior_rows=bad).fit([[2.0, 0.0], [0.0, 2.0]], [0, 1])


def with_few_rows(size, draws=4):
    """Of every draw: the rows of a set with ten classes, and the others."""
    from monocal.data import synthetic

    data = synthetic(3000, 10, seed=5)
    for draw in range(draws):
        order = np.random.default_rng([size, draw]).permutation(3000)
        yield (
            (data.values[order[:size]], data.labels[order[:size]]),
            (data.values[order[size:]], data.labels[order[size:]]),
        )


@pytest.mark.parametrize("shrinkage", [5.0, "cv"])
@pytest.mark.parametrize("size", [20, 100])
def test_mcct_is_no_worse_than_temperature_scaling_where_that_is_right(shrinkage, size):
    excess = []
    for few, rest in with_few_rows(size):
        ts, cal = (c.fit(*few) for c in (mc.TemperatureScaling(), mc.MCCT(shrinkage=shrinkage)))
        excess.append(nll(cal.transform(rest[0]), rest[1]) - nll(ts.transform(rest[0]), rest[1]))
    assert np.mean(excess) < 0.01
    assert max(excess) < 0.03


@pytest.mark.parametrize("n", [60, 300])
def test_the_order_of_rows_does_not_matter_to_cross_validation(shared_logits, n):
    data = shared_logits("netcal_cifar10_lenet-5")
    z, y = data.logits_val[:n], data.y_val[:n]
    cal = mc.MCCT(shrinkage="cv").fit(z, y)
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(n)
        other = mc.MCCT(shrinkage="cv").fit(z[order], y[order])
        assert other.shrinkage_ == cal.shrinkage_
        np.testing.assert_allclose(other.predict_proba(z), cal.predict_proba(z), atol=2e-6)


def test_equal_rows_share_a_fold():
    from monocal.calibrators.folds import deal

    keys = np.random.default_rng(0).integers(2**63, size=50, dtype=np.uint64)
    for number in range(3):
        fold = deal(np.concatenate([keys, keys[::-1]]), FOLDS, number)
        np.testing.assert_array_equal(fold[:50], fold[:49:-1])
        assert np.bincount(fold).min() == 20
    same = mc.MCCT(shrinkage="cv").fit([[2.0, 1.0, 0.0]] * 30, [0] * 30)  # nothing can be held out
    assert same.shrinkage_ == mc.MCCT().shrinkage


def test_the_simplest_model_within_one_standard_error_is_chosen():
    loss = np.array([[1.0, 0.5, 0.4], [1.2, 0.5, 0.6], [0.8, 0.5, 0.45]])
    share = np.full(3, 1 / 3)
    assert one_standard_error_rule(loss, share, 3) == 1  # 0.5 against 0.483 +- 0.048
    assert one_standard_error_rule(loss - [0.0, 0.0, 0.2], share, 3) == 2


def test_few_different_rows_do_not_mislead_cross_validation():
    """A fold that holds all rows of one label, but not the same rows with other labels, makes every strength look too weak."""
    chosen = []
    for seed in range(9):
        rng = np.random.default_rng(seed)
        truth = 1.5 * rng.normal(size=(40, 3))
        count = np.array([rng.multinomial(50, p) for p in softmax(truth, axis=1)]).ravel()
        z, y = np.repeat(truth**3, 3, axis=0), np.tile(np.arange(3), 40)
        chosen.append(mc.MCCT(shrinkage="cv").fit(z, y, count).shrinkage_)
    again = rng.permutation(np.repeat(np.arange(120), count))
    assert mc.MCCT(shrinkage="cv").fit(z[again], y[again]).shrinkage_ == chosen[-1]
    assert np.median(chosen) <= 50  # with labels in the key it was 100, the strongest there is
