"""The order of the classes, kept on torch tensors."""

import pytest

import monocal as mc
from hostile import assert_order_kept, bent, hard_rows
from monocal.arrays import ordered_exp

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("top_k", [None, 7])
def test_torch_tensors_keep_their_order_and_type(dtype, top_k):
    z, y = bent(30)
    cal = mc.MCCT(shrinkage=0, top_k=top_k).fit(z, y)
    rows = torch.as_tensor(hard_rows(30, 2))
    rows = rows.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max).to(dtype)
    for result in (cal.predict_proba(rows), cal.transform(rows)):
        assert result.dtype == dtype
        assert_order_kept(rows.double().numpy(), result.double().numpy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("centre", [-1e-3, -0.5, -1.0, -3.3, -17.0, -40.0, -86.9, -95.0])
def test_exp_is_monotone_in_the_last_bit(dtype, centre):
    start = torch.tensor(centre, dtype=dtype)
    unit = torch.nextafter(start.abs(), start.abs() + 1) - start.abs()
    x = (torch.cumsum(unit.repeat(200_000), dim=0) + start).clamp(max=0)
    assert (torch.diff(ordered_exp(x.sort().values)) >= 0).all()
