"""What every calibrator is: checked logits in, calibrated logits or probabilities out, in the caller's own form.

    fit(X, y)            learn the map from a calibration set
    predict_proba(X)     calibrated probabilities (n, m)
    transform(X)         calibrated logits (n, m): the softmax of these
    predict(X)           the most probable class
    score(X, y)          mean log-likelihood of the labels

A family writes ``_fit(logits, labels, weight)`` and ``_calibrate(logits)``; the base does the rest. A map that keeps the
order works on the caller's own arrays (numpy, torch on any device); the others are given numpy arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..arrays import (
    Array,
    array_namespace,
    device_of,
    is_lazy_torch,
    keep_argmax,
    ordered_log,
    ordered_softmax,
    to_numpy,
)
from ..errors import InputError, require
from ..validation import (
    Given,
    check_choice,
    check_label_available,
    check_labels,
    check_logits,
    check_probabilities,
    check_weights,
)
from .lazy import check_out, find_lazy, is_empty, plain_blocks


class Calibrator(TransformerMixin, BaseEstimator, ABC):
    """Base of all calibrators.

    Attributes
    ----------
    preserves_order : bool
        Whether the order of the classes within every row is guaranteed, ties included.
    preserves_top1 : bool
        Whether the most probable class is guaranteed to stay.
    n_features_in_ : int
        Number of classes seen in `fit`.
    """

    preserves_order: ClassVar[bool] = False
    preserves_top1: ClassVar[bool] = False
    # Families that can only handle numpy get numpy; the result is given back in the caller's library.
    _any_array: ClassVar[bool] = False
    # Whether `_fit` can work on a `RowSource` (its labels and weights are then None).
    _streams: ClassVar[bool] = False

    input: str = "logits"

    # What a family writes.

    @abstractmethod
    def _fit(self, logits: Array, labels: Array, weight: Array | None) -> None:
        """Learn from checked logits (n, m), labels (n,) and weights (n,) or None; set attributes ending in ``_``."""

    @abstractmethod
    def _calibrate(self, logits: Array) -> Array:
        """Calibrated logits (n, m) of checked logits, -inf where a class is not available."""

    def _probabilities(self, logits: Array) -> Array:
        """Calibrated probabilities; a family that works on probabilities overrides this and `_calibrate`."""
        return ordered_softmax(self._calibrate(logits))

    def _check_first(self, logits: np.ndarray) -> None:
        """Refuse logits that cannot be fitted, by the first rows (k, m) of those that come in parts."""

    # What a user calls.

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Calibrator:
        """Learn the map.

        Parameters
        ----------
        X : array-like of shape (n, m)
            Logits of a calibration set (or probabilities, with ``input="probabilities"``). Some methods also take rows that
            need not fit in memory: memory-mapped, zarr, h5py and Dask arrays, Dask DataFrames, or a function that returns an
            iterator of blocks ``(X, y)`` or ``(X, y, sample_weight)``.
        y : array-like of shape (n,)
            True classes, 0..m-1.
        sample_weight : array-like of shape (n,), optional
            A row of weight 2 counts as two rows, one of weight 0 as none. Weights that sum to less than the number of rows
            therefore mean less data, and more shrinkage.

        Returns
        -------
        self
        """
        before = dict(self.__dict__)
        try:
            self._checked_fit(X, y, sample_weight)
        except BaseException:
            # What had been learnt stays; a first fit that fails leaves nothing that looks fitted.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _checked_fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        check_choice(self.input, "input", ("logits", "probabilities"))
        self.__dict__.pop("smallest_probability_", None)
        lazy = find_lazy(X, y, sample_weight, streams=self._streams)
        if lazy is not None:
            self.__dict__.pop("feature_names_in_", None)
            source = lazy.source(self)
            self.n_features_in_ = source.shape[1]
            self._fit(source, None, None)
            return
        values, logits, labels, weight = self._read_part(X, y, sample_weight, fitting=True)
        if weight is not None:
            kept = weight > 0
            if not bool(array_namespace(weight).all(kept)):
                logits, labels, weight = logits[kept], labels[kept], weight[kept]
        validate_data(self, X if hasattr(X, "columns") else values, reset=True, skip_check_array=True)
        if not self._any_array:
            logits, labels = to_numpy(logits), to_numpy(labels)
            weight = None if weight is None else to_numpy(weight)
        self._fit(logits, labels, weight)

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
            Blocks are arrays (n_i, m), or tuples or lists that begin with one, as `fit` takes them.

        Yields
        ------
        array of shape (n_i, m)
        """
        check_is_fitted(self)
        return self._predicted(plain_blocks(blocks))

    def _predicted(self, blocks: Iterator[Any]) -> Iterator[Any]:
        first_row = 0
        for block in blocks:
            if is_empty(block):
                yield block
                continue
            try:
                result = self.predict_proba(block)
            except InputError:
                self._read(block, first_row)  # names the row among all
                raise
            yield result
            first_row += len(block)

    def predict(self, X: Any) -> Any:
        """The most probable class of each row."""
        check_is_fitted(self)
        lazy = find_lazy(X)
        if lazy is not None:
            return lazy.apply(self, "predict", None)
        if self.preserves_top1:
            given = self._read_fitted(X)
            return given.restore(array_namespace(given.values).argmax(given.values, axis=1))
        given = self._read_fitted(X)
        # In the type of `predict_proba`, so that the two agree where rounding makes a tie.
        values = _back(self._probabilities(self._own_array(self._to_logits(given.values))), given.values)
        return given.restore(array_namespace(values).argmax(values, axis=1))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean log-likelihood of the labels, the negative of `monocal.metrics.nll`: larger is better.

        What scikit-learn's `GridSearchCV` and `cross_val_score` go by where no ``scoring`` is given.

        Parameters
        ----------
        X : array-like of shape (n, m)
            As in `fit`, in memory.
        y : array-like of shape (n,)
            True classes, 0..m-1.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        float
            ``-inf`` where a label has probability zero.
        """
        if find_lazy(X) is not None:
            raise InputError(
                "score: X must be an array in memory. For larger data, feed blocks of predict_blocks to metrics.Evaluator."
            )
        given = self._read_fitted(X)
        labels = to_numpy(check_labels(y, given.values))
        weight = check_weights(sample_weight, given.values)
        f = to_numpy(self._calibrate(self._own_array(self._to_logits(given.values)))).astype(np.float64)
        log_p = f[np.arange(len(f)), labels] - logsumexp(f, axis=1)
        if weight is None:
            return float(log_p.mean())
        share = to_numpy(weight)
        return float(np.average(log_p[share > 0], weights=share[share > 0]))

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

    def _apply(self, X: Any, method: str, out: Any) -> Any:
        check_is_fitted(self)
        lazy = find_lazy(X)
        if lazy is not None:
            return lazy.apply(self, method, out)
        given = self._read_fitted(X)
        logits = self._own_array(self._to_logits(given.values))
        function = self._calibrate if method == "transform" else self._probabilities
        values = _back(function(logits), given.values)
        if self.preserves_top1:
            values = keep_argmax(values, given.values)
        if out is None:
            return given.restore(values)
        check_out(out, values.shape)
        out[:] = values
        return out

    def _own_array(self, logits: Array) -> Array:
        return logits if self._any_array else to_numpy(logits)

    def _read_fitted(self, X: Any) -> Given:
        check_is_fitted(self)
        given = self._read(X)
        validate_data(self, X if hasattr(X, "columns") else given.values, reset=False, skip_check_array=True)
        return given

    def _read(self, X: Any, first_row: int = 0) -> Given:
        check = check_probabilities if self.input == "probabilities" else check_logits
        return check(X, first_row=first_row)

    def _read_part(
        self, X: Any, y: Any, sample_weight: Any, *, fitting: bool = False, first_row: int | None = None
    ) -> tuple[Array, Array, Array, Array | None]:
        """Values, logits, labels and weights of checked rows, which may be a part of more that begins at ``first_row``."""
        begin = first_row or 0
        values = self._read(X, begin).values
        labels = check_labels(y, values, first_row=begin)
        weight = check_weights(sample_weight, values, first_row=first_row)
        logits = self._to_logits(values, fitting)
        check_label_available(logits, labels, weight, first_row=begin)
        return values, logits, labels, weight

    def _to_logits(self, values: Array, fitting: bool = False) -> Array:
        """Logarithms of probabilities. A zero is no mask here but an underflow or an empty count: it stands for half the
        smallest positive probability of the calibration set (or of its own row, if that is smaller)."""
        if self.input != "probabilities":
            return values
        xp = array_namespace(values)
        narrow = values.dtype != xp.float64
        p = xp.astype(values, xp.float64)
        positive = xp.where(p > 0, p, xp.asarray(np.inf, dtype=p.dtype))
        if fitting:
            so_far = getattr(self, "smallest_probability_", np.inf)
            self.smallest_probability_ = min(float(xp.min(positive)), so_far)
        least = xp.clip(xp.min(positive, axis=1, keepdims=True), max=self.smallest_probability_)
        filled = xp.where(p > 0, p, least)
        # Neighbours in a narrower type are so far apart that the double logarithm cannot swap them.
        logs = xp.log(filled) if narrow else xp.asarray(ordered_log(to_numpy(filled)), **device_of(p))
        return xp.where(p > 0, logs, logs - np.log(2.0))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


# The largest number of half precision but one: `keep_argmax` may have to go one higher.
_HALF_RANGE = 65472.0


def _back(values: Array, like: Array, keep_type: bool = True) -> Array:
    """Results in the library, on the device and (mostly) of the type the caller gave."""
    xp = array_namespace(like)
    if is_lazy_torch(like):
        values = xp.asarray(values, device=like.device)
    if not keep_type:
        return values
    if str(like.dtype).endswith("float16") and not str(like.dtype).endswith("bfloat16"):
        # Half precision ends at 65504: calibrated logits are cut there, but for the -inf of a masked class.
        values = xp.where(xp.isinf(values), values, xp.clip(values, -_HALF_RANGE, _HALF_RANGE))
    with np.errstate(under="ignore"):
        return xp.astype(values, like.dtype, copy=False)
