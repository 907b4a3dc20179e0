"""When a person must look: the threshold above which answers may go out unreviewed, with a guarantee on their error.

Answers whose confidence exceeds a threshold t go out automatically. Let r(t) be the share of wrong ones among
them. The rule is the lowest t for which "r(t) <= max_error" can be shown with the requested confidence:

    H_j : r(t_j) > max_error,        thresholds t_1 > t_2 > ... chosen by the confidences alone
    p_j = P(Binomial(n_j, max_error) <= e_j),      n_j automated rows at t_j, e_j wrong ones

H_j is rejected where p_j is at most its level. The levels are those of the fallback procedure: half of ``1 - confidence``
belongs to the safest threshold, the other half is shared by the others, and a level whose hypothesis is rejected passes to
the next. The probability that any rejected hypothesis is true is then at most ``1 - confidence``, so the lowest rejected
threshold may be taken. This holds for independent rows of the distribution in which the rule will be used. With costs instead
of an error, the cheapest threshold on these rows is returned, without a guarantee.

References: Clopper and Pearson (1934); Wiens and Dmitrienko (2005), The fallback procedure for evaluating a single
family of hypotheses; Angelopoulos et al. (2021), Learn then Test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.stats import beta, binom

from ..arrays import to_numpy
from ..errors import InputError
from ..inputs.validation import check_number, read_numbers
from .groups import read_groups
from .outcomes import Floats, Outcomes
from .row_sums import RiskCoverage

# Thresholds that are tried; more of them leave less of the level to each.
_THRESHOLDS = 24


@dataclass(frozen=True)
class ReviewRule:
    """A threshold, and what it does on the rows it was chosen on.

    Attributes
    ----------
    threshold : float
        Answers with a confidence above it go out; inf where no threshold can be shown to be safe, -inf where all may go out.
    n, n_automated, n_wrong : int
        Rows, automated rows, and wrong ones among these.
    upper : float
        Upper confidence limit of the error among automated answers, at this threshold alone (Clopper-Pearson); nan without any.
    max_error, confidence, cost : float or None
        The arguments, where an error was given; else the mean cost per row.
    reason : str
        Why there is no threshold; empty where there is one.
    curve : RiskCoverage
        Error against the share of automated rows, for `RiskCoverageDisplay`.
    groups : dict of str to ReviewRule
        A rule for each group, if groups were given; each holds with the requested confidence on its own.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.5, 1, 5000)
    >>> rule = mc.metrics.review_rule(p, rng.random(5000) < p, max_error=0.1)
    >>> bool(rule.error < rule.upper <= 0.1), rule.n_automated > 1000
    (True, True)
    """

    threshold: float
    n: int
    n_automated: int
    n_wrong: int
    upper: float
    max_error: float | None
    confidence: float | None
    cost: float | None
    reason: str
    curve: RiskCoverage = field(repr=False)
    groups: dict[str, ReviewRule] = field(default_factory=dict, repr=False)

    @property
    def automated(self) -> float:
        """Share of the rows that goes out without review."""
        return self.n_automated / self.n

    @property
    def error(self) -> float:
        """Share of wrong answers among those that go out, on these rows; nan without any."""
        return self.n_wrong / self.n_automated if self.n_automated else math.nan

    def __str__(self) -> str:
        return "\n".join([self._sentence(), *(f"{name}: {rule}" for name, rule in self.groups.items())])

    def _sentence(self) -> str:
        if not self.n_automated:
            return self.reason
        text = (
            f"Answers with a confidence above {self.threshold:.4g} may go out without review: {100 * self.automated:.1f} % of "
            f"{self.n:,} rows, {100 * self.error:.1f} % of these are wrong here"
        )
        if self.max_error is None or self.confidence is None:
            return f"{text}; the mean cost is {self.cost:.4g} per row, the lowest of all thresholds."
        return f"{text}, at most {100 * self.max_error:g} % with {100 * self.confidence:g} % confidence."

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {name: value for name, value in vars(self).items() if name not in ("curve", "groups")}
        groups = {name: rule.to_dict() for name, rule in self.groups.items()}
        return plain | {"automated": self.automated, "error": self.error, "groups": groups}


def review_rule(
    probs: Any,
    labels: Any,
    *,
    max_error: float | None = None,
    confidence: float = 0.95,
    cost_error: float | None = None,
    cost_review: float | None = None,
    groups: Any = None,
) -> ReviewRule:
    """The threshold above which answers may go out without a person looking.

    Parameters
    ----------
    probs : array of shape (n,) or (n, m)
        One column: the probability that the answer is right (a calibrated confidence, or P(class 1) where only class 1 is acted
        on). Several columns: class probabilities, of which the largest is the answer.
    labels : array of shape (n,)
        One column of ``probs``: whether the answer was right (0 or 1). Several: the true classes, 0..m-1. The calibrator must not
        have been fitted on these rows.
    max_error : float, default=0.02
        The largest share of wrong answers allowed among those that go out.
    confidence : float
        Probability with which the rule keeps that promise.
    cost_error, cost_review : float, optional
        Costs of a wrong answer that goes out, and of a review: gives the cheapest threshold instead.
    groups : array of shape (n,), optional
        A rule for each group as well.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.metrics.review_rule([0.9, 0.8, 0.7] * 30, [1, 1, 0] * 30, max_error=0.02).threshold
    inf
    """
    wrong, confidences = _answers(probs, labels)
    costs = [cost for cost in (cost_error, cost_review) if cost is not None]
    if costs and (len(costs) == 1 or max_error is not None):
        raise InputError("Give either max_error, or both cost_error and cost_review.")
    max_error = 0.02 if max_error is None else max_error
    check_number(confidence, "confidence", above=0, below=1)
    check_number(max_error, "max_error", above=0, below=1)
    for name, cost in zip(("cost_error", "cost_review"), costs, strict=False):
        check_number(cost, name, above=0)

    def rule(rows: Any) -> ReviewRule:
        if costs:
            return _cheapest(confidences[rows], wrong[rows], *costs)
        return _safe(confidences[rows], wrong[rows], max_error, confidence)

    if groups is None:
        return rule(slice(None))
    number, names = read_groups(groups, len(wrong))
    return replace(rule(slice(None)), groups={name: rule(number == i) for i, name in enumerate(names)})


def _answers(probs: Any, labels: Any) -> tuple[np.ndarray, Floats]:
    """Whether each answer is wrong, and its confidence."""
    if np.ndim(probs) > 1 and np.shape(probs)[1] > 1:
        rows = Outcomes.of(probs, labels)
        return rows.correct == 0, rows.confidence
    values = to_numpy(read_numbers(probs, "probs", "a confidence for each row")).astype(np.float64).ravel()
    right = np.asarray(labels).ravel()
    if values.shape != right.shape or not len(values):
        raise InputError(f"probs has {len(values)} rows and labels {len(right)}: give one label for each.")
    beyond = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(beyond):
        raise InputError(
            f"probs: a confidence must be between 0 and 1, but that of row {beyond[0]} is {values[beyond[0]]:g}. Divide "
            "percentages by 100."
        )
    if not np.isin(right, (0, 1)).all():
        raise InputError(
            "labels: with one column of probabilities, a label says whether the answer was right: 0 or 1."
        )
    return right == 0, values


def _rule(
    confidences: Floats,
    wrong: np.ndarray,
    threshold: float,
    reason: str,
    max_error: float | None = None,
    confidence: float | None = None,
    cost: float | None = None,
) -> ReviewRule:
    out = confidences > threshold
    k, e = int(out.sum()), int(wrong[out].sum())
    upper = math.nan if k == 0 else 1.0 if e == k else float(beta.ppf(confidence or 0.95, e + 1, k - e))
    curve = _curve(confidences, wrong)
    return ReviewRule(threshold, len(wrong), k, e, upper, max_error, confidence, cost, reason, curve)


def _curve(confidences: Floats, wrong: np.ndarray) -> RiskCoverage:
    values, index = np.unique(-confidences, return_inverse=True)
    mass, errors = np.bincount(index), np.bincount(index, wrong)
    return RiskCoverage(-values, np.cumsum(mass).astype(float), np.cumsum(errors))


def _safe(confidences: Floats, wrong: np.ndarray, max_error: float, confidence: float) -> ReviewRule:
    """The lowest threshold that the fallback procedure shows to be safe."""
    level = 1 - confidence
    # Rows without a mistake that a test needs, alone and as the first of several.
    alone, least = (math.ceil(math.log(own) / math.log1p(-max_error)) for own in (level, level / 2))
    thresholds = _thresholds(confidences, least)
    others = len(thresholds) - 1
    levels = [level / 2, *[level / 2 / others] * others] if others else [level]
    spare, best = 0.0, math.inf
    for threshold, own in zip(thresholds, levels, strict=True):
        out = confidences > threshold
        spare += own
        if binom.cdf(wrong[out].sum(), out.sum(), max_error) <= spare:
            best = float(threshold)
        else:
            spare = 0.0
    reason = ""
    if best == math.inf:
        why = "even the most confident answers are wrong too often, or too few rows show the contrary."
        if len(wrong) < alone:
            why = f"it takes {alone:,} rows without a mistake, and there are {len(wrong):,}."
        promise = f"at most {100 * max_error:g} % wrong answers with {100 * confidence:g} % confidence"
        reason = f"No threshold can promise {promise}: {why}"
    return _rule(confidences, wrong, best, reason, max_error, confidence)


def _thresholds(confidences: Floats, least: int) -> Floats:
    """Thresholds from the safest down, each passed by clearly more rows than the one before; by the confidences alone."""
    ordered = np.sort(confidences)[::-1]
    n = len(ordered)
    if n <= least:  # a single test, at the whole level
        return np.array([-math.inf])
    counts = np.unique(np.geomspace(least, n, _THRESHOLDS).astype(int))
    # Rows above the (k + 1)-th largest confidence are k, or fewer where there are ties. -inf lets all pass.
    after = np.append(ordered, -math.inf)[counts]
    return np.unique(after[after < ordered[0]])[::-1]


def _cheapest(confidences: Floats, wrong: np.ndarray, cost_error: float, cost_review: float) -> ReviewRule:
    curve, n = _curve(confidences, wrong), len(wrong)
    costs = np.append(cost_review * n, cost_error * curve.errors + cost_review * (n - curve.mass)) / n
    best = int(np.argmin(costs))  # 0: everything is reviewed
    below = np.append(curve.threshold, -math.inf)
    threshold = float(below[best]) if best else math.inf
    reason = "" if best else "Reviewing every answer is the cheapest on these rows."
    return _rule(confidences, wrong, threshold, reason, cost=float(costs[best]))
