"""Risk and coverage: how often the answers are wrong when only the surest rows are answered.

Sort the rows by confidence, the surest first, and let ``E(t)`` be the weight of the wrong ones among the first ``t``:

    risk(t) = E(t) / t        AURC = mean of risk(t) over t = 1..n        E-AURC = AURC - AURC of the best order

The best order has all right answers first. ``E`` is linear across rows of equal confidence, which is the mean over all orders
they could have, so no value depends on how rows are arranged. With slope ``s`` from ``a`` to ``b``

    sum_{t = a+1..b} E(t) / t = s (b - a) + (E(a) - s a) (H_b - H_a),        H_t = 1 + 1/2 + ... + 1/t = psi(t + 1) + const

and ``psi``, the digamma function, says what ``H`` is where weights are no whole numbers: a row of weight 2 is two rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import psi

from ..layout import Layout
from ..validation import check_number
from .outcomes import Floats, Outcomes


@dataclass(frozen=True)
class RiskCoverage:
    """The curve at the end of every group of equal confidences, the surest first.

    Attributes
    ----------
    threshold : ndarray of shape (K,)
        Answer the rows whose confidence is at least this.
    mass, errors : ndarray of shape (K,)
        Rows that are then answered, and wrong answers among them (or their weights).

    Examples
    --------
    >>> import monocal as mc
    >>> curve = mc.metrics.risk_coverage_curve([[0.9, 0.1], [0.7, 0.3], [0.7, 0.3]], [0, 1, 0])
    >>> curve.threshold.tolist(), curve.mass.tolist(), curve.errors.tolist()
    ([0.9, 0.7], [1.0, 3.0], [0.0, 1.0])
    """

    threshold: Floats
    mass: Floats
    errors: Floats

    @classmethod
    def of(cls, rows: Outcomes, weight: Floats) -> RiskCoverage:
        order = rows.by_confidence[::-1]
        confidence, weight = rows.confidence[order], weight[order]
        ends = np.append(np.flatnonzero(confidence[1:] != confidence[:-1]), len(confidence) - 1)
        mass = np.cumsum(weight)[ends]
        errors = np.cumsum(weight * (1 - rows.correct[order]))[ends]
        return cls(confidence[ends], mass, errors)

    @property
    def coverage(self) -> Floats:
        """Share of the rows that is answered."""
        return self.mass / self.mass[-1]

    @property
    def risk(self) -> Floats:
        """Share of the answers that is wrong."""
        return self.errors / self.mass

    @property
    def aurc(self) -> float:
        """Mean risk over all coverages."""
        return _area(self.mass, self.errors)

    @property
    def e_aurc(self) -> float:
        """What of `aurc` a better order of the rows could save."""
        right = self.mass[-1] - self.errors[-1]
        best = _area(np.array([right, self.mass[-1]]), np.array([0.0, self.errors[-1]]))
        return max(0.0, self.aurc - best)

    def risk_at(self, coverage: float) -> float:
        """Share of wrong answers when this share of the rows is answered."""
        check_number(coverage, "coverage", above=0, most=1)
        mass = coverage * self.mass[-1]
        return float(np.interp(mass, np.append(0.0, self.mass), np.append(0.0, self.errors)) / mass)

    def coverage_at(self, risk: float) -> float:
        """The largest share of the rows that can be answered with at most this share of wrong answers; 0 where none can."""
        check_number(risk, "risk", least=0, most=1)
        fine = np.flatnonzero(self.risk <= risk)
        return float(self.coverage[fine[-1]]) if len(fine) else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        columns = ("threshold", "coverage", "risk")
        return {"aurc": self.aurc, "e_aurc": self.e_aurc} | {
            name: getattr(self, name).tolist() for name in columns
        }


def _area(mass: Floats, errors: Floats) -> float:
    """Mean of ``E(t) / t``, where ``E`` is linear between the given points, from (0, 0)."""
    b, a = mass, np.append(0.0, mass[:-1])
    before, width = np.append(0.0, errors[:-1]), b - a
    slope = np.divide(errors - before, width, out=np.zeros_like(width), where=width > 0)
    parts = slope * width + (before - slope * a) * (psi(b + 1) - psi(a + 1))
    return float(parts.sum() / mass[-1])


def risk_coverage_curve(
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> RiskCoverage:
    """The risk of answering the surest rows only, for every share of rows that is answered.

    Parameters
    ----------
    probs : (n, m) array
        Rows of class probabilities.
    labels : (n,) array
        True classes.
    sample_weight : (n,) array, optional
    class_axis, ignore_index
        As in `evaluate`.

    Returns
    -------
    RiskCoverage
        With ``aurc``, ``e_aurc``, ``risk_at(coverage)`` and ``coverage_at(risk)``.

    References
    ----------
    El-Yaniv & Wiener, On the foundations of noise-free selective classification, JMLR 11 (2010).

    Examples
    --------
    >>> import monocal as mc
    >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]
    >>> curve = mc.metrics.risk_coverage_curve(probs, [0, 0, 1, 0])
    >>> curve.coverage.tolist(), curve.risk.round(2).tolist(), curve.coverage_at(0.1)
    ([0.25, 0.5, 0.75, 1.0], [0.0, 0.0, 0.33, 0.25], 0.5)
    """
    rows = Outcomes.of(probs, labels, sample_weight, Layout(class_axis, ignore_index))
    return RiskCoverage.of(rows, rows.weight)


def aurc(probs: Any, labels: Any, **options: Any) -> float:
    """Area under the risk-coverage curve: the mean risk over all shares of rows that could be answered.

    It asks whether the rows with the larger confidence are those that are right, not how large it is: a map of the confidence
    alone that rises leaves it as it is.

    Parameters
    ----------
    probs, labels, **options
        As in `risk_coverage_curve`.

    References
    ----------
    Geifman, Uziel & El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR 2019.

    Examples
    --------
    >>> import monocal as mc
    >>> round(mc.metrics.aurc([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]], [0, 0, 1, 0]), 4)
    0.1458
    """
    return risk_coverage_curve(probs, labels, **options).aurc


def e_aurc(probs: Any, labels: Any, **options: Any) -> float:
    """`aurc` less that of the best order with the same accuracy, in which all right answers come first.

    The published figure takes ``r + (1 - r) log(1 - r)`` of the error rate ``r`` for the best; here it is summed exactly.

    Parameters
    ----------
    probs, labels, **options
        As in `risk_coverage_curve`.

    References
    ----------
    Geifman, Uziel & El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR 2019.

    Examples
    --------
    >>> import monocal as mc
    >>> round(mc.metrics.e_aurc([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]], [0, 0, 1, 0]), 4)
    0.0833
    """
    return risk_coverage_curve(probs, labels, **options).e_aurc
