"""What every calibrator is: checked logits in, calibrated logits or probabilities out, in the caller's own form.

    fit(X, y)            learn the map from a calibration set       (`fitting`)
    predict_proba(X)     calibrated probabilities (n, m)            (`applying`)
    transform(X)         calibrated logits (n, m): the softmax of these
    predict(X)           the most probable class
    score(X, y)          mean log-likelihood of the labels          (`scoring`)

A family writes ``_calibrate(logits)``, and ``_fit(logits, labels, weight)`` where it needs arrays in memory or
``_fit_rows(rows)`` where it adds up sums over rows (`ConeCalibrator`); the base does the rest. A map that keeps the
order works on the caller's own arrays (numpy, torch on any device); the others are given numpy arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from ..errors import InputError, require
from . import portable
from .fitting import START_ROWS, LearnsMap
from .scoring import ScoresLabels


class Calibrator(OneToOneFeatureMixin, TransformerMixin, LearnsMap, ScoresLabels):  # type: ignore[misc]  # scikit-learn has no types
    """Base of all calibrators.

    A transformer of scikit-learn: each column that comes out is the class of the column that went in, so that
    ``get_feature_names_out()`` gives the names of the classes, and ``set_output(transform="pandas")`` or ``"polars"`` makes
    `transform` give frames with these columns.

    Attributes
    ----------
    preserves_order : bool
        Whether the order of the classes within every row is guaranteed, ties included.
    preserves_ranking : bool
        Whether the order of the rows by P(class 1), so AUC, is guaranteed with two classes.
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

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        start: Any = None,
        start_rows: float = START_ROWS,
        **others: Any,
    ) -> Self:
        """Learn the map.

        Parameters
        ----------
        X : array-like of shape (n, m)
            Logits of a calibration set (or probabilities, with ``input="probabilities"``). Some methods also take rows that
            need not fit in memory: memory-mapped, zarr, h5py and Dask arrays, Dask DataFrames, or a function that returns an
            iterator of blocks ``(X, y)`` or ``(X, y, sample_weight)``.
        y : array-like of shape (n,)
            True classes, 0..m-1; or their names, where X is a frame whose columns are called so. Columns called by whole numbers
            other than 0..m-1 in order are such names: label 2 is the column called 2.
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
        if "context" in others:
            raise InputError(
                f"{type(self).__name__} takes no context. ConditionalMCCT does, and keeps the order of the classes."
            )
        if others:
            raise TypeError(
                f"{type(self).__name__}.fit() got an unexpected keyword argument {next(iter(others))!r}"
            )
        return self._kept_fit(X, y, sample_weight, start=start, start_rows=start_rows)

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
        return self._apply_to_blocks(blocks)

    def predict(self, X: Any) -> Any:
        """The most probable class of each row, by the place of its column, whatever that is called."""
        return self._apply(X, "predict", None)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean log-likelihood of the labels, the negative of `monocal.metrics.nll`: larger is better.

        What scikit-learn's `GridSearchCV` and `cross_val_score` go by where no ``scoring`` is given.

        Parameters
        ----------
        X : array-like of shape (n, m)
            As in `fit`, in memory; or `TopK`.
        y : array-like of shape (n,)
            True classes, as in `fit`.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        float
            ``-inf`` where a label has probability zero.
        """
        return self._score(X, y, sample_weight)

    @property
    def classes_(self) -> np.ndarray:
        """What `predict` gives: the numbers of the columns. The name is scikit-learn's."""
        self._check_fitted()
        return np.arange(self.n_features_in_)

    def _map_steps(self) -> list[portable.MapStep]:
        """The fitted map as steps that run on any array library, for exports; see `calibration.portable`."""
        return portable.rank_steps(self)

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
