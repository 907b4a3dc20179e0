"""Every form of input in, the same form out; every bad input a sentence that names it."""

import re

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

import monocal as mc


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 4)) * 3
    return z, np.where(rng.random(60) < 0.7, z.argmax(axis=1), rng.integers(0, 4, 60))


@pytest.fixture(scope="module")
def fitted(data):
    return mc.MCCT().fit(*data)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_type_in_type_out(data, fitted, dtype):
    p = fitted.predict_proba(data[0].astype(dtype))
    assert p.dtype == dtype
    np.testing.assert_allclose(p.sum(axis=1, dtype=np.float64), 1, atol=4 * np.finfo(dtype).eps)
    assert fitted.predict_proba(np.round(data[0]).astype(int)).dtype == np.float64


@pytest.mark.parametrize("dtype", [">f8", "<f8", ">f4", "<f4"])
def test_any_byte_order(data, dtype):
    z = data[0].astype(dtype)
    native = z.astype(z.dtype.newbyteorder("="))
    y, w = data[1], np.arange(1.0, 61.0)
    cal = mc.MCCT().fit(z, y.astype(">i4"), w.astype(">f8"))
    expected = mc.MCCT().fit(native, y, w)
    for method in ("predict_proba", "transform"):
        got, reference = getattr(cal, method)(z), getattr(expected, method)(native)
        np.testing.assert_array_equal(got, reference)
        assert got.dtype == reference.dtype == native.dtype
    assert mc.metrics.nll(cal.predict_proba(z).astype(dtype), y) == mc.metrics.nll(cal.predict_proba(z), y)


def test_input_is_not_changed_and_labels_may_be_of_any_whole_type(data):
    y = np.array([0, 1, 1, 0])
    expected = mc.MCCT().fit(GOOD, y).predict_proba(GOOD)
    for dtype in ("u8", "i2", "f2", bool, object):
        np.testing.assert_array_equal(mc.MCCT().fit(GOOD, y.astype(dtype)).predict_proba(GOOD), expected)
    z, y = data[0].copy(), data[1].copy()
    z.setflags(write=False)
    y.setflags(write=False)
    mc.MCCT().fit(z, y).predict_proba(z)
    np.testing.assert_array_equal(z, data[0])


def test_zero_probabilities_are_no_masks():
    p = np.array([[0.5, 0.5, 0.0], [0.9, 0.1, 0.0], [0.0, 0.3, 0.7], [1.0, 0.0, 0.0]])
    cal = mc.MCCT(input="probabilities").fit(p, [2, 0, 2, 1])
    q = cal.predict_proba(p)
    assert (q > 0).all()
    assert np.isfinite(q).all()
    tiny = np.array([[1.0, 1e-300, 0.0], [1.0, 0.0, 5e-324]])
    q = cal.predict_proba(tiny)
    assert q[0, 1] >= q[0, 2]
    assert q[1, 2] >= q[1, 1]


GOOD = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    ("x", "y", "weight", "words"),
    [
        (np.where(GOOD == 4, np.nan, GOOD), [0, 1, 2, 0], None, "X contains NaN: first in row 1"),
        (np.where(GOOD == 7, np.inf, GOOD), [0, 1, 2, 0], None, "contains infinity: first in row 2"),
        (np.where(GOOD >= 9, -np.inf, GOOD), [0, 1, 2, 0], None, "-inf for every class: first in row 3"),
        (GOOD[0], [0], None, "must be two-dimensional"),
        (GOOD[:0], [], None, "0 sample"),
        ([[1, 2], [3]], [0, 1], None, "rows of one length"),
        ([["a", "b"]], [0], None, "must be a real number"),
        (GOOD, [0, 1, 2], None, "3 labels and X has 4 rows"),
        (GOOD, [0, 1, 3, 0], None, "label 3 in row 2 is not one of the 3 classes"),
        (GOOD, [0, 1, np.nan, 0], None, "label nan in row 2"),
        (GOOD, ["a", "b", "c", "a"], None, "class number 0..2"),
        (GOOD, np.eye(3)[[0, 1, 2, 0]], None, "argmax"),
        (GOOD, None, None, "y to be passed"),
        (
            np.where(GOOD == 4, -np.inf, GOOD),
            [0, 1, 2, 0],
            None,
            "label 1 of row 1 is a class with logit -inf",
        ),
        (GOOD, [0, 1, 2, 0], [1, 1, -2, 1], "entry 2 is negative"),
        (GOOD, [0, 1, 2, 0], [1, np.inf, 2, 1], "entry 1 is not finite"),
        (GOOD, [0, 1, 2, 0], [0, 0, 0, 0], "all weights are zero"),
        (GOOD, [0, 1, 2, 0], [1, 1], "2 entries, expected 4"),
        (GOOD + 1j, [0, 1, 2, 0], None, "Complex data not supported"),
        (GOOD, [0, 1, 2, 0], ["a", "b", "c", "d"], "sample_weight: every entry must be a real number"),
        (GOOD, [0, 1, 2, 0], 1j, "sample_weight: Complex data not supported"),
        (
            GOOD,
            [0, 1, 2, 0],
            np.ma.masked_array(np.ones(4), mask=[0, 0, 0, 1]),
            "sample_weight: masked entries",
        ),
    ],
)
def test_bad_calibration_data(x, y, weight, words):
    with pytest.raises(mc.InputError, match=words):
        mc.MCCT().fit(x, y, sample_weight=weight)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"shrinkage": -1}, "shrinkage must be a number of at least 0"),
        ({"shrinkage": "auto"}, "'cv'"),
        ({"top_k": 0}, "top_k must be a whole number of at least 1"),
        ({"tol": 0}, "tol must be a number above 0"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"input": "probs"}, "input must be one of 'logits', 'probabilities'"),
    ],
)
def test_bad_parameters(data, parameters, words):
    with pytest.raises(mc.InputError, match=words):
        mc.MCCT(**parameters).fit(*data)


@pytest.mark.parametrize(
    ("p", "words"),
    [
        (np.array([[0.5, 0.6], [0.5, 0.5]]), "row 0 sums to 1.1 .*For logits use input='logits'"),
        (np.array([[0.5, 0.5], [1.5, -0.5]]), "row 1 contains the negative value -0.5"),
        (np.array([[0.5, np.nan], [0.5, 0.5]]), "row 0 contains NaN"),
        (np.array([[0.5, np.inf], [0.5, 0.5]]), "row 0 sums to inf"),
        (
            np.array([[0.5], [0.7]]),
            "row 0 sums to 0.5 .* One score of two classes is calibrated by BinaryMCCT",
        ),
    ],
)
def test_bad_probabilities(p, words):
    with pytest.raises(mc.InputError, match=words):
        mc.MCCT(input="probabilities").fit(p, [0, 1])


def test_use_before_fit_and_other_shapes(data, fitted):
    for method in ("predict", "predict_proba", "transform"):
        for X in (data[0], mc.TopK([[0.0, -1.0]], [[1, 0]], 0.5), lambda: [data[0]]):
            with pytest.raises(NotFittedError):
                getattr(mc.MCCT(), method)(X)
        with pytest.raises(ValueError, match="X has 3 features, but MCCT is expecting 4 features"):
            getattr(fitted, method)(data[0][:, :3])
    with pytest.raises(mc.InputError, match="row 5"):
        fitted.predict_proba(np.where(np.arange(60)[:, None] == 5, np.nan, data[0]))


def test_a_failed_fit_keeps_the_old_one(data, fitted):
    before = fitted.predict_proba(data[0])
    with pytest.raises(mc.InputError):
        fitted.fit(data[0], np.full(60, 9))
    np.testing.assert_array_equal(fitted.predict_proba(data[0]), before)


LABELS = np.array([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda x: x + 1j, "Complex data not supported"),
        (lambda x: scipy.sparse.coo_array(x), "sparse input is not supported"),
        (lambda x: x.astype("M8[s]"), "datetime64"),
        (lambda x: x.astype(str), "they are of type <U"),
        (lambda x: x.astype("V8"), "they are of type"),
        (lambda x: np.full(x.shape, {"a": 1}), "not 'dict'"),
        (lambda x: np.ma.masked_array(x, mask=x > 1), "masked entries"),
    ],
)
def test_types_that_make_no_sense(bad, words):
    check_refused(bad, words)


def check_refused(bad, words, good=GOOD):
    """Logits, probabilities, labels and weights of a bad type are refused in these words."""
    with pytest.raises(mc.InputError, match=words):
        mc.MCCT().fit(bad(GOOD), LABELS)
    with pytest.raises(mc.InputError, match=words):
        mc.metrics.ece(bad(GOOD), LABELS)
    with pytest.raises(mc.InputError, match=words):
        mc.MCCT().fit(good, bad(LABELS))
    with pytest.raises(mc.InputError, match=words):
        mc.MCCT().fit(good, LABELS, sample_weight=bad(LABELS + 1))


@pytest.mark.parametrize("label", [np.uint64(2**64 - 1), 1e300, np.inf])
def test_labels_too_large_for_an_integer_are_named(label):
    y = np.array([0, 1, label, 0], dtype=np.asarray(label).dtype)
    with pytest.raises(mc.InputError, match=f"label {re.escape(str(label))} in row 2"):
        mc.MCCT().fit(GOOD, y)


def test_a_row_of_weight_zero_may_have_any_label():
    z = np.where(np.arange(12).reshape(4, 3) == 4, -np.inf, GOOD)
    assert mc.MCCT().fit(z, [0, 1, 2, 0], sample_weight=[1, 0, 1, 1]).solution_.converged
