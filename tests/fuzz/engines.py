"""Running a case: the calibrator, its fit, and a batch through one of the ways in which users predict.

Values travel as numpy arrays that hold what the engine is given exactly (bfloat16, which numpy lacks, as float32).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import monocal as mc
from hostile import to_bfloat16
from monocal.errors import CalibrationWarning, OrderWarning

# What each engine takes.
TYPES = {
    "numpy": ("float64", "float32", "float16", "int64", "longdouble"),
    "out": ("float32",),  # numpy, into an array of half precision
    "torch": ("float64", "float32", "float16", "bfloat16"),
    "module": ("float64", "float32", "float16", "bfloat16"),
    "onnx": ("float32", "float64"),
}


@dataclass(frozen=True)
class Method:
    """A calibrator as its name in `mc.all_calibrators()` or its class, with keywords as source text."""

    name: str
    keywords: tuple[tuple[str, str], ...] = ()

    @property
    def source(self) -> str:
        words = ", ".join(f"{key}={value}" for key, value in self.keywords)
        if hasattr(mc, self.name):
            return f"mc.{self.name}({words})"
        listed = f"next(c for c in mc.all_calibrators() if c.name == {self.name!r}).make()"
        return f"{listed}.set_params({words})" if words else listed

    def make(self) -> mc.Calibrator:
        return eval(self.source, {"mc": mc})

    def get(self, key: str) -> str | None:
        return dict(self.keywords).get(key)


@dataclass(frozen=True)
class Training:
    """A calibration set of doubles."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None


@dataclass(frozen=True)
class Batch:
    """Rows to predict, of the type they are given in; ``repeat`` times over, for what only large arrays go through."""

    rows: np.ndarray
    engine: str = "numpy"
    dtype: str = "float64"
    repeat: int = 1

    @property
    def given(self) -> np.ndarray:
        return np.tile(self.rows, (self.repeat, 1)) if self.repeat > 1 else self.rows


@dataclass(frozen=True)
class Case:
    """Something that may fail."""

    method: Method
    training: Training
    batch: Batch
    seed: tuple[int, int] | None = None


@dataclass(frozen=True)
class Result:
    """Predictions, wide enough to hold them exactly; ``eps`` and ``least`` of the type they came in."""

    p: np.ndarray
    f: np.ndarray | None
    labels: np.ndarray | None
    eps: float
    least: float

    def part(self, rows: np.ndarray) -> Result:
        kept = (None if a is None else a[rows] for a in (self.p, self.f, self.labels))
        return Result(*kept, self.eps, self.least)


class Refused(Exception):
    """The library has said in a sentence that it does not take this."""


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


def fit(method: Method, training: Training) -> tuple[Any, bool]:
    """The fitted calibrator and whether it converged; what the library refuses raises `Refused`."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("error")
        for kind in (ConvergenceWarning, OrderWarning, CalibrationWarning):
            warnings.simplefilter("always", kind)
        try:
            cal = method.make().fit(training.x, training.y, sample_weight=training.weight)
        except mc.InputError as error:
            raise Refused(str(error)) from error
    return cal, not any(issubclass(w.category, ConvergenceWarning) for w in said)


def predict(cal: Any, batch: Batch, values: np.ndarray | None = None) -> Result:
    """Probabilities, calibrated logits and classes of a batch (or of other values of its type)."""
    x = batch.given if values is None else values
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return _ENGINES[batch.engine](cal, x, batch.dtype)
        except mc.InputError as error:
            raise Refused(str(error)) from error


def _numpy(cal: Any, x: np.ndarray, dtype: str) -> Result:
    p = cal.predict_proba(x)
    return _result(p, cal.transform(x), cal.predict(x), np.finfo(p.dtype))


def _out(cal: Any, x: np.ndarray, dtype: str) -> Result:
    p = cal.predict_proba(x, out=np.empty(x.shape, dtype=np.float16))
    return _result(p, None, None, np.finfo(p.dtype))


def _torch(cal: Any, x: np.ndarray, dtype: str) -> Result:
    import torch

    tensor = torch.tensor(x).to(getattr(torch, dtype))
    return _tensors(cal.predict_proba(tensor), cal.transform(tensor), cal.predict(tensor))


def _module(cal: Any, x: np.ndarray, dtype: str) -> Result:
    import torch

    module = cal.to_torch(dtype=torch.float64 if dtype == "float64" else torch.float32)
    tensor = torch.tensor(x).to(getattr(torch, dtype))
    return _tensors(module(tensor), module.transform(tensor), None)


def _onnx(cal: Any, x: np.ndarray, dtype: str) -> Result:
    import onnxruntime

    def run(output: str) -> np.ndarray:
        model = cal.to_onnx(output=output, dtype=dtype).SerializeToString()
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return session.run(None, {session.get_inputs()[0].name: x})[0]

    return _result(run("probabilities"), run("logits"), None, np.finfo(dtype))


def _tensors(p: Any, f: Any, labels: Any) -> Result:
    import torch

    info = torch.finfo(p.dtype)
    wide = [t.double().numpy() for t in (p, f)]
    return Result(
        *wide, None if labels is None else labels.numpy(), info.eps, info.smallest_normal * info.eps
    )


def _result(p: np.ndarray, f: np.ndarray | None, labels: np.ndarray | None, info: np.finfo) -> Result:
    kind = np.longdouble if p.dtype == np.longdouble else np.float64
    wide = [None if a is None else np.asarray(a).astype(kind) for a in (p, f)]
    return Result(*wide, labels, float(info.eps), float(info.smallest_subnormal))


_ENGINES = {"numpy": _numpy, "out": _out, "torch": _torch, "module": _module, "onnx": _onnx}
