"""Metrics: plain functions of (n, m) probabilities and (n,) labels, and statistics of them that merge.

`METRICS` is the table of all; each entry is also a function of its name. Rows become `outcomes`, these become sums (`row_sums`,
`functions`), and an entry of the `table` computes its value from the sums.
"""

from typing import TYPE_CHECKING, Any

from .chance import Floor, ece_floor
from .decomposition import Decomposition, LossParts, decompose
from .differences import Comparison, Move, Price, PriceOfOrder, compare, price_of_order
from .evaluation import Evaluation, Evaluator, evaluate
from .functions import FUNCTIONS, BrierParts, brier_parts
from .groups import Group, GroupEvaluation
from .intervals import Estimate
from .labels import LabelEvaluation, LabelShiftTest, evaluate_labels, label_shift_test
from .order import Obstacle, OrderAudit, OrderCounts, order_audit
from .review import ReviewRule, review_rule
from .row_sums import BinSums, RiskCoverage, bin_sums, risk_coverage_curve
from .table import METRICS, Metric

if TYPE_CHECKING:
    from .scoring import MetricScorer, scorer, scorers

globals().update(FUNCTIONS)

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
    "bin_sums",
    "brier_parts",
    "compare",
    "decompose",
    "ece_floor",
    "evaluate",
    "evaluate_labels",
    "label_shift_test",
    "order_audit",
    "price_of_order",
    "review_rule",
    "risk_coverage_curve",
    "scorer",
    "scorers",
]
__all__ += list(FUNCTIONS)


def __getattr__(name: str) -> Any:
    if name not in ("MetricScorer", "scorer", "scorers"):
        raise AttributeError(f"module 'monocal.metrics' has no attribute {name!r}")
    from . import scoring  # with scikit-learn's scorers, which load rich

    return getattr(scoring, name)
