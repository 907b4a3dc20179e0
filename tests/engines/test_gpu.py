"""On a CUDA device the same answers as on the host, in order to the last bit. Skipped where there is none."""

import numpy as np
import pytest
from sklearn.base import clone

import monocal as mc
from hostile import assert_order_kept, bent, mixed_rows
from monocal.data import synthetic

torch = pytest.importorskip("torch")
from monocal.engines import TRITON  # noqa: E402
from monocal.engines.array import ArrayEngine  # noqa: E402
from monocal.export import LogitsProcessor, to_torch  # noqa: E402  needs torch

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
    assert_order_kept(z, on_device)


@pytest.mark.parametrize("calibrator", [mc.MCCT(), mc.ConditionalMCCT(), mc.MCCT(top_k=50)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype, calibrator):
    z, y = logits_of("plain")
    z = torch.as_tensor(z).to(dtype)
    there = clone(calibrator).fit(z.cuda(), torch.as_tensor(y).cuda())
    assert there.solution_.converged
    p = there.predict_proba(z.cuda())
    assert p.dtype == dtype
    p = p.cpu().float().numpy()
    host = clone(calibrator).fit(z.float().numpy(), y).predict_proba(z.float().numpy())
    assert (np.abs(p - host) < 1e-5 + torch.finfo(dtype).eps * host).all()
    assert_order_kept(z.float().numpy(), p)


DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# Classes: few, as many as one kernel holds, and more than that.
WIDTHS = {12: 4, 900: 40, 9000: 40}


@pytest.fixture(scope="module", params=WIDTHS)
def fitted(request):
    """Maps with jumps among the rows below, fitted on the host."""
    m = request.param
    z, y = bent(m, n=60 if m > 1000 else 300)
    k = WIDTHS[m]
    shrunk = {"shrinkage": 0.0 if m < 1000 else 5.0}  # a thousand jumps are more than a kernel holds
    return m, [
        cal.fit(z, y)
        for cal in (
            mc.TemperatureScaling(),
            mc.MCCT(**shrunk),
            mc.MCCT(top_k=k, **shrunk),
            mc.ConditionalMCCT(shrinkage=1.0, by_class=False),
            mc.ConditionalMCCT(shrinkage=1.0, by_class=True),
            mc.ConditionalMCCT(shrinkage=1.0, top_k=k, statistics=("entropy", "log_odds", "spread")),
        )
    ]


def hostile_rows(m, dtype):
    rows = torch.as_tensor(mixed_rows(m, seed=m, each=3))
    limits = torch.finfo(dtype)
    return torch.where(torch.isinf(rows), rows, rows.clamp(limits.min, limits.max)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_hostile_rows_keep_their_order(fitted, dtype):
    m, calibrators = fitted
    rows = hostile_rows(m, dtype)
    for cal in calibrators:
        assert cal.rank_map_.has_kernels(rows.cuda())
        module = to_torch(cal).cuda()
        p = cal.predict_proba(rows.cuda())
        results = [p, cal.transform(rows.cuda()), module(rows.cuda()), module.log_probabilities(rows.cuda())]
        for values in results:
            assert values.dtype == dtype
            assert_order_kept(rows.double().numpy(), values.cpu().double().numpy())
        # In double precision: single precision on the host loses digits where the lowest class is far away (-3e38, say).
        host = cal.predict_proba(rows.double()).numpy()
        near = 2e-6 + 2 * torch.finfo(dtype).eps * host
        for values in (p, results[2]):
            assert (np.abs(values.cpu().double().numpy() - host) <= near).all(), cal
        if dtype == torch.float32:  # logarithms lose more in half precision than probabilities do
            assert (np.abs(results[3].cpu().double().exp().numpy() - host) <= near).all(), cal


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_row_alone_equals_the_row_in_the_batch(fitted, dtype):
    m, calibrators = fitted
    rows = hostile_rows(m, dtype).cuda()
    for cal in calibrators:
        p, f = cal.predict_proba(rows), cal.transform(rows)
        for i in range(0, len(rows), 5):
            assert torch.equal(cal.predict_proba(rows[i : i + 1])[0], p[i])
            assert torch.equal(cal.transform(rows[i : i + 1])[0], f[i])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [(np.nan, "contains NaN"), (np.inf, "contains infinity"), (-np.inf, "has -inf for every class")],
)
def test_what_is_wrong_is_refused_though_the_device_was_asked_first(fitted, wrong, message):
    m, calibrators = fitted
    rows = hostile_rows(m, torch.float32)
    rows[3] = wrong
    rows[5, 0] = wrong if np.isnan(wrong) else 0.0
    for cal in calibrators:
        for method in (cal.predict_proba, cal.transform, cal.predict):
            with pytest.raises(mc.InputError, match=f"{message}: first in row 3"):
                method(rows.cuda())
        assert torch.isfinite(cal.predict_proba(rows[6:9].cuda())).all()


@pytest.mark.parametrize("m", [1500, 3000])
def test_rows_that_several_warps_sort(m):
    z, y = bent(m, n=60)
    rows = hostile_rows(m, torch.float32)
    for cal in (mc.MCCT(), mc.ConditionalMCCT(shrinkage=1.0)):
        cal.fit(z, y)
        p = cal.predict_proba(rows.cuda()).cpu().double().numpy()
        assert_order_kept(rows.double().numpy(), p)
        host = cal.predict_proba(rows.double()).numpy()
        assert (np.abs(p - host) <= 2e-6 + 2 * torch.finfo(torch.float32).eps * host).all(), cal


@pytest.fixture(scope="module", params=WIDTHS)
def with_context(request):
    """Rows, labels, and what is known of them: a category and a number that both matter."""
    m = request.param
    z, y = bent(m, n=400 if m > 1000 else 600)
    rng = np.random.default_rng(4)
    group, number = rng.integers(0, 3, len(y)), rng.normal(size=len(y))
    top = z.argmax(axis=1)
    y = np.where((group == 0) | (number > 1), top, y)
    z = z.astype(np.float32)
    cal = mc.ConditionalMCCT(shrinkage=1.0, by_class=True)
    context = {"group": group, "number": number}
    return m, cal.fit(torch.as_tensor(z).cuda(), torch.as_tensor(y).cuda(), context=context)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_context(with_context, dtype):
    m, cal = with_context
    assert cal.adjustment_.solution.converged
    assert cal.adjustment_.column_scales[0].variance > 0
    rows = hostile_rows(m, dtype)
    n = len(rows)
    # Categories that no calibration row had, and missing numbers, among them.
    context = {"group": np.arange(n) % 4, "number": np.where(np.arange(n) % 5, np.linspace(-3, 3, n), np.nan)}
    codes = torch.as_tensor(cal.context_.codes(context)).cuda()
    module = to_torch(cal).cuda()
    p, f = (g(rows.cuda(), context=context) for g in (cal.predict_proba, cal.transform))
    results = [p, f, module(rows.cuda(), codes), module.log_probabilities(rows.cuda(), codes)]
    for values in results:
        assert values.dtype == dtype
        assert_order_kept(rows.double().numpy(), values.cpu().double().numpy())
    host = cal.predict_proba(rows.double(), context=context).numpy()
    near = 2e-6 + 2 * torch.finfo(dtype).eps * host
    for values in (p, results[2]):
        assert (np.abs(values.cpu().double().numpy() - host) <= near).all()
    for i in range(0, n, 7):
        one = {name: values[i : i + 1] for name, values in context.items()}
        assert torch.equal(cal.predict_proba(rows[i : i + 1].cuda(), context=one)[0], p[i])
        assert torch.equal(cal.transform(rows[i : i + 1].cuda(), context=one)[0], f[i])


@pytest.mark.parametrize("kind", ["vector", "matrix"])
@pytest.mark.parametrize("method", [mc.StructuredMCCT, mc.StructuredScaling])
def test_structured_maps(method, kind):
    data = synthetic(3000, 40, seed=5)
    z, y = data.values.astype(np.float32), data.labels
    there = torch.as_tensor(z).cuda()
    cal = method(kind=kind, shrinkage=1.0).fit(there, torch.as_tensor(y).cuda())
    p = cal.predict_proba(there)
    assert p.is_cuda
    host = method(kind=kind, shrinkage=1.0).fit(z, y).predict_proba(z)
    assert np.abs(p.cpu().numpy() - host).max() < 1e-4
    assert np.abs(to_torch(cal).cuda()(there).cpu().numpy() - p.cpu().numpy()).max() < 1e-5


def test_a_logits_processor_can_be_captured_in_a_graph(fitted):
    m, calibrators = fitted
    rows = hostile_rows(m, torch.float32).cuda()
    for cal in calibrators:
        process = LogitsProcessor(cal)
        logits = rows.clone()
        expected = process(None, logits)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = process(None, logits)
        logits.copy_(rows.flip(0))
        graph.replay()
        assert torch.equal(result.flip(0), expected)


def test_a_logits_processor_that_is_called_often(fitted):
    m, calibrators = fitted
    rows = hostile_rows(m, torch.float32).cuda()
    for cal in calibrators[1:5:3]:
        process = LogitsProcessor(cal)
        expected = process.module.to("cuda").log_probabilities(rows)
        for i in range(8):  # by and by as a graph
            logits = rows.roll(i, 0)
            assert torch.equal(process(None, logits), expected.roll(i, 0))
        assert torch.equal(process(None, rows[:3]), expected[:3])
        on_host = process(None, rows.cpu())  # and back
        assert on_host.device.type == "cpu"
        assert torch.equal(process(None, rows), expected)


@pytest.mark.parametrize("classes", [9000, 17_000])
def test_many_ranks(classes):
    """Nearly as many as the kernels of a fit hold, and more."""
    data = synthetic(600 if classes < 10_000 else 250, classes, seed=4)
    z, y = data.values.astype(np.float32), data.labels
    host = mc.MCCT().fit(z, y)
    there = mc.MCCT().fit(torch.as_tensor(z).cuda(), torch.as_tensor(y).cuda())
    assert there.solution_.converged
    assert there.solution_.objective == pytest.approx(host.solution_.objective, abs=2e-6)


@pytest.mark.parametrize("m", [1, 2, 33, 100, 1024, 1500, 4096, 5000])
def test_rows_of_every_length_are_sorted(m):
    rng = np.random.default_rng(m)
    z = torch.as_tensor(rng.normal(size=(7, m)).astype(np.float32))
    z[1] = z[1].round()  # ties
    z[2] = z[2, :1]
    z[3] = z[3].sort().values
    z[4] = z[3].flip(0)
    y = torch.as_tensor(rng.integers(0, m, 7))
    result = TRITON.prepare(z.cuda(), y.cuda(), None)[0]
    depth = z.max(dim=1, keepdim=True).values - z.sort(dim=1).values
    assert torch.equal(result.rows.depth.cpu(), depth)
    label = z.max(dim=1, keepdim=True).values - z.gather(1, y[:, None])
    assert torch.equal(result.label_depth.cpu(), label[:, 0])
    assert torch.equal(result.label_rank.cpu(), (depth > label).sum(dim=1))
    assert torch.equal(result.label_held.cpu(), (depth == label).sum(dim=1))
    tied = (depth[:, 1:] == depth[:, :-1]).any(dim=0).numpy()
    assert (result.rows.tied == np.append(False, tied)).all()


@pytest.mark.parametrize("m", [2, 33, 1500, 5000])
def test_masked_rows_are_prepared_as_by_array_operations(m):
    rng = np.random.default_rng(m)
    z = torch.as_tensor(rng.normal(size=(6, m)).astype(np.float32))
    z[1:3] = z[1:3].round()  # ties
    z[::2, : m // 2] = -np.inf
    z[3, 0] = -3e38  # a depth that is cut
    z[4, :-1] = -np.inf
    y = torch.full((6,), m - 1)
    result, plain = TRITON.prepare(z.cuda(), y.cuda(), None)[0], ArrayEngine().prepare(z, y, None)[0]
    for name in ("depth", "height", "top", "valid"):
        assert torch.equal(getattr(result.rows, name).cpu(), getattr(plain.rows, name)), name
    for name in ("label_depth", "label_rank", "label_held"):
        assert torch.equal(getattr(result, name).cpu(), getattr(plain, name)), name
    assert (result.rows.tied == plain.rows.tied).all()
