r"""A bet against the calibration of a stream, which grows where the stream is off and rarely where it is calibrated.

The hypothesis, for every row t, given all rows before it:

    H0:   | P(right_t) - c_t | <= delta_t = sqrt(tolerance^2 + 2.5^2 c_t (1 - c_t) / n)   c_t: probability of the predicted class

The second term is two and a half standard errors of a share among the ``n`` rows that the calibrator was fitted on: no fit is
more exact, and a stream without end would find the calibrator's own noise. It is 0 where ``n`` is not known. Noise of the fit
and the tolerated flaw are independent, so their squares add. Rows without a label are not played; that a label is known must
not depend on whether the prediction was right.

Bet k says that the truth is ``q_k = (1 - e_k) sigmoid(a_k + b_k logit c)``: shifted or stretched, or with a share of errors that
confidence does not predict. On a row it multiplies its money by

    Bernoulli(right; q_k) / Bernoulli(right; c'),    c' = c + delta or c - delta, whichever lies between c and q_k,

and by 1 where ``q_k`` is within ``delta``. Under H0 the expected factor is at most 1. Money is put on every bet at the start of
every window s, a share ``1 / (s (s + 1))`` of it, because it is not known when a drift begins:

    A_k(t) = (A_k(t-1) + 1 / (t (t + 1) K)) prod_{rows of window t} factor_k,        wealth(t) = sum_k A_k(t) + 1 / (t + 1).

Under H0 the wealth is a supermartingale that begins at 1, so that over the whole stream, at any time,

    P( wealth ever reaches 1 / alpha ) <= alpha          (Ville's inequality).

When the drift began is shown by the bet that has won most since its lowest point (a CUSUM of the logarithms).

References
----------
Ramdas, Grünwald, Vovk, Shafer, Game-theoretic statistics and safe anytime-valid inference, Statistical Science 38 (2023).
Shin, Ramdas, Rinaldo, E-detectors: a nonparametric framework for sequential change detection, 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit, logsumexp

_SHIFTS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, -0.1, -0.2, -0.4, -0.8, -1.6)
_SLOPES = (0.5, 0.7, 1.0, 1.4, 2.0)
_ERRORS = (0.02, 0.05, 0.1, 0.2, 0.4)
_SHIFTED = [(a, b, 0.0) for a in _SHIFTS for b in _SLOPES if (a, b) != (0.0, 1.0)]
BETS = np.array(_SHIFTED + [(0.0, 1.0, e) for e in _ERRORS])
# Probabilities of 0 and 1 are often rounded ones: one error in a million rows does not refute them.
_LEAST = 1e-6
_ARRAYS = ("log_money", "won", "since", "rows", "gap")
_STANDARD_ERRORS = 2.5  # of a share among the rows of the fit, by which confidence may be off


def log_factors(confidence: np.ndarray, right: np.ndarray, tolerance: float | np.ndarray) -> np.ndarray:
    """Logarithms of what a window (n,) multiplies the money of every bet by, (K,); ``tolerance`` is of all rows, or of each."""
    log_odds = logit(np.clip(confidence, _LEAST, 1.0 - _LEAST))
    upper, lower = confidence + tolerance, np.minimum(confidence - tolerance, 1.0 - _LEAST)
    shift, slope, error = BETS.T[:, :, None]
    q = (1.0 - error) * expit(shift + slope * log_odds)
    up, down = (q > upper) & (upper <= 1.0 - _LEAST), (q < lower) & (lower >= _LEAST)
    end = np.where(up, upper, np.where(down, lower, q))  # where neither holds the factor is 1
    total: np.ndarray = np.log(np.where(right, q / end, (1.0 - q) / (1.0 - end))).sum(axis=1)
    return total


@dataclass
class Bets:
    """The money on each bet, and what each has won since its lowest point; arrays (K,).

    ``won`` is the logarithm of what a bet has won since it was last at a loss, ``since`` the first row of that time, ``rows`` the
    labelled rows in it, and ``gap`` the sum of their confidence less the number that was right.
    """

    tolerance: float
    fitted_rows: float  # rows that the calibrator was fitted on; infinite where they are not known
    windows: int
    log_money: np.ndarray
    won: np.ndarray
    since: np.ndarray
    rows: np.ndarray
    gap: np.ndarray

    @classmethod
    def begin(cls, tolerance: float, fitted_rows: float = np.inf) -> Bets:
        return cls(tolerance, fitted_rows, 0, np.full(len(BETS), -np.inf), *np.zeros((4, len(BETS))))

    def update(self, confidence: np.ndarray, right: np.ndarray, first_row: int) -> None:
        """Play a window of labelled rows (n,), which begins at row ``first_row`` of the stream."""
        of_fit = np.sqrt(np.clip(confidence * (1.0 - confidence), 0.0, None) / self.fitted_rows)
        gained = log_factors(confidence, right, np.hypot(self.tolerance, _STANDARD_ERRORS * of_fit))
        self.windows += 1
        t = self.windows
        self.log_money = np.logaddexp(self.log_money, -np.log(t * (t + 1.0) * len(BETS))) + gained
        lost = self.won <= 0
        for sums in (self.won, self.rows, self.gap):
            sums[lost] = 0.0
        self.since[lost] = first_row
        self.won += gained
        self.rows += len(confidence)
        self.gap += float((confidence - right).sum())

    @property
    def log_wealth(self) -> float:
        """Logarithm of all the money: what is on the bets, and what is not yet."""
        return float(logsumexp(np.append(self.log_money, -np.log(self.windows + 1.0))))

    @property
    def best(self) -> int:
        """The bet that has won most since its lowest point."""
        return int(np.argmax(self.won))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; no money is -1e300."""
        return {
            "tolerance": self.tolerance,
            "fitted_rows": self.fitted_rows if np.isfinite(self.fitted_rows) else None,
            "windows": self.windows,
            **{name: np.maximum(getattr(self, name), -1e300).tolist() for name in _ARRAYS},
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Bets:
        arrays = {name: np.array(state[name], dtype=float) for name in _ARRAYS}
        rows = state.get("fitted_rows")  # not in files of 0.1
        valid = (
            all(x.shape == (len(BETS),) and np.isfinite(x).all() for x in arrays.values())
            and int(state["windows"]) >= 0
            and min(arrays["rows"].min(), arrays["since"].min()) >= 0
            and (rows is None or 0 < rows < np.inf)
        )
        if not valid:
            raise ValueError("bets")
        fitted = np.inf if rows is None else float(rows)
        return cls(float(state["tolerance"]), fitted, int(state["windows"]), **arrays)
