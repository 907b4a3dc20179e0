"""What every calibrator is: checked logits in, calibrated logits or probabilities out, in the caller's own form.

    fit(X, y)            learn the map from a calibration set
    predict_proba(X)     calibrated probabilities (n, m)
    transform(X)         calibrated logits (n, m): the softmax of these
    predict(X)           the most probable class
    score(X, y)          mean log-likelihood of the labels

A family writes ``_calibrate(logits)``, and ``_fit(logits, labels, weight)`` where it needs arrays in memory or
``_fit_rows(rows)`` where it adds up sums over rows (`ConeCalibrator`); the base does the rest. A map that keeps the
order works on the caller's own arrays (numpy, torch on any device); the others are given numpy arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from ..arrays import Array, array_namespace, is_torch, keep_argmax, ordered_softmax, to_numpy, widened
from ..data.labels import by_column
from ..errors import InputError, require, spoken
from ..kinds import ClassDim, as_array, in_dims_of, kind_of
from ..layout import Flat, GatheredRows, Layout
from ..rows.context import ContextReader, check_context_rows
from ..rows.files import check_out, context_blocks, is_empty, plain_blocks
from ..rows.inputs import elsewhere, laid_out
from ..rows.interface import RowMap, Source
from ..rows.memory import ArraySource
from ..rows.reader import Reader
from ..rows.top_k import TopK
from ..validation import Given, check_choice, check_labels, check_weights, ignored_rows, read_matrix
from .updating import OldCalibrator

# Rows that an old calibrator counts for where a fit goes on from it.
START_ROWS = 1000.0


class Calibrator(OneToOneFeatureMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """Base of all calibrators.

    A transformer of scikit-learn: each column that comes out is the class of the column that went in, so that
    ``get_feature_names_out()`` gives the names of the classes, and ``set_output(transform="pandas")`` or ``"polars"`` makes
    `transform` give frames with these columns.

    Attributes
    ----------
    preserves_order : bool
        Whether the order of the classes within every row is guaranteed, ties included.
    preserves_top1 : bool
        Whether the most probable class is guaranteed to stay.
    n_features_in_ : int
        Number of classes seen in `fit`.
    feature_names_in_ : ndarray of shape (m,)
        Names of the classes, where `fit` was given a frame, or an array of xarray with coordinates for its classes; later ones
        must have the same, in the same order.
    class_dim_ : str
        Name of the dimension of the classes, where `fit` was given an array of xarray; later ones must have it in the same place.
    classes_ : ndarray of shape (m,)
        What `predict` gives: the numbers 0..m-1 of the columns.

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

    preserves_order: ClassVar[bool] = False
    preserves_top1: ClassVar[bool] = False
    # Families that can only handle numpy get numpy; the result is given back in the caller's library.
    _any_array: ClassVar[bool] = False
    # Whether `_fit_source` takes rows that are no arrays in memory.
    _streams: ClassVar[bool] = False

    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None

    # What a family writes.

    # Arrays are those of the caller where `_any_array`, and numpy's else: hence Any.

    def _fit(self, logits: Any, labels: Any, weight: Any) -> None:
        """Learn from checked logits (n, m), labels (n,) and weights (n,) or None; set attributes ending in ``_``."""
        raise NotImplementedError(f"{type(self).__name__} must write _fit, or _fit_source")

    def _fit_source(self, source: Source) -> None:
        """Learn from checked rows. A family that takes rows wherever they live replaces this."""
        assert isinstance(source, ArraySource)
        rows = source.checked if self._any_array else source.checked.on_host()
        self._fit(widened(rows.logits), rows.labels, rows.weight)

    @abstractmethod
    def _calibrate(self, logits: Any) -> Any:
        """Calibrated logits (n, m) of checked logits, -inf where a class is not available."""

    def _probabilities(self, logits: Any) -> Any:
        """Calibrated probabilities; a family that works on probabilities overrides this and `_calibrate`."""
        return ordered_softmax(self._calibrate(logits))

    # What a user calls.

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        start: Any = None,
        start_rows: float = START_ROWS,
    ) -> Self:
        """Learn the map.

        Parameters
        ----------
        X : array-like of shape (n, m)
            Logits of a calibration set (or probabilities, with ``input="probabilities"``). Some methods also take rows that
            need not fit in memory: memory-mapped, zarr, h5py and Dask arrays, Dask DataFrames, or a function that returns an
            iterator of blocks ``(X, y)`` or ``(X, y, sample_weight)``.
        y : array-like of shape (n,)
            True classes, 0..m-1; or their names, where X is a frame whose columns are called so.
        sample_weight : array-like of shape (n,), optional
            A row of weight 2 counts as two rows, one of weight 0 as none. Weights that sum to less than the number of rows
            therefore mean less data, and more shrinkage.
        start : Calibrator, optional
            An old calibrator to go on from, of the same classes: its probabilities of these rows count as ``start_rows`` rows
            more. Some 30 new rows then change little; updated again and again, what is old is forgotten bit by bit.
        start_rows : float
            How many rows the old calibrator counts for.

        Returns
        -------
        self
        """
        return self._kept_fit(X, y, sample_weight, start=start, start_rows=start_rows)

    def _kept_fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        context: Any = None,
        start: Any = None,
        start_rows: float = START_ROWS,
    ) -> Self:
        before = dict(self.__dict__)
        try:
            self._checked_fit(X, y, sample_weight, context, start, start_rows)
        except BaseException:
            # What had been learnt stays; a first fit that fails leaves nothing that looks fitted.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _checked_fit(
        self, X: Any, y: Any, sample_weight: Any, context: Any, start: Any, start_rows: float
    ) -> None:
        check_choice(self.input, "input", ("logits", "probabilities"))
        layout = self._layout
        dim = ClassDim.of(X, layout.class_axis)
        if isinstance(start, Calibrator):
            start = start._compared(X, layout.class_axis)
        y, sample_weight = self._in_dims_of(X, y, sample_weight)
        X, y, sample_weight = (as_array(x) for x in (X, y, sample_weight))
        flat = laid_out(X, y, layout)
        if flat is not None:
            X, y, sample_weight = flat.rows, flat.column(y, "y"), flat.column(sample_weight, "sample_weight")
        context = None if context is None else _context_rows(context, flat)
        if start is not None:
            X = X[:] if isinstance(X, GatheredRows) else X
            old = OldCalibrator(start, start_rows)
            X, y, sample_weight, context = old.beside(X, y, sample_weight, context, layout.ignore_index)
        reader, codes = Reader(self.input, layout=layout), None
        if context is not None:
            known = ContextReader.of(context).having_seen(context)
            reader, codes = replace(reader, context=known), known.codes(context)
        place = elsewhere(X, y, sample_weight, codes, layout, streams=self._streams)
        source: Source
        if place is None:
            X = X[:] if isinstance(X, GatheredRows) else X
            reader, checked = reader.checked(X, by_column(y, X), sample_weight, context=codes)
            source = ArraySource(reader, checked.that_count)
            named = X if hasattr(X, "columns") else checked.logits
            validate_data(self, named, reset=True, skip_check_array=True)
        elif not self._streams:
            raise InputError(place.refusal)
        else:
            self.__dict__.pop("feature_names_in_", None)
            if place.names is not None:
                validate_data(self, place.names, reset=True, skip_check_array=True)
            source = place.open(reader)
            self.n_features_in_ = source.shape[1]
        for name in ("smallest_probability_", "context_", "unseen_", "class_dim_"):
            self.__dict__.pop(name, None)
        if dim is not None and dim.classes is not None:
            validate_data(self, dim.classes, reset=True, skip_check_array=True)
        if dim is not None and dim.name is not None:
            self.class_dim_ = dim.name
        if self.input == "probabilities":
            self.smallest_probability_ = source.reader.smallest
        if source.reader.context is not None:
            if not has_fit_parameter(self, "context"):
                raise InputError(
                    f"X: its blocks hold a context, and {type(self).__name__} takes none. Leave it out, or use ConditionalMCCT."
                )
            self.context_, self.unseen_ = source.reader.context, 0
        self._fit_source(source)

    def transform(self, X: Any, *, out: Any = None) -> Any:
        """Calibrated logits, in the form and type of ``X``: their softmax is `predict_proba`.

        Parameters are those of `predict_proba`.
        """
        return self._apply(X, "transform", out)

    def predict_proba(self, X: Any, *, out: Any = None) -> Any:
        """Calibrated probabilities, in the form and type of ``X``; rows sum to 1.

        Parameters
        ----------
        X : array-like of shape (n, m)
            As in `fit`. A large memory-mapped, zarr or h5py array is read in parts; a Dask array gives a lazy Dask array.
        out : array of shape (n, m), optional
            Where to write the result, part by part: a numpy, memory-mapped, zarr or h5py array. Without it the result is in
            memory, even where ``X`` is not; `predict_blocks` is another way.

        Returns
        -------
        array of shape (n, m)
            ``out`` where it is given.
        """
        return self._apply(X, "predict_proba", out)

    def predict_blocks(self, blocks: Any) -> Iterator[Any]:
        """Calibrated probabilities of one block of rows after another, so that neither need fit in memory.

        Parameters
        ----------
        blocks : iterable, function that returns one, or memory-mapped, zarr or h5py array
            Blocks are arrays (n_i, m), or tuples or lists that begin with one, as `fit` takes them. After a fit with context,
            blocks hold it as well, as a table (n_i, C).

        Yields
        ------
        array of shape (n_i, m)
        """
        check_is_fitted(self)
        known = getattr(self, "context_", None)
        if known is None:
            return self._predicted((block, None) for block in plain_blocks(blocks, self._layout))
        self.unseen_ = 0
        return self._predicted((X, self._counted(known, context)) for X, context in context_blocks(blocks))

    def _counted(self, known: ContextReader, context: Any) -> np.ndarray:
        codes = known.codes(context)
        self.unseen_ += known.count_missing(codes)
        return codes

    def _predicted(self, blocks: Iterator[tuple[Any, np.ndarray | None]]) -> Iterator[Any]:
        first_row = 0
        for block, codes in blocks:
            if is_empty(block):
                yield block
                continue
            kind = kind_of(block)
            given = kind.array(block)
            flat = self._laid_out(given)
            rows = given if flat is None else flat.rows[:]
            found = self._compared(block)._on_rows("predict_proba", rows, first_row, context=codes)
            yield kind.back(found if flat is None else flat.back(found), block, self.class_axis)
            first_row += len(rows)

    def predict(self, X: Any) -> Any:
        """The most probable class of each row."""
        return self._apply(X, "predict", None)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean log-likelihood of the labels, the negative of `monocal.metrics.nll`: larger is better.

        What scikit-learn's `GridSearchCV` and `cross_val_score` go by where no ``scoring`` is given.

        Parameters
        ----------
        X : array-like of shape (n, m)
            As in `fit`, in memory; or `TopK`.
        y : array-like of shape (n,)
            True classes, 0..m-1.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        float
            ``-inf`` where a label has probability zero.
        """
        return self._score(X, y, sample_weight)

    def _score(self, X: Any, y: Any, sample_weight: Any, context: Any = None) -> float:
        if isinstance(X, TopK):
            y, sample_weight, _ = ignored_rows(y, sample_weight, len(X), self.ignore_index)
            log_p = self._apply(X, "predict_proba", None, context).log_likelihood(X.class_numbers(y))
            return _mean(log_p, check_weights(sample_weight, X.values))
        compared = self._compared(X)
        y, sample_weight = self._in_dims_of(X, y, sample_weight)
        X, y, sample_weight = (as_array(x) for x in (X, y, sample_weight))
        flat = self._laid_out(X)
        if flat is not None:
            X, y, sample_weight = flat.rows, flat.column(y, "y"), flat.column(sample_weight, "sample_weight")
            X = X[:] if isinstance(X, GatheredRows) else X
        if elsewhere(X) is not None:
            raise InputError(
                "score: X must be an array in memory. For larger data, feed blocks of predict_blocks to metrics.Evaluator."
            )
        codes = self._codes(context, flat)
        given = read_matrix(X)
        y, sample_weight, ignored = ignored_rows(
            by_column(y, X), sample_weight, len(given.values), self.ignore_index
        )
        given = compared._read(X if ignored is None else self.reader.without(given, ignored))
        labels = to_numpy(check_labels(y, given.values))
        weight = check_weights(sample_weight, given.values)
        check_context_rows(codes, len(labels))
        f = to_numpy(self._calibrate(self._logits_of(given), *_some(codes))).astype(np.float64)
        log_p = f[np.arange(len(f)), labels] - logsumexp(f, axis=1)
        return _mean(log_p, weight)

    @property
    def classes_(self) -> np.ndarray:
        """What `predict` gives: the numbers of the columns. The name is scikit-learn's."""
        self._check_fitted()
        return np.arange(self.n_features_in_)

    def save(self, path: Any, **rest: Any) -> Any:
        """Write to a JSON file that `monocal.load` reads; see `monocal.save` for the keywords."""
        from ..persistence import save

        return save(self, path, **rest)

    def to_onnx(self, path: Any = None, **rest: Any) -> Any:
        """The fitted map as an ONNX model, alone or at the end of a classifier; see `monocal.export.onnx.to_onnx`."""
        require("onnx", "onnx")
        from ..export.onnx import to_onnx

        return to_onnx(self, path, **rest)

    def to_torch(self, **rest: Any) -> Any:
        """The fitted map as a ``torch.nn.Module``; see `monocal.export.torch.to_torch`."""
        require("torch", "torch")
        from ..export.torch import to_torch

        return to_torch(self, **rest)

    def _apply(self, X: Any, method: str, out: Any, context: Any = None) -> Any:
        self._check_fitted()
        kind = kind_of(X)
        compared = self._compared(X)
        found = compared._apply_to_arrays(kind.array(X), method, out, context)
        if context is not None:
            self.unseen_ = compared.unseen_
        if method == "transform" and _get_output_config("transform", self)["dense"] != "default":
            return self._for_a_frame(found)
        return found if out is not None else kind.back(found, X, self.class_axis)

    def _for_a_frame(self, found: Any) -> Any:
        """Calibrated logits as scikit-learn takes them where `set_output` asks for frames: rows of classes, of numpy."""
        if isinstance(found, TopK) or not self._layout.is_plain(found):
            shape = "the largest logits only" if isinstance(found, TopK) else f"shape {tuple(found.shape)}"
            raise InputError(
                f"set_output: what comes out has {shape}, and a frame has one row for each sample and one column for each class. "
                "Say set_output(transform='default')."
            )
        return to_numpy(found)

    def _compared(self, X: Any, axis: int | None = None) -> Calibrator:
        """Itself; or, where an array of xarray names its classes and they are those of the fit, a copy that asks for no names."""
        dim = ClassDim.of(X, self.class_axis if axis is None else axis)
        if dim is None or "n_features_in_" not in self.__dict__:
            return self
        known = getattr(self, "class_dim_", None)
        if None not in (known, dim.name) and dim.name != known:
            advice = "Transpose it" if known in X.dims else "Rename it"
            raise InputError(
                f"X has the dimensions {X.dims}, of which {spoken('class_axis=', self.class_axis)} is {dim.name!r}, but the "
                f"classes of the fit were the dimension {known!r}. {advice}, so that the two agree."
            )
        if dim.classes is None:
            return self
        validate_data(self, dim.classes, reset=False, skip_check_array=True)
        return self._without_names()

    def _without_names(self) -> Calibrator:
        now = copy(self)
        now.__dict__.pop("feature_names_in_", None)
        return now

    def _in_dims_of(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
        axis = self.class_axis
        return in_dims_of(X, y, axis, "y"), in_dims_of(X, sample_weight, axis, "sample_weight")

    def _apply_to_arrays(self, X: Any, method: str, out: Any, context: Any) -> Any:
        flat = self._laid_out(X)
        codes = self._codes(context, flat)
        if flat is None:
            return self._apply_to_rows(X, method, out, codes)
        if flat.rows.shape[1] != self.n_features_in_:
            raise InputError(self._other_classes(flat))
        into = None
        if out is not None:
            check_out(out, flat.array.shape, flat.array.dtype)
            into = self._layout.flat(out, "out").rows
        found = self._apply_to_rows(flat.rows, method, into, codes)
        if out is not None:
            return out
        return found.array if isinstance(found, GatheredRows) else flat.back(found)

    def _apply_to_rows(self, X: Any, method: str, out: Any, codes: np.ndarray | None) -> Any:
        place = elsewhere(X)
        if place is not None:
            n_rows = getattr(X, "shape", (None,))[0]
            if isinstance(n_rows, int):
                check_context_rows(codes, n_rows)
            if place.names is not None:
                validate_data(self, place.names, reset=False, skip_check_array=True)
            return place.apply(self._row_map(method, place.names is not None, codes), out)
        if out is None:
            return self._on_rows(method, X, context=codes)
        dtype = check_out(out, np.shape(X), getattr(X, "dtype", np.float64))
        out[:] = self._on_rows(method, X, 0, dtype, codes)
        return out

    @property
    def _layout(self) -> Layout:
        return Layout(self.class_axis, self.ignore_index)

    def _laid_out(self, X: Any) -> Flat | None:
        """An array of several axes as rows; None where there are rows already."""
        if (
            type(X) is np.ndarray and X.ndim == 2 and self.class_axis == -1
        ):  # the short way, for the many small calls
            return None
        return laid_out(X, None, self._layout)

    def _other_classes(self, flat: Flat) -> str:
        """What to tell where the axis of the classes has another length than there were classes."""
        shape, known = tuple(flat.array.shape), self.n_features_in_
        axes = [axis for axis, side in enumerate(shape) if side == known]
        advice = (
            f"Axis {axes[0]} has: set {spoken('class_axis=', axes[0])}."
            if axes
            else "Give outputs of the same model."
        )
        return (
            f"X has shape {shape}: {spoken('class_axis=', self.class_axis)} has {flat.rows.shape[1]} classes, but "
            f"{type(self).__name__} is expecting {known} features as input. {advice}"
        )

    def _codes(self, context: Any, flat: Flat | None = None) -> np.ndarray | None:
        """The context of rows as numbers (n, C); there must be one exactly where there was one in `fit`."""
        check_is_fitted(self)
        known: ContextReader | None = getattr(self, "context_", None)
        if known is None and context is None:
            return None
        if known is None:
            raise InputError(
                "context: the calibrator was fitted without one. Leave it out, or fit with context=."
            )
        names = ", ".join(repr(column.name) for column in known.columns)
        if context is None:
            raise InputError(
                f"context is missing: the calibrator was fitted with the column(s) {names}. Give the same of these rows: context="
            )
        self.unseen_ = 0
        return self._counted(known, _context_rows(context, flat))

    def _row_map(self, method: str, named: bool, codes: np.ndarray | None) -> RowMap:
        # What is computed later is of the map as it is now. Blocks have no names, and those of the whole have been compared.
        now = self._without_names() if named else copy(self)
        # What comes after it looks at classes, not at ranks.
        rank_map = (
            None if getattr(self, "adjustment_", None) is not None else getattr(self, "rank_map_", None)
        )
        return RowMap(
            type(self).__name__,
            method,
            self.n_features_in_,
            self.input,
            partial(_on_part, now, method, codes),
            rank_map,
            codes is not None,
        )

    def _on_rows(
        self,
        method: str,
        X: Any,
        first_row: int = 0,
        dtype: Any = None,
        context: np.ndarray | None = None,
    ) -> Any:
        """The result for rows in memory, an array of the library and type of ``X``; or of type ``dtype``."""
        given = self._read(X, first_row)
        values = given.values
        check_context_rows(context, values.shape[0], first_row)
        if method == "predict" and self.preserves_top1:
            return array_namespace(values).argmax(values, axis=1)
        function = self._calibrate if method == "transform" else self._probabilities
        if dtype is not None and not str(dtype).startswith("torch"):
            values = to_numpy(values)
        logits = self._logits_of(given)
        found = function(logits, *_some(context))
        result = _back(found, values, dtype or given.dtype)
        kept = logits is values and result.dtype == found.dtype and self._keeps_argmax(logits, method)
        if self.preserves_top1 and not kept:
            result = keep_argmax(result, values)
        if (
            method == "predict"
        ):  # of `predict_proba` in its own type, so that the two agree where rounding makes a tie
            result = array_namespace(result).argmax(result, axis=1)
        return result

    def _read(self, X: Any, first_row: int = 0) -> Given:
        self._check_fitted()
        given = self.reader.values(X, first_row)
        named = hasattr(X, "columns")
        # scikit-learn's words for wrong columns; where there are as many, and no names, it has nothing to say.
        if named or hasattr(self, "feature_names_in_") or given.values.shape[1] != self.n_features_in_:
            validate_data(self, X if named else given.values, reset=False, skip_check_array=True)
        return given

    def _check_fitted(self) -> None:
        if "n_features_in_" not in self.__dict__:  # which every fit sets
            check_is_fitted(self)

    def _keeps_argmax(self, logits: Array, method: str) -> bool:
        """Whether what is computed of these logits has their argmax already, in the type it is computed in."""
        return False

    def _logits_of(self, given: Given) -> Array:
        """Logits in a library that the family can work with."""
        logits = self.reader.logits(given.values)
        return logits if self._any_array else widened(to_numpy(logits))

    @property
    def reader(self) -> Reader:
        """How this calibrator reads rows: their check, and the way from probabilities to logits."""
        return Reader(self.input, getattr(self, "smallest_probability_", np.inf), layout=self._layout)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _mean(terms: np.ndarray, weight: Array | None) -> float:
    """Mean of terms (n,), of which those without weight may be anything."""
    if weight is None:
        return float(terms.mean())
    share = to_numpy(weight)
    return float(np.average(terms[share > 0], weights=share[share > 0]))


def _some(context: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """What a family is given beside logits: nothing, where there is no context."""
    return () if context is None else (context,)


def _context_rows(context: Any, flat: Flat | None) -> Any:
    """Context of an array of several axes as rows: one value for each place, or for all places of an image or a sequence."""
    return context if flat is None or context is None else flat.context(context)


def _on_part(
    calibrator: Calibrator, method: str, context: np.ndarray | None, X: Any, first_row: int, dtype: Any
) -> Any:
    """The result for rows that begin at ``first_row`` of those that ``context`` is of."""
    some = None if context is None else context[first_row : first_row + len(X)]
    return calibrator._on_rows(method, X, first_row, dtype, some)


# The largest number of half precision but one: `keep_argmax` may have to go one higher.
_HALF_RANGE = 65472.0


def _back(values: Array, like: Array, dtype: Any) -> Array:
    """Results in the library and on the device of ``like``, of some type."""
    xp = array_namespace(like)
    values = xp.asarray(values, device=like.device) if is_torch(like) else to_numpy(values)
    if values.dtype == dtype:
        return values
    if str(dtype).endswith("float16") and not str(dtype).endswith("bfloat16"):
        # Half precision ends at 65504: calibrated logits are cut there, but for the -inf of a masked class.
        values = xp.where(xp.isinf(values), values, xp.clip(values, -_HALF_RANGE, _HALF_RANGE))
    with np.errstate(under="ignore"):
        return xp.astype(values, dtype, copy=False)
