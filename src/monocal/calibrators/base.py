"""What every calibrator is: logits in, calibrated logits or probabilities out, in the caller's own form.

    fit      read      X, y, sample_weight, context  ->  checked rows, wherever they are     (`inputs.batch`, `inputs.reader`)
             prepare   in memory as arrays, or as a source of blocks
             solve     `_fit(logits, labels, weight)`, or `_fit_source(source)` for sums over rows
             keep      attributes that end in ``_``; a fit that fails leaves the calibrator as it was
    predict  read      X, context  ->  rows
             apply     `_calibrate(logits)` or `_probabilities(logits)`, here, in parts of a file, or on workers
             return    in the format, shape and type of X

A family subclasses `Calibrator` and writes `_fit` and `_calibrate`. Whatever the way to `_on_rows`, a row gets the same result
there as alone, up to the rounding of compiled loops for large arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..arrays import (
    array_namespace,
    is_plain_rows,
    keep_argmax,
    ordered_softmax,
    to_numpy,
    widened,
)
from ..core.map import MapStep
from ..errors import InputError, require
from ..inputs.batch import Batch, in_type, open_source, out_of_core
from ..inputs.context import check_context_rows
from ..inputs.files import is_empty, values_and_context
from ..inputs.formats import column_names
from ..inputs.layout import Layout
from ..inputs.reader import ArraySource, Reader, RowMap, Source
from ..inputs.validation import (
    check_choice,
    check_logits,
    check_weights,
    ignored_rows,
    read_matrix,
    warn_of_probabilities,
)
from ..llm.top_k import TopK
from ..sklearn_private import output_config
from . import state
from .updating import with_old_labels

# Rows that an old calibrator counts for where a fit starts from it.
START_ROWS = 1000.0


@dataclass(kw_only=True, eq=False, repr=False)
class Calibrator(OneToOneFeatureMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """Base of all calibrators: transformers of scikit-learn, whose columns are the classes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    preserves_order, preserves_ranking, preserves_top1 : bool
        Whether the order of the classes within every row is guaranteed, ties included; with two classes the order of the rows by
        P(class 1), so AUC; and that the most probable class stays.
    takes_context : bool
    n_features_in_ : int
        Number of classes.
    feature_names_in_ : ndarray of shape (m,)
        Names of the classes, where `fit` was given a frame, or an array of xarray with coordinates for its classes; later ones
        must have the same, in the same order.
    class_dim_ : str
        Name of the dimension of the classes, where `fit` was given an array of xarray; later ones must have it in the same place.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.MCCT()
    >>> isinstance(cal, mc.Calibrator), cal.preserves_order
    (True, True)
    >>> cal.fit(data.values, data.labels).predict_proba(data.values[:1]).round(2)
    array([[0.01, 0.  , 0.01, 0.98, 0.01]], dtype=float32)
    >>> cal.n_features_in_
    5
    """

    # What a family says of itself. Names that it is listed under, with the parameters of each; by default its own name.
    _variants: ClassVar[dict[str, dict[str, Any]]]
    preserves_order: ClassVar[bool] = False
    preserves_top1: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False
    takes_context: ClassVar[bool] = False
    extras: ClassVar[tuple[str, ...]] = ()  # of monocal, that fitting needs
    # Whether it works on the caller's own arrays (numpy, torch on any device); else it gets numpy arrays.
    _any_array: ClassVar[bool] = False
    # Whether `_fit_source` takes rows that are no arrays in memory.
    _streams: ClassVar[bool] = False

    # Fitted attributes, with what must hold of each where it comes from a file (`state`).
    _state: ClassVar[state.Rules] = {
        "feature_names_in_": state.names,
        "class_dim_": state.text,
        "context_": state.context,
        "n_rows_": state.positive,
        "unseen_": None,
    }

    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None

    # What a family writes. Arrays are those of the caller where `_any_array`, and numpy's else: hence Any.

    def _fit(self, logits: Any, labels: Any, weight: Any) -> None:
        """Learn from checked logits (n, m), labels (n,) and weights (n,) or None; set attributes ending in ``_``."""
        raise NotImplementedError(f"{type(self).__name__} must write _fit, or _fit_source")

    def _fit_source(self, source: Source) -> None:
        """Learn from checked rows. A family that takes rows wherever they are replaces this."""
        assert isinstance(source, ArraySource)
        rows = source.checked if self._any_array else source.checked.on_host()
        self._fit(widened(rows.logits), rows.labels, rows.weight)

    @abstractmethod
    def _calibrate(self, logits: Any) -> Any:
        """Calibrated logits (n, m) of checked logits, -inf where a class is not available."""

    def _probabilities(self, logits: Any) -> Any:
        """Calibrated probabilities; a family that works on probabilities overrides this and `_calibrate`."""
        return ordered_softmax(self._calibrate(logits))

    def _keeps_argmax(self) -> bool:
        """Whether what is computed has the argmax of the logits already, in the type it is computed in."""
        return False

    def _judge(self, source: Source) -> None:
        """Warn of what the fitted map leaves wrong on these rows."""

    # Fit

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        context: Any = None,
        *,
        start: Any = None,
        start_rows: float = START_ROWS,
    ) -> Self:
        """Learn the map. Where it fails, the calibrator stays as it was.

        Parameters
        ----------
        X : array-like of shape (n, m)
            Logits of a calibration set (or probabilities, with ``input="probabilities"``). Some methods also take rows that
            need not fit in memory: memory-mapped, zarr, h5py and Dask arrays, Dask DataFrames, or a function that returns an
            iterator of blocks ``(X, y)``, with ``sample_weight`` (n,) and ``context`` (n, C) behind where there are any.
        y : array-like of shape (n,)
            True classes, 0..m-1; or names of the columns of a frame, whole numbers other than 0..m-1 in order among them.
        sample_weight : array-like of shape (n,), optional
            In the sums of the fit a row of weight 2 counts as two rows; tests of whether classes or categories differ use the
            effective number of rows, ``(sum w)^2 / sum w^2``.
        context : array-like of shape (n,) or (n, C), optional
            Properties of each row apart from its logits, which must be there when predicting, too: a subject, a camera, a
            position. Floating-point columns are numbers; integer, boolean and text columns are categories.
        start : Calibrator, optional
            An old calibrator of the same classes to start from: its probabilities of these rows count as ``start_rows`` rows
            more. The second stage of an old `ConditionalMCCT` stays as it is until the new rows are more than that.
        start_rows : float

        Returns
        -------
        self
        """
        if context is not None and not self.takes_context:
            raise InputError(self._no_context())
        before = dict(self.__dict__)
        try:
            self._checked_fit(X, y, sample_weight, context, start, start_rows)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def fit_transform(
        self, X: Any, y: Any = None, sample_weight: Any = None, context: Any = None, **start: Any
    ) -> Any:
        """`fit`, then `transform` of the same rows."""
        self.fit(X, y, sample_weight, context, **start)
        return self.transform(X, context=context)

    def _checked_fit(
        self, X: Any, y: Any, sample_weight: Any, context: Any, start: Any, start_rows: float
    ) -> None:
        check_choice(self.input, "input", ("logits", "probabilities"))
        batch = Batch(X, self._layout, y)
        y, sample_weight, context = batch.columns(y, sample_weight, context)
        rows = batch.rows
        if start is not None:
            if isinstance(start, Calibrator):
                start._check_names(batch)
            rows, y, sample_weight, context = with_old_labels(
                start, start_rows, batch.in_memory, y, sample_weight, context, self.ignore_index
            )
        reader = Reader(self.input, layout=self._layout)
        source = open_source(rows, y, sample_weight, context, reader, streams=self._streams)
        if source.reader.context is not None and not self.takes_context:
            raise InputError(
                f"X: its blocks hold a context, and {type(self).__name__} takes none. Leave it out, or use ConditionalMCCT."
            )
        for name in Calibrator._state.keys() | {"smallest_probability_"}:
            self.__dict__.pop(name, None)
        if batch.names is not None:
            validate_data(self, batch.names, reset=True, skip_check_array=True)
        if batch.class_dim is not None:
            self.class_dim_ = batch.class_dim
        if self.input == "logits":
            warn_of_probabilities(source.first)
        self._learn(source)
        self.n_rows_ = source.effective_rows
        self._judge(source)

    def _learn(self, source: Source) -> None:
        """Fit to checked rows."""
        self.n_features_in_ = source.shape[1]
        if self.input == "probabilities":
            self.smallest_probability_ = source.reader.smallest
        if source.reader.context is not None:
            self.context_, self.unseen_ = source.reader.context, 0
        self._fit_source(source)

    # Predict

    def predict_proba(self, X: Any, *, context: Any = None, out: Any = None) -> Any:
        """Calibrated probabilities, in the form and type of ``X``; rows sum to 1.

        Parameters
        ----------
        X : array-like of shape (n, m)
            As in `fit`. A large memory-mapped, zarr or h5py array is read in parts; a Dask array gives a lazy Dask array.
        context : array-like of shape (n,) or (n, C), optional
            Where there was one in `fit`.
        out : array of shape (n, m), optional
            Where to write the result, part by part: a numpy, memory-mapped, zarr or h5py array.

        Returns
        -------
        array of shape (n, m)
        """
        return self._apply(X, "predict_proba", out, context)

    def transform(self, X: Any, *, context: Any = None, out: Any = None) -> Any:
        """Calibrated logits, whose softmax is `predict_proba`."""
        return self._apply(X, "transform", out, context)

    def predict(self, X: Any, *, context: Any = None) -> Any:
        """The most probable class of each row, by the place of its column, whatever that is called."""
        return self._apply(X, "predict", None, context)

    def predict_blocks(self, blocks: Any) -> Iterator[Any]:
        """Calibrated probabilities of one block of rows after another, so that neither need fit in memory.

        Parameters
        ----------
        blocks : iterable, function that returns one, or memory-mapped, zarr or h5py array
            Blocks are arrays (n_i, m), or tuples or lists that begin with one, with a table of context where there was one.
        """
        self._check_fitted()
        with_context = "context_" in self.__dict__
        if with_context:
            self.unseen_ = 0
        return self._predicted(values_and_context(blocks, with_context, self._layout))

    def score(self, X: Any, y: Any, sample_weight: Any = None, context: Any = None) -> float:
        """Mean log-likelihood of the labels, the negative of `monocal.metrics.nll`: larger is better.

        Parameters are those of `fit`, in memory; ``-inf`` where a label has probability zero.
        """
        self._check_fitted()
        if isinstance(X, TopK):
            y, sample_weight, _ = ignored_rows(y, sample_weight, len(X), self.ignore_index)
            log_p = self._apply(X, "predict_proba", None, context).log_likelihood(X.class_numbers(y))
            return _mean(log_p, check_weights(sample_weight, X.values))
        batch = Batch(X, self._layout)
        self._check_names(batch)
        y, sample_weight, context = batch.columns(y, sample_weight, context)
        rows = batch.rows
        if out_of_core(rows) is not None:
            raise InputError(
                "score: X must be an array in memory. For larger data, feed blocks of predict_blocks to metrics.Evaluator."
            )
        codes = self._codes(context)
        matrix = read_matrix(rows)
        if matrix.values.shape[1] != self.n_features_in_:
            self._check_columns(matrix.values)
        _, checked = self.reader.checked(matrix, y, sample_weight, context=codes, learning=False)
        logits = checked.logits if self._any_array else widened(to_numpy(checked.logits))
        f = to_numpy(self._calibrate(logits, *(() if codes is None else (codes,)))).astype(np.float64)
        log_p = f[np.arange(len(f)), to_numpy(checked.labels)] - logsumexp(f, axis=1)
        return _mean(log_p, checked.weight)

    def _apply(self, X: Any, method: str, out: Any, context: Any = None) -> Any:
        self._check_fitted()
        frame = method == "transform" and output_config("transform", self)["dense"] != "default"
        if out is None and self.class_axis == -1 and is_plain_rows(X):  # the short way, for many small calls
            if "feature_names_in_" in self.__dict__:
                self._check_columns(X)
            codes = self._codes(context) if "context_" in self.__dict__ or context is not None else None
            result = self._on_rows(method, X, context=codes)
            return to_numpy(result) if frame else result
        batch = Batch(X, self._layout)
        self._check_names(batch)
        codes = self._codes(batch.columns(None, None, context)[2])
        row_map = RowMap(copy(self), method, codes)  # of the map as it is now: Dask computes it later
        result = batch.apply(row_map, out)
        if frame:  # which scikit-learn makes of rows (n, m)
            if hasattr(result, "as_source") or not self._layout.is_plain(result):
                raise InputError(
                    "set_output: what comes out has no rows of classes. Say set_output(transform='default')."
                )
            return to_numpy(result)
        return batch.back(result) if out is None else result

    def _predicted(self, blocks: Iterator[tuple[Any, Any]]) -> Iterator[Any]:
        first_row = 0
        for block, context in blocks:
            if is_empty(block):
                yield block
                continue
            batch = Batch(block, self._layout)
            self._check_names(batch)
            codes = None if context is None else self._counted(context)
            rows = batch.in_memory
            result = self._on_rows("predict_proba", rows, first_row, context=codes)
            yield batch.back(batch.in_shape(result))
            first_row += len(rows)

    def _on_rows(
        self,
        method: str,
        X: Any,
        first_row: int = 0,
        dtype: Any = None,
        context: np.ndarray | None = None,
    ) -> Any:
        """The result for rows in memory, an array of the library and type of ``X``; or of type ``dtype``."""
        read = (
            self.reader.values(X, first_row)
            if self.input != "logits"
            else check_logits(X, first_row=first_row)
        )
        values = read.values
        if values.shape[1] != self.n_features_in_:
            self._check_columns(values)
        if context is not None:
            check_context_rows(context, values.shape[0], first_row)
        if method == "predict" and self.preserves_top1:
            return array_namespace(values).argmax(values, axis=1)
        if dtype is not None and not str(dtype).startswith("torch"):
            values = to_numpy(values)
        logits = values if self.input == "logits" else self.reader.logits(values)
        if not self._any_array:
            logits = widened(to_numpy(logits))
        function = self._calibrate if method == "transform" else self._probabilities
        calibrated = function(logits) if context is None else function(logits, context)  # type: ignore[call-arg]
        dtype = dtype or read.dtype
        same = type(calibrated) is type(values) and calibrated.dtype == dtype
        result = calibrated if same else in_type(calibrated, values, dtype)
        kept = logits is values and result.dtype == calibrated.dtype and self._keeps_argmax()
        if self.preserves_top1 and not kept:
            result = keep_argmax(result, values)
        if method == "predict":
            # Of `predict_proba` in its own type, so that the two agree where rounding makes a tie.
            result = array_namespace(result).argmax(result, axis=1)
        return result

    # Reading

    @property
    def reader(self) -> Reader:
        """How this calibrator reads rows: their check, and the way from probabilities to logits."""
        return Reader(self.input, getattr(self, "smallest_probability_", np.inf), layout=self._layout)

    @property
    def _layout(self) -> Layout:
        return Layout(self.class_axis, self.ignore_index)

    def _logits(self, X: Any) -> Any:
        """Checked logits of rows in memory, in a library that the family can work with."""
        batch = Batch(X, self._layout)
        self._check_names(batch)
        values = self.reader.values(batch.in_memory).values
        if values.shape[1] != self.n_features_in_:
            self._check_columns(values)
        logits = self.reader.logits(values)
        return logits if self._any_array else widened(to_numpy(logits))

    def _check_fitted(self) -> None:
        if "n_features_in_" not in self.__dict__:  # which every fit sets
            check_is_fitted(self)

    def _check_names(self, batch: Batch) -> None:
        """Refuse rows whose classes are not called as in the fit, where they have names."""
        if "n_features_in_" not in self.__dict__:
            return
        fitted, dim = getattr(self, "class_dim_", None), batch.class_dim
        if None not in (fitted, dim) and dim != fitted:
            dims = batch.original.dims
            raise InputError(
                f"X has the dimensions {dims}, of which class_axis={self.class_axis} is {dim!r}, but the classes of the fit were "
                f"the dimension {fitted!r}. {'Transpose' if fitted in dims else 'Rename'} it, so that the two agree."
            )
        if batch.names is not None:
            self._check_columns(batch.names)
        elif "feature_names_in_" in self.__dict__ and batch.width is not None:
            self._check_columns(np.empty((1, batch.width)))

    def _check_columns(self, X: Any) -> None:
        """Refuse rows whose columns are not those of the fit, by their names where there are some."""
        names = list(map(str, column_names(X))) if hasattr(X, "columns") else []
        counted = list(map(str, range(len(names))))
        if not hasattr(self, "feature_names_in_") and names != counted and sorted(names) == sorted(counted):
            raise InputError(
                f"X: its columns are in the order {', '.join(names)}, and the calibrator's classes in that of their numbers. Put "
                "the columns in order, X[sorted(X.columns)]."
            )
        validate_data(self, X, reset=False, skip_check_array=True)

    def _codes(self, context: Any) -> np.ndarray | None:
        """The context of rows as numbers (n, C); there must be one exactly where there was one in `fit`."""
        reader = self.__dict__.get("context_")
        if reader is None and context is None:
            return None
        self._check_fitted()
        if reader is None:
            without = "context: the calibrator was fitted without one. Leave it out, or fit with context=."
            raise InputError(without if self.takes_context else self._no_context())
        if context is None:
            names = ", ".join(repr(column.name) for column in reader.columns)
            raise InputError(
                f"context is missing: the calibrator was fitted with the column(s) {names}. Give the same of these rows: context="
            )
        self.unseen_ = 0
        return self._counted(context)

    def _counted(self, context: Any) -> np.ndarray:
        codes: np.ndarray = self.context_.codes(context)
        self.unseen_ += self.context_.count_missing(codes)
        return codes

    def _no_context(self) -> str:
        return (
            f"{type(self).__name__} takes no context. ConditionalMCCT does, which keeps the order of the classes, and "
            "BinaryMCCT, for two classes."
        )

    @property
    def classes_(self) -> np.ndarray:
        """What `predict` gives: the numbers of the columns. The name is scikit-learn's."""
        self._check_fitted()
        return np.arange(self.n_features_in_)

    # Saving and exporting

    def check_state(self) -> None:
        """Raise ValueError with a sentence unless the fitted attributes can be those of a fit."""
        state.check(self)

    def _map_steps(self) -> list[MapStep]:
        """The fitted map as steps that run on any array library, for exports; see `core.map`."""
        from . import CALIBRATORS

        able = [name for name, kind in CALIBRATORS.items() if kind._map_steps is not Calibrator._map_steps]
        raise InputError(
            f"{type(self).__name__} cannot be exported. These can, sequences if all parts can: {', '.join(able)}. Fit one of "
            "them, or call predict_proba."
        )

    def save(self, path: Any, **rest: Any) -> Any:
        """Write to a JSON file that `monocal.load` reads; see `monocal.save` for the keywords."""
        from ..persistence import save

        return save(self, path, **rest)

    def to_onnx(self, path: Any = None, **rest: Any) -> Any:
        """The fitted map as an ONNX model, alone or at the end of a classifier; see `monocal.export.onnx.to_onnx`."""
        for library in ("onnx", "ndonnx"):
            require(library, "onnx")
        from ..export.onnx import to_onnx

        return to_onnx(self, path, **rest)

    def to_torch(self, **rest: Any) -> Any:
        """The fitted map as a ``torch.nn.Module``; see `monocal.export.torch.to_torch`."""
        require("torch", "torch")
        from ..export.torch import to_torch

        return to_torch(self, **rest)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _mean(terms: np.ndarray, weight: Any) -> float:
    """Mean of terms (n,), of which those without weight may be anything."""
    if weight is None:
        return float(terms.mean())
    share = to_numpy(weight)
    return float(np.average(terms[share > 0], weights=share[share > 0]))
