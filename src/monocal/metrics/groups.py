r"""For whom a predictor is calibrated: accuracy, confidence and ECE in every group, and which groups are off beyond chance.

In a group of rows with confidences ``c`` and outcomes ``a`` (of two classes P(class 1), and whether the label is 1),
over-confidence is ``mean c - mean a``. Its interval is ``mean c`` less Wilson's interval of the accuracy for ``n / r`` rows,

    r = max( mean c (1 - c) / (C (1 - C)),  var(c - a) / (A (1 - A)) ),        C = mean c,  A = mean a,

because confidences that separate hard rows from easy ones leave less to chance than ``n`` equal rows would (the first
ratio, if they are calibrated; the second, as observed). It holds for rows with these confidences. Which groups are off
beyond chance: see `chance`.

Groups are identified by how their values print, so 1, 1.0 and "1" are one group. Rows without a value (None, NaN,
NaT, masked) are a group of their own. Several columns make a group of every combination that occurs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import false_discovery_control

from .. import errors
from ..arrays import is_dask, to_numpy
from ..errors import InputError
from .chance import CalibratedGroups, what_chance_does
from .intervals import wilson
from .order import Obstacle, find_obstacles
from .outcomes import Floats, Integers, Outcomes, bin_totals
from .row_sums import GROUP_BINS, BinSums, group_stack
from .table import mean_ece
from .units import one_line, quoted

PREDICTED = "predicted"
_FEW = 10  # rows, below which a group says next to nothing
_MOST_FRACTIONS = 1000


class Grouping(NamedTuple):
    """``number`` (n,) of the group of each row, and the ``names`` of the groups, all of which have rows."""

    number: Integers
    names: tuple[str, ...]


def read_groups(groups: Any, n: int, name: str = "groups") -> Grouping:
    """Groups of ``n`` rows from an array-like of one value per row, a frame, a mapping of columns or an (n, k) array."""
    if isinstance(groups, (str, bytes)):
        raise InputError(f'{name}: expected one value per row, or "predicted", got {groups!r}.')
    if isinstance(groups, Mapping):
        parts = list(groups.values())
    elif hasattr(groups, "columns") and hasattr(
        groups, "shape"
    ):  # a frame's columns may be of different types
        parts = [groups[column] for column in groups.columns]
    else:
        array = _as_array(groups, name)
        parts = list(array.T) if array.ndim == 2 else [array]
    if not parts:
        raise InputError(f"{name}: expected at least one column, got none.")
    columns = [_read_column(_as_array(part, name), n, name) for part in parts]
    if len(columns) == 1:
        return columns[0]
    number = np.zeros(n, dtype=np.int64)
    for one in columns:  # renumbered after each column, so that no number grows beyond n
        number = np.unique(number * len(one.names) + one.number, return_inverse=True)[1].reshape(-1)
    first = np.unique(number, return_index=True)[1]
    return Grouping(number, tuple(", ".join(one.names[one.number[row]] for one in columns) for row in first))


def _as_array(values: Any, name: str) -> np.ndarray:
    """An array; of lists one of objects, for numpy would turn [1, "a"] and ["a", nan] into text."""
    if is_dask(values):
        values = values.compute()
    if np.ma.isMaskedArray(values):
        present = np.array(values.data, dtype=object)
        present[np.ma.getmaskarray(values)] = None
        return present
    try:
        return np.array(values, dtype=object) if isinstance(values, (list, tuple)) else to_numpy(values)
    except ValueError as error:
        raise InputError(f"{name}: expected one value per row, in rows of one length. {error}") from error


def _read_column(array: np.ndarray, n: int, name: str) -> Grouping:
    if array.shape != (n,):
        raise InputError(f"{name}: expected one value for each of the {n} rows, got shape {array.shape}.")
    values = (array.astype(str) if array.dtype.kind in "Mm" else array).tolist()
    places: dict[Any, int] = {}
    try:
        number = np.array([places.setdefault(value, len(places)) for value in values], np.int64)
    except TypeError as error:
        raise InputError(f"{name}: expected numbers or text, one value per row. {error}") from error
    if (
        array.dtype.kind == "f"
        and len(places) > _MOST_FRACTIONS
        and (array[np.isfinite(array)] % 1 != 0).any()
    ):
        raise InputError(
            f"{name}: {len(places)} different fractional numbers make no groups. Cut them into ranges first, for instance "
            "np.digitize(values, [0.2, 0.5])."
        )
    names, of_value = np.unique([_text(value) for value in places], return_inverse=True)
    return Grouping(of_value[number], tuple(names.tolist()))


def _text(value: Any) -> str:
    if value is None or type(value).__name__ in ("NAType", "NaTType") or str(value) in ("NaT", "nan"):
        return "(missing)"
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.15g}"
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class Group:
    """One group; shares, not per cent.

    Attributes
    ----------
    name : str
    rows : int
    accuracy, confidence : float
        Share of rows that are right, and mean confidence; of two classes the share of class 1, and mean P(class 1).
    over_confidence, low, high : float
        Confidence minus accuracy, and its interval; negative is under-confident, or P(class 1) too low.
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

    def in_words(self, level: float, binary: bool) -> str:
        """ "'law': over-confident by 6.1 points (95 % 3.9 to 8.2)", of a group that is off."""
        low, value, high = (100 * x for x in (self.low, self.over_confidence, self.high))
        if low <= 0 <= high:
            return (
                f"{quoted(self.name)}: right on average but not at each {'probability' if binary else 'confidence'} "
                f"(ECE {100 * self.ece:.1f} %, {100 * self.floor:.1f} % by chance)"
            )
        if value < 0:
            low, high = -high, -low
            side = "P(class 1) is too low" if binary else "under-confident"
        else:
            side = "P(class 1) is too high" if binary else "over-confident"
        return f"{quoted(self.name)}: {side} by {abs(value):.1f} points ({100 * level:g} % {low:.1f} to {high:.1f})"


_COLUMNS = [column for column in Group.__dataclass_fields__ if column != "name"]


@dataclass(frozen=True, repr=False)
class GroupEvaluation:
    """Calibration of every group, the worst first: iterate, or use ``result["law"]``.

    Attributes
    ----------
    groups : tuple of Group
        Each of their numbers is also an array (G,) of all groups, such as ``result.ece``; ``names`` is a tuple.
    mean_ece, mean_floor, mean_p_value : float
        Mean of the groups' ECEs by rows, the median of what chance alone makes of it, and the share of draws that reach it. Of
        predicted classes it is `top_label_ece`.
    level : float
        Coverage of the intervals; one minus it is the false discovery rate of the groups called off.
    kind : {"group", "predicted class"}
    obstacles : tuple of Obstacle
        Predicted classes where the order of the classes itself is wrong; of predicted classes only.
    two : bool
        Whether there are two classes, so that confidence is P(class 1).

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(900, 3)
    >>> groups = mc.evaluate(data.truth, data.labels, metrics="ece", groups="predicted").groups
    >>> groups.names, groups.rows.tolist()
    (('2', '0', '1'), [278, 342, 280])
    """

    groups: tuple[Group, ...]
    mean_ece: float
    mean_floor: float
    mean_p_value: float
    level: float
    kind: str = "group"
    obstacles: tuple[Obstacle, ...] = ()
    two: bool = False

    def __getattr__(self, name: str) -> Any:
        if name not in _COLUMNS:
            raise AttributeError(f"GroupEvaluation has no attribute {name!r}")
        return np.array([getattr(group, name) for group in self.groups])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the groups."""
        return tuple(group.name for group in self.groups)

    @property
    def plural(self) -> str:
        """The plural of ``kind``."""
        return "groups" if self.kind == "group" else "predicted classes"

    @property
    def worst(self) -> Group:
        """Of the groups that are off beyond chance, the one whose interval is farthest from zero."""
        return self.groups[0]

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def __getitem__(self, group: int | str) -> Group:
        if not isinstance(group, str):
            return self.groups[group]
        if group not in self.names:
            raise KeyError(f"There is no {self.kind} {group!r}.")
        return self.groups[self.names.index(group)]

    @property
    def verdict(self) -> str:
        """One sentence: how many groups are off beyond chance, and the worst."""
        n, n_off = len(self), int(self.off.sum())
        if n_off:
            are = "is" if n_off == 1 else "are"
            worst = self.worst.in_words(self.level, self.two)
            return f"{n_off:,} of {n:,} {self.plural} {are} off beyond chance; the worst is {worst}."
        if self.mean_p_value > 1 - self.level or n == 1:
            return f"None of {n:,} {self.plural} is off beyond chance."
        return (
            f"None of {n:,} {self.plural} alone is off beyond chance, but together they are "
            f"(mean ECE {100 * self.mean_ece:.1f} %, {100 * self.mean_floor:.1f} % by chance)."
        )

    def table(self, limit: int | None = 20) -> str:
        """The first ``limit`` groups as lines of at most 79 characters, in per cent."""
        shown = self.groups[:limit]
        names = [one_line(group.name) for group in shown]
        names = [name if len(name) <= 18 else f"{name[:17]}…" for name in names]
        width = max(map(len, (self.kind, *names)))
        share, claim, gap = ("share", "P(1)", "high") if self.two else ("right", "sure", "over")
        head = f"{'rows':>9}{share:>6}{claim:>6}{gap:>7}{'from':>7}{'to':>7}{'ECE':>6}{'floor':>6}{'p':>6}"
        lines = [f"{self.kind:<{width}}{head}"]
        for name, one in zip(names, shown, strict=True):
            # Without the sign of what rounds to zero.
            gaps = (f"{round(100 * x, 1) + 0.0:>+7.1f}" for x in (one.over_confidence, one.low, one.high))
            p = "<.001" if one.p_adjusted < 0.001 else f"{one.p_adjusted:.3f}".lstrip("0")
            lines.append(
                f"{name:<{width}}{one.rows:>9,}{100 * one.accuracy:>6.1f}{100 * one.confidence:>6.1f}{''.join(gaps)}"
                f"{100 * one.ece:>6.1f}{100 * one.floor:>6.1f}{p:>6}{'*' if one.off else ''}"
            )
        if len(shown) < len(self):
            lines.append(f"... and {len(self) - len(shown):,} more")
        return "\n".join(lines)

    def __str__(self) -> str:
        columns = "right: accuracy; sure: mean confidence; over: sure less right"
        if self.two:
            columns = "share: of class 1; P(1): mean P(class 1); high: P(1) less share"
        lines = [
            f"In %. {columns};",
            f"from, to: its {100 * self.level:g} % interval; floor: the ECE of perfect calibration;",
            f"p: corrected for the number of {self.plural}; *: off beyond chance.",
            f"Mean ECE within {self.plural} {100 * self.mean_ece:.2f} %, {100 * self.mean_floor:.2f} % by chance.",
        ]
        few = int((self.rows < _FEW).sum())
        if few:
            lines.append(f"Groups of fewer than {_FEW} rows, which say next to nothing: {few:,}.")
        return "\n".join([self.verdict, *map(str, self.obstacles), "", self.table(), "", *lines])

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
            "groups": [dict(group.__dict__) for group in self],
            "obstacles": [one.to_dict() for one in self.obstacles],
        }

    def to_pandas(self) -> Any:
        """Frame with one row per group, the worst first."""
        pandas = errors.require("pandas", "data")
        return pandas.DataFrame([group.__dict__ for group in self]).set_index("name").rename_axis(self.kind)


def evaluate_groups(
    rows: Outcomes,
    groups: Any,
    *,
    class_names: Sequence[str] | None = None,
    n_bins: int = GROUP_BINS,
    level: float = 0.95,
    seed: int | None = 0,
) -> GroupEvaluation:
    """Calibration of rows in groups: one value per row, or ``"predicted"`` for the predicted classes.

    Of two classes it is that of P(class 1): where that is too high, rows that predict class 1 are over-confident and the others
    under-confident, which would cancel.
    """
    names = class_names_of(class_names, rows.n_classes)
    grouping, generator = grouping_of(rows, groups, names), np.random.default_rng(seed)
    result = _measure(rows.positive if rows.is_binary else rows, grouping, n_bins, level, generator)
    result = replace(result, two=rows.is_binary)
    if _is_predicted(groups):
        return replace(result, kind="predicted class", obstacles=find_obstacles(rows, names, 1 - level))
    return result


def _is_predicted(groups: Any) -> bool:
    return isinstance(groups, str) and groups == PREDICTED


def grouping_of(rows: Outcomes, groups: Any, class_names: Sequence[str]) -> Grouping:
    """The groups of the rows that have a weight."""
    if _is_predicted(groups):
        number, names = rows.predicted, tuple(class_names)
    else:
        number, names = read_groups(groups, rows.n_passed)
        number = number[rows.kept]
    occurring, number = np.unique(number, return_inverse=True)
    return Grouping(number.reshape(-1), tuple(names[k] for k in occurring.tolist()))


def class_names_of(class_names: Sequence[str] | None, n_classes: int) -> list[str]:
    """Names of the classes, by default their numbers."""
    names = [str(name) for name in (range(n_classes) if class_names is None else class_names)]
    if len(names) != n_classes:
        raise InputError(f"class_names: expected {n_classes} names, one for each class, got {len(names)}.")
    return names


def _measure(
    rows: Outcomes, grouping: Grouping, n_bins: int, level: float, generator: np.random.Generator
) -> GroupEvaluation:
    """The groups, the worst first."""
    number, n_groups = grouping.number, len(grouping.names)
    sums = BinSums.of_stack(group_stack(rows, number, n_groups, n_bins))
    weight, squares = sums.weight.sum(axis=1), sums.weight_squared.sum(axis=1)
    confidence, accuracy = (total.sum(axis=1) / weight for total in (sums.confidence, sums.correct))

    # Variances of a row's outcome: nominal, if its confidence is right, and apparent.
    residual = rows.confidence - rows.correct - (confidence - accuracy)[number]
    nominal, apparent = (
        bin_totals(number, rows.weight**2 * values, n_groups) / squares
        for values in (np.clip(rows.confidence * (1 - rows.confidence), 0, None), residual**2)
    )
    low, high = _interval(confidence, accuracy, nominal, apparent, weight**2 / squares, level)

    ece = np.abs(sums.confidence - sums.correct).sum(axis=1) / weight
    calibrated = CalibratedGroups(rows, number, n_groups, n_bins)
    floor, draws, p_value = what_chance_does(calibrated, ece, confidence - accuracy, 1 - level, generator)
    p_adjusted, mean = false_discovery_control(p_value), mean_ece(sums)
    off = p_adjusted <= 1 - level + 1e-12
    surely = np.clip(np.maximum(low, -high), 0, None)
    count, gap = np.bincount(number, minlength=n_groups), confidence - accuracy
    columns = (count, accuracy, confidence, gap, low, high, ece, floor, p_value, p_adjusted, off)
    order = np.lexsort((-(ece - floor), -surely, ~off)).tolist()
    groups = tuple(Group(grouping.names[k], *(column[k].item() for column in columns)) for k in order)
    p_of_mean = (1 + np.count_nonzero(draws >= mean)) / (1 + len(draws))
    return GroupEvaluation(groups, mean, float(np.median(draws)), p_of_mean, level)


def _interval(
    confidence: Floats, accuracy: Floats, nominal: Floats, apparent: Floats, n: Floats, level: float
) -> tuple[Floats, Floats]:
    """Ends of the interval of ``confidence - accuracy``."""
    claimed, observed = (np.clip(share * (1 - share), 0, None) for share in (confidence, accuracy))
    ratio = np.divide(nominal, claimed, out=np.ones_like(nominal), where=claimed > 0)
    ratio = np.maximum(ratio, np.divide(apparent, observed, out=np.zeros_like(observed), where=observed > 0))
    z, n = float(ndtri((1 + level) / 2)), n / np.maximum(ratio, 1e-300)
    # Rounding must not put the value itself outside.
    least, most = np.minimum(accuracy, wilson(accuracy, n, -z)), np.maximum(accuracy, wilson(accuracy, n, z))
    return confidence - most, confidence - least
