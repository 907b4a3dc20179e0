"""Label shift: the same kinds of samples, in other proportions than when the calibrator was fitted.

    p'(j | x)  ~  p(j | x) prior'_j / prior_j

turns calibrated probabilities into those of a population with frequencies ``prior'`` (Saerens, Latinne, Decaestecker, 2002).
They are known, or estimated from rows without labels: with ``r_nj = p(j | x_n) / prior_j`` they maximise the concave likelihood

    L(w) = 1/N sum_n log sum_j w_j r_nj     over  w >= 0,  sum_j w_j = 1        (`ensemble_temperature.most_likely_mixture`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ..arrays import to_numpy
from ..core.contingency import chi_squared
from ..core.map import MapStep, affine_step
from ..errors import InputError
from ..inputs.validation import check_number
from . import state
from .base import Calibrator
from .binary_mcct import BinaryMCCT
from .calibrated_rows import squared
from .cone_calibrator import warn_if_unfinished
from .ensemble_temperature import most_likely_mixture
from .stacked import check_stages
from .temperature import TemperatureScaling

# An estimate is trusted where the predicted classes would be this improbable without a shift.
_SURE = 1e-3


@dataclass(kw_only=True, eq=False, repr=False)
class LabelShift(Calibrator):
    """A calibrator for a population whose class frequencies differ from those it is fitted on.

    To raise some classes and lower others changes the order of the classes: that is what a shift calls for.

    Parameters
    ----------
    calibrator : Calibrator or None
        What calibrates before; copied. None: `BinaryMCCT` for two classes, `TemperatureScaling` for more.
    prior : array-like of shape (m,) or None
        Frequencies of the classes where the calibrator will be used: positive, summing to one. None: as in calibration, until
        `adapt` estimates them from rows without labels.
    tol : float
        Largest violation of the optimality conditions to accept in an estimate.
    max_iter : int
    input, class_axis, ignore_index
        See `Calibrator`.

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

    References
    ----------
    Saerens, Latinne, Decaestecker (2002). Adjusting the outputs of a classifier to new a priori probabilities. Neural
    Computation.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(2000, 3)
    >>> rare = mc.LabelShift(mc.MCCT(), prior=[0.8, 0.1, 0.1]).fit(data.values, data.labels)
    >>> rare.predict_proba(data.values).mean(axis=0).argmax()
    np.int64(0)
    >>> rare.adapt(data.values).shifted_                 # as in calibration
    False
    """

    calibrator: Calibrator | None = field(default=None, kw_only=False)
    prior: Any = None
    tol: float = 1e-6
    max_iter: int = 100

    _state: ClassVar[state.Rules] = {
        "calibrator_": state.stages,
        "prior_": state.frequencies,
        "calibration_prior_": state.frequencies,
        "predicted_": state.counts,
        "solution_": None,
        "n_iter_": None,
        "shifted_": None,
    }

    def _fit(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
        check_number(self.tol, "tol", above=0)
        check_number(self.max_iter, "max_iter", least=1, whole=True)
        m = logits.shape[1]
        default = BinaryMCCT() if m == 2 else TemperatureScaling()
        (first,) = check_stages([default if self.calibrator is None else self.calibrator])
        prior = None if self.prior is None else _check_prior(self.prior, m)
        share = np.ones(len(labels)) if weight is None else weight
        self.calibrator_ = clone(first).fit(logits, labels, weight)
        self.n_iter_ = getattr(self.calibrator_, "n_iter_", 1)
        p = to_numpy(self.calibrator_.predict_proba(logits)).astype(np.float64)
        self.calibration_prior_ = (share @ p + 1.0 / m) / (share.sum() + 1.0)
        self.predicted_ = _effective_counts(p.argmax(axis=1), share, m)
        self._set_prior(self.calibration_prior_ if prior is None else prior)

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
            raise InputError("adapt takes either X, rows without labels, or prior, frequencies.")
        m = len(self.calibration_prior_)
        if prior is not None:
            return self._set_prior(_check_prior(prior, m))
        logits = self._logits(X)
        p = to_numpy(self.calibrator_.predict_proba(logits)).astype(np.float64)
        predicted = np.bincount(p.argmax(axis=1), minlength=m)
        self.shifted_ = chi_squared(np.stack([self.predicted_, predicted]))[1] < _SURE
        share = np.full(len(p), 1.0 / len(p))
        self.solution_ = most_likely_mixture(
            p / self.calibration_prior_, share, self.calibration_prior_, self.tol, self.max_iter
        )
        warn_if_unfinished(self, self.solution_)
        if self.shifted_:
            # As if one sample more had come from the calibration set: no class is ruled out because it was not met.
            counts = len(p) * self.solution_.coefficients + self.calibration_prior_
            self.prior_ = counts / counts.sum()
        else:
            self.prior_ = self.calibration_prior_
        return self

    def _set_prior(self, prior: ndarray) -> LabelShift:
        """Use a prior that is not estimated."""
        self.prior_ = prior
        for name in ("solution_", "shifted_"):
            self.__dict__.pop(name, None)
        return self

    @property
    def log_ratio_(self) -> ndarray:
        """What is added to the logits of each class, (m,)."""
        return np.log(self.prior_ / self.calibration_prior_)

    def _map_steps(self) -> list[MapStep]:
        ones = np.ones(len(self.prior_))
        return [*self.calibrator_._map_steps(), affine_step(ones, self.log_ratio_, 0.0 * ones)]

    def _calibrate(self, logits: ndarray) -> ndarray:
        f = to_numpy(self.calibrator_.transform(logits))
        return f + self.log_ratio_.astype(f.dtype)


def _effective_counts(predicted: ndarray, weight: ndarray, m: int) -> ndarray:
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


def _check_prior(prior: Any, m: int) -> ndarray:
    try:
        values = np.asarray(to_numpy(prior), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"prior must be {m} numbers, one for each class, but is {prior!r}.") from None
    if values.shape != (m,):
        raise InputError(f"prior must have one number for each of the {m} classes, not {values.shape}.")
    if len(bad := np.flatnonzero(~np.isfinite(values) | (values <= 0))):
        raise InputError(
            f"prior must be positive for every class, but is {values[bad[0]]:g} for class {bad[0]}. For a class that cannot "
            "occur, set its logits to -inf; for a rare one, give a small number."
        )
    if abs(values.sum() - 1.0) > 1e-6:
        raise InputError(
            f"prior must sum to 1, but sums to {values.sum():.6g}. Divide it by its sum if it holds counts or percentages."
        )
    return values / values.sum()
