"""Risk and coverage: how often the answers are wrong when only the surest rows are answered.

Take the different confidences c_1 > c_2 > ... as thresholds. At c_k the rows of at least this confidence are answered: they weigh
T_k, the wrong ones among them E_k, and all rows T. With T_0 = E_0 = 0

    risk_k = E_k / T_k
    AURC   = sum_k (T_k - T_{k-1}) / T * risk_k
    best   = sum_k (E_k - E_{k-1}) / T * E_k / (R + E_k),      R = weight of all right answers
    E-AURC = AURC - best >= 0

AURC is the mean over the rows of the risk at their own confidence as threshold. ``best`` is the AURC where all right answers come
first and the wrong ones keep their order. Without weights and ties both are the published sums over 1..n. No threshold parts rows
of equal confidence, so no value depends on how rows are arranged; a row of weight 2 is two rows, and a factor common to all
weights cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..inputs.layout import Layout
from ..inputs.validation import check_number
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
        """Mean over the rows of the risk at their own confidence as threshold."""
        return _sum(self.mass, self.errors, self.mass) / float(self.mass[-1])

    @property
    def e_aurc(self) -> float:
        """What of `aurc` a better order of the rows could save."""
        right = self.mass[-1] - self.errors[-1]
        best = _sum(self.errors, self.errors, right + self.errors) / float(self.mass[-1])
        return max(0.0, self.aurc - best)  # rounding

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


def _sum(steps: Floats, errors: Floats, answered: Floats) -> float:
    """Sum of the risks ``errors / answered``, each times what ``steps`` has grown by."""
    risk = np.divide(errors, answered, out=np.zeros_like(errors), where=answered > 0)
    return float(np.diff(steps, prepend=0.0) @ risk)


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
    """Area under the risk-coverage curve: the mean over the rows of the risk when they and all surer ones are answered.

    Rows of equal confidence are answered together. A row of weight 2 is two rows, and a factor common to all weights cancels.

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

    The published figure takes ``r + (1 - r) log(1 - r)`` of the error rate ``r`` for the best; here it is summed exactly. Weights
    count as in `aurc`.

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
