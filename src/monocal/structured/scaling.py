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

from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone

from ..arrays import compute_dtype
from ..calibration.base import Calibrator
from ..calibration.cone import warn_if_unfinished
from ..calibration.temperature import TemperatureScaling
from ..errors import InputError
from ..rows.parallel import map_rows, one_blas_thread
from ..solver import Solution
from ..solver.smooth import minimize_smooth
from ..validation import check_choice, check_number
from .folds import balanced_folds, held_out
from .problem import CurvedMatrix, CurvedProblem, CurvedVector

_MOST_CLASSES = 5000
# Strengths that cross-validation tries, strongest first: each fit is the next one's start.
PATH = (np.inf, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
_ROUGH = 1e-4
_FOLDS = 5
# Standard errors between a gain and one that is believed: several strengths are tried, and one is lucky.
_DOUBT = 2.5
# Beyond this a logit says no more.
_LARGEST = 1e15
# The largest share of the uniform distribution, for rows of next to no weight.
_MOST_FLOOR = 0.5
# Beyond so many rows a penalty per row is lost in the rounding of the curvature.
_MOST_WEIGHT = 1e10
# Up to this many logits double precision costs nothing; beyond, rows in single precision reach the tolerance as well.
_DOUBLE_BELOW = 2**18


class StructuredScaling(Calibrator):
    """A weight and a bias for every class, or for every pair, held back by structured regularisation.

    Parameters
    ----------
    kind : {"matrix", "vector"}
        A weight for every pair of classes, or for every class alone.
    shrinkage : float or "cv"
        Strength of the pull towards temperature scaling, above 0; 1 is the published one, infinity is temperature scaling.
        "cv" takes the one that cross-validation is surest of, and temperature scaling where none is clearly better.
    input : {"logits", "probabilities"}
    tol : float
        Largest component of the gradient to accept.
    max_iter : int

    Attributes
    ----------
    shrinkage_ : float
        The strength used.
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
        shrinkage: float | str = 1.0,
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
        check_number(self.tol, "tol", above=0)
        check_number(self.max_iter, "max_iter", least=1, whole=True)
        m = logits.shape[1]
        if self.kind == "matrix" and m > _MOST_CLASSES:
            raise InputError(
                f"X has {m} classes, and kind='matrix' would need {m**2:,} weights; it takes up to {_MOST_CLASSES} classes. "
                "Use kind='vector', or an order-preserving method such as MCCT."
            )
        weight = np.ones(len(labels)) if weight is None else weight
        if isinstance(self.shrinkage, str):
            check_choice(self.shrinkage, "shrinkage", ("cv",))
            self.shrinkage_ = self._choose_shrinkage(logits, labels, weight)
        else:
            if self.shrinkage != np.inf:
                check_number(self.shrinkage, "shrinkage", above=0)
            self.shrinkage_ = float(self.shrinkage)
        problem = self._start(logits, labels, weight, self.shrinkage_)
        if problem is None:
            return
        self.solution_ = self._solve(problem, self.shrinkage_, None, self.tol)
        self.n_iter_ = max(self.solution_.n_iter, 1)
        warn_if_unfinished(self, self.solution_)
        self._keep(self.solution_.coefficients)

    def _start(
        self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray, shrinkage: float
    ) -> CurvedProblem | None:
        """Temperature, floor and the problem that is left; none where all but the temperature is shrunk away."""
        m = logits.shape[1]
        first = TemperatureScaling().fit(logits, labels, weight)
        self.temperature_ = first.temperature_
        self.centre_ = np.zeros(m)
        self.floor_ = 0.0
        self._keep(np.zeros(m * (m + 1) if self.kind == "matrix" else 2 * m))
        if shrinkage == np.inf:
            self.solution_, self.n_iter_ = first.solution_, first.n_iter_
            return None
        total = float(weight.sum())
        self.floor_ = min(1.0 / (total + 1.0), _MOST_FLOOR)
        if logits.size <= _DOUBLE_BELOW:
            logits = logits.astype(np.float64, copy=False)
        x = map_rows(self._features, logits)
        kind = CurvedMatrix if self.kind == "matrix" else CurvedVector
        problem = kind(x, labels, weight / total, 1.0, self._strength(m, total))
        self.centre_ = problem.centre
        return problem

    def _strength(self, m: int, total: float) -> np.ndarray:
        """The published penalty of each squared deviation; biases last."""
        total = min(total, _MOST_WEIGHT)
        if self.kind == "vector":
            return np.full((m, 2), m / total)
        strength = np.full((m, m + 1), m * max(m - 1, 1) / total)
        np.fill_diagonal(strength, m / total)
        strength[:, -1] = m / total
        return strength

    def _solve(
        self, problem: CurvedProblem, shrinkage: float, start: np.ndarray | None, tol: float
    ) -> Solution:
        problem.set_strength(shrinkage * problem.published)
        with one_blas_thread:
            return minimize_smooth(problem, tol=tol, max_iter=self.max_iter, start=start)

    def _keep(self, deviation: np.ndarray) -> None:
        """The map from what it differs from temperature scaling by."""
        m = len(self.centre_)
        by_class = deviation.reshape(m, -1)
        weights = by_class[:, :-1]
        self.coef_ = weights + np.eye(m) if self.kind == "matrix" else weights[:, 0] + 1.0
        self.intercept_ = by_class[:, -1].copy()

    def _choose_shrinkage(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> float:
        fold = balanced_folds(logits, labels, _FOLDS)
        along = self.out_of_fold(logits, labels, weight, fold)
        return surest(PATH, [log_likelihood(f, labels) for f in along], weight)

    def out_of_fold(
        self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray, fold: np.ndarray
    ) -> np.ndarray:
        """Calibrated logits (strengths, n, m) of rows by fits without their fold, for each strength of `PATH`."""

        def work(train: np.ndarray, test: np.ndarray) -> np.ndarray:
            trial = clone(self)
            problem = trial._start(logits[train], labels[train], weight[train], PATH[-1])
            assert problem is not None
            outputs = []
            start = None
            for strength in PATH:
                if strength == np.inf:
                    outputs.append(trial._tempered(logits[test]))
                    continue
                start = trial._solve(problem, strength, start, max(self.tol, _ROUGH)).coefficients
                trial._keep(start)
                outputs.append(trial._calibrate(logits[test]))
            return np.stack(outputs, axis=1)

        shape = (len(labels), len(PATH), logits.shape[1])
        found = held_out(fold, work, np.empty(shape, dtype=compute_dtype(logits)))
        return np.moveaxis(found, 1, 0)

    def _features(self, logits: np.ndarray) -> np.ndarray:
        """Logarithms of tempered probabilities (n, m), up to a shift of the row where they have no floor; NaN for a class that
        is not available."""
        x = self._tempered(logits)
        if self.floor_:
            with np.errstate(under="ignore"):
                p = np.exp(x, out=x)
                p *= (1.0 - self.floor_) / p.sum(axis=1, keepdims=True)
                p += x.dtype.type(self.floor_ / logits.shape[1])
                np.log(p, out=x)
        x[np.isneginf(logits)] = np.nan
        return x

    def _tempered(self, logits: np.ndarray) -> np.ndarray:
        """``(z - max z) / T``, not below -1e15 but for classes that are not available."""
        dtype = compute_dtype(logits)
        with np.errstate(over="ignore"):
            x = logits.astype(dtype, copy=False) - logits.max(axis=1, keepdims=True).astype(dtype)
            x *= dtype(1.0 / self.temperature_)
        return np.maximum(x, -_LARGEST, out=x, where=~np.isneginf(logits))

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


def log_likelihood(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Log-probability of each label (n,)."""
    f = logits.astype(np.float64)
    return f[np.arange(len(f)), labels] - logsumexp(f, axis=1)


def surest(strengths: Sequence[float], found: Sequence[np.ndarray], weight: np.ndarray) -> float:
    """The strength that gains most on the first, the strongest, for sure; the first itself where none does.

    ``gain - 2.5 error`` is the least that a strength gains, beyond reasonable doubt, with ``error`` the standard error of the
    mean of the paired gains in log-likelihood (n,) of held-out rows.
    """
    share = weight / weight.sum()
    gains = np.stack(found) - found[0]
    mean = gains @ share
    error = np.sqrt(((gains - mean[:, None]) ** 2) @ share / weight.sum())
    return strengths[int(np.argmax(mean - _DOUBT * error))]
