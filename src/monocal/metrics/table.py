"""The table of metrics: one entry each, from which functions, `evaluate`, streaming, Dask, torchmetrics and the report derive.

An entry says how a metric is computed from sums over rows (`Statistics`), what its value means, and which interval it has:

    term         the metric is the weighted mean of one number for each row
    error        it is a norm of the gaps between confidence and accuracy in bins
    influence    it is a smooth function of means; what each row adds to it
    none         no interval that was tried covers

To add a metric, add an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..inputs.validation import check_choice, check_count
from . import positive
from .outcomes import Floats, Outcomes
from .row_sums import (
    GROUP_BINS,
    BinSums,
    RiskCoverage,
    check_bandwidth,
    equal_mass_gaps,
    equal_mass_sums,
    kde_ece_of_sums,
    smooth_ece_of_grid,
)

if TYPE_CHECKING:
    from .functions import Statistics

_INF = float("inf")


class Options(NamedTuple):
    """What the metrics of one evaluation share."""

    n_bins: int = 15
    top_k: int = 5
    bin_size: int = 1000
    bandwidth: str | float = "authors"
    group_bins: int = GROUP_BINS
    norm: int = 2
    binning: str = "width"

    def checked(self) -> Options:
        for name in ("n_bins", "top_k", "bin_size", "group_bins"):
            check_count(getattr(self, name), name)
        if self.norm not in (1, 2):
            raise InputError(f"norm: expected 1 or 2, got {self.norm!r}")
        check_choice(self.binning, "binning", ("width", "mass"))
        return self._replace(bandwidth=check_bandwidth(self.bandwidth))


class GapNorm(NamedTuple):
    """A calibration error: the norm (1 or 2) of the gaps of the top class or of class 1, in bins of equal width or mass."""

    of: str = "top"
    bins: str = "width"
    norm: int = 1


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes
    ----------
    name, sentence, formula, notes : str
    value : callable
        Of `Statistics`.
    unit : {"share", "nats", "number"}
        Shares are shown in per cent.
    higher_is_better : bool
    ideal : float or None
        The best value, where neither larger nor smaller ones are better.
    merges, classwise, binary : bool
        Whether parts of a file can be added up; whether it needs the bins of every class; whether it is of two classes only.
    lower, upper : float
        Smallest and largest possible value.
    term, error, influence, logit
        What its interval follows from, if it has one: see `monocal.metrics.table`. ``logit``: the influence is on the scale
        of the log-odds.
    keywords : mapping
        Keywords of its function, and the field of `Options` that each sets.

    Examples
    --------
    >>> import monocal as mc
    >>> [name for name, metric in mc.metrics.METRICS.items() if metric.mean]
    ['accuracy', 'top_k_accuracy', 'nll', 'brier', 'positive_brier', 'calibration_in_the_large']
    """

    name: str
    sentence: str
    formula: str
    value: Callable[[Statistics], float]
    notes: str = ""
    unit: str = "share"
    higher_is_better: bool = False
    ideal: float | None = None
    merges: bool = True
    classwise: bool = False
    binary: bool = False
    lower: float = 0.0
    upper: float = 1.0
    term: Callable[[Outcomes, Options], Floats] | None = None
    error: GapNorm | None = None
    influence: Callable[[Outcomes], Floats] | None = None
    logit: bool = False
    keywords: Mapping[str, str] = field(default_factory=dict)

    @property
    def mean(self) -> bool:
        """Whether it is a mean of one number for each row, which can be tested."""
        return self.term is not None

    @property
    def share(self) -> bool:
        """Whether it is a mean of zeros and ones."""
        return self.name in ("accuracy", "top_k_accuracy")


def mean_ece(sums: BinSums) -> float:
    """Mean of the errors of groups, each with the weight of its rows."""
    return float(np.abs(sums.confidence - sums.correct).sum() / sums.weight.sum())


def _log_loss(rows: Outcomes, options: Options) -> Floats:
    with np.errstate(divide="ignore"):
        return -np.log(rows.label_prob)


def _squared_error(rows: Outcomes, options: Options) -> Floats:
    return rows.square_sum - 2 * rows.label_prob + 1


def _excess(rows: Outcomes, options: Options) -> Floats:
    if not rows.is_binary:
        return np.zeros(len(rows.labels))
    return rows.positive.confidence - rows.positive.correct


def _debiased_ece(s: Statistics) -> float:
    sums = s.binned("top") if s.options.binning == "width" else equal_mass_sums(s.rows)
    return float(sums.debiased_ece(s.options.norm))


_BINS = {"n_bins": "n_bins"}
_number = partial(Metric, unit="number")
_of_two = partial(Metric, binary=True, merges=False)

_ENTRIES = (
    Metric(
        "accuracy",
        "rows whose most probable class is the label",
        "mean 1[argmax p = y]",
        lambda s: s.mean("accuracy"),
        "Of equal probabilities the lowest class is predicted.",
        higher_is_better=True,
        term=lambda rows, options: rows.correct,
    ),
    Metric(
        "top_k_accuracy",
        "rows with the label among the k (5) most probable",
        "mean 1[rank of p_y <= k]",
        lambda s: s.mean("top_k_accuracy"),
        "Equal probabilities rank by class number, lowest first. Part of `evaluate` where there are more than k classes.",
        higher_is_better=True,
        term=lambda rows, options: (rows.label_rank < options.top_k).astype(np.float64),
        keywords={"k": "top_k"},
    ),
    Metric(
        "nll",
        "mean of -log p(label), the log-loss",
        "mean -log p_y",
        lambda s: s.mean("nll"),
        "Infinite where a label has probability zero. Equals scikit-learn's log_loss wherever that does not clip.",
        unit="nats",
        upper=_INF,
        term=_log_loss,
    ),
    _number(
        "brier",
        "squared error of all probabilities, 0 to 2",
        "mean sum_j (p_j - 1[y = j])^2",
        lambda s: s.mean("brier"),
        "All classes count; scikit-learn halves it for two classes: `positive_brier`. Brier, Monthly Weather Review 78 (1950).",
        upper=2.0,
        term=_squared_error,
    ),
    _number(
        "brier_calibration",
        "the part of brier that calibration can remove",
        "sum of |B|/n (conf - freq)^2 over bins of each class",
        lambda s: s.brier_parts.calibration,
        "See `brier_parts`.",
        classwise=True,
        upper=2.0,
        keywords=_BINS,
    ),
    _number(
        "brier_refinement",
        "the part of brier that it cannot",
        "sum of |B|/n freq (1 - freq) over bins of each class",
        lambda s: s.brier_parts.refinement,
        "See `brier_parts`.",
        classwise=True,
        upper=2.0,
        keywords=_BINS,
    ),
    Metric(
        "ece",
        "gap between confidence and accuracy, 15 bins",
        "sum_k |B_k|/n |acc_k - conf_k|,  bins ((k-1)/K, k/K] of the top confidence",
        lambda s: float(s.binned("top").ece()),
        "A calibrated model does not score 0: see `ece_floor`. Of two classes `positive_ece` uses P(class 1). Naeini, Cooper & "
        "Hauskrecht, AAAI 2015; Guo et al., On calibration of modern neural networks, ICML 2017.",
        error=GapNorm(),
        keywords=_BINS,
    ),
    Metric(
        "mce",
        "the largest gap of a bin",
        "max_k |acc_k - conf_k|",
        lambda s: float(s.binned("top").mce()),
        "One row alone in a bin can decide it.",
        keywords=_BINS,
    ),
    Metric(
        "debiased_ece",
        "root mean square gap, less what noise adds",
        "sqrt(max(0, sum_k |B_k|/n [gap_k^2 - acc_k (1 - acc_k) / (|B_k| - 1)]))",
        _debiased_ece,
        "Its square is unbiased before the cut at zero. Norm 1 is ECE less the bias that a normal accuracy of each bin would "
        "cause, 2 gap_k - E|N(gap_k, acc_k (1 - acc_k) / |B_k|)|. Bins of equal mass are those of the reference: Kumar, Liang & "
        "Ma, Verified uncertainty calibration, NeurIPS 2019.",
        error=GapNorm(norm=2),
        keywords={**_BINS, "norm": "norm", "binning": "binning"},
    ),
    Metric(
        "top_label_ece",
        "the ece of each predicted class, mean over rows",
        "sum_jk |B_jk|/n |acc_jk - conf_jk|,  5 bins for each predicted class j",
        lambda s: mean_ece(s.binned("by_predicted")),
        "With many classes most of it is noise: read it next to ece_floor(probs, labels, metric='top_label_ece'). "
        "Gupta & Ramdas, Top-label calibration, ICLR 2022.",
        keywords={"n_bins": "group_bins"},
    ),
    Metric(
        "classwise_ece",
        "the ece of one class, mean over the classes",
        "mean_j sum_k |B_jk|/n |freq_jk - conf_jk|,  bins of p_j",
        lambda s: float(s.binned("classwise").ece().mean()),
        "It shrinks like 1/m: compare within one set of classes only. Kull et al., Beyond temperature scaling, NeurIPS 2019.",
        classwise=True,
        keywords=_BINS,
    ),
    Metric(
        "adaptive_ece",
        "as ece, bins of equally many rows",
        "sum_k |B_k|/n |acc_k - conf_k|,  bins of equal mass",
        lambda s: float(equal_mass_gaps(s.rows, n_bins=s.options.n_bins)[0].sum() / s.weight),
        "A row on a boundary is shared between its two bins. Nixon et al., Measuring calibration in deep learning, 2019.",
        merges=False,
        error=GapNorm(bins="mass"),
        keywords=_BINS,
    ),
    _number(
        "eq_bin_ece",
        "sum of gaps of bins of 1,000 rows; grows with rows",
        "sum_k |acc_k - conf_k|,  bins of 1,000 rows in the order of confidence",
        lambda s: float(np.divide(*equal_mass_gaps(s.rows, bin_size=s.options.bin_size)).sum()),
        "The last bin also takes the rows that are left over. Compare it only on the same test set. Published tables show it "
        "times ten.",
        merges=False,
        upper=_INF,
        keywords={"bin_size": "bin_size"},
    ),
    Metric(
        "kde_ece",
        "as ece, smooth densities instead of bins",
        "integral |t - acc(t)| f(t) dt,  densities by a triweight kernel",
        lambda s: kde_ece_of_sums(s.sum("kde"), s.options.bandwidth),
        'The bandwidth is a standard deviation; "authors" is (2n)^(-1/5) times that of the confidences of the correct rows, '
        'as in the published figures; "text" is 1.06 n^(-1/5) times that of all, as in the text of the paper. Zhang, Kailkhura '
        "& Han, Mix-n-Match, ICML 2020.",
        keywords={"bandwidth": "bandwidth"},
    ),
    Metric(
        "smooth_ece",
        "as ece, smoothed instead of binned",
        "the s with  integral |mean_i (a_i - c_i) K_s(t, c_i)| dt = s,  Gaussian reflected at 0 and 1",
        lambda s: smooth_ece_of_grid(s.sum("residuals"), s.weight),
        "No bins to choose, continuous in the probabilities. Błasiok & Nakkiran, Smooth ECE, ICLR 2024.",
    ),
    Metric(
        "positive_ece",
        "as ece, of P(class 1) over its whole range",
        "sum_k |B_k|/n |freq_k - mean p_k|,  bins of P(class 1)",
        lambda s: float(s.binned("classwise").ece()[1]),
        "`ece` uses the larger of two probabilities, between 0.5 and 1.",
        classwise=True,
        binary=True,
        error=GapNorm("positive"),
        keywords=_BINS,
    ),
    _number(
        "positive_brier",
        "squared error of P(class 1), scikit-learn's Brier score",
        "mean (p_1 - y)^2",
        lambda s: s.mean("positive_brier"),
        "Half of `brier`.",
        binary=True,
        term=lambda rows, options: _squared_error(rows, options) / 2,
    ),
    _of_two(
        "auc",
        "how often a row of class 1 has the larger P(class 1)",
        "P(p_i > p_j) + P(p_i = p_j) / 2,  y_i = 1, y_j = 0",
        lambda s: positive.auc(s.rows.positive),
        "The area under the ROC curve, scikit-learn's roc_auc_score. nan where only one class occurs.",
        higher_is_better=True,
        influence=lambda rows: positive.auc_influence(rows.positive),
        logit=True,
    ),
    _of_two(
        "calibration_slope",
        "1 is right, below 1 too extreme",
        "b of  logit P(y = 1) = a + b logit p_1",
        lambda s: positive.calibration_slope(s.rows.positive)[0],
        "Infinite where the probabilities separate the classes, nan where they are all equal. Probabilities of 0 and 1 count "
        "as 1e-7 from them. Cox, Biometrika 45 (1958).",
        unit="number",
        ideal=1.0,
        lower=-_INF,
        upper=_INF,
        influence=lambda rows: positive.calibration_slope(rows.positive)[1],
    ),
    _of_two(
        "calibration_intercept",
        "0 is right, above 0 P(class 1) is too small",
        "a of  logit P(y = 1) = a + logit p_1",
        lambda s: positive.calibration_intercept(s.rows.positive)[0],
        "With the slope held at 1: calibration-in-the-large in log-odds. Van Calster et al., BMC Medicine 17 (2019).",
        unit="number",
        ideal=0.0,
        lower=-_INF,
        upper=_INF,
        influence=lambda rows: positive.calibration_intercept(rows.positive)[1],
    ),
    Metric(
        "calibration_in_the_large",
        "mean P(class 1) less the share of class 1",
        "mean p_1 - mean y",
        lambda s: s.mean("calibration_in_the_large"),
        ideal=0.0,
        lower=-1.0,
        binary=True,
        term=_excess,
    ),
    _of_two(
        "ici",
        "mean gap between P(class 1) and the smoothed frequency",
        "mean |p_1 - f(p_1)|,  f a logistic regression on a spline of logit p_1",
        lambda s: float(s.rows.weight @ s.smooth_gaps / s.rows.weight.sum()),
        "The integrated calibration index of Austin & Steyerberg, Statistics in Medicine 38 (2019).",
    ),
    _of_two(
        "e50",
        "the median of these gaps",
        "median |p_1 - f(p_1)|",
        lambda s: positive.gap_quantile(s.rows.positive, s.smooth_gaps, 0.5),
        "See `ici`.",
    ),
    _of_two(
        "e90",
        "the 90th percentile of these gaps",
        "90th percentile of |p_1 - f(p_1)|",
        lambda s: positive.gap_quantile(s.rows.positive, s.smooth_gaps, 0.9),
        "See `ici`.",
    ),
    _of_two(
        "mcb",
        "miscalibration: what isotonic regression takes off positive_brier",
        "S(p_1) - S(p'),  S the mean squared error, p' the isotonic regression of y on p_1",
        lambda s: s.corp[0],
        "The CORP decomposition, positive_brier = mcb - dsc + unc. Dimitriadis, Gneiting & Jordan, PNAS 118 (2021).",
        unit="number",
    ),
    _of_two(
        "dsc",
        "discrimination: how much that is better than the base rate",
        "S(mean y) - S(p')",
        lambda s: s.corp[1],
        "See `mcb`.",
        unit="number",
        higher_is_better=True,
    ),
    _of_two(
        "unc",
        "uncertainty: the squared error of the base rate",
        "mean y (1 - mean y)",
        lambda s: s.corp[2],
        "See `mcb`. It depends on the labels alone.",
        unit="number",
    ),
    Metric(
        "aurc",
        "mean risk when only the surest rows are answered",
        "mean over rows of the share of errors among rows of at least their confidence",
        lambda s: RiskCoverage.of(s.rows).aurc,
        "Whether the rows with the larger confidence are those that are right. Geifman, Uziel & El-Yaniv, ICLR 2019.",
        merges=False,
    ),
    Metric(
        "e_aurc",
        "the part of aurc that a better order of rows can remove",
        "aurc less that of the order in which all right answers come first",
        lambda s: RiskCoverage.of(s.rows).e_aurc,
        "Compare predictors of one accuracy only. See `aurc`.",
        merges=False,
    ),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ENTRIES}


def main_metrics(n_classes: int) -> list[str]:
    if n_classes == 2:
        return ["nll", "positive_brier", "positive_ece", "auc", "calibration_slope", "calibration_intercept"]
    return ["accuracy", "nll", "brier", "ece", "classwise_ece", "smooth_ece"]


def chosen(names: Any) -> list[str]:
    """The requested names, all when None; an unknown one raises."""
    if names is None:
        return list(METRICS)
    names = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in names if name not in METRICS]
    if unknown or not names:
        raise InputError(f"metrics: expected names out of {', '.join(METRICS)}; got {unknown or names}")
    return names


def available(n_classes: int, options: Options) -> list[str]:
    """Metrics that say something of so many classes: top-5 accuracy of five classes says nothing."""
    names = [name for name, metric in METRICS.items() if n_classes == 2 or not metric.binary]
    return [name for name in names if name != "top_k_accuracy" or n_classes > options.top_k]


def row_terms(rows: Outcomes) -> dict[str, Floats]:
    """What each row adds to the metrics that are means over rows."""
    options = Options(top_k=1)
    terms = {name: METRICS[name].term for name in available(rows.n_classes, options)}
    return {name: term(rows, options) for name, term in terms.items() if term}


def check_available(names: list[str], n_classes: int) -> None:
    """Raise where a metric of two classes is requested of more."""
    for name in names:
        if METRICS[name].binary:
            positive.check_two_classes(n_classes, name)
