"""Probabilities before and after a calibrator, for files of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import ordered_softmax
from ..calibrators import Calibrator
from ..errors import FileError
from ..inputs.layout import Flat
from ..io.logits_set import float_type

_BLOCK = 1 << 23  # logits handled at a time


class StoredRows:
    """The rows of a mapped array of shape (n, m), ``rows[start:stop]``, read from its file instead of the mapping.

    A mapped file that is cut short under a running program ends the program (SIGBUS); a read that comes back short is an error.
    """

    def __init__(self, mapped: np.memmap):
        self.path, self._offset = mapped.filename, mapped.offset
        self.shape, self.dtype = mapped.shape, mapped.dtype
        self._by_column = not mapped.flags.c_contiguous

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(len(self))
        n, m = self.shape
        if not self._by_column:
            return self._read(start * m, (stop - start) * m).reshape(-1, m)
        columns = [self._read(j * n + start, stop - start) for j in range(m)]
        return np.stack(columns, axis=1)

    def _read(self, first: int, count: int) -> np.ndarray:
        offset = self._offset + first * self.dtype.itemsize
        values = np.fromfile(str(self.path), self.dtype, count, offset=offset)
        if len(values) < count:
            raise FileError(
                f"{self.path} became shorter while it was read: write it again, and keep it until the run is over."
            )
        return values


def uncalibrated(values: np.ndarray, kind: str) -> np.ndarray:
    """What logits (their softmax) or probabilities (themselves) say without calibration."""
    if kind == "probabilities":
        return np.asarray(values)
    # Halves are too coarse to sum a thousand of them to one.
    return ordered_softmax(np.asarray(values, dtype=np.promote_types(values.dtype, np.float32)))


def in_blocks(
    function: Callable[..., np.ndarray],
    values: np.ndarray | StoredRows,
    update: Callable[[int], Any] = lambda done: None,
    context: Mapping[str, np.ndarray] | None = None,
    together: int = 1,
) -> Iterator[np.ndarray]:
    """The function of ``values``, some rows at a time, and of their context; ``update`` gets how many are done.

    Rows come in multiples of ``together``.
    """
    step = max(1, _BLOCK // (values.shape[1] * together)) * together
    for start in range(0, len(values), step):
        rows = slice(start, start + step)
        keywords = {} if context is None else {"context": {name: x[rows] for name, x in context.items()}}
        yield function(np.asarray(values[rows], float_type(values.dtype)), **keywords)
        update(min(start + step, len(values)))


def checked(blocks: Iterable[np.ndarray], kind: str, calibrator: Path) -> Iterator[np.ndarray]:
    """The blocks, unless a row in them is not what a calibrator gives, which no fitted one can do."""
    first = 0
    for block in blocks:
        with np.errstate(invalid="ignore", over="ignore"):
            bad = ~(block < np.inf).all(axis=1)
            if kind == "many":
                bad |= ((block < 0) | (block > 1)).any(axis=1)
            elif kind == "probabilities":
                off = np.abs(block.sum(axis=1, dtype=np.float64) - 1)
                bad |= (block < 0).any(axis=1) | ~(off <= max(1e-4, 8 * float(np.finfo(block.dtype).eps)))
        if bad.any():
            raise FileError(
                f"{calibrator} gives no {kind} for row {first + int(np.argmax(bad))} (nan, inf or a wrong sum), so it is damaged "
                f"or made by hand, and nothing was written: fit it again."
            )
        first += len(block)
        yield block


def joined(blocks: Iterable[np.ndarray], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Blocks of rows as one array."""
    out, start = np.empty(shape, dtype), 0
    for block in blocks:
        out[start : start + len(block)] = block
        start += len(block)
    return out


def in_shape(blocks: Iterable[np.ndarray], places: Flat) -> Iterator[np.ndarray]:
    """Blocks of rows, each of whole entries of the first axis, in the shape of the array that the rows are of."""
    for block in blocks:
        shaped = block.reshape((-1, *places.lead[1:], block.shape[1]))
        yield np.moveaxis(shaped, -1, places.axis)


def before_and_after(
    calibrator: Calibrator, values: np.ndarray, context: Mapping[str, np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities without and with the calibrator."""
    before = uncalibrated(values, calibrator.input)
    context_of_rows = {} if context is None else {"context": context}
    return before, calibrator.predict_proba(values.astype(before.dtype, copy=False), **context_of_rows)
