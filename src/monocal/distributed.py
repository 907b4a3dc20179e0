"""Dask arrays: the same sums over chunks of rows, by whatever scheduler Dask has.

    X (n, m)  ->  chunks of whole rows  ->  blocks, checked and sorted by the workers, which keep them
    a pass    ->  function(block) added up where the chunk lies  ->  added in a tree  ->  one small result

Chunks are cut where `MemoryRows` ends a block, so the answer is that of one process. Only parameters and sums travel. A
chunk is a task like any other: when the worker that held it dies, Dask makes it again from the array it came from.

With a `distributed` client the sorted blocks stay with the workers during a fit; without one nothing is kept, every pass
reads the chunks anew, and memory is bounded by the chunks at work.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .arrays import Array, to_numpy
from .errors import InputError, require
from .maps.lazy import check_out
from .metrics import Evaluation, Evaluator
from .metrics.registry import METRICS, chosen
from .objective.blocks import Block, prepare_block
from .objective.sources import MemoryRows, block_rows, in_sample, join_samples, sample_step
from .objective.streaming import Part, regroup
from .validation import check_some_weight

if TYPE_CHECKING:
    from .maps.base import Calibrator

T = TypeVar("T")
Delayed = Any

# How many sums one task adds.
_FAN_IN = 16


class DaskLogits:
    """A Dask array of logits with its labels and weights; what `Calibrator.fit` and `predict_proba` make of one."""

    def __init__(self, X: Any, y: Any = None, sample_weight: Any = None, *, streams: bool = True):
        require("dask.array", "dask")
        if X.ndim != 2:
            raise InputError(
                f"X must be two-dimensional, one row a sample and one column a class, but has shape {X.shape}."
            )
        self.X = _whole_rows(X)
        self.y, self.weight, self._streams = y, sample_weight, streams

    def source(self, calibrator: Calibrator) -> DaskSource:
        if not self._streams:
            raise InputError(
                "X: this method needs all rows in one process, but got a Dask array. Pass X.compute(), or use "
                "TemperatureScaling, MCCT or ConditionalMCCT."
            )
        if self.y is None:
            raise InputError(
                "requires y to be passed, but the target y is None: give the true class of every row, 0..m-1."
            )
        X = _cut_at_blocks(self.X, _has_weight(self.weight, self.X.shape[0]))
        chunks = _chunks(X, self.y, self.weight)
        reader = _once(calibrator)
        looks = _compute([_task(_look, reader, *chunk) for chunk in chunks])
        smallest = min(look.smallest_probability for look in looks)
        if np.isfinite(smallest):
            calibrator.smallest_probability_ = smallest
        sizes = [look.n_rows for look in looks]
        check_some_weight(sum(sizes) > 0)
        chunks = [chunk for chunk, size in zip(chunks, sizes, strict=True) if size]
        sizes = [size for size in sizes if size]
        single = X.dtype.kind == "f" and X.dtype.itemsize <= 4 and calibrator.input == "logits"
        return DaskSource(calibrator, chunks, sizes, (sum(sizes), X.shape[1]), single)

    def apply(self, calibrator: Calibrator, method: str, out: Any) -> Any:
        X = self.X
        expected = calibrator.n_features_in_
        if X.shape[1] != expected:
            raise InputError(
                f"X has {X.shape[1]} features, but {type(calibrator).__name__} is expecting {expected} features as input."
            )
        calibrator = copy(calibrator)  # what is computed later is of the map as it is now
        if method == "predict":
            return X.map_blocks(
                _apply, calibrator, method, drop_axis=1, dtype=np.int64, meta=np.empty(0, dtype=np.int64)
            )
        plain = X.dtype.kind == "f" and X.dtype.itemsize <= 8
        dtype = X.dtype.newbyteorder("=") if plain else np.dtype(np.float64)
        result = X.map_blocks(_apply, calibrator, method, dtype=dtype, meta=np.empty((0, 0), dtype=dtype))
        if out is None:
            return result
        check_out(out, X.shape)
        result.store(out)
        return out


@dataclass(frozen=True)
class DaskSource:
    """Checked rows in the chunks of a Dask array, those that have rows with weight; a `RowSource`."""

    calibrator: Calibrator
    chunks: list[tuple[Delayed, Delayed, Delayed, int]]
    sizes: list[int]
    shape: tuple[int, int]
    single_precision: bool

    def prepare(self, **how: Any) -> DaskRows:
        """Rows for the solver; the keywords are those of `prepare_block`."""
        reader, recipe = _once(self.calibrator), _once(how)
        blocks = [_task(_prepare, reader, recipe, *chunk) for chunk in self.chunks]
        if _has_client():
            import dask

            blocks = list(dask.persist(*blocks))
        m = self.shape[1]
        single = self.single_precision and how.get("dtype") is None
        return DaskRows(blocks, self.sizes, m, min(how.get("top_k") or m, m), single)


class DaskRows:
    """Prepared blocks, one list of them a chunk, on the workers."""

    def __init__(
        self, chunks: list[Delayed], sizes: list[int], n_classes: int, n_ranks: int, single_precision: bool
    ):
        self.chunks, self.sizes = chunks, sizes
        self.n_rows = sum(sizes)
        self.n_classes, self.n_ranks, self.has_tail = n_classes, n_ranks, n_ranks < n_classes
        self.single_precision = single_precision
        self._sample: MemoryRows | None = None

    def sum(self, function: Callable[..., T], *args: Any) -> T:
        args_once = _once(args)
        return _reduce([_task(_sum_blocks, chunk, function, args_once) for chunk in self.chunks])

    def sample(self) -> MemoryRows | None:
        step = sample_step(self.n_rows, self.n_classes)
        if not step:
            return None
        if self._sample is None:
            chosen = self.part(in_sample(self.n_rows, self.n_classes, step)).chunks
            self._sample = join_samples([block for blocks in _compute(chosen) for block in blocks], step)
        return self._sample

    coarse = sample

    def part(self, chosen: np.ndarray) -> DaskRows:
        masks = np.split(chosen, np.cumsum(self.sizes)[:-1])
        some = [(chunk, mask) for chunk, mask in zip(self.chunks, masks, strict=True) if mask.any()]
        chunks = [_task(_choose, chunk, mask) for chunk, mask in some]
        return self._like(chunks, [int(mask.sum()) for _, mask in some])

    def statistics(self) -> np.ndarray:
        """(n, S), gathered."""
        return np.concatenate(_compute([_task(_gather_statistics, chunk) for chunk in self.chunks]))

    def weights(self) -> np.ndarray:
        """(n,), gathered, in double precision."""
        return np.concatenate(_compute([_task(_gather_weights, chunk) for chunk in self.chunks]))

    def with_factors(self, factors: Callable[[Array], Array]) -> DaskRows:
        """The same rows with the factors computed from their statistics, where they lie."""
        once = _once(factors)
        chunks = [_task(_with_factors, chunk, once) for chunk in self.chunks]
        rows = self._like(chunks, self.sizes)
        if self._sample is not None:
            rows._sample = self._sample.with_factors(factors)
        return rows

    def _like(self, chunks: list[Delayed], sizes: list[int]) -> DaskRows:
        return DaskRows(chunks, sizes, self.n_classes, self.n_ranks, self.single_precision)


def evaluate(
    probs: Any,
    labels: Any,
    *,
    metrics: Any = None,
    sample_weight: Any = None,
    n_boot: int = 0,
    **options: Any,
) -> Evaluation:
    """`monocal.evaluate` for a Dask array of probabilities: sums of chunks, merged; of ``metrics``, those that merge.

    Parameters are those of `monocal.evaluate`; intervals (``n_boot``) need all rows in one process.
    """
    names = chosen(metrics) if metrics is not None else [name for name, one in METRICS.items() if one.merges]
    apart = [name for name in names if not METRICS[name].merges]
    if apart:
        raise InputError(
            f"metrics: {', '.join(apart)} need all rows in one process, but probs is a Dask array. Leave them out or pass "
            "probs.compute()."
        )
    if n_boot:
        raise InputError(
            "n_boot: intervals need all rows in one process, but probs is a Dask array. Pass probs.compute()."
        )
    once = _once(options)
    chunks = _chunks(_whole_rows(probs), labels, sample_weight)
    tasks = [_task(_evaluate, once, *chunk) for chunk in chunks]
    result: Evaluation = _reduce(tasks, _merge).result()
    return replace(result, estimates={name: result[name] for name in names})


# Chunks.


def _whole_rows(X: Any) -> Any:
    if any(np.isnan(size) for sizes in X.chunks for size in sizes):
        X = X.compute_chunk_sizes()
    rows = tuple(size for size in X.chunks[0] if size)  # what a filter has emptied is no chunk
    return X.rechunk({0: rows or -1, 1: -1})


def _cut_at_blocks(X: Any, counts: np.ndarray | None) -> Any:
    """Chunks that end where blocks end, about as large as they were; ``counts``: which rows have weight, if not all.

    Rows without weight are in no block, so they are not counted: as in one process, where they are left out first.
    """
    size = block_rows(X)
    per_chunk = max(1, round(max(X.chunks[0]) / size)) * size
    if counts is None:
        return X.rechunk({0: per_chunk})
    ends = np.flatnonzero(counts)[per_chunk - 1 :: per_chunk] + 1
    edges = np.unique(np.concatenate(([0], ends, [len(counts)])))
    return X.rechunk({0: tuple(np.diff(edges).tolist())})


def _has_weight(weight: Any, n: int) -> np.ndarray | None:
    """Which rows have weight, (n,); None where all have, or where the weights do not fit and are refused later."""
    if weight is None or np.isscalar(weight):
        return None
    found = to_numpy(_compute([weight])[0])
    if found.shape != (n,) or found.dtype.kind not in "biuf":
        return None
    counts = found != 0
    return None if counts.all() else counts


def _chunks(X: Any, *columns: Any) -> list[tuple[Delayed, Delayed, Delayed, int]]:
    """Values, labels, weights and number of the first row of every chunk."""
    import dask.array as da

    n = X.shape[0]
    parts = [list(X.to_delayed().ravel())]
    for name, column in zip(("y", "sample_weight"), columns, strict=True):
        if column is None or np.isscalar(column):
            parts.append([column] * X.numblocks[0])
            continue
        if not isinstance(column, da.Array):
            column = to_numpy(column)
        elif any(np.isnan(size) for size in column.chunks[0]):
            column = column.compute_chunk_sizes()
        if column.ndim == 0 or column.shape[0] != n:
            raise InputError(
                f"{name} has shape {tuple(column.shape)} and X has {n} rows: "
                f"found input variables with inconsistent numbers of samples: {[n, *column.shape[:1]]}."
            )
        chunks = (X.chunks[0], *column.shape[1:])
        in_memory = not isinstance(column, da.Array)
        column = da.from_array(column, chunks=chunks) if in_memory else column.rechunk(chunks)
        parts.append(list(column.to_delayed().ravel()))
    first = np.cumsum((0, *X.chunks[0][:-1])).tolist()
    return list(zip(*parts, first, strict=True))


def _has_client() -> bool:
    try:
        from distributed import get_client

        get_client()
    except (ImportError, ValueError):
        return False
    return True


def _task(function: Callable[..., Any], *args: Any) -> Delayed:
    import dask

    return dask.delayed(function, pure=False, traverse=False)(*args)


def _once(value: Any) -> Delayed:
    """A value that all tasks share, sent once."""
    import dask

    return dask.delayed(_Box(value), pure=False, traverse=False)


@dataclass(frozen=True)
class _Box:
    """Keeps Dask from looking inside."""

    value: Any


def _compute(tasks: list[Delayed]) -> list[Any]:
    import dask

    return list(dask.compute(*tasks))


def _reduce(tasks: list[Delayed], merge: Callable[..., Any] | None = None) -> Any:
    """The sum of all tasks' results, in a fixed order."""
    while True:
        groups = [tasks[i : i + _FAN_IN] for i in range(0, len(tasks), _FAN_IN)]
        tasks = [_task(merge or _add, *group) for group in groups]
        if len(tasks) == 1:
            return _compute(tasks)[0]


# What the workers do.


@dataclass(frozen=True)
class _Look:
    n_rows: int
    smallest_probability: float


def _look(reader: _Box, X: Any, y: Any, weight: Any, first_row: int) -> _Look:
    """Check a chunk and count its rows."""
    calibrator = copy(reader.value)
    _, logits, labels, weight = calibrator._read_part(X, y, weight, fitting=True, first_row=first_row)
    n = len(labels) if weight is None else int(np.count_nonzero(weight))
    if n and first_row == 0:
        calibrator._check_first(logits if weight is None else logits[weight > 0])
    return _Look(n, getattr(calibrator, "smallest_probability_", np.inf))


def _prepare(reader: _Box, how: _Box, X: Any, y: Any, weight: Any, first_row: int) -> list[Block]:
    _, logits, labels, weight = reader.value._read_part(X, y, weight, first_row=first_row)
    weight = None if weight is None else to_numpy(weight)
    parts = regroup([Part(to_numpy(logits), to_numpy(labels), weight)])
    return [prepare_block(part.logits, part.labels, part.weight, **how.value) for part in parts]


def _sum_blocks(blocks: list[Block], function: Callable[..., Any], args: _Box) -> Any:
    return _add(*(function(block, *args.value) for block in blocks))


def _add(*sums: Any) -> Any:
    return reduce(add, sums)


def _choose(blocks: list[Block], mask: np.ndarray) -> list[Block]:
    ends = np.cumsum([b.n_rows for b in blocks])
    pieces = [b[np.flatnonzero(c)] for b, c in zip(blocks, np.split(mask, ends[:-1]), strict=True)]
    return [piece for piece in pieces if piece.n_rows]


def _gather_statistics(blocks: list[Block]) -> np.ndarray:
    return np.concatenate([to_numpy(b.statistics) for b in blocks])


def _gather_weights(blocks: list[Block]) -> np.ndarray:
    return np.concatenate([to_numpy(b.weight).astype(np.float64) for b in blocks])


def _with_factors(blocks: list[Block], factors: _Box) -> list[Block]:
    return [replace(block, factors=factors.value(block.statistics)) for block in blocks]


def _apply(X: np.ndarray, calibrator: Calibrator, method: str, block_info: Any = None) -> np.ndarray:
    first_row = block_info[0]["array-location"][0][0] if block_info else 0
    calibrator._read(X, first_row)  # first, because it can name the row
    result: np.ndarray = getattr(calibrator, method)(X)
    return result


def _evaluate(options: _Box, probs: Any, labels: Any, weight: Any, first_row: int) -> Evaluator:
    try:
        return Evaluator(**options.value).update(probs, labels, weight)
    except InputError as error:
        raise InputError(f"In the chunk that begins at row {first_row}: {error}") from None


def _merge(first: Evaluator, *others: Evaluator) -> Evaluator:
    return reduce(Evaluator.merge, others, copy(first))
