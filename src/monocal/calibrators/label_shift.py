"""Label shift: the same kinds of samples, in other proportions than when the calibrator was fitted.

    p'(j | x)  ~  p(j | x) prior'_j / prior_j

turns calibrated probabilities into those of a population with frequencies ``prior'`` (Saerens, Latinne, Decaestecker, 2002).
They are known, or estimated from rows without labels: with ``r_nj = p(j | x_n) / prior_j`` their likelihood

    L(w) = 1/N sum_n log sum_j w_j r_nj     over  w >= 0,  sum_j w_j = 1

is concave, so it has one maximum. EM climbs to it in steps that never fail, however unequal the classes, and that soon become
small:

    w_j  <-  w_j gain_j,       gain_j = dL/dw_j = 1/N sum_n r_nj / sum_k w_k r_nk.

From where a few of them lead, Newton steps go the rest of the way, to the minimum over a cone of

    F(w) = sum_j w_j - 1/N sum_n log sum_j w_j r_nj,   w >= 0,

whose minimiser sums to one by itself (scale ``w`` to see it). Since ``sum_j w_j gain_j = 1``, a prior is the most likely one
exactly when no gain exceeds one, and ``max L - L(w) <= max_j gain_j - 1``: the certificate.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ..arrays import to_numpy
from ..core.contingency import chi_squared
from ..core.map import MapStep, affine_step
from ..errors import InputError
from ..inputs.validation import check_number
from ..parallel import one_blas_thread
from ..solver import ConeProblem, Expansion, Solution, minimize
from . import state
from .base import Calibrator
from .binary_mcct import BinaryMCCT
from .calibrated_rows import squared
from .cone_calibrator import warn_if_unfinished
from .stacked import check_stages
from .temperature import TemperatureScaling

# An estimate is trusted where the predicted classes would be this improbable without a shift.
_SURE = 1e-3
# Steps of EM before Newton's, and how often both are tried.
_CLIMBS, _ROUNDS = 30, 5


class LabelShift(Calibrator):
    """A calibrator for a population whose class frequencies differ from those it is fitted on.

    Parameters
    ----------
    calibrator : Calibrator or None
        What calibrates before; copied. None: `BinaryMCCT` for two classes, `TemperatureScaling` for more.
    prior : array-like of shape (m,) or None
        Frequencies of the classes where the calibrator will be used: positive, summing to one. None: as in calibration, until
        `adapt` estimates them from rows without labels.
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.
    tol : float
        Largest violation of the optimality conditions to accept in an estimate.
    max_iter : int

    Attributes
    ----------
    calibrator_ : Calibrator
        Fitted.
    calibration_prior_ : ndarray of shape (m,)
        Mean calibrated probabilities of the calibration rows, with one sample more shared by all classes. They are what the
        calibrator takes the frequencies to be: where it keeps the order and cannot undo a bias towards some classes, that
        differs from the labels', and to divide by the labels' would leave the bias in (measured on calibration parts: mean
        predictions are better on 14 of 15 sets with an artificial shift).
    prior_ : ndarray of shape (m,)
        Frequencies that predictions are made for.
    solution_ : monocal.solver.Solution
        After `adapt`: the certificate of the estimate.
    shifted_ : bool
        After `adapt`: whether the predicted classes differ from those in calibration by more than chance. If not, ``prior_`` is
        that of calibration.

    Notes
    -----
    Raising some classes and lowering others changes the order of the classes: that is what a shift calls for.

    References
    ----------
    Saerens, Latinne, Decaestecker (2002). Adjusting the outputs of a classifier to new a priori probabilities. Neural
    Computation.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.data import synthetic
    >>> data = synthetic(2000, 3, seed=0)
    >>> rare = mc.LabelShift(mc.MCCT(), prior=[0.8, 0.1, 0.1]).fit(data.values, data.labels)
    >>> rare.predict_proba(data.values).mean(axis=0).argmax()
    np.int64(0)
    >>> rare.adapt(data.values).shifted_                 # as in calibration
    False
    """

    _state: ClassVar[state.Rules] = {
        "calibrator_": state.stages,
        "prior_": state.frequencies,
        "calibration_prior_": state.frequencies,
        "predicted_": state.counts,
        "solution_": None,
        "n_iter_": None,
        "shifted_": None,
    }

    def __init__(
        self,
        calibrator: Calibrator | None = None,
        *,
        prior: Any = None,
        input: str = "logits",
        class_axis: int = -1,
        ignore_index: int | None = None,
        tol: float = 1e-6,
        max_iter: int = 100,
    ):
        self.calibrator = calibrator
        self.prior = prior
        self.input = input
        self.class_axis = class_axis
        self.ignore_index = ignore_index
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_number(self.tol, "tol", above=0)
        check_number(self.max_iter, "max_iter", least=1, whole=True)
        m = logits.shape[1]
        (first,) = check_stages([self._default(m) if self.calibrator is None else self.calibrator])
        known = None if self.prior is None else _check_prior(self.prior, m)
        share = np.ones(len(labels)) if weight is None else weight
        self.calibrator_ = clone(first).fit(logits, labels, weight)
        self.n_iter_ = getattr(self.calibrator_, "n_iter_", 1)
        p = to_numpy(self.calibrator_.predict_proba(logits)).astype(np.float64)
        self.calibration_prior_ = (share @ p + 1.0 / m) / (share.sum() + 1.0)
        self.predicted_ = _effective_counts(p.argmax(axis=1), share, m)
        self.prior_ = self.calibration_prior_ if known is None else known
        for name in ("solution_", "shifted_"):
            self.__dict__.pop(name, None)

    def _default(self, n_classes: int) -> Calibrator:
        return BinaryMCCT() if n_classes == 2 else TemperatureScaling()

    def adapt(self, X: Any = None, *, prior: Any = None) -> LabelShift:
        """Turn to a population with other class frequencies: estimated from rows without labels, or known.

        Parameters
        ----------
        X : array-like of shape (n, m), optional
            Logits (or probabilities, as in `fit`) of rows of the new population.
        prior : array-like of shape (m,), optional
            Its frequencies, where they are known; then without ``X``.

        Returns
        -------
        self

        Notes
        -----
        An estimate is used only where the predicted classes of ``X`` differ from those of the calibration rows by more than
        chance (a chi-squared test at 0.1 %, with unequal weights on the effective number of rows): without a shift it would add
        noise.
        """
        check_is_fitted(self)
        if (X is None) == (prior is None):
            raise InputError("adapt takes either X, rows without labels, or prior, known class frequencies.")
        m = len(self.calibration_prior_)
        if prior is not None:
            self.prior_ = _check_prior(prior, m)
            for name in ("solution_", "shifted_"):
                self.__dict__.pop(name, None)
            return self
        logits = self._logits(X)
        p = to_numpy(self.calibrator_.predict_proba(logits)).astype(np.float64)
        predicted = np.bincount(p.argmax(axis=1), minlength=m)
        self.shifted_ = chi_squared(np.stack([self.predicted_, predicted]))[1] < _SURE
        self.solution_: Solution = _most_likely_prior(
            p / self.calibration_prior_, self.calibration_prior_, self.tol, self.max_iter
        )
        warn_if_unfinished(self, self.solution_)
        if self.shifted_:
            # As if one sample more had come from the calibration set: no class is ruled out because it was not met.
            counts = len(p) * self.solution_.coefficients + self.calibration_prior_
            self.prior_ = counts / counts.sum()
        else:
            self.prior_ = self.calibration_prior_
        return self

    @property
    def log_ratio_(self) -> np.ndarray:
        """What is added to the logits of each class, (m,)."""
        return np.log(self.prior_ / self.calibration_prior_)

    def _map_steps(self) -> list[MapStep]:
        ones = np.ones(len(self.prior_))
        return [*self.calibrator_._map_steps(), affine_step(ones, self.log_ratio_, 0.0 * ones)]

    def _calibrate(self, logits: np.ndarray) -> np.ndarray:
        f = to_numpy(self.calibrator_.transform(logits))
        return f + self.log_ratio_.astype(f.dtype)


def _most_likely_prior(ratio: np.ndarray, start: np.ndarray, tol: float, max_iter: int) -> Solution:
    """The maximum of ``L`` above, for ``p(j | x_n) / prior_j`` (n, m), from positive frequencies on."""
    w = start
    with one_blas_thread:
        for _ in range(_ROUNDS):
            for _ in range(_CLIMBS):
                w = w * (ratio / (ratio @ w)[:, None]).mean(axis=0)
            solution = minimize(PriorProblem(ratio, w), tol=tol, max_iter=max_iter)
            if solution.converged:
                break
            w = 0.9 * w + 0.1 * start
    return solution


class PriorProblem(ConeProblem):
    """``F(w)`` above as a problem over the cone of all classes.

    Parameters
    ----------
    ratio : ndarray of shape (n, m)
        ``p(j | x_n) / prior_j``.
    start : ndarray of shape (m,)
    """

    def __init__(self, ratio: np.ndarray, start: np.ndarray):
        n, m = ratio.shape
        super().__init__(m, penalty=1.0)
        self.rounding, self.n_rows = 1e-13, n
        # Classes that no row can belong to would leave the Hessian without curvature; they stay at zero all the same.
        self.ratio = ratio
        self._start = start

    def start(self) -> np.ndarray:
        return self._start

    def evaluate(self, coefficients: np.ndarray, working: np.ndarray) -> Expansion:
        mixed = self.ratio @ coefficients
        if not (mixed > 0).all():
            nothing = np.zeros(len(coefficients))
            return Expansion(np.inf, nothing, np.zeros((len(working), len(working))))
        share = self.ratio / mixed[:, None]
        some = share[:, working]
        return Expansion(-float(np.log(mixed).mean()), -share.mean(axis=0), some.T @ some / self.n_rows)

    def candidates(self, gradient: np.ndarray, size: int) -> np.ndarray:
        order = np.argsort(gradient + self.penalty)[:size]
        return np.sort(order[gradient[order] < 0])

    @property
    def worth(self) -> np.ndarray:
        return self.penalty

    def excess(self, coefficients: np.ndarray, here: Expansion) -> float:
        # Convex: F(w) - F(w*) <= g . (w - w*), and a minimiser sums to 1, because scaling it must not help.
        g = here.gradient + self.penalty
        return max(float(g @ coefficients) + max(-float(g.min()), 0.0), 0.0)


def _effective_counts(predicted: np.ndarray, weight: np.ndarray, m: int) -> np.ndarray:
    """Weighted counts of predicted classes (m,), as so many rows of weight 1 as would vary as much.

    With weights of 1 it is the number of rows; else ``share_j (1 - share_j) / Var(share_j)``, the least of all classes, since
    the weights of one class alone may be large.
    """
    total, squares = (np.bincount(predicted, w, minlength=m) for w in (weight, squared(weight)))
    share = total / total.sum()
    variance = (squares * (1.0 - 2.0 * share) + share**2 * squares.sum()) / total.sum() ** 2
    varies = (share > 0) & (share < 1)
    if not varies.any():
        return total
    return share * float((share * (1.0 - share) / np.where(varies, variance, 1.0))[varies].min())


def _check_prior(prior: Any, m: int) -> np.ndarray:
    try:
        values = np.asarray(to_numpy(prior), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"prior must be {m} numbers, one for each class, but is {prior!r}.") from None
    if values.shape != (m,):
        raise InputError(
            f"prior must have one number for each of the {m} classes, but has shape {values.shape}."
        )
    bad = np.flatnonzero(~np.isfinite(values) | (values <= 0))
    if len(bad):
        raise InputError(
            f"prior must be positive for every class, but is {values[bad[0]]:g} for class {bad[0]}. For a class that cannot "
            "occur, set its logits to -inf; for a rare one, give a small number."
        )
    if abs(values.sum() - 1.0) > 1e-6:
        raise InputError(
            f"prior must sum to 1, but sums to {values.sum():.6g}. Divide it by its sum if it holds counts or percentages."
        )
    return values / values.sum()
