"""What every calibrator is: checked logits in, calibrated logits or probabilities out, in the caller's own form.

    fit(X, y)            learn the map from a calibration set
    predict_proba(X)     calibrated probabilities (n, m)
    transform(X)         calibrated logits (n, m): the softmax of these
    predict(X)           the most probable class

A family writes ``_fit(logits, labels, weight)`` and ``_calibrate(logits)``; the base does the rest. A map that keeps the
order works on the caller's own arrays (numpy, torch on any device); the others are given numpy arrays.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
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
from ..errors import require
from ..validation import (
    Given,
    check_choice,
    check_label_available,
    check_labels,
    check_logits,
    check_probabilities,
    check_weights,
)


class Calibrator(TransformerMixin, BaseEstimator):
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

    input: str = "logits"

    # What a family writes.

    def _fit(self, logits: Array, labels: Array, weight: Array | None) -> None:
        """Learn from checked logits (n, m), labels (n,) and weights (n,) or None; set attributes ending in ``_``."""
        raise NotImplementedError

    def _calibrate(self, logits: Array) -> Array:
        """Calibrated logits (n, m) of checked logits, -inf where a class is not available."""
        raise NotImplementedError

    def _probabilities(self, logits: Array) -> Array:
        """Calibrated probabilities; a family that works on probabilities overrides this and `_calibrate`."""
        return ordered_softmax(self._calibrate(logits))

    # What a user calls.

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Calibrator:
        """Learn the map.

        Parameters
        ----------
        X : array-like of shape (n, m)
            Logits of a calibration set (or probabilities, with ``input="probabilities"``).
        y : array-like of shape (n,)
            True classes, 0..m-1.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        self
        """
        check_choice(self.input, "input", ("logits", "probabilities"))
        given = self._read(X, fitting=True)
        labels = check_labels(y, given.values)
        weight = check_weights(sample_weight, given.values)
        logits = self._to_logits(given.values, fitting=True)
        check_label_available(logits, labels)
        if weight is not None:
            kept = weight > 0
            if not bool(array_namespace(weight).all(kept)):
                logits, labels, weight = logits[kept], labels[kept], weight[kept]
        validate_data(self, X if hasattr(X, "columns") else given.values, reset=True, skip_check_array=True)
        if not self._any_array:
            logits, labels = to_numpy(logits), to_numpy(labels)
            weight = None if weight is None else to_numpy(weight)
        self._fit(logits, labels, weight)
        return self

    def transform(self, X: Any) -> Any:
        """Calibrated logits, in the form and type of ``X``: their softmax is `predict_proba`."""
        return self._apply(X, self._calibrate)

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities, in the form and type of ``X``; rows sum to 1."""
        return self._apply(X, self._probabilities)

    def predict(self, X: Any) -> Any:
        """The most probable class of each row."""
        if self.preserves_top1:
            given = self._read_fitted(X)
            return _one_column(given, array_namespace(given.values).argmax(given.values, axis=1))
        given = self._read_fitted(X)
        values = to_numpy(self._probabilities(self._own_array(self._to_logits(given.values))))
        return _one_column(given, _back(np.argmax(values, axis=1), given.values, keep_type=False))

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

    def _apply(self, X: Any, function: Any) -> Any:
        given = self._read_fitted(X)
        logits = self._own_array(self._to_logits(given.values))
        values = _back(function(logits), given.values)
        if self.preserves_top1:
            values = keep_argmax(values, given.values)
        return given.restore(values)

    def _own_array(self, logits: Array) -> Array:
        return logits if self._any_array else to_numpy(logits)

    def _read_fitted(self, X: Any) -> Given:
        check_is_fitted(self)
        given = self._read(X, fitting=False)
        validate_data(self, X if hasattr(X, "columns") else given.values, reset=False, skip_check_array=True)
        return given

    def _read(self, X: Any, fitting: bool) -> Given:
        check = check_probabilities if self.input == "probabilities" else check_logits
        return check(X)

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
            self.smallest_probability_ = float(xp.min(positive))
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
        import torch

        values = torch.as_tensor(values, device=like.device)
        if like.dtype == torch.float16 and keep_type:
            values = values.clamp(max=_HALF_RANGE)
        return values.to(like.dtype) if keep_type else values
    if not keep_type:
        return values
    with np.errstate(under="ignore", over="ignore"):
        values = xp.astype(values, like.dtype, copy=False)
    if values.dtype == np.float16:
        values = np.minimum(values, np.float16(_HALF_RANGE))
    return values


def _one_column(given: Given, values: Array) -> Any:
    return given.restore(values)
