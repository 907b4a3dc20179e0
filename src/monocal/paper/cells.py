"""A cell: one method, fitted on (part of) one calibration set and judged on its test set. One cell, one file.

    file name = set . method . hash(configuration) . json

The hash covers the data, the method with its parameters, seed, sizes and the version of monocal, so a file is either the
result of exactly this cell or has another name. Files appear whole or not at all: what is there is finished.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import monocal as mc
from monocal.data import Location, LogitsSet, Splits, atomic_path

from .columns import METHODS

FORMAT = 1  # of the result files; a new number makes old ones count as missing


@dataclass(frozen=True)
class Dataset:
    """A calibration and a test set, known by content."""

    name: str
    location: Location
    digest: str
    n_classes: int
    n_cal: int
    n_test: int

    @classmethod
    def of(cls, location: Location) -> Dataset:
        """Read once to learn size and content."""
        splits = load(location)
        digest = hashlib.sha256()
        for part in (splits.cal, splits.test):
            for array in (part.values, known_labels(part)):
                digest.update(str((array.dtype, array.shape)).encode())
                digest.update(np.ascontiguousarray(array).data)
        return cls(
            splits.name,
            location,
            digest.hexdigest()[:16],
            splits.cal.n_classes,
            splits.cal.n_samples,
            splits.test.n_samples,
        )


@lru_cache(maxsize=2)
def load(location: Location) -> Splits:
    """Both sets as logits; of probabilities, their logarithm."""
    splits = location.read()
    return Splits(_as_logits(splits.cal), _as_logits(splits.test), splits.name)


def known_labels(part: LogitsSet) -> np.ndarray:
    """The labels of a part of an experiment: without them there is none."""
    assert part.labels is not None
    return part.labels


def _as_logits(given: LogitsSet) -> LogitsSet:
    if given.kind == "logits":
        return given
    values = given.values.astype(np.promote_types(given.values.dtype, np.float32))
    # A zero is an underflow: half the smallest probability that is left keeps it lowest and finite.
    floor = values[values > 0].min() / 2
    logits = np.log(np.maximum(values, max(floor, np.finfo(values.dtype).tiny)))
    return LogitsSet(logits, given.labels, "logits", given.name, given.path, given.part, given.notes)


@dataclass(frozen=True)
class Cell:
    """What decides a result. ``n_cal`` None: the whole calibration set; ``top_k`` None: all ranks; ``examine``: measure
    how far from the optimum the fit stopped."""

    dataset: Dataset
    method: str
    seed: int = 0
    n_cal: int | None = None
    top_k: int | None = None
    examine: bool = False

    @property
    def label(self) -> str:
        """Name of the method as shown."""
        return METHODS[self.method].label

    @property
    def configuration(self) -> dict[str, Any]:
        """Everything the result depends on, as plain values."""
        calibrator = METHODS[self.method].make(self.seed, self.top_k)
        return {
            "format": FORMAT,
            "monocal": mc.__version__,
            "set": self.dataset.name,
            "data": self.dataset.digest,
            "method": self.method,
            "calibrator": "none" if calibrator is None else type(calibrator).__name__,
            "parameters": {}
            if calibrator is None
            else {k: repr(v) for k, v in calibrator.get_params().items()},
            "seed": self.seed,
            "n_cal": self.n_cal,
            "top_k": self.top_k,
            "examine": self.examine,
        }

    @property
    def file_name(self) -> str:
        """Readable, and unique to the configuration."""
        text = json.dumps(self.configuration, sort_keys=True)
        readable = re.sub(r"[^A-Za-z0-9_-]+", "_", self.dataset.name)[:60]
        return f"{readable}.{self.method}.{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def write_result(folder: Path, cell: Cell, result: dict[str, Any]) -> dict[str, Any]:
    """Put a result on disk, whole or not at all; returns it as `read_result` will, so that resuming changes nothing."""
    text = json.dumps({"configuration": cell.configuration, **_encoded(result)}, indent=1, allow_nan=False)
    with atomic_path(folder / cell.file_name, force=True) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    return _parsed(text)


def read_result(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """The finished result of a cell; None where there is none, it failed, or its file is damaged."""
    try:
        result = _parsed((folder / cell.file_name).read_text(encoding="utf-8"))
        if result["configuration"] != cell.configuration or result["status"] != "done":
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return result


def _parsed(text: str) -> dict[str, Any]:
    result = json.loads(text)
    result["metrics"] = {name: float(value) for name, value in result["metrics"].items()}
    return {**result, "fitted": _decoded(result.get("fitted", {}))}


def _decoded(value: Any) -> Any:
    """Numbers that `_encoded` wrote as text."""
    if isinstance(value, dict):
        return {key: _decoded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_decoded(part) for part in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def _encoded(value: Any) -> Any:
    """JSON has no infinity: such numbers are written as text that ``float`` reads."""
    if isinstance(value, dict):
        return {key: _encoded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(part) for part in value]
    if isinstance(value, np.ndarray):
        return _encoded(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
