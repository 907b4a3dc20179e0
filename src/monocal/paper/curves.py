"""The numbers behind the figures, before anything is drawn.

Figure 1  accuracy change, and changed top predictions among uncertain samples, against calibration-set size
Figure 2  ECE and NLL against calibration-set size
Figure 3  ECE against top-k            Figure 4  training time against top-k
Figure 5  weights and biases by rank, with the rank from which they stay constant
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .cells import Cell, Dataset
from .columns import BY_RANK, METHODS, ORDER_CURVES, RANK_CURVES, SIZE_CURVES
from .plan import Plan
from .running import Results
from .tables import mean_and_spread


@dataclass(frozen=True)
class Line:
    """One method in one panel; ``spread`` is zero where there was one run."""

    method: str
    x: np.ndarray
    y: np.ndarray
    spread: np.ndarray
    marker_at: float | None = None  # an x to mark with a vertical line

    @property
    def label(self) -> str:
        """As in the tables."""
        return METHODS[self.method].label


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False
    steps: bool = False  # values at whole numbers, nothing in between


@dataclass(frozen=True)
class Picture:
    """A figure: panels in rows, of equal length."""

    name: str
    title: str
    caption: str
    panels: tuple[tuple[Panel, ...], ...] = field(repr=False)


def make_pictures(plan: Plan, results: Results) -> list[Picture]:
    """All figures of a run; those without any line are left out."""
    pictures = [
        Picture(
            "figure1_order",
            "Figure 1: what calibration does to predictions",
            "Top: change of accuracy. Bottom: share of the uncertain test samples (top confidence below 0.7) whose "
            "predicted class changed. Mean and standard deviation over draws of the calibration set.",
            _by_size(
                plan,
                results,
                ORDER_CURVES,
                (
                    ("accuracy_change", "accuracy change (points)"),
                    ("uncertain_top_changed", "changed, uncertain (%)"),
                ),
            ),
        ),
        Picture(
            "figure2_data",
            "Figure 2: data efficiency",
            "Top: ECE. Bottom: NLL. Mean and standard deviation over draws of the calibration set.",
            _by_size(plan, results, SIZE_CURVES, (("ece", "ECE (%)"), ("nll", "NLL (nats)"))),
        ),
        Picture(
            "figure3_top_k_ece",
            "Figure 3: ECE against top-k",
            "Ranks with parameters of their own; the others share the lowest one's.",
            _by_rank_count(plan, results, "ece", "ECE (%)"),
        ),
        Picture(
            "figure4_top_k_time",
            "Figure 4: training time against top-k",
            "Processor seconds of one thread.",
            _by_rank_count(plan, results, "fit_cpu_seconds", "seconds to fit"),
        ),
        Picture(
            "figure5_parameters",
            "Figure 5: weights and biases by rank",
            "Rank 1 is the predicted class; biases are measured from the lowest rank. Vertical lines: the rank from "
            "which both stay constant, that is within 1 % of their range.",
            _parameters(plan, results),
        ),
    ]
    return [p for p in pictures if any(panel.lines for row in p.panels for panel in row)]


def _value(result: dict, metric: str) -> float:
    if metric in result["times"]:
        return float(result["times"][metric])
    unit = 100.0 if metric in ("ece", "accuracy_change", "uncertain_top_changed") else 1.0
    return unit * result["metrics"][metric]


def _line(method: str, results: Results, metric: str, cells: Sequence[tuple[float, Cell]]) -> Line | None:
    """Mean and spread of a metric over the cells at each x."""
    at: dict[float, list[float]] = {}
    for x, cell in cells:
        if cell.method == method and results[cell]["status"] == "done":
            at.setdefault(x, []).append(_value(results[cell], metric))
    if not at:
        return None
    xs = sorted(at)
    mean, spread = np.array([mean_and_spread(at[x]) for x in xs]).T
    return Line(method, np.array(xs, dtype=float), mean, np.nan_to_num(spread))


def _panel_sets(cells: Sequence[Cell]) -> list[Dataset]:
    return list(dict.fromkeys(cell.dataset for cell in cells))


def _by_size(
    plan: Plan, results: Results, methods: Sequence[str], measures: Sequence[tuple[str, str]]
) -> tuple[tuple[Panel, ...], ...]:
    def panel(dataset: Dataset, metric: str, label: str) -> Panel:
        cells = [(float(c.n_cal or dataset.n_cal), c) for c in plan.sizes if c.dataset == dataset]
        lines = (_line(m, results, metric, cells) for m in methods)
        return Panel(
            dataset.name, "calibration samples", label, tuple(line for line in lines if line), log_x=True
        )

    sets = _panel_sets(plan.sizes)
    return tuple(tuple(panel(d, metric, label) for d in sets) for metric, label in measures)


def _by_rank_count(plan: Plan, results: Results, metric: str, label: str) -> tuple[tuple[Panel, ...], ...]:
    def panel(dataset: Dataset) -> Panel:
        cells = [(float(c.top_k or dataset.n_classes), c) for c in plan.ranks if c.dataset == dataset]
        lines = (_line(m, results, metric, cells) for m in RANK_CURVES)
        return Panel(
            dataset.name,
            "ranks with parameters of their own, k",
            label,
            tuple(line for line in lines if line),
            log_x=True,
            log_y=metric != "ece",
        )

    return (tuple(panel(d) for d in _panel_sets(plan.ranks)),)


def constant_from(weights: np.ndarray, biases: np.ndarray, tolerance: float = 0.01) -> int:
    """First rank, counted from 1 at the top, from which weights and biases (lowest rank first) stay within
    ``tolerance`` times their range of the lowest rank's."""
    changed = np.zeros(len(weights), dtype=bool)
    for values in (np.asarray(weights), np.asarray(biases)):
        changed |= np.abs(values - values[0]) > tolerance * (values.max() - values.min())
    return int(len(changed) - np.argmax(changed)) + 1 if changed.any() else 1


def _parameters(plan: Plan, results: Results) -> tuple[tuple[Panel, ...], ...]:
    sets = _panel_sets(plan.sizes) or list(plan.datasets[: plan.settings.curve_sets])

    def panel(dataset: Dataset, kind: str, label: str) -> Panel:
        lines = []
        for cell in plan.tables:
            if cell.dataset != dataset or cell.method not in BY_RANK or results[cell]["status"] != "done":
                continue
            fitted = results[cell]["fitted"]
            weights, biases = np.array(fitted["weights"]), np.array(fitted["biases"])
            values = weights if kind == "weights" else biases - biases[0]
            ranks = np.arange(1, len(values) + 1, dtype=float)
            lines.append(
                Line(cell.method, ranks, values[::-1], np.zeros(len(values)), constant_from(weights, biases))
            )
        return Panel(dataset.name, "rank from the top", label, tuple(lines), log_x=True, steps=True)

    return tuple(
        tuple(panel(d, kind, label) for d in sets)
        for kind, label in (("weights", "weight w"), ("biases", "bias b"))
    )
