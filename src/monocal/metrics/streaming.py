"""Metrics over files larger than memory: feed parts, merge workers, read the result.

What is kept is a fixed-size bundle of sums (`registry.Sums`), so the result does not depend on how the rows
were cut, beyond the rounding of float64 sums.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import InputError
from ..inputs.files import file_parts
from ..inputs.layout import Flat, Layout
from ..inputs.validation import check_some_weight
from .binning import check_two_classes
from .evaluation import Estimate, Evaluation
from .outcomes import Outcomes
from .registry import METRICS, Options, Statistics, Sums, chosen, make_options


class Evaluator:
    """Accumulates the metrics that merge: all but those that sort the rows (bins of equal mass, risk and coverage).

    Parameters
    ----------
    n_bins, top_k, bandwidth
        As in `evaluate`.

    Examples
    --------
    >>> import monocal as mc
    >>> parts = [([[0.9, 0.1], [0.2, 0.8]], [0, 1]), ([[0.6, 0.4]], [1])]
    >>> evaluator = mc.metrics.Evaluator()
    >>> for probs, labels in parts:
    ...     evaluator = evaluator.update(probs, labels)
    >>> round(evaluator.result()["nll"].value, 4)
    0.4149
    """

    def __init__(self, *, n_bins: int = 15, top_k: int = 5, bandwidth: str | float = "authors") -> None:
        self._options = make_options(n_bins, top_k, 1, bandwidth)
        self._sums: Sums | None = None
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
        rows = Outcomes.of(
            probs, labels, sample_weight, layout, n_bins=self._options.n_bins, classwise=True, part=True
        )
        self.add(Statistics(rows, self._options).sums(), len(rows.labels))
        return self

    def merge(self, other: Evaluator) -> Evaluator:
        """Add the rows another evaluator has seen; returns this one."""
        if other._options != self._options:
            raise InputError(f"other: expected the options {self._options}, got {other._options}")
        if other._sums is not None:
            self.add(other._sums, other.n_samples)
        return self

    def result(self) -> Evaluation:
        """Metrics of all rows so far."""
        if self._sums is None:
            raise InputError("Evaluator.result: no rows yet: call update(probs, labels) first")
        check_some_weight(self.n_samples > 0)
        sums = self._sums
        n_classes = len(sums.classwise.weight)
        names = [name for name in chosen(None, n_classes) if METRICS[name].merges]
        estimates = {name: Estimate(METRICS[name].value(sums)) for name in names}
        return Evaluation(estimates, self.n_samples, n_classes)

    @property
    def sums(self) -> Sums:
        """What has been added up so far, for `packing`."""
        if self._sums is None:
            raise InputError("Evaluator.sums: no rows yet: call update(probs, labels) first")
        return self._sums

    def add(self, sums: Sums, n_samples: int) -> None:
        """Add the sums of so many more rows."""
        self._sums = sums if self._sums is None else self._sums + sums
        self.n_samples += n_samples


def merging(metrics: Any, n_boot: int, where: str, advice: str) -> list[str]:
    """Names of the metrics to compute part by part, all that merge when None; what needs all rows at once is refused."""
    names = chosen(metrics) if metrics is not None else [name for name, one in METRICS.items() if one.merges]
    apart = [name for name in names if not METRICS[name].merges]
    if apart:
        raise InputError(
            f"metrics: {', '.join(apart)} need all rows in one process, but {where}. Leave them out or {advice}."
        )
    if n_boot:
        raise InputError(f"n_boot: intervals need all rows in one process, but {where}: {advice}.")
    return names


def asked_for(result: Evaluation, names: list[str], metrics: Any) -> Evaluation:
    """Of the metrics that merge, those that were asked for: all that rows of so many classes have, when None."""
    if metrics is None:
        return result
    if any(METRICS[name].binary for name in names):
        check_two_classes(result.n_classes)
    return replace(result, estimates={name: result[name] for name in names})


def evaluate_parts(
    probs: Flat,
    labels: Any,
    sample_weight: Any,
    metrics: Any,
    n_boot: int,
    layout: Layout,
    options: Options,
) -> Evaluation:
    """`monocal.evaluate` for rows of a large file: of ``metrics`` those that merge, part by part."""
    names = merging(metrics, n_boot, "probs is a large file", "pass probs[:]")
    y = probs.column(labels, "labels", "probs")
    weight = probs.column(sample_weight, "sample_weight", "probs")
    evaluator = Evaluator(n_bins=options.n_bins, top_k=options.top_k, bandwidth=options.bandwidth)
    for X, some, its_weight in file_parts(probs.rows, y, weight):
        evaluator.update(X, some, its_weight, ignore_index=layout.ignore_index)
    return asked_for(evaluator.result(), names, metrics)
