r"""For whom a predictor is calibrated: accuracy, confidence and ECE in every group, and which groups are off beyond chance.

In a group of rows with confidences ``c`` and outcomes ``a``, over-confidence is ``mean c - mean a``. Its interval
is ``mean c`` less Wilson's interval of the accuracy for ``n / r`` rows,

    r = max( mean c (1 - c) / (C (1 - C)),  var(c - a) / (A (1 - A)) ),        C = mean c,  A = mean a,

because confidences that tell hard rows from easy ones leave less to chance than ``n`` equal rows would (the first
ratio, if they are honest; the second, as it looks). It speaks of rows with these confidences. Which groups are off
beyond chance: see `chance`.

Obstacles: a map that keeps the order gives the predicted class at least the probability of every other class, in
every row. If among rows that predict ``j`` another class is the label more often than ``j``, those probabilities
cannot be right on average, whatever the map. Two such counts are tested (of the rows where one of the two is the
label, is it the other in more than half?):

    all rows that predict ``j``, against the class that is their label most often, corrected for those it was chosen from;
    their least confident 1/8, 1/4, 1/2 and all, against the class that each row ranks second.

A bias for a class shows in the second: it reverses the order where the margin is smaller than the bias. P-values
are corrected for all of these, and for the number of predicted classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, ndtri
from scipy.stats import false_discovery_control

from .. import errors
from ..calibrators.fit_checks import SHARES, LowRows, least_confident
from ..errors import InputError
from .chance import CalibratedGroups, what_chance_does
from .grouping import Grouping, read_groups
from .intervals import wilson
from .outcomes import Floats, Integers, Outcomes, bin_totals
from .row_sums import GROUP_BINS, BinSums, group_stack
from .table import mean_ece
from .units import one_line, quoted

PREDICTED = "predicted"
_FEW = 10  # rows, below which a group says next to nothing
_NAME_WIDTH = 18


@dataclass(frozen=True)
class Group:
    """One group; shares, not per cent.

    Attributes
    ----------
    name : str
    rows : int
    accuracy, confidence : float
        Share of rows that are right, and mean confidence.
    over_confidence, low, high : float
        Confidence minus accuracy, and the ends of its interval; negative is under-confident.
    ece, floor : float
        ECE of the group, and the median ECE of a perfectly calibrated predictor with the same confidences.
    p_value, p_adjusted : float
        Of "calibrated in this group", alone and corrected for the number of groups.
    off : bool
        Off beyond chance: the corrected p-value is at most one minus the level.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(900, 3)
    >>> group = mc.evaluate(data.truth, data.labels, metrics="ece", groups="predicted").groups["1"]
    >>> group.name, group.rows, group.off
    ('1', 280, False)
    """

    name: str
    rows: int
    accuracy: float
    confidence: float
    over_confidence: float
    low: float
    high: float
    ece: float
    floor: float
    p_value: float
    p_adjusted: float
    off: bool


@dataclass(frozen=True, repr=False)
class GroupEvaluation:
    """Calibration of every group, the worst first: iterate, ask for ``result["law"]``, or read the columns.

    Attributes
    ----------
    names : tuple of str
    rows : (G,) array of int
    accuracy, confidence, low, high, ece, floor, p_value, p_adjusted : (G,) arrays
        As in `Group`.
    mean_ece, mean_floor, mean_p_value : float
        Mean of the groups' ECEs by rows, the median of what chance alone makes of it, and the share of draws that reach it. Of
        predicted classes it is `top_label_ece`.
    level : float
        Coverage of the intervals; one minus it is the false discovery rate of the groups called off.
    kind : str
        What the groups are: "group", or "predicted class".
    obstacles : tuple of Obstacle
        Predicted classes where the order of the classes itself is wrong; of predicted classes only.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(900, 3)
    >>> found = mc.evaluate(data.truth, data.labels, metrics="ece", groups="predicted").groups
    >>> [(group.name, group.rows) for group in found]
    [('2', 278), ('0', 342), ('1', 280)]
    """

    names: tuple[str, ...]
    rows: Integers
    accuracy: Floats
    confidence: Floats
    low: Floats
    high: Floats
    ece: Floats
    floor: Floats
    p_value: Floats
    p_adjusted: Floats
    mean_ece: float
    mean_floor: float
    mean_p_value: float
    level: float
    kind: str = "group"
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def over_confidence(self) -> Floats:
        """Confidence minus accuracy of each group."""
        return self.confidence - self.accuracy

    @property
    def off(self) -> NDArray[np.bool_]:
        """Which groups are off beyond chance."""
        return self.p_adjusted <= 1 - self.level + 1e-12

    @property
    def plural(self) -> str:
        """What the groups are called together."""
        return "predicted classes" if self.kind == "predicted class" else f"{self.kind}s"

    @property
    def worst(self) -> Group:
        """The group that is surely farthest off: off beyond chance, with the interval farthest from zero."""
        return self[0]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Group]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, group: int | str) -> Group:
        if isinstance(group, str):
            if group not in self.names:
                raise KeyError(f"There is no {self.kind} {group!r}.")
            group = self.names.index(group)
        values = {column: getattr(self, column)[group].item() for column in _COLUMNS}
        return Group(self.names[group], **values)

    @property
    def verdict(self) -> str:
        """One sentence: how many groups are off beyond chance, and the worst."""
        many, found, nouns = len(self), int(self.off.sum()), self.plural
        worst = _in_words(self.worst, self.level)
        if many == 1:
            return f"The one {self.kind} is {f'off beyond chance: {worst}' if found else 'not off beyond chance'}."
        if found > 1:
            return f"{found:,} of {many:,} {nouns} are off beyond chance; the worst is {worst}."
        if found == 1:
            return f"1 of {many:,} {nouns} is off beyond chance: {worst}."
        if self.mean_p_value > 1 - self.level:
            return f"None of {many:,} {nouns} is off beyond chance."
        return (
            f"None of {many:,} {nouns} alone is off beyond chance, but together they are (mean ECE {100 * self.mean_ece:.1f} %, "
            f"{100 * self.mean_floor:.1f} % by chance)."
        )

    def table(self, limit: int | None = 20) -> str:
        """The first ``limit`` groups as lines of at most 79 characters, in per cent."""
        shown = [self[k] for k in range(len(self) if limit is None else min(limit, len(self)))]
        labels = [_fitting(one.name) for one in shown]
        width = max(len(self.kind), *map(len, labels))
        lines = [
            f"{self.kind:<{width}}{'rows':>9}{'right':>6}{'sure':>6}{'over':>7}{'from':>7}{'to':>7}{'ECE':>6}{'floor':>6}{'p':>6}"
        ]
        for label, one in zip(labels, shown, strict=True):
            # Less the sign of what rounds to zero.
            over = "".join(
                f"{round(100 * value, 1) + 0.0:>+7.1f}" for value in (one.over_confidence, one.low, one.high)
            )
            p = "<.001" if one.p_adjusted < 0.001 else f"{one.p_adjusted:.3f}".lstrip("0")
            lines.append(
                f"{label:<{width}}{one.rows:>9,}{100 * one.accuracy:>6.1f}{100 * one.confidence:>6.1f}{over}"
                f"{100 * one.ece:>6.1f}{100 * one.floor:>6.1f}{p:>6}{'*' if one.off else ''}"
            )
        if len(shown) < len(self):
            lines.append(f"... and {len(self) - len(shown):,} more")
        return "\n".join(lines)

    def __str__(self) -> str:
        few = int((self.rows < _FEW).sum())
        notes = [
            "In %. right: accuracy; sure: mean confidence; over: sure less right, with its",
            f"{100 * self.level:g} % interval; floor: the ECE of perfect calibration; p: corrected for the",
            f"number of {self.plural}; *: off beyond chance.",
            f"Mean ECE within {self.plural} {100 * self.mean_ece:.2f} %, {100 * self.mean_floor:.2f} % by chance.",
        ]
        if few:
            has = "has" if few == 1 else "have"
            notes.append(f"{few:,} of them {has} fewer than {_FEW} rows: these say next to nothing.")
        return "\n".join([self.verdict, *map(str, self.obstacles), "", self.table(), "", *notes])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "kind": self.kind,
            "level": self.level,
            "verdict": self.verdict,
            "n_groups": len(self),
            "n_off": int(self.off.sum()),
            "mean_ece": self.mean_ece,
            "mean_floor": self.mean_floor,
            "mean_p_value": self.mean_p_value,
            "groups": [dict(one.__dict__) for one in self],
            "obstacles": [one.to_dict() for one in self.obstacles],
        }

    def to_pandas(self) -> Any:
        """Frame with one row per group, the worst first."""
        pandas = errors.require("pandas", "data")
        index = pandas.Index(list(self.names), name=self.kind)
        return pandas.DataFrame({column: getattr(self, column) for column in _COLUMNS}, index=index)


_COLUMNS = [column for column in Group.__dataclass_fields__ if column != "name"]


def evaluate_groups(
    rows: Outcomes,
    groups: Any,
    *,
    class_names: Sequence[str] | None = None,
    n_bins: int = GROUP_BINS,
    level: float = 0.95,
    seed: int | None = 0,
) -> GroupEvaluation:
    """Calibration of rows in groups: one value per row, or ``"predicted"`` for the predicted classes."""
    by_class = _is_predicted(groups)
    names = class_names_of(class_names, rows.n_classes)
    measured = _measure(rows, grouping_of(rows, groups, names), n_bins, level, np.random.default_rng(seed))
    obstacles = find_obstacles(rows, names, 1 - level) if by_class else ()
    return GroupEvaluation(
        **measured, level=level, kind="predicted class" if by_class else "group", obstacles=obstacles
    )


def _is_predicted(groups: Any) -> bool:
    """Whether the groups asked for are the predicted classes."""
    return isinstance(groups, str) and groups == PREDICTED


def grouping_of(rows: Outcomes, groups: Any, class_names: Sequence[str]) -> Grouping:
    """The groups of the rows that have a weight."""
    if _is_predicted(groups):
        given = Grouping(rows.predicted, tuple(class_names))
    else:
        all_rows = read_groups(groups, rows.n_given)
        given = Grouping(all_rows.number[rows.kept], all_rows.names)
    there, number = np.unique(given.number, return_inverse=True)
    return Grouping(number.reshape(-1), tuple(given.names[k] for k in there.tolist()))


def class_names_of(given: Sequence[str] | None, n_classes: int) -> list[str]:
    """Names of the classes: those given, or their numbers."""
    names = [str(j) for j in range(n_classes)] if given is None else [str(name) for name in given]
    if len(names) != n_classes:
        raise InputError(f"class_names: expected {n_classes} names, one for each class, got {len(names)}.")
    return names


def _measure(
    rows: Outcomes, grouping: Grouping, n_bins: int, level: float, generator: np.random.Generator
) -> dict[str, Any]:
    """The columns of the result, the worst first."""
    number, n_groups = grouping.number, len(grouping.names)
    sums = BinSums.of_stack(group_stack(rows, number, n_groups, n_bins))
    weight, squares = sums.weight.sum(axis=1), sums.weight_squared.sum(axis=1)
    confidence, accuracy = (total.sum(axis=1) / weight for total in (sums.confidence, sums.correct))

    def mean_by_square(values: Floats) -> Floats:
        return bin_totals(number, rows.weight**2 * values, n_groups) / squares

    surprise = rows.confidence - rows.correct
    honest = mean_by_square(np.clip(rows.confidence * (1 - rows.confidence), 0, None))
    apparent = mean_by_square((surprise - (confidence - accuracy)[number]) ** 2)
    low, high = _interval(confidence, accuracy, honest, apparent, weight**2 / squares, level)

    ece = np.abs(sums.confidence - sums.correct).sum(axis=1) / weight
    calibrated = CalibratedGroups.of(rows, number, n_groups, n_bins)
    chance = what_chance_does(calibrated, ece, confidence - accuracy, 1 - level, generator)
    p_adjusted = false_discovery_control(chance.p_value)
    all_in_all = mean_ece(sums)
    surely = np.clip(np.maximum(low, -high), 0, None)
    order = np.lexsort((-(ece - chance.floor), -surely, p_adjusted > 1 - level + 1e-12))
    columns = {
        "rows": np.bincount(number, minlength=n_groups),
        "accuracy": accuracy,
        "confidence": confidence,
        "low": low,
        "high": high,
        "ece": ece,
        "floor": chance.floor,
        "p_value": chance.p_value,
        "p_adjusted": p_adjusted,
    }
    return {
        "names": tuple(grouping.names[k] for k in order.tolist()),
        **{name: column[order] for name, column in columns.items()},
        "mean_ece": all_in_all,
        "mean_floor": float(np.median(chance.mean_draws)),
        "mean_p_value": (1 + np.count_nonzero(chance.mean_draws >= all_in_all))
        / (1 + len(chance.mean_draws)),
    }


def _interval(
    confidence: Floats, accuracy: Floats, honest: Floats, apparent: Floats, n: Floats, level: float
) -> tuple[Floats, Floats]:
    """Ends of the interval of ``confidence - accuracy``, from the variances of a row's outcome, honest and apparent."""
    claimed, shown = (np.clip(share * (1 - share), 0, None) for share in (confidence, accuracy))
    ratio = np.divide(honest, claimed, out=np.ones_like(honest), where=claimed > 0)
    ratio = np.maximum(ratio, np.divide(apparent, shown, out=np.zeros_like(shown), where=shown > 0))
    z = float(ndtri((1 + level) / 2))
    least, most = wilson(accuracy, n / np.maximum(ratio, 1e-300), z, z)
    # Rounding must not put the value itself outside.
    return confidence - np.maximum(accuracy, most), confidence - np.minimum(accuracy, least)


def _fitting(name: str) -> str:
    """A name on one line that fits its column."""
    line = one_line(name)
    return line if len(line) <= _NAME_WIDTH else line[: _NAME_WIDTH - 1] + "…"


def _in_words(group: Group, level: float) -> str:
    """ "'law': over-confident by 6.1 points (95 % 3.9 to 8.2)", of a group that is off."""
    low, value, high = (100 * x for x in (group.low, group.over_confidence, group.high))
    if low <= 0 <= high:
        return (
            f"{quoted(group.name)}: right on average but not at each confidence (ECE {100 * group.ece:.1f} %, "
            f"{100 * group.floor:.1f} % by chance)"
        )
    if value < 0:
        low, high = -high, -low
    side = "under" if value < 0 else "over"
    return f"{quoted(group.name)}: {side}-confident by {abs(value):.1f} points ({100 * level:g} % {low:.1f} to {high:.1f})"


@dataclass(frozen=True)
class Obstacle:
    """A predicted class that is wrong more often than another class would be.

    Attributes
    ----------
    predicted, truth : str
        The class that is predicted, and the one that is the truth more often in these rows.
    rows : int
    accuracy, truth_share : float
        How often the predicted class is the truth, and how often the other one; of the least confident rows, how often the
        class ranked second is.
    p_value : float
        That chance alone does it, corrected for the number of classes.
    at_most : float
        The confidence of these rows is at most this; 1 where they are all that predict the class.
    remedy : str
        What may change the order.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.tile([0.5, 0.4, 0.1], (400, 1))
    >>> labels = np.repeat([0, 1, 2], [120, 240, 40])
    >>> mc.evaluate(probs, labels, metrics="ece", groups="predicted").groups.obstacles[0].truth
    '1'
    """

    predicted: str
    truth: str
    rows: int
    accuracy: float
    truth_share: float
    p_value: float
    at_most: float = 1.0
    remedy: str = "StructuredMCCT"

    def __str__(self) -> str:
        said, right = quoted(self.predicted), f"it is right {100 * self.accuracy:.0f} % of the time and"
        if self.at_most < 1:
            said += f" with a confidence of at most {100 * self.at_most:.0f} %"
            more = f"the class it ranks second, mostly {quoted(self.truth)}, is the truth more often"
        else:
            more = f"{quoted(self.truth)} is the truth more often"
        return (
            f"When it says {said} {right} {more} ({100 * self.truth_share:.0f} %): no map that keeps the order can "
            f"mend that; see {self.remedy}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**self.__dict__, "sentence": str(self)}


def find_obstacles(rows: Outcomes, names: Sequence[str], alpha: float) -> tuple[Obstacle, ...]:
    """Predicted classes for which another class is the truth more often, beyond chance; those with most rows first."""
    m = rows.n_classes
    # Pairs that occur, not all m^2: a vocabulary may have 10^5 classes.
    pairs, place = np.unique(rows.predicted * m + rows.labels, return_inverse=True)
    share = bin_totals(place.reshape(-1), rows.weight, len(pairs))
    predicted, label = pairs // m, pairs % m
    right, weight, square = np.zeros(m), np.zeros(m), np.zeros(m)
    right[predicted[predicted == label]] = share[predicted == label]
    weight[:], square[:] = (bin_totals(rows.predicted, w, m) for w in (rows.weight, rows.weight**2))
    count = np.bincount(rows.predicted, minlength=m)
    classes = np.flatnonzero(count)
    largest = np.zeros(m)
    rival = np.full(m, -1)
    wrong = predicted != label
    order = np.argsort(share[wrong], kind="stable")  # the largest is written last
    rival[predicted[wrong][order]] = label[wrong][order]
    largest[predicted[wrong][order]] = share[wrong][order]
    # Unequal weights tell as much as fewer equal ones.
    scale = weight[classes] / square[classes]
    k, n = scale * largest[classes], scale * (largest[classes] + right[classes])
    tail = np.where(k > 0, betainc(np.maximum(k, 1e-300), n - k + 1, 0.5), 1.0)  # P(Binomial(n, 1/2) >= k)
    whole = np.where(largest[classes] > right[classes], np.minimum(1.0, (m - 1) * tail), 1.0)
    first, second = (rows.label_rank == rank for rank in (0, 1))
    lows = least_confident(rows.predicted, rows.confidence, first, second, rows.weight, rows.weight**2, m)
    tails = np.stack([low.tail()[classes] for low in lows])
    p_value = false_discovery_control(
        np.minimum(1.0, 2.0 * np.minimum(whole, len(SHARES) * tails.min(axis=0)))
    )
    remedy = "BinaryMCCT" if m == 2 else "StructuredMCCT"
    found = []
    for i in np.flatnonzero(p_value <= alpha):
        j, p = int(classes[i]), float(p_value[i])
        if 2.0 * whole[i] <= alpha:
            shares = float(right[j] / weight[j]), float(largest[j] / weight[j])
            found.append(Obstacle(names[j], names[int(rival[j])], int(count[j]), *shares, p, remedy=remedy))
        else:
            found.append(_of_low_rows(rows, lows[int(np.argmin(tails[:, i]))], j, names, p, remedy))
    return tuple(sorted(found, key=lambda one: -one.rows))


def _of_low_rows(
    rows: Outcomes, low: LowRows, j: int, names: Sequence[str], p_value: float, remedy: str
) -> Obstacle:
    second = low.members & (rows.predicted == j) & (rows.label_rank == 1)
    labels, place = np.unique(rows.labels[second], return_inverse=True)
    truth = int(labels[np.argmax(np.bincount(place, rows.weight[second]))])
    shares = float(low.first[j] / low.total[j]), float(low.second[j] / low.total[j])
    return Obstacle(
        names[j], names[truth], int(low.rows[j]), *shares, p_value, min(float(low.highest[j]), 1.0), remedy
    )
