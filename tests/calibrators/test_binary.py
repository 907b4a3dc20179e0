"""`BinaryMCCT`: certified fits, order of rows, inputs of all kinds, edge cases."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize as scipy_minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import log_loss, roc_auc_score

import monocal as mc
from monocal import persistence
from monocal.calibrators.binary_cone import LogisticCone
from monocal.solver import minimize


def rows(n=1500, seed=0, offset=-2.0, bend=1.5):
    """Scores, and labels whose log-odds bend where the score passes 1."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n) * 1.5
    return s, (rng.random(n) < expit(offset + s + bend * np.maximum(s - 1.0, 0.0))).astype(int)


S, Y = rows()
NEW, NEW_Y = rows(20_000, 1)
TRUTH = expit(-2.0 + NEW + 1.5 * np.maximum(NEW - 1.0, 0.0))
INPUTS = {"scores": (S * 30 + 7, NEW * 30 + 7), "logits": (S, NEW), "probabilities": (expit(S), expit(NEW))}


@pytest.fixture(scope="module", params=INPUTS, ids=str)
def fitted(request):
    return mc.BinaryMCCT(input=request.param).fit(INPUTS[request.param][0], Y)


def fit(s, y, **rest):
    return mc.BinaryMCCT(input="scores").fit(s, y, **rest)


def nll(p, y):
    return log_loss(y, np.asarray(p, dtype=np.float64))


def two_columns(v, name):
    return np.stack([1 - v if name == "probabilities" else 0 * v, v], axis=1)


# The fit.


def test_it_is_certified_and_calibrated_where_the_threshold_is_off_and_the_line_bends(fitted):
    assert fitted.solution_.converged
    assert fitted.solution_.kkt < 1e-6
    assert 0 <= fitted.solution_.duality_gap < 1e-5
    s, new = INPUTS[fitted.input]
    p = fitted.predict_proba(new)
    assert nll(p, NEW_Y) < nll(TRUTH, NEW_Y) + 0.004
    assert nll(p, NEW_Y) < nll(mc.PlattScaling(input=fitted.input).fit(s, Y).predict_proba(new), NEW_Y)
    assert abs(p.mean() - NEW_Y.mean()) < 0.02
    assert roc_auc_score(NEW_Y, fitted.transform(new)) == pytest.approx(roc_auc_score(NEW_Y, new), abs=1e-12)


def test_the_penalised_likelihood_cannot_be_lowered():
    """The certificate against an independent optimiser of the same problem."""
    rng = np.random.default_rng(0)
    design = np.column_stack([np.ones(200), rng.normal(size=(200, 3))])
    t, w = rng.random(200), rng.random(200)
    w /= w.sum()
    lower = np.array([-np.inf, 0.01, 0.0, -np.inf])
    penalty, ridge = np.array([0.0, 0.0, 0.02, 0.0]), np.array([0.0, 0.0, 0.0, 0.05])
    offset = rng.normal(size=200)
    problem = LogisticCone(design, t, w, lower, penalty, ridge, offset=offset)
    solution = minimize(problem, tol=1e-10)

    def value(c):
        f = offset + design @ c
        return w @ (np.logaddexp(0, f) - t * f) + penalty @ c + 0.5 * ridge @ c**2

    bounds = [(None if np.isinf(low) else low, None) for low in lower]
    tight = {"ftol": 1e-15, "gtol": 1e-10}
    other = scipy_minimize(value, np.maximum(lower, 0.0), bounds=bounds, method="L-BFGS-B", options=tight)
    assert solution.objective <= other.fun + 1e-12
    np.testing.assert_allclose(solution.coefficients, other.x, atol=1e-4)
    assert 0 <= solution.duality_gap < 1e-9
    worse = solution.coefficients + np.array([0.1, 0.05, 0.0, 0.0])
    assert problem.excess(worse, problem.evaluate(worse, np.arange(4))) >= value(worse) - solution.objective


def test_weights_count_as_rows():
    w = np.random.default_rng(3).integers(0, 3, len(S))
    a, b = fit(S, Y, sample_weight=w.astype(float)), fit(np.repeat(S, w), np.repeat(Y, w))
    np.testing.assert_allclose(a.predict_proba(NEW), b.predict_proba(NEW), atol=1e-6)


def test_an_old_calibrator_holds_the_new_one_back():
    old = fit(S, Y)
    s, y = rows(60, 5, offset=2.0)
    starts = ({"start": old, "start_rows": 1e5}, {"start": old, "start_rows": 1e-3}, {})
    before, near, far, alone = (
        cal.predict_proba(NEW) for cal in (old, *(fit(s, y, **start) for start in starts))
    )
    assert abs(near - before).mean() < 0.01 < abs(alone - before).mean()
    assert abs(far - alone).mean() < 0.01


# The order of the rows.


HOSTILE = np.unique(
    np.concatenate(
        [
            [0.0, 5e-324, 1e-310, 1e-30, 1e300, 1.7e308, 1e16, 37.0, 745.0, 800.0],
            np.spacing(1.0) * np.arange(50) + 0.3,
            np.spacing(2.0) * np.arange(50) + 1.7,
            np.linspace(0, 6, 300),
            np.geomspace(1e-20, 1e20, 200),
        ]
    )
)


def hostile(name):
    """Sorted scores of this input: extremes, neighbours, ties and ordinary ones."""
    ends = [[0, 5e-324], np.geomspace(1e-320, 1, 300), 1 - np.arange(60) * 2.0**-53, HOSTILE[HOSTILE <= 1]]
    near = np.concatenate(ends)
    return np.unique(np.append(near, 1 - near) if name == "probabilities" else np.append(-HOSTILE, HOSTILE))


def assert_ranked(cal, scores):
    for result in (cal.transform(scores), cal.predict_proba(scores)):
        assert result.dtype == scores.dtype
        assert np.isfinite(np.asarray(result.tolist())).all()
        assert (np.diff(np.asarray(result.tolist())) >= 0).all()
    alone = [cal.transform(scores[i : i + 1])[0].item() for i in range(0, len(scores), 20)]
    assert cal.transform(scores).tolist()[::20] == alone


def test_rows_are_never_reversed(fitted):
    torch = pytest.importorskip("torch")
    scores = hostile(fitted.input)
    if fitted.input != "probabilities":
        scores = np.sort(np.append(scores, fitted.maps_[0].knots))
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        x = torch.tensor(scores).to(getattr(torch, dtype))
        x = x[torch.isfinite(x)]
        assert_ranked(fitted, x)
        if dtype != "bfloat16":
            assert_ranked(fitted, x.numpy())


def run_graph(cal, X, context=None, **options):
    """The result of the calibrator as an ONNX graph, which onnx's own checker takes."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    model = cal.to_onnx(dtype=X.dtype.name, ndim=X.ndim, **options)
    onnx.checker.check_model(model, full_check=True)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].name == cal.input
    rest = {} if context is None else {"context": cal.context_.codes(context).astype(np.float64)}
    return session.run(None, {cal.input: X} | rest)[0]


@pytest.mark.parametrize("name", INPUTS)
def test_one_score_per_row_after_a_fit_on_two_columns(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("ndonnx")
    scores = INPUTS[name][0]
    cal = mc.BinaryMCCT(input=name).fit(two_columns(scores, name), Y)
    module = cal.to_torch(dtype=torch.float64)
    for n in (2, len(S)):  # two scores are not one row of two columns
        x, p, f = scores[:n], cal.predict_proba(scores[:n]), cal.transform(scores[:n])
        np.testing.assert_allclose(module(torch.tensor(x)), p, rtol=1e-13)
        np.testing.assert_allclose(module.transform(torch.tensor(x)), f, rtol=1e-13)
        np.testing.assert_allclose(module.log_probabilities(torch.tensor(x)), np.log(p), rtol=1e-13)
        np.testing.assert_allclose(run_graph(cal, x), p, rtol=1e-12)
    np.testing.assert_allclose(run_graph(cal, x, output="logits"), f, rtol=1e-12)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("wide", [False, True])
def test_modules_and_graphs_never_reverse_rows(name, wide):
    torch = pytest.importorskip("torch")
    pytest.importorskip("ndonnx")
    train, scores = (two_columns(v, name) if wide else v for v in (INPUTS[name][0], hostile(name)))
    cal = mc.BinaryMCCT(input=name).fit(train, Y)
    module = cal.to_torch(dtype=torch.float64)
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        x = torch.tensor(scores).to(getattr(torch, dtype))
        x = x[torch.isfinite(x.reshape(len(x), -1)).all(1)]
        results = [module.transform(x), module(x)]
        if dtype in ("float64", "float32"):
            results += [
                torch.tensor(run_graph(cal, x.numpy(), output=o)) for o in ("logits", "probabilities")
            ]
        for result in results:
            assert result.dtype == x.dtype
            assert (result.reshape(len(x), -1)[:, -1].double().diff() >= 0).all()


def case(form, name):
    """A fitted calibrator, rows and the keywords of their context, for one form of the rows."""
    rng, context = np.random.default_rng(0), {}
    other = S + rng.normal(size=len(S))
    three = np.stack([S, other, other - S], axis=1)
    X = {"column": S[:, None], "several": three, "labels": three}.get(form, S)
    X = np.round(expit(X) if name == "probabilities" else X, 3)  # ties, exact 0 and 1
    X = two_columns(X, name) if form == "classes" else X
    cal, y = mc.BinaryMCCT(input=name, columns="scores" if form == "several" else "classes"), Y
    if form == "context":
        group, time = rng.integers(0, 4, len(S)), 1e9 + 1e3 * rng.normal(size=len(S))
        y = (rng.random(len(S)) < expit(S * (0.2 + group) - group + (time - 1e9) / 1e3)).astype(int)
        context = {"context": pd.DataFrame({"site": group.astype(str), "time": time})}
    if form == "labels":
        cal, y = mc.MultilabelMCCT(input=name), np.stack([Y, other > 1, other > S], axis=1).astype(int)
    cal.fit(X, y, **context)
    if context:
        assert len(cal.effects_[0].slopes) == 4
        context["context"].iloc[0, 1], context["context"].iloc[1, 0] = np.nan, "9"
    return cal, X, context


@pytest.mark.filterwarnings("ignore::monocal.CalibrationWarning")  # of the site that the fit has not met
@pytest.mark.parametrize("form", ["vector", "column", "classes", "several", "labels", "context"])
@pytest.mark.parametrize("name", INPUTS)
def test_modules_and_graphs_give_the_same(form, name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("ndonnx")
    from monocal.export import from_state_dict

    cal, X, context = case(form, name)
    codes = (torch.tensor(cal.context_.codes(context["context"])),) if context else ()
    module = cal.to_torch(dtype=torch.float64)
    p, f = cal.predict_proba(X, **context), cal.transform(X, **context)
    for result, values in ((module, p), (module.transform, f)):
        np.testing.assert_allclose(result(torch.tensor(X), *codes), values, rtol=1e-13, atol=1e-15)
    again = from_state_dict(module.state_dict())
    assert torch.equal(again(torch.tensor(X), *codes), module(torch.tensor(X), *codes))
    x = torch.tensor(0.99 * X + 0.0037, requires_grad=True)  # not at the knots
    logs = module.log_probabilities(x, *codes)
    np.testing.assert_allclose(logs.exp().detach(), module(x, *codes).detach(), rtol=1e-9)
    logs.reshape(len(X), -1)[:, -1].sum().backward()
    assert (x.grad.reshape(len(X), -1)[:, -1] > 0).all()
    single = X.astype(np.float32)
    for rows_, value, output, rtol in (
        (X, p, "probabilities", 1e-12),
        (X, f, "logits", 1e-12),
        (single, cal.predict_proba(single, **context), "probabilities", 1e-6),
    ):
        result = run_graph(cal, rows_, output=output, **context)
        assert result.dtype == value.dtype
        np.testing.assert_allclose(result, value, rtol=rtol, atol=1e-13)


@settings(max_examples=50, deadline=None, database=None, derandomize=True)
@given(arrays(np.float64, 30, elements=st.floats(-1.7e308, 1.7e308)), st.sampled_from(["logits", "scores"]))
def test_any_finite_scores_keep_their_order(scores, name):
    cal = mc.BinaryMCCT(input=name).fit(INPUTS[name][0], Y)
    scores = np.sort(np.concatenate([scores, np.nextafter(scores, np.inf), cal.maps_[0].knots]))
    scores = scores[np.isfinite(scores)]
    assert (np.diff(cal.transform(scores)) >= 0).all()
    assert (np.diff(cal.predict_proba(scores)) >= 0).all()


def test_many_rows_are_each_as_among_few():
    cal = fit(S, Y)
    knots = cal.maps_[0].knots
    many = np.concatenate([NEW, np.tile(knots, 3), np.nextafter(knots, -np.inf), [1e308, -1e308]])
    few = [cal.transform(part) for part in np.array_split(many, 10)]
    np.testing.assert_array_equal(cal.transform(many), np.concatenate(few))
    assert (np.diff(cal.transform(np.sort(many))) >= 0).all()


def test_tiny_probabilities_and_neighbouring_knots_keep_their_ranks():
    near_one = 1 - 2.0 ** -np.arange(30, 53.0)
    p = [0.0, *np.geomspace(1e-300, 1e-9, 200), *np.linspace(1e-6, 1 - 1e-6, 100), *near_one, 1.0]
    cal = mc.BinaryMCCT(input="probabilities").fit(expit(S), Y)
    assert (np.diff(cal.transform(p)) > 0).all()
    s = np.concatenate([np.full(500, 1.0), 1.0 + np.spacing(1.0) * np.arange(300), np.linspace(1, 2, 200)])
    y = (np.random.default_rng(0).random(1000) < np.linspace(0.2, 0.8, 1000)).astype(int)
    assert_ranked(fit(s, y), np.sort(s))


# Shapes, kinds and labels.


def test_shapes(fitted):
    z = INPUTS[fitted.input][0]
    p, f = fitted.predict_proba(z[:9]), fitted.transform(z[:9])
    assert p.shape == f.shape == (9,)
    np.testing.assert_allclose(expit(f), p, rtol=1e-12)
    column = clone(fitted).fit(z[:, None], Y)
    both = column.predict_proba(z[:9, None])
    np.testing.assert_array_equal(both[:, 1], p)
    np.testing.assert_allclose(both.sum(axis=1), 1, rtol=1e-15)
    assert column.transform(z[:9, None]).shape == (9, 1)
    wide = two_columns(z, fitted.input)
    two = clone(fitted).fit(wide, Y)
    np.testing.assert_allclose(two.predict_proba(wide[:9]), both, atol=1e-12)
    logits = two.transform(wide[:9])
    np.testing.assert_allclose(expit(logits[:, 1] - logits[:, 0]), p, atol=1e-12)
    assert two.predict_proba(wide[:9].tolist()).shape == (9, 2)
    with pytest.raises(mc.InputError, match="expecting 2 features"):
        two.predict_proba(z[:9, None])


@pytest.mark.parametrize("labels", [(0, 1), (-1, 1), (False, True), ("ham", "spam"), (2.0, 7.0)], ids=str)
def test_labels_of_any_two_values(labels, tmp_path):
    y = np.array(labels)[Y]
    cal = mc.BinaryMCCT().fit(S, y)
    p = cal.predict_proba(NEW)
    assert cal.classes_.tolist() == list(labels)
    np.testing.assert_array_equal(p, mc.BinaryMCCT().fit(S, Y).predict_proba(NEW))
    np.testing.assert_array_equal(cal.predict(NEW), np.array(labels)[(p > 0.5).astype(int)])
    assert cal.score(S, y) == pytest.approx(-nll(cal.predict_proba(S), Y))
    again = mc.load(cal.save(tmp_path / "cal.json"))
    np.testing.assert_array_equal(again.predict(NEW), cal.predict(NEW))
    np.testing.assert_array_equal(again.predict_proba(NEW), p)


def test_kinds_come_back_as_they_came():
    jax, torch = pytest.importorskip("jax.numpy"), pytest.importorskip("torch")
    cal = mc.BinaryMCCT().fit(S, Y)
    expected = cal.predict_proba(S[:5])
    series = cal.predict_proba(pd.Series(S[:5], index=list("abcde")))
    assert list(series.index) == list("abcde")
    np.testing.assert_array_equal(series, expected)
    assert isinstance(cal.predict_proba(pl.Series(S[:5])), pl.Series)
    assert isinstance(cal.predict_proba(jax.asarray(S[:5])), type(jax.asarray(S[:5])))
    np.testing.assert_array_equal(cal.predict_proba(torch.tensor(S[:5])).numpy(), expected)
    frame = pd.DataFrame({"margin": S})
    out = mc.BinaryMCCT().fit(frame, Y).predict_proba(frame[:3])
    assert list(out.columns) == ["0", "1"]
    np.testing.assert_array_equal(out["1"], expected[:3])
    for y in (torch.tensor(Y), pd.Series(Y), pl.Series(Y), Y.tolist()):
        np.testing.assert_array_equal(mc.BinaryMCCT().fit(S, y).predict_proba(S[:5]), expected)


@pytest.mark.parametrize("n", [3000, 60_000])
def test_blocks_files_and_dask_give_the_fit_in_memory(n, tmp_path):
    da = pytest.importorskip("dask.array")
    s, y = rows(n, 2)
    whole = fit(s, y)
    expected = whole.predict_proba(NEW)
    cuts = np.array_split(np.argsort(s), 7)  # the worst order: each block has scores of its own
    np.save(tmp_path / "s.npy", s)
    for X, labels in (
        (lambda: ((s[i], y[i]) for i in cuts), None),
        ([(s[i], y[i], np.ones(len(i))) for i in cuts], None),
        (np.load(tmp_path / "s.npy", mmap_mode="r"), y),
        (da.from_array(s, chunks=n // 5), da.from_array(y, chunks=n // 4)),
    ):
        p = fit(X, labels).predict_proba(NEW)
        np.testing.assert_allclose(p, expected, atol=1e-6 if n == 3000 else 3e-3)
    blocks = whole.predict_blocks([NEW[:100], NEW[100:]])
    np.testing.assert_array_equal(np.concatenate(list(blocks)), expected)
    np.testing.assert_array_equal(whole.predict_proba(da.from_array(NEW, chunks=4000)).compute(), expected)
    wide = mc.BinaryMCCT().fit(da.from_array(two_columns(s, "logits"), chunks=(n // 3, 2)), y)
    two = wide.predict_proba(da.from_array(two_columns(NEW, "logits"))).compute()
    assert two.shape == (len(NEW), 2)


@pytest.mark.parametrize("scale", [lambda s: s, lambda s: np.exp(5 * s)], ids=["even", "heavy tails"])
def test_cells_stand_for_rows(scale):
    s, y = rows(200_000, 3)
    assert np.abs(fit(scale(s), y).predict_proba(scale(NEW)) - TRUTH).mean() < 0.004


# What is hard.


def test_few_distinct_values_and_few_positives():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 11, 3000)
    truth = np.array([0.02, 0.05, 0.05, 0.3, 0.31, 0.32, 0.4, 0.6, 0.61, 0.9, 0.95])
    cal = mc.BinaryMCCT(input="probabilities").fit(level / 10, rng.random(3000) < truth[level])
    assert np.abs(cal.predict_proba(np.arange(11) / 10) - truth).max() < 0.06
    s = rng.normal(size=5000)
    y = np.zeros(5000, dtype=int)
    y[np.argsort(s)[[-1, -20, -600]]] = 1
    p = fit(s, y).predict_proba(s)
    assert 2 < p.sum() < 5
    assert p.max() < 0.5


def test_twenty_rows_and_two():
    assert nll(mc.BinaryMCCT().fit(*rows(20, 4, offset=0.0)).predict_proba(NEW), NEW_Y) < 1.0
    assert 0.2 < mc.BinaryMCCT().fit([0.0, 1.0], [0, 1]).predict_proba([0.5])[0] < 0.8
    assert 0.9 < fit(np.arange(40.0), np.arange(40) >= 20).predict_proba([39.0])[0] < 1


TOO_LARGE = np.stack([expit(S), expit(S)], axis=1)
LAST = len(S) - 1


@pytest.mark.parametrize(
    ("X", "y", "options", "message"),
    [
        (S, np.ones(len(S), int), {}, "One class alone says nothing"),
        (S, Y, {"sample_weight": Y.astype(float)}, "One class alone"),
        (S, np.arange(len(S)) % 3, {}, "3 classes"),
        (S, np.eye(2)[Y], {}, r"For one-hot labels pass y.argmax\(axis=1\)"),
        (np.append(S[1:], np.nan), Y, {}, f"contains NaN: first in row {LAST}"),
        (np.append(S[1:], np.inf), Y, {}, f"contains infinity: first in row {LAST}"),
        (np.zeros((5, 3)), [0, 1, 0, 1, 1], {}, "one score per row"),
        (S, Y, {"start": "old"}, "start must be a fitted calibrator of two classes"),
        (S, Y, {"input": "probabilities"}, "is no probability"),
        (TOO_LARGE, Y, {"input": "probabilities"}, "rows that sum to one, but row 0 sums to"),
    ],
)
def test_what_is_refused(X, y, options, message):
    with pytest.raises(mc.InputError, match=message):
        mc.BinaryMCCT(input=options.pop("input", "logits")).fit(X, y, **options)
    with pytest.raises(mc.InputError, match=r"rows that sum to one, but row 1 sums to 1\.8"):
        mc.BinaryMCCT(input="probabilities").fit(expit(S), Y).predict_proba([[0.2, 0.8], [0.9, 0.9]])


def test_scores_that_rank_the_wrong_way_round_or_not_at_all_warn():
    with pytest.warns(UserWarning, match="the wrong way round"):
        p = fit(-S, Y).predict_proba(np.sort(S))
    assert (np.diff(p) > 0).all()
    assert abs(p.mean() - Y.mean()) < 0.02
    for name, constant in (("scores", 0.1), ("logits", -1.0), ("probabilities", 0.25)):
        with pytest.warns(UserWarning, match="or not at all"):
            cal = mc.BinaryMCCT(input=name).fit(np.full(400, constant), np.arange(400) % 4 == 0)
        assert cal.predict_proba([constant]) == pytest.approx([0.25], abs=0.01)


@pytest.mark.parametrize("name", ["logits", "probabilities"])
def test_a_few_nearly_certain_rows_say_little_of_uncertain_ones(name):
    odds = np.append(np.linspace(10, 16, 19), 4.6)  # the only error is the least certain answer
    right = np.append(np.ones(19, dtype=int), 0)
    scores, uncertain = (odds, 1.0) if name == "logits" else (expit(odds), expit(1.0))
    cal = mc.BinaryMCCT(input=name).fit(scores, right)
    assert 0.1 < cal.predict_proba([uncertain])[0] < 0.7
    assert 0.9 < cal.predict_proba(scores).mean() < 0.98


@pytest.mark.parametrize("unit", [1e-300, 1e-8, 1e8, 1e300])
def test_the_unit_of_scores_does_not_matter(unit):
    b = fit(S * unit, Y).predict_proba(NEW * unit)
    np.testing.assert_allclose(fit(S, Y).predict_proba(NEW), b, atol=1e-5)


# Context, several scores, intervals.


def test_groups_have_intercepts_as_far_as_they_differ():
    rng = np.random.default_rng(0)
    n, shift = 3000, rng.normal(size=12)
    s, g, u = rng.normal(size=n), rng.integers(0, 12, n), rng.uniform(-3, 3, n)
    truth = expit(s - 1 + shift[g] + np.abs(u) - 1)
    y = rng.random(n) < truth
    context, rest = ({"group": g[part], "number": u[part]} for part in (slice(2000), slice(2000, None)))
    cal = mc.BinaryMCCT().fit(s[:2000], y[:2000], context=context)
    assert np.abs(cal.predict_proba(s[2000:], context=rest) - truth[2000:]).mean() < 0.05
    assert np.abs(mc.BinaryMCCT().fit(s[:2000], y[:2000]).predict_proba(s) - truth).mean() > 0.15
    assert np.corrcoef(cal.effects_[0].values, shift)[0, 1] > 0.95
    assert cal.solution_.converged
    assert "group" in cal.explain()
    unseen = cal.predict_proba(s[:2], context={"group": [99, 99], "number": [np.nan, 0.0]})
    assert np.isfinite(unseen).all()
    assert cal.unseen_ == 2
    low, high = cal.predict_interval(s[2000:], context=rest)
    assert np.mean((low < truth[2000:]) & (truth[2000:] < high)) > 0.9
    with pytest.raises(mc.InputError, match="context is missing"):
        cal.predict_proba(s)
    alike = mc.BinaryMCCT().fit(s, rng.random(n) < expit(s), context=g)
    assert np.abs(alike.effects_[0].values).max() < 0.15


def test_groups_have_slopes_where_they_differ(tmp_path):
    rng = np.random.default_rng(0)
    n, factor = 4000, np.exp(0.6 * rng.normal(size=10))
    s, g = 1.5 * rng.normal(size=n), rng.integers(0, 10, n)
    truth = expit(factor[g] * s)
    y = rng.random(n) < truth
    cal = fit(s[:3000], y[:3000], context=g[:3000])
    assert np.corrcoef(cal.effects_[0].slopes, factor)[0, 1] > 0.9
    assert "slope times" in cal.explain()
    assert np.abs(cal.predict_proba(s, context=g) - truth).mean() < 0.03
    assert np.abs(fit(s, y).predict_proba(s) - truth).mean() > 0.05
    low, high = cal.predict_interval(s[3000:], context=g[3000:])
    assert np.mean((low < truth[3000:]) & (truth[3000:] < high)) > 0.85
    at = np.linspace(-30, 30, 500)
    for group in range(-1, 10):  # the first was never seen
        assert (np.diff(cal.transform(at, context=np.full(500, group))) > 0).all()
    again = mc.load(cal.save(tmp_path / "cal.json"))
    np.testing.assert_array_equal(again.predict_proba(s, context=g), cal.predict_proba(s, context=g))
    assert not len(fit(s, rng.random(n) < expit(s), context=g).effects_[0].slopes)


def test_several_scores_of_one_event(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    a, b = X.T
    y = rng.random(4000) < expit(a + 2 * b - 1)
    both = mc.BinaryMCCT(input="scores", columns="scores").fit(X[:2000], y[:2000])
    assert both.score(X[2000:], y[2000:]) > fit(b[:2000], y[:2000]).score(b[2000:], y[2000:]) + 0.02
    for j in range(2):
        line = np.zeros((300, 2))
        line[:, j] = np.linspace(-5, 5, 300)
        assert (np.diff(both.transform(line)[:, 0]) > 0).all()
    again = mc.load(both.save(tmp_path / "cal.json"))
    np.testing.assert_array_equal(again.predict_proba(X), both.predict_proba(X))
    low, high = both.predict_interval(X[:50])
    p = both.predict_proba(X[:50])[:, 1]
    assert ((low < p) & (p < high)).all()
    with pytest.raises(mc.InputError, match="expecting 2 features"):
        both.predict_proba(X[:, 0])
    frame = pd.DataFrame(X, columns=["a", "b"])
    named = clone(both).fit(frame[:2000], y[:2000])
    assert list(named.predict_proba(frame).columns) == ["False", "True"]
    for library in ("default", "pandas"):
        out = named.set_output(transform=library).transform(frame)
        assert list(out.columns) == list(named.get_feature_names_out()) == ["binarymcct0"]


SMOOTH = [
    lambda v: v - 1,
    lambda v: 4 * v,
    lambda v: 0.6 * v + 0.1 * v**3 / 3,
    lambda v: 3 * np.tanh(v),
    lambda v: v + 0.5 * np.sin(2 * v),
]


@pytest.mark.parametrize("n", [100, 1000, 5000])
def test_intervals_cover_smooth_truths(n):
    means = []
    for truth in SMOOTH:
        hit = []
        for seed in range(10):
            rng = np.random.default_rng([n, seed])
            s, at = rng.normal(size=n) * 1.5, rng.normal(size=200) * 1.5
            low, high = fit(s, rng.random(n) < expit(truth(s))).predict_interval(at, level=0.9)
            hit.append(np.mean((low <= expit(truth(at))) & (expit(truth(at)) <= high)))
        means.append(np.mean(hit))
    assert min(means) > 0.84, means
    assert 0.88 < np.mean(means) < 0.97


def test_an_interval_is_wider_where_there_are_fewer_rows_and_at_a_higher_level():
    cals = [mc.BinaryMCCT().fit(*rows(n, 6)) for n in (100, 1000, 10_000)]
    widths = [np.subtract(*cal.predict_interval(np.array([0.0, 1.0]))[::-1]) for cal in cals]
    assert (np.diff(widths, axis=0) < 0).all()
    many = cals[1]
    narrow, wide = (np.subtract(*many.predict_interval(S, level=level)[::-1]) for level in (0.5, 0.99))
    assert (narrow < wide).all()
    low, high = many.predict_interval(S)
    assert ((low <= many.predict_proba(S)) & (many.predict_proba(S) <= high)).all()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("knots", lambda v: v[::-1], "cannot be this"),
        ("values", lambda v: v[::-1], "cannot be this"),
        ("slopes", lambda v: [-1.0] * len(v), "cannot be this"),
        ("labels_", lambda v: v[::-1], "two labels"),
    ],
)
def test_forged_files_are_refused(name, change, message):
    forged = json.loads(persistence.to_json(mc.BinaryMCCT().fit(S, Y)))
    state = forged["state"] if name == "labels_" else forged["state"]["maps_"]["$tuple"][0]
    state[name]["values"] = change(state[name]["values"])
    forged["checksum"] = persistence._checksum(forged)
    with pytest.raises(mc.FileError, match=message):
        persistence.from_json(json.dumps(forged))
