"""Rows of a fit: checked, as logits, in memory or wherever they are.

    reader, checked = Reader("probabilities").checked(X, y, weight)         rows in memory
    source = open_source(rows, y, weight, context, reader)                  rows wherever they are (`inputs.batch`)
    source.prepare(top_k=...)   -> Rows for the solver                      source.hold(f)  -> blocks of f(checked)

    logits = log p,     a probability of zero counts as half the smallest positive one

All rows pass through a `Reader` once, in memory or block by block, in fitting and in predicting. Sources differ only in how a
block is obtained: `ArraySource` here, files and blocks (`files`), Dask (`dask`), a server's largest logits (`llm.top_k_rows`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..arrays import (
    Array,
    array_namespace,
    device_of,
    is_torch,
    on_device_of,
    ordered_log,
    row_sums,
    to_numpy,
)
from ..core.engine import Block
from ..core.rows import Blocks, MemoryBlocks, Rows
from ..engines import engine_for
from ..errors import InputError
from ..parallel import block_rows, map_in_order, parallel_map, row_slices
from .context import ContextReader, check_context_rows
from .layout import ROWS, Layout
from .validation import (
    CheckedMatrix,
    check_label_available,
    check_labels,
    check_logits,
    check_probabilities,
    check_some_weight,
    check_weights,
    effective_rows,
    ignored_rows,
    read_matrix,
)

T = TypeVar("T")

# Rows of probabilities that sum to one but for more than this were rounded to a few decimals.
_ROUNDED = 1e-3


@dataclass(frozen=True)
class Checked:
    """Checked rows with their labels, and weights where there are some."""

    logits: Array  # (n, m)
    labels: Array  # (n,)
    weight: Array | None  # (n,)
    context: np.ndarray | None = None  # (n, C), on the host wherever the logits are

    def __getitem__(self, index: Any) -> Checked:
        weight = None if self.weight is None else self.weight[index]
        here = to_numpy(index) if is_torch(index) else index
        context = None if self.context is None else self.context[here]
        return Checked(self.logits[index], self.labels[index], weight, context)

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    @property
    def n_rows(self) -> int:
        return len(self)

    @property
    def that_count(self) -> Checked:
        """The rows that have a weight."""
        if self.weight is None or bool(array_namespace(self.weight).all(self.weight > 0)):
            return self
        return self[self.weight > 0]

    def on_host(self) -> Checked:
        """The same as numpy arrays."""
        weight = None if self.weight is None else to_numpy(self.weight)
        return Checked(to_numpy(self.logits), to_numpy(self.labels), weight, self.context)


@dataclass(frozen=True)
class Reader:
    """How rows are read."""

    input: str = "logits"  # or "probabilities"
    smallest: float = np.inf  # positive probability of the calibration rows
    context: ContextReader | None = None  # how the context of rows is read
    layout: Layout = ROWS  # where the classes are, and which labels do not count

    def values(self, X: Any, first_row: int = 0) -> CheckedMatrix:
        """Checked values in the caller's library. Rows may be a part of more that begins at ``first_row``."""
        check = check_probabilities if self.input == "probabilities" else check_logits
        return check(X, first_row=first_row)

    def checked(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        first_row: int | None = None,
        context: np.ndarray | None = None,
        *,
        learning: bool = True,
    ) -> tuple[Reader, Checked]:
        """Rows as logits, with their labels, weights, and context as `ContextReader.codes` gives it; and the reader that has
        seen them."""
        begin, reader = first_row or 0, self
        matrix = read_matrix(X)
        n = matrix.values.shape[0]
        if self.layout.ignore_index is not None:
            y, sample_weight, ignored = ignored_rows(y, sample_weight, n, self.layout.ignore_index)
            matrix = matrix if ignored is None else self._without(matrix, ignored)
        matrix = self.values(matrix, begin)
        logits = values = matrix.values
        labels, weight = check_labels(y, values, first_row=begin), None
        if sample_weight is not None:
            weight = check_weights(sample_weight, values, first_row=begin)
            if first_row is None and weight is not None:
                check_some_weight(bool(array_namespace(weight).any(weight > 0)), self.layout.ignore_index)
        if self.input == "probabilities":
            if learning:
                _, total, least = _row_terms(values)
                smallest = float(array_namespace(least).min(least / total))
                reader = replace(self, smallest=min(smallest, self.smallest))
            logits = reader.logits(values)
        if learning and not matrix.finite:
            check_label_available(logits, labels, weight, first_row=begin)
        if context is not None:
            check_context_rows(context, n, begin)
        return reader, Checked(logits, labels, weight, context)

    def _without(self, matrix: CheckedMatrix, ignored: np.ndarray) -> CheckedMatrix:
        """The same rows with something harmless where they are ignored: whatever stood there, it is not looked at."""
        values = matrix.values
        xp = array_namespace(values)
        harmless = 1.0 / values.shape[1] if self.input == "probabilities" else 0.0
        fill = xp.asarray(harmless, dtype=values.dtype, **device_of(values))
        return matrix._replace(values=xp.where(on_device_of(ignored, values)[:, None], fill, values))

    def logits(self, values: Array) -> Array:
        """Logarithms of probabilities; logits as they are.

        A zero is no mask here but an underflow or an empty count: it stands for half the smallest positive probability of the
        calibration set (or of its own row, if that is smaller). Rows of rounded numbers are made to sum to one.
        """
        if self.input != "probabilities":
            return values
        xp = array_namespace(values)
        p, total, least = _row_terms(values)
        least = xp.where(least > self.smallest * total, self.smallest * total, least)
        filled = xp.where(p > 0, p, least)
        # Neighbours in a narrower type are so far apart that the double logarithm cannot swap them.
        narrow = values.dtype != xp.float64
        logs = xp.log(filled) if narrow else xp.asarray(ordered_log(to_numpy(filled)), **device_of(p))
        return xp.where(p > 0, logs, logs - np.log(2.0)) - xp.log(total)


def _row_terms(values: Array) -> tuple[Array, Array, Array]:
    """Probabilities in double precision; what rows sum to where that is more than rounding errors off one, else 1, (n, 1); and
    the smallest positive one of each row, (n, 1)."""
    xp = array_namespace(values)
    p = xp.astype(values, xp.float64)
    total = row_sums(p)
    total = xp.where(abs(total - 1.0) > _ROUNDED, total, xp.ones_like(total))
    positive = xp.where(p > 0, p, xp.asarray(np.inf, dtype=p.dtype, **device_of(p)))
    return p, total, xp.min(positive, axis=1, keepdims=True)


@dataclass(frozen=True)
class RowMap:
    """A method of a fitted calibrator as a function of rows."""

    calibrator: Any
    method: str  # "predict_proba", "transform" or "predict"
    context: np.ndarray | None = None  # (n, C) of all rows, where the result depends on it

    @property
    def name(self) -> str:
        return type(self.calibrator).__name__

    @property
    def n_classes(self) -> int:
        return int(self.calibrator.n_features_in_)

    def function(self, X: Any, first_row: int, dtype: Any) -> Any:
        """The result for rows in memory that begin at ``first_row`` of all, of type ``dtype`` (None: that of ``X``)."""
        context = None if self.context is None else self.context[first_row : first_row + len(X)]
        return self.calibrator._on_rows(self.method, X, first_row, dtype, context)


def prepared(rows: Checked, **how: Any) -> list[Block]:
    """Blocks of checked rows, by the engine for them; the keywords are those of `Engine.prepare`."""
    engine = engine_for(rows.logits, how.get("dtype"))
    return engine.prepare(rows.logits, rows.labels, rows.weight, context=rows.context, **how)


def prepared_block(rows: Checked, **how: Any) -> Block:
    """One block of as many rows as `block_rows` says."""
    (block,) = prepared(rows, **how)
    return block


class Source(ABC):
    """Checked rows with labels and weights, wherever they live."""

    reader: Reader  # with what it has learnt from the rows
    shape: tuple[int, int]  # rows that count, and classes
    first: Array  # logits of some of the rows, the first among them, to judge their unit by
    single_precision: bool  # or less
    passes: int = 1  # how often the rows have been read

    @abstractmethod
    def hold(self, make: Callable[[Checked], Any]) -> Blocks:
        """Blocks of rows in the caller's own order of classes: ``make(checked)``, which has ``n_rows``."""

    def prepare(self, **how: Any) -> Rows:
        """Rows for the solver; the keywords are those of `Engine.prepare`."""
        blocks = self.hold(partial(prepared_block, **how))
        if isinstance(blocks, MemoryBlocks):
            return Rows.of_blocks(blocks.blocks)
        (n, m), top_k = self.shape, how.get("top_k")
        r = min(top_k or m, m)
        single = self.single_precision and how.get("dtype") is None
        return Rows(blocks, n, m, r, has_tail=r < m, single_precision=single)

    @property
    def effective_rows(self) -> float:
        """As many rows of equal weight say as much."""
        return float(self.shape[0])


class OutOfCore(Source):
    """Rows that are no array in memory. `open` sets what a `Source` has."""

    # What to tell a user whose method needs all rows in memory.
    refusal: ClassVar[str]

    @abstractmethod
    def open(self, reader: Reader) -> Source:
        """Check all rows, for a fit."""

    @abstractmethod
    def apply(self, row_map: RowMap, out: Any) -> Any:
        """The result for all rows, written to ``out`` where that is given."""


class ArraySource(Source):
    """Checked arrays in memory."""

    def __init__(self, reader: Reader, checked: Checked):
        self.reader, self.checked, self.first = reader, checked, checked.logits
        n, m = checked.logits.shape
        self.shape = n, m
        self.single_precision = not str(checked.logits.dtype).endswith("float64")

    def hold(self, make: Callable[[Checked], Any]) -> MemoryBlocks:
        serial = is_torch(self.checked.logits)  # torch has its own parallelism, on every device
        slices = row_slices(self.checked.logits)
        return MemoryBlocks(parallel_map(lambda rows: make(self.checked[rows]), slices, serial), serial)

    def prepare(self, **how: Any) -> Rows:
        return Rows.of_blocks(prepared(self.checked, **how))

    @property
    def effective_rows(self) -> float:
        weight = self.checked.weight
        return float(self.shape[0]) if weight is None else effective_rows(to_numpy(weight))


def regroup(parts: Iterable[Checked]) -> Iterator[Checked]:
    """The same rows, less those without weight, in blocks of the size that suits the cache."""
    held: list[Checked] = []
    n_held = 0
    for part in parts:
        held.append(part.that_count)
        n_held += len(held[-1])
        size = block_rows(part.logits)
        if n_held < size:
            continue
        rows = _join(held)
        whole = n_held // size * size
        for begin in range(0, whole, size):
            yield rows[begin : begin + size]
        held, n_held = [rows[whole:]], n_held - whole
    if n_held:
        yield _join(held)


def _join(parts: list[Checked]) -> Checked:
    parts = [part for part in parts if len(part)]
    if len(parts) == 1:
        return parts[0]
    weight = None
    if any(part.weight is not None for part in parts):
        weight = np.concatenate([np.ones(len(p)) if p.weight is None else p.weight for p in parts])
    names = ("logits", "labels", "context") if parts[0].context is not None else ("logits", "labels")
    logits, labels, *context = (np.concatenate([getattr(p, name) for p in parts]) for name in names)
    return Checked(logits, labels, weight, *context)


# What to tell who wants to hold rows out that are not in memory.
NO_PARTS = "shrinkage='cv' needs all rows in memory: give a number, chosen on a sample of the rows."


@dataclass(frozen=True)
class StreamedBlocks:
    """Blocks made again in every pass; implements `core.rows.Blocks`."""

    read: Callable[[], Iterable[Checked]]
    make: Callable[[Checked], Any]
    n_read: int  # rows of a pass

    def map(self, function: Callable[[Any, int], T]) -> Iterator[T]:
        seen = 0

        def numbered() -> Iterator[tuple[Checked, int]]:
            nonlocal seen
            for part in regroup(self.read()):
                yield part, seen
                seen += len(part)

        yield from map_in_order(lambda item: function(self.make(item[0]), item[1]), numbered())
        if seen != self.n_read:
            raise InputError(
                f"X: one pass over the blocks gave {self.n_read} rows and another gave {seen}. Every pass must give the same "
                "rows: let the function open its files again, and do not shuffle or drop rows at random."
            )

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        return reduce(add, self.map(lambda block, first: function(block, *args)))

    def changed(self, function: Callable[[Any], Any]) -> StreamedBlocks:
        return replace(self, make=lambda part: function(self.make(part)))

    def part(self, chosen: np.ndarray) -> StreamedBlocks:
        raise InputError(NO_PARTS)
