"""MCCT, MCCT-I and temperature scaling: optima, limits, the paper's figures, small and odd calibration sets."""

import warnings

import numpy as np
import pytest
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.naive_bayes import GaussianNB

import monocal as mc
from kept_memory import kept_below
from monocal import metrics
from monocal.calibrators.rank_map import RankMap
from monocal.core import rows as row_sums

SETS = [
    "nncal_cifar10_densenet40",
    "toplabel_cifar100_wide_resnet_brier",
    "netcal_cifar10_lenet-5",
    "netcal_cifar100_densenet-bc-100",
    "sctl_cifar10LT_densenet40",
    "imagenet5k_efficientnet_lite0",
]


def example(n=500, m=8, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, m)) * 4
    p = np.exp(log_softmax(0.4 * z, axis=1))
    return z, (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)


def targets(cal, z, y):
    """Labels that have given a share to the classifier's own probabilities; of these one part in sixteen is milder."""
    share = cal.prior_rows / (len(y) + cal.prior_rows)
    mild = np.exp(log_softmax(z / 10, axis=1))
    unit = 1.5 * (z.max(axis=1) - z.mean(axis=1)).mean() / np.sqrt(2 * np.log(z.shape[1]))
    assert unit > 1  # logits that differ by less are another matter
    own = 15 / 16 * np.exp(log_softmax(z, axis=1)) + 1 / 16 * mild
    return (1 - share) * np.eye(z.shape[1])[y] + share * own


def violation(cal, z, y):
    """Optimality of the fitted weights and biases, from scratch in float64: no code of the package is used."""
    n, m = z.shape
    order = np.argsort(z, axis=1, kind="stable")
    target = np.take_along_axis(targets(cal, z, y), order, axis=1)
    u = np.take_along_axis(z, order, axis=1).astype(np.float64)
    u -= u[:, :1]
    f = u * cal.weights_ + cal.biases_
    residual = np.exp(log_softmax(f, axis=1)) - target

    def from_start(x):
        return np.cumsum(x[:, ::-1], axis=1)[:, ::-1]

    def slope(c):
        return ((np.exp(log_softmax(c * u, axis=1)) - target) * u).sum(axis=1).mean()

    p = np.exp(log_softmax(brentq(slope, 1e-3, 1e3, xtol=1e-12) * u, axis=1))
    errors = 1 + 30 / (1 - p[:, -1]).sum()
    strength = cal.shrinkage_ / n
    unit_w = np.sqrt(errors * (from_start(p * u**2) - from_start(p * u) ** 2).mean(axis=0))
    unit_b = np.sqrt(errors * (from_start(p) - from_start(p) ** 2).mean(axis=0).clip(0))
    g_w = from_start(residual * u).mean(axis=0) + strength * unit_w * (np.arange(m) > 0)
    g_b = (from_start(residual).mean(axis=0) + strength * unit_b)[1:]
    worst = 0.0
    for g, value in ((g_w, cal.weights_), (g_b, cal.biases_[0:])):
        step = np.diff(value, prepend=0.0) if g is g_w else np.diff(value)
        if g is g_w:
            step[0] -= 1e-6
        worst = max(worst, np.abs(g[step > 0]).max(initial=0), np.maximum(-g[step <= 0], 0).max(initial=0))
    return worst


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(("shrinkage", "prior_rows"), [(0, 0), (20, 0), (20, 8)])
def test_certified_on_real_logits(shared_logits, name, shrinkage, prior_rows):
    data = shared_logits(name)
    cal = mc.MCCT(shrinkage=shrinkage, prior_rows=prior_rows).fit(data.logits_val, data.y_val)
    solution = cal.solution_
    assert solution.converged
    assert solution.kkt <= 1e-6
    assert 0 <= solution.duality_gap < 2e-5
    # Tied logits need the mean of their ranks, which the check from scratch leaves out: only the few sets have any.
    if not (np.diff(np.sort(data.logits_val, axis=1), axis=1) == 0).any():
        assert violation(cal, data.logits_val.astype(np.float64), data.y_val) <= 1.01e-6
    assert (np.diff(cal.weights_) >= 0).all()
    assert (cal.weights_ > 0).all()
    assert (np.diff(cal.biases_) >= 0).all()
    assert np.abs(cal.biases_).max() < 50
    p = cal.predict_proba(data.logits_test)
    assert np.isfinite(metrics.nll(p, data.y_test))
    np.testing.assert_array_equal(p.argmax(axis=1), data.logits_test.argmax(axis=1))


@pytest.mark.parametrize(
    "name", ["nncal_cifar10_densenet40", "netcal_cifar10_lenet-5", "sctl_cifar10LT_densenet40"]
)
def test_never_above_slsqp_on_the_same_objective(shared_logits, name):
    data = shared_logits(name)
    z, y = data.logits_val[:2000].astype(np.float64), data.y_val[:2000]
    order, (n, m) = np.argsort(z, axis=1), z.shape
    u = np.take_along_axis(z, order, axis=1)
    u -= u[:, :1]
    at = np.arange(n), np.argmax(order == y[:, None], axis=1)

    def nll(theta):
        log_p = log_softmax(u * theta[:m] + theta[m:], axis=1)
        residual = np.exp(log_p)
        residual[at] -= 1.0
        return -log_p[at].mean(), np.concatenate([(residual * u).sum(axis=0), residual.sum(axis=0)]) / n

    rises = np.kron(np.eye(2), np.diff(np.eye(m), axis=0))
    theirs = minimize(
        nll,
        np.repeat([1.0, 0.0], m),
        jac=True,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda t: rises @ t, "jac": lambda t: rises},
        options={"ftol": 1e-12},
    )
    ours = mc.MCCT(shrinkage=0, prior_rows=0).fit(z, y).solution_.objective
    assert -1e-3 < ours - theirs.fun < 2e-6


def test_the_papers_figures(shared_logits):
    data = shared_logits("nncal_cifar10_densenet40")
    for cls in (mc.MCCT, mc.MCCTInverse):
        with pytest.warns(mc.OrderWarning, match="does not guarantee the order"):
            cal = cls.as_published().fit(data.logits_val, data.y_val)
        p = cal.predict_proba(data.logits_test)
        assert abs(100 * metrics.ece(p, data.y_test) - 1.06) < 0.01
        assert abs(100 * metrics.kde_ece(p, data.y_test) - 1.30) < 0.05
        assert abs(10 * metrics.eq_bin_ece(p, data.y_test) - 1.09) < 0.03


def test_the_published_procedure_breaks_the_order_on_log_probabilities(shared_logits):
    data = shared_logits("netcal_cifar10_lenet-5")
    with pytest.warns(mc.OrderWarning):
        cal = mc.MCCT.as_published().fit(data.logits_val, data.y_val)
    moved = (cal.predict(data.logits_test) != data.logits_test.argmax(axis=1)).mean()
    assert 0.05 < moved < 0.08  # 6.5 % of the predicted classes change


def test_one_optimum_two_reports():
    z, y = example()
    a, b = mc.MCCT().fit(z, y), mc.MCCTInverse().fit(z, y)
    np.testing.assert_array_equal(a.weights_, b.weights_)
    np.testing.assert_array_equal(b.weights_[b.rank_map_.starts], np.cumsum(b.rank_map_.scale_steps[0]))
    np.testing.assert_array_equal(b.inverse_weights_, 1 / b.weights_)
    assert (np.diff(b.inverse_weights_) <= 0).all()


def test_temperature_is_the_likelihoods_own():
    z, y = example()

    def nll(c):
        return -log_softmax(c * z, axis=1)[np.arange(len(y)), y].mean()

    best = minimize_scalar(nll, bounds=(0.01, 10), method="bounded", options={"xatol": 1e-10}).x
    assert abs(1 / mc.TemperatureScaling(prior_rows=0).fit(z, y).temperature_ - best) < 1e-5


def test_large_shrinkage_is_temperature_scaling():
    z, y = example(m=30)
    cal, ts = mc.MCCT(shrinkage=1e6).fit(z, y), mc.TemperatureScaling().fit(z, y)
    np.testing.assert_allclose(cal.weights_, 1 / ts.temperature_, rtol=1e-6)
    np.testing.assert_allclose(cal.biases_, 0, atol=1e-6)
    np.testing.assert_allclose(cal.predict_proba(z), ts.predict_proba(z), atol=1e-6)


@pytest.mark.filterwarnings("ignore::monocal.errors.OrderWarning")
@pytest.mark.parametrize("family", [mc.MCCT, mc.MCCTInverse, mc.ConditionalMCCT, mc.MCCT.as_published])
def test_top_k_counts_the_classes(family):
    z, y = example()
    if family in (mc.MCCT, mc.ConditionalMCCT):
        a, b = (family(top_k=k).fit(z, y) for k in (None, 8))
        np.testing.assert_array_equal(a.predict_proba(z), b.predict_proba(z))
        assert family(top_k=3).fit(z, y).rank_map_.starts.max() < 3
    with pytest.raises(mc.InputError, match="at most the number of classes, but is 9 where X has 8"):
        family(top_k=9).fit(z, y)


def published_reference(z, y, k, *, filter, inverse):
    """The authors' procedure written down once more, row by row: loss, gradient and constraints of their code."""
    order = np.argsort(z, axis=1)
    x = np.take_along_axis(z, order, axis=1)[:, -k:]
    truth = (order == y[:, None])[:, -k:].astype(float)
    if filter:
        x, truth = x[truth.any(axis=1)], truth[truth.any(axis=1)]

    def probabilities(theta):
        return softmax(x * (1 / theta[:k] if inverse else theta[:k]) + theta[k:], axis=1)

    def loss(theta):
        return -np.sum(truth * np.log(probabilities(theta))) / len(x)

    def gradient(theta):
        residual = probabilities(theta) - truth
        by_weight = (x * residual).sum(axis=0) / len(x)
        return np.append(-by_weight / theta[:k] ** 2 if inverse else by_weight, residual.sum(axis=0) / len(x))

    def increments(theta):
        return np.append(np.diff(theta[:k]) * (-1 if inverse else 1), np.diff(theta[k:]))

    result = minimize(
        loss,
        np.append(np.ones(k) if inverse else np.linspace(0, 1, k), np.zeros(k)),
        jac=gradient,
        method="SLSQP",
        bounds=[(1e-6, None)] * k + [(None, None)] * k,
        constraints={"type": "ineq", "fun": increments},
        options={"maxiter": 100, "ftol": 1e-12},
    ).x
    return 1 / result[:k] if inverse else result[:k], result[k:]


def honest(n=400, m=12, seed=0):
    """Logits and labels drawn from their softmax: one in thirty lies below the top six."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.standard_normal((n, m))
    return z, (rng.random((n, 1)) > np.cumsum(softmax(z, axis=1), axis=1)).sum(axis=1)


@pytest.mark.parametrize("family", [mc.MCCT, mc.MCCTInverse])
@pytest.mark.parametrize("filter", [False, True])
def test_published_top_k_follows_the_authors_filter(family, filter):
    z, y = honest()
    with pytest.warns(mc.OrderWarning):
        cal = family.as_published(top_k=6, filter=filter).fit(z, y)
    weights, biases = published_reference(z, y, 6, filter=filter, inverse=family is mc.MCCTInverse)
    np.testing.assert_allclose(cal.weights_, weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.diff(cal.biases_), np.diff(biases), atol=1e-4)


@pytest.mark.parametrize("cal", [mc.MCCT(tol=1e-10), mc.ConditionalMCCT(tol=1e-9)])
def test_weights_are_repetitions(cal):
    z, y = example(n=100)
    counts = np.random.default_rng(0).integers(0, 4, size=100)
    weighted = cal.fit(z, y, sample_weight=counts).predict_proba(z)
    repeated = cal.fit(np.repeat(z, counts, axis=0), np.repeat(y, counts)).predict_proba(z)
    np.testing.assert_allclose(weighted, repeated, atol=1e-7)


def test_cross_validated_shrinkage_is_deterministic_and_sane():
    z, y = example(n=300)
    cal = mc.MCCT(shrinkage="cv").fit(z, y)
    assert cal.shrinkage_ == mc.MCCT(shrinkage="cv").fit(z, y).shrinkage_
    fixed = mc.MCCT(shrinkage=cal.shrinkage_).fit(z, y)
    np.testing.assert_array_equal(cal.predict_proba(z), fixed.predict_proba(z))


@pytest.mark.parametrize(
    "cal",
    [
        mc.TemperatureScaling(),
        mc.MCCT(),
        mc.MCCT(shrinkage=0),
        mc.MCCT(shrinkage="cv"),
        mc.MCCT(top_k=2),
        mc.ConditionalMCCT(),
    ],
)
@pytest.mark.parametrize(
    ("z", "y"),
    [
        (np.array([[3.0, 1.0, -1.0]]), [0]),  # one sample, right
        (np.array([[3.0, 1.0, -1.0]]), [2]),  # one sample, as wrong as can be
        (np.zeros((4, 5)), [0, 1, 2, 3]),  # nothing to learn from
        (np.random.default_rng(0).normal(size=(20, 50)), np.full(20, 7)),  # one class present, n < m
        (np.random.default_rng(1).normal(size=(1, 1500)), [7]),  # a thousand atoms of one sample
        (np.array([[0.5], [0.1]]), [0, 0]),  # one class
        (np.array([[1e4, -1e4], [-1e4, 1e4], [1e4, -1e4]]), [0, 1, 1]),  # enormous logits
        (np.eye(6) * 8, np.arange(6)),  # every sample right
    ],
)
def test_small_and_odd_calibration_sets(cal, z, y):
    if (cal.top_k or 1) > z.shape[1]:
        cal = mc.MCCT(top_k=z.shape[1])
    cal.fit(z, y)
    assert cal.solution_.converged
    p = cal.predict_proba(z)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p > 0).all() or np.abs(z).max() >= 1e4
    assert all(
        np.isfinite(v).all() for k, v in vars(cal).items() if k in ("weights_", "biases_", "temperature_")
    )


def test_not_converging_warns():
    z, y = example(m=20)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        cal = mc.MCCT(max_iter=1, tol=1e-12).fit(z, y)
    assert not cal.solution_.converged
    assert "stopped" in cal.solution_.status


@pytest.mark.parametrize(
    "cal",
    [
        mc.MCCT(max_iter=1, tol=1e-12),
        mc.MCCT.as_published(),
        mc.VectorScaling(max_iter=1),
        mc.CalibratedClassifier(GaussianNB(), mc.MCCT(max_iter=1, tol=1e-12), cv=2),
    ],
    ids=repr,
)
def test_warnings_point_at_the_line_of_the_caller(cal):
    z, y = example(m=20)
    with pytest.warns((ConvergenceWarning, mc.OrderWarning)) as result:
        cal.fit(z, y)
    ours = [w for w in result if "MCCT" in str(w.message) or "Scaling" in str(w.message)]
    assert ours
    assert {w.filename for w in ours} == {__file__}


def softened(n=2000, m=20, seed=0):
    """Logits with true temperature 2."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, m)) * 3
    return z, (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1), rng


@pytest.mark.parametrize(
    "how",
    ["a fifth at -1e4", "one at -1e6", "one at -1e9", "a fifth at float32's lowest", "one row at 1e160"],
)
def test_enormous_values_among_the_logits(how):
    z, y, rng = softened()
    wild = z.copy()
    if how.startswith("a fifth"):
        hide = rng.random(z.shape) < 0.2
        hide[np.arange(len(y)), y] = False
        wild[hide] = -1e4 if "1e4" in how else np.finfo(np.float32).min
        reference = np.where(hide, -np.inf, z)
    elif how == "one row at 1e160":
        wild[0, :5] = [1e160, -1e160, -1e159, 0, 1]
        y[0] = 0
        reference = z
    else:
        wild[0, (y[0] + 1) % 20] = float(how.split()[-1])
        reference = z
    expected = mc.TemperatureScaling().fit(reference, y).temperature_
    assert abs(mc.TemperatureScaling().fit(wild, y).temperature_ / expected - 1) < 0.02
    with warnings.catch_warnings():
        # Ranks measured from a million below: the last digit of the certificate may be out of reach.
        warnings.simplefilter("ignore", ConvergenceWarning)
        cal = mc.MCCT().fit(wild, y)
    assert cal.solution_.kkt < 1e-5
    assert cal.solution_.objective < mc.MCCT().fit(reference, y).solution_.objective + 0.01


@pytest.mark.parametrize("size", [1e-7, 1e-3, 1e3])
def test_the_unit_of_the_logits_does_not_matter(size):
    z, y, _ = softened()
    expected = mc.TemperatureScaling(prior_rows=0).fit(z, y).temperature_
    temperature = mc.TemperatureScaling(prior_rows=0).fit(z * size, y).temperature_
    assert temperature / size == pytest.approx(expected, rel=1e-4)
    p = mc.MCCT().fit(z * size, y).predict_proba(np.array([[3e38, -3e38, *np.zeros(18)]]))
    assert np.isfinite(p).all()


def test_the_gap_is_a_bound_on_the_way():
    from monocal.calibrators.cone_calibrator import minimize
    from monocal.core.cone import RankCone
    from prepared import rows_of

    z, y, _ = softened(n=300, m=6)
    allowed = np.ones((2, 1, 6), dtype=bool)
    allowed[1, 0, 0] = False
    problem = RankCone(rows_of(z, y), allowed)
    best = minimize(problem)
    for steps in (1, 2, 3, 5):
        here = minimize(problem, max_iter=steps)
        assert here.objective - best.objective <= here.duality_gap + 1e-12


@pytest.mark.parametrize("kind", [mc.MCCT, mc.ConditionalMCCT])
def test_a_sample_says_what_need_not_be_exact(kind, monkeypatch):
    """Above half a million logits: another unit of the penalty by a few percent, and a map as good as with all rows."""
    z, y = example(9000, 60)
    half = slice(None, None, 2)
    sampled = kind().fit(z, y)
    monkeypatch.setattr(row_sums, "_ALL_BELOW", 2**22)
    every = kind().fit(z, y)
    assert sampled.solution_.converged
    assert every.solution_.converged
    assert sampled.score(z[half], y[half]) == pytest.approx(every.score(z[half], y[half]), abs=2e-4)
    assert sampled.solution_.objective != every.solution_.objective


def test_a_prediction_of_few_rows_of_very_many_classes_leaves_nothing_behind():
    rank_map, other = (RankMap(np.array([0, 5]), np.ones((1, 2)), np.zeros((1, 2))) for _ in range(2))
    z = np.random.default_rng(0).normal(size=(2, 2**20)).astype(np.float32)
    other.apply(z, "probabilities")  # compiled code stays
    with kept_below(2 * z.nbytes):  # what belongs to the map, by rank
        rank_map.apply(z, "probabilities")
