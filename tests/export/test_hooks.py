"""Calibrated scores behind a model: a hook, a logits processor, padded vocabularies, vLLM's interface."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from exportable import KINDS, M, fit_set, fitted_kind, hostile_rows, sane

import monocal as mc
from hostile import assert_order_kept

torch = pytest.importorskip("torch")

from monocal.export import LogitsProcessor, attach  # noqa: E402  needs torch


@pytest.fixture
def rows():
    return torch.from_numpy(hostile_rows())


@pytest.fixture(params=["temperature", "mcct", "conditional"])
def fitted(request):
    return fitted_kind(request.param)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("normalize", [True, False], ids=["normalized", "logits"])
def test_a_processor_keeps_every_promise(dtype, normalize, rows, fitted):
    process = LogitsProcessor(fitted, normalize=normalize)
    limit = 6e4 if dtype == torch.float16 else 3e38
    z = rows.clamp(-limit, limit).where(~torch.isinf(rows), rows).to(dtype)
    before = z.clone()
    got = process(None, z)
    assert got.dtype == dtype
    assert_order_kept(z.double().numpy(), got.double().numpy())
    assert (torch.isinf(got) == torch.isinf(z)).all()
    module = fitted.to_torch()
    assert torch.equal(got, module.log_probabilities(z) if normalize else module.transform(z))
    assert process(None, z[:0]).shape == (0, M)
    assert process(None, z[0]).shape == (M,)
    assert torch.equal(process(None, z[:6].reshape(2, 3, M)).reshape(6, M), got[:6])
    assert torch.equal(z, before)


@pytest.mark.parametrize("kind", KINDS)
def test_padded_vocabularies(kind, rows):
    """Columns behind those of the fit are tokens like others: the order over all stands, and the ranks above are the same."""
    cal = fitted_kind(kind)
    module = cal.to_torch()
    z = rows[sane(rows.numpy())]
    masked = torch.cat([z, torch.full((len(z), 3), -torch.inf)], dim=1)
    process = LogitsProcessor(cal, pad=True)
    torch.testing.assert_close(
        process(None, masked)[:, :M].exp(), module.log_probabilities(z).exp(), rtol=0, atol=2e-6
    )
    low = torch.cat(
        [z, z.where(~torch.isinf(z), torch.inf).amin(1, keepdim=True) - torch.rand(len(z), 3)], dim=1
    )
    got = process(None, low)
    assert_order_kept(low.double().numpy(), got.double().numpy())
    torch.testing.assert_close(got.exp().sum(1), torch.ones(len(z)))
    torch.testing.assert_close(process(None, z), LogitsProcessor(cal)(None, z))  # and back to its own width


def test_what_cannot_be_padded_is_refused(rows):
    z, y = fit_set()
    process = LogitsProcessor(fitted_kind("mcct"))
    with pytest.raises(mc.InputError, match=rf"have {M + 1} columns, .* on {M} classes. Give pad=True"):
        process(None, torch.zeros(2, M + 1))
    with pytest.raises(mc.InputError, match=rf"have {M - 1} columns, .* on {M} classes\.$"):
        LogitsProcessor(fitted_kind("mcct"), pad=True)(None, torch.zeros(2, M - 1))
    by_class = mc.StructuredScaling(kind="vector").fit(np.nan_to_num(z, neginf=-30.0), y)
    with pytest.raises(mc.InputError, match="pad=True needs a calibrator by rank"):
        LogitsProcessor(by_class, pad=True)(None, torch.zeros(2, M + 1))


def test_a_model_with_a_calibrator_attached(rows):
    cal = fitted_kind("mcct")
    model = torch.nn.Sequential(torch.nn.Identity())
    with attach(model, cal):
        assert torch.equal(model(rows), cal.to_torch().transform(rows))
        with pytest.raises(mc.InputError, match="has a calibrator already"):
            attach(model, cal)
        with pytest.warns(UserWarning, match=r"do not hold the calibrator .*calibrator\.save\(path\)"):
            model.state_dict()
    assert torch.equal(model(rows), rows)
    model.state_dict()  # nothing is attached, and nothing is said

    class Pair(torch.nn.Module):
        def forward(self, x):
            return x, x

    pair = Pair()
    attach(pair, cal)
    with pytest.raises(mc.InputError, match="returned tuple, expected a tensor of logits"):
        pair(rows)
    p = np.full((4, 2), 0.5)
    with pytest.raises(mc.InputError, match="fitted on probabilities, but models give logits"):
        attach(model, mc.TemperatureScaling(input="probabilities").fit(p, [0, 1, 0, 1]))
    data = mc.data.synthetic(200, 3)
    with_context = mc.ConditionalMCCT().fit(data.values, data.labels, context=np.arange(200) % 2)
    for wrap in (lambda cal: attach(model, cal), LogitsProcessor):
        with pytest.raises(mc.InputError, match="fitted with context, which a model does not give"):
            wrap(with_context)


@pytest.fixture
def vllm(monkeypatch):
    """The fake in place of vLLM, and monocal's module as it is where vLLM is installed."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "fake_vllm"))
    name = "monocal.export.vllm_logits"
    sys.modules.pop(name, None)
    fake = importlib.import_module("vllm.v1.sample.logits_processor")
    yield fake
    for loaded in [m for m in sys.modules if m == name or m.split(".")[0] == "vllm"]:
        del sys.modules[loaded]


def request(temperature=1.0, **extra):
    return SimpleNamespace(temperature=temperature, extra_args=extra or None)


def test_vllm_samples_from_calibrated_probabilities(vllm, fitted):
    from monocal.export.vllm_logits import vllm_processor

    z = torch.from_numpy(np.nan_to_num(fit_set()[0][:5], neginf=-20.0)).float()
    engine = vllm.Engine(vllm_processor(fitted))
    assert engine.made.is_argmax_invariant() is True
    added = [request(), request(0.7), request(0.0), request(1.3), request(monocal=False)]
    engine.update(added=[(i, params, [1, 2], []) for i, params in enumerate(added)])
    greedy, p = engine.step(z)
    module = fitted.to_torch()
    assert torch.equal(greedy, z.argmax(1))
    f = module.transform(z)
    for i, t in ((0, 1.0), (1, 0.7), (3, 1.3)):  # the temperature of a request is that of calibrated logits
        torch.testing.assert_close(p[i], (f[i] / t).softmax(-1), rtol=0, atol=3e-6)
    torch.testing.assert_close(p[4], z[4].softmax(-1))
    # Requests come, go and move, and each takes along what it asked for.
    engine.update()
    engine.update(removed=[0], moved=[(4, 0, vllm.MoveDirectionality.UNIDIRECTIONAL)])
    engine.update(moved=[(1, 3, vllm.MoveDirectionality.SWAP)])
    _, p = engine.step(z[:4])
    torch.testing.assert_close(p[0], z[0].softmax(-1))
    for i, t in ((1, 1.3), (3, 0.7)):
        torch.testing.assert_close(p[i], (f[i] / t).softmax(-1), rtol=0, atol=3e-6)
    engine.update(added=[(0, request(), None, [])])
    torch.testing.assert_close(engine.step(z[:4])[1][0], module(z[:1])[0], rtol=0, atol=3e-6)
    with pytest.raises(ValueError, match="'monocal' must be true or false, but is 'no'"):
        engine.update(added=[(1, request(monocal="no"), None, [])])
    z = torch.from_numpy(hostile_rows())
    z = z[sane(z.numpy())]
    for temperature in (0.7, 1.37):
        added = [(i, request(temperature), None, []) for i in range(len(z))]
        engine.made.update_state(vllm.BatchUpdate(len(z), added=added))
        assert_order_kept(z.numpy(), engine.made.apply(z).numpy())
    wide = torch.cat([z, z[:, :2] - 1.0], dim=1)  # a vocabulary that was filled up
    assert engine.made.apply(wide).shape == wide.shape
    assert engine.made.apply(z[:0]).shape == (0, M)
    for temperature in (np.inf, np.nan):
        with pytest.raises(ValueError, match="temperature must be a finite number, but is"):
            engine.update(added=[(1, request(temperature), None, [])])
        # Where the class was not asked, such a request has calibrated logits of the temperature 1.
        engine.made.update_state(vllm.BatchUpdate(1, added=[(0, request(temperature), None, [])]))
        torch.testing.assert_close(engine.made.apply(z[:1]).softmax(-1), module(z[:1]), rtol=0, atol=3e-6)


def test_vllm_loads_the_class_by_name(vllm, tmp_path, monkeypatch):
    cal = fitted_kind("mcct")
    cal.save(tmp_path / "cal.json")
    z = torch.randn(2, M)
    name = "monocal.export.vllm_logits:CalibratedLogits"
    monkeypatch.delenv("MONOCAL_CALIBRATOR", raising=False)
    with pytest.raises(mc.InputError, match="There is no calibrator: name the file"):
        vllm.Engine(name)
    engines = [
        vllm.Engine(
            name, SimpleNamespace(additional_config={"monocal_calibrator": str(tmp_path / "cal.json")})
        )
    ]
    monkeypatch.setenv("MONOCAL_CALIBRATOR", str(tmp_path / "cal.json"))
    engines.append(vllm.Engine(name, SimpleNamespace(additional_config={})))
    for engine in engines:
        engine.update(added=[(i, request(), None, []) for i in range(2)])
        torch.testing.assert_close(engine.step(z)[1], cal.to_torch()(z), rtol=0, atol=3e-6)


def test_a_calibrator_that_may_change_the_order_says_so(vllm):
    from monocal.export.vllm_logits import vllm_processor

    z, y = fit_set()
    cal = mc.StructuredScaling(kind="vector").fit(np.nan_to_num(z, neginf=-30.0), y)
    engine = vllm.Engine(vllm_processor(cal))
    assert engine.made.is_argmax_invariant() is False
    engine.update(added=[(i, request(0.7), None, []) for i in range(4)])
    x = torch.from_numpy(np.nan_to_num(z[:4], neginf=-30.0)).float()
    torch.testing.assert_close(engine.step(x)[1], (cal.to_torch().transform(x) / 0.7).softmax(-1))
