"""Every metric by name, as a function of shared statistics, so that many metrics cost one pass.

`Statistics` computes each group of sums on first use, for any weights over the same rows: a bootstrap
replicate is the same rows with other weights. `Sums` holds those that add over rows; a metric reads either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ..errors import InputError
from ..inputs.validation import check_count
from .binning import check_two_classes
from .equal_mass import GapCurve
from .kde import KdeSums, check_bandwidth
from .outcomes import Floats, Outcomes
from .scores import BrierParts, ScoreSums
from .selective import RiskCoverage
from .smooth import residual_grid, smooth_ece_of_grid
from .sums_of_bins import BinSums, classwise_sums, top_label_sums
from .within import mean_ece, predicted_class_sums


class Options(NamedTuple):
    """What the metrics of one evaluation share."""

    n_bins: int = 15
    top_k: int = 5
    bin_size: int = 1000
    bandwidth: str | float = "authors"


def make_options(n_bins: int, top_k: int, bin_size: int, bandwidth: str | float) -> Options:
    """Checked options."""
    return Options(
        check_count(n_bins, "n_bins"),
        check_count(top_k, "top_k"),
        check_count(bin_size, "bin_size"),
        check_bandwidth(bandwidth),
    )


class Statistics:
    """Sums of `rows` under `weight`, each made when first asked for."""

    def __init__(self, rows: Outcomes, options: Options, weight: Floats | None = None) -> None:
        self.rows = rows
        self.options = options
        self.weight = rows.weight if weight is None else weight

    @cached_property
    def scores(self) -> ScoreSums:
        return ScoreSums.of(self.rows, self.weight, self.options.top_k)

    @cached_property
    def top(self) -> BinSums:
        return top_label_sums(self.rows, self.weight)

    @cached_property
    def by_predicted(self) -> BinSums:
        return predicted_class_sums(self.rows, self.weight)

    @cached_property
    def classwise(self) -> BinSums:
        return classwise_sums(self.rows, self.weight, self.rows.column_totals)

    @cached_property
    def residuals(self) -> Floats:
        return residual_grid(self.rows, self.weight)

    @cached_property
    def kde(self) -> KdeSums:
        return KdeSums.of(self.rows, self.weight)

    @cached_property
    def curve(self) -> GapCurve:
        return GapCurve.of(self.rows, self.weight)

    @cached_property
    def selective(self) -> RiskCoverage:
        return RiskCoverage.of(self.rows, self.weight)

    def sums(self) -> Sums:
        """The part that adds over rows."""
        return Sums(
            self.options, self.scores, self.top, self.by_predicted, self.classwise, self.residuals, self.kde
        )


@dataclass(frozen=True)
class Sums:
    """All sums that add; those of two disjoint sets of rows give those of their union."""

    options: Options
    scores: ScoreSums
    top: BinSums
    by_predicted: BinSums
    classwise: BinSums
    residuals: Floats
    kde: KdeSums

    def __add__(self, other: Sums) -> Sums:
        if self.options != other.options:
            raise InputError(f"options: only equal ones merge, got {self.options} and {other.options}")
        return Sums(
            self.options,
            self.scores + other.scores,
            self.top + other.top,
            self.by_predicted + other.by_predicted,
            self.classwise + other.classwise,
            self.residuals + other.residuals,
            self.kde + other.kde,
        )


@dataclass(frozen=True)
class Metric:
    """How to read one metric off `Statistics` (or `Sums`, where it merges), and what is better.

    ``mean`` marks the mean of one number per row, which can be tested, ``share`` one of zeros and ones. ``error``
    is the calibration error behind the metric as a norm of gaps, for `inversion`. A metric with neither has no
    interval: none that was tried covers.

    Attributes
    ----------
    value : callable
    higher_is_better : bool
    merges : bool
        Whether parts of a file can be added up.
    classwise : bool
        Whether it needs the bins of every class.
    upper : float
        Largest value there is.
    mean, share : bool
    error : callable or None
    binary : bool
        Whether it is of two classes only.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.metrics.METRICS["accuracy"].higher_is_better, mc.metrics.METRICS["ece"].higher_is_better
    (True, False)
    >>> [name for name, metric in mc.metrics.METRICS.items() if metric.mean]
    ['accuracy', 'top_k_accuracy', 'nll', 'brier']
    """

    value: Callable[[Any], float]
    higher_is_better: bool = False
    merges: bool = True
    classwise: bool = False
    upper: float = 1.0
    mean: bool = False
    share: bool = False
    error: Callable[[Any], float] | None = None
    binary: bool = False


def _parts(s: Any) -> BrierParts:
    return BrierParts.of(s.scores.brier / s.scores.weight, s.classwise)


_INF = float("inf")


def _accuracy(s: Any) -> float:
    return float(s.scores.correct / s.scores.weight)


def _top_k_accuracy(s: Any) -> float:
    return float(s.scores.in_top_k / s.scores.weight)


def _ece(s: Any) -> float:
    return float(s.top.ece())


def _adaptive_ece(s: Any) -> float:
    return float(s.curve.adaptive_ece(s.options.n_bins))


def _positive_ece(s: Any) -> float:
    check_two_classes(len(s.classwise.weight))
    return float(s.classwise.ece()[1])


METRICS: dict[str, Metric] = {
    "accuracy": Metric(_accuracy, higher_is_better=True, mean=True, share=True),
    "top_k_accuracy": Metric(_top_k_accuracy, higher_is_better=True, mean=True, share=True),
    "nll": Metric(lambda s: s.scores.nll / s.scores.weight, upper=_INF, mean=True),
    "brier": Metric(lambda s: s.scores.brier / s.scores.weight, upper=2.0, mean=True),
    "brier_calibration": Metric(lambda s: _parts(s).calibration, classwise=True, upper=2.0),
    "brier_refinement": Metric(lambda s: _parts(s).refinement, classwise=True, upper=2.0),
    "ece": Metric(_ece, error=_ece),
    "mce": Metric(lambda s: float(s.top.mce())),
    "debiased_ece": Metric(lambda s: float(s.top.debiased_ece()), error=lambda s: float(s.top.rms())),
    "top_label_ece": Metric(lambda s: mean_ece(s.by_predicted)),
    "classwise_ece": Metric(lambda s: float(s.classwise.ece().mean()), classwise=True),
    "adaptive_ece": Metric(_adaptive_ece, merges=False, error=_adaptive_ece),
    "eq_bin_ece": Metric(lambda s: s.curve.eq_bin_ece(s.options.bin_size), merges=False, upper=_INF),
    "kde_ece": Metric(lambda s: s.kde.kde_ece(s.options.bandwidth)),
    "smooth_ece": Metric(lambda s: smooth_ece_of_grid(s.residuals, s.scores.weight)),
    "positive_ece": Metric(_positive_ece, classwise=True, binary=True),
    "aurc": Metric(lambda s: s.selective.aurc, merges=False),
    "e_aurc": Metric(lambda s: s.selective.e_aurc, merges=False),
}


def chosen(names: Any, n_classes: int | None = None) -> list[str]:
    """Names of the metrics asked for, all that rows of ``n_classes`` have when None; an unknown one raises."""
    if names is None:
        return [name for name, metric in METRICS.items() if not metric.binary or n_classes in (2, None)]
    names = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in names if name not in METRICS]
    if unknown or not names:
        raise InputError(f"metrics: expected names out of {', '.join(METRICS)}; got {unknown or names}")
    return names
