"""The largest logits and the log-sum-exp of all: the fit on the whole vocabulary where the tail is flat, and always in order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp, softmax

import monocal as mc

K, M = 12, 400


def flat_rows(n=3000, seed=0):
    """Rows whose logits below the twelve largest are all equal, with labels drawn from a cooler softmax."""
    rng = np.random.default_rng(seed)
    z = np.zeros((n, M))
    z[:, :K] = 1.5 + 4 * rng.random((n, K))
    z = rng.permuted(z, axis=1)
    p = softmax(0.6 * z, axis=1)
    labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return z, np.minimum(labels, M - 1)


def largest(z, k=K, **rest):
    ids = np.argsort(-z, axis=1)[:, :k]
    return mc.TopK(np.take_along_axis(z, ids, axis=1), ids, logsumexp(z, axis=1), **rest)


@pytest.mark.parametrize(
    "calibrator",
    [
        mc.TemperatureScaling(),
        mc.MCCT(top_k=K, shrinkage=0.0),
        mc.ConditionalMCCT(top_k=5, statistics=("margin", "log_odds"), by_class=False, shrinkage=1.0),
    ],
    ids=repr,
)
def test_a_flat_tail_gives_the_fit_on_all_logits(calibrator):
    z, y = flat_rows()
    whole = type(calibrator)(**calibrator.get_params()).fit(z, y)
    top = largest(z, n_classes=M)
    calibrator.fit(top, y)
    np.testing.assert_allclose(
        calibrator.solution_.coefficients,
        whole.solution_.coefficients[: len(calibrator.solution_.coefficients)],
        atol=1e-5,
    )
    assert calibrator.solution_.objective == pytest.approx(whole.solution_.objective, abs=1e-8)
    expected = whole.predict_proba(z)
    for cal in (calibrator, whole):  # a map fitted on all logits calibrates the largest as well
        got = cal.predict_proba(top)
        np.testing.assert_allclose(
            got.probabilities, np.take_along_axis(expected, top.ids, axis=1), atol=1e-6
        )
        np.testing.assert_allclose(got.probabilities.sum(axis=1) + got.rest, 1.0, atol=1e-12)
        np.testing.assert_array_equal(cal.predict(top), z.argmax(axis=1))
    if calibrator.top_k is not None:
        np.testing.assert_allclose(calibrator.predict_proba(z), expected, atol=1e-6)


def test_the_fit_is_the_minimum_of_the_likelihood_it_states():
    """Temperature by a plain search over the stated formula, with rows of different length."""
    rng = np.random.default_rng(2)
    z, y = flat_rows(400, seed=3)
    top = largest(z)
    values = np.where(np.arange(K) < rng.integers(2, K + 1, (400, 1)), top.values, -np.inf)
    top = mc.TopK(values, top.ids, top.logsumexp)
    cal = mc.TemperatureScaling(tol=1e-9, prior_rows=0).fit(top, y)

    def nll(scale):
        parts = np.concatenate(
            [scale * values, (scale * top.rest_value + np.log(top.rest_count))[:, None]], axis=1
        )
        column = top.label_column(y)
        all_values = np.concatenate([values, top.rest_value[:, None]], axis=1)
        label = scale * np.take_along_axis(all_values, column[:, None], axis=1)[:, 0]
        return float(np.mean(logsumexp(parts, axis=1) - label))

    best = minimize_scalar(nll, bounds=(0.001, 5), method="bounded", options={"xatol": 1e-10})
    assert 1 / cal.temperature_ == pytest.approx(best.x, abs=1e-5)
    # The mass of the rest is kept where nothing is changed.
    mass = top.rest_count * np.exp(top.rest_value)
    np.testing.assert_allclose(mass + np.exp(values).sum(axis=1), np.exp(top.logsumexp), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:logsumexp")  # some totals are more than 50 classes can hold
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_order_is_kept_and_the_rest_stays_below(data):
    k = data.draw(st.integers(1, 6))
    n = data.draw(st.integers(1, 8))
    seed = data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    scale = data.draw(st.sampled_from([1e-3, 1.0, 30.0, 1e6]))
    z = np.round(scale * rng.standard_normal((n, k)), 1)
    z[rng.random((n, k)) < 0.2] = -np.inf
    z[:, 0] = np.where(np.isinf(z[:, 0]), 0.0, z[:, 0])
    total = logsumexp(z, axis=1) + data.draw(st.sampled_from([0.0, 1e-3, 1.0, 5.0]))
    n_classes = data.draw(st.sampled_from([None, 50, 10**6]))
    ids = np.array([rng.permutation(50)[:k] for _ in range(n)])
    top = mc.TopK(z, ids, total, n_classes)
    y = rng.integers(0, 50, n)
    plain = data.draw(st.booleans())
    strength = data.draw(st.sampled_from([0.0 if plain else 0.1, 1.0]))
    cal = (mc.MCCT if plain else mc.ConditionalMCCT)(shrinkage=strength, tol=1e-3).fit(top, y)
    got = cal.predict_proba(top)
    p = got.probabilities
    assert np.isfinite(p).all()
    assert (p[np.isinf(z)] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1) + got.rest, 1.0, atol=1e-9)
    lower = z[:, :, None] <= z[:, None, :]
    assert (p[:, :, None] <= p[:, None, :])[lower].all()
    lowest = np.where(np.isfinite(z), p, np.inf).min(axis=1)
    assert (got.each <= lowest).all()
    np.testing.assert_array_equal(p.argmax(axis=1), z.argmax(axis=1))
    again = cal.transform(top)
    np.testing.assert_allclose(np.exp(again.values - again.logsumexp[:, None]), p, atol=1e-9)


def test_a_different_number_of_named_classes_is_refused_by_ranks_but_not_by_a_temperature():
    z, y = flat_rows(300)
    cal = mc.MCCT(shrinkage=0.0).fit(largest(z, 8), y)
    with pytest.raises(mc.InputError, match="X names 5 classes a row, but MCCT was fitted for the 8 largest"):
        cal.predict_proba(largest(z, 5))
    with pytest.raises(ValueError, match="8 features"):
        cal.predict_proba(z)
    mc.TemperatureScaling().fit(z, y).predict_proba(largest(z, 5))


LABELS_OF_TOP = flat_rows(20)[1]
TOP = largest(flat_rows(20)[0])
VALUES, IDS, TOTAL = TOP.values, TOP.ids, TOP.logsumexp


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (
            lambda: mc.TopK(VALUES[:, :2], np.zeros((20, 2), dtype=int), 100.0),
            "ids: row 0 names a class twice",
        ),
        (lambda: mc.TopK(VALUES[:, :2], np.zeros((20, 3)), 100.0), "ids must be whole numbers"),
        (lambda: mc.TopK(VALUES, IDS, 0.0), "logsumexp: in row 0"),
        (lambda: mc.TopK(VALUES, IDS, [100.0, 100.0]), "logsumexp must be one number or one per row"),
        (lambda: mc.TopK([[0.0], [np.nan]], [[1], [2]]), "values contains NaN: first in row 1"),
        (lambda: mc.TopK([[-9999.0]], [[3]]), "-inf for every class: first in row 0"),
        (lambda: mc.TopK(VALUES, IDS, TOTAL, 100), "below n_classes=100"),
        (lambda: mc.TopK(VALUES, IDS, TOTAL, 5), "n_classes is 5"),
        (lambda: mc.TopK(VALUES, IDS, TOTAL, 2.5), "n_classes must be a whole number"),
        (lambda: mc.MCCT(top_k=K + 1).fit(TOP, LABELS_OF_TOP), "top_k must be at most the number of classes"),
        (
            lambda: mc.MCCT().fit(mc.TopK(np.log([[0.4, 0.6]] * 2), [[0, 1]] * 2, n_classes=2), [0, 5]),
            "label 5 in row 1",
        ),
        (lambda: mc.VectorScaling().fit(TOP, LABELS_OF_TOP), "needs all logits"),
        (lambda: mc.ConditionalMCCT(by_class=True).fit(TOP, LABELS_OF_TOP), "by_class=True needs all logits"),
        (
            lambda: mc.ConditionalMCCT(by_class=False, top_k=K).fit(*flat_rows(300)).predict_proba(TOP),
            "with statistics that the largest 12 alone do not tell",
        ),
        (lambda: mc.MCCT(input="probabilities").fit(TOP, LABELS_OF_TOP), "use input='logits'"),
        (lambda: mc.MCCT().fit(TOP), "y is None"),
        (lambda: mc.MCCT().fit(TOP, LABELS_OF_TOP[1:]), "19 labels"),
    ],
)
def test_wrong_input_says_what(use, words):
    with pytest.raises(mc.InputError, match=words):
        use()


def test_a_total_that_the_classes_cannot_hold_warns():
    logs = np.log([[0.05, 0.01], [0.6, 0.38]])
    with pytest.warns(
        UserWarning, match=r"in row 0 the named classes and 1 others.* 7\.0% of the total .*\(1 such rows"
    ):
        mc.TopK(logs, [[0, 1], [0, 1]], n_classes=3)
    for n_classes in (None, 97, 1000):
        mc.TopK(logs, [[0, 1], [0, 1]], n_classes=n_classes)  # 94 classes of 1 % each, and more


def zipf_rows(n, m, seed, exponent=1.1):
    """Logits of a language model: a few likely tokens and a tail that falls like a power of the rank; cooler labels."""
    rng = np.random.default_rng(seed)
    z = -exponent * np.log(np.arange(1, m + 1)) + 0.7 * rng.standard_normal((n, m))
    z[:, :8] += 3 * rng.random((n, 8))
    p = softmax(z / 1.4, axis=1)
    labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    order = rng.permutation(m)
    return z[:, np.argsort(order)], order[np.minimum(labels, m - 1)]


def test_a_sentinel_is_no_value():
    """OpenAI's servers write -9999.0 for "very unlikely"."""
    z, y = flat_rows(600, seed=5)
    top = largest(log_softmax(z, axis=1), n_classes=M)
    marked = top.values.copy()
    marked[::3, 7:] = -9999.0
    masked = np.where(marked == -9999.0, -np.inf, marked)
    a = mc.TemperatureScaling().fit(mc.TopK(marked, top.ids, n_classes=M), y)
    b = mc.TemperatureScaling().fit(mc.TopK(masked, top.ids, n_classes=M), y)
    whole = mc.TemperatureScaling().fit(z, y)
    assert a.temperature_ == b.temperature_
    assert a.temperature_ == pytest.approx(whole.temperature_, rel=0.1)
    p = a.predict_proba(mc.TopK(marked, top.ids, n_classes=M))
    assert (p.probabilities[marked == -9999.0] == 0).all()


@pytest.mark.parametrize("n_classes", [None, 3000])
def test_the_actual_token_below_the_largest_is_one_of_the_rest(n_classes):
    """vLLM's prompt_logprobs: the k largest and, where it is not among them, the actual token."""
    z, y = zipf_rows(500, 3000, seed=1)
    z = log_softmax(z, axis=1)
    z[np.arange(0, 500, 5), y[::5]] -= 12.0  # some actual tokens were held for next to impossible
    z = log_softmax(z, axis=1)
    top = largest(z, 20, n_classes=n_classes)
    actual = np.take_along_axis(z, y[:, None], axis=1)
    extra = ~(top.ids == y[:, None]).any(axis=1, keepdims=True)
    values = np.concatenate([top.values, np.where(extra, actual, -np.inf)], axis=1)
    ids = np.concatenate([top.ids, y[:, None]], axis=1)
    with pytest.warns(UserWarning, match="left out with k="):
        mc.TopK(values, ids, n_classes=n_classes)
    assert extra.sum() > 50
    cut = mc.TopK(values, ids, n_classes=n_classes, k=20)
    np.testing.assert_array_equal(cut.values, top.values)
    np.testing.assert_array_equal(cut.ids, top.ids)
    for cal in (mc.TemperatureScaling(), mc.MCCT()):
        expected = cal.fit(top, y).predict_proba(top)
        got = cal.fit(cut, y).predict_proba(cut)
        np.testing.assert_allclose(got.probabilities, expected.probabilities, atol=1e-12)


def test_a_heavy_tail_biases_towards_a_lower_temperature_and_little():
    """What docs/large.md says of the bias: its direction, and that more named classes make it smaller."""
    z, y = zipf_rows(4000, 2000, seed=2)
    whole = mc.TemperatureScaling().fit(z, y).temperature_
    assert whole == pytest.approx(1.4, abs=0.05)
    result = [
        mc.TemperatureScaling().fit(largest(z, k, n_classes=2000), y).temperature_ for k in (5, 20, 100)
    ]
    assert result[0] < result[1] < result[2] < whole
    assert whole - result[1] < 0.15 * whole


@pytest.mark.parametrize("statistics", [("margin", "mean_gap", "spread"), ("entropy", "log_odds")], ids=repr)
def test_statistics_see_the_rest(statistics, tmp_path):
    """What a row's map depends on is the same from the largest logits and a flat rest as from all logits."""
    z, y = flat_rows(1500)
    top = largest(z, n_classes=M)
    whole = mc.ConditionalMCCT(statistics=statistics, top_k=K, by_class=False, shrinkage=2.0).fit(z, y)
    cal = mc.ConditionalMCCT(statistics=statistics, top_k=K, shrinkage=2.0).fit(top, y)
    assert len(cal.factors_.ramps) > 0
    assert np.count_nonzero(cal.coefficients_[:, 1:]) > 0
    assert cal.by_class_ == "left out: rows name their largest logits alone"
    assert cal.by_class == "auto"
    assert cal.solution_.objective == pytest.approx(whole.solution_.objective, abs=1e-8)
    expected = np.take_along_axis(whole.predict_proba(z), top.ids, axis=1)
    got = cal.predict_proba(top)
    np.testing.assert_allclose(got.probabilities, expected, atol=1e-6)
    assert cal.score(top, y) == pytest.approx(whole.score(z, y), abs=1e-6)
    np.testing.assert_array_equal(cal.predict_proba(top[3]).probabilities[0], got.probabilities[3])
    cal.save(tmp_path / "cal.json")
    again = mc.load(tmp_path / "cal.json").predict_proba(top)
    np.testing.assert_array_equal(again.probabilities, got.probabilities)


def test_metrics_are_those_of_all_probabilities_where_the_tail_is_flat():
    rng = np.random.default_rng(3)
    z = np.full((300, 40), -2.0)
    z[:, :6] = 3 * rng.random((300, 6))
    z = rng.permuted(z, axis=1)
    y = np.array([rng.choice(40, p=p) for p in softmax(0.6 * z, axis=1)])
    top = largest(z, 6, n_classes=40)
    weight = rng.integers(0, 3, 300)
    for cal in (None, mc.TemperatureScaling().fit(z, y), mc.MCCT(top_k=6).fit(z, y)):
        whole = softmax(z, axis=1) if cal is None else cal.predict_proba(z)
        named = top if cal is None else cal.predict_proba(top)
        got = mc.evaluate(named, y, n_boot=20, sample_weight=weight)
        expected = mc.evaluate(whole, y, n_boot=20, sample_weight=weight)
        assert {"nll", "brier", "ece", "accuracy", "top_k_accuracy", "smooth_ece"} <= set(got.estimates)
        assert "classwise_ece" not in got.estimates
        assert (got.n_samples, got.n_classes) == (expected.n_samples, 40)
        for name, estimate in got.estimates.items():
            for end in ("value", "low", "high"):
                a, b = getattr(estimate, end), getattr(expected[name], end)
                assert a is b is None or a == pytest.approx(b, abs=1e-6), name
        if cal is not None:
            assert cal.score(top, y, weight) == pytest.approx(cal.score(z, y, weight), abs=1e-6)
            assert mc.metrics.nll(named, y) == pytest.approx(-cal.score(top, y), abs=1e-9)
    with pytest.raises(mc.InputError, match="classwise_ece"):
        mc.metrics.classwise_ece(top, y)
    with pytest.raises(mc.InputError, match="the rows name 6 classes"):
        mc.metrics.top_k_accuracy(top, y, k=7)
    assert "top_k_accuracy" not in mc.evaluate(top, y, top_k=7).estimates
