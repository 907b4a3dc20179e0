"""Sums of rows that every metric of the table is computed from, and the public function of each metric.

Sums named in `SUMS` add over parts of the data, so that metrics which need no others merge. Each is computed when first used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import InputError
from ..inputs.layout import Layout
from ..llm.top_k import TopK, TopKProbabilities
from . import positive
from .outcomes import Floats, Outcomes
from .row_sums import BinSums, group_stack, kde_sums, residual_grid, stack_in_cells
from .table import METRICS, Metric, Options, available, check_available, chosen

_MEANS = [name for name, metric in METRICS.items() if metric.term]


def _means(rows: Outcomes, options: Options) -> Floats:
    terms = (METRICS[name].term(rows, options) for name in _MEANS)  # type: ignore[misc]
    return np.array([rows.weight.sum(), *(rows.weight @ term for term in terms)])


SUMS: dict[str, Callable[[Outcomes, Options], Any]] = {
    "means": _means,
    "top": lambda rows, options: stack_in_cells(rows, rows.top_bin, (rows.n_bins,)),
    "by_predicted": lambda rows, o: group_stack(rows, rows.predicted, rows.n_classes, o.group_bins),
    "classwise": lambda rows, options: rows.classwise,
    "residuals": lambda rows, options: residual_grid(rows),
    "kde": lambda rows, options: kde_sums(rows),
}


class Statistics:
    """Sums of rows, each computed on first use; or sums that were added up, without the rows."""

    options: Options

    def __init__(
        self, rows: Outcomes | None, options: Options, sums: dict[str, Floats] | None = None
    ) -> None:
        self.options = options
        self._rows = rows
        self._sums = {} if sums is None else sums

    @property
    def rows(self) -> Outcomes:
        assert self._rows is not None  # a metric that merges does not ask
        return self._rows

    def sum(self, name: str) -> Floats:
        if name not in self._sums:
            self._sums[name] = SUMS[name](self.rows, self.options)
        return self._sums[name]

    def summed(self) -> Statistics:
        """All that adds, without the rows."""
        return Statistics(None, self.options, {name: self.sum(name) for name in SUMS})

    def __add__(self, other: Statistics) -> Statistics:
        if self.options != other.options or self.n_classes != other.n_classes:
            raise InputError(
                "Only sums with the same options and over the same bins and classes add; "
                f"got {self.n_classes} classes with {self.options} and {other.n_classes} with {other.options}."
            )
        return Statistics(None, self.options, {name: self.sum(name) + other.sum(name) for name in SUMS})

    def pack(self) -> Floats:
        """All sums as one vector: ``(a + b).pack() = a.pack() + b.pack()``."""
        return np.concatenate([self.sum(name).ravel() for name in SUMS])

    def unpack(self, vector: Floats) -> Statistics:
        """The sums in a packed vector; ``self`` has the same options and classes."""
        ends = np.cumsum([self.sum(name).size for name in SUMS])
        parts = np.split(np.asarray(vector, dtype=np.float64), ends[:-1])
        sums = {name: part.reshape(self.sum(name).shape) for name, part in zip(SUMS, parts, strict=True)}
        return Statistics(None, self.options, sums)

    @property
    def n_classes(self) -> int:
        return self.sum("classwise").shape[1]

    @property
    def weight(self) -> float:
        return float(self.sum("means")[0])

    def mean(self, name: str) -> float:
        return float(self.sum("means")[1 + _MEANS.index(name)] / self.weight)

    def binned(self, name: str) -> BinSums:
        """One of the sums in bins of equal width: of the top class, by predicted class or by class."""
        return BinSums.of_stack(self.sum(name))

    @cached_property
    def smooth_gaps(self) -> Floats:
        return positive.smooth_gaps(self.rows.positive)

    @cached_property
    def corp(self) -> tuple[float, float, float]:
        return positive.corp_parts(self.rows.positive)

    @property
    def brier_parts(self) -> BrierParts:
        bins, total = self.binned("classwise"), self.mean("brier")
        share = bins.weight / bins.weight.sum(axis=-1, keepdims=True)
        frequency = np.nan_to_num(bins.accuracy)
        calibration = float((share * bins.gap**2).sum())
        refinement = float((share * frequency * (1 - frequency)).sum())
        return BrierParts(total, calibration, refinement, total - calibration - refinement)


@dataclass(frozen=True)
class BrierParts:
    """``total = calibration + refinement + within_bins``.

    ``calibration`` is what a better map of the probabilities could remove, ``refinement`` what it could not, as far as bins can
    tell; ``within_bins`` is what binning hides and goes to zero with the width of the bins.

    Attributes
    ----------
    total, calibration, refinement, within_bins : float

    Examples
    --------
    >>> import monocal as mc
    >>> mc.metrics.brier_parts([0.1, 0.2, 0.7, 0.4], [0, 1, 1, 0]).total == mc.metrics.brier([0.1, 0.2, 0.7, 0.4], [0, 1, 1, 0])
    True
    """

    total: float
    calibration: float
    refinement: float
    within_bins: float


def statistics_of(
    probs: Any,
    labels: Any,
    sample_weight: Any,
    layout: Layout,
    metrics: Any,
    options: Options,
    names: tuple[str, str] = ("probs", "labels"),
) -> tuple[Statistics, list[str]]:
    """Statistics of rows, and the names of the requested metrics: all that these rows have, when None."""
    requested, listed = chosen(metrics), None
    if isinstance(probs, TopK | TopKProbabilities):
        listed = (probs if isinstance(probs, TopK) else probs.rows).values.shape[1]
    if listed is not None and metrics is None:
        requested = [
            name
            for name in requested
            if not (METRICS[name].classwise or METRICS[name].binary)
            and (name != "top_k_accuracy" or options.top_k <= listed)
        ]
    classwise = any(METRICS[name].classwise for name in requested)
    rows = Outcomes.of(
        probs, labels, sample_weight, layout, n_bins=options.n_bins, classwise=classwise, names=names
    )
    if metrics is None:
        requested = [name for name in available(rows.n_classes, options) if name in requested]
    check_available(requested, rows.n_classes)
    if "top_k_accuracy" in requested and listed is not None and options.top_k > listed:
        raise InputError(
            f"top_k_accuracy: the rows name {listed} classes, but top_k is {options.top_k}: give a smaller one."
        )
    return Statistics(rows, options), requested


_PARAMETERS = {
    "n_bins": "Equal-width bins.",
    "k": "How many of the largest probabilities.",
    "bin_size": "Rows (or weight, where weights are given) of a bin.",
    "bandwidth": "Standard deviation of the kernel.",
    "norm": "Of the gaps.",
    "binning": '"width", the bins of `ece`, or "mass".',
}
_DOCSTRING = """{sentence}: ``{metric.formula}``.

    Parameters
    ----------
    probs : {probs}
    labels : (n,) array
        True classes.{own}
    sample_weight : (n,) array, optional
    class_axis, ignore_index
        As in `evaluate`.{notes}

    Examples
    --------
    >>> import monocal as mc
    >>> probs, labels = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], [0, 1, 1, 0]
    >>> mc.metrics.{metric.name}(probs, labels) == mc.evaluate(probs, labels, metrics="{metric.name}")["{metric.name}"].value
    True
    """


def _function_of(metric: Metric) -> Callable[..., float]:
    defaults = {keyword: getattr(Options(), name) for keyword, name in metric.keywords.items()}

    def function(
        probs: Any,
        labels: Any,
        *,
        sample_weight: Any = None,
        class_axis: int = -1,
        ignore_index: int | None = None,
        **options: Any,
    ) -> float:
        for keyword in options.keys() - defaults.keys():
            raise TypeError(f"{metric.name}() got an unexpected keyword argument {keyword!r}")
        own = Options()._replace(**{metric.keywords[keyword]: value for keyword, value in options.items()})
        layout = Layout(class_axis, ignore_index)
        statistics, _ = statistics_of(probs, labels, sample_weight, layout, metric.name, own.checked())
        return float(metric.value(statistics))

    probs, labels, *rest, _ = inspect.signature(function).parameters.values()
    own = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=d) for name, d in defaults.items()]
    function.__signature__ = inspect.Signature([probs, labels, *own, *rest])  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = metric.name
    function.__doc__ = _docstring(metric, defaults)
    return function


def _docstring(metric: Metric, defaults: Mapping[str, Any]) -> str:
    two = "(n,), (n, 1) or (n, 2) array\n        P(class 1), or rows of two class probabilities."
    many = "(n, m) array\n        Rows of class probabilities; of two classes also P(class 1), (n,)."
    return _DOCSTRING.format(
        sentence=metric.sentence[0].upper() + metric.sentence[1:],
        metric=metric,
        probs=two if metric.binary else many,
        own="".join(f"\n    {k} : default {v!r}\n        {_PARAMETERS[k]}" for k, v in defaults.items()),
        notes=f"\n\n    Notes\n    -----\n    {metric.notes}" if metric.notes else "",
    )


FUNCTIONS: dict[str, Callable[..., float]] = {name: _function_of(metric) for name, metric in METRICS.items()}
globals().update(FUNCTIONS)


def brier_parts(
    probs: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    sample_weight: Any = None,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> BrierParts:
    """Calibration and refinement parts of the Brier score, in class-wise equal-width bins.

    The calibration part of a calibrated predictor is not zero but about its noise, ``sum f (1 - f) / n`` over occupied bins.

    Parameters
    ----------
    probs, labels, n_bins, sample_weight, class_axis, ignore_index
        As in `evaluate`.

    References
    ----------
    Murphy, A new vector partition of the probability score, Journal of Applied Meteorology 12 (1973).
    Stephenson, Coelho & Jolliffe, Two extra components in the Brier score decomposition, Weather and Forecasting 23 (2008).

    Examples
    --------
    >>> import monocal as mc
    >>> round(mc.metrics.brier_parts([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], [0, 1, 1, 0], n_bins=5).calibration, 3)
    0.349
    """
    options, layout = Options(n_bins=n_bins).checked(), Layout(class_axis, ignore_index)
    return statistics_of(probs, labels, sample_weight, layout, "brier_calibration", options)[0].brier_parts
