"""Groups as a picture: over-confidence of each group with its interval, the worst at the top.

The numbers are those of `monocal.evaluate` with ``groups=``, and a `CalibrationCurve` for every group. Before and after
calibration the rows stay in the groups they have after it, so both show the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import InputError
from ..inputs.validation import check_count, check_fraction
from ..metrics import GroupEvaluation
from ..metrics.groups import class_names_of, evaluate_groups, grouping_of
from ..metrics.outcomes import Outcomes, equal_width_edges
from ..metrics.row_sums import GROUP_BINS
from ..metrics.units import count, percent
from .curves import CalibrationCurve, curve_in_bins
from .display import LINE, CurvesDisplay, by_name, legend, panels, points, shortened, tidy

_ENDS = ("under-confident  ←  points  →  over-confident", "P(class 1) too low  ←  points  →  too high")


@dataclass(frozen=True)
class GroupCurves:
    """Calibration curves of groups, by name, the worst first; ``before`` is empty where nothing was calibrated.

    Attributes
    ----------
    after, before : dict of str to CalibrationCurve
    evaluation, evaluation_before : GroupEvaluation
        What `monocal.evaluate` says of the groups; before calibration, None if that was not given.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(600, 3)
    >>> found = mc.plots.group_curves(data.labels, data.truth, "predicted")
    >>> sorted(found.after) == sorted(found.evaluation.names)
    True
    """

    after: dict[str, CalibrationCurve]
    before: dict[str, CalibrationCurve]
    evaluation: GroupEvaluation
    evaluation_before: GroupEvaluation | None = None

    def title(self, name: str) -> str:
        """The name, the rows, and the ECE with what chance alone would show."""
        group = self.evaluation[name]
        return f"{shortened(name)}, {group.rows:,} rows\nECE {100 * group.ece:.1f} %, by chance {100 * group.floor:.1f} %"


def group_curves(
    y_true: Any,
    y_prob: Any,
    groups: Any,
    *,
    before: Any = None,
    n_bins: int = GROUP_BINS,
    level: float = 0.95,
    sample_weight: Any = None,
    class_names: Sequence[str] | None = None,
    seed: int | None = 0,
) -> GroupCurves:
    """Accuracy against confidence in every group.

    Parameters
    ----------
    y_true, y_prob, groups, level, sample_weight, class_names, seed
        As in `monocal.evaluate`.
    before : (n, m) array, optional
        Probabilities before calibration.
    n_bins : int
        Equal-width bins of a group.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(600, 3)
    >>> sorted(mc.plots.group_curves(data.labels, data.truth, "predicted").after)
    ['0', '1', '2']
    """
    n_bins, level = check_count(n_bins, "n_bins"), check_fraction(level, "level")
    parts = by_name(y_prob, before, None)
    *earlier_probs, probs = parts.values()
    rows = Outcomes.of(probs, y_true, sample_weight, names=("y_prob", "y_true"))
    names = class_names_of(class_names, rows.n_classes)
    grouping = grouping_of(rows, groups, names)
    options: dict[str, Any] = {"n_bins": n_bins, "level": level, "seed": seed}
    evaluation = evaluate_groups(rows, groups, class_names=names, **options)

    def curves(side: Outcomes) -> dict[str, CalibrationCurve]:
        side = side.positive if side.is_binary else side
        edges, made = equal_width_edges(n_bins), {}
        for name in evaluation.names:
            of = grouping.number == grouping.names.index(name)
            c = side.confidence[of]
            made[name] = curve_in_bins(c, edges, c, side.correct[of], side.weight[of], level)
        return made

    if not earlier_probs:
        return GroupCurves(curves(rows), {}, evaluation)
    earlier = Outcomes.of(earlier_probs[0], y_true, sample_weight, names=("before", "y_true"))
    shape, other = rows.probs.array.shape, earlier.probs.array.shape
    if other != shape:
        raise InputError(f"before: expected the shape of y_prob, {shape}, got {other}.")
    of_rows = np.zeros(earlier.n_passed, dtype=np.int64)
    of_rows[earlier.kept] = grouping.number
    was = evaluate_groups(earlier, np.array(grouping.names, dtype=object)[of_rows], **options)
    return GroupCurves(curves(rows), curves(earlier), evaluation, replace(was, kind=evaluation.kind))


class GroupDisplay(CurvesDisplay[GroupEvaluation]):
    """Over-confidence of each group with its interval, the worst at the top; filled where it is off beyond chance.

    Parameters
    ----------
    evaluations : dict of str to GroupEvaluation
        By name, such as before and after; the last one gives the order.
    max_groups : int
        How many are drawn.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(600, 3)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> display = mc.GroupDisplay.from_estimator(cal, data.values, data.labels, groups="predicted")
    >>> list(display.evaluations)
    ['before', 'after']
    """

    def __init__(self, evaluations: dict[str, GroupEvaluation], max_groups: int = 25):
        super().__init__(evaluations)
        self.max_groups = check_count(max_groups, "max_groups")

    @property
    def evaluations(self) -> dict[str, GroupEvaluation]:
        """By name."""
        return self.curves

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_prob: Any,
        groups: Any = "predicted",
        *,
        before: Any = None,
        name: str | None = None,
        max_groups: int = 25,
        **options: Any,
    ) -> GroupDisplay:
        """From labels, probabilities and groups, as in `group_curves`, whose options these are."""
        curves = group_curves(y_true, y_prob, groups, before=before, **options)
        sides = {} if curves.evaluation_before is None else {"before": curves.evaluation_before}
        return cls({**sides, "after" if sides else name or "model": curves.evaluation}, max_groups)

    def plot(self, ax: Any = None, **kwargs: Any) -> GroupDisplay:
        """Draw into a new figure or into ``ax``; keyword arguments go to the marks."""
        final = next(reversed(self.evaluations.values()))
        names = [name for name in final.names if all(name in one.names for one in self.evaluations.values())]
        names = names[: self.max_groups]
        self.figure_, [[self.ax_]] = panels(ax, 1, (1.0,), (6.4, 1.6 + 0.3 * len(names)))
        self.ax_.axvline(0, color=LINE, linewidth=1)
        spread = 0.3 if len(self.evaluations) > 1 else 0.0
        for number, (title, colour) in enumerate(self.colours().items()):
            evaluation = self.evaluations[title]
            rows = np.array([evaluation.names.index(name) for name in names], dtype=int)
            height = np.arange(len(names)) + spread * (number - (len(self.evaluations) - 1) / 2)
            columns = (evaluation.low, evaluation.over_confidence, evaluation.high)
            low, value, high = (100 * column[rows] for column in columns)
            self.ax_.hlines(height, low, high, color=colour, linewidth=1.2)
            texts = [f"{title}: {_in_words(evaluation[int(k)], evaluation.two)}" for k in rows]
            labels = (f"{title}, no more than chance", f"{title}, off beyond chance")
            points(self.ax_, value, height, evaluation.off[rows], colour, labels=labels, tips=texts, **kwargs)
        self.ax_.set_yticks(np.arange(len(names)), [f"{shortened(n)} ({final[n].rows:,})" for n in names])
        self.ax_.set(ylim=(len(names) - 0.5, -0.5), xlabel=_ENDS[final.two])
        few = f"the worst {len(names)} of {len(final):,} {final.plural}" if len(names) < len(final) else None
        legend(self.ax_, self.figure_, self.ax_, few)
        tidy(self.ax_)
        return self


def _in_words(group: Any, two: bool) -> str:
    claim, kept = ("P(class 1)", "class 1 in") if two else ("claims", "right in")
    chance = "off beyond chance" if group.off else "no more than chance"
    return (
        f"{group.name}, {count(group.rows)} rows,\n{claim} {percent(group.confidence)}, {kept} {percent(group.accuracy)},\n"
        f"{chance}"
    )
