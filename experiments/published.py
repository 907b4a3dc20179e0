"""What the paper printed: Tables 1 to 3 by network (published.csv), in the columns that `methods.METHODS` marks as the paper's.

Zhang, Batista and Kanhere, Instance-Wise Monotonic Calibration by Constrained Transformation, UAI 2025. A set of logits is one of
the paper's when its uncalibrated values are those of a network, to the digit, in all three tables, whatever its file is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from .methods import METHODS

MEASURES = {"ece": "ECE, %", "kde_ece": "ECE-KDE, %", "eq_bin_ece": "EQ-BIN ECE, times 10"}
COLUMNS = tuple(key for key, method in METHODS.items() if method.in_paper)
DECIMALS = 2


def recognised(n_classes: int, uncalibrated: Mapping[str, float]) -> tuple[str, pd.DataFrame] | None:
    """Name of the paper's network whose uncalibrated values these are, and its printed values (measures x methods)."""
    printed = pd.read_csv(Path(__file__).with_name("published.csv"))
    for (data, model, m), rows in printed.groupby(["data", "model", "n_classes"], sort=False):
        values = rows.set_index("measure")[list(COLUMNS)]
        same = (round(uncalibrated[name], DECIMALS) == values.uncalibrated[name] for name in MEASURES)
        if m == n_classes and all(same):
            return f"{model} on {data}", values
    return None
