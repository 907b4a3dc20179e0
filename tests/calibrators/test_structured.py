"""Structured scaling: the published objective, certified; fallbacks; hard cases and few rows."""

import numpy as np
import pytest
from biased_rows import BIASED, DATA, nll
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

import monocal as mc
from monocal.calibrators import affine_problem
from monocal.data import synthetic
from real_logits import load_shared_logits


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
    z, y = data.values.astype(np.float64), data.labels
    by_products = mc.StructuredScaling(kind=kind, tol=1e-8).fit(z, y)
    assert by_products.solution_.converged
    monkeypatch.setattr(affine_problem, "FORMED", 10**9 if kind == "vector" else 192)
    monkeypatch.setattr(affine_problem, "_PRODUCTS", 10**4)
    exact = mc.StructuredScaling(kind=kind, tol=1e-8, max_iter=300).fit(z, y)
    np.testing.assert_allclose(by_products.coef_, exact.coef_, atol=1e-5)
    single = mc.StructuredScaling(kind=kind).fit(z.astype(np.float32), y)
    assert single.solution_.converged
    np.testing.assert_allclose(single.coef_, exact.coef_, atol=1e-4)


@pytest.mark.filterwarnings("ignore::monocal.CalibrationWarning")  # of the map that keeps the order
def test_a_bias_towards_classes_is_corrected():
    train, test = ((BIASED[part], DATA.labels[part]) for part in (slice(0, 1000), slice(1000, None)))
    keeps = nll(mc.ConditionalMCCT(by_class=False).fit(*train), *test)
    vector, cv = mc.StructuredScaling(kind="vector"), mc.StructuredScaling(shrinkage="cv")
    for cal in (vector, mc.StructuredScaling(), cv, mc.StructuredMCCT()):
        assert nll(cal.fit(*train), *test) < keeps - 0.05
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
    z, y = {
        "two rows": (z[:2], y[:2]),
        "one class": (np.zeros((5, 1)), np.zeros(5, dtype=int)),
        "one label": (z, np.full(len(y), 3)),
        "separated": (z, z.argmax(axis=1)),
        "absent": (z[y != 2], y[y != 2]),
        "a million apart": (2000.0 * z, y),
    }[case]
    cal = make().fit(z, y)
    p = cal.predict_proba(z)
    assert np.isfinite(p).all()
    assert np.isfinite(cal.transform(z)).all()
    for stage in getattr(cal, "stages_", [cal]):
        assert stage.solution_.converged
        assert np.isfinite(stage.solution_.duality_gap)


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


def test_a_language_model_that_prefers_some_labels():
    data = load_shared_logits("text_agnews_gpt2")
    free = mc.StructuredMCCT().fit(data.logits_val, data.y_val)
    with pytest.warns(mc.CalibrationWarning, match="try StructuredMCCT"):
        keeps = mc.ConditionalMCCT().fit(data.logits_val, data.y_val)
    p, q = (model.predict_proba(data.logits_test) for model in (keeps, free))
    price = mc.price_of_order(p, q, data.y_test)
    assert price.costs
    assert price.nll.low > 0.3
    assert str(price).startswith("Keeping the order costs 0.3")
    assert nll(free, data.logits_test, data.y_test) < 0.69  # 0.7003 by structured matrix scaling alone


@pytest.mark.parametrize("make", [mc.Stacked, mc.StructuredMCCT])
def test_few_different_rows_with_many_labels(make):
    """Rows that repeat with other labels are held out together: the truth stays the truth."""
    rng = np.random.default_rng(0)
    z = 1.5 * rng.normal(size=(15, 4))
    p = softmax(z, axis=1)
    count = np.array([rng.multinomial(400, row) for row in p]).ravel()
    repeated, y = np.repeat(z, 4, axis=0), np.tile(np.arange(4), 15)
    cal = make().fit(repeated, y, count)
    assert (p * np.log(p / cal.predict_proba(z))).sum(axis=1).mean() < 0.003
    again = rng.permutation(np.repeat(np.arange(60), count))
    np.testing.assert_allclose(
        make().fit(repeated[again], y[again]).predict_proba(z), cal.predict_proba(z), atol=1e-4
    )


AFFINE = {
    "VectorScaling": mc.VectorScaling,
    "MatrixScaling": mc.MatrixScaling,
    "StructuredScaling, vector": lambda: mc.StructuredScaling(kind="vector"),
    "StructuredScaling, matrix": mc.StructuredScaling,
    "StructuredScaling, cv": lambda: mc.StructuredScaling(shrinkage="cv"),
    "StructuredMCCT": mc.StructuredMCCT,
}


@pytest.mark.parametrize("levels", [8, None])
@pytest.mark.parametrize("name", AFFINE)
def test_two_classes_where_the_best_temperature_is_infinite(name, levels):
    """As stated confidences are: above one half throughout, and mostly wrong."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss, roc_auc_score

    rng = np.random.default_rng(0)
    s = rng.uniform(0.5, 4.5, size=2000)
    if levels:
        s = np.round(s * levels / 4.0) * 4.0 / levels
    y = (rng.random(2000) < 1.0 / (1.0 + np.exp(2.3 - 0.6 * s))).astype(int)
    z = np.column_stack([np.zeros(2000), s])
    with pytest.warns(mc.CalibrationWarning, match="class 1 is the label of 32.* try BinaryMCCT"):
        assert mc.TemperatureScaling().fit(z, y).temperature_ > 1e5
    p = AFFINE[name]().fit(z, y).predict_proba(z)[:, 1]
    platt = LogisticRegression(C=np.inf).fit(s[:, None], y).predict_proba(s[:, None])
    assert log_loss(y, p) < log_loss(y, platt) + 0.002
    assert roc_auc_score(y, p) == pytest.approx(roc_auc_score(y, s), abs=1e-12)
    assert np.ptp(p) > 0.2


@pytest.mark.parametrize("name", AFFINE)
def test_one_class_preferred_throughout(name):
    rng = np.random.default_rng(0)
    truth = 1.5 * rng.normal(size=(1500, 3)) - np.array([0.7, 0.0, 0.0])
    y = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    z = truth + np.array([9.0, 0.0, 0.0])
    right = nll(mc.TemperatureScaling().fit(truth, y), truth, y)
    assert nll(AFFINE[name]().fit(z, y), z, y) < right + 0.05  # a constant is above it by 0.4
