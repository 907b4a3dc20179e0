"""Going on from an old calibrator: near it with few rows, away from it with many, the same for every order and library."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

import monocal as mc
from monocal.calibrators.updating import old_labels

OLD = mc.data.synthetic(5000, 6, seed=0)
NEW = mc.data.synthetic(5000, 6, seed=1)
METHODS = [mc.TemperatureScaling, mc.MCCT, mc.ConditionalMCCT, mc.VectorScaling]


def distance(p: np.ndarray, q: np.ndarray) -> float:
    return float(np.abs(p - q).mean())


@pytest.mark.parametrize("method", METHODS)
def test_few_rows_stay_near_the_old_and_many_leave_it(method):
    old = method().fit(OLD.values, OLD.labels)
    shifted = 2.0 * NEW.values  # the classifier is twice as sure now
    alone = method().fit(shifted, NEW.labels).predict_proba(shifted)
    before = old.predict_proba(shifted)
    few = method().fit(shifted[:40], NEW.labels[:40], start=old).predict_proba(shifted)
    many = method().fit(shifted, NEW.labels, start=old, start_rows=50).predict_proba(shifted)
    at_once = method().fit_transform(shifted, NEW.labels, start=old, start_rows=50)
    np.testing.assert_allclose(softmax(at_once, axis=1), many, atol=1e-6)
    assert distance(few, before) < 0.35 * distance(few, alone)
    assert distance(many, alone) < 0.1 * distance(many, before)


def test_classes_stand_for_the_old_probabilities():
    p = np.random.default_rng(0).dirichlet(np.ones(40) / 4, size=3000)
    p[0] = np.eye(40)[7]
    labels, shares = old_labels(p, 4)
    assert labels.shape == shares.shape == (3000, 4)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    total = np.zeros(40)
    np.add.at(total, labels.ravel(), shares.ravel())
    np.testing.assert_allclose(total / 3000, p.mean(axis=0), atol=0.006)
    assert (labels[0, 0], shares[0, 0]) == (7, 1.0)
    order = np.random.default_rng(1).permutation(3000)
    np.testing.assert_array_equal(old_labels(p[order], 4)[0], labels[order])
    few = old_labels(np.tile([0.2, 0.5, 0.3], (3000, 1)), 4)
    assert few[0].shape == (3000, 3)  # all of them, exactly


@pytest.mark.parametrize("m", [4, 30])
def test_equal_rows_keep_what_the_old_calibrator_said(m):
    """Trees and rounded scores give the same row again and again: it must not stand for the same class each time."""
    kinds = np.random.default_rng(0).normal(size=(4, m))
    rows = np.repeat(kinds, 500, axis=0)
    labels = np.random.default_rng(1).integers(0, m, len(rows))
    old = mc.MCCT().fit(OLD.values @ np.random.default_rng(2).normal(size=(6, m)), OLD.labels % m)
    new = mc.MCCT(shrinkage=0, prior_rows=0).fit(rows, labels, start=old, start_rows=1e6)
    np.testing.assert_allclose(new.predict_proba(kinds), old.predict_proba(kinds), atol=0.02)


def test_every_kind_of_array_gives_the_same():
    pandas, torch = pytest.importorskip("pandas"), pytest.importorskip("torch")
    old = mc.MCCT().fit(OLD.values, OLD.labels)
    x, y = NEW.values[:200], NEW.labels[:200]
    expected = mc.MCCT().fit(x, y, start=old).weights_
    for X in (x.tolist(), torch.from_numpy(x)):
        np.testing.assert_allclose(mc.MCCT().fit(X, y, start=old).weights_, expected, rtol=1e-4)
    framed, names = pandas.DataFrame(x, columns=list("abcdef")), np.array(list("abcdef"))
    named = mc.MCCT().fit(pandas.DataFrame(OLD.values, columns=list("abcdef")), OLD.labels)
    np.testing.assert_allclose(mc.MCCT().fit(framed, names[y], start=named).weights_, expected, rtol=1e-4)


def test_context_goes_with_its_rows():
    group = np.arange(5000) % 3
    old = mc.ConditionalMCCT().fit(OLD.values, OLD.labels, context={"camera": group})
    new = mc.ConditionalMCCT().fit(
        NEW.values[:300], NEW.labels[:300], context={"camera": group[:300]}, start=old
    )
    assert new.predict_proba(NEW.values[:5], context={"camera": group[:5]}).shape == (5, 6)
    plain = mc.ConditionalMCCT().fit(
        NEW.values[:300], NEW.labels[:300], start=mc.MCCT().fit(OLD.values, OLD.labels)
    )
    assert plain.predict_proba(NEW.values[:5]).shape == (5, 6)


@pytest.mark.filterwarnings("ignore::monocal.CalibrationWarning")
@pytest.mark.parametrize("with_context", [False, True])
def test_scales_by_class_and_context_stay_with_few_rows_and_go_with_many(with_context):
    bias = np.array([3.0, 0.0, 0.0, 0.0, -3.0, 0.0])
    sure = np.array([0.5, 2.0])
    site = np.arange(5000) % 2

    def rows(data, n):
        context = {"context": {"site": site[:n]}} if with_context else {}
        return (data.values[:n] + bias) * sure[site[:n], None], data.labels[:n], context

    x, y, context = rows(OLD, 5000)
    old = mc.ConditionalMCCT().fit(x, y, **context)
    assert any(
        scales is not None for scales in (old.adjustment_.class_scales, *old.adjustment_.column_scales)
    )
    x, y, context = rows(NEW, 40)
    few = mc.ConditionalMCCT().fit(x, y, start=old, **context)
    assert few.adjustment_ is old.adjustment_
    assert "of the old calibrator: scales from" in few.by_class_
    all_x, all_y, all_known = rows(NEW, 5000)
    assert few.score(all_x, all_y, **all_known) > old.score(all_x, all_y, **all_known) - 0.01
    many = mc.ConditionalMCCT().fit(all_x, all_y, start=old, **all_known)
    assert many.adjustment_ is not old.adjustment_
    if with_context:
        with pytest.raises(mc.InputError, match="site"):
            mc.ConditionalMCCT().fit(x, y, start=old, context={"age": site[:40], "site": site[:40]})


def test_dense_outputs_go_on_from_an_old_calibrator():
    images, labels = NEW.values[:240].reshape(10, 4, 6, 6).swapaxes(1, 3), NEW.labels[:240].reshape(10, 4, 6)
    labels = labels.swapaxes(1, 2).copy()
    labels[0] = -100
    old = mc.MCCT(class_axis=1).fit(OLD.values[:, :, None, None], OLD.labels[:, None, None])
    new = mc.MCCT(class_axis=1, ignore_index=-100).fit(images, labels, start=old)
    rows = np.moveaxis(images, 1, -1).reshape(-1, 6)[24:]
    flat = mc.MCCT().fit(rows, labels.reshape(-1)[24:], start=mc.MCCT().fit(OLD.values, OLD.labels))
    np.testing.assert_allclose(new.weights_, flat.weights_, rtol=0.02)


def test_order_is_kept_and_a_start_that_does_not_fit_is_refused(tmp_path):
    old = mc.MCCT().fit(OLD.values, OLD.labels)
    new = mc.MCCT().fit(NEW.values[:50], NEW.labels[:50], start=old)
    assert mc.order_audit(NEW.values, new.transform(NEW.values), input="logits").preserved
    x, y = NEW.values[:50], NEW.labels[:50]
    with pytest.raises(mc.InputError, match="6"):
        mc.MCCT().fit(x[:, :5], np.minimum(y, 4), start=old)
    with pytest.raises(mc.InputError, match="start"):
        mc.MCCT().fit(x, y, start="old.json")
    with pytest.raises(mc.InputError, match="start_rows"):
        mc.MCCT().fit(x, y, start=old, start_rows=-1)
    with pytest.raises(mc.InputError, match="memory"):
        mc.MCCT().fit(lambda: iter([(x, y)]), start=old)


@pytest.mark.parametrize("method", [mc.TemperatureScaling, mc.ConditionalMCCT])
def test_thirty_rows_do_no_harm_and_fewer_are_refused(method):
    old = method().fit(OLD.values, OLD.labels)
    for first in range(0, 120, 30):
        rows = slice(first, first + 30)
        new = method().fit(NEW.values[rows], NEW.labels[rows], start=old, start_rows=1000)
        assert new.score(NEW.values, NEW.labels) > old.score(NEW.values, NEW.labels) - 0.01
    with pytest.raises(mc.InputError, match="too little"):
        method().fit(NEW.values[:5], NEW.labels[:5], start=old)


def test_what_fit_takes_start_takes():
    pyarrow = pytest.importorskip("pyarrow")
    old = mc.MCCT().fit(OLD.values, OLD.labels)
    x, y = NEW.values[:100].copy(), NEW.labels[:100].copy()
    expected = mc.MCCT().fit(x[10:], y[10:], start=old).weights_
    np.testing.assert_allclose(mc.MCCT().fit(x[10:], y[10:, None], start=old).weights_, expected)
    x[:10], y[:10] = np.nan, -1
    np.testing.assert_allclose(mc.MCCT(ignore_index=-1).fit(x, y, start=old).weights_, expected)
    named = pyarrow.table(dict(zip("abcdef", OLD.values.T, strict=True)))
    table = pyarrow.table(dict(zip("abcdef", x[10:].T, strict=True)))
    result = mc.MCCT().fit(table, y[10:], start=mc.MCCT().fit(named, OLD.labels))
    np.testing.assert_allclose(result.weights_, expected, rtol=1e-4)


def test_forgetting_weights():
    assert (
        mc.MCCT()
        .fit(OLD.values, OLD.labels, mc.forgetting_weights(n_rows=5000, half_life=9))
        .solution_.converged
    )
    np.testing.assert_allclose(mc.forgetting_weights([0.0, 10.0, 20.0], half_life=10), [1, 0.5, 0.25])
    np.testing.assert_allclose(mc.forgetting_weights(n_rows=3, half_life=1), [0.25, 0.5, 1])
    for wrong in ([-1.0], [[1.0]], [np.nan], None, ["a"]):
        with pytest.raises(mc.InputError, match="age"):
            mc.forgetting_weights(wrong, half_life=1)
    with pytest.raises(mc.InputError, match="half_life"):
        mc.forgetting_weights(n_rows=3, half_life=0)
