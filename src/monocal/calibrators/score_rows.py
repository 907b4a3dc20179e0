"""Calibrators of one score: what they read, from whatever holds it, and how results go back.

    (n,)      one score per row                                     ->  P(class 1), (n,)
    (n, 1)    the same                                              ->  (n, 2)
    (n, 2)    a column for each class: P(class 1), or z_1 - z_0     ->  (n, 2)

A family writes `_fit_scores` and `_log_odds`. Scores are one number a row, so all are computed on the host in double precision,
and rows that come in blocks, from a file or from Dask are reduced to cells where a family takes these, and gathered else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import validate_data

from ..arrays import array_namespace, is_dask, is_torch, to_numpy
from ..errors import InputError, warn
from ..inputs.batch import in_type
from ..inputs.context import ContextReader, check_context_rows, find_context
from ..inputs.dask import as_array as dask_array
from ..inputs.dask import chunks_of, reduce_tasks, task
from ..inputs.files import is_blocks
from ..inputs.formats import as_array, class_names, format_of, named_columns
from ..inputs.names import classes_of, listing, numbers_of
from ..inputs.validation import (
    check_choice,
    check_number,
    check_probability_rows,
    check_some_weight,
    check_weights,
    read_floats,
    warn_of_probabilities,
)
from ..parallel import map_blocks, row_slices
from . import state
from .base import Calibrator
from .binary_map import BLOCK, expit, log_odds

# Rows that are looked at one by one; beyond, cells of equal weight stand for them, so many for each class and each block.
EXACT_ROWS, _CELLS = 8192, 2048
# Rows that are read at a time.
_READ = 1 << 20

# Label -> scores (n, J), weights (n,) and context (n, C): of all rows, or of cells that stand for them.
Cells = dict[Any, tuple[ndarray, ndarray, ndarray]]


def cells_by_label(
    scores: ndarray, labels: ndarray, weight: ndarray, codes: ndarray | None, reduced: bool
) -> Cells:
    """The rows of a block by their label, or cells of them."""
    context = np.zeros((len(scores), 0)) if codes is None else codes
    cells = {}
    for name in set(labels.tolist()):
        own = np.flatnonzero(labels == name)
        cells[name] = scores[own], weight[own], context[own]
    return merged(cells, reduced=reduced)


def merged(*parts: Cells, reduced: bool) -> Cells:
    """The rows of all parts. Where there are many, the means of cells of about equal weight stand for them."""
    result: Cells = {}
    for name in {name for part in parts for name in part}:
        own = [part[name] for part in parts if name in part]
        scores, weight, context = map(np.concatenate, zip(*own, strict=True))
        if reduced and len(weight) > EXACT_ROWS and scores.shape[1] == 1 and not context.shape[1]:
            scores, weight = _compressed(scores[:, 0], weight)
            context = np.zeros((len(weight), 0))
        result[name] = scores, weight, context
    return result


def _compressed(v: ndarray, weight: ndarray) -> tuple[ndarray, ndarray]:
    """At most `_CELLS` cells of about equal weight in the order of ``v``: their means (K, 1) and weights."""
    order = np.argsort(v)
    v, weight = v[order], weight[order]
    cumulative = np.cumsum(weight)
    ends = np.arange(_CELLS) * (cumulative[-1] / _CELLS)
    starts = np.unique(np.searchsorted(cumulative, ends, side="right"))
    unit = max(-float(v[0]), float(v[-1])) / 1e100  # sums of very large scores would overflow
    masses = np.add.reduceat(weight, starts)
    moments = np.add.reduceat(weight * (v / unit if unit > 1.0 else v), starts)
    return (moments / masses * max(unit, 1.0))[:, None], masses


class ScoreCalibrator(Calibrator):
    """Base of the calibrators of one score. They keep the order of the rows, and leave the threshold free."""

    preserves_ranking: ClassVar[bool] = True
    # Whether cells may stand for rows.
    _takes_cells: ClassVar[bool] = False
    _inputs: ClassVar[tuple[str, ...]] = ("logits", "probabilities", "scores")
    columns: str = "classes"
    labels_: ndarray

    def __init__(self, *, input: str = "logits"):
        self.input = input

    @abstractmethod
    def _fit_scores(self, scores: ndarray, labels: ndarray, weight: ndarray, codes: Any) -> None:
        """Learn from scores (n, J), labels 0 and 1 in double precision, weights (n,) and context (n, C)."""

    @abstractmethod
    def _log_odds(self, scores: ndarray) -> ndarray:
        """Calibrated log-odds (n,) of scores (n, J) in double precision."""

    def _effects(self, codes: ndarray) -> tuple[ndarray, ndarray]:
        """What context multiplies the log-odds by, and then adds to them."""
        raise InputError(f"context: {type(self).__name__} takes none.")

    @property
    def classes_(self) -> ndarray:
        """The two labels, sorted."""
        self._check_fitted()
        return self.labels_

    # Reading

    def _read_scores(self, X: Any, first_row: int = 0) -> tuple[Any, ndarray]:
        """Values as they came, an array of numpy or torch, and their scores (n, J) in double precision."""
        values, eps = read_floats(as_array(X), "X")
        if 0 in values.shape:
            what = "0 feature(s)" if values.shape[0] else "0 sample(s)"
            raise InputError(f"X has {what} (shape={tuple(values.shape)}) while a minimum of 1 is required.")
        several = self.columns == "scores"
        width = values.shape[1] if values.ndim == 2 else 1
        if values.ndim not in (1, 2) or (width > 2 and not several):
            raise InputError(
                f"X must hold one score per row, or a column for each of two classes, but has shape {tuple(values.shape)}. For "
                "several scores of the same event use BinaryMCCT(columns='scores'), for several classes MCCT. Reshape your data "
                "where it is a single row."
            )
        scores = to_numpy(values).astype(np.float64, copy=False).reshape(len(values), width)
        if several or width == 1:
            return values, self._in_range(scores, first_row)
        if self.input == "probabilities":
            scores = self._in_range(scores, first_row)
            check_probability_rows(scores, eps, "X", first_row, "For other scores use input='scores'.")
            return values, scores[:, 1:]
        with np.errstate(over="ignore", invalid="ignore"):
            return values, self._in_range(scores[:, 1:] - scores[:, :1], first_row)

    def _in_range(self, scores: ndarray, first_row: int) -> ndarray:
        """Scores that are finite, and probabilities between 0 and 1."""
        low, high = float(scores.min()), float(scores.max())
        finite = np.isfinite([low, high]).all()
        if self.input != "probabilities" and finite:
            return scores
        if low >= -1e-6 and high <= 1 + 1e-6:
            return scores if low >= 0 and high <= 1 else np.clip(scores, 0.0, 1.0)
        wrong = ~((scores >= 0) & (scores <= 1)) if finite else ~np.isfinite(scores)
        row, column = np.argwhere(wrong)[0]
        value = float(scores[row, column])
        if np.isnan(value):
            what, advice = "contains NaN", "Find where it comes from, or drop the row."
        elif np.isinf(value):
            what, advice = "contains infinity", "Clip it, or give probabilities (input='probabilities')."
        else:
            what, advice = "is no probability", "For log-odds use input='logits', else input='scores'."
        raise InputError(f"X {what}: first in row {first_row + int(row)}, {value}. {advice}")

    def _labels_of(self, y: Any, n_rows: int) -> ndarray:
        if y is None:
            raise InputError("requires y to be passed, but the target y is None: give all labels.")
        labels = np.asarray(to_numpy(as_array(y)))
        if labels.dtype.kind == "O":
            labels = np.asarray(labels.tolist())
        if labels.ndim == 2 and labels.shape[1] == 1:
            warn("A column-vector y was passed when a 1d array was expected.", DataConversionWarning)
            labels = labels[:, 0]
        if labels.ndim != 1 or len(labels) != n_rows:
            raise InputError(
                f"y has shape {labels.shape} and X has {n_rows} rows: expected one label for each row. For one-hot labels pass "
                f"y.argmax(axis=1). Found input variables with inconsistent numbers of samples: {[n_rows, *labels.shape[:1]]}."
            )
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise InputError("y contains NaN or infinity: give one of two labels for every row.")
        if labels.dtype.kind not in "iubfU":
            raise InputError(f"y has type {labels.dtype}: expected two different labels, numbers or texts.")
        return labels

    def _cells_of(self, X: Any, y: Any, sample_weight: Any, codes: Any, first_row: int) -> Cells:
        """Scores of a block of rows, probabilities as log-odds, by label."""
        scores = self._read_scores(X, first_row)[1]
        if self.input == "probabilities":
            scores = log_odds(scores, np)
        labels = self._labels_of(y, len(scores))
        weight: Any = check_weights(sample_weight, scores, first_row=first_row)
        weight = np.ones(len(labels)) if weight is None else weight
        check_context_rows(codes, len(labels), first_row)
        if not weight.all():
            counted = weight > 0
            scores, labels, weight = scores[counted], labels[counted], weight[counted]
            codes = None if codes is None else codes[counted]
        return cells_by_label(scores, labels, weight, codes, self._takes_cells)

    def _check_frame(self, X: Any) -> None:
        """Refuse a frame whose columns are not those of the fit, or in another order."""
        columns = named_columns(X)
        if columns is not None:
            self._check_columns(columns)

    def _remember_shape(self, X: Any) -> None:
        columns = named_columns(X)
        if columns is not None:
            validate_data(self, columns, reset=True, skip_check_array=True)
        else:
            array = X if is_dask(X) else as_array(X)
            shape = array.shape if hasattr(array, "shape") else np.asarray(array).shape
            self.n_features_in_ = int(shape[1]) if len(shape) == 2 else 1

    # Fitting

    def _checked_fit(
        self, X: Any, y: Any, sample_weight: Any, context: Any, start: Any, start_rows: float
    ) -> None:
        check_choice(self.input, "input", self._inputs)
        for name in ("context_", "unseen_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        codes = None if context is None else self._codes_of_fit(context)
        merge = partial(merged, reduced=self._takes_cells)
        if start is not None and (is_dask(X) or is_blocks(X, y)):
            raise InputError("start: the new rows must be arrays in memory.")
        if is_dask(X) or hasattr(X, "to_dask_array"):
            cells: Cells = reduce_tasks(self._dask_tasks(X, y, sample_weight, codes), merge)
        else:
            parts = self._parts(X, y, sample_weight, codes)
            if start is not None:
                parts = self._with_start(X, y, sample_weight, context, codes, start, start_rows)
            cells = reduce(merge, (self._cells_of(*part) for part in parts), {})
        check_some_weight(bool(cells))
        names = sorted(cells)
        if len(names) != 2:
            advice = "One class alone says nothing of the other: give rows of both."
            if len(names) > 2:
                advice = "Unknown label type: for more than two classes use MCCT."
            raise InputError(f"y holds {len(names)} classes, {names[:3]}, expected two. {advice}")
        self._check_columns_in_order(X, names)
        self.labels_ = np.array(names)
        rows = zip(*(cells[name] for name in names), strict=True)
        scores, weight, codes = (np.concatenate(pair) for pair in rows)
        labels = np.repeat([0.0, 1.0], [len(cells[name][1]) for name in names])
        if self.input == "logits" and scores.shape[1] == 1:
            warn_of_probabilities(scores)
        self._fit_scores(scores, labels, weight, codes if codes.shape[1] else None)

    def _codes_of_fit(self, context: Any) -> ndarray:
        """The context of rows as numbers (n, C), read with what was learnt of rows before."""
        reader = getattr(self, "context_", None) or ContextReader.of(context)
        self.context_, self.unseen_ = reader.having_seen(context), 0
        return self.context_.codes(context)

    def _check_columns_in_order(self, X: Any, labels: list[Any]) -> None:
        """Columns called after the labels stand in their order: the second is the class whose probability is asked for."""
        columns = class_names(X) or tuple(getattr(self, "feature_names_in_", ()))
        if self.columns != "classes" or len(columns) != 2:
            return
        words = [str(int(x)) if not isinstance(x, str) and x == int(x) else str(x) for x in labels]
        first, second = numbers_of(words, classes_of(columns))
        if first == 1 or second == 0:
            raise InputError(
                f"X: its columns are called {listing(columns)}, and the labels in sorted order are "
                f"{listing(words)}. Put the columns in that order."
            )

    def _parts(self, X: Any, y: Any, weight: Any, codes: Any) -> Iterator[tuple[Any, ...]]:
        """Values, labels, weights, context and number of the first row, of some rows at a time."""
        if is_blocks(X, y):
            if y is not None or weight is not None or codes is not None:
                raise InputError("y: blocks hold their labels, weights and context themselves.")
            yield from self._parts_of_blocks(X() if callable(X) else X)
            return
        self._remember_shape(X)
        n = X.shape[0] if getattr(X, "shape", ()) and hasattr(X, "dtype") else 0
        if n <= _READ:
            yield X, y, weight, codes, 0
            return
        y = self._labels_of(y, n)
        for rows in row_slices(X, _READ):
            own = weight if weight is None or np.ndim(weight) == 0 else weight[rows]
            yield X[rows], y[rows], own, None if codes is None else codes[rows], rows.start

    def _parts_of_blocks(self, blocks: Any) -> Iterator[tuple[Any, ...]]:
        first = 0
        for block in blocks:
            if not isinstance(block, tuple | list) or len(block) < 2:
                raise InputError("X: each block must be (X, y) or (X, y, sample_weight).")
            values, y, *rest = block
            if not len(y):
                continue
            self._check_frame(values) if first else self._remember_shape(values)
            context, codes, before = find_context(rest), None, getattr(self, "context_", None)
            if context is not None:
                codes = self._codes_of_fit(context)
                if first and self.context_ != before:
                    raise InputError("context: a block has other categories than those before.")
            weight = next((w for w in rest if w is not context and w is not None), None)
            yield values, y, weight, codes, first
            first += len(y)

    def _dask_tasks(self, X: Any, y: Any, sample_weight: Any, codes: ndarray | None) -> list[Any]:
        """The cells of each chunk."""
        if y is None:
            self._labels_of(y, 0)
        array = dask_array(X)
        if any(np.isnan(size) for size in array.chunks[0]):
            array = array.compute_chunk_sizes()
        self._remember_shape(X if hasattr(X, "columns") else array)
        rows = array[:, None] if array.ndim == 1 else array.rechunk({1: -1})
        chunks = chunks_of(rows, dask_array(y), dask_array(sample_weight), codes)
        return [task(self._cells_of, *chunk) for chunk in chunks]

    def _with_start(
        self, X: Any, y: Any, weight: Any, context: Any, codes: Any, start: Any, start_rows: float
    ) -> Iterator[tuple[Any, ...]]:
        """The rows, and the same rows twice, labelled by the probabilities of an old calibrator."""
        check_number(start_rows, "start_rows", least=0)
        if not hasattr(start, "predict_proba") or len(getattr(start, "classes_", ())) != 2:
            raise InputError("start must be a fitted calibrator of two classes.")
        self._remember_shape(X)
        keywords = {"context": context} if getattr(start, "context_", None) is not None else {}
        p = to_numpy(read_floats(as_array(start.predict_proba(X, **keywords)), "start")[0])
        p = (p[:, 1] if p.ndim == 2 else p).astype(np.float64)
        names = np.unique(self._labels_of(y, len(p))).tolist()
        if not set(names) <= set(start.classes_.tolist()):
            raise InputError(f"y holds {names}, but start was fitted to {start.classes_.tolist()}.")
        weight = check_weights(weight, p)
        weight = np.ones(len(p)) if weight is None else weight
        old = weight * (start_rows / weight.sum())
        yield X, y, weight, codes, 0
        for label, q in zip(start.classes_, (1.0 - p, p), strict=True):
            yield X, np.full(len(p), label), old * q, codes, 0

    # Applying

    def _apply(self, X: Any, method: str, out: Any, context: Any = None) -> Any:
        self._check_fitted()
        if type(X) is ndarray and X.ndim == 1 and context is None and out is None:
            return self._on_rows(method, X, context=self._codes(None))  # the short way
        self._check_frame(X)
        if is_dask(X) or hasattr(X, "to_dask_array"):
            return self._on_dask(X, method, context)
        array, codes = as_array(X), self._codes(context)
        array = array if getattr(array, "shape", ()) else self._read_scores(array)[0]
        check_context_rows(codes, array.shape[0])
        results = []
        for rows in row_slices(array, _READ):
            own = None if codes is None else codes[rows]
            result = self._on_rows(method, array[rows], rows.start, context=own)
            if out is None:
                results.append(result)
            else:
                out[rows] = result
        if out is not None:
            return out
        whole = array_namespace(results[0]).concat(results) if len(results) > 1 else results[0]
        return self._back(whole, X)

    def _back(self, result: Any, X: Any) -> Any:
        """Results in the format of X: a frame has columns called after the labels, where they are not those of X."""
        if hasattr(X, "columns") and result.ndim == 2:
            names = self._names_of_results(result.shape[1])
            if names is not None:
                import narwhals as nw

                columns = [nw.nth(0).alias(str(name)) for name in names]
                X = nw.from_native(X).select(*columns).to_native()
        return format_of(X).back(result, X, -1)

    def _names_of_results(self, n_columns: int) -> ndarray | None:
        """What the columns of results are called; None: like those of X."""
        if n_columns == self.n_features_in_ and (self.columns == "classes" or n_columns == 1):
            return None
        return self.labels_ if n_columns == 2 else self.get_feature_names_out()

    def _on_rows(
        self, method: str, X: Any, first_row: int = 0, dtype: Any = None, context: ndarray | None = None
    ) -> Any:
        values, scores = self._read_scores(X, first_row)
        width, expected = scores.shape[1] if values.ndim == 1 else values.shape[1], self.n_features_in_
        if width != expected and (values.ndim == 2 or self.columns == "scores"):
            raise InputError(
                f"X has {width} features, but {type(self).__name__} is expecting {expected} features as input. "
                "Reshape your data where it is a single row."
            )
        check_context_rows(context, len(scores), first_row)

        def of(rows: slice) -> Any:
            with np.errstate(over="ignore", under="ignore"):
                f = self._log_odds(scores[rows])
                if context is not None:
                    factor, added = self._effects(context[rows])
                    f = factor * f + added
                return self._formed(f, values[rows], method)

        return map_blocks(of, row_slices(scores, BLOCK), serial=is_torch(values))

    def _calibrate(self, logits: Any) -> Any:
        return self._on_rows("transform", logits)

    def _formed(self, f: ndarray, values: Any, method: str) -> Any:
        """Log-odds (n,) or (n, L), probabilities or labels in the shape and the type of the values."""
        if method == "log_odds":
            return f
        if method == "predict":
            chosen = self.labels_[(f > 0).astype(np.intp)]
            if is_torch(values) and chosen.dtype.kind in "iubf":
                return array_namespace(values).asarray(chosen, device=values.device)
            return chosen
        one_result = values.ndim == 1 or f.ndim == 2
        if method == "transform":
            largest = float(array_namespace(values).finfo(values.dtype).max)
            result = np.clip(f, -largest, largest)
            if not one_result:
                two = values.shape[1] == 2 and self.columns == "classes"
                result = np.stack([-0.5 * result, 0.5 * result], axis=1) if two else result[:, None]
        else:
            result = expit(f, np) if one_result else np.stack([expit(-f, np), expit(f, np)], axis=1)
        return in_type(result, values, values.dtype)

    def _on_dask(self, X: Any, method: str, context: Any) -> Any:
        if context is not None:
            raise InputError("context: Dask arrays are predicted without one. Use predict_blocks.")
        self._codes(None)
        X = dask_array(X)
        X = X.rechunk({1: -1}) if X.ndim == 2 else X
        dtype = X.dtype if X.dtype.kind == "f" else np.dtype(np.float64)
        probe = self._on_rows(method, np.full((1, *X.shape[1:]), 0.5, dtype))
        axes: dict[str, Any] = {"drop_axis": 1} if probe.ndim < X.ndim else {}
        if probe.ndim == 2:
            axes = {"chunks": (X.chunks[0], (probe.shape[1],))}
        function = partial(self._on_rows, method)
        return X.map_blocks(function, dtype=probe.dtype, meta=probe[:0], **axes)

    def _predicted(self, blocks: Iterator[tuple[Any, Any]]) -> Iterator[Any]:
        first_row = 0
        for X, context in blocks:
            if 0 in getattr(X, "shape", ())[:1]:
                yield X
                continue
            self._check_frame(X)
            codes = None if context is None else self._counted(context)
            result = self._on_rows("predict_proba", as_array(X), first_row, context=codes)
            first_row += len(result)
            yield self._back(result, X)

    def score(self, X: Any, y: Any, sample_weight: Any = None, context: Any = None) -> float:
        """`Calibrator.score` of scores."""
        self._check_fitted()
        if is_blocks(X, y) or is_dask(X):
            raise InputError("score: X must be an array in memory. Else use predict_blocks and metrics.")
        self._check_frame(X)
        f = self._on_rows("log_odds", X, context=self._codes(context))
        labels = self._labels_of(y, len(f))
        in_fit = np.isin(labels, self.labels_)
        if not in_fit.all():
            raise InputError(f"y: the label {labels[~in_fit][0]} is none of {self.labels_.tolist()}.")
        loss = np.logaddexp(0.0, np.where(labels == self.labels_[1], -f, f))
        return -float(np.average(loss, weights=check_weights(sample_weight, f)))

    def check_state(self) -> None:
        """Raise ValueError unless fitted attributes can be those of a fit (`state`)."""
        check_choice(self.input, "input", self._inputs)
        n, labels = self.n_features_in_, np.asarray(self.labels_)
        right = labels.shape == (2,) and labels.dtype.kind in "iubfU" and labels[0] < labels[1]
        state.expect(right, "labels_", labels, "two labels in order")
        right = type(n) is int and (n in (1, 2) or (n > 2 and self.columns == "scores"))
        state.expect(right, "n_features_in_", n)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags(multi_class=False)
        return tags


def check_rising(name: str, values: Any, size: int | None = None, strictly: bool = False) -> None:
    """Raise ValueError unless numbers rise; with a ``size``, so many probabilities that do not fall."""
    a = np.asarray(values, dtype=np.float64)
    right: Any = a.ndim == 1 and len(a) and np.isfinite(a).all() and size in (None, len(a))
    rising = right and (np.diff(a) > (0.0 if strictly else -1e-12)).all()
    state.expect(rising, name, a, "numbers that rise")
    state.expect(size is None or ((a >= 0) & (a <= 1)).all(), name, a, "probabilities")
