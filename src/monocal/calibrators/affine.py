"""Affine maps of the logits: vector and matrix scaling, Dirichlet calibration, structured scaling. None keeps the class order.

    f = a * x + b            (vector)            f = W x + b            (matrix, Dirichlet)

with ``x`` the logits less their mean over the row (Guo et al., 2017; Dirichlet, Kull et al., 2019: the log-probabilities), so a
shift of a row changes nothing. A ridge pulls the deviations from temperature scaling towards 0.

Structured scaling (Berta, Holzmüller, Jordan, Bach, 2025) begins with temperature scaling and adds as much by class as the data
support:

    x = log( (1 - e) softmax(z / T) + e / m ),   e = 1 / (n + 1),   T the best temperature with free biases (`shared_temperature`)
    f = x + v * x + b           (vector)              f = x + V x + b           (matrix)

    penalty = m / n sum_j (V_jj^2 + b_j^2) + m (m - 1) / n sum_{j != k} V_jk^2       (times ``shrinkage``)

so that its ridge grows with the number of parameters of a kind. With few samples this is close to temperature scaling; with more
it moves single classes, and finally pairs of them. The share ``e`` of the uniform distribution bounds the logarithms, as one more
sample of each class would. All objectives are smooth and strongly convex (`affine_problem`), so every fit ends in its minimum,
with a bound on the distance to it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy import ndarray
from scipy.special import logsumexp
from sklearn.base import clone

from ..arrays import compute_dtype
from ..core.map import MapStep, affine_step
from ..core.smooth import minimize_smooth
from ..errors import InputError, part_of_a_fit
from ..inputs.reader import ArraySource, Checked, Reader, Source
from ..inputs.validation import check_choice, check_number
from ..parallel import map_rows, one_blas_thread, row_slices
from ..solver import Solution
from . import state
from .affine_problem import AffineProblem, as_they_are, features, shared_temperature, weights_of
from .base import Calibrator
from .cone_calibrator import warn_if_unfinished
from .folds import splits_of
from .temperature import TemperatureScaling

# A parameter for every pair, and a dozen matrices of them in the solver: three gigabytes at this many.
_MOST_CLASSES = 5000
# Penalty of a bias in a matrix, in that of a weight: as in a vector, where it is as well known.
_BIAS = 0.03
# Default penalty of a weight in Dirichlet calibration, in samples: the best on halves of five real calibration sets.
_PULL = 300.0
# The least penalty of anything: so small that it only keeps the problem strongly convex.
_STEADY = 1e-8
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

T = TypeVar("T")


@dataclass(kw_only=True, eq=False, repr=False)
class AffineCalibrator(Calibrator):
    """Base: temperature scaling of features, and deviations from it that a ridge holds back; with a certificate.

    ``kkt`` of ``solution_`` is the largest component of the gradient, ``duality_gap`` bounds how far the objective is above its
    minimum. ``centre_`` stands for a class that is not available where other classes look at it.
    """

    tol: float = 1e-5
    max_iter: int = 500

    _pairs: ClassVar[bool] = True  # a weight for every pair of classes

    _state: ClassVar[state.Rules] = {
        "coef_": state.per_class,
        "intercept_": state.per_class,
        "centre_": state.centre,
        "solution_": None,
        "n_iter_": None,
    }

    def _check_settings(self, n_classes: int, instead: str = "VectorScaling") -> None:
        check_number(self.tol, "tol", above=0)
        check_number(self.max_iter, "max_iter", least=1, whole=True)
        if self._pairs and n_classes > _MOST_CLASSES:
            raise InputError(
                f"X has {n_classes} classes, and {type(self).__name__} would need {n_classes**2:,} weights. "
                f"Use {instead}, or an order-preserving method such as MCCT."
            )

    def _minimize(self, problem: AffineProblem, tol: float, start: Any = None) -> Solution:
        with one_blas_thread:
            return minimize_smooth(problem, tol=tol, max_iter=self.max_iter, start=start)

    def _solve(self, problem: AffineProblem, scale: float = 1.0) -> None:
        """Keep the certificate and the map of the solution; features were multiplied by ``scale``."""
        self.solution_ = solution = self._minimize(problem, self.tol)
        self.n_iter_ = max(solution.n_iter, 1)
        warn_if_unfinished(self, solution)
        self._keep(solution.coefficients, scale)

    def _keep(self, deviation: ndarray, scale: float = 1.0) -> None:
        """Set the map from its deviation, flat, in units of the map without any."""
        by_class = deviation.reshape(len(self.centre_), -1)
        weights = by_class[:, :-1]
        weights = weights + np.eye(len(weights)) if self._pairs else weights[:, 0] + 1.0
        self.coef_ = scale * weights
        self.intercept_ = by_class[:, -1].copy()

    def _calibrate(self, logits: ndarray) -> ndarray:
        return map_rows(self._transform, logits)

    def _transform(self, logits: ndarray) -> ndarray:
        """``coef x + intercept``: -inf where a class is not available, which is ``centre`` where other classes look at it."""
        x = self._features(logits)
        masked = np.isnan(x)
        fitted = self.centre_, self.coef_, self.intercept_
        centre, weights, bias = (a.astype(x.dtype) for a in fitted)
        x = np.where(masked, centre, x)
        f: ndarray = x @ weights.T if weights.ndim == 2 else x * weights
        f += bias
        f[masked] = -np.inf
        return f

    # The published methods; `StructuredScaling` has ways of its own.

    _origin = "mean"  # what is taken from the logits of a row: their mean, or their log-sum-exp

    def _map_steps(self) -> list[MapStep]:
        return [affine_step(self.coef_, self.intercept_, self.centre_, origin=self._origin)]

    @abstractmethod
    def _strength(self, m: int, n: float, scale: float) -> ndarray:
        """Penalty of each squared deviation from temperature scaling, in units of its scale; biases last."""

    def _features(self, logits: ndarray) -> ndarray:
        """Shift-invariant features (n, m); NaN for a class that is not available."""
        x = features(logits, 1.0)
        if self._origin == "mean":
            x -= np.nanmean(x, axis=1, keepdims=True)
            return x
        with np.errstate(under="ignore"):
            x -= np.log(np.nansum(np.exp(x), axis=1, keepdims=True))
        return x

    def _fit(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
        m = logits.shape[1]
        self._check_settings(m)
        total = float(len(labels) if weight is None else weight.sum())
        source = ArraySource(Reader(), Checked(logits, labels, weight))
        with part_of_a_fit():
            first = TemperatureScaling(prior_rows=0).fit(logits, labels, weight)
        # The penalty of a bias; where that is none, of one sample.
        ridge = self._strength(m, total, 1.0)[0, -1] or 1.0 / total
        scale = 1.0 / shared_temperature(source, first, ridge)
        strength = np.maximum(self._strength(m, total, scale), _STEADY)
        problem = AffineProblem(source, lambda z: scale * self._features(z), total, strength)
        self.centre_ = problem.centre / scale
        self._solve(problem, scale)


@dataclass(kw_only=True, eq=False, repr=False)
class VectorScaling(AffineCalibrator):
    """A weight and a bias for every class: ``f_j = a_j x_j + b_j``.

    Parameters
    ----------
    l2 : float
        Pull towards temperature scaling: ``l2 / n`` times ``sum_j (T a_j - 1)^2 + b_j^2``. 0: none, as published; the bias of a
        class without labels then falls until the gradient is below ``tol``.
    tol : float
        Largest component of the gradient to accept.
    max_iter : int
    input, class_axis, ignore_index
        See `Calibrator`.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (m,)
        They act on logits less their mean over the row.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017). On calibration of modern neural networks. ICML.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.VectorScaling().fit(data.values, data.labels)
    >>> cal.coef_.round(2)
    array([0.46, 0.48, 0.61, 0.53, 0.53])
    >>> cal.preserves_order
    False
    """

    _variants: ClassVar = {"VS": {}, "VS published": {"l2": 0.0, "tol": 1e-7}}
    l2: float = 3.0

    _pairs = False

    @classmethod
    def as_published(cls) -> VectorScaling:
        """Without a penalty, and close to its optimum."""
        return cls(**cls._variants["VS published"])

    def _strength(self, m: int, n: float, scale: float) -> ndarray:
        check_number(self.l2, "l2", least=0)
        return np.full((m, 2), self.l2 / n)


@dataclass(kw_only=True, eq=False, repr=False)
class MatrixScaling(AffineCalibrator):
    """A weight for every pair of classes: ``f = W x + b``.

    Parameters
    ----------
    l2 : float
        Pull towards temperature scaling: ``l2 / n`` times ``|T W - I|^2 + .03 |b|^2``. 0: none, as published; with fewer samples
        than parameters the likelihood then has no maximum, and weights grow until the gradient is below ``tol``.
    tol : float
        Largest component of the gradient to accept.
    max_iter : int
        A thousand classes are a million parameters; one iteration costs two products (n, m) x (m, m).
    input, class_axis, ignore_index
        See `Calibrator`.

    Attributes
    ----------
    coef_ : ndarray of shape (m, m)
    intercept_ : ndarray of shape (m,)
        They act on logits less their mean over the row.
    centre_ : ndarray of shape (m,)
        Stands for the logit of an unavailable class where other classes look at it.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017). On calibration of modern neural networks. ICML.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.MatrixScaling().fit(data.values, data.labels)
    >>> cal.coef_.shape, cal.intercept_.shape
    ((5, 5), (5,))
    """

    _variants: ClassVar = {"MS": {}, "MS published": {"l2": 0.0}}
    l2: float = 100.0

    @classmethod
    def as_published(cls) -> MatrixScaling:
        """Without a penalty."""
        return cls(**cls._variants["MS published"])

    def _strength(self, m: int, n: float, scale: float) -> ndarray:
        check_number(self.l2, "l2", least=0)
        strength = np.full((m, m + 1), self.l2 / n)
        strength[:, -1] = _BIAS * self.l2 / n
        return strength


@dataclass(kw_only=True, eq=False, repr=False)
class DirichletCalibration(AffineCalibrator):
    """Matrix scaling of log-probabilities with off-diagonal and intercept regularisation (ODIR).

    The penalty that is added to the mean NLL is ``lam / (m (m - 1)) sum_{i != j} W_ij^2 + mu / m sum_j b_j^2``.

    Parameters
    ----------
    lam : float or None
        None: ``300 m (m - 1) / n``, so that a weight is penalised by ``300 / n`` whatever the number of classes.
    mu : float or None
        None: the same as ``lam``.
    tol : float
        Largest component of the gradient to accept.
    max_iter : int
    input, class_axis, ignore_index
        See `Calibrator`.

    Attributes
    ----------
    coef_ : ndarray of shape (m, m)
    intercept_ : ndarray of shape (m,)
        They act on log-probabilities.
    centre_ : ndarray of shape (m,)
        Stands for the log-probability of an unavailable class where other classes look at it.

    References
    ----------
    Kull, Perello-Nieto, Kängsepp, Silva Filho, Song, Flach (2019). Beyond temperature scaling: obtaining well-calibrated
    multiclass probabilities with Dirichlet calibration. NeurIPS.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.DirichletCalibration().fit(data.values, data.labels)
    >>> cal.predict_proba(data.values[:1]).round(2)
    array([[0.01, 0.01, 0.  , 0.98, 0.  ]], dtype=float32)
    """

    _variants: ClassVar = {"Dirichlet": {}}
    lam: float | None = None
    mu: float | None = None

    _origin = "logsumexp"

    def _strength(self, m: int, n: float, scale: float) -> ndarray:
        pairs = max(1, m * (m - 1))
        lam = _PULL * pairs / n if self.lam is None else self.lam
        mu = lam if self.mu is None else self.mu
        check_number(lam, "lam", least=0)
        check_number(mu, "mu", least=0)
        strength = np.full((m, m + 1), scale**2 * lam / pairs)
        np.fill_diagonal(strength, 0.0)
        strength[:, -1] = mu / m
        return strength


@dataclass(kw_only=True, eq=False, repr=False)
class StructuredScaling(AffineCalibrator):
    """A weight and a bias for every class, or for every pair, held back by structured regularisation.

    Parameters
    ----------
    kind : {"matrix", "vector"}
        A weight for every pair of classes, or for every class alone.
    shrinkage : float or "cv"
        Strength of the pull towards temperature scaling, above 0; 1 is the published one, infinity is temperature scaling.
        "cv" takes the one with the largest lower bound of its gain on held-out rows; temperature scaling where none is above 0.
    tol : float
        Largest component of the gradient to accept.
    max_iter : int
    input, class_axis, ignore_index
        See `Calibrator`.

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

    _variants: ClassVar = {"SMS": {}, "SVS": {"kind": "vector"}}
    kind: str = "matrix"
    shrinkage: float | str = 1.0
    tol: float = 1e-6
    max_iter: int = 100

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
        if isinstance(source, ArraySource):
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
            self._solve(self._problem(source, first, self.shrinkage_))

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
        total = float(source.hold(as_they_are).sum(lambda rows: weights_of(rows).sum()))
        m = source.shape[1]
        counted = min(total, _MOST_WEIGHT)
        self.temperature_ = shared_temperature(source, first, min(shrinkage, 1.0) * m / counted)
        self.floor_ = min(1.0 / (total + 1.0), _MOST_FLOOR)
        x = partial(features, temperature=self.temperature_, floor=self.floor_)
        strength = shrinkage * self._strength(m, counted, 1.0)
        problem = AffineProblem(source, x, total, strength)
        self.centre_ = problem.centre
        return problem

    def _strength(self, m: int, n: float, scale: float) -> ndarray:
        strength = np.full((m, m + 1 if self._pairs else 2), m / n)
        if self._pairs:
            strength[:, :-1] *= np.where(np.eye(m), 1.0, max(m - 1, 1))
        return strength

    def _choose_shrinkage(self, rows: Checked) -> float:
        path = self.along_path(rows, splits_of(rows.logits, rows.weight, _FOLDS))
        trials = ((strength, log_likelihood(f, rows.labels), None) for strength, f in path)
        return with_largest_bound(trials, weights_of(rows))[0]

    def along_path(
        self, rows: Checked, parts: list[tuple[ndarray, ndarray]]
    ) -> Iterator[tuple[float, ndarray]]:
        """Each strength to try, with the calibrated logits (n, m) of all rows, by fits without their fold.

        One strength at a time, so that nothing of the size of the rows waits for its turn.
        """
        trials = [clone(self) for _ in parts]
        sources = [ArraySource(Reader(), rows[train]) for train, _ in parts]
        firsts = [trial._temper(source) for trial, source in zip(trials, sources, strict=True)]
        starts: list[ndarray | None] = [None] * len(parts)
        for strength in _PATH:
            out = np.empty(rows.logits.shape, dtype=compute_dtype(rows.logits))
            for k, (trial, (_, test)) in enumerate(zip(trials, parts, strict=True)):
                if strength < np.inf:
                    problem = trial._problem(sources[k], firsts[k], strength)
                    solution = trial._minimize(problem, max(self.tol, ROUGH), starts[k])
                    starts[k] = solution.coefficients
                    trial._keep(solution.coefficients)
                out[test] = trial._calibrate(rows.logits[test])
            yield strength, out

    def _map_steps(self) -> list[MapStep]:
        fitted = self.coef_, self.intercept_, self.centre_
        return [affine_step(*fitted, 1.0 / self.temperature_, self.floor_)]

    def _features(self, logits: ndarray) -> ndarray:
        return features(logits, self.temperature_, self.floor_)


def log_likelihood(logits: ndarray, labels: ndarray) -> ndarray:
    """Log-probability of each label (n,)."""
    out = np.empty(len(labels))
    for rows in row_slices(logits):
        f = logits[rows].astype(np.float64)
        out[rows] = f[np.arange(len(f)), labels[rows]] - logsumexp(f, axis=1)
    return out


def with_largest_bound(trials: Iterator[tuple[float, ndarray, T]], weight: ndarray) -> tuple[float, T]:
    """The strength with the largest lower bound of its gain; the first, the strongest, where no bound is above 0.

    The bound is ``gain - k error``, with ``error`` the standard error of the mean of the paired gains in log-likelihood (n,) of
    held-out rows over the first strength, and ``k = 0.5 (1 + 500 / n)``. Each trial is a strength, the log-likelihoods, and what
    to return with it. None follows once the mean gain has fallen twice since its maximum: weaker strengths would only overfit.
    """
    total = float(weight.sum())
    share, k = weight / total, _DOUBT * (1.0 + _FEW / total)
    strength, first, own = next(trials)
    best, largest_bound, largest_gain, falls = (strength, own), 0.0, 0.0, 0
    for strength, likelihood, own in trials:
        gain = likelihood - first
        mean = float(gain @ share)
        error = np.sqrt(float((gain - mean) ** 2 @ share) / total)
        falls = 0 if mean > largest_gain else falls + 1
        largest_gain = max(mean, largest_gain)
        if mean - k * error > largest_bound:
            best, largest_bound = (strength, own), mean - k * error
        if falls >= _FALLS:
            break
    return best
