"""The classes that a row does not name, by their mass:

    R = exp(logsumexp) - sum_i exp(z_i)          mass of the classes that are not named
    z_rest = log(R / N)                          they count as N equal classes

``N`` is the number of classes not named, where that is known; else the smallest for which ``z_rest`` is not above the lowest
named logit, so that every class of the rest stays below the named ones.

Some servers name the actual token as well, far below the k largest. If there are not enough classes for all of the rest to lie
below it, it cannot be one of the largest, and it counts as one of the rest.

A tail is not flat. At a scale ``s`` it has the mass ``sum_j exp(s z_j)``, and the flat one ``N (R / N)^s``: by Jensen's
inequality no less where ``s < 1``, no more where ``s > 1``. Either way the flat tail moves more than the true one.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from ..errors import InputError, warn

# Single precision cannot tell a smaller part of the total from nothing.
_LEAST_REST = np.log(2.0**-24)
# How far the named classes may exceed the total: log-probabilities are often rounded to a few digits.
_SLACK = 0.02
# More classes than any vocabulary has, for rows that do not say how many there are.
MOST = 2**20


def check_total(z: np.ndarray, total: np.ndarray) -> None:
    """The named classes alone must not have more than all."""
    named = logsumexp(z, axis=1)
    wrong = ~np.isfinite(total) | (named > total + _SLACK)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"logsumexp: in row {row} it is {total[row]:.6g}, but the named classes alone have {named[row]:.6g}. It must be "
            "that of all classes (0 for log-probabilities)."
        )


def check_room(named: np.ndarray, total: np.ndarray, count: np.ndarray, value: np.ndarray) -> None:
    """The rest must be able to hold the remaining mass and lie below the named classes."""
    with np.errstate(divide="ignore"):
        held = np.logaddexp(logsumexp(named, axis=1), value + np.log(count))
    short = held < total - _SLACK
    if short.any():
        row = int(np.argmax(short))
        warn(
            f"logsumexp: in row {row} the named classes and {count[row]:.0f} others, none above them, have "
            f"{np.exp(held - total)[row]:.1%} of the total at most ({short.sum()} such rows). Their probabilities were scaled "
            "to 1. Is n_classes, or logsumexp, that of all classes?"
        )


def _mass(named: np.ndarray, total: np.ndarray) -> np.ndarray:
    """``log R`` beside named classes of this log-sum-exp."""
    with np.errstate(divide="ignore"):
        share = np.log(-np.expm1(np.minimum(named - total, 0.0)))
    mass: np.ndarray = np.maximum(share, _LEAST_REST) + total
    return mass


def among_largest(z: np.ndarray, total: np.ndarray, n_classes: int) -> np.ndarray:
    """Which classes can be the largest of their rows, (n, k): as many as leave a rest whose mean is not above the lowest.

    All, where no number of them does: then the log-sum-exp is not that of so few classes.
    """
    order = np.argsort(-z, axis=1, kind="stable")
    falling = np.take_along_axis(z, order, axis=1)
    with np.errstate(invalid="ignore"):
        mass = _mass(np.logaddexp.accumulate(falling, axis=1), total[:, None])
    kept = 1 + np.arange(z.shape[1])
    others = n_classes - kept
    fits = (mass - np.log(np.maximum(others, 1)) <= falling + 1e-9) | (others <= 0)
    fits |= mass <= total[:, None] + _LEAST_REST + 1.0  # nothing that can be told from rounding
    fits &= np.isfinite(falling)
    most = np.where(fits.any(axis=1), (kept * fits).max(axis=1), z.shape[1])
    among = np.empty(z.shape, dtype=bool)
    np.put_along_axis(among, order, kept <= most[:, None], axis=1)
    return among


def rest_of(
    z: np.ndarray, total: np.ndarray, n_classes: int | None, least: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``N``, not below ``least``, and ``z_rest`` of each row."""
    valid = np.isfinite(z)
    mass = _mass(logsumexp(z, axis=1), total)
    lowest = np.where(valid, z, np.inf).min(axis=1)
    if n_classes is None:
        below = np.ceil(np.exp(np.minimum(mass - lowest, np.log(MOST))) * (1.0 - 1e-12))
        count = np.maximum(np.maximum(below, least), 1.0)
    else:
        count = (n_classes - valid.sum(axis=1)).astype(np.float64)
    return count, np.minimum(mass - np.log(np.maximum(count, 1.0)), lowest)
