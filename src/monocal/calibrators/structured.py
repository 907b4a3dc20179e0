"""Structured scaling (Berta, Holzmüller, Jordan, Bach, 2025): temperature scaling, and as much more by class as the data support.

    x = log( (1 - e) softmax(z / T) + e / m ),   e = 1 / (n + 1),   T the best temperature with free biases (`shared_scale`)
    f = x + v * x + b           (vector)              f = x + V x + b           (matrix)

fitted by maximum likelihood with a ridge whose strength grows with the number of parameters of a kind:

    penalty = m / n sum_j (V_jj^2 + b_j^2) + m (m - 1) / n sum_{j != k} V_jk^2       (times ``shrinkage``).

With few samples this is close to temperature scaling; with more it moves single classes, and finally pairs of them. The share
``e`` of the uniform distribution bounds the logarithms, as one more sample of each class would. The objective is smooth and
strongly convex, so every fit ends in its minimum, with a bound on the distance to it. The order of the classes may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone

from ..arrays import Array, compute_dtype, to_numpy
from ..core.map import MapStep, affine_step
from ..core.smooth import minimize_smooth
from ..inputs.reader import ArraySource, Checked, Reader, Source
from ..inputs.validation import check_choice, check_number
from ..parallel import one_blas_thread, row_slices
from ..solver import Solution
from . import state
from .affine import AffineCalibrator
from .affine_problem import AffineProblem, as_they_are, features, shared_temperature, weights_of
from .cone_calibrator import warn_if_unfinished
from .folds import splits_of
from .temperature import TemperatureScaling

# Strengths that cross-validation tries, strongest first: each fit is the next one's start.
_PATH = (np.inf, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
# Tolerance of fits that are only judged.
ROUGH = 1e-4
_FOLDS = 5
# A gain is believed from so many standard errors on, and with so many rows from twice as many: the gains of few rows are
# skewed, and their error is itself uncertain. On halves of calibration parts of real sets, values near these are better than 1.5
# standard errors at some 2,000 rows, worse at 700, and equal on the mean.
_DOUBT, _FEW = 0.5, 500.0
# The path ends where the mean gain has not grown so often.
_FALLS = 2
# The largest share of the uniform distribution, for rows of next to no weight.
_MOST_FLOOR = 0.5
# Beyond so many rows a penalty per row is lost in the rounding of the curvature.
_MOST_WEIGHT = 1e10


@dataclass(kw_only=True, eq=False, repr=False)
class StructuredScaling(AffineCalibrator):
    """A weight and a bias for every class, or for every pair, held back by structured regularisation.

    Parameters
    ----------
    kind : {"matrix", "vector"}
        A weight for every pair of classes, or for every class alone.
    shrinkage : float or "cv"
        Strength of the pull towards temperature scaling, above 0; 1 is the published one, infinity is temperature scaling.
        "cv" takes the one that cross-validation is surest of, and temperature scaling where none is clearly better.
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.
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

    kind: str = "matrix"
    shrinkage: float | str = 1.0
    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None
    tol: float = 1e-6
    max_iter: int = 100

    _any_array = True

    _state: ClassVar[state.Rules] = {
        "temperature_": state.positive,
        "floor_": state.share,
        "passes_": None,
        "shrinkage_": None,
    }

    @property
    def _pairs(self) -> bool:  # type: ignore[override]  # it depends on parameters
        return self.kind == "matrix"

    @property
    def _streams(self) -> bool:  # type: ignore[override]  # it depends on parameters
        # Cross-validation reads the rows too often.
        return self.kind == "vector" and not isinstance(self.shrinkage, str)

    def _fit_source(self, source: Source) -> None:
        check_choice(self.kind, "kind", ("matrix", "vector"))
        self._check_settings(source.shape[1], "kind='vector'")
        if not self._streams:
            assert isinstance(source, ArraySource)
            source = ArraySource(source.reader, source.checked.on_host())
        self.shrinkage_: float
        if isinstance(self.shrinkage, str):
            check_choice(self.shrinkage, "shrinkage", ("cv",))
            assert isinstance(source, ArraySource)
            self.shrinkage_ = self._choose_shrinkage(source.checked)
        else:
            if self.shrinkage != np.inf:
                check_number(self.shrinkage, "shrinkage", above=0)
            self.shrinkage_ = float(self.shrinkage)
        first = self._temper(source)
        self.solution_, self.n_iter_ = first.solution_, first.n_iter_
        if self.shrinkage_ < np.inf:
            problem = self._problem(source, first, self.shrinkage_)
            self.solution_ = self._solve(problem, self.shrinkage_, None, self.tol)
            self.n_iter_ = max(self.solution_.n_iter, 1)
            warn_if_unfinished(self, self.solution_)
            self._keep(self.solution_.coefficients)

    def _temper(self, source: Source) -> TemperatureScaling:
        """Begin with temperature scaling: nothing else yet."""
        m = source.shape[1]
        first = TemperatureScaling()
        first._fit_source(source)
        self.temperature_ = first.temperature_
        self.centre_ = np.zeros(m)
        self.floor_ = 0.0
        self._keep(np.zeros((m, m + 1 if self._pairs else 2)))
        return first

    def _problem(self, source: Source, first: TemperatureScaling, shrinkage: float) -> AffineProblem:
        """What is left to solve at the temperature that suits so much shrinkage."""
        total, m = float(source.hold(as_they_are).sum(_total)), source.shape[1]
        counted = min(total, _MOST_WEIGHT)
        self.temperature_ = shared_temperature(source, first, min(shrinkage, 1.0) * m / counted)
        self.floor_ = min(1.0 / (total + 1.0), _MOST_FLOOR)
        # The published penalty of each squared deviation.
        strength = np.full((m, m + 1 if self._pairs else 2), m / counted)
        if self._pairs:
            strength[:, :-1] *= np.where(np.eye(m), 1.0, max(m - 1, 1))
        x = partial(features, temperature=self.temperature_, floor=self.floor_)
        problem = AffineProblem(source, x, total, strength)
        self.centre_ = problem.centre
        return problem

    def _solve(
        self, problem: AffineProblem, shrinkage: float, start: np.ndarray | None, tol: float
    ) -> Solution:
        problem.set_strength(shrinkage * problem.strength)
        with one_blas_thread:
            return minimize_smooth(problem, tol=tol, max_iter=self.max_iter, start=start)

    def _choose_shrinkage(self, rows: Checked) -> float:
        choice = LowerBoundRule(weights_of(rows))
        labels = to_numpy(rows.labels)
        weight = None if rows.weight is None else to_numpy(rows.weight)
        for strength, f in self.along_path(rows, splits_of(rows.logits, weight, _FOLDS)):
            choice.add(strength, log_likelihood(f, labels))
            if choice.is_past:
                break
        return choice.best

    def along_path(
        self, rows: Checked, parts: list[tuple[np.ndarray, np.ndarray]]
    ) -> Iterator[tuple[float, np.ndarray]]:
        """Each strength to try, with the calibrated logits (n, m) of all rows, by fits without their fold.

        One strength at a time, so that nothing of the size of the rows waits for its turn.
        """
        trials = [clone(self) for _ in parts]
        starts: list[np.ndarray | None] = [None] * len(parts)
        firsts = [
            trial._temper(ArraySource(Reader(), rows[train]))
            for trial, (train, _) in zip(trials, parts, strict=True)
        ]
        for strength in _PATH:
            out = np.empty(rows.logits.shape, dtype=compute_dtype(rows.logits))
            for k, (trial, (train, test)) in enumerate(zip(trials, parts, strict=True)):
                if strength < np.inf:
                    problem = trial._problem(ArraySource(Reader(), rows[train]), firsts[k], strength)
                    starts[k] = trial._solve(problem, strength, starts[k], max(self.tol, ROUGH)).coefficients
                    trial._keep(starts[k])
                out[test] = trial._calibrate(rows.logits[test])
            yield strength, out

    def _map_steps(self) -> list[MapStep]:
        return [affine_step(self.coef_, self.intercept_, self.centre_, 1.0 / self.temperature_, self.floor_)]

    def _features(self, logits: Array) -> Array:
        return features(logits, self.temperature_, self.floor_)


def _total(rows: Checked) -> float:
    return float(weights_of(rows).sum())


def log_likelihood(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Log-probability of each label (n,)."""
    out = np.empty(len(labels))
    for rows in row_slices(logits):
        f = logits[rows].astype(np.float64)
        out[rows] = f[np.arange(len(f)), labels[rows]] - logsumexp(f, axis=1)
    return out


class LowerBoundRule:
    """Chooses the strength with the largest lower bound of its gain; the first, the strongest, where no bound is above 0.

    The bound is ``gain - k error``, with ``error`` the standard error of the mean of the paired gains in log-likelihood (n,) of
    held-out rows over the first strength, and ``k = 0.5 (1 + 500 / n)``.

    Attributes
    ----------
    best : float
        The chosen strength so far.
    is_latest : bool
        Whether that is the last one added.
    is_past : bool
        Whether the mean gain has fallen twice since its maximum: weaker strengths would only overfit more.
    """

    def __init__(self, weight: np.ndarray):
        self._total = float(weight.sum())
        self._share = weight / self._total
        self._k = _DOUBT * (1.0 + _FEW / self._total)
        self._first: np.ndarray | None = None
        self._bound = 0.0
        self._largest, self._falls = 0.0, 0

    @property
    def is_past(self) -> bool:
        return self._falls >= _FALLS

    def add(self, strength: float, likelihood: np.ndarray) -> None:
        """Add a strength with the log-likelihood (n,) of the held-out rows."""
        if self._first is None:
            self._first, self.best = likelihood, strength
            self.is_latest = True
            return
        gain = likelihood - self._first
        mean = float(gain @ self._share)
        error = np.sqrt(float((gain - mean) ** 2 @ self._share) / self._total)
        self._falls = 0 if mean > self._largest else self._falls + 1
        self._largest = max(mean, self._largest)
        bound = mean - self._k * error
        self.is_latest = bool(bound > self._bound)
        if self.is_latest:
            self.best, self._bound = strength, bound
