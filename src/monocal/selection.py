"""Which method to use: one function, asked wherever no method is named.

    two classes                          BinaryMCCT: it keeps the ranking of the rows, and moves the threshold where it belongs
    three or more                        ConditionalMCCT: it keeps the order of the classes in every row
    three or more, a class so biased     StructuredMCCT: in rows that predict it another class is the label more often, and no
      that the order is the obstacle     map that keeps the order gives that class the higher probability; or a class is named
                                         so rarely that moving it up in some rows makes one row in a hundred right
    groups that differ                   the method above with the groups as its ``context``

The answer depends on the calibration rows alone, on neither other methods nor the time at hand. `monocal fit` without a method,
`monocal compare`, `monocal report` and `CalibratedClassifier()` therefore lead to the same method on the same rows, except that
`CalibratedClassifier()` keeps the order (``keep_order``) also where it is the obstacle.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logit, softmax
from scipy.stats import chi2, norm
from sklearn.base import clone
from sklearn.utils import check_consistent_length

from .arrays import to_numpy
from .calibrators import Calibrator
from .calibrators.binary_mcct import BinaryMCCT
from .calibrators.conditional import ConditionalMCCT
from .calibrators.mcct import MCCT
from .calibrators.stacked import StructuredMCCT
from .errors import InputError
from .inputs.validation import check_choice, check_weights
from .metrics import Obstacle
from .metrics.groups import read_groups
from .metrics.order import find_obstacles
from .metrics.outcomes import Outcomes
from .registry import method_name

_MOST_ROWS, _MOST_NUMBERS = 50_000, 20_000_000  # of larger sets, rows at equal distances are examined
_CHANCE = 0.01  # that the order is called the obstacle where it is not
_DIFFER = 0.05  # how often groups that do not differ are said to
_LEAST_VARIANCE = 1.0  # expected errors and successes of a group; smaller ones are tested together


@dataclass(frozen=True)
class Recommendation:
    """The method to use, and why.

    Attributes
    ----------
    calibrator : Calibrator
        Not fitted; its ``input`` is the kind of the values.
    context : bool
        Whether to fit it with the groups as ``context``.
    reason : str
        One or two sentences.
    obstacles : tuple of Obstacle
        Predicted classes for which another class is the label more often: why the order has to change.
    """

    calibrator: Calibrator
    context: bool
    reason: str
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def title(self) -> str:
        """As sentences name it: conditional MCCT."""
        return method_name(type(self.calibrator))

    @property
    def name(self) -> str:
        """As the command line names it: conditional-mcct."""
        return self.title.lower().replace(" ", "-")


def recommend(
    values: Any,
    labels: Any,
    *,
    kind: str = "logits",
    groups: Any = None,
    keep_order: bool = False,
    sample_weight: Any = None,
    class_names: Sequence[str] | None = None,
) -> Recommendation:
    """The method for these calibration rows.

    Parameters
    ----------
    values : array-like of shape (n, m), or (n,) or (n, 1) of one score
    labels : array-like of shape (n,)
        Places of the columns; others, such as -100, are passed over.
    kind : {"logits", "probabilities", "scores"}
        What ``values`` are; it becomes the ``input`` of the method.
    groups : array-like of shape (n,), frame or mapping of columns, optional
        Groups that may differ. Where they do, ``context`` of the result is true: fit the method with them as its ``context``.
    keep_order : bool
        Whether the order of the classes must be kept, or the method must take a context, as those that keep it do.
    sample_weight : array-like of shape (n,), optional
    class_names : sequence of str, optional

    Returns
    -------
    Recommendation

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.selection import recommend
    >>> data = mc.data.synthetic(2000, 4)
    >>> recommend(data.values, data.labels).calibrator
    ConditionalMCCT()
    >>> recommend(data.values + [4.0, 0, 0, 0], data.labels).title
    'structured MCCT'
    >>> recommend(data.values[:, :2], data.labels % 2).name
    'binary-mcct'
    """
    check_choice(kind, "kind", ("logits", "probabilities", "scores"))
    shape = np.shape(values)
    n_classes = shape[1] if len(shape) == 2 and shape[1] > 1 else 2
    x, y, weight, index = _sample(values, labels, sample_weight, n_classes)
    obstacles: tuple[Obstacle, ...] = ()
    chosen: Calibrator = BinaryMCCT()
    reason = "it keeps the ranking of the rows (AUC) and is made for two classes"
    if n_classes > 2:
        chosen, reason = ConditionalMCCT(), "it keeps the order of the classes in every row"
        if len(y):
            p = x if kind == "probabilities" else softmax(x.astype(np.float64), axis=1)
            names = class_names or [str(j) for j in range(n_classes)]
            obstacles = find_obstacles(Outcomes.of(p, y, weight), names, _CHANCE)
        if obstacles:
            text = str(obstacles[0]).rstrip(".")
            because = f"{text[0].lower()}{text[1:]}"
            reason += f", but cannot correct every class: {because}"
            if not keep_order:
                chosen, reason = StructuredMCCT(), f"the order of the classes is the obstacle: {because}"
    elif shape[1:] == (2,) and len(np.unique(y[weight > 0])) < 2:
        chosen, reason = MCCT(), "all rows are of one class, so that only the order of the two can be kept"
    chosen.set_params(input=kind)
    if groups is None:
        return Recommendation(chosen, False, f"{reason}.", obstacles)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the method warns when it is used
        p = np.asarray(clone(chosen).fit(x, y, weight).predict_proba(x))
    differ = groups_differ(p, y, read_groups(groups, shape[0]).number[index], weight)
    if differ and chosen.takes_context:
        reason = reason.replace("(AUC)", "(AUC) within each group")
        reason += "; the groups differ by more than chance, so they are its context"
    elif differ:
        reason += "; the groups differ by more than chance, too, but this method takes no context"
    return Recommendation(chosen, differ and chosen.takes_context, f"{reason}.", obstacles)


def _sample(values: Any, labels: Any, weight: Any, n_classes: int) -> tuple[np.ndarray, ...]:
    """Values, labels and weights of the rows that are examined, as numpy arrays, and their places in the set."""
    y = np.asarray(to_numpy(labels)).reshape(-1)
    check_consistent_length(values, y)
    if y.dtype.kind not in "iubf":
        raise InputError(f"labels have type {y.dtype}: expected places of the columns, 0..{n_classes - 1}.")
    weight = check_weights(weight, y[:, None])
    step = max(1, -(-len(y) // min(_MOST_ROWS, max(1, _MOST_NUMBERS // n_classes))))
    index = np.arange(0, len(y), step)
    index = index[(y[index] >= 0) & (y[index] < n_classes)]
    x = np.asarray(to_numpy(values[::step]))[index // step]
    w = np.ones(len(index)) if weight is None else to_numpy(weight).astype(np.float64)[index]
    return x, y[index].astype(np.int64), w, index


def groups_differ(p: np.ndarray, labels: np.ndarray, number: np.ndarray, weight: Any = None) -> bool:
    r"""Whether groups are off in different directions, or by different amounts, with probabilities that treat all rows alike.

    With claims p of outcomes a, group g has z_g^2 = (sum a - p)^2 / sum p (1 - p). Groups differ where the sum of z_g^2 is
    larger than chi-square with as many degrees of freedom as groups allows, or one z_g is larger than all of them allow.
    For two classes p is P(class 1), and the same is tested of the slope, with weights ``logit p``.
    """
    weight = np.ones(len(labels)) if weight is None else weight
    two = p.ndim == 1 or p.shape[1] == 2
    if two:
        claim, outcome = (p if p.ndim == 1 else p[:, 1]), labels == 1
    else:
        top = p.argmax(axis=1)
        claim, outcome = p[np.arange(len(p)), top], labels == top
    claim = np.clip(claim.astype(np.float64), 1e-9, 1 - 1e-9)
    excess, variance = outcome - claim, claim * (1 - claim)
    directions = [np.ones(len(claim))]
    if two:
        directions.append(logit(claim) - np.average(logit(claim), weights=weight))
    level = _DIFFER / (2 * len(directions))
    many = np.bincount(number, variance) >= _LEAST_VARIANCE
    place = np.where(many, np.cumsum(many), 0)[number]  # small groups together are group 0
    for w in (weight * direction for direction in directions):
        total, spread = np.bincount(place, w * excess), np.bincount(place, w**2 * variance)
        z = total[spread > 0] / np.sqrt(spread[spread > 0])
        if len(z) < 2:
            continue
        one = 2 * norm.sf(np.abs(z).max()) * len(z)
        if min(one, chi2.sf(z @ z, len(z) - 1)) <= level:
            return True
    return False
