"""On a CUDA device the same answers as on the host, in order to the last bit. Skipped where there is none."""

import numpy as np
import pytest

import monocal as mc
from monocal.data import synthetic

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

# More than this many logits are computed in single precision, which is what the kernels take.
ROWS, CLASSES = 6000, 800


def logits_of(kind):
    data = synthetic(ROWS, CLASSES, seed=3)
    z = data.values.astype(np.float32)
    if kind == "tied":
        z = np.round(z * 8) / 8
    elif kind == "top tied":  # in half of the rows the two largest are equal
        top = np.sort(z, axis=1)[::2, -1:]
        z[::2] = np.where(z[::2] >= np.sort(z, axis=1)[::2, -2:-1], top, z[::2])
    elif kind == "masked":
        z[::3, ::5] = -np.inf
        z[np.arange(ROWS), data.labels] = np.where(
            np.isinf(z[np.arange(ROWS), data.labels]), 0.0, z[np.arange(ROWS), data.labels]
        )
    return z, data.labels


def order_kept(z, values):
    index = np.argsort(z, axis=1, kind="stable")
    z, values = np.take_along_axis(z, index, 1), np.take_along_axis(values, index, 1)
    step, tied = np.diff(values, axis=1), z[:, 1:] == z[:, :-1]
    return (step >= 0).all() and (step[tied] == 0).all()


@pytest.mark.parametrize("kind", ["plain", "tied", "top tied", "masked"])
@pytest.mark.parametrize(
    "calibrator", [mc.MCCT(), mc.MCCT(top_k=50), mc.TemperatureScaling(), mc.ConditionalMCCT()], ids=str
)
def test_same_fit_as_on_the_host(calibrator, kind):
    z, y = logits_of(kind)
    host = calibrator.__class__(**calibrator.get_params()).fit(z, y)
    there = calibrator.__class__(**calibrator.get_params()).fit(
        torch.as_tensor(z).cuda(), torch.as_tensor(y).cuda()
    )
    assert there.solution_.converged
    assert there.solution_.objective == pytest.approx(host.solution_.objective, abs=2e-6)
    on_device = there.predict_proba(torch.as_tensor(z).cuda())
    assert on_device.is_cuda
    on_device = on_device.cpu().numpy()
    assert np.abs(on_device - host.predict_proba(z)).max() < 1e-5
    assert order_kept(z, on_device)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    z, y = logits_of("plain")
    z = torch.as_tensor(z).to(dtype)
    there = mc.MCCT().fit(z.cuda(), torch.as_tensor(y).cuda())
    assert there.solution_.converged
    p = there.predict_proba(z.cuda())
    assert p.dtype == dtype
    p = p.cpu().float().numpy()
    host = mc.MCCT().fit(z.float().numpy(), y).predict_proba(z.float().numpy())
    assert (np.abs(p - host) < 1e-5 + torch.finfo(dtype).eps * host).all()
    assert order_kept(z.float().numpy(), p)
