"""Calibrators of one score: what they read, from whatever holds it, and how results go back.

    (n,)      one score per row                                     ->  P(class 1), (n,)
    (n, 1)    the same                                              ->  (n, 2)
    (n, 2)    a column for each class: P(class 1), or z_1 - z_0     ->  (n, 2)

A family writes `_fit_scores` and `_log_odds`. Scores are one number a row, so rows that come in blocks, from a file or from Dask
are reduced to cells (`Cells`) where a family takes these, and gathered else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import validate_data

from ..arrays import array_namespace, device_of, is_dask, is_torch, to_numpy
from ..errors import InputError, warn
from ..inputs.chunks import as_array as dask_array
from ..inputs.chunks import chunks_of, once, reduce_tasks, task
from ..inputs.context import ContextReader, check_context_rows, find_context
from ..inputs.files import is_blocks
from ..inputs.formats import kind_of
from ..inputs.validation import check_choice, check_number, check_some_weight, check_weights, read_floats
from .base import Calibrator
from .binary_map import expit, log_odds

# Rows that are looked at one by one; beyond, cells of equal weight stand for them, so many for each class and each block.
EXACT_ROWS, _CELLS = 8192, 2048
# Rows that are read, or computed, at a time.
_READ, _BLOCK = 1 << 20, 1 << 16
_LARGEST = float(np.finfo(np.float64).max)
# Fine bins from which the cells of a block are made.
_FINE = 1 << 15


@dataclass
class Cells:
    """Scores with their weights by label: all of them, or the means of cells of equal weight. They add up.

    Attributes
    ----------
    by_label : dict
        Label -> scores (n, J), weights (n,) and context (n, C).
    n_rows : int
    """

    by_label: dict[Any, tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=dict)
    n_rows: int = 0
    reduced: bool = True

    @classmethod
    def of(
        cls,
        scores: np.ndarray,
        labels: np.ndarray,
        weight: np.ndarray,
        codes: np.ndarray | None,
        reduced: bool,
    ) -> Cells:
        """Those of a block of rows."""
        cells = cls(n_rows=len(scores), reduced=reduced)
        context = np.zeros((len(scores), 0)) if codes is None else codes
        names = np.unique(labels)
        for name in names.tolist():
            rows = np.flatnonzero(labels == name)
            cells.by_label[name] = scores[rows], weight[rows], context[rows]
        return cells._compressed()

    def __add__(self, other: Cells) -> Cells:
        both = dict(self.by_label)
        for name, parts in other.by_label.items():
            mine = both.get(name)
            both[name] = parts if mine is None else tuple(map(np.concatenate, zip(mine, parts, strict=True)))
        return Cells(both, self.n_rows + other.n_rows, self.reduced)._compressed()

    def _compressed(self) -> Cells:
        if not self.reduced:
            return self
        for name, (scores, weight, context) in self.by_label.items():
            plain = scores.shape[1] == 1 and context.shape[1] == 0
            if plain and len(weight) > EXACT_ROWS:
                v, w = compress(scores[:, 0], weight)
                self.by_label[name] = v[:, None], w, np.zeros((len(w), 0))
        return self


def compress(v: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `_CELLS` + 2 cells of about equal weight in the order of ``v``: their means and weights."""
    sample = v[:: max(1, len(v) // 20_000)]
    low, high = np.quantile(sample, [0.0005, 0.9995])
    span = (high - low) or 1.0
    low, high = low - 0.05 * span, high + 0.05 * span
    if not np.isfinite((_FINE - 2) / (high - low)):
        low, high = low - 1e-280, high + 1e-280
    with np.errstate(over="ignore"):
        place = (v - low) * ((_FINE - 2) / (high - low)) + 1.0
    fine = np.clip(place, 0, _FINE - 1).astype(np.int32)
    mass = np.bincount(fine, weight, _FINE)
    largest = float(np.abs(v).max())
    unit = largest if largest > 1e100 else 1.0
    moment = np.bincount(fine, weight * (v / unit if unit != 1.0 else v), _FINE)
    cumulative = np.cumsum(mass)
    cell = np.minimum((cumulative - 0.5 * mass) * (_CELLS / cumulative[-1]), _CELLS - 1).astype(np.intp) + 1
    cell[0], cell[-1] = 0, _CELLS + 1  # rows beyond the bins have cells of their own
    masses, moments = np.bincount(cell, mass), np.bincount(cell, moment)
    there = masses > 0
    return moments[there] / masses[there] * unit, masses[there]


class ScoreCalibrator(Calibrator):
    """Base of the calibrators of one score. They keep the order of the rows, and leave the threshold free.

    Attributes
    ----------
    preserves_ranking : bool
        Whether the order of rows by their score is guaranteed (never reversed).
    classes_ : ndarray of shape (2,)
        The two labels, sorted: probabilities are those of the second.
    """

    preserves_ranking: ClassVar[bool] = True
    _any_array = True
    # Whether cells may stand for rows.
    _takes_cells: ClassVar[bool] = False
    _inputs: ClassVar[tuple[str, ...]] = ("logits", "probabilities", "scores")
    columns: str = "classes"

    @abstractmethod
    def _fit_scores(
        self, scores: np.ndarray, labels: np.ndarray, weight: np.ndarray, codes: np.ndarray | None
    ) -> None:
        """Learn from scores (n, J), labels 0 and 1 in double precision, weights (n,) and context (n, C)."""

    @abstractmethod
    def _log_odds(self, scores: list[Any], xp: Any) -> Any:
        """Calibrated log-odds of scores, each (n,) in double precision."""

    @property
    def classes_(self) -> np.ndarray:
        """The two labels, sorted."""
        self._check_fitted()
        return self.labels_

    def _calibrate(self, logits: Any) -> Any:
        return self._on_block(read_floats(logits, "X")[0], "transform", None)

    # Reading

    def _read_scores(self, X: Any, first_row: int = 0) -> tuple[Any, list[Any]]:
        """Values as they came, an array of numpy or torch, and their scores, each (n,) in double precision."""
        values, _ = read_floats(kind_of(X).array(X), "X")
        if 0 in values.shape:
            what = "0 feature(s)" if values.shape[0] else "0 sample(s)"
            raise InputError(f"X has {what} (shape={tuple(values.shape)}) while a minimum of 1 is required.")
        several = self.columns == "scores"
        width = values.shape[1] if values.ndim == 2 else 1
        if values.ndim not in (1, 2) or width == 0 or (width > 2 and not several):
            raise InputError(
                f"X must hold one score per row, as shape (n,) or (n, 1), or a column for each of two classes, but has shape "
                f"{tuple(values.shape)}. For several scores of the same event use BinaryMCCT(columns='scores'), for several "
                "classes MCCT. Reshape your data where it is a single row."
            )
        xp = array_namespace(values)
        double = xp.astype(values, xp.float64, copy=False) if values.dtype != xp.float64 else values
        if values.ndim == 1:
            scores = [double]
        elif several or width == 1:
            scores = [double[:, j] for j in range(width)]
        else:
            scores = [double[:, 1] if self.input == "probabilities" else double[:, 1] - double[:, 0]]
        return values, [self._checked_score(score, xp, first_row) for score in scores]

    def _checked_score(self, score: Any, xp: Any, first_row: int) -> Any:
        low, high = xp.min(score), xp.max(score)
        if bool(low >= -_LARGEST) and bool(high <= _LARGEST):
            if self.input != "probabilities" or (bool(low >= 0) and bool(high <= 1)):
                return score
            if bool(low >= -1e-6) and bool(high <= 1 + 1e-6):
                return xp.clip(score, 0.0, 1.0)
            what, advice = (
                "is no probability",
                "For log-odds use input='logits', for any other scale input='scores'.",
            )
            bad = ~((score >= 0) & (score <= 1))
        elif bool(xp.any(xp.isnan(score))):
            what, advice, bad = "contains NaN", "Find where it comes from, or drop the row.", xp.isnan(score)
        else:
            what, bad = "contains infinity", xp.isinf(score)
            advice = "Clip it to a finite score; as a probability it is 0 or 1 (input='probabilities')."
        row = int(xp.argmax(xp.astype(bad, xp.int8)))
        raise InputError(f"X {what}: first in row {first_row + row}, {float(score[row])}. {advice}")

    def _labels_of(self, y: Any, n_rows: int) -> np.ndarray:
        if y is None:
            raise InputError(
                "requires y to be passed, but the target y is None: give the label of every row."
            )
        labels = np.asarray(to_numpy(kind_of(y).array(y)))
        if labels.dtype.kind == "O":
            labels = np.asarray(labels.tolist())
        if labels.ndim == 2 and labels.shape[1] == 1:
            warn(
                "A column-vector y was passed when a 1d array was expected: pass y.ravel().",
                DataConversionWarning,
            )
            labels = labels[:, 0]
        if labels.ndim != 1 or len(labels) != n_rows:
            raise InputError(
                f"y has shape {labels.shape} and X has {n_rows} rows: expected one label for each, found input variables with "
                f"inconsistent numbers of samples: {[n_rows, *labels.shape[:1]]}."
            )
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise InputError(
                "y contains NaN or infinity: give one of two labels for every row, or drop the row."
            )
        if labels.dtype.kind not in "iubfU":
            raise InputError(f"y has type {labels.dtype}: expected two different labels, numbers or texts.")
        return labels

    def _cells_of(self, X: Any, y: Any, sample_weight: Any, codes: Any = None, first_row: int = 0) -> Cells:
        """Scores of a block of rows, as double precision on the host; probabilities as log-odds."""
        _, scores = self._read_scores(X, first_row)
        columns = [to_numpy(score) for score in scores]
        if self.input == "probabilities":
            columns = [log_odds(p, np) for p in columns]
        labels = self._labels_of(y, len(columns[0]))
        weight: Any = check_weights(sample_weight, np.zeros((len(labels), 1)), first_row=first_row)
        check_context_rows(codes, len(labels), first_row)
        matrix = np.stack(columns, axis=1)
        if weight is None:
            weight = np.ones(len(labels))
        elif not weight.all():
            counted = weight > 0
            matrix, labels, weight = matrix[counted], labels[counted], weight[counted]
            codes = None if codes is None else codes[counted]
        return Cells.of(matrix, labels, weight, codes, self._takes_cells)

    # Fitting

    def _checked_fit(
        self, X: Any, y: Any, sample_weight: Any, context: Any, start: Any, start_rows: float
    ) -> None:
        check_choice(self.input, "input", self._inputs)
        for name in ("context_", "unseen_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        if start is not None:
            X, y, sample_weight, context = self._with_start(X, y, sample_weight, context, start, start_rows)
        if context is not None:
            self.context_ = ContextReader.of(context).having_seen(context)
            self.unseen_ = 0
        cells = self._gathered(X, y, sample_weight, context)
        check_some_weight(bool(cells.by_label))
        names = sorted(cells.by_label)
        if len(names) != 2:
            advice = (
                "Unknown label type: Only binary classification is supported. The type of the target is multiclass: use MCCT."
                if len(names) > 2
                else "One class alone says nothing of the other: give rows of both."
            )
            raise InputError(
                f"y holds {len(names)} class{'es' * (len(names) > 1)}, {names[:3]}, but a score is calibrated for two. {advice}"
            )
        self.labels_ = np.array(names)
        parts = [cells.by_label[name] for name in names]
        scores, weight, codes = (np.concatenate(pair) for pair in zip(*parts, strict=True))
        labels = np.repeat([0.0, 1.0], [len(part[1]) for part in parts])
        self._fit_scores(scores, labels, weight, codes if codes.shape[1] else None)

    def _gathered(self, X: Any, y: Any, sample_weight: Any, context: Any) -> Cells:
        """All rows, or cells of them, in one pass."""
        if is_dask(X) or hasattr(X, "to_dask_array"):
            return self._of_dask(X, y, sample_weight, context)
        if not is_blocks(X, y):
            self._remember_shape(X)
            codes = None if context is None else self.context_.codes(context)
            n = X.shape[0] if hasattr(X, "shape") and len(X.shape) else 0
            if n <= _READ or not hasattr(X, "dtype"):
                return self._cells_of(X, y, sample_weight, codes)
            if np.shape(y)[:1] != (n,):
                self._labels_of(y, n)
            y = np.asarray(to_numpy(kind_of(y).array(y)))
            parts = [slice(i, i + _READ) for i in range(0, n, _READ)]
            weights = [
                sample_weight if sample_weight is None or np.ndim(sample_weight) == 0 else sample_weight[part]
                for part in parts
            ]
            return _total(
                self._cells_of(X[part], y[part], weight, None if codes is None else codes[part], part.start)
                for part, weight in zip(parts, weights, strict=True)
            )
        if y is not None or sample_weight is not None or context is not None:
            raise InputError(
                "y: blocks hold their labels, weights and context themselves; leave y, sample_weight and context out."
            )
        return _total(self._of_blocks(X))

    def _of_blocks(self, X: Any) -> Iterator[Cells]:
        first_row = 0
        for block in X() if callable(X) else X:
            if not isinstance(block, tuple | list) or len(block) < 2:
                raise InputError("X: each block must be (X, y) or (X, y, sample_weight).")
            context = find_context(block[2:])
            weight = next((part for part in block[2:] if part is not context and part is not None), None)
            if context is not None:
                before = getattr(self, "context_", None) or ContextReader.of(context)
                reader = before.having_seen(context)
                if first_row and reader != before:
                    raise InputError(
                        "context: a block has categories that the blocks before had not. Give context= with arrays in memory."
                    )
                self.context_, self.unseen_ = reader, 0
            codes = None if context is None else self.context_.codes(context)
            if first_row == 0:
                self._remember_shape(block[0])
            cells = self._cells_of(block[0], block[1], weight, codes, first_row)
            first_row += len(block[1])
            yield cells

    def _of_dask(self, X: Any, y: Any, sample_weight: Any, context: Any) -> Cells:
        names = getattr(X, "_meta", None) if hasattr(X, "columns") else None
        X, y, sample_weight = dask_array(X), dask_array(y), dask_array(sample_weight)
        one = X.ndim == 1
        if any(np.isnan(size) for size in X.chunks[0]):
            X = X.compute_chunk_sizes()
        rows = X[:, None] if one else X.rechunk({1: -1})
        self._remember_shape(names if names is not None else np.zeros((1,) if one else (1, X.shape[1])))
        codes = None if context is None else self.context_.codes(context)
        if y is None:
            raise InputError(
                "requires y to be passed, but the target y is None: give the label of every row."
            )
        shared = once(self)
        tasks = [task(_chunk_cells, shared, *chunk) for chunk in chunks_of(rows, y, sample_weight, codes)]
        cells: Cells = reduce_tasks(tasks)
        return cells

    def _remember_shape(self, X: Any) -> None:
        named = hasattr(X, "columns") and len(X.columns) > 0
        if named:
            validate_data(self, X, reset=True, skip_check_array=True)
        else:
            shape = tuple(X.shape) if hasattr(X, "shape") else np.asarray(kind_of(X).array(X)).shape
            self.n_features_in_ = int(shape[1]) if len(shape) == 2 else 1

    def _with_start(
        self, X: Any, y: Any, sample_weight: Any, context: Any, start: Any, start_rows: float
    ) -> tuple[Any, Any, Any, Any]:
        """Rows, and behind them the same rows twice, labelled by the probabilities of an old calibrator."""
        check_number(start_rows, "start_rows", least=0)
        if is_blocks(X, y) or is_dask(X):
            raise InputError(
                "start: the new rows must be arrays in memory. Rows since the change are enough."
            )
        if not hasattr(start, "predict_proba") or len(getattr(start, "classes_", ())) != 2:
            raise InputError("start must be a fitted calibrator of two classes.")
        keywords = {"context": context} if getattr(start, "context_", None) is not None else {}
        p = to_numpy(read_floats(kind_of(X).array(start.predict_proba(X, **keywords)), "start")[0]).astype(
            np.float64
        )
        p = p[:, 1] if p.ndim == 2 else p
        labels = self._labels_of(y, len(p))
        names = np.unique(labels)
        if not set(names.tolist()) <= set(start.classes_.tolist()):
            raise InputError(
                f"y holds {names.tolist()}, but start was fitted to the labels {start.classes_.tolist()}."
            )
        weight: Any = check_weights(sample_weight, np.zeros((len(p), 1)))
        weight = np.ones(len(p)) if weight is None else weight
        old = weight * (start_rows / weight.sum())
        values = to_numpy(read_floats(kind_of(X).array(X), "X")[0])
        labels = np.concatenate([labels, *(np.full(len(p), name) for name in start.classes_)])
        if context is not None:
            reader = ContextReader.of(context).having_seen(context)
            context = {c.name: _thrice(c, reader.codes(context)[:, i]) for i, c in enumerate(reader.columns)}
        return (
            np.concatenate([values] * 3),
            labels,
            np.concatenate([weight, old * (1.0 - p), old * p]),
            context,
        )

    # Applying

    def _apply(self, X: Any, method: str, out: Any, context: Any = None) -> Any:
        self._check_fitted()
        if type(X) is np.ndarray and X.ndim == 1 and context is None and out is None:
            return self._on_block(X, method, self._codes(None))
        if is_dask(X) or hasattr(X, "to_dask_array"):
            return self._on_dask(X, method, context)
        if hasattr(X, "columns") and len(X.columns) and type(X).__module__.startswith(("pandas", "polars")):
            validate_data(self, X, reset=False, skip_check_array=True)
        kind = kind_of(X)
        values = kind.array(X)
        codes = self._codes(context)
        if library_has_parts(values) and values.shape[0] > _READ:
            parts = [slice(i, i + _READ) for i in range(0, values.shape[0], _READ)]
            results = (
                self._on_block(values[part], method, None if codes is None else codes[part], part.start)
                for part in parts
            )
            if out is None:
                return np.concatenate(list(results))
            for part, result in zip(parts, results, strict=True):
                out[part] = result
            return out
        result = self._on_block(values, method, codes)
        if out is not None:
            out[:] = result
            return out
        if hasattr(X, "columns") and result.ndim == 2 and result.shape[1] != len(X.columns):
            X = _two_columns(X, self.labels_) if result.shape[1] == 2 else X[X.columns[:1]]
        return kind.back(result, X, -1)

    def _on_block(self, X: Any, method: str, codes: np.ndarray | None, first_row: int = 0) -> Any:
        values, scores = self._read_scores(X, first_row)
        width = values.shape[1] if values.ndim == 2 else None
        expected = self.n_features_in_
        if width not in (None, expected) or (width is None and self.columns == "scores" and expected != 1):
            raise InputError(
                f"X has {width or 1} features, but {type(self).__name__} is expecting {expected} features as input. "
                "Reshape your data where it is a single row."
            )
        check_context_rows(codes, len(values), first_row)
        xp = array_namespace(values)
        with np.errstate(over="ignore", under="ignore"):
            f = self._log_odds(scores, xp)
        if codes is not None:
            factor, added = (xp.asarray(x, **device_of(f)) for x in self._effects(codes))
            f = factor * f + added
        if method == "log_odds":
            return f
        if method == "predict":
            second = to_numpy(f > 0)
            return labels_like(self.labels_, second, values)
        return self._formed(f, values, method, xp)

    def _effects(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raise InputError(f"context: {type(self).__name__} takes none.")

    def _formed(self, f: Any, values: Any, method: str, xp: Any) -> Any:
        """Log-odds or probabilities in the shape and the type of the values."""
        dtype = values.dtype
        if method == "transform":
            limit = float(xp.finfo(dtype).max)
            f = xp.clip(f, -limit, limit)
            wide = values.ndim == 2 and values.shape[1] == 2 and self.columns == "classes"
            result = (
                xp.stack([-0.5 * f, 0.5 * f], axis=1) if wide else (f if values.ndim == 1 else f[:, None])
            )
        elif values.ndim == 1:
            result = _probability(f, xp)
        else:
            result = xp.stack([_probability(-f, xp), _probability(f, xp)], axis=1)
        with np.errstate(under="ignore", over="ignore"):
            return xp.astype(result, dtype, copy=False)

    def _on_dask(self, X: Any, method: str, context: Any) -> Any:
        if context is not None:
            raise InputError(
                "context: Dask arrays are predicted without one. Use predict_blocks, or X.compute()."
            )
        self._codes(None)
        X = dask_array(X)
        if X.ndim == 2:
            X = X.rechunk({1: -1})
        probe = self._on_block(np.full((1, *X.shape[1:]), 0.5), method, None)
        dtype = (
            probe.dtype if method == "predict" else (X.dtype if X.dtype.kind == "f" else np.dtype(np.float64))
        )
        axes: dict[str, Any] = {}
        if probe.ndim < X.ndim:
            axes["drop_axis"] = 1
        elif probe.ndim == 2:
            axes["chunks"] = (X.chunks[0], (probe.shape[1],))
        function = partial(_on_chunk, self, method)
        return X.map_blocks(function, dtype=dtype, meta=np.empty((0,) * probe.ndim, dtype=dtype), **axes)

    def _apply_to_blocks(self, blocks: Any) -> Iterator[Any]:
        self._check_fitted()
        first_row = 0
        for block in blocks() if callable(blocks) else blocks:
            X, *rest = block if isinstance(block, tuple | list) else (block,)
            codes = self._codes(find_context(rest))
            kind = kind_of(X)
            result = self._on_block(X, "predict_proba", codes, first_row)
            first_row += len(result)
            yield kind.back(result, X, -1)

    def _score(self, X: Any, y: Any, sample_weight: Any, context: Any = None) -> float:
        self._check_fitted()
        if is_blocks(X, y) or is_dask(X):
            raise InputError(
                "score: X must be an array in memory. For larger data, feed blocks of predict_blocks to metrics."
            )
        f = to_numpy(self._on_block(X, "log_odds", self._codes(context)))
        labels = self._labels_of(y, len(f))
        in_fit = np.isin(labels, self.labels_)
        if not in_fit.all():
            raise InputError(
                f"y: the label {labels[~in_fit][0]} is none of the two of the fit, {self.labels_.tolist()}."
            )
        weight = check_weights(sample_weight, np.zeros((len(f), 1)))
        loss = np.logaddexp(0.0, np.where(labels == self.labels_[1], -f, f))
        return -float(np.average(loss, weights=weight))

    def check_state(self) -> None:
        """Raise ValueError unless fitted attributes can be those of a fit (`fitted_state`)."""
        check_choice(self.input, "input", self._inputs)
        labels = np.asarray(self.labels_)
        if labels.shape != (2,) or labels.dtype.kind not in "iubfU" or not labels[0] < labels[1]:
            raise ValueError("labels_ cannot be this: expected two labels in order")
        n = self.n_features_in_
        if (
            not isinstance(n, int | np.integer)
            or isinstance(n, bool)
            or n < 1
            or (self.columns == "classes" and n > 2)
        ):
            raise ValueError(f"n_features_in_ cannot be {n!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags(multi_class=False)
        return tags


def blockwise(function: Callable[[np.ndarray], np.ndarray], scores: np.ndarray) -> np.ndarray:
    """``function`` of scores (n,), a part that fits in the cache at a time."""
    if len(scores) <= _BLOCK:
        return function(scores)
    result = np.empty(len(scores))
    for i in range(0, len(scores), _BLOCK):
        result[i : i + _BLOCK] = function(scores[i : i + _BLOCK])
    return result


def _probability(f: Any, xp: Any) -> Any:
    with np.errstate(over="ignore"):
        return blockwise(lambda part: expit(part, np), f) if type(f) is np.ndarray else expit(f, xp)


def library_has_parts(x: Any) -> bool:
    """Whether an array can be sliced without being in memory."""
    return isinstance(x, np.memmap) or type(x).__module__.partition(".")[0] in ("zarr", "h5py")


def _total(cells: Iterator[Cells]) -> Cells:
    return reduce(add, cells, Cells())


def _chunk_cells(shared: Any, X: Any, y: Any, weight: Any, codes: Any, first_row: int) -> Cells:
    calibrator: ScoreCalibrator = shared.value
    one = calibrator.n_features_in_ == 1
    return calibrator._cells_of(X[:, 0] if one else X, y, weight, codes, first_row)


def _on_chunk(calibrator: ScoreCalibrator, method: str, X: np.ndarray) -> Any:
    return calibrator._on_block(X, method, None)


def labels_like(labels: np.ndarray, second: np.ndarray, values: Any) -> Any:
    chosen = labels[second.astype(np.intp)]
    if is_torch(values) and labels.dtype.kind in "iubf":
        return array_namespace(values).asarray(chosen, device=values.device)
    return chosen


def _two_columns(X: Any, labels: np.ndarray) -> Any:
    """A frame of two columns, named like the labels, in place of one of a single column."""
    names = [str(label) for label in labels]
    if hasattr(X, "iloc"):
        wide = X.iloc[:, [0, 0]]
        return wide.set_axis(names, axis=1)
    if type(X).__module__.startswith("polars"):
        first = X.to_series(0)
        return type(X)(dict.fromkeys(names, first))
    return X


def _thrice(column: Any, codes: np.ndarray) -> np.ndarray:
    values = codes
    if column.kind == "category":
        lookup = np.array([*column.categories, None], dtype=object)
        values = lookup[codes.astype(np.intp)]
    return np.concatenate([values] * 3)
