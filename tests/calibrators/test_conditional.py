"""The conditional family: guarantees of MCCT, parameters that depend on the sample, a certificate, words."""

import json

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import clone

import monocal as mc
from hostile import assert_order_kept, calibration_set, two_kinds
from monocal.calibrators import conditional
from monocal.core.ranked import rank_rows
from monocal.core.statistics import STATISTICS
from monocal.data import synthetic
from monocal.metrics import nll

SETS = ["toplabel_cifar100_wide_resnet_brier", "netcal_cifar10_lenet-5", "sctl_cifar10LT_densenet40"]
ALL = tuple(STATISTICS)


@pytest.fixture(scope="module")
def fitted():
    """Weak shrinkage, all statistics: as bent a map as there is."""
    z, y = two_kinds()
    return mc.ConditionalMCCT(statistics=ALL, shrinkage=0.3, by_class=False).fit(z, y)


# What it is for.


def test_learns_what_one_set_of_weights_cannot():
    z, y = two_kinds()
    held_out, labels = two_kinds(seed=1)
    scores = {
        type(c).__name__: nll(c.fit(z, y).predict_proba(held_out), labels)
        for c in (mc.TemperatureScaling(), mc.MCCT(), mc.ConditionalMCCT())
    }
    assert scores["ConditionalMCCT"] < scores["MCCT"] - 0.02 < scores["TemperatureScaling"]


@pytest.mark.parametrize("n", [100, 1000])
def test_without_signal_nothing_is_lost(n):
    held_out, labels = calibration_set(10, seed=99, n=4000)
    excess = []
    for seed in range(5):
        z, y = calibration_set(10, seed=seed, n=n)
        ts, cal = (c.fit(z, y) for c in (mc.TemperatureScaling(), mc.ConditionalMCCT()))
        excess.append(nll(cal.predict_proba(held_out), labels) - nll(ts.predict_proba(held_out), labels))
    assert np.mean(excess) < 0.002


def test_without_statistics_it_is_a_rank_map():
    z, y = two_kinds()
    cal = mc.ConditionalMCCT(statistics=(), shrinkage=0, by_class=False).fit(z, y)
    exact = mc.MCCT(shrinkage=0).fit(z, y)
    np.testing.assert_allclose(cal.predict_proba(z), exact.predict_proba(z), atol=2e-4)
    assert cal.coefficients_.shape[1] == 1


# Order, ties, masks, shifts.


def test_masked_classes_do_not_take_part():
    z, y = two_kinds(m=6)
    wide = np.insert(z, [2, 4], -np.inf, axis=1)
    moved = np.array([0, 1, 3, 4, 6, 7])
    for parameters in ({}, {"top_k": 3}):
        cal = mc.ConditionalMCCT(statistics=ALL, shrinkage=1.0, **parameters)
        expected = cal.fit(z, y).predict_proba(z)
        masked = cal.fit(wide, moved[y]).predict_proba(wide)
        assert (masked[:, [2, 5]] == 0).all()
        np.testing.assert_allclose(masked[:, moved], expected, atol=2e-3)


# The certificate.


@pytest.mark.parametrize("name", SETS)
def test_certified_and_in_order_on_real_sets(shared_logits, name):
    data = shared_logits(name)
    cal = mc.ConditionalMCCT().fit(data.logits_val, data.y_val)
    assert cal.solution_.converged
    assert cal.solution_.kkt <= 1e-6
    assert mc.order_audit(data.logits_test, cal.transform(data.logits_test), input="logits").preserved
    mcct = mc.MCCT().fit(data.logits_val, data.y_val)
    assert (
        nll(cal.predict_proba(data.logits_val), data.y_val)
        < nll(mcct.predict_proba(data.logits_val), data.y_val) + 5e-4
    )


def test_the_optimum_satisfies_the_conditions_of_an_independent_objective():
    """Value and gradient written down from the definition, row by row."""
    z, y = two_kinds(m=4, n=300)
    cal = mc.ConditionalMCCT(
        statistics=("margin",), n_knots=2, by_class=False, shrinkage=0.0, prior_rows=0
    ).fit(z, y)
    u = np.sort(z, axis=1) - z.min(axis=1, keepdims=True)
    label = np.argsort(np.argsort(z, axis=1), axis=1)[np.arange(len(y)), y]
    q = u[:, -1] - u[:, -2]
    psi = [np.ones(len(q))] + [np.clip((q - r.zero) / (r.one - r.zero), 0, 1) for r in cal.factors_.ramps]
    c = cal.coefficients_
    atoms = {}
    for kind, k, s in np.ndindex(c.shape):
        start = np.arange(4) >= s
        atoms[kind, k, s] = psi[k][:, None] * start * (u if kind == 0 else 1.0)
    f = sum(c[a] * atom for a, atom in atoms.items())
    np.testing.assert_allclose(softmax(f, axis=1), np.sort(cal.predict_proba(z), axis=1), atol=1e-12)
    p = softmax(f, axis=1)
    for (kind, k, s), atom in atoms.items():
        if (kind == 0 and k and s) or (kind == 1 and s == 0):
            continue  # not in the dictionary
        gradient = ((p * atom).sum(axis=1) - atom[np.arange(len(y)), label]).mean()
        assert gradient > -2e-6
        if c[kind, k, s] > 0 and (kind, k, s) != (0, 0, 0):
            assert abs(gradient) < 2e-6


def test_finite_and_certified_where_every_label_is_the_top():
    z, _ = two_kinds(n=200)
    cal = mc.ConditionalMCCT().fit(z, z.argmax(axis=1))
    assert cal.solution_.converged
    assert np.isfinite(cal.predict_proba(z)).all()


# Inputs of all kinds.


def test_libraries_and_precisions_agree():
    torch = pytest.importorskip("torch")
    z, y = two_kinds(n=1500)
    expected = mc.ConditionalMCCT(statistics=ALL).fit(z, y).predict_proba(z)
    single = mc.ConditionalMCCT(statistics=ALL).fit(z.astype(np.float32), y)
    np.testing.assert_allclose(single.predict_proba(z), expected, atol=1e-4)
    tensors = mc.ConditionalMCCT(statistics=ALL).fit(torch.from_numpy(z), torch.from_numpy(y))
    result = tensors.predict_proba(torch.from_numpy(z))
    assert isinstance(result, torch.Tensor)
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-6)
    for top_k in (1, 3):
        tail = mc.ConditionalMCCT(statistics=ALL, shrinkage=1.0, top_k=top_k).fit(z, y)
        result = tail.predict_proba(torch.from_numpy(z)).numpy()
        np.testing.assert_allclose(result, tail.predict_proba(z), atol=1e-12)


def test_few_rows_and_very_many_classes():
    """In single precision the weight that nearly all rows share must not be rounded: that moves the gradient."""
    data = synthetic(60, 30_000, seed=1, keep_truth=False)
    z = 8 * data.values.astype(np.float32)
    cal = mc.ConditionalMCCT(statistics=("margin",), n_knots=1).fit(z, data.labels)
    assert cal.solution_.converged


def test_long_rows_have_atoms_on_a_grid(monkeypatch):
    """Atoms that begin on a geometric grid of ranks are nearly as good as atoms at every rank, and certified among themselves."""
    z, y = calibration_set(400, n=300)
    everywhere = mc.ConditionalMCCT(shrinkage=2.0).fit(z, y)
    monkeypatch.setattr(conditional, "_MANY", 300)
    monkeypatch.setattr(conditional, "_EVERY", 20)
    cal = mc.ConditionalMCCT(shrinkage=2.0).fit(z, y)
    begins = conditional.starts_of_many(400)
    assert begins[0] == 0
    assert begins[-1] == 399
    assert len(begins) < 120
    assert cal.coefficients_.shape == everywhere.coefficients_.shape
    assert np.isin(cal.rank_map_.starts, begins).all()
    assert cal.solution_.converged
    assert cal.solution_.kkt <= 1e-6
    # A part of the dictionary cannot do better than all of it, and loses little.
    lost = cal.solution_.objective - everywhere.solution_.objective
    assert -1e-6 < lost < 1e-2
    np.testing.assert_allclose(cal.factor_means_, everywhere.factor_means_)
    assert_order_kept(z, cal.predict_proba(z))
    assert conditional.starts_of_many(300) is None


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"statistics": ("margins",)}, "margins.*not known"),
        ({"statistics": 3}, "sequence of names"),
        ({"n_knots": 0}, "n_knots"),
        ({"by_class": "yes"}, "by_class must be 'auto', True or False"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    z, y = two_kinds(n=100)
    with pytest.raises(mc.InputError, match=message):
        mc.ConditionalMCCT(**parameters).fit(z, y)


# Choosing and explaining.


def test_cross_validation_chooses_by_held_out_likelihood():
    z, y = two_kinds()
    signal = mc.ConditionalMCCT(shrinkage="cv").fit(z, y)
    noise = mc.ConditionalMCCT(shrinkage="cv").fit(*calibration_set(10, n=400))
    assert signal.shrinkage_ < noise.shrinkage_
    fixed = mc.ConditionalMCCT(shrinkage=signal.shrinkage_).fit(z, y)
    np.testing.assert_allclose(signal.predict_proba(z), fixed.predict_proba(z), atol=1e-6)


def test_explain_says_what_the_map_does():
    z, y = two_kinds()
    cal = mc.ConditionalMCCT(statistics=("margin",), n_knots=3, by_class=False).fit(z, y)
    effects = cal.explain()
    assert len(effects) == np.count_nonzero(cal.coefficients_)
    plain = effects[0]
    assert (plain.kind, plain.statistic, plain.start, plain.n_top) == ("scale", None, 0, 10)
    # Small margins are honest, large ones over-confident: the scale grows towards small margins.
    conditional = [e for e in effects if e.kind == "scale" and e.statistic == "margin"]
    largest = max(conditional, key=lambda e: e.coefficient)
    assert largest.side == "below"
    assert all((e.full_from < e.knot) == (e.side == "below") for e in conditional)
    assert sum(e.mean for e in effects if e.kind == "scale") == pytest.approx(effects.mean_scale)
    for e in effects:
        expected = e.coefficient / effects.mean_scale if e.kind == "scale" else np.exp(e.coefficient)
        assert e.effect == pytest.approx(expected)
    text = str(effects)
    assert f"{len(effects)} of {cal.n_atoms_} atoms" in text
    assert "margin below" in text
    assert "all samples: scale of all classes" in text
    assert json.loads(json.dumps(effects.to_dicts()))[0]["kind"] == "scale"


def test_the_explained_scale_is_the_scale(fitted):
    """The mean scale in words, measured: how fast the two largest logits move apart."""
    z, _ = two_kinds()
    weights = fitted.factors_(rank_rows(z)) @ fitted.coefficients_[0].sum(axis=1)
    assert fitted.explain().mean_scale == pytest.approx(weights.mean(), rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_second_stage_after_one_scale(dtype):
    """From one row only one scale is learnt, which needs no ranks; the second stage has a scale of its own."""
    cal = mc.ConditionalMCCT().fit(np.array([[-np.inf, 0.0]]), [1])
    assert len(cal.rank_map_.starts) == 1
    assert cal.rank_map_.factors is None
    assert cal.adjustment_.steps[0, 0] > 1.0
    z = np.array([[-0.2, 0.0], [3.0, 1.0], [0.5, 0.5], [0.0, -np.inf]], dtype=dtype)
    np.testing.assert_allclose(cal.predict_proba(z), softmax(cal.transform(z), axis=1), rtol=1e-6)


# What it cannot put right.

BIASED = [
    (2, 1, -3.0, "rows that predict class .* try BinaryMCCT"),
    (3, 0, 3.0, "rows that predict class .* try StructuredMCCT"),
    (4, 3, -4.0, "rows that predict class .* try StructuredMCCT"),
    # Predicted too seldom: no predicted class need be off, but the mean probability of this one is.
    (4, 3, -2.0, "class 3 .* try StructuredMCCT"),
    (10, 0, 2.0, "class 0 .* try StructuredMCCT"),
    (10, 3, -4.0, "class 3 .* try StructuredMCCT"),
]


@pytest.mark.parametrize(("m", "j", "by", "words"), BIASED)
def test_what_stays_wrong_is_named_with_what_helps(m, j, by, words):
    data = mc.data.synthetic(4000, m, overconfidence=1.0, seed=3)
    with pytest.warns(mc.CalibrationWarning, match=words):
        cal = mc.ConditionalMCCT().fit(data.values + by * np.eye(m)[j], data.labels)
    assert "; yet " in cal.by_class_
    if words.startswith("class"):
        with pytest.warns(mc.CalibrationWarning, match=words):
            mc.ConditionalMCCT(by_class=False).fit(data.values + by * np.eye(m)[j], data.labels)


@pytest.mark.parametrize("context", [False, True])
def test_more_coefficients_than_rows_can_bear_are_named(context):
    data = mc.data.synthetic(200, 30, overconfidence=1.0)
    keywords = {"context": {"site": np.arange(200) % 3, "age": data.values[:, 0]}} if context else {}
    mc.ConditionalMCCT().fit(data.values, data.labels, **keywords)  # a warning is an error here
    with pytest.warns(mc.CalibrationWarning, match="held out in 5 folds .* too many for so few rows"):
        mc.ConditionalMCCT(shrinkage=0.5, prior_rows=0).fit(data.values, data.labels, **keywords)
    # Where it helps all the same, nothing is said.
    data = mc.data.synthetic(200, 30, overconfidence=3.0)
    mc.ConditionalMCCT(shrinkage=0.5, prior_rows=0).fit(data.values, data.labels)


@pytest.mark.parametrize("weight", [None, "unequal"])
@pytest.mark.parametrize("m", [2, 4, 30])
def test_nothing_is_named_where_nothing_is_wrong(m, weight):
    for seed in range(4):  # a warning is an error here
        data = mc.data.synthetic(500, m, seed=seed)
        weights = None if weight is None else np.where(np.arange(500) % 20, 1.0, 20.0)
        cal = mc.ConditionalMCCT().fit(data.values, data.labels, weights)
        assert "; yet" not in cal.by_class_


def test_the_least_confident_rows_tell_of_the_order():
    """Right on average by predicted class, but of the doubtful rows that predict 0 the class ranked second is right."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(6000, 3)) * 2
    order = np.argsort(-z, axis=1)
    low = (np.diff(np.sort(z, axis=1)[:, -2:], axis=1)[:, 0] < 0.7) & (order[:, 0] == 0)
    y = np.where(low & (rng.random(6000) < 0.9), order[:, 1], order[:, 0])
    with pytest.warns(mc.CalibrationWarning, match="class 0"):
        mc.ConditionalMCCT().fit(z, y)


TWO_ALIKE = {
    "temperature": mc.TemperatureScaling(),
    "squared error": mc.TemperatureScaling(loss="mse"),
    "mcct": mc.MCCT(),
    "first stage": mc.ConditionalMCCT(by_class=False),
    "both stages": mc.ConditionalMCCT(),
    "within label shift": mc.LabelShift(mc.TemperatureScaling()),
}


@pytest.mark.parametrize("name", TWO_ALIKE)
def test_of_two_classes_a_rate_that_stays_wrong_is_named_with_what_helps(name):
    data = mc.data.synthetic(4000, 2)
    weights = np.where(np.arange(4000) % 20, 1.0, 20.0)
    cal = clone(TWO_ALIKE[name])
    cal.fit(data.values, data.labels, weights)  # a warning is an error here
    with pytest.warns(mc.CalibrationWarning, match="class 1 is the label of .* try BinaryMCCT"):
        cal.fit(data.values - [0.0, 2.0], data.labels, weights)
    # As few rows as this say nothing, and so do many that weigh little compared with one.
    cal.fit(data.values[:50] - [0.0, 2.0], data.labels[:50])
    cal.fit(data.values - [0.0, 2.0], data.labels, np.where(np.arange(4000) < 10, 200.0, 0.01))


@pytest.mark.parametrize(
    "cal",
    [
        mc.VectorScaling(),
        mc.EnsembleTemperatureScaling(),
        mc.StructuredScaling(),
        mc.StructuredMCCT(),
        mc.Stacked([mc.MCCT(), mc.StructuredScaling()]),
    ],
    ids=lambda cal: type(cal).__name__,
)
def test_what_a_part_leaves_wrong_is_no_warning(cal):
    """Each fits temperature scaling or MCCT on the way."""
    data = mc.data.synthetic(600, 2)
    clone(cal).fit(data.values - [0.0, 2.0], data.labels)  # a warning is an error here
