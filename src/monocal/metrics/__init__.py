"""Metrics: plain functions of (n, m) probabilities and (n,) labels, and statistics of them that merge.

`METRICS` is the table of all; each entry is also a function of its name. `evaluate` computes all from one pass and
adds intervals, `compare` asks whether A beats B, `Evaluator` takes files in parts, `order_audit` counts what
happened to the order of the classes, `price_of_order` is what a method that keeps it loses to one that does not,
`ece_floor` says how low ECE can be expected to go, `label_shift_test` asks whether two sets of labels have the
same frequencies, `decompose` what of a loss calibration could remove, `review_rule` when a person must look,
`scorers` makes them scikit-learn's.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .chance import Floor, ece_floor
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
    if name in _LATER:
        value = globals()[name] = getattr(import_module(_LATER[name], __name__), name)
        return value
    raise AttributeError(f"module 'monocal.metrics' has no attribute {name!r}")
