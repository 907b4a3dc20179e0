"""A batch through one of the ways in which users predict.

Values travel as numpy arrays that hold exactly what the engine takes (bfloat16, which numpy lacks, as float32).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from every_form import as_graph
from hostile import to_bfloat16

# What each engine takes.
TYPES = {
    "numpy": ("float64", "float32", "float16", "int64", "longdouble"),
    "out": ("float32",),  # numpy, into an array of half precision
    "torch": ("float64", "float32", "float16", "bfloat16"),
    "module": ("float64", "float32", "float16", "bfloat16"),
    "onnx": ("float32", "float64"),
}


@dataclass(frozen=True)
class Batch:
    """Rows to predict, in the type of the engine; ``repeat`` times over, for what only large arrays go through."""

    rows: np.ndarray
    engine: str = "numpy"
    dtype: str = "float64"
    repeat: int = 1

    @property
    def X(self) -> np.ndarray:
        return np.tile(self.rows, (self.repeat, 1))


@dataclass(frozen=True)
class Result:
    """Predictions, wide enough to hold them exactly; ``eps`` and ``least`` of the type they came in."""

    p: np.ndarray
    f: np.ndarray | None
    labels: np.ndarray | None
    eps: float
    least: float

    def part(self, rows: np.ndarray) -> Result:
        parts = (None if a is None else a[rows] for a in (self.p, self.f, self.labels))
        return Result(*parts, self.eps, self.least)


def cast(z: np.ndarray, dtype: str) -> np.ndarray:
    """Doubles in a type, cut to its range; -inf stays where the type has one."""
    if dtype == "bfloat16":
        largest = 3.38e38
        return to_bfloat16(np.where(np.isinf(z), z, np.clip(z, -largest, largest))).astype(np.float32)
    if dtype == "int64":
        return np.clip(np.where(np.isinf(z), -30, z), -(2.0**62), 2.0**62).round().astype(np.int64)
    info = np.finfo(dtype)
    with np.errstate(over="ignore", under="ignore"):
        return np.where(np.isinf(z), z, np.clip(z, float(info.min), float(info.max))).astype(dtype)


def predict(cal: Any, batch: Batch, values: np.ndarray | None = None) -> Result:
    """Probabilities, calibrated logits and classes of a batch (or of other values of its type); any warning is an error."""
    x = batch.X if values is None else values
    if batch.engine in ("torch", "module"):
        x = torch.tensor(x).to(getattr(torch, batch.dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if batch.engine == "out":
            return _result(cal.predict_proba(x, out=np.empty(x.shape, dtype=np.float16)))
        if batch.engine == "onnx":
            return _result(*(as_graph(batch.dtype)(cal, name)(x) for name in ("predict_proba", "transform")))
        if batch.engine == "module":
            module = cal.to_torch(dtype=torch.float64 if batch.dtype == "float64" else torch.float32)
            return _result(module(x), module.transform(x))
        return _result(cal.predict_proba(x), cal.transform(x), cal.predict(x))


def _result(p: Any, f: Any = None, labels: Any = None) -> Result:
    info = torch.finfo(p.dtype) if torch.is_tensor(p) else np.finfo(p.dtype)
    least = float(info.smallest_normal) * float(info.eps)
    labels = None if labels is None else np.asarray(labels)
    return Result(_wide(p), None if f is None else _wide(f), labels, float(info.eps), least)


def _wide(x: Any) -> np.ndarray:
    if torch.is_tensor(x):
        return x.double().numpy()
    return x if x.dtype == np.longdouble else np.asarray(x, dtype=np.float64)
