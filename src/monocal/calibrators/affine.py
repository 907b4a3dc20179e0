"""Affine maps of the logits: vector scaling, matrix scaling (Guo et al., 2017) and Dirichlet calibration (Kull et al., 2019).

    f = a * x + b            (vector)            f = W x + b            (matrix, Dirichlet)

with ``x`` the logits less their mean over the row (Dirichlet: the log-probabilities), so a shift of a row changes nothing.
Every class has its own parameters, so none of these keeps the order of the classes. `affine_problem` has their objective.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..arrays import A, array_namespace, device_of, like
from ..core.map import MapStep, affine_step
from ..core.smooth import minimize_smooth
from ..errors import InputError, part_of_a_fit
from ..inputs.reader import ArraySource, Checked, Reader
from ..inputs.validation import check_number
from ..parallel import map_rows, one_blas_thread
from ..solver import Solution
from . import state
from .affine_problem import AffineProblem, features, shared_temperature
from .base import Calibrator
from .cone_calibrator import warn_if_unfinished
from .temperature import TemperatureScaling

# A parameter for every pair, and a dozen matrices of them in the solver: three gigabytes at this many.
_MOST_CLASSES = 5000
# Penalty of a bias in a matrix, in that of a weight: as in a vector, where it is as well known.
_BIAS = 0.03
# Default penalty of a weight in Dirichlet calibration, in samples: the best on halves of five real calibration sets.
_PULL = 300.0
# The least penalty of anything: so small that it only keeps the problem strongly convex.
_STEADY = 1e-8


class AffineCalibrator(Calibrator):
    """Base: an affine map of features.

    Attributes
    ----------
    coef_ : ndarray of shape (m,) or (m, m)
    intercept_ : ndarray of shape (m,)
    centre_ : ndarray of shape (m,)
        What stands for a class that is not available (a logit of ``-inf``) when other classes look at it.
    solution_ : monocal.solver.Solution
        With the certificate: ``kkt`` is the largest component of the gradient, ``duality_gap`` bounds how far the objective is
        above its minimum.
    n_iter_ : int
    """

    tol: float
    max_iter: int
    _pairs: bool = True  # a weight for every pair of classes

    _state: ClassVar[state.Rules] = {
        "coef_": state.per_class,
        "intercept_": state.per_class,
        "centre_": state.centre,
        "solution_": None,
        "n_iter_": None,
    }

    @abstractmethod
    def _features(self, logits: Any) -> Any:
        """Shift-invariant features (n, m); NaN for a class that is not available."""

    def _check_settings(self, n_classes: int, instead: str = "VectorScaling") -> None:
        check_number(self.tol, "tol", above=0)
        check_number(self.max_iter, "max_iter", least=1, whole=True)
        if self._pairs and n_classes > _MOST_CLASSES:
            raise InputError(
                f"X has {n_classes} classes, and {type(self).__name__} would need {n_classes**2:,} weights; it takes up to "
                f"{_MOST_CLASSES} classes. Use {instead}, or an order-preserving method such as MCCT."
            )

    def _keep(self, deviation: np.ndarray, scale: float = 1.0) -> None:
        """Set the map from its deviation, flat, in units of the map without any."""
        by_class = deviation.reshape(len(self.centre_), -1)
        weights = by_class[:, :-1]
        self.coef_ = scale * (weights + np.eye(len(weights)) if self._pairs else weights[:, 0] + 1.0)
        self.intercept_ = by_class[:, -1].copy()

    def _calibrate(self, logits: Any) -> Any:
        return map_rows(self._transform, logits)

    def _transform(self, logits: Any) -> Any:
        return affine_map(self._features(logits), self.coef_, self.intercept_, self.centre_)


class PlainAffineCalibrator(AffineCalibrator):
    """Base of the published methods: temperature scaling of features, and deviations from it that a ridge holds back."""

    _origin = "mean"  # what is taken from the logits of a row

    def _map_steps(self) -> list[MapStep]:
        return [affine_step(self.coef_, self.intercept_, self.centre_, origin=self._origin)]

    @abstractmethod
    def _strength(self, m: int, n: float, scale: float) -> np.ndarray:
        """Penalty of each squared deviation from temperature scaling, in units of its scale; biases last."""

    def _features(self, logits: Any) -> Any:
        x = features(logits, 1.0)
        x -= np.nanmean(x, axis=1, keepdims=True)
        return x

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        m = logits.shape[1]
        self._check_settings(m)
        total = float(len(labels) if weight is None else weight.sum())
        source = ArraySource(Reader(), Checked(logits, labels, weight))
        with part_of_a_fit():
            first = TemperatureScaling(prior_rows=0).fit(logits, labels, weight)
        # The penalty of a bias; where that is none, of one sample.
        scale = 1.0 / shared_temperature(source, first, self._strength(m, total, 1.0)[0, -1] or 1.0 / total)
        strength = np.maximum(self._strength(m, total, scale), _STEADY)
        problem = AffineProblem(source, lambda z: scale * self._features(z), total, strength)
        with one_blas_thread:
            self.solution_: Solution = minimize_smooth(problem, tol=self.tol, max_iter=self.max_iter)
        self.n_iter_ = max(self.solution_.n_iter, 1)
        self.centre_ = problem.centre / scale
        warn_if_unfinished(self, self.solution_)
        self._keep(self.solution_.coefficients, scale)


@dataclass(kw_only=True, eq=False, repr=False)
class VectorScaling(PlainAffineCalibrator):
    """A weight and a bias for every class: ``f_j = a_j x_j + b_j``.

    Parameters
    ----------
    l2 : float
        Pull towards temperature scaling: ``l2 / n`` times ``sum_j (T a_j - 1)^2 + b_j^2``. 0: none, as published; the bias of a
        class without labels then falls until the gradient is below ``tol``.
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

    l2: float = 3.0
    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None
    tol: float = 1e-5
    max_iter: int = 500

    _pairs = False

    @classmethod
    def as_published(cls) -> VectorScaling:
        """Without a penalty, and close to its optimum."""
        return cls(l2=0.0, tol=1e-7)

    def _strength(self, m: int, n: float, scale: float) -> np.ndarray:
        check_number(self.l2, "l2", least=0)
        return np.full((m, 2), self.l2 / n)


@dataclass(kw_only=True, eq=False, repr=False)
class MatrixScaling(PlainAffineCalibrator):
    """A weight for every pair of classes: ``f = W x + b``.

    Parameters
    ----------
    l2 : float
        Pull towards temperature scaling: ``l2 / n`` times ``|T W - I|^2 + .03 |b|^2``. 0: none, as published; with fewer samples
        than parameters the likelihood then has no maximum, and weights grow until the gradient is below ``tol``.
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.
    tol : float
        Largest component of the gradient to accept.
    max_iter : int
        A thousand classes are a million parameters; one iteration costs two products (n, m) x (m, m).

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

    l2: float = 100.0
    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None
    tol: float = 1e-5
    max_iter: int = 500

    @classmethod
    def as_published(cls) -> MatrixScaling:
        """Without a penalty."""
        return cls(l2=0.0)

    def _strength(self, m: int, n: float, scale: float) -> np.ndarray:
        check_number(self.l2, "l2", least=0)
        strength = np.full((m, m + 1), self.l2 / n)
        strength[:, -1] = _BIAS * self.l2 / n
        return strength


@dataclass(kw_only=True, eq=False, repr=False)
class DirichletCalibration(PlainAffineCalibrator):
    """Matrix scaling of log-probabilities with off-diagonal and intercept regularisation (ODIR).

    The penalty beside the mean NLL is ``lam / (m (m - 1)) sum_{i != j} W_ij^2 + mu / m sum_j b_j^2``.

    Parameters
    ----------
    lam : float or None
        None: ``300 m (m - 1) / n``, so that a weight is penalised by ``300 / n`` whatever the number of classes.
    mu : float or None
        None: the same as ``lam``.
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

    lam: float | None = None
    mu: float | None = None
    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None
    tol: float = 1e-5
    max_iter: int = 500

    _origin = "logsumexp"

    def _features(self, logits: Any) -> Any:
        x = features(logits, 1.0)
        with np.errstate(under="ignore"):
            x -= np.log(np.nansum(np.exp(x), axis=1, keepdims=True))
        return x

    def _strength(self, m: int, n: float, scale: float) -> np.ndarray:
        pairs = max(1, m * (m - 1))
        lam = _PULL * pairs / n if self.lam is None else self.lam
        mu = lam if self.mu is None else self.mu
        check_number(lam, "lam", least=0)
        check_number(mu, "mu", least=0)
        strength = np.full((m, m + 1), scale**2 * lam / pairs)
        np.fill_diagonal(strength, 0.0)
        strength[:, -1] = mu / m
        return strength


def affine_map(x: A, coef: np.ndarray, intercept: np.ndarray, centre: np.ndarray) -> A:
    """``coef x + intercept`` of features (n, m), NaN where a class is not available: -inf there, and ``centre`` for others."""
    xp = array_namespace(x)
    masked = xp.isnan(x)
    seen: Any = xp.where(masked, like(centre, x), x)
    weights = like(coef, seen)
    f: Any = seen @ weights.T if weights.ndim == 2 else seen * weights
    f += like(intercept, seen)
    out: Any = xp.where(masked, xp.asarray(-np.inf, dtype=f.dtype, **device_of(f)), f)
    return out
