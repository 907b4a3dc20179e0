"""All metrics of one predictor from one pass over its probabilities, with intervals where asked for.

>>> import monocal as mc
>>> result = mc.evaluate([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1], metrics=["accuracy", "nll"])
>>> round(result["nll"].value, 4)
0.4149
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import errors
from ..arrays import is_dask
from ..errors import InputError
from ..inputs.files import is_large_file
from ..inputs.formats import in_dims_of, without_names
from ..inputs.layout import Layout
from ..inputs.names import by_column
from ..inputs.top_k import TopK, TopKProbabilities
from ..inputs.validation import check_count, check_fraction
from ..notebook import html_table
from .groups import GroupEvaluation, evaluate_groups
from .intervals import intervals
from .outcomes import Outcomes
from .registry import METRICS, Statistics, chosen, make_options
from .top_k import can_tell


@dataclass(frozen=True)
class Estimate:
    """A value and, where intervals were asked for and the metric has one, its ends.

    Attributes
    ----------
    value : float
    low, high : float or None
        Ends of the interval.
    reason : str
        Why an interval that was asked for is missing: rows that are wrong, or right, are too few.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> found = mc.evaluate(probs, labels, metrics="accuracy", n_boot=10)["accuracy"]
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.75, 0.301, 0.987)
    """

    value: float
    low: float | None = None
    high: float | None = None
    reason: str = ""

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.5f}" + (f"  no interval: {self.reason}" if self.reason else "")
        return f"{self.value:.5f}  [{self.low:.5f}, {self.high:.5f}]"


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Metrics of one predictor: ``result["ece"].value``, ``.low``, ``.high``.

    Attributes
    ----------
    estimates : dict of str to Estimate
        By the name of the metric.
    n_samples, n_classes : int
        Rows of weight zero are not counted.
    n_boot : int
        Draws behind the intervals; 0 when there are none.
    level : float
        Coverage the intervals aim at.
    groups : GroupEvaluation or None
        Calibration of each group, where groups were given.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> labels = np.array([0, 1, 1, 0])
    >>> result = mc.evaluate(probs, labels, metrics=["nll", "accuracy"])
    >>> result["accuracy"].value
    0.75
    >>> print(result)
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

    def __getitem__(self, name: str) -> Estimate:
        try:
            return self.estimates[name]
        except KeyError:
            raise KeyError(f"{name!r} was not computed; there are {', '.join(self.estimates)}") from None

    def to_dict(self, *, flat: bool = False) -> dict[str, Any]:
        """Plain numbers, ready for JSON.

        Parameters
        ----------
        flat : bool
            One level, of numbers only, as experiment trackers take them (``mlflow.log_metrics``, ``wandb.log``): ``ece``, and
            ``ece_low`` and ``ece_high`` where it has an interval, ``n_samples``, and of groups how many there are
            (``groups_n_groups``), how many are off (``groups_n_off``) and their mean ECE, its floor and p-value.
        """
        if flat:
            return self._flat()
        groups = {} if self.groups is None else {"groups": self.groups.to_dict()}
        return {
            "n_samples": self.n_samples,
            "n_classes": self.n_classes,
            "n_boot": self.n_boot,
            "level": self.level,
            "metrics": {
                name: {"value": e.value, "low": e.low, "high": e.high}
                | ({"reason": e.reason} if e.reason else {})
                for name, e in self.estimates.items()
            },
            **groups,
        }

    def _flat(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, e in self.estimates.items():
            ends = {name: e.value, f"{name}_low": e.low, f"{name}_high": e.high}
            found |= {key: float(value) for key, value in ends.items() if value is not None}
        told = {} if self.groups is None else self.groups.to_dict()
        found |= {
            f"groups_{key}": float(value) for key, value in told.items() if isinstance(value, int | float)
        }
        return found | {"n_samples": self.n_samples, "n_classes": self.n_classes}

    def to_pandas(self) -> Any:
        """Frame with one row per metric and columns ``value``, ``low``, ``high``."""
        pandas = errors.require("pandas", "data")
        rows = [(e.value, e.low, e.high) for e in self.estimates.values()]
        index = pandas.Index(list(self.estimates), name="metric")
        return pandas.DataFrame(rows, index=index, columns=["value", "low", "high"], dtype=float)

    def _repr_html_(self) -> str:
        rows = [
            (name, e.value, *(() if e.low is None else (e.low, e.high))) for name, e in self.estimates.items()
        ]
        return html_table(f"Evaluation of {self.n_samples:,} samples, {self.n_classes} classes", rows)

    def __repr__(self) -> str:
        head = f"Evaluation of {self.n_samples:,} samples, {self.n_classes:,} classes"
        if self.n_boot:
            head += f", {self.level:.0%} intervals from {self.n_boot:,} draws"
        width = max(map(len, self.estimates))
        lines = [head, *(f"  {name:<{width}}  {e}" for name, e in self.estimates.items())]
        return "\n".join(lines if self.groups is None else [*lines, "", str(self.groups)])


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
    probs : (n, m) array
        Rows of class probabilities: numpy of any float type, nested lists, a pandas frame or a torch tensor. Or an array of more
        axes, such as (N, C, H, W) with ``class_axis=1``. Of a Dask array, and of an array of more axes in a large file, the
        metrics that merge are computed part by part, without intervals. Of `TopK` rows, or what a calibrator makes of
        them, those that need no more than the largest probabilities are computed.
    labels : (n,) array
        True classes, integers from 0 to m - 1, or names of the columns of a frame, as in `Calibrator.fit`;
        with more axes in the shape of ``probs`` without the classes, as are
        ``sample_weight`` and ``groups``.
    metrics : str or sequence of str, optional
        Names to compute; all of `METRICS` that rows of so many classes have when None.
    n_boot : int
        Draws behind the intervals of calibration errors; positive: with intervals.
    level : float
        Coverage of the intervals.
    n_bins, top_k, bin_size, bandwidth
        Of the binned errors, `top_k_accuracy`, `eq_bin_ece` and `kde_ece`.
    sample_weight : (n,) array, optional
        A row of weight zero counts as none, in every metric and interval.
    groups : (n,) array-like, optional
        The group of each row (numbers, text, categories; a frame or (n, k) array for combinations), or ``"predicted"`` for the
        predicted classes: the result has its calibration by group in ``.groups``, with intervals of ``level`` and a false
        discovery rate of ``1 - level``.
    class_names : sequence of str, optional
        What the words call the classes.
    seed : int, optional
        Of the draws; None draws anew each time.
    class_axis : int
        The axis of the classes.
    ignore_index : int, optional
        A label that does not count, such as -100 for padding.

    Returns
    -------
    Evaluation

    Notes
    -----
    An interval is meant to hold the metric of the population the rows were drawn from, and always holds its
    estimate. ``nll`` and ``brier`` have theirs from the standard error of a mean and its skewness, the accuracies Wilson's; those
    of ``ece``, ``adaptive_ece`` and ``debiased_ece`` ask which true errors would show what was seen, for noise makes an error
    larger. Where fewer than five (effective) rows are wrong, or right, only the accuracies of rows of equal weight have one,
    and ``reason`` says so. The other metrics have none, and neither has an infinite ``nll``: no way that was
    tried covers them. ``benchmarks/statistics_check.py`` measures the coverage.

    References
    ----------
    Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    Davison & Hinkley, Bootstrap methods and their application, Cambridge 1997, section 5.4, for inverted tests.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(2000, 5)
    >>> cal = mc.TemperatureScaling().fit(data.values, data.labels)
    >>> result = mc.evaluate(cal.predict_proba(data.values), data.labels, metrics=["nll", "ece"], n_boot=100)
    >>> print(result)
    Evaluation of 2,000 samples, 5 classes, 95% intervals from 100 draws
      nll  0.49470  [0.45690, 0.53601]
      ece  0.01060  [0.00000, 0.02114]
    >>> round(result["ece"].value, 3)
    0.011
    """
    n_boot, level = check_count(n_boot, "n_boot", least=0), check_fraction(level, "level")
    options = make_options(n_bins, top_k, bin_size, bandwidth)
    layout = Layout(class_axis, ignore_index)
    labels = in_dims_of(probs, labels, class_axis, "labels", "probs")
    sample_weight = in_dims_of(probs, sample_weight, class_axis, "sample_weight", "probs")
    labels = by_column(labels, probs, class_axis, ignore_index, "labels")
    probs = without_names(probs)
    if is_dask(probs):
        from .dask import evaluate as evaluate_chunks

        if groups is not None:
            raise InputError(
                "groups: they need all rows in one process, but probs is a Dask array. Pass probs.compute()."
            )
        return evaluate_chunks(
            probs,
            labels,
            metrics=metrics,
            sample_weight=sample_weight,
            n_boot=n_boot,
            n_bins=n_bins,
            top_k=top_k,
            bandwidth=bandwidth,
            layout=layout,
        )
    if not layout.is_plain(probs) and hasattr(probs, "shape"):
        given = layout.flat(probs, "probs")
        if is_large_file(given.rows):
            from .streaming import evaluate_parts

            if groups is not None:
                raise InputError(
                    "groups: they need all rows in memory, but probs is a large file. Pass probs[:]."
                )
            return evaluate_parts(given, labels, sample_weight, metrics, n_boot, layout, options)
    names = chosen(metrics)
    if metrics is None and isinstance(probs, TopK | TopKProbabilities):
        names = [name for name in names if can_tell(probs, name, options.top_k)]
    classwise = any(METRICS[name].classwise for name in names)
    rows = Outcomes.of(probs, labels, sample_weight, layout, n_bins=options.n_bins, classwise=classwise)
    if "top_k_accuracy" in names:
        rows.check_ranks(options.top_k)
    names = [name for name in names if name in chosen(metrics, rows.n_classes)]
    statistics = Statistics(rows, options)
    values = {name: METRICS[name].value(statistics) for name in names}
    estimates = {name: Estimate(value) for name, value in values.items()}
    if n_boot:
        ends, reasons = intervals(rows, options, names, n_boot, level, np.random.default_rng(seed))
        estimates |= {name: Estimate(values[name], reason=reason) for name, reason in reasons.items()}
        for name, (low, high) in ends.items():
            estimates[name] = Estimate(values[name], min(low, values[name]), max(high, values[name]))
    by_group = None
    if groups is not None:
        groups = groups if isinstance(groups, str) else rows.probs.context(groups)
        by_group = evaluate_groups(rows, groups, class_names=class_names, level=level, seed=seed)
    return Evaluation(estimates, len(rows.labels), rows.n_classes, n_boot, level, by_group)
