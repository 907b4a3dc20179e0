"""monocal: calibrated class probabilities that keep the ranking."""

from __future__ import annotations

import importlib

# Loading typing takes longer than all else here, and the command must react to signals at once.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

# Public name -> module that holds it. Imported on first use, so that `import monocal` stays light. Calibrators are all public.
_PUBLIC = {
    "all_calibrators": "monocal.registry",
    "TopK": "monocal.llm.top_k",
    "CalibratedClassifier": "monocal.classifier",
    "InputError": "monocal.errors",
    "FileError": "monocal.errors",
    "MissingExtraError": "monocal.errors",
    "CalibrationWarning": "monocal.errors",
    "OrderWarning": "monocal.errors",
    "evaluate": "monocal.metrics",
    "order_audit": "monocal.metrics",
    "ece_floor": "monocal.metrics",
    "label_shift_test": "monocal.metrics",
    "price_of_order": "monocal.metrics",
    "review_rule": "monocal.metrics",
    "SKOPS_TRUSTED": "monocal.integrations.trusted",
    "load": "monocal.persistence",
    "save": "monocal.persistence",
    "ReliabilityDisplay": "monocal.plots",
    "GroupDisplay": "monocal.plots",
    "MarginDisplay": "monocal.plots",
    "RankParametersDisplay": "monocal.plots",
    "EffectDisplay": "monocal.plots",
    "ComparisonDisplay": "monocal.plots",
    "RiskCoverageDisplay": "monocal.plots",
    "MonitorDisplay": "monocal.plots",
    "write_report": "monocal.report",
    "read": "monocal.data",
    "read_splits": "monocal.data",
    "Monitor": "monocal.monitoring",
    "monitor": "monocal.monitoring",
    "forgetting_weights": "monocal.calibrators.updating",
}
_MODULES = (
    "metrics",
    "calibrators",
    "solver",
    "data",
    "persistence",
    "plots",
    "report",
    "monitoring",
    "export",
)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"monocal.{name}")
    if name == "__all__" or name[0].isupper():
        calibrators = importlib.import_module("monocal.calibrators")
        if name == "__all__":
            return ["__version__", *_MODULES, *_PUBLIC, *calibrators.__all__]
        if name in calibrators.__all__:
            return getattr(calibrators, name)
    raise AttributeError(f"module 'monocal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
