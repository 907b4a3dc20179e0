"""MCCT and MCCT-I exactly as their authors ran them, for comparison.

    f_(i) = w_i z_(i) + b_i        (MCCT)          f_(i) = z_(i) / v_i + b_i        (MCCT-I)

on the raw sorted logits, minimising NLL with SLSQP (100 iterations, tolerance 1e-12) under ``w`` non-decreasing (``v``
non-increasing), ``b`` non-decreasing, ``w, v > 0``; from ``w = linspace(0, 1, m)`` or ``v = 1``, and ``b = 0``; no anchor and
no shrinkage.
With ``top_k`` the objective is truncated: a softmax over the top k alone; predictions scale everything below with the lowest
kept parameters. What becomes of rows whose label lies below is the authors' option ``filter``. False, their default and what
their benchmark runs: such a row adds no loss, but the gradient of ``log sum exp f``, as if it had one, so that SLSQP is given a
gradient that is not that of its objective. True: it is left out.

None of this guarantees the order: a negative logit times a larger weight falls.
"""

from __future__ import annotations

import numpy as np

from ..errors import InputError, OrderWarning, warn
from ..inputs.validation import check_number, check_top_k
from .base import Calibrator
from .slsqp import minimize_ranks


class Published(Calibrator):
    """The published procedure. Made by ``MCCT.as_published()`` and ``MCCTInverse.as_published()``.

    Parameters
    ----------
    inverse : bool
        MCCT-I rather than MCCT.
    top_k : int or None
    filter : bool
        Leave out rows whose label lies below the top k; see above. Without ``top_k`` there are none.
    max_iter : int
    tol : float
        SLSQP's ``ftol``.
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    weights_, biases_ : ndarray of shape (m,) or (top_k,)
        By rank, lowest first.
    solution_ : monocal.solver.Solution

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore", category=mc.OrderWarning):
    ...     published = mc.MCCT.as_published().fit(data.values, data.labels)
    >>> published.preserves_order, published.weights_.shape
    (False, (5,))
    """

    def __init__(
        self,
        inverse: bool = False,
        top_k: int | None = None,
        filter: bool = False,
        max_iter: int = 100,
        tol: float = 1e-12,
        class_axis: int = -1,
        ignore_index: int | None = None,
    ):
        self.inverse = inverse
        self.top_k = top_k
        self.filter = filter
        self.max_iter = max_iter
        self.tol = tol
        self.class_axis = class_axis
        self.ignore_index = ignore_index

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        warn(
            "The published procedure works on raw logits and does not guarantee the order of the classes; MCCT() does.",
            OrderWarning,
        )
        masked = np.isinf(logits).any(axis=1)
        if masked.any():
            raise InputError(
                f"X has a class that is not available (-inf) in row {int(masked.argmax())}; the published procedure cannot fit "
                "such rows. Use MCCT(), or leave them out."
            )
        check_number(self.max_iter, "max_iter", least=1, whole=True)
        check_number(self.tol, "tol", above=0)
        n, m = logits.shape
        r = check_top_k(self.top_k, m)
        order = np.argsort(logits, axis=1)
        z = np.take_along_axis(logits, order, axis=1)[:, m - r :].astype(np.float64)
        rank = np.argmax(order == labels[:, None], axis=1) - (m - r)
        kept = rank >= 0 if self.filter else np.full(n, True)
        if not kept.any():
            raise InputError(
                f"filter=True: no label lies among the top {r} classes, so that no row is left. Raise top_k."
            )
        weight = np.ones(n) if weight is None else weight
        scale = np.ones(r) if self.inverse else np.linspace(0.0, 1.0, r)
        weights, biases, self.solution_ = minimize_ranks(
            z[kept],
            rank[kept],
            weight[kept],
            scale=scale,
            inverse=self.inverse,
            n_rows=float(weight[kept].sum()),
            max_iter=self.max_iter,
            tol=self.tol,
        )
        self.n_iter_ = self.solution_.n_iter
        self.biases_ = biases
        self.weights_ = weights
        if self.inverse:
            self.inverse_weights_ = 1.0 / weights

    def _calibrate(self, logits: np.ndarray) -> np.ndarray:
        m, r = logits.shape[1], len(self.weights_)
        weights = np.concatenate([np.full(m - r, self.weights_[0]), self.weights_])
        biases = np.concatenate([np.full(m - r, self.biases_[0]), self.biases_])
        order = np.argsort(logits, axis=1)
        f = np.empty(logits.shape)
        with np.errstate(invalid="ignore"):
            values = np.take_along_axis(logits, order, axis=1) * weights + biases
        np.put_along_axis(f, order, values, axis=1)
        return np.where(np.isinf(logits), -np.inf, f)
