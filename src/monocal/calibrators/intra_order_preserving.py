"""Intra order-preserving functions (Rahimi et al., 2020): networks that cannot change the order of the classes.

With ``d_(1) = 0 <= d_(2) <= ...`` the depths of the sorted logits below the largest, each form makes calibrated depths

    diag    F(d_j),     F(d) = integral of a positive network of one variable from 0 to d
    oi      sum_{i < j} (d_(i+1) - d_(i)) m_i(sorted depths),      m_i positive, a network of all classes
    op      the same with m_i(depths in their own places): the classes may differ

All start at temperature scaling (the positive factors are ``exp(network) / T``, with the network at 0). Order in floating point:
``F`` is kept as a table, evaluated by rounded monotone operations; a running sum of non-negative numbers does not fall, and
tied logits add 0.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..arrays import scatter, sort_with_index
from ..inputs.validation import check_choice
from ..parallel import map_rows
from . import state
from .depth_features import depths, squeeze
from .network import forward, positive_factor
from .network_calibrator import NetworkCalibrator, Prepared
from .temperature import last_scale

# The table of F: points, and how deep it goes in units of the temperature. Below, F goes on with its last slope; a class so far
# down has a probability of 1e-17 at most.
_POINTS = 401
_DEEPEST = 40.0


class IntraOrderPreserving(NetworkCalibrator):
    """Monotone networks of the logits. Needs torch to fit (``monocal[torch]``), not to predict.

    Parameters
    ----------
    mode : {"diag", "oi", "op"}
        One increasing function of every logit; multipliers of the gaps that do not depend on which class is which; or
        multipliers that do.
    hidden : tuple of int or None
        Sizes of the hidden layers; None: (64, 64) for "diag", (32,) else.
    loss : {"nll", "mse"}
    learning_rate : float
        Of Adam, at the start.
    max_epochs : int
    patience : int
        Checks of the validation loss, one each 25 steps, without improvement before the learning rate is halved; after
        the third time training ends.
    validation : float
        Share of the rows held out to decide when to stop. 0: train for ``max_epochs`` on all rows.
    batch_size : int
    seed : int
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    temperature_ : float
        Of temperature scaling on the training rows, where training started.
    scale_ : float
        Factor of the result, fitted to all rows by temperature scaling.
    layers_ : list of ndarray
        ``W_1, b_1, ..., W_L, b_L``.
    table_ : ndarray of shape (401,)
        ``F`` at depths from 0 to ``40 T``, evenly spaced (mode "diag").
    history_ : list of float
        Validation losses, one each 25 steps.
    n_iter_ : int
        Steps taken.

    References
    ----------
    Rahimi, Shaban, Cheng, Hartley, Boots (2020). Intra order-preserving functions for calibration of multi-class neural
    networks. NeurIPS.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.IntraOrderPreserving(max_epochs=20).fit(data.values, data.labels)  # needs torch
    >>> cal.preserves_order
    True
    >>> float(cal.predict_proba(data.values[:1]).sum().round(6))
    1.0
    """

    _state: ClassVar[state.Rules] = {"table_": state.rising}

    def __init__(
        self,
        *,
        mode: str = "diag",
        hidden: tuple[int, ...] | None = None,
        loss: str = "nll",
        learning_rate: float = 0.005,
        max_epochs: int = 1000,
        patience: int = 10,
        validation: float = 0.2,
        batch_size: int = 1000,
        seed: int = 0,
        input: str = "logits",
        class_axis: int = -1,
        ignore_index: int | None = None,
    ):
        self.mode = mode
        self.hidden = hidden
        self.loss = loss
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation = validation
        self.batch_size = batch_size
        self.seed = seed
        self.input = input
        self.class_axis = class_axis
        self.ignore_index = ignore_index

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_choice(self.mode, "mode", ("diag", "oi", "op"))
        hidden = ((64, 64) if self.mode == "diag" else (32,)) if self.hidden is None else self.hidden
        prepare = self._prepare_diagonal if self.mode == "diag" else self._prepare_gaps
        self._train(logits, labels, weight, hidden, prepare)
        if self.mode == "diag":
            self.table_ = np.maximum.accumulate(_integral(np, self.layers_, np.float64))
        self.scale_ = last_scale(self._calibrate(logits), labels, weight)

    # One function of every depth.

    def _prepare_diagonal(self, torch: Any, logits: np.ndarray, hidden: Any) -> Prepared:
        # Cells and places within them, small; widened batch by batch.
        cell = torch.as_tensor(map_rows(lambda z: _cell(self._place(z)).astype(np.int16), logits))
        inside = torch.as_tensor(
            map_rows(lambda z: (self._place(z) - _cell(self._place(z))).astype(np.float32), logits)
        )
        masked = torch.as_tensor(np.isinf(logits))

        def calibrated(layers: list[Any], rows: Any) -> Any:
            table = _integral(torch, layers, torch.float32)
            at = cell[rows].long()
            value = table[:-1][at] + inside[rows] * (table[1:] - table[:-1])[at]
            return -value.masked_fill(masked[rows], np.inf)

        return (1, *hidden, 1), calibrated

    def _place(self, logits: np.ndarray) -> np.ndarray:
        """Where depths fall in the table, a real number each."""
        d = depths(logits)
        d *= d.dtype.type((_POINTS - 1) / (_DEEPEST * self.temperature_))
        return d

    def _diagonal(self, logits: np.ndarray) -> np.ndarray:
        place = self._place(logits)
        cell = _cell(place)
        table = self.table_.astype(place.dtype)
        value = table[cell] + (place - cell.astype(place.dtype)) * np.diff(table)[cell]
        # Rounding may carry the end of a cell beyond the start of the next.
        np.minimum(value, table[cell + 1], out=value, where=cell < _POINTS - 2)
        return -value

    # Multipliers of the gaps.

    def _prepare_gaps(self, torch: Any, logits: np.ndarray, hidden: Any) -> Prepared:
        m = logits.shape[1]
        features = torch.as_tensor(map_rows(self._features, logits))
        index = map_rows(lambda z: sort_with_index(depths(z))[1], logits)
        gaps = torch.as_tensor(map_rows(self._gaps, logits))
        masked = torch.as_tensor(np.take_along_axis(np.isinf(logits), index, axis=1))
        # The loss is computed in sorted order; the label's place in it is found by sorting the class numbers back.
        back = torch.as_tensor(np.argsort(index, axis=1).astype(np.int32))

        def calibrated(layers: list[Any], rows: Any) -> Any:
            steps = gaps[rows] * positive_factor(forward(features[rows], layers))
            value = torch.nn.functional.pad(torch.cumsum(steps, dim=1), (1, 0))
            return -value.masked_fill(masked[rows], np.inf).gather(1, back[rows].long())

        return (m, *hidden, max(1, m - 1)), calibrated

    def _features(self, logits: np.ndarray) -> np.ndarray:
        d = depths(logits)
        return squeeze(np.sort(d, axis=1) if self.mode == "oi" else d, self.temperature_)

    def _gaps(self, logits: np.ndarray) -> np.ndarray:
        """Differences of the sorted depths in units of the temperature (n, m - 1); 0 down to a class not available."""
        d = np.sort(depths(logits), axis=1)
        gaps = np.diff(d, axis=1)
        available = np.count_nonzero(~np.isinf(logits), axis=1)
        gaps[np.arange(1, d.shape[1]) >= available[:, None]] = 0.0
        return (gaps / self.temperature_).astype(np.float32)

    def _multiplied(self, logits: np.ndarray) -> np.ndarray:
        d, index = sort_with_index(depths(logits))
        multipliers = positive_factor(forward(self._features(logits), self.layers_)) / self.temperature_
        value = np.zeros_like(d)
        if d.shape[1] > 1:
            np.cumsum(np.diff(d, axis=1) * multipliers.astype(d.dtype), axis=1, out=value[:, 1:])
        return -scatter(value, index)

    # Either.

    def _scaled(self, logits: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            f = self._diagonal(logits) if self.mode == "diag" else self._multiplied(logits)
            f *= f.dtype.type(self.scale_)
            return f


def _cell(place: np.ndarray) -> np.ndarray:
    """Index of the table's cell; what lies beyond the table belongs to the last."""
    return np.minimum(place, _POINTS - 2).astype(np.int64)


def _integral(xp: Any, layers: list[Any], dtype: Any) -> Any:
    """``F`` at the points of the table, in units where temperature scaling is ``F(d) = d / T``."""
    t = xp.linspace(-1.0, 1.0, _POINTS, dtype=dtype)
    slope = positive_factor(forward(t[:, None], layers))[:, 0]
    steps = (slope[1:] + slope[:-1]) * (0.5 * _DEEPEST / (_POINTS - 1))
    return xp.concatenate([0.0 * steps[:1], xp.cumsum(steps, 0)])
