"""All metrics of one predictor from one pass over its probabilities, with intervals on request.

Rows in memory are read at once. Of a Dask array, a large file, or the parts that an `Evaluator` is given, sums are added up,
whose size does not grow with the rows: the result does not depend on how the rows were cut, beyond the rounding of float64 sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from .. import errors
from ..arrays import is_dask
from ..errors import InputError
from ..inputs.dask import Box, chunks_of, once, reduce_tasks, task, whole_rows
from ..inputs.files import file_parts, is_large_file
from ..inputs.formats import as_array, in_dims_of
from ..inputs.layout import Layout
from ..inputs.names import by_column
from ..inputs.validation import check_count, check_fraction, check_some_weight
from ..notebook import html_table
from .functions import Statistics, statistics_of
from .groups import GroupEvaluation, evaluate_groups
from .intervals import Estimate, estimates
from .outcomes import Outcomes
from .table import METRICS, Options, available, check_available, chosen, main_metrics

# The share of rows with two classes on top that is reported, and about how many rows are examined.
_MANY_TIES, _EXAMINED = 0.01, 2000


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Metrics of one predictor: ``result["ece"].value``, ``.low``, ``.high``.

    Attributes
    ----------
    estimates : dict of str to Estimate
    n_samples, n_classes : int
        Rows of weight zero are not counted.
    n_boot, level : int, float
        Of the intervals.
    groups : GroupEvaluation or None
    near_ties : float or None
        Share of the rows (of some 2,000 that are examined) whose two largest probabilities differ by a millionth of themselves
        at most. A map by ranks may jump there; from 1 % on it is shown. None for Dask arrays and files.

    Examples
    --------
    >>> import monocal as mc
    >>> print(mc.evaluate([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], [0, 1, 1, 0], metrics=["nll", "accuracy"]))
    Evaluation of 4 samples, 2 classes
      nll       0.64557
      accuracy  0.75000
    """

    estimates: dict[str, Estimate]
    n_samples: int
    n_classes: int
    n_boot: int = 0
    level: float = 0.95
    groups: GroupEvaluation | None = None
    near_ties: float | None = None

    def __getitem__(self, name: str) -> Estimate:
        if name not in self.estimates:
            raise KeyError(f"{name!r} was not computed; there are {', '.join(self.estimates)}")
        return self.estimates[name]

    @property
    def main(self) -> Evaluation:
        """The same with the six metrics that matter first, or all where none of these was computed."""
        names = [name for name in main_metrics(self.n_classes) if name in self.estimates]
        return self.of(names) if names else self

    def of(self, names: Sequence[str]) -> Evaluation:
        """The same with these metrics alone, in this order."""
        return replace(self, estimates={name: self[name] for name in names})

    def to_dict(self, *, flat: bool = False) -> dict[str, Any]:
        """Plain numbers, ready for JSON; ``flat`` as experiment trackers take them (``mlflow.log_metrics``, ``wandb.log``).

        Flat are ``ece``, and ``ece_low`` and ``ece_high`` where it has an interval, ``n_samples``, and of groups
        ``groups_n_groups``, ``groups_n_off`` and their mean ECE, its floor and p-value.
        """
        groups = {} if self.groups is None else self.groups.to_dict()
        if flat:
            numbers = {
                name + end: value
                for name, e in self.estimates.items()
                for end, value in (("", e.value), ("_low", e.low), ("_high", e.high))
                if value is not None
            }
            numbers |= {
                f"groups_{key}": value for key, value in groups.items() if isinstance(value, int | float)
            }
            return numbers | {"n_samples": self.n_samples, "n_classes": self.n_classes}
        plain: dict[str, Any] = {
            name: getattr(self, name) for name in ("n_samples", "n_classes", "n_boot", "level", "near_ties")
        }
        plain["metrics"] = {
            name: {"value": e.value, "low": e.low, "high": e.high}
            | ({"reason": e.reason} if e.reason else {})
            for name, e in self.estimates.items()
        }
        return plain | ({"groups": groups} if groups else {})

    def to_pandas(self) -> Any:
        """Frame with one row per metric and columns ``value``, ``low``, ``high``."""
        pandas = errors.require("pandas", "data")
        rows = [(e.value, e.low, e.high) for e in self.estimates.values()]
        index = pandas.Index(list(self.estimates), name="metric")
        return pandas.DataFrame(rows, index=index, columns=["value", "low", "high"], dtype=float)

    @property
    def _head(self) -> str:
        head = f"Evaluation of {self.n_samples:,} samples, {self.n_classes:,} classes"
        return head + (f", {self.level:.0%} intervals from {self.n_boot:,} draws" if self.n_boot else "")

    def __repr__(self) -> str:
        width = max(map(len, self.estimates))
        lines = [self._head, *(f"  {name:<{width}}  {e}" for name, e in self.estimates.items())]
        if self.near_ties is not None and self.near_ties >= _MANY_TIES:
            lines.append(
                f"In {self.near_ties:.0%} of the rows two classes are tied at the top up to rounding: which comes first decides "
                "what MCCT and ConditionalMCCT do."
            )
        return "\n".join(lines if self.groups is None else [*lines, "", str(self.groups)])

    def _repr_html_(self) -> str:
        rows = [
            (name, e.value) if e.low is None else (name, e.value, e.low, e.high)
            for name, e in self.main.estimates.items()
        ]
        return html_table(self._head, rows)


def evaluate(
    probs: Any,
    labels: Any,
    *,
    metrics: Any = None,
    n_boot: int = 0,
    level: float = 0.95,
    n_bins: int = 15,
    top_k: int = 5,
    bin_size: int = 1000,
    bandwidth: str | float = "authors",
    sample_weight: Any = None,
    groups: Any = None,
    class_names: Sequence[str] | None = None,
    seed: int | None = 0,
    class_axis: int = -1,
    ignore_index: int | None = None,
) -> Evaluation:
    """Compute every metric of a predictor, with intervals if ``n_boot`` is positive.

    Parameters
    ----------
    probs : (n, m) array, or (n,) of P(class 1)
        Rows of class probabilities in any container, or an array of more axes, such as (N, C, H, W) with ``class_axis=1``. Of
        a Dask array, and of an array of more axes in a large file, the metrics that merge are computed part by part, without
        intervals. Of `TopK` rows, those that need the largest probabilities only.
    labels : (n,) array
        Integers from 0 to m - 1, or names of the columns of a frame. Other names are the classes in sorted order; all of them
        must occur. Of two classes also -1 and +1, or booleans. With more axes in the shape of ``probs`` without the classes,
        as are ``sample_weight`` and ``groups``.
    metrics : str or sequence of str, optional
        Names of `METRICS`; all that rows of so many classes have when None.
    n_boot : int
        Draws behind the intervals of calibration errors; positive: with intervals.
    level : float
        Coverage of the intervals.
    n_bins, top_k, bin_size, bandwidth
        Of the binned errors, `top_k_accuracy`, `eq_bin_ece` and `kde_ece`.
    sample_weight : (n,) array, optional
        A row of weight zero counts as none, in every metric and interval.
    groups : (n,) array-like, optional
        The group of each row (a frame or (n, k) array for combinations), or ``"predicted"`` for the predicted classes: the result
        has its calibration by group in ``.groups``, with intervals of ``level`` and a false discovery rate of ``1 - level``.
    class_names : sequence of str, optional
    seed : int, optional
        Of the draws; with None they differ each time.
    class_axis : int
    ignore_index : int, optional
        A label that does not count, such as -100 for padding.

    Notes
    -----
    An interval is meant to hold the metric of the population the rows were drawn from, and always holds its estimate. How each is
    computed: `monocal.metrics.intervals`. Where fewer than five effective rows (more where weights are very uneven) are wrong, or
    right, or of one class, only the accuracies of rows of equal weight have one, and ``reason`` says so.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(2000, 5)
    >>> cal = mc.TemperatureScaling().fit(data.values, data.labels)
    >>> print(mc.evaluate(cal.predict_proba(data.values), data.labels, metrics=["nll", "ece"], n_boot=100))
    Evaluation of 2,000 samples, 5 classes, 95% intervals from 100 draws
      nll  0.49470  [0.45686, 0.53606]
      ece  0.01060  [0.00000, 0.02152]
    """
    n_boot, level = check_count(n_boot, "n_boot", least=0), check_fraction(level, "level")
    options = Options(n_bins, top_k, bin_size, bandwidth).checked()
    layout = Layout(class_axis, ignore_index)
    labels = in_dims_of(probs, labels, class_axis, "labels", "probs")
    sample_weight = in_dims_of(probs, sample_weight, class_axis, "sample_weight", "probs")
    labels = by_column(labels, probs, class_axis, ignore_index, "labels")
    probs = as_array(probs)
    dense = not is_dask(probs) and not layout.is_plain(probs) and hasattr(probs, "shape")
    if is_dask(probs) or (dense and is_large_file(probs)):
        refused = {"groups": groups is not None, "n_boot": n_boot > 0}
        return _evaluate_parts(probs, labels, sample_weight, metrics, layout, options, refused)
    statistics, names = statistics_of(probs, labels, sample_weight, layout, metrics, options)
    rows = statistics.rows
    values = {name: float(METRICS[name].value(statistics)) for name in names}
    if n_boot:
        result = estimates(rows, options, values, n_boot, level, np.random.default_rng(seed))
    else:
        result = {name: Estimate(value) for name, value in values.items()}
    by_group = None
    if groups is not None:
        groups = groups if isinstance(groups, str) else rows.probs.context(groups)
        by_group = evaluate_groups(rows, groups, class_names=class_names, level=level, seed=seed)
    near_ties = _share_of_near_ties(rows.probs.rows)
    return Evaluation(result, len(rows.labels), rows.n_classes, n_boot, level, by_group, near_ties)


def _share_of_near_ties(probs: Any) -> float:
    step = -(-len(probs) // _EXAMINED) if isinstance(probs, np.ndarray) else 1
    p = np.asarray(probs[: _EXAMINED * step : step], dtype=np.float64)
    if p.shape[1] < 2:
        return 0.0
    second, top = np.partition(p, -2, axis=1)[:, -2:].T
    return float(np.mean(second >= top * (1.0 - 1e-6)))


class Evaluator:
    """Accumulates the metrics that merge: all but those that sort the rows or fit a curve to them.

    Parameters
    ----------
    n_bins, top_k, bandwidth
        As in `evaluate`.

    Examples
    --------
    >>> import monocal as mc
    >>> evaluator = mc.metrics.Evaluator().update([[0.9, 0.1], [0.2, 0.8]], [0, 1]).update([[0.6, 0.4]], [1])
    >>> round(evaluator.result()["nll"].value, 4)
    0.4149
    """

    def __init__(self, *, n_bins: int = 15, top_k: int = 5, bandwidth: str | float = "authors") -> None:
        self._options = Options(n_bins, top_k, 1, bandwidth).checked()
        self._sums: Statistics | None = None
        self.n_samples = 0

    def update(
        self,
        probs: Any,
        labels: Any,
        sample_weight: Any = None,
        *,
        class_axis: int = -1,
        ignore_index: int | None = None,
    ) -> Evaluator:
        """Add the rows of (n, m) ``probs`` and (n,) ``labels``; returns the evaluator itself.

        With ``class_axis`` and ``ignore_index`` as in `evaluate`, ``probs`` may have more axes, and rows may not count.
        """
        layout = Layout(class_axis, ignore_index)
        n_bins = self._options.n_bins
        rows = Outcomes.of(probs, labels, sample_weight, layout, n_bins=n_bins, classwise=True, part=True)
        self.add(Statistics(rows, self._options).summed(), len(rows.labels))
        return self

    def merge(self, other: Evaluator) -> Evaluator:
        """Add the rows of another evaluator; returns this one."""
        if other._options != self._options:
            raise InputError(f"other: expected the options {self._options}, got {other._options}")
        if other._sums is not None:
            self.add(other._sums, other.n_samples)
        return self

    def result(self, metrics: Any = None) -> Evaluation:
        """Metrics of all rows so far: all that merge, or those named in ``metrics``."""
        sums = self.sums
        check_some_weight(self.n_samples > 0)
        names = chosen(metrics)
        if metrics is None:
            names = [name for name in available(sums.n_classes, self._options) if METRICS[name].merges]
        check_available(names, sums.n_classes)
        values = {name: Estimate(METRICS[name].value(sums)) for name in names}
        return Evaluation(values, self.n_samples, sums.n_classes)

    @property
    def sums(self) -> Statistics:
        """The sums so far."""
        if self._sums is None:
            raise InputError("Evaluator.result: no rows yet: call update(probs, labels) first")
        return self._sums

    def add(self, sums: Statistics, n_samples: int) -> None:
        """Add the sums of so many more rows."""
        self._sums = sums if self._sums is None else self._sums + sums
        self.n_samples += n_samples


def _evaluate_parts(
    probs: Any,
    labels: Any,
    sample_weight: Any,
    metrics: Any,
    layout: Layout,
    options: Options,
    refused: dict[str, bool],
) -> Evaluation:
    """`evaluate` of a Dask array, chunk by chunk where each lies, or of a large file, part by part."""
    dask = is_dask(probs)
    where = "a Dask array: pass probs.compute()" if dask else "a large file: pass probs[:]"
    apart = [name for name in chosen(metrics) if not METRICS[name].merges] if metrics is not None else []
    for what in [name for name, present in refused.items() if present] + apart:
        raise InputError(f"{what} needs all rows in one process, but probs is {where}, or leave it out.")
    flat = layout.flat(probs, "probs")
    y, weight = flat.column(labels, "labels", "probs"), flat.column(sample_weight, "sample_weight", "probs")
    how: dict[str, Any] = {"n_bins": options.n_bins, "top_k": options.top_k, "bandwidth": options.bandwidth}
    if dask:
        shared = once(how)
        chunks = chunks_of(whole_rows(flat.rows), y, weight)
        tasks = [task(_evaluate_chunk, shared, layout.ignore_index, *chunk) for chunk in chunks]
        evaluator: Evaluator = reduce_tasks(tasks, _merge)
    else:
        evaluator = Evaluator(**how)
        for X, its_labels, its_weight in file_parts(flat, y, weight):
            evaluator.update(X, its_labels, its_weight, ignore_index=layout.ignore_index)
    return evaluator.result(metrics)


def _evaluate_chunk(
    options: Box, ignore_index: int | None, probs: Any, labels: Any, weight: Any, first_row: int
) -> Evaluator:
    try:
        return Evaluator(**options.value).update(probs, labels, weight, ignore_index=ignore_index)
    except InputError as error:
        raise InputError(f"In the chunk that begins at row {first_row}: {error}") from None


def _merge(first: Evaluator, *others: Evaluator) -> Evaluator:
    return reduce(Evaluator.merge, others, copy(first))
