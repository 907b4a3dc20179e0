"""The paper's figures from the data frame of trials; one colour a method in all of them, and the same bytes every time.

Figure 1  accuracy change, and changed top predictions among uncertain samples, against calibration-set size
Figure 2  ECE and NLL against calibration-set size
Figure 3  ECE against top-k            Figure 4  training time against top-k
Figure 5  weights and biases by rank, with the rank from which they stay constant
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from monocal.data import atomic_path

from .methods import BY_RANK, METHODS, ORDER_CURVES, RANK_CURVES, SIZE_CURVES
from .plan import Plan

# Colours that people with any kind of colour vision can tell apart (Okabe and Ito, and a brown). Methods that never share a
# figure may share one.
_BLUE, _RED, _GREEN, _PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
_ORANGE, _SKY, _BLACK, _BROWN = "#E69F00", "#56B4E9", "#000000", "#8C6D31"
_LOOK = {
    "mcct": (_BLUE, "o"),
    "mcct_published": (_RED, "s"),
    "conditional": (_GREEN, "^"),
    "mcct_i_published": (_PINK, "D"),
    "ts": (_ORANGE, "v"),
    "ets": (_SKY, "P"),
    "ets_mse": (_BLACK, "X"),
    "vs": (_PINK, "D"),
    "hb": (_ORANGE, "v"),
    "isotonic_ovr": (_SKY, "P"),
    "dirichlet": (_BLACK, "X"),
    "matrix": (_BROWN, "*"),
}
STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.hashsalt": "monocal",
    "svg.fonttype": "path",
}
_PERCENT = ("ece", "accuracy_change", "uncertain_top_changed")
Draw = Callable[[Any, pd.DataFrame], None]  # draws the trials of one set into axes


@dataclass(frozen=True)
class Picture:
    """A figure: one row of panels for each entry of ``rows`` (y label, function that draws), one column for each set."""

    name: str
    title: str
    caption: str
    trials: pd.DataFrame
    x_label: str
    rows: Sequence[tuple[str, Draw]]


def make_pictures(plan: Plan, trials: pd.DataFrame) -> list[Picture]:
    """All figures of a run; those without any trial are left out."""
    trials = trials[trials.message == ""]
    part = {
        name: trials[trials.file.isin([t.file_name for t in chosen])]
        for name, chosen in (("sizes", plan.sizes), ("ranks", plan.ranks), ("tables", plan.tables))
    }
    curve_sets = list(dict.fromkeys(t.dataset.name for t in plan.sizes))
    curve_sets = curve_sets or [d.name for d in plan.datasets[: plan.settings.curve_sets]]
    by_rank = part["tables"][part["tables"].set.isin(curve_sets) & part["tables"].method.isin(BY_RANK)]
    samples, k = "calibration samples", "ranks with parameters of their own, k"
    spread = "Mean and standard deviation over draws of the calibration set."

    def of(name: str, methods: Sequence[str]) -> pd.DataFrame:
        return part[name][part[name].method.isin(methods)]

    pictures = [
        Picture(
            "figure1_order",
            "Figure 1: what calibration does to predictions",
            "Top: change of accuracy. Bottom: share of the uncertain test samples (top confidence below 0.7) whose predicted "
            f"class changed. {spread}",
            of("sizes", ORDER_CURVES),
            samples,
            [
                ("accuracy change (points)", _curves("n_cal", "accuracy_change")),
                ("changed, uncertain (%)", _curves("n_cal", "uncertain_top_changed")),
            ],
        ),
        Picture(
            "figure2_data",
            "Figure 2: data efficiency",
            f"Top: ECE. Bottom: NLL. {spread}",
            of("sizes", SIZE_CURVES),
            samples,
            [("ECE (%)", _curves("n_cal", "ece")), ("NLL (nats)", _curves("n_cal", "nll"))],
        ),
        Picture(
            "figure3_top_k_ece",
            "Figure 3: ECE against top-k",
            "Ranks with parameters of their own; the others share the lowest one's.",
            of("ranks", RANK_CURVES),
            k,
            [("ECE (%)", _curves("top_k", "ece"))],
        ),
        Picture(
            "figure4_top_k_time",
            "Figure 4: training time against top-k",
            "Processor seconds of one thread.",
            of("ranks", RANK_CURVES),
            k,
            [("seconds to fit", _curves("top_k", "fit_cpu_seconds", log_y=True))],
        ),
        Picture(
            "figure5_parameters",
            "Figure 5: weights and biases by rank",
            "Rank 1 is the predicted class; biases are measured from the lowest rank. Vertical lines: the rank from which both "
            "stay constant, that is within 1 % of their range.",
            by_rank,
            "rank from the top",
            [("weight w", _steps("weights")), ("bias b", _steps("biases"))],
        ),
    ]
    return [picture for picture in pictures if len(picture.trials)]


def draw(picture: Picture, folder: Path) -> None:
    """Write ``NAME.svg`` and ``NAME.png`` into ``folder``."""
    sets = list(dict.fromkeys(picture.trials.set))
    with matplotlib.rc_context(STYLE):
        n_rows = len(picture.rows)
        figure = Figure(figsize=(1.0 + 3.1 * len(sets), 1.1 + 2.2 * n_rows), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(n_rows, len(sets), squeeze=False)
        for i, (y_label, draw_panel) in enumerate(picture.rows):
            for axes, name in zip(panels[i], sets, strict=True):
                draw_panel(axes, picture.trials[picture.trials.set == name])
                _finish(axes, name if i == 0 else "", picture.x_label if i == n_rows - 1 else "", y_label)
        handles = {
            handle.get_label(): handle
            for axes in panels.flat
            for handle in axes.get_legend_handles_labels()[0]
        }
        columns = max(1, int(figure.get_figwidth() / 1.5))
        figure.legend(
            handles=list(handles.values()), loc="outside lower center", frameon=False, ncols=columns
        )
        for kind, metadata in (
            ("svg", {"Date": None, "Creator": "monocal"}),
            ("png", {"Software": "monocal"}),
        ):
            with atomic_path(folder / f"{picture.name}.{kind}", force=True) as temporary:
                figure.savefig(temporary, dpi=130, metadata=metadata)


def _finish(axes: Any, title: str, x_label: str, y_label: str) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_title(title, fontsize=8)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)


def _curves(x: str, metric: str, *, log_y: bool = False) -> Draw:
    """Mean of a metric against ``x`` with a band of one standard deviation, one line for each method."""

    def draw_panel(axes: Any, trials: pd.DataFrame) -> None:
        for method in (m for m in METHODS if m in set(trials.method)):
            at = (100.0 if metric in _PERCENT else 1.0) * trials[trials.method == method].groupby(x)[
                metric
            ].agg(["mean", "std"])
            colour, marker = _LOOK[method]
            axes.plot(
                at.index, at["mean"], color=colour, marker=marker, lw=1.2, ms=3, label=METHODS[method].label
            )
            if (at["std"] > 0).any():
                low, high = at["mean"] - at["std"].fillna(0), at["mean"] + at["std"].fillna(0)
                axes.fill_between(at.index, low, high, color=colour, alpha=0.12, lw=0)
        if log_y:
            axes.set_yscale("log")

    return draw_panel


def _steps(kind: str) -> Draw:
    """Weights or biases by rank, from the top."""

    def draw_panel(axes: Any, trials: pd.DataFrame) -> None:
        for trial in trials.itertuples():
            colour, _ = _LOOK[trial.method]
            values = np.array(trial.fitted[kind])[::-1]
            values = values if kind == "weights" else values - values[-1]
            ranks = np.arange(1, len(values) + 1)
            axes.plot(
                ranks, values, color=colour, lw=1.2, drawstyle="steps-mid", label=METHODS[trial.method].label
            )
            constant = constant_from(trial.fitted["weights"], trial.fitted["biases"])
            axes.axvline(constant, color=colour, lw=0.8, ls=":")

    return draw_panel


def constant_from(weights: Sequence[float], biases: Sequence[float], tolerance: float = 0.01) -> int:
    """First rank, counted from 1 at the top, from which weights and biases (lowest rank first) stay within ``tolerance`` times
    their range of the lowest rank's."""
    changed = np.zeros(len(weights), dtype=bool)
    for values in (np.asarray(weights), np.asarray(biases)):
        changed |= np.abs(values - values[0]) > tolerance * (values.max() - values.min())
    return int(len(changed) - np.argmax(changed)) + 1 if changed.any() else 1
