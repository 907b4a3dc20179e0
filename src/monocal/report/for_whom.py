"""For whom it is calibrated: predicted classes, and groups that the user names, before and after; in words and as one picture.

A group is off where its errors are more than chance makes of a perfectly calibrated model in as many groups. Where another class
than the predicted one is the truth more often, no map that keeps the order can help, and that is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..metrics import GroupEvaluation, evaluate
from ..metrics.units import count, percent, points
from .figures import WIDTH
from .markup import Markup
from .svg import Chart, drawing, padded, tick_labels, ticks
from .words import direction

_MOST_SHOWN = 12


@dataclass(frozen=True)
class ForWhom:
    """One division of the judged rows into groups, before and after calibration."""

    before: GroupEvaluation
    after: GroupEvaluation

    @property
    def shown(self) -> list[str]:
        """Names for the picture: those still off, those that were, then the largest; at most a dozen."""
        off = [one.name for side in (self.after, self.before) for one in side if one.off]
        large = [self.before.names[k] for k in np.argsort(-self.before.rows, kind="stable")]
        both = set(self.before.names) & set(self.after.names)
        return [name for name in dict.fromkeys((*off, *large)) if name in both][:_MOST_SHOWN]


def for_whom(
    before: np.ndarray, after: np.ndarray, labels: np.ndarray, groups: Any, options: dict[str, Any]
) -> ForWhom:
    """Of probabilities (n, m) before and after, and one value per row, or ``"predicted"``."""
    sides = [evaluate(p, labels, metrics=["ece"], groups=groups, **options).groups for p in (before, after)]
    assert sides[0] is not None
    assert sides[1] is not None
    return ForWhom(sides[0], sides[1])


def in_words(found: ForWhom, by_name: str | None = None) -> list[str]:
    """What was off before and what is off after; where the order is the obstacle; ``by_name`` is a method that may change it."""
    told = [f"Before calibration: {found.before.verdict}", f"After: {found.after.verdict}"]
    obstacles = found.after.obstacles[:3]
    told += [str(one) for one in obstacles]
    more = len(found.after.obstacles) - len(obstacles)
    if more:
        told.append(f"The same holds of {count(more)} other predicted class{'es' if more > 1 else ''}.")
    if by_name is not None and found.after.off.any() and found.after.kind != "group":
        told.append(
            f"What is left is of single classes: {by_name}, which may change the order, treats them by name."
        )
    return told


def picture(found: ForWhom) -> Markup:
    """Over-confidence of each group before and after, with intervals; filled dots are off beyond chance."""
    names = found.shown
    row, head = 40.0, 8.0
    sides = (("before", found.before), ("after", found.after))
    known = [side[name] for name in names for _, side in sides]
    dots = [100 * one.over_confidence for one in known]
    ends = [100 * end for one in known for end in (one.low, one.high)]
    most = 3 * max(map(abs, dots))  # the interval of a handful of rows must not squash the others
    reach = [*dots, *(end for end in ends if abs(end) <= most), 0.0]
    chart = Chart(padded(reach), (0, len(names)), 16, head, WIDTH - 32, row * len(names))
    at = ticks(*chart.x)
    chart.x_axis(at, tick_labels(at), "over-confidence, points")
    chart.add("line", x1=chart.px(0), x2=chart.px(0), y1=head, y2=head + row * len(names), class_="zero")
    for i, name in enumerate(names):
        y = head + row * i
        chart.text(16, y + 13, name if len(name) <= 40 else f"{name[:39]}…", "name")
        told = [name]
        for j, (side, evaluation) in enumerate(sides):
            one = evaluation[name]
            level = y + 21 + 9 * j
            left, right = chart.px(100 * one.low), chart.px(100 * one.high)
            chart.add("line", x1=left, x2=right, y1=level, y2=level, class_=f"whisker thin {side}")
            state = "out" if one.off else "in"
            place = chart.px(100 * one.over_confidence)
            chart.add("circle", cx=place, cy=level, r=4, class_=f"dot {side} {state}")
            gap = one.over_confidence
            wrong = f"{direction(gap)} by {points(gap)}" if gap else "neither over- nor under-confident"
            chance = "more than chance" if one.off else "which chance explains"
            told.append(
                f"{side}: {count(one.rows)} rows, right in {percent(one.accuracy)}, {wrong}, {chance}"
            )
        chart.hit(0, y, WIDTH, row, "\n".join(told))
    title = f"Over-confidence by {found.before.kind}, before and after calibration"
    return drawing(WIDTH, head + row * len(names) + 44, title, chart)
