"""One map for every array library: numpy, torch, jax and ONNX run the same function, and a calibrator plugs in by its formula."""

import numpy as np
import pytest
from exportable import M, fit_set, fitted_kind, hostile_rows, sane

import monocal as mc
from hostile import assert_order_kept
from monocal.core.libraries import namespace_of
from monocal.core.map import FUNCTIONS, MapRows, MapStep, apply, map_of

LIBRARIES = {
    "numpy": lambda x: x,
    "torch": lambda x: pytest.importorskip("torch").from_numpy(np.array(x)),
    "jax": lambda x: pytest.importorskip("jax").numpy.asarray(x),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", ["mcct", "conditional", "conditional top 3"])
def test_the_same_map_in_every_library(kind, library):
    cal, array = fitted_kind(kind), LIBRARIES[library]
    rows = hostile_rows()
    rows = rows[sane(rows)]
    steps = [
        (
            s.kind,
            {n: array(x.astype(np.float32) if x.dtype.kind == "f" else x) for n, x in s.arrays.items()},
            s.static,
        )
        for s in map_of(cal).steps
    ]
    z = array(rows)
    with np.errstate(all="ignore"):
        if library == "jax":
            with pytest.importorskip("jax").enable_x64(True):
                p = np.asarray(apply(z, steps, namespace_of(z)))
        else:
            p = np.asarray(apply(z, steps, namespace_of(z)))
    np.testing.assert_allclose(p, cal.predict_proba(rows.astype(np.float64)), rtol=0, atol=2e-6)
    assert_order_kept(rows, p)


@pytest.mark.parametrize("mask", [-1e4, -9e5, -3e38])
@pytest.mark.parametrize("kind", ["temperature", "mcct", "conditional top 3"])
def test_a_finite_mask_takes_no_digits(kind, mask):
    """What masks a class is the lowest logit; all is measured from the top, so single precision is enough."""
    torch, ort = pytest.importorskip("torch"), pytest.importorskip("onnxruntime")
    cal = fitted_kind(kind)
    rows = np.random.default_rng(0).normal(size=(200, M)).astype(np.float32) * 3
    rows[:, 2] = mask
    exact = cal.to_torch(dtype=torch.float64)(torch.from_numpy(rows).double()).numpy()
    module = cal.to_torch()
    result = {
        "numpy": module(torch.from_numpy(rows)).numpy(),
        "torch": module(torch.from_numpy(rows).requires_grad_()).detach().numpy(),
        "logs": module.log_probabilities(torch.from_numpy(rows)).exp().numpy(),
        "onnx": ort.InferenceSession(cal.to_onnx().SerializeToString()).run(None, {"logits": rows})[0],
    }
    for name, p in result.items():
        np.testing.assert_allclose(p, exact, rtol=0, atol=2e-6, err_msg=name)
        assert_order_kept(rows, p)


class Cubed(mc.TemperatureScaling):
    """A calibrator with a formula of its own: f = -(a v)^3 for depths v below the top."""

    def _map_steps(self):
        return [MapStep("cubed", {"a": np.array([0.5])}, {})]


def cubed(z, a, s, xp, context):
    x = xp.permute_dims(z, (1, 0))
    v = xp.max(x, axis=0) - x
    return MapRows(-((a["a"] * v) ** 3), lower=v > 0)


def test_a_calibrator_plugs_in_by_its_formula(monkeypatch):
    torch, ort = pytest.importorskip("torch"), pytest.importorskip("onnxruntime")
    monkeypatch.setitem(FUNCTIONS, "cubed", cubed)
    z, y = fit_set()
    z = np.nan_to_num(z, neginf=-9.0)
    cal = Cubed().fit(z, y)
    f = -((0.5 * (z.max(axis=1, keepdims=True) - z)) ** 3)
    expected = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    x = z.astype(np.float32)
    np.testing.assert_allclose(cal.to_torch()(torch.from_numpy(x)), expected, rtol=0, atol=2e-6)
    graph = ort.InferenceSession(cal.to_onnx().SerializeToString())
    np.testing.assert_allclose(graph.run(None, {"logits": x})[0], expected, rtol=0, atol=2e-6)
    from monocal.export import from_state_dict

    again = from_state_dict(cal.to_torch().state_dict())
    assert torch.equal(again(torch.from_numpy(x)), cal.to_torch()(torch.from_numpy(x)))
