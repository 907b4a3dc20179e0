"""Tensors and data frames in, the same form out; what torch has and numpy has not, refused in a sentence."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from test_inputs import GOOD, HUGE, check_refused

import monocal as mc
from hostile import bent

torch = pytest.importorskip("torch")


def test_frames():
    z, y = bent(4)
    frame = pd.DataFrame(z, columns=list("abcd"), index=np.arange(len(z)) + 7)
    from_frame = mc.MCCT().fit(frame, pd.Series(y))
    result = from_frame.predict_proba(frame)
    assert isinstance(result, pd.DataFrame)
    assert list(result.columns) == list("abcd")
    assert result.index.equals(frame.index)
    np.testing.assert_allclose(result.to_numpy(), mc.MCCT().fit(z, y).predict_proba(z), rtol=1e-9)
    assert isinstance(from_frame.predict(frame), pd.Series)


def test_tensors():
    z, y = bent(4)
    tensor = torch.as_tensor(z)
    from_tensor = mc.MCCT().fit(tensor, torch.as_tensor(y))
    result = from_tensor.predict_proba(tensor)
    assert isinstance(result, torch.Tensor)
    np.testing.assert_allclose(result.numpy(), mc.MCCT().fit(z, y).predict_proba(z), rtol=1e-9)
    assert isinstance(from_tensor.predict(tensor), torch.Tensor)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-2), (torch.float32, 1e-2), (torch.float16, 2**-5), (torch.bfloat16, 2**-3.5)],
)
def test_calibrators_and_metrics_accept_the_same_probabilities(dtype, tolerance):
    def rows(total):
        return torch.tensor([[total / 2, total / 2], [0.5, 0.5]], dtype=torch.float64).to(dtype)

    cal = mc.TemperatureScaling(input="probabilities")
    for sign in (-1, 1):
        fine, off = rows(1 + 0.9 * sign * tolerance), rows(1 + 1.2 * sign * tolerance)
        cal.fit(fine, [0, 1])
        mc.metrics.nll(fine, [0, 1])
        with pytest.raises(
            mc.InputError, match="X: expected non-negative rows that sum to one, but row 0 sums to"
        ):
            cal.fit(off, [0, 1])
        with pytest.raises(
            mc.InputError, match="probs: expected non-negative rows that sum to one, but row 0 sums to"
        ):
            mc.metrics.nll(off, [0, 1])


@pytest.mark.parametrize("good", [GOOD, torch.tensor(GOOD)], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda x: torch.tensor(x).to(torch.float8_e4m3fn), "type torch.float8_e4m3fn are not supported"),
        (lambda x: torch.tensor(x).to_sparse(), "sparse and nested tensors are not supported"),
        (lambda x: torch.tensor(x, device="meta"), "meta device holds no values"),
        (lambda x: torch.tensor(x) + 1j, "Complex data not supported"),
        (lambda x: x + 1j, "Complex data not supported"),
        (lambda x: x.astype("M8[s]"), "datetime64"),
        (lambda x: np.ma.masked_array(x, mask=x > 1), "masked entries"),
    ],
)
def test_types_that_make_no_sense(good, bad, words):
    check_refused(bad, words, good)


@pytest.mark.parametrize("dtype", ["u1", "u8", "i2", "f2", bool])
def test_labels_of_any_whole_type(dtype):
    y = np.array([0, 1, 1, 0])
    tensor = mc.MCCT().fit(torch.tensor(GOOD), torch.tensor(y.astype(dtype)))
    expected = mc.MCCT().fit(GOOD, y).predict_proba(GOOD)
    np.testing.assert_allclose(tensor.predict_proba(GOOD), expected, rtol=1e-9)


@pytest.mark.parametrize("label", HUGE)
def test_labels_too_large_for_an_integer_are_named(label):
    y = np.array([0, 1, label, 0], dtype=np.asarray(label).dtype)
    with pytest.raises(mc.InputError, match=f"label {re.escape(str(label))} in row 2"):
        mc.MCCT().fit(GOOD, torch.tensor(y))


@pytest.mark.parametrize("cal", [mc.TemperatureScaling(), mc.MCCT(), mc.ConditionalMCCT()], ids=str)
def test_a_transposed_tensor_is_an_array_like_any_other(cal):
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(10, 200)).astype(np.float32), rng.integers(0, 10, 200)
    given = torch.as_tensor(z).T
    p = clone(cal).fit(given, torch.as_tensor(y)).predict_proba(given)
    np.testing.assert_allclose(p.numpy(), cal.fit(z.T.copy(), y).predict_proba(z.T.copy()), atol=1e-6)
