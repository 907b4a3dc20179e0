"""What torch has and numpy has not: its types, sparse tensors, the meta device, transposes."""

import numpy as np
import pytest
from sklearn.base import clone
from test_inputs import GOOD, check_refused

import monocal as mc

torch = pytest.importorskip("torch")


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
        (lambda x: torch.tensor(x).to_sparse(), "sparse and nested tensors"),
        (lambda x: torch.tensor(x, device="meta"), "on the meta device"),
        (lambda x: torch.tensor(x) + 1j, "Complex data not supported"),
        (lambda x: x + 1j, "Complex data not supported"),
        (lambda x: x.astype("M8[s]"), "datetime64"),
        (lambda x: np.ma.masked_array(x, mask=x > 1), "masked entries"),
    ],
)
def test_types_that_make_no_sense(good, bad, words):
    check_refused(bad, words, good)


@pytest.mark.parametrize("cal", [mc.TemperatureScaling(), mc.MCCT(), mc.ConditionalMCCT()], ids=str)
def test_a_transposed_tensor_is_an_array_like_any_other(cal):
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(10, 200)).astype(np.float32), rng.integers(0, 10, 200)
    tensor = torch.as_tensor(z).T
    p = clone(cal).fit(tensor, torch.as_tensor(y)).predict_proba(tensor)
    np.testing.assert_allclose(p.numpy(), cal.fit(z.T.copy(), y).predict_proba(z.T.copy()), atol=1e-6)
