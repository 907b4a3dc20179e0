"""By predicted class and by context: what it learns, that it is the optimum, in words, and what is refused."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from uneven_rows import fitted_with_context, numbers_of, uneven

import monocal as mc
from hostile import bent
from monocal.errors import InputError
from monocal.metrics import nll
from real_logits import load_shared_logits


@pytest.fixture(scope="module")
def fitted():
    return fitted_with_context()


# What it is for.


def test_it_learns_what_logits_alone_cannot_tell():
    z, y, context = uneven(n=4000)
    held_out, labels, other = uneven(seed=1)
    plain = mc.ConditionalMCCT(by_class=False).fit(z, y)
    classes = mc.ConditionalMCCT().fit(z, y)
    both = mc.ConditionalMCCT().fit(z, y, context=context)
    losses = [nll(c.predict_proba(held_out), labels) for c in (plain, classes)]
    losses.append(nll(both.predict_proba(held_out, context=other), labels))
    assert losses[0] > losses[1] + 0.01
    assert losses[1] > losses[2] + 0.02
    scales = both.adjustment_.column_scales[0].scales
    assert (np.diff(scales) > 0).all()  # the sites are ever surer
    assert {ramp.statistic for ramp in both.adjustment_.factors.ramps} == {0, 1}
    assert classes.by_class_.startswith("scales from")
    assert plain.by_class_ == "not asked for"
    assert plain.adjustment_ is None


@pytest.mark.filterwarnings("ignore::monocal.CalibrationWarning")  # answer A is named too often
def test_the_subject_helps_on_real_questions():
    data = load_shared_logits("mmlu_mistral-7b")
    rows = np.random.default_rng(0).permutation(len(data.y_val))
    fit, test = rows[: len(rows) * 3 // 4], rows[len(rows) * 3 // 4 :]
    subject = data.context_val
    plain = mc.ConditionalMCCT(by_class=False).fit(data.logits_val[fit], data.y_val[fit])
    with_context = mc.ConditionalMCCT().fit(data.logits_val[fit], data.y_val[fit], context=subject[fit])
    probs = with_context.predict_proba(data.logits_val[test], context=subject[test])
    assert nll(probs, data.y_val[test]) < nll(plain.predict_proba(data.logits_val[test]), data.y_val[test])


def test_noise_costs_nothing():
    n = 1000
    rng = np.random.default_rng(0)
    z, y = bent(10, n=n)
    held_out, labels = bent(10, n=6000)
    held_out, labels = held_out[-3000:], labels[-3000:]
    base = nll(mc.ConditionalMCCT().fit(z, y).predict_proba(held_out), labels)
    numbers, groups = rng.normal(size=(n + 3000, 20)), rng.integers(0, 50, n + 3000)
    for noise in (numbers, groups, rng.integers(0, 8, (n + 3000, 20))):
        cal = mc.ConditionalMCCT().fit(z, y, context=noise[:n])
        assert nll(cal.predict_proba(held_out, context=noise[n:]), labels) < base + 0.002


def fits_that_use_noise(n, weight, trials):
    """How many fits use a column of categories, of numbers, or the class on top, where none of them matters."""
    used = np.zeros(3, dtype=int)
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        data = mc.data.synthetic(n, 4, seed=trial)
        noise = pd.DataFrame({"category": rng.integers(0, 8, n).astype(str), "number": rng.normal(size=n)})
        cal = mc.ConditionalMCCT().fit(data.values, data.labels, weight(rng, n), context=noise)
        a = cal.adjustment_
        used += [
            a.column_scales[0].variance > 0,
            any(r.statistic == 1 for r in a.factors.ramps),
            cal.by_class_.startswith("scales from"),
        ]
    return used


def weight_of_one(rng, n):
    return np.ones(n)


def lognormal(rng, n):
    return rng.lognormal(size=n)


@pytest.mark.parametrize("weight", [weight_of_one, lognormal])
def test_noise_is_used_in_five_per_cent_of_fits_whatever_the_weights(weight):
    assert (fits_that_use_noise(4000, weight, trials=25) <= 3).all()  # more by chance: 3 %


@pytest.mark.parametrize("values", [[0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 2.0]], ids=str)
def test_numbers_of_few_values_are_used(values):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, 4)) * 2
    x = rng.choice(values, 2000)
    y = np.where(x > 0, z.argmax(axis=1), rng.integers(0, 4, 2000))
    plain, with_context = mc.ConditionalMCCT().fit(z, y), mc.ConditionalMCCT().fit(z, y, context=x)
    assert with_context.score(z, y, context=x) > plain.score(z, y) + 0.05


# The certificate.


def test_scales_and_steps_are_the_optimum_of_what_is_written_down():
    """The second stage's objective, from its definition, with few classes: the solution satisfies its conditions."""
    z, y, context = uneven(n=600, m=4)
    cal = mc.ConditionalMCCT(n_knots=2, prior_rows=0).fit(z, y, context=context[["site"]])
    a = cal.adjustment_
    assert a.solution.converged
    f = cal.rank_map_.apply(z, "logits")
    top = f.argmax(axis=1)
    codes = cal.context_.codes(context[["site"]])[:, 0].astype(int)

    # Scales by class: every group's own problem.
    def loss(s, rows, variance, common=1.0):
        g = common * s * f[rows]
        return (logsumexp(g, axis=1) - g[np.arange(len(rows)), y[rows]]).sum() + (s - 1) ** 2 / (2 * variance)

    everything = np.arange(len(y))
    common = minimize(lambda s: loss(s[0], everything, np.inf), [1.0], tol=1e-10).x[0]
    result = a.class_scales
    for j in range(4):
        rows = np.flatnonzero(top == j)
        best = minimize(lambda s, rows=rows: loss(s[0], rows, result.variance, common), [1.0], tol=1e-10).x[0]
        assert result.scales[j] == pytest.approx(best, abs=2e-4)
        assert result.rows[j] == len(rows)
    assert result.residual <= cal.tol

    # Steps: gradients of the likelihood and the penalty's sign.
    s = result.scales[top] * a.column_scales[0].scales[codes]
    g = f * s[:, None]
    order = np.sort(g, axis=1)
    odds = order[:, -1] - logsumexp(order[:, :-1], axis=1)
    psi = np.stack(
        [np.ones(len(odds))] + [np.clip((odds - r.zero) / (r.one - r.zero), 0, 1) for r in a.factors.ramps]
    )
    at_top = g == g.max(axis=1, keepdims=True)
    out = g * (a.steps[0] @ psi)[:, None] + at_top * (a.steps[1] @ psi)[:, None]
    np.testing.assert_allclose(out, cal.transform(z, context=context[["site"]]), atol=1e-9)
    p = softmax(out, axis=1)
    for k, factor in enumerate(psi):
        for kind, atom in enumerate((g, at_top)):
            gradient = (factor * ((p * atom).sum(axis=1) - atom[np.arange(len(y)), y])).mean()
            if (kind, k) == (0, 0):
                assert abs(gradient) < 2e-6  # the plain scale is not held back
            elif a.steps[kind, k] > 0:
                assert gradient < 0  # held in balance by the penalty
            else:
                assert gradient > -0.05


def test_weights_of_zero_are_no_rows():
    z, y, context = uneven(n=500)
    context.loc[::7, "age"] = np.nan
    kept = np.arange(500) % 3 > 0
    a = mc.ConditionalMCCT().fit(z, y, sample_weight=kept.astype(float), context=context)
    b = mc.ConditionalMCCT().fit(z[kept], y[kept], context=context[kept])
    np.testing.assert_allclose(
        a.predict_proba(z, context=context), b.predict_proba(z, context=context), atol=1e-5
    )


# Kept, explained, refused.


def test_it_is_kept_in_a_file_to_the_last_bit(fitted, tmp_path):
    z, _, context = uneven(n=100)
    fitted.save(tmp_path / "cal.json")
    loaded = mc.load(tmp_path / "cal.json")
    expected = fitted.predict_proba(z, context=context)
    np.testing.assert_array_equal(loaded.predict_proba(z, context=context), expected)
    assert str(loaded.explain()) == str(fitted.explain())


def test_explain_names_classes_and_categories():
    z, y, context = uneven(n=4000)
    frame = pd.DataFrame(z, columns=["cat", "dog", "emu", "fox", "gnu", "hen", "ibis"])
    cal = mc.ConditionalMCCT().fit(frame, y, context=context)
    explanation = cal.explain()
    words = str(explanation)
    assert "when the top class is 'cat': " in words
    assert "% less sure" in words
    assert "site 'a': " in words
    by_name = {(g.column, g.group): g for g in explanation.groups}
    assert by_name["site", "a"].scale < 1 < by_name["site", "d"].scale
    assert by_name[None, "cat"].scale < 1 < by_name[None, "ibis"].scale
    age = [e for e in explanation if e.statistic == "age"]
    assert age
    assert all(20 <= e.knot <= 80 for e in age)
    assert words.startswith(f"{sum(e.stage == 1 for e in explanation)} of {cal.n_atoms_} atoms are active")


def test_forgetting_and_changing_the_context_is_refused(fitted):
    z, y, context = uneven(n=20)
    for other, words in (
        (None, "context is missing: the calibrator was fitted with the column"),
        (np.zeros(20), r"context has 1 column\(s\), but the calibrator was fitted with 2"),
        (context[["site"]], "context has the columns 'site', but"),
        (context.iloc[1:], "context has 19 rows, but X has 20"),
        (context.assign(age="old"), "'age' was numbers in fitting"),
    ):
        with pytest.raises(InputError, match=words):
            fitted.predict_proba(z, context=other)
    with pytest.raises(InputError, match="fitted without one"):
        mc.ConditionalMCCT().fit(z, y).predict_proba(z, context=context)
    for odd, words in (
        (context.iloc[:5], "found input variables with inconsistent numbers of samples"),
        (np.zeros(20, dtype="datetime64[s]"), "datetime64"),
        (np.array([{}] * 20), "holds a dict"),
        ({"a": np.zeros(20), "b": np.zeros(19)}, "different numbers of rows"),
        ({"a": 3}, "must have one row for each row"),
        ({1: y, "1": y}, "two columns of one name"),
        (np.zeros((20, 0)), "context has no columns"),
        (np.zeros((20, 1, 1)), "must have one row for each row"),
    ):
        with pytest.raises(InputError, match=words):
            mc.ConditionalMCCT().fit(z, y, context=odd)
    with pytest.raises(InputError, match="no row has one class on top, so nothing can be learnt"):
        mc.ConditionalMCCT().fit(np.zeros((20, 7)), y, context=context)
    with pytest.raises(InputError, match="unlike those before"):
        mc.ConditionalMCCT().fit(lambda: iter([(z, y, np.ones((20, 1))), (z, y)]))


# scikit-learn.


def test_metadata_routing_carries_the_context():
    z, y, context = uneven(n=600)
    table = numbers_of(context)
    with sklearn.config_context(enable_metadata_routing=True):
        cal = mc.ConditionalMCCT().set_fit_request(context=True).set_score_request(context=True)
        scores = cross_val_score(cal, z, y, params={"context": table}, cv=3)
        assert np.isfinite(scores).all()
        pipe = make_pipeline(FunctionTransformer(), clone(cal).set_predict_proba_request(context=True))
        pipe.fit(z, y, context=table)
        np.testing.assert_allclose(
            pipe.predict_proba(z, context=table),
            mc.ConditionalMCCT().fit(z, y, context=table).predict_proba(z, context=table),
        )


def test_a_calibrated_classifier_passes_the_context_on():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = np.array(["no", "yes"])[(X[:, 0] + rng.normal(size=600) > 0).astype(int)]
    ward = rng.integers(0, 3, 600)
    model = mc.CalibratedClassifier(LogisticRegression(), method="conditional").fit(X, y, context=ward)
    assert model.calibrator_.context_.columns[0].categories == (0, 1, 2)
    assert set(model.predict(X, context=ward)) == {"no", "yes"}
    with pytest.raises(InputError, match="context is missing"):
        model.predict_proba(X)
    assert model.score(X, y, context=ward) > 0.7
    for labels in (y, rng.integers(0, 3, 600)):  # the defaults of two classes and of more
        default = mc.CalibratedClassifier(LogisticRegression()).fit(X, labels, context=ward)
        assert default.calibrator_.context_.columns[0].categories == (0, 1, 2)
    with pytest.raises(InputError, match=r"context: MCCT takes none\. Use method='conditional'"):
        mc.CalibratedClassifier(LogisticRegression(), method="mcct").fit(X, y, context=ward)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        mc.CalibratedClassifier(LogisticRegression(), method="conditional").fit(X, y, context=np.zeros(700))
    z, labels, context = uneven(n=300)
    both = mc.ConditionalMCCT().fit_transform(z, labels, context=context)
    np.testing.assert_array_equal(both.argmax(axis=1), z.argmax(axis=1))
