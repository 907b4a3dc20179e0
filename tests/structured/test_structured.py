"""Structured scaling: the published objective, certified; fallbacks; stacking on out-of-fold outputs; label shift."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import monocal as mc
from monocal.data import synthetic
from real_logits import load_shared_logits
from test_sklearn_contract import MORE_LABELS_THAN_COLUMNS

DATA = synthetic(1500, 6, seed=0)
BIAS = np.array([3.0, 0.0, 0.0, 0.0, -3.0, 0.0])
BIASED = DATA.values + BIAS


def nll(model, z, y):
    return -model.score(z, y)


def objective(theta, x, y, kind, weight):
    """The published objective, as it is written: an oracle that shares no line with the library."""
    n, m = weight.sum(), x.shape[1]
    b, v = theta[:m], theta[m:]
    if kind == "vector":
        f = x * (1 + v) + b
        penalty = m / n * (v @ v + b @ b)
    else:
        w = v.reshape(m, m)
        f = x + x @ w.T + b
        own = np.diag(w)
        penalty = m / n * (own @ own + b @ b) + m * (m - 1) / n * ((w**2).sum() - own @ own)
    return -(weight * log_softmax(f, axis=1)[np.arange(len(y)), y]).sum() / n + penalty


@pytest.mark.parametrize("kind", ["vector", "matrix"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_published_objective_is_minimised(kind, weighted):
    z, y = BIASED[:200], DATA.labels[:200]
    weight = np.random.default_rng(1).uniform(0.5, 2, 200) if weighted else np.ones(200)
    cal = mc.StructuredScaling(kind=kind).fit(z, y, sample_weight=weight if weighted else None)
    floor = 1 / (weight.sum() + 1)
    x = np.log((1 - floor) * softmax(z / cal.temperature_, axis=1) + floor / 6)
    best = minimize(objective, np.zeros(12 if kind == "vector" else 42), (x, y, kind, weight), tol=1e-10)
    assert cal.solution_.converged
    assert cal.solution_.kkt <= 1e-6
    assert cal.solution_.objective == pytest.approx(best.fun, abs=1e-7)
    assert cal.solution_.objective - best.fun <= cal.solution_.duality_gap + 1e-9
    f = x @ cal.coef_.T + cal.intercept_ if kind == "matrix" else x * cal.coef_ + cal.intercept_
    np.testing.assert_allclose(cal.predict_proba(z), softmax(f, axis=1), atol=1e-9)


@pytest.mark.parametrize(("kind", "m"), [("vector", 150), ("matrix", 40)])
def test_many_parameters_take_another_way_to_the_same_optimum(kind, m, monkeypatch):
    data = synthetic(5000, m, seed=1)
    from monocal.structured import problem, vector

    by_products = mc.StructuredScaling(kind=kind, tol=1e-8).fit(data.values.astype(np.float64), data.labels)
    assert by_products.solution_.converged
    monkeypatch.setattr(vector, "FORMED", 10**9)
    monkeypatch.setattr(problem, "_PRODUCTS", 10**4)
    exact = mc.StructuredScaling(kind=kind, tol=1e-8, max_iter=300).fit(
        data.values.astype(np.float64), data.labels
    )
    np.testing.assert_allclose(by_products.coef_, exact.coef_, atol=1e-5)
    single = mc.StructuredScaling(kind=kind).fit(data.values.astype(np.float32), data.labels)
    assert single.solution_.converged
    np.testing.assert_allclose(single.coef_, exact.coef_, atol=1e-4)


def test_a_bias_towards_classes_is_mended():
    z, y = BIASED, DATA.labels
    train, test = slice(0, 1000), slice(1000, None)
    keeps = mc.ConditionalMCCT(by_class=False).fit(z[train], y[train])
    for cal in (
        mc.StructuredScaling(kind="vector"),
        mc.StructuredScaling(),
        mc.StructuredScaling(shrinkage="cv"),
        mc.StructuredMCCT(),
    ):
        cal.fit(z[train], y[train])
        assert nll(cal, z[test], y[test]) < nll(keeps, z[test], y[test]) - 0.05
        assert not cal.preserves_order


def test_without_certain_gain_it_is_temperature_scaling():
    z, y = DATA.values[:60], DATA.labels[:60]
    plain = mc.TemperatureScaling().fit(z, y)
    cal = mc.StructuredScaling(shrinkage="cv").fit(z, y)
    assert cal.shrinkage_ == np.inf
    np.testing.assert_allclose(cal.predict_proba(z), plain.predict_proba(z), atol=1e-9)
    both = mc.StructuredMCCT().fit(z, y)
    assert both.shrinkage_ == np.inf
    alone = mc.ConditionalMCCT(by_class=False).fit(z, y)
    np.testing.assert_array_equal(both.predict_proba(z), alone.predict_proba(z))
    far = np.array([[1e30, 0.0, -1e30, 1.0, 2.0, -np.inf]])
    np.testing.assert_array_equal(cal.predict_proba(far), [[1, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    "make", [mc.StructuredScaling, mc.StructuredMCCT, lambda: mc.StructuredScaling(kind="vector")]
)
@pytest.mark.parametrize(
    "case", ["two rows", "one class", "one label", "separated", "absent", "a million apart"]
)
def test_hard_cases_are_finite_and_certified(make, case):
    z, y = DATA.values[:300].astype(np.float64), DATA.labels[:300]
    if case == "two rows":
        z, y = z[:2], y[:2]
    elif case == "one class":
        z, y = np.zeros((5, 1)), np.zeros(5, dtype=int)
    elif case == "one label":
        y = np.full(len(y), 3)
    elif case == "separated":
        y = z.argmax(axis=1)
    elif case == "absent":
        z, y = z[y != 2], y[y != 2]
    else:
        z = 2000.0 * z
    cal = make().fit(z, y)
    p = cal.predict_proba(z)
    assert np.isfinite(p).all()
    assert np.isfinite(cal.transform(z)).all()
    for stage in getattr(cal, "stages_", [cal]):
        assert stage.solution_.converged
        assert np.isfinite(stage.solution_.duality_gap)


def test_masked_classes_stay_out():
    z = BIASED.copy()
    hidden = (DATA.labels + 1 + np.arange(len(z)) % 5) % 6
    z[np.arange(len(z)), hidden] = -np.inf
    for cal in (mc.StructuredScaling(), mc.StructuredScaling(kind="vector"), mc.StructuredMCCT()):
        p = cal.fit(z, DATA.labels).predict_proba(z)
        assert (p[np.isinf(z)] == 0).all()
        np.testing.assert_allclose(p.sum(axis=1), 1)
        assert nll(cal, z, DATA.labels) < nll(mc.TemperatureScaling().fit(z, DATA.labels), z, DATA.labels)


def test_bad_settings_are_refused():
    z, y = DATA.values[:50], DATA.labels[:50]
    for cal, words in (
        (mc.StructuredScaling(kind="cube"), "kind must be one of"),
        (mc.StructuredScaling(shrinkage=0), "shrinkage must be a number above 0"),
        (mc.StructuredScaling(shrinkage="loo"), "shrinkage must be one of"),
        (mc.StructuredMCCT(kind="cube"), "kind must be one of"),
        (mc.StructuredMCCT(folds=1), "folds must be a whole number of at least 2"),
        (mc.Stacked([]), "stages is empty"),
        (mc.Stacked([mc.MCCT(), 3]), "stages must be a sequence of calibrators"),
        (mc.Stacked([mc.MCCT(input="probabilities")]), "stages are given logits"),
    ):
        with pytest.raises(mc.InputError, match=words):
            cal.fit(z, y)
    with pytest.raises(mc.InputError, match="6000 classes"):
        mc.StructuredScaling().fit(np.zeros((2, 6000)), [0, 1])


# Stacked.


class Parrot(mc.Calibrator):
    """Knows the rows it was fitted on by heart, and nothing else."""

    def __init__(self, input="logits"):
        self.input = input

    def _fit(self, logits, labels, weight):
        self.known_ = {row.tobytes(): label for row, label in zip(logits, labels, strict=True)}

    def _calibrate(self, logits):
        sure = np.array([self.known_.get(row.tobytes(), -1) for row in logits])
        return np.where(sure[:, None] >= 0, 2.0 * (sure[:, None] == np.arange(logits.shape[1])), logits)


def test_the_second_stage_sees_out_of_fold_outputs():
    z, y = DATA.values.astype(np.float64), DATA.labels
    cal = mc.Stacked([Parrot(), mc.TemperatureScaling()]).fit(z, y)
    # What the parrot has not seen it leaves as it is; what it has seen it knows, and a temperature would be next to nothing.
    assert cal.stages_[1].temperature_ == pytest.approx(mc.TemperatureScaling().fit(z, y).temperature_)
    in_sample = mc.TemperatureScaling().fit(cal.stages_[0].transform(z), y)
    assert in_sample.temperature_ < 0.5 * cal.stages_[1].temperature_


def test_order_is_kept_exactly_when_all_stages_keep_it():
    keeps = mc.Stacked([mc.TemperatureScaling(), mc.MCCT(), mc.ConditionalMCCT()])
    assert keeps.preserves_order
    assert keeps.preserves_top1
    assert not mc.Stacked([mc.MCCT(), mc.VectorScaling()]).preserves_order
    assert not mc.Stacked([mc.StructuredScaling(), mc.MCCT()]).preserves_order
    z = np.round(DATA.values, 1)
    keeps.fit(z, DATA.labels)
    for after in (keeps.transform(z), keeps.predict_proba(z)):
        audit = mc.order_audit(z, after, input="logits")
        assert audit.preserved


@pytest.mark.parametrize("make", [mc.Stacked, mc.StructuredMCCT])
def test_neither_arrangement_nor_shift_nor_weights_matter(make):
    z, y = BIASED[:400], DATA.labels[:400]
    cal = make().fit(z, y)
    p = cal.predict_proba(z)
    mixed = np.random.default_rng(0).permutation(400)
    np.testing.assert_allclose(make().fit(z[mixed], y[mixed]).predict_proba(z), p, atol=1e-6)
    shifted = z + 2.0 * np.random.default_rng(1).normal(size=(400, 1))
    np.testing.assert_allclose(make().fit(shifted, y).predict_proba(z), p, atol=1e-6)
    w = np.arange(400) % 3
    twice = np.repeat(np.arange(400), w)
    np.testing.assert_allclose(
        make().fit(z, y, sample_weight=w).predict_proba(z),
        make().fit(z[twice], y[twice]).predict_proba(z),
        atol=1e-6,
    )


def test_stacked_is_cloned_saved_and_loaded(tmp_path):
    cal = mc.Stacked(
        [mc.StructuredScaling(kind="vector", shrinkage="cv"), mc.HistogramBinning(), mc.MCCT()], folds=3
    )
    assert repr(clone(cal)) == repr(cal)
    cal.fit(BIASED, DATA.labels)
    cal.save(tmp_path / "a.json")
    loaded = mc.load(tmp_path / "a.json")
    assert repr(loaded) == repr(cal)
    np.testing.assert_array_equal(loaded.predict_proba(BIASED), cal.predict_proba(BIASED))
    assert not hasattr(loaded.stages[0], "coef_")
    shift = (
        mc.LabelShift(mc.Stacked([mc.StructuredScaling(), mc.MCCT()]))
        .fit(BIASED, DATA.labels)
        .adapt(BIASED[:200])
    )
    shift.save(tmp_path / "b.json")
    np.testing.assert_array_equal(
        mc.load(tmp_path / "b.json").predict_proba(BIASED), shift.predict_proba(BIASED)
    )


def test_scikit_learn_checks_of_the_recommended_combination():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(mc.StructuredMCCT(), on_fail=None)
    assert {r["check_name"] for r in results if r["status"] == "failed"} == set(MORE_LABELS_THAN_COLUMNS)


def test_calibrated_classifier_takes_it_by_name():
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression

    X, y = load_iris(return_X_y=True)
    model = mc.CalibratedClassifier(LogisticRegression(max_iter=500), "structured").fit(X, y)
    assert type(model.calibrator_) is mc.StructuredMCCT
    assert model.score(X, y) > 0.9


# Label shift.


def shifted_rows(prior, n=4000, seed=5):
    """Rows of the same classes in other proportions."""
    pool = synthetic(20000, 6, seed=seed)
    chosen = np.random.default_rng(0).choice(
        len(pool.labels), n, p=(prior / np.bincount(pool.labels, minlength=6))[pool.labels]
    )
    return pool.values[chosen], pool.labels[chosen]


PRIOR = np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.05])


def test_a_known_prior_helps_and_an_estimate_comes_close():
    fit = synthetic(4000, 6, seed=5)
    z, y = shifted_rows(PRIOR)
    cal = mc.LabelShift(mc.MCCT()).fit(fit.values, fit.labels)
    before = nll(cal, z, y)
    assert before == pytest.approx(nll(mc.MCCT().fit(fit.values, fit.labels), z, y), abs=1e-9)
    known = nll(cal.adapt(prior=PRIOR), z, y)
    assert not hasattr(cal, "solution_")
    estimated = nll(cal.adapt(z), z, y)
    assert known < before - 0.05
    assert estimated < known + 0.01
    assert cal.shifted_
    assert cal.solution_.converged
    assert cal.solution_.duality_gap < 1e-5
    np.testing.assert_allclose(cal.prior_, PRIOR, atol=0.05)
    assert not cal.preserves_order


def test_the_estimate_is_the_maximum_of_the_likelihood():
    fit = synthetic(2000, 6, seed=5)
    z, _ = shifted_rows(PRIOR, n=800)
    cal = mc.LabelShift(mc.MCCT()).fit(fit.values, fit.labels).adapt(z)
    ratio = cal.calibrator_.predict_proba(z) / cal.calibration_prior_
    w = np.full(6, 1 / 6)
    for _ in range(20000):  # EM, as published
        w = w * (ratio / (ratio @ w)[:, None]).mean(axis=0)
    np.testing.assert_allclose(cal.solution_.coefficients, w, atol=1e-4)


def test_without_a_shift_nothing_changes():
    fit, new = synthetic(3000, 6, seed=5), synthetic(3000, 6, seed=6)
    cal = mc.LabelShift(mc.MCCT()).fit(fit.values, fit.labels)
    before = cal.predict_proba(new.values)
    cal.adapt(new.values)
    assert not cal.shifted_
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


def test_adapt_needs_one_of_two():
    cal = mc.LabelShift().fit(DATA.values, DATA.labels)
    for given in ({}, {"X": DATA.values, "prior": PRIOR}):
        with pytest.raises(mc.InputError, match="adapt takes either X"):
            cal.adapt(**given)


def test_rare_inputs_of_an_estimate():
    cal = mc.LabelShift(mc.StructuredScaling()).fit(DATA.values, DATA.labels)
    z = DATA.values[:40].copy()
    for rows in (z[:1], np.where(np.arange(6) == 2, -np.inf, z), np.zeros((30, 6)), 1e4 * z):
        cal.adapt(rows)
        assert np.isfinite(cal.prior_).all()
        assert (cal.prior_ > 0).all()
        assert np.isfinite(cal.predict_proba(DATA.values)).all()


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
        w = cal.solution_.coefficients
        gain = (p / (p @ w)[:, None]).mean(
            axis=0
        )  # no prior is more likely by more than the largest of these, less one
        assert gain.max() <= 1 + 2e-6
        assert np.isfinite(cal.predict_proba(new)).all()


# Real sets.


def test_the_shifted_set():
    data = load_shared_logits("sctl_cifar10LT_densenet40")
    cal = mc.LabelShift(mc.ConditionalMCCT()).fit(data.logits_val, data.y_val)
    before = nll(cal, data.logits_test, data.y_test)
    known = nll(cal.adapt(prior=np.bincount(data.y_test) / len(data.y_test)), data.logits_test, data.y_test)
    assert known < before - 0.09
    assert mc.metrics.ece(cal.predict_proba(data.logits_test), data.y_test) < 0.029
    cal.adapt(data.logits_test)
    assert cal.shifted_
    assert abs(nll(cal, data.logits_test, data.y_test) - known) < 0.005


def test_the_shifted_set_where_classes_may_move():
    data = load_shared_logits("sctl_cifar10LT_densenet40")
    keeps = mc.ConditionalMCCT().fit(data.logits_val, data.y_val)
    cal = mc.LabelShift(mc.StructuredMCCT(kind="vector")).fit(data.logits_val, data.y_val)
    z, y = data.logits_test, data.y_test
    known = nll(cal.adapt(prior=np.full(10, 0.1)), z, y)
    assert known < nll(keeps, z, y) - 0.095
    assert mc.metrics.ece(cal.predict_proba(z), y) < 0.029
    assert nll(cal.adapt(z), z, y) < known + 0.005


@pytest.mark.parametrize("name", ["mmlu_mistral-7b", "toplabel_cifar10_resnet50_brier"])
def test_a_hundred_rows_are_no_worse_than_temperature_scaling(name):
    data = load_shared_logits(name)
    excess = []
    for draw in range(5):
        rows = np.random.default_rng([100, draw]).permutation(len(data.y_val))[:100]
        fits = [
            make().fit(data.logits_val[rows], data.y_val[rows])
            for make in (mc.StructuredMCCT, mc.TemperatureScaling)
        ]
        free, plain = (nll(fit, data.logits_test, data.y_test) for fit in fits)
        excess.append(free - plain)
    assert np.mean(excess) <= 0.002


def test_a_language_model_that_prefers_some_labels():
    data = load_shared_logits("text_agnews_gpt2")
    free = mc.StructuredMCCT().fit(data.logits_val, data.y_val)
    keeps = mc.ConditionalMCCT().fit(data.logits_val, data.y_val)
    p, q = (model.predict_proba(data.logits_test) for model in (keeps, free))
    price = mc.price_of_order(p, q, data.y_test)
    assert price.costs
    assert price.nll.low > 0.3
    assert str(price).startswith("Keeping the order costs 0.3")
    assert nll(free, data.logits_test, data.y_test) < 0.69  # 0.7003 by structured matrix scaling alone


def test_an_estimate_of_few_rows_of_the_same_population_changes_nothing():
    rng = np.random.default_rng(0)
    m, n = 60, 1500
    frequency = rng.dirichlet(np.full(m, 0.3))
    y = rng.choice(m, size=n, p=frequency)
    z = 4 * np.eye(m)[y] + rng.normal(size=(n, m))
    cal = mc.LabelShift(mc.TemperatureScaling()).fit(z, y)
    shifted = 0
    for _ in range(20):
        labels = rng.choice(m, size=30, p=frequency)
        cal.adapt(4 * np.eye(m)[labels] + rng.normal(size=(30, m)))
        shifted += cal.shifted_
    assert shifted <= 1


@pytest.mark.parametrize("make", [mc.Stacked, mc.StructuredMCCT])
def test_few_different_rows_with_many_labels(make):
    """Rows that repeat with other labels are held out together: the truth stays the truth."""
    rng = np.random.default_rng(0)
    z = 1.5 * rng.normal(size=(15, 4))
    p = softmax(z, axis=1)
    count = np.array([rng.multinomial(400, row) for row in p]).ravel()
    some, y = np.repeat(z, 4, axis=0), np.tile(np.arange(4), 15)
    cal = make().fit(some, y, count)
    assert (p * np.log(p / cal.predict_proba(z))).sum(axis=1).mean() < 0.003
    again = rng.permutation(np.repeat(np.arange(60), count))
    np.testing.assert_allclose(
        make().fit(some[again], y[again]).predict_proba(z), cal.predict_proba(z), atol=1e-4
    )
