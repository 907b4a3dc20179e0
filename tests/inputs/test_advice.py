"""What looks like something else is named, and doing what a message says works."""

import numpy as np
import pytest

import monocal as mc
from monocal.data import synthetic

DATA = synthetic(300, 4, seed=5)
Z, Y = DATA.values.astype(np.float64), DATA.labels
P = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
rng = np.random.default_rng(0)
SCORE = rng.normal(size=200)
HIT = (rng.random(200) < 1 / (1 + np.exp(-SCORE))).astype(int)


def one_column(form):
    if form in ("series", "frame"):
        frame = pytest.importorskip("pandas").DataFrame({"score": SCORE, "y": HIT})
        return frame["score"] if form == "series" else frame[["score"]]
    if form.startswith("torch"):
        score = pytest.importorskip("torch").tensor(SCORE)
        return score if form == "torch (n,)" else score[:, None]
    return {"list": SCORE.tolist(), "(n,)": SCORE, "(n, 1)": SCORE[:, None]}[form]


@pytest.mark.parametrize("form", ["series", "frame", "torch (n,)", "torch (n, 1)", "list", "(n,)", "(n, 1)"])
def test_one_column_of_scores(form):
    X = one_column(form)
    expected = mc.BinaryMCCT().fit(SCORE, HIT).predict_proba(SCORE)
    for method in (mc.MCCT(), mc.ConditionalMCCT(), mc.VectorScaling(), mc.StructuredMCCT()):
        with pytest.raises(mc.InputError, match="BinaryMCCT"):
            method.fit(X, HIT)
    p = np.asarray(mc.BinaryMCCT().fit(X, HIT).predict_proba(X))
    np.testing.assert_allclose(p if p.ndim == 1 else p[:, 1], expected, atol=1e-12)
    mc.PlattScaling().fit(X, HIT).predict_proba(X)


@pytest.mark.parametrize("values", [P, P.astype(np.float32), np.round(P, 2)], ids=["f8", "f4", "rounded"])
def test_probabilities_given_as_logits_are_named(values):
    with pytest.warns(UserWarning, match=r"fitted as logits, but its rows sum to 1.* say input='probab"):
        mc.MCCT().fit(values, Y)
    mc.MCCT(input="probabilities").fit(values, Y)  # a warning is an error here
    mc.MCCT().fit(np.log(np.maximum(values, 1e-6)), Y)
    mc.MCCT().fit(rng.random(Z.shape), Y)  # in [0, 1], and no rows of probabilities


def test_one_probability_given_as_log_odds_is_named():
    p = 1 / (1 + np.exp(-SCORE))
    for method in (mc.BinaryMCCT, mc.PlattScaling):
        with pytest.warns(UserWarning, match="if they are probabilities, say input='probabilities'"):
            method().fit(p, HIT)
        method(input="probabilities").fit(p, HIT)
        method(input="scores").fit(p, HIT)
        method().fit(SCORE, HIT)


def test_percentages_are_named():
    with pytest.warns(UserWarning, match="rows sum to 100: .* say input='probabilities' and give X / 100"):
        mc.MCCT().fit(100 * P, Y)
    with pytest.raises(mc.InputError, match="seem to be percentages: divide by 100, X / 100"):
        mc.MCCT(input="probabilities").fit(100 * P, Y)


@pytest.mark.parametrize(("m", "decimals"), [(4, 2), (30, 2), (200, 3)])
def test_rows_of_rounded_probabilities_are_taken_and_normalised(m, decimals):
    p = np.random.default_rng(m).dirichlet(np.ones(m), 300)
    rounded = np.round(p, decimals)
    assert (abs(rounded.sum(axis=1) - 1) > 0.0099).any()
    labels = np.random.default_rng(1).integers(0, m, 300)
    whole = rounded / rounded.sum(axis=1, keepdims=True)
    for method in (mc.MCCT(input="probabilities"), mc.VectorScaling(input="probabilities")):
        result = method.fit(rounded, labels).predict_proba(rounded)
        np.testing.assert_allclose(result, method.fit(whole, labels).predict_proba(whole), atol=2e-6)
    with pytest.raises(mc.InputError, match="expected non-negative rows that sum to one"):
        mc.MCCT(input="probabilities").fit(rounded * 1.3, labels)


@pytest.mark.parametrize(
    "method", [mc.MCCT(), mc.VectorScaling(), mc.StructuredMCCT(), mc.HistogramBinning(), mc.MultilabelMCCT()]
)
def test_context_of_a_method_without_one(method):
    said = "takes no context. ConditionalMCCT does, .* and BinaryMCCT"
    y = (Z > 0).astype(int) if isinstance(method, mc.MultilabelMCCT) else Y
    with pytest.raises(mc.InputError, match=said):
        method.fit(Z, y, context=Y)
    method.fit(Z, y)
    for use in (method.predict_proba, method.predict, method.transform):
        with pytest.raises(mc.InputError, match=said):
            use(Z, context=Y)
    with pytest.raises(mc.InputError, match=said):
        method.score(Z, y, context=Y)
    cal = mc.ConditionalMCCT().fit(Z, Y)
    with pytest.raises(mc.InputError, match="fitted without one"):
        cal.predict_proba(Z, context=Y)
    cal.fit(Z, Y, context=Y % 2).predict_proba(Z, context=Y % 2)
