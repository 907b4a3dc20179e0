"""Other class frequencies than in calibration: known or estimated, certified, and nothing where nothing has shifted."""

import numpy as np
import pytest
from biased_rows import DATA, nll

import monocal as mc
from monocal.data import synthetic
from real_logits import load_shared_logits

FIT = synthetic(4000, 6, seed=5)
PRIOR = np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.05])


def shifted_rows(n):
    """Rows of the same classes in other proportions."""
    pool = synthetic(20000, 6, seed=5)
    chance = (PRIOR / np.bincount(pool.labels, minlength=6))[pool.labels]
    chosen = np.random.default_rng(0).choice(len(pool.labels), n, p=chance)
    return pool.values[chosen], pool.labels[chosen]


def test_a_known_prior_helps_and_an_estimate_comes_close():
    z, y = shifted_rows(4000)
    cal = mc.LabelShift(mc.MCCT()).fit(FIT.values, FIT.labels)
    before = nll(cal, z, y)
    assert before == pytest.approx(nll(mc.MCCT().fit(FIT.values, FIT.labels), z, y), abs=1e-9)
    with_prior = nll(cal.adapt(prior=PRIOR), z, y)
    assert not hasattr(cal, "solution_")
    estimated = nll(cal.adapt(z), z, y)
    assert with_prior < before - 0.05
    assert estimated < with_prior + 0.01
    assert cal.shifted_
    assert cal.solution_.converged
    assert cal.solution_.duality_gap < 1e-5
    np.testing.assert_allclose(cal.prior_, PRIOR, atol=0.05)
    assert not cal.preserves_order


def test_the_estimate_is_the_maximum_of_the_likelihood():
    z, _ = shifted_rows(800)
    cal = mc.LabelShift(mc.MCCT()).fit(FIT.values, FIT.labels).adapt(z)
    ratio = cal.calibrator_.predict_proba(z) / cal.calibration_prior_
    w = np.full(6, 1 / 6)
    for _ in range(20000):  # EM, as published
        w = w * (ratio / (ratio @ w)[:, None]).mean(axis=0)
    np.testing.assert_allclose(cal.solution_.coefficients, w, atol=1e-4)


def test_without_a_shift_nothing_changes():
    new = synthetic(3000, 6, seed=6)
    cal = mc.LabelShift(mc.MCCT()).fit(FIT.values, FIT.labels)
    before = cal.predict_proba(new.values)
    assert not cal.adapt(new.values).shifted_
    np.testing.assert_array_equal(cal.predict_proba(new.values), before)


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ([0.5, 0.5, 0.5, 0.1, 0.1, 0.1], "prior must sum to 1, but sums to 1.8"),
        ([0.5, 0.5, 0.0, 0.0, 0.0, 0.0], "prior must be positive for every class, but is 0 for class 2"),
        ([0.5, 0.5], "one number for each of the 6 classes"),
        ([np.nan, 0.2, 0.2, 0.2, 0.2, 0.2], "but is nan for class 0"),
        ("even", "prior must be 6 numbers"),
    ],
)
def test_bad_priors_are_refused(prior, words):
    with pytest.raises(mc.InputError, match=words):
        mc.LabelShift(prior=prior).fit(DATA.values, DATA.labels)
    fitted = mc.LabelShift().fit(DATA.values, DATA.labels)
    with pytest.raises(mc.InputError, match=words):
        fitted.adapt(prior=prior)
    for arguments in ({}, {"X": DATA.values, "prior": PRIOR}):
        with pytest.raises(mc.InputError, match="adapt takes either X"):
            fitted.adapt(**arguments)


def test_rare_inputs_of_an_estimate():
    cal = mc.LabelShift(mc.StructuredScaling()).fit(DATA.values, DATA.labels)
    z = DATA.values[:40].copy()
    for rows in (z[:1], np.where(np.arange(6) == 2, -np.inf, z), np.zeros((30, 6)), 1e4 * z):
        cal.adapt(rows)
        assert np.isfinite(cal.prior_).all()
        assert (cal.prior_ > 0).all()
        assert np.isfinite(cal.predict_proba(DATA.values)).all()


@pytest.mark.filterwarnings("ignore::monocal.CalibrationWarning")  # weights by class move the rate of two
@pytest.mark.parametrize("spread", [2, 12, 30])
@pytest.mark.parametrize("make", [mc.TemperatureScaling, mc.MCCT, mc.StructuredScaling])
def test_an_estimate_after_extreme_weights_is_certified(make, spread):
    for seed in range(4):
        rng = np.random.default_rng([spread, seed])
        m = [2, 6, 20][seed % 3]
        z = rng.normal(size=(300, m)) * 10.0 ** rng.uniform(-2, 2.5)
        y = rng.integers(0, m, 300) if seed % 2 else z.argmax(axis=1)
        weight = 10.0 ** rng.uniform(-spread, spread, m)[y]
        new = rng.normal(size=(1000, m)) * 10.0 ** rng.uniform(-2, 2.5) + 3 * rng.normal(size=m)
        cal = mc.LabelShift(make()).fit(z, y, sample_weight=weight).adapt(new)
        assert cal.solution_.converged
        p = cal.calibrator_.predict_proba(new) / cal.calibration_prior_
        # No prior is more likely by more than the largest of these gains, less one.
        gain = (p / (p @ cal.solution_.coefficients)[:, None]).mean(axis=0)
        assert gain.max() <= 1 + 2e-6
        assert np.isfinite(cal.predict_proba(new)).all()


def test_the_shifted_set():
    data = load_shared_logits("sctl_cifar10LT_densenet40")
    cal = mc.LabelShift(mc.ConditionalMCCT()).fit(data.logits_val, data.y_val)
    before = nll(cal, data.logits_test, data.y_test)
    cal.adapt(prior=np.bincount(data.y_test) / len(data.y_test))
    with_prior = nll(cal, data.logits_test, data.y_test)
    assert with_prior < before - 0.09
    assert mc.metrics.ece(cal.predict_proba(data.logits_test), data.y_test) < 0.029
    assert cal.adapt(data.logits_test).shifted_
    assert abs(nll(cal, data.logits_test, data.y_test) - with_prior) < 0.005


def test_an_estimate_of_few_rows_of_the_same_population_changes_nothing():
    rng = np.random.default_rng(0)
    frequency = rng.dirichlet(np.full(60, 0.3))

    def rows(n):
        y = rng.choice(60, size=n, p=frequency)
        return 4 * np.eye(60)[y] + rng.normal(size=(n, 60)), y

    cal = mc.LabelShift(mc.TemperatureScaling()).fit(*rows(1500))
    assert sum(cal.adapt(rows(30)[0]).shifted_ for _ in range(20)) <= 1


def test_unequal_weights_are_no_shift_and_hide_none():
    rng = np.random.default_rng(0)
    for trial in range(20):
        data = synthetic(2000, 5, seed=trial)
        z, y = data.values, data.labels
        cal = mc.LabelShift().fit(z[:1000], y[:1000], np.where(rng.random(1000) < 0.05, 20.0, 1.0))
        assert not cal.adapt(z[1000:]).shifted_
        assert cal.adapt(z[1000:][y[1000:] < 3]).shifted_
