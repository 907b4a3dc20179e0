"""Sums of metrics as one vector of numbers, and back: for whatever adds vectors (torchmetrics over processes, an all-reduce).

    pack(a + b) = pack(a) + pack(b)

Edges of bins and options are the same in both and not packed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from .outcomes import Floats
from .registry import Sums

_SHARED = ("options", "edges")


def pack(sums: Sums) -> Floats:
    """All numbers that add, one after another."""
    return np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in _leaves(sums)])


def unpack(vector: Floats, like: Sums) -> Sums:
    """The sums that a vector holds; ``like`` are some of the same options and classes."""
    sizes = [np.size(leaf) for leaf in _leaves(like)]
    return _filled(like, iter(np.split(np.asarray(vector, dtype=np.float64), np.cumsum(sizes)[:-1])))


def _leaves(sums: Any) -> Iterator[Any]:
    for field in fields(sums):
        value = getattr(sums, field.name)
        if is_dataclass(value) and field.name not in _SHARED:
            yield from _leaves(value)
        elif field.name not in _SHARED:
            yield value


def _filled(like: Any, parts: Iterator[Floats]) -> Any:
    found: dict[str, Any] = {}
    for field in fields(like):
        value = getattr(like, field.name)
        if field.name in _SHARED:
            continue
        if is_dataclass(value):
            found[field.name] = _filled(value, parts)
        else:
            part = next(parts)
            found[field.name] = part.reshape(value.shape) if np.ndim(value) else type(value)(part[0])
    return replace(like, **found)
