"""What the paper printed: Tables 1 to 3, by network, in the columns that `methods.METHODS` marks as the paper's.

A set of logits is one of the paper's when its uncalibrated values are those of a row, to the digit, in all three tables: such a
triple belongs to one network, however the file is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .methods import METHODS

MEASURES = {"ece": "ECE, %", "kde_ece": "ECE-KDE, %", "eq_bin_ece": "EQ-BIN ECE, times 10"}
COLUMNS = tuple(key for key, method in METHODS.items() if method.in_paper)
DECIMALS = 2


@dataclass(frozen=True)
class Printed:
    """One network's row of the three tables; values in the order of `COLUMNS`."""

    data: str
    model: str
    n_classes: int
    ece: tuple[float, ...]
    kde_ece: tuple[float, ...]
    eq_bin_ece: tuple[float, ...]

    def value(self, measure: str, method: str) -> float:
        """As printed."""
        return float(getattr(self, measure)[COLUMNS.index(method)])


# Zhang, Batista and Kanhere, Instance-Wise Monotonic Calibration by Constrained Transformation, UAI 2025, Tables 1 to 3:
# uncalibrated, TS, VS, HB, ETS, ETS MSE, PTS, DIAG, MCCT, MCCT-I.
PRINTED = tuple(
    Printed(data, model, m, *(tuple(float(x) for x in row.split()) for row in rows))
    for data, model, m, *rows in (
        ("CIFAR-10", "LeNet-5", 10,
         "5.18 1.67 1.28 4.67 1.61 1.49 11.48 1.42 1.19 1.19",
         "4.66 1.26 1.19 3.68 1.22 1.22 11.01 1.10 0.88 0.88",
         "5.04 1.48 1.03 4.19 1.31 1.30 11.46 1.09 0.82 0.82"),
        ("CIFAR-10", "DenseNet-40", 10,
         "5.50 0.95 0.98 1.61 1.17 1.09 3.96 1.05 1.06 1.06",
         "5.01 1.14 1.25 2.16 1.31 1.35 3.58 1.31 1.30 1.30",
         "5.49 0.92 0.93 2.67 1.19 1.32 3.95 1.10 1.09 1.09"),
        ("CIFAR-10", "Wide-ResNet-32", 10,
         "4.51 0.78 0.85 0.73 0.68 0.69 3.49 0.73 0.54 0.54",
         "4.06 1.16 1.28 1.44 1.16 1.17 3.26 1.35 1.04 1.04",
         "4.48 0.70 0.56 2.84 0.69 0.71 3.40 0.52 0.42 0.42"),
        ("CIFAR-10", "ResNet-110", 10,
         "4.75 1.13 1.30 1.13 0.82 0.58 4.26 0.79 0.76 0.76",
         "4.34 1.24 1.41 1.66 1.25 1.08 3.94 1.23 1.11 1.11",
         "4.75 0.93 1.13 2.29 0.87 0.42 4.26 0.92 0.79 0.79"),
        ("CIFAR-100", "Wide-ResNet-32", 100,
         "18.78 1.47 1.58 8.43 1.32 1.25 5.82 2.00 1.06 1.11",
         "18.16 1.09 1.17 7.75 1.25 1.33 5.63 2.11 1.13 1.12",
         "18.78 1.17 1.33 8.21 1.35 1.45 5.79 1.86 0.96 0.97"),
        ("CIFAR-100", "ResNet-110", 100,
         "18.48 2.38 2.54 8.53 1.48 1.68 7.15 1.50 1.28 1.32",
         "17.82 1.71 1.91 8.94 1.45 1.47 6.90 1.69 1.17 1.18",
         "18.48 2.09 2.25 9.65 1.36 1.47 7.14 1.42 1.07 1.06"),
        ("ImageNet", "ResNet-50", 1000,
         "3.66 2.25 1.77 7.32 1.39 1.35 1.09 1.81 0.99 0.95",
         "3.02 1.85 1.29 7.99 1.44 1.57 1.00 2.05 1.07 1.00",
         "8.65 5.60 4.52 22.41 3.95 4.17 2.88 4.68 2.56 2.43"),
        ("ImageNet", "ResNet-152", 1000,
         "4.78 2.02 1.86 7.73 1.10 1.07 1.22 1.69 1.28 1.18",
         "4.24 1.61 1.40 7.40 1.32 1.38 1.13 1.95 1.23 1.21",
         "11.84 5.20 4.54 21.69 3.95 4.04 3.10 4.43 3.37 3.20"),
        ("ImageNet", "ViT-B/16", 1000,
         "5.86 3.72 4.23 7.04 3.36 3.10 2.50 0.67 1.79 1.79",
         "5.78 3.79 4.09 6.68 3.25 2.97 2.40 0.92 1.74 1.75",
         "14.70 10.51 10.57 18.43 8.24 7.54 6.32 2.25 4.71 4.72"),
        ("ImageNet", "Inception v3", 1000,
         "18.27 5.41 27.93 7.61 2.94 2.52 1.62 0.98 0.72 0.61",
         "17.71 5.05 27.60 8.30 2.88 2.33 1.39 1.17 0.67 0.68",
         "45.68 13.44 69.82 24.41 8.24 6.71 4.07 2.79 2.23 2.40"),
        ("ImageNet", "Wide-ResNet-50", 1000,
         "5.43 2.95 3.11 7.70 1.77 1.56 1.16 1.14 1.13 1.08",
         "4.83 2.42 2.57 7.46 1.78 1.79 0.94 1.34 1.07 1.02",
         "13.45 7.23 7.77 22.70 5.02 4.82 2.97 3.03 3.05 2.92"),
    )
)  # fmt: skip


def recognised(n_classes: int, uncalibrated: Mapping[str, float]) -> Printed | None:
    """The row of the paper whose uncalibrated values these are, by measure and as shown; None where there is none."""
    for row in PRINTED:
        same = (round(uncalibrated[m], DECIMALS) == row.value(m, "uncalibrated") for m in MEASURES)
        if row.n_classes == n_classes and all(same):
            return row
    return None
