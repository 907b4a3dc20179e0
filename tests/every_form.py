"""Every method, every form of array and every export, and what must hold of whatever they answer.

A new method joins through the registry, a form or an export by a line in its list, a kind of row by a line in
`hostile.ROW_KINDS`.
"""

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import monocal as mc
from hostile import assert_order_kept
from monocal.calibrators.cone_calibrator import ConeCalibrator
from monocal.core.statistics import STATISTICS
from monocal.engines import numba_engine
from monocal.errors import OrderWarning

torch = pytest.importorskip("torch")

M = 20
ALL_STATISTICS = tuple(STATISTICS)
METHODS = {info.name: info.make for info in mc.all_calibrators()} | {
    "MCCT, many jumps": lambda: mc.MCCT(shrinkage=0),
    "MCCT, top 5": lambda: mc.MCCT(shrinkage=0, top_k=5),
    "conditional, all statistics": lambda: mc.ConditionalMCCT(shrinkage=0.1, statistics=ALL_STATISTICS),
    "conditional, top 5": lambda: mc.ConditionalMCCT(shrinkage=0.1, statistics=ALL_STATISTICS, top_k=5),
    "conditional, top 1": lambda: mc.ConditionalMCCT(shrinkage=0.1, top_k=1),
    "conditional, by class": lambda: mc.ConditionalMCCT(shrinkage=0.1, by_class=True),
    "conditional, not by class": lambda: mc.ConditionalMCCT(shrinkage=0.1, by_class=False),
}
CONES = [name for name, make in METHODS.items() if isinstance(make(), ConeCalibrator)]
# The rounding of a matrix product depends on how many rows it is given; all else is the same to the last bit.
MATRIX_PRODUCTS = {"MS", "MS published", "Dirichlet", "PTS", "PTS published", "OI", "OP", "SMS", "Stacked"}
# Forms of array: the type, and whether it goes through the compiled loops.
FORMS: dict[str, tuple[Any, bool]] = {
    "numpy float64": (np.float64, False),
    "numpy float32": (np.float32, False),
    "numpy float16": (np.float16, False),
    "compiled float32": (np.float32, True),
    "torch float64": (torch.float64, False),
    "torch float32": (torch.float32, False),
    "torch float16": (torch.float16, False),
    "torch bfloat16": (torch.bfloat16, False),
}


def as_module(dtype):
    def make(cal, method):
        module = cal.to_torch() if dtype is None else cal.to_torch(dtype=dtype)
        return module if method == "predict_proba" else module.transform

    return make


def as_graph(dtype):
    def make(cal, method):
        ort = pytest.importorskip("onnxruntime")
        output = "probabilities" if method == "predict_proba" else "logits"
        model = cal.to_onnx(dtype=dtype, output=output)
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda rows: session.run(None, {name: rows})[0]

    return make


# A calibrator somewhere else: ``make(cal, method)`` gives a function of rows of the type.
EXPORTS: dict[str, tuple[Any, Any]] = {
    "torch module float64": (as_module(torch.float64), torch.float64),
    "torch module float32": (as_module(None), torch.float32),
    "torch module float16": (as_module(None), torch.float16),
    "torch module bfloat16": (as_module(None), torch.bfloat16),
    "onnx float32": (as_graph("float32"), np.float32),
    "onnx float64": (as_graph("float64"), np.float64),
}


def calibration_rows(m, n=500, seed=0):
    """Logits and labels that want a map with many jumps, far from temperature scaling."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, m)) * 3
    return z, np.argsort(-z, axis=1)[np.arange(n), np.minimum(rng.geometric(0.35, n), m) - 1]


@cache
def fitted(name, m=M):
    cal = METHODS[name]()
    if "max_epochs" in cal.get_params():
        cal.set_params(max_epochs=10, validation=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cal.fit(*calibration_rows(m))


def through_loops(form, monkeypatch):
    """The type of a form; from here on small arrays go through the compiled loops, where the form says so."""
    dtype, loops = FORMS[form]
    if loops:
        pytest.importorskip("numba")
        monkeypatch.setattr(numba_engine, "LARGE", 1)
    return dtype


def in_form(rows, dtype):
    """Rows in a type of numpy or torch, cut to its range."""
    limits = torch.finfo(dtype) if isinstance(dtype, torch.dtype) else np.finfo(dtype)
    rows = np.where(np.isinf(rows), rows, np.clip(rows, float(limits.min), float(limits.max)))
    return torch.as_tensor(rows).to(dtype) if isinstance(dtype, torch.dtype) else rows.astype(dtype)


def double(values):
    return (
        values.double().numpy() if isinstance(values, torch.Tensor) else np.asarray(values, dtype=np.float64)
    )


def epsilon(values):
    return float((torch if isinstance(values, torch.Tensor) else np).finfo(values.dtype).eps)


def in_batch_and_alone(function, rows):
    """Results of all rows at once and of each by itself, in double precision."""
    return double(function(rows)), np.concatenate(
        [double(function(rows[i : i + 1])) for i in range(len(rows))]
    )


def assert_sound(rows, result, method, keeps_order=True):
    """Order and ties kept; nothing given to masked classes; finite, and probabilities sum to one."""
    before = double(rows)
    masked = np.isinf(before)
    assert (result[masked] == (0.0 if method == "predict_proba" else -np.inf)).all()
    assert np.isfinite(result[~masked]).all()
    if method == "predict_proba":
        np.testing.assert_allclose(result.sum(axis=1), 1.0, atol=16 * epsilon(rows))
    if keeps_order:
        assert_order_kept(before, result)


def how_far_off(got, expected):
    """Largest difference in each row, as a part of its largest number, and of 1; what is infinite is so in both."""
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
    got, expected = (np.where(np.isinf(x), 0.0, x) for x in (got, expected))
    return np.abs(got - expected).max(axis=1) / np.maximum(np.abs(expected).max(axis=1), 1.0)


def assert_near(got, expected, tolerance):
    """Equal up to a part of the largest number of the row, and of 1."""
    off = how_far_off(got, expected)
    assert (off <= tolerance).all(), off.max()


def sane(rows):
    """Rows whose logits mean something."""
    return np.abs(np.where(np.isinf(double(rows)), 0, double(rows))).max(axis=1) < 100
