"""Metrics: plain functions of (n, m) probabilities and (n,) labels, and statistics of them that merge.

`evaluate` computes all from one pass and adds intervals, `compare` asks whether A beats B, `Evaluator`
takes files in parts, `order_audit` counts what happened to the order of the classes, `ece_floor` says how
low ECE can be expected to go, `label_shift_test` asks whether two sets of labels have the same
frequencies, `price_of_order` what a method that keeps the order loses to one that does not, `decompose`
what of a loss calibration could remove, `scorers` makes them scikit-learn's.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .binning import bin_sums, classwise_ece, debiased_ece, ece, mce, positive_ece
from .bootstrap import Comparison, compare
from .equal_mass import adaptive_ece, eq_bin_ece
from .evaluation import Estimate, Evaluation, evaluate
from .floor import Floor, ece_floor
from .groups import Group, GroupEvaluation
from .kde import kde_ece
from .label_shift import LabelShiftTest, label_shift_test
from .labels import LabelEvaluation, evaluate_labels
from .obstacles import Obstacle
from .order import OrderAudit, OrderCounts, order_audit
from .price import Move, Price, PriceOfOrder, price_of_order
from .registry import METRICS, Metric
from .review import ReviewRule, review_rule
from .scores import BrierParts, accuracy, brier, brier_parts, nll, top_k_accuracy
from .selective import RiskCoverage, aurc, e_aurc, risk_coverage_curve
from .smooth import smooth_ece
from .streaming import Evaluator
from .sums_of_bins import BinSums
from .within import top_label_ece

if TYPE_CHECKING:
    from .decomposition import Decomposition, LossParts, decompose
    from .scoring import MetricScorer, scorer, scorers

# Imported on first use: they need calibrators and scikit-learn, which take longer to load than all metrics.
_LATER = {
    "Decomposition": ".decomposition",
    "LossParts": ".decomposition",
    "decompose": ".decomposition",
    "MetricScorer": ".scoring",
    "scorer": ".scoring",
    "scorers": ".scoring",
}

__all__ = [
    "METRICS",
    "BinSums",
    "BrierParts",
    "Comparison",
    "Decomposition",
    "Estimate",
    "Evaluation",
    "Evaluator",
    "Floor",
    "Group",
    "GroupEvaluation",
    "LabelEvaluation",
    "LabelShiftTest",
    "LossParts",
    "Metric",
    "MetricScorer",
    "Move",
    "Obstacle",
    "OrderAudit",
    "OrderCounts",
    "Price",
    "PriceOfOrder",
    "ReviewRule",
    "RiskCoverage",
    "accuracy",
    "adaptive_ece",
    "aurc",
    "bin_sums",
    "brier",
    "brier_parts",
    "classwise_ece",
    "compare",
    "debiased_ece",
    "decompose",
    "e_aurc",
    "ece",
    "ece_floor",
    "eq_bin_ece",
    "evaluate",
    "evaluate_labels",
    "kde_ece",
    "label_shift_test",
    "mce",
    "nll",
    "order_audit",
    "positive_ece",
    "price_of_order",
    "review_rule",
    "risk_coverage_curve",
    "scorer",
    "scorers",
    "smooth_ece",
    "top_k_accuracy",
    "top_label_ece",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        found = globals()[name] = getattr(import_module(_LATER[name], __name__), name)
        return found
    raise AttributeError(f"module 'monocal.metrics' has no attribute {name!r}")
