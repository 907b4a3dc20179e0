"""Structured scaling (Berta, Holzmüller, Jordan, Bach, 2025): temperature scaling, and class by class as much more as pays.

    x = log( (1 - e) softmax(z / T) + e / m ),   e = 1 / (n + 1)
    f = x + v * x + b           (vector)              f = x + V x + b           (matrix)

fitted by maximum likelihood with a ridge whose strength grows with how many parameters of a kind there are:

    penalty = m / n sum_j (V_jj^2 + b_j^2) + m (m - 1) / n sum_{j != k} V_jk^2       (times ``shrinkage``).

With few samples this is temperature scaling, with more it moves single classes, and last it looks at pairs of classes. The
share ``e`` of the uniform distribution bounds the logarithms, as one sample more of each class would. The objective is smooth
and strongly convex, so every fit ends in its minimum, with a bound on what is left. The order of the classes may change.
"""

from __future__ import annotations

import numpy as np

from ..arrays import compute_dtype
from ..errors import InputError
from ..solver import Solution
from ..solver.smooth import minimize_smooth
from ..validation import check_choice, check_number
from .base import Calibrator
from .cone_map import DOUBLE_BELOW, warn_if_unfinished
from .row_blocks import map_rows
from .structured_problem import CurvedMatrix, CurvedVector
from .temperature import TemperatureScaling

_MOST_CLASSES = 5000


class StructuredScaling(Calibrator):
    """A weight and a bias for every class, or for every pair, held back by structured regularisation.

    Parameters
    ----------
    kind : {"matrix", "vector"}
        A weight for every pair of classes, or for every class alone.
    shrinkage : float
        Strength of the pull towards temperature scaling, above 0; 1 is the published one.
    input : {"logits", "probabilities"}
    tol : float
        Largest component of the gradient to accept.
    max_iter : int

    Attributes
    ----------
    temperature_ : float
    floor_ : float
        Share of the uniform distribution in the probabilities whose logarithms are mapped.
    coef_ : ndarray of shape (m,) or (m, m)
    intercept_ : ndarray of shape (m,)
    centre_ : ndarray of shape (m,)
        Stands for the log-probability of an unavailable class where other classes look at it.
    solution_ : monocal.solver.Solution
        With the certificate: ``kkt`` is the largest component of the gradient, ``duality_gap`` bounds how far the objective is
        above its minimum.

    References
    ----------
    Berta, Holzmüller, Jordan, Bach (2025). Structured matrix scaling for multi-class calibration. arXiv 2511.03685.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.data import synthetic
    >>> data = synthetic(2000, 5, seed=0)
    >>> cal = mc.StructuredScaling(kind="vector").fit(data.values, data.labels)
    >>> cal.coef_.shape, cal.solution_.converged
    ((5,), True)
    """

    def __init__(
        self,
        *,
        kind: str = "matrix",
        shrinkage: float = 1.0,
        input: str = "logits",
        tol: float = 1e-6,
        max_iter: int = 100,
    ):
        self.kind = kind
        self.shrinkage = shrinkage
        self.input = input
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_choice(self.kind, "kind", ("matrix", "vector"))
        check_number(self.shrinkage, "shrinkage", above=0)
        check_number(self.tol, "tol", above=0)
        check_number(self.max_iter, "max_iter", least=1, whole=True)
        m = logits.shape[1]
        if self.kind == "matrix" and m > _MOST_CLASSES:
            raise InputError(
                f"X has {m} classes, and kind='matrix' would need {m**2:,} weights; it takes up to {_MOST_CLASSES} classes. "
                "Use kind='vector', or an order-preserving method such as MCCT."
            )
        share = np.ones(len(labels)) if weight is None else weight
        total = float(share.sum())
        self.temperature_ = TemperatureScaling().fit(logits, labels, weight).temperature_
        self.floor_ = 1.0 / (total + 1.0)
        if logits.size <= DOUBLE_BELOW:
            logits = logits.astype(np.float64, copy=False)
        of_class = self.shrinkage * m / total
        if self.kind == "matrix":
            strength = np.full((m, m + 1), of_class * max(m - 1, 1))
            np.fill_diagonal(strength, of_class)
            strength[:, -1] = of_class
            problem = CurvedMatrix(map_rows(self._features, logits), labels, share / total, 1.0, strength)
        else:
            problem = CurvedVector(
                map_rows(self._features, logits), labels, share / total, 1.0, np.full((m, 2), of_class)
            )
        self.solution_: Solution = minimize_smooth(problem, tol=self.tol, max_iter=self.max_iter)
        self.n_iter_ = max(self.solution_.n_iter, 1)
        warn_if_unfinished(self, self.solution_)
        deviation = problem.parameters(self.solution_.coefficients.reshape(strength.shape if self.kind == "matrix" else (m, 2)))
        weights = deviation[:, :-1]
        self.coef_ = weights + np.eye(m) if self.kind == "matrix" else weights[:, 0] + 1.0
        self.intercept_ = deviation[:, -1].copy()
        self.centre_ = problem.centre

    def _features(self, logits: np.ndarray) -> np.ndarray:
        """Logarithms of tempered probabilities (n, m); NaN for a class that is not available."""
        dtype = compute_dtype(logits)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            x = logits.astype(dtype, copy=False) - logits.max(axis=1, keepdims=True).astype(dtype)
            x *= dtype(1.0 / self.temperature_)
            masked = np.isneginf(logits)
            p = np.exp(x, out=x)
            p *= (1.0 - self.floor_) / p.sum(axis=1, keepdims=True)
            p += dtype(self.floor_ / logits.shape[1])
        np.log(p, out=p)
        p[masked] = np.nan
        return p

    def _calibrate(self, logits: np.ndarray) -> np.ndarray:
        return map_rows(self._transform, logits)

    def _transform(self, logits: np.ndarray) -> np.ndarray:
        x = self._features(logits)
        masked = np.isnan(x)
        np.copyto(x, self.centre_.astype(x.dtype), where=masked)
        coef = self.coef_.astype(x.dtype)
        f = x @ coef.T if coef.ndim == 2 else x * coef
        f += self.intercept_.astype(x.dtype)
        f[masked] = -np.inf
        return f
