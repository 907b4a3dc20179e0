"""Calibrators of one score: what they read, from whatever holds it, and how results go back.

    (n,)      one score per row                                     ->  P(class 1), (n,)
    (n, 1)    the same                                              ->  (n, 2)
    (n, 2)    a column for each class: P(class 1), or z_1 - z_0     ->  (n, 2)

A family writes `_fit_scores` and `_log_odds`. Scores are one number a row, so rows that come in blocks, from a file or from Dask
are reduced to cells where a family takes these, and gathered else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import validate_data

from ..arrays import array_namespace, device_of, is_dask, is_torch, to_numpy
from ..errors import InputError, warn
from ..inputs.context import ContextReader, check_context_rows, find_context
from ..inputs.dask import as_array as dask_array
from ..inputs.dask import chunks_of, reduce_tasks, task
from ..inputs.files import is_blocks, is_empty
from ..inputs.formats import as_array, class_names, column_names, format_of, library_of, named_columns
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
_LARGEST = float(np.finfo(np.float64).max)
_NO_LABELS = "requires y to be passed, but the target y is None: give the label of every row."

# Label -> scores (n, J), weights (n,) and context (n, C): of all rows, or of cells that stand for them.
Cells = dict[Any, tuple[np.ndarray, np.ndarray, np.ndarray]]


def cells_by_label(
    scores: np.ndarray, labels: np.ndarray, weight: np.ndarray, codes: np.ndarray | None, reduced: bool
) -> Cells:
    """The rows of a block by their label, or cells of them."""
    context = np.zeros((len(scores), 0)) if codes is None else codes
    ordered = len(labels) > 0 and labels.dtype.kind != "U"
    names = np.unique([labels.min(), labels.max()]) if ordered else labels
    if not ordered or np.count_nonzero((labels > names[0]) & (labels < names[-1])):
        names = np.unique(labels)  # slow where there are many rows
    rows = {name: np.flatnonzero(labels == name) for name in names.tolist()}
    return merged(
        {name: (scores[own], weight[own], context[own]) for name, own in rows.items()}, reduced=reduced
    )


def merged(*parts: Cells, reduced: bool) -> Cells:
    """The rows of all parts. Where there are many, the means of cells of about equal weight stand for them."""
    result: Cells = {}
    for name in {name for part in parts for name in part}:
        own = [part[name] for part in parts if name in part]
        scores, weight, context = own[0] if len(own) == 1 else map(np.concatenate, zip(*own, strict=True))
        if reduced and len(weight) > EXACT_ROWS and scores.shape[1] == 1 and not context.shape[1]:
            scores, weight = _compressed(scores[:, 0], weight)
            context = np.zeros((len(weight), 0))
        result[name] = scores, weight, context
    return result


def _compressed(v: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `_CELLS` cells of about equal weight in the order of ``v``: their means (K, 1) and weights."""
    order = np.argsort(v)
    v, weight = v[order], weight[order]
    cumulative = np.cumsum(weight)
    starts = np.unique(
        np.searchsorted(cumulative, np.arange(_CELLS) * (cumulative[-1] / _CELLS), side="right")
    )
    unit = max(-float(v[0]), float(v[-1])) / 1e100  # sums of very large scores would overflow
    masses = np.add.reduceat(weight, starts)
    moments = np.add.reduceat(weight * (v / unit if unit > 1.0 else v), starts)
    return (moments / masses * max(unit, 1.0))[:, None], masses


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

    def _effects(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What context multiplies the log-odds by, and then adds to them."""
        raise InputError(f"context: {type(self).__name__} takes none.")

    @property
    def classes_(self) -> np.ndarray:
        """The two labels, sorted."""
        self._check_fitted()
        return self.labels_

    def _calibrate(self, logits: Any) -> Any:
        return self._on_block(logits, "transform", None)

    # Reading

    def _read_scores(self, X: Any, first_row: int = 0) -> tuple[Any, list[Any]]:
        """Values as they came, an array of numpy or torch, and their scores, each (n,) in double precision."""
        self._check_frame(X)
        values, eps = read_floats(format_of(X).array(X), "X")
        if 0 in values.shape:
            what = "0 feature(s)" if values.shape[0] else "0 sample(s)"
            raise InputError(f"X has {what} (shape={tuple(values.shape)}) while a minimum of 1 is required.")
        several = self.columns == "scores"
        width = values.shape[1] if values.ndim == 2 else 1
        if values.ndim not in (1, 2) or (width > 2 and not several):
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
        elif self.input == "probabilities":
            pair = xp.stack([self._checked_score(double[:, j], xp, first_row) for j in (0, 1)], axis=1)
            check_probability_rows(
                pair, eps, "X", first_row, "For scores of another kind use input='scores'."
            )
            return values, [pair[:, 1]]
        else:
            scores = [double[:, 1] - double[:, 0]]
        return values, [self._checked_score(score, xp, first_row) for score in scores]

    def _checked_score(self, score: Any, xp: Any, first_row: int) -> Any:
        low, high = float(xp.min(score)), float(xp.max(score))
        if self.input != "probabilities":
            if low >= -_LARGEST and high <= _LARGEST:
                return score
        elif low >= -1e-6 and high <= 1 + 1e-6:
            return score if low >= 0 and high <= 1 else xp.clip(score, 0.0, 1.0)
        if bool(xp.any(xp.isnan(score))):
            what, advice, bad = "contains NaN", "Find where it comes from, or drop the row.", xp.isnan(score)
        elif bool(xp.any(xp.isinf(score))):
            what, bad = "contains infinity", xp.isinf(score)
            advice = "Clip it to a finite score; as a probability it is 0 or 1 (input='probabilities')."
        else:
            what, bad = "is no probability", ~((score >= 0) & (score <= 1))
            advice = "For log-odds use input='logits', for any other scale input='scores'."
        row = int(xp.argmax(xp.astype(bad, xp.int8)))
        raise InputError(f"X {what}: first in row {first_row + row}, {float(score[row])}. {advice}")

    def _labels_of(self, y: Any, n_rows: int) -> np.ndarray:
        if y is None:
            raise InputError(_NO_LABELS)
        labels = np.asarray(to_numpy(format_of(y).array(y)))
        if labels.dtype.kind == "O":
            labels = np.asarray(labels.tolist())
        if labels.ndim == 2 and labels.shape[1] == 1:
            warn(
                "A column-vector y was passed when a 1d array was expected: pass y.ravel().",
                DataConversionWarning,
            )
            labels = labels[:, 0]
        if labels.ndim == 2 and len(labels) == n_rows:
            raise InputError(
                f"y has shape {labels.shape}: expected one label for each row. For one-hot labels pass y.argmax(axis=1)."
            )
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

    def _cells_of(self, X: Any, y: Any, sample_weight: Any, codes: Any, first_row: int) -> Cells:
        """Scores of a block of rows, as double precision on the host; probabilities as log-odds."""
        columns = [to_numpy(score) for score in self._read_scores(X, first_row)[1]]
        if self.input == "probabilities":
            columns = [log_odds(p, np) for p in columns]
        matrix, labels = np.stack(columns, axis=1), self._labels_of(y, len(columns[0]))
        weight: Any = check_weights(sample_weight, matrix, first_row=first_row)
        check_context_rows(codes, len(labels), first_row)
        if weight is None:
            weight = np.ones(len(labels))
        elif not weight.all():
            counted = weight > 0
            matrix, labels, weight = matrix[counted], labels[counted], weight[counted]
            codes = None if codes is None else codes[counted]
        return cells_by_label(matrix, labels, weight, codes, self._takes_cells)

    def _check_frame(self, X: Any) -> None:
        """Refuse a frame whose columns are not those of the fit, or in another order."""
        columns = _columns_of(X)
        if columns is not None:
            self._check_columns(columns)

    def _remember_shape(self, X: Any) -> None:
        columns = _columns_of(X)
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
        codes = None
        if context is not None:
            self.context_, self.unseen_ = ContextReader.of(context).having_seen(context), 0
            codes = self.context_.codes(context)
        merge = partial(merged, reduced=self._takes_cells)
        if is_dask(X) or hasattr(X, "to_dask_array"):
            if start is not None or y is None:
                raise InputError(_NO_LABELS if y is None else "start: the new rows must be arrays in memory.")
            cells: Cells = reduce_tasks(self._dask_tasks(X, y, sample_weight, codes), merge)
        else:
            parts = self._parts(X, y, sample_weight, codes)
            if start is not None:
                parts = self._with_start(X, y, sample_weight, context, codes, start, start_rows)
            cells = reduce(merge, (self._cells_of(*part) for part in parts), {})
        check_some_weight(bool(cells))
        names = sorted(cells)
        if len(names) != 2:
            advice = (
                "Unknown label type: Only binary classification is supported. The type of the target is multiclass: use MCCT."
                if len(names) > 2
                else "One class alone says nothing of the other: give rows of both."
            )
            raise InputError(
                f"y holds {len(names)} class{'es' * (len(names) > 1)}, {names[:3]}, but a score is calibrated for two. {advice}"
            )
        self._check_columns_in_order(X, names)
        self.labels_ = np.array(names)
        rows = zip(*(cells[name] for name in names), strict=True)
        scores, weight, codes = (np.concatenate(pair) for pair in rows)
        labels = np.repeat([0.0, 1.0], [len(cells[name][1]) for name in names])
        if self.input == "logits" and scores.shape[1] == 1:
            warn_of_probabilities(scores)
        self._fit_scores(scores, labels, weight, codes if codes.shape[1] else None)

    def _check_columns_in_order(self, X: Any, labels: list[Any]) -> None:
        """Columns called after the labels stand in their order: the second is the class whose probability is asked for."""
        columns = class_names(X) or tuple(getattr(self, "feature_names_in_", ()))
        if self.columns != "classes" or len(columns) != 2:
            return
        words = [str(int(x)) if not isinstance(x, str) and x == int(x) else str(x) for x in labels]
        first, second = numbers_of(words, classes_of(columns))
        if first == 1 or second == 0:
            raise InputError(
                f"X: its columns are called {listing(columns)}, and the labels in sorted order are {listing(words)}. Put the "
                "columns in that order."
            )

    def _parts(self, X: Any, y: Any, weight: Any, codes: np.ndarray | None) -> Iterator[tuple[Any, ...]]:
        """Values, labels, weights, context and number of the first row, of some rows at a time."""
        if not is_blocks(X, y):
            self._remember_shape(X)
            n = X.shape[0] if getattr(X, "shape", ()) and hasattr(X, "dtype") else 0
            if n <= _READ:
                yield X, y, weight, codes, 0
                return
            y = self._labels_of(y, n)
            for first in range(0, n, _READ):
                rows = slice(first, first + _READ)
                own = weight if weight is None or np.ndim(weight) == 0 else weight[rows]
                yield X[rows], y[rows], own, None if codes is None else codes[rows], first
            return
        if y is not None or weight is not None or codes is not None:
            raise InputError(
                "y: blocks hold their labels, weights and context themselves; leave y, sample_weight and context out."
            )
        first = 0
        for block in X() if callable(X) else X:
            if not isinstance(block, tuple | list) or len(block) < 2:
                raise InputError("X: each block must be (X, y) or (X, y, sample_weight).")
            values, y, *rest = block
            if not len(y):
                continue
            context = find_context(rest)
            weight = next((part for part in rest if part is not context and part is not None), None)
            if context is not None:
                before = getattr(self, "context_", None) or ContextReader.of(context)
                self.context_, self.unseen_ = before.having_seen(context), 0
                if first and self.context_ != before:
                    raise InputError(
                        "context: a block has categories that the blocks before had not. Give context= with arrays in memory."
                    )
            if first == 0:
                self._remember_shape(values)
            yield values, y, weight, None if context is None else self.context_.codes(context), first
            first += len(y)

    def _dask_tasks(self, X: Any, y: Any, sample_weight: Any, codes: np.ndarray | None) -> list[Any]:
        """The cells of each chunk."""
        named = X if hasattr(X, "columns") else None
        X = dask_array(X)
        if any(np.isnan(size) for size in X.chunks[0]):
            X = X.compute_chunk_sizes()
        self._remember_shape(X if named is None else named)
        rows = X[:, None] if X.ndim == 1 else X.rechunk({1: -1})
        chunks = chunks_of(rows, dask_array(y), dask_array(sample_weight), codes)
        return [task(self._cells_of, *chunk) for chunk in chunks]

    def _with_start(
        self, X: Any, y: Any, weight: Any, context: Any, codes: Any, start: Any, start_rows: float
    ) -> Iterator[tuple[Any, ...]]:
        """The rows, and the same rows twice, labelled by the probabilities of an old calibrator."""
        check_number(start_rows, "start_rows", least=0)
        if is_blocks(X, y):
            raise InputError(
                "start: the new rows must be arrays in memory. Rows since the change are enough."
            )
        if not hasattr(start, "predict_proba") or len(getattr(start, "classes_", ())) != 2:
            raise InputError("start must be a fitted calibrator of two classes.")
        self._remember_shape(X)
        keywords = {"context": context} if getattr(start, "context_", None) is not None else {}
        p = to_numpy(read_floats(format_of(X).array(start.predict_proba(X, **keywords)), "start")[0])
        p = (p[:, 1] if p.ndim == 2 else p).astype(np.float64)
        names = np.unique(self._labels_of(y, len(p))).tolist()
        if not set(names) <= set(start.classes_.tolist()):
            raise InputError(
                f"y holds {names}, but start was fitted to the labels {start.classes_.tolist()}."
            )
        weight = check_weights(weight, p[:, None])
        weight = np.ones(len(p)) if weight is None else weight
        old = weight * (start_rows / weight.sum())
        yield X, y, weight, codes, 0
        for label, q in zip(start.classes_, (1.0 - p, p), strict=True):
            yield X, np.full(len(p), label), old * q, codes, 0

    # Applying

    def _apply(self, X: Any, method: str, out: Any, context: Any = None) -> Any:
        self._check_fitted()
        if type(X) is np.ndarray and X.ndim == 1 and context is None and out is None:
            return self._on_block(X, method, self._codes(None))
        self._check_frame(X)
        if is_dask(X) or hasattr(X, "to_dask_array"):
            return self._on_dask(X, method, context)
        its_format, codes = format_of(X), self._codes(context)
        values = its_format.array(X)
        # An array in a file is read in parts.
        in_file = isinstance(values, np.memmap) or library_of(values) in ("zarr", "h5py")
        starts = range(0, values.shape[0], _READ) if in_file else (0,)
        results = []
        for first in starts:
            rows = slice(first, first + _READ) if in_file else slice(None)
            part = values[rows] if in_file else values
            result = self._on_block(part, method, None if codes is None else codes[rows], first)
            if out is None:
                results.append(result)
            else:
                out[rows] = result
        if out is not None:
            return out
        return self._back(results[0] if len(results) == 1 else np.concatenate(results), X, method)

    def _back(self, result: Any, X: Any, method: str) -> Any:
        """Results in the format of X."""
        names = self._names_of_results(method) if hasattr(X, "columns") and result.ndim == 2 else None
        if names is not None:
            import narwhals as nw

            first = nw.nth(0)
            X = nw.from_native(X).select(*(first.alias(str(name)) for name in names)).to_native()
        return format_of(X).back(result, X, -1)

    def _names_of_results(self, method: str) -> np.ndarray | None:
        """What the columns of results are called; None: like those of X."""
        if self.columns == "classes" and self.n_features_in_ == 2:
            return None
        if method == "predict_proba":
            return self.labels_
        return self.get_feature_names_out() if self.n_features_in_ > 1 else None

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

        def of(rows: slice) -> Any:
            with np.errstate(over="ignore", under="ignore"):
                f = self._log_odds([score[rows] for score in scores], xp)
            if codes is not None:
                factor, added = (xp.asarray(x, **device_of(f)) for x in self._effects(codes[rows]))
                f = factor * f + added
            return self._formed(f, values[rows], method, xp)

        return map_blocks(of, row_slices(values, BLOCK if isinstance(values, np.ndarray) else len(values)))

    def _formed(self, f: Any, values: Any, method: str, xp: Any) -> Any:
        """Log-odds, probabilities or labels in the shape and the type of the values."""
        if method == "log_odds":
            return f
        if method == "predict":
            return labels_like(self.labels_, f, values)
        if method == "transform":
            limit = float(xp.finfo(values.dtype).max)
            f = xp.clip(f, -limit, limit)
            result = f if values.ndim == 1 else f[:, None]
            if values.ndim == 2 and values.shape[1] == 2 and self.columns == "classes":
                result = xp.stack([-0.5 * f, 0.5 * f], axis=1)
        elif values.ndim == 1:
            result = expit(f, xp)
        else:
            result = xp.stack([expit(-f, xp), expit(f, xp)], axis=1)
        with np.errstate(under="ignore", over="ignore"):
            return xp.astype(result, values.dtype, copy=False)

    def _on_dask(self, X: Any, method: str, context: Any) -> Any:
        if context is not None:
            raise InputError(
                "context: Dask arrays are predicted without one. Use predict_blocks, or X.compute()."
            )
        self._codes(None)
        X = dask_array(X)
        if X.ndim == 2:
            X = X.rechunk({1: -1})
        of_x = X.dtype if X.dtype.kind == "f" else np.dtype(np.float64)
        probe = self._on_block(np.full((1, *X.shape[1:]), 0.5, of_x), method, None)
        axes: dict[str, Any] = {"drop_axis": 1} if probe.ndim < X.ndim else {}
        if probe.ndim == 2:
            axes = {"chunks": (X.chunks[0], (probe.shape[1],))}
        function = partial(self._on_block, method=method, codes=None)
        return X.map_blocks(function, dtype=probe.dtype, meta=probe[:0], **axes)

    def _predicted(self, blocks: Iterator[tuple[Any, Any]]) -> Iterator[Any]:
        first_row = 0
        for X, context in blocks:
            if is_empty(X):
                yield X
                continue
            codes = None if context is None else self._counted(context)
            result = self._on_block(X, "predict_proba", codes, first_row)
            first_row += len(result)
            yield self._back(result, X, "predict_proba")

    def score(self, X: Any, y: Any, sample_weight: Any = None, context: Any = None) -> float:
        """`Calibrator.score` of scores."""
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
        weight = check_weights(sample_weight, f[:, None])
        loss = np.logaddexp(0.0, np.where(labels == self.labels_[1], -f, f))
        return -float(np.average(loss, weights=weight))

    def check_state(self) -> None:
        """Raise ValueError unless fitted attributes can be those of a fit (`state`)."""
        check_choice(self.input, "input", self._inputs)
        n, labels = self.n_features_in_, np.asarray(self.labels_)
        right = labels.shape == (2,) and labels.dtype.kind in "iubfU" and labels[0] < labels[1]
        state.expect(right, "labels_", labels, "two labels in order")
        state.expect(
            type(n) is int and (n in (1, 2) or (n > 2 and self.columns == "scores")), "n_features_in_", n
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags(multi_class=False)
        return tags


def _columns_of(X: Any) -> Any:
    """A frame with the columns of X; None where X has none, or one that holds lists."""
    columns = named_columns(X)
    width = 0 if columns is None else len(column_names(columns))
    return columns if width > 1 or (width == 1 and as_array(columns).shape[1:] == (1,)) else None


def labels_like(labels: np.ndarray, f: Any, values: Any) -> Any:
    """The second label where log-odds are positive, as an array of the library of ``values``."""
    chosen = labels[to_numpy(f > 0).astype(np.intp)]
    if is_torch(values) and labels.dtype.kind in "iubf":
        return array_namespace(values).asarray(chosen, device=values.device)
    return chosen


def check_rising(name: str, values: Any, size: int | None = None, strictly: bool = False) -> None:
    """Raise ValueError unless numbers rise; with a ``size``, so many probabilities that do not fall."""
    a = np.asarray(values, dtype=np.float64)
    right: Any = a.ndim == 1 and len(a) and np.isfinite(a).all() and size in (None, len(a))
    state.expect(right and np.diff(a) > (0.0 if strictly else -1e-12), name, a, "numbers that rise")
    state.expect(size is None or (a >= 0) & (a <= 1), name, a, "probabilities")
