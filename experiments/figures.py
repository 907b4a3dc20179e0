"""The paper's figures from the data frame of trials; one colour a method in all of them, and the same bytes every time.

Figure 1  accuracy change, and changed top predictions among uncertain samples, against calibration-set size
Figure 2  ECE and NLL against calibration-set size
Figure 3  ECE against top-k            Figure 4  training time against top-k
Figure 5  weights and biases by rank, with the rank from which they stay constant
"""

from __future__ import annotations

from collections.abc import Sequence
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
_METADATA = {"svg": {"Date": None, "Creator": "monocal"}, "png": {"Software": "monocal"}}
# What an axis shows: its label, and a factor.
_SHOWN = {
    "accuracy_change": ("accuracy change (points)", 100),
    "uncertain_top_changed": ("changed, uncertain (%)", 100),
    "ece": ("ECE (%)", 100),
    "nll": ("NLL (nats)", 1),
    "fit_cpu_seconds": ("seconds to fit", 1),
    "weights": ("weight w", 1),
    "biases": ("bias b", 1),
    "n_cal": ("calibration samples", 1),
    "top_k": ("ranks with parameters of their own, k", 1),
    "rank": ("rank from the top", 1),
}


@dataclass(frozen=True)
class Picture:
    """A figure: one row of panels for each of ``shown``, one column for each set; which methods of which part of the plan."""

    name: str
    title: str
    caption: str
    part: str
    methods: Sequence[str]
    x: str
    shown: Sequence[str]


_SPREAD = "Mean and standard deviation over draws of the calibration set."
_PICTURES = (
    Picture(
        "figure1_order",
        "Figure 1: what calibration does to predictions",
        "Top: change of accuracy. Bottom: share of the uncertain test samples (top confidence below 0.7) whose predicted "
        f"class changed. {_SPREAD}",
        *("sizes", ORDER_CURVES, "n_cal", ("accuracy_change", "uncertain_top_changed")),
    ),
    Picture(
        "figure2_data",
        "Figure 2: data efficiency",
        f"Top: ECE. Bottom: NLL. {_SPREAD}",
        *("sizes", SIZE_CURVES, "n_cal", ("ece", "nll")),
    ),
    Picture(
        "figure3_top_k_ece",
        "Figure 3: ECE against top-k",
        "Ranks with parameters of their own; the others share the lowest one's.",
        *("ranks", RANK_CURVES, "top_k", ("ece",)),
    ),
    Picture(
        "figure4_top_k_time",
        "Figure 4: training time against top-k",
        "Processor seconds of one thread.",
        *("ranks", RANK_CURVES, "top_k", ("fit_cpu_seconds",)),
    ),
    Picture(
        "figure5_parameters",
        "Figure 5: weights and biases by rank",
        "Rank 1 is the predicted class; biases are measured from the lowest rank. Vertical lines: the rank from which both "
        "stay constant, that is within 1 % of their range.",
        *("tables", BY_RANK, "rank", ("weights", "biases")),
    ),
)


def draw_pictures(plan: Plan, trials: pd.DataFrame, folder: Path) -> list[Picture]:
    """Write ``NAME.svg`` and ``NAME.png`` of every figure that has trials into ``folder``; the figures."""
    trials = trials[trials.message == ""]
    curve_sets = [t.dataset.name for t in plan.sizes]
    curve_sets = curve_sets or [d.name for d in plan.datasets[: plan.settings.curve_sets]]
    drawn = []
    for picture in _PICTURES:
        files = [t.file_name for t in getattr(plan, picture.part)]
        own = trials[trials.file.isin(files) & trials.method.isin(picture.methods)]
        if picture.part == "tables":
            own = own[own.set.isin(curve_sets)]
        if len(own):
            _draw(picture, own, folder)
            drawn.append(picture)
    return drawn


def _draw(picture: Picture, trials: pd.DataFrame, folder: Path) -> None:
    sets = list(dict.fromkeys(trials.set))
    with matplotlib.rc_context(STYLE):
        n_rows = len(picture.shown)
        figure = Figure(figsize=(1.0 + 3.1 * len(sets), 1.1 + 2.2 * n_rows), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(n_rows, len(sets), squeeze=False)
        panel = _steps if picture.x == "rank" else _curves
        for i, shown in enumerate(picture.shown):
            for axes, name in zip(panels[i], sets, strict=True):
                panel(axes, trials[trials.set == name], picture.x, shown)
                _finish(axes, name if i == 0 else "", picture.x if i == n_rows - 1 else "", shown)
        labels = [axes.get_legend_handles_labels() for axes in panels.flat]
        handles = {text: handle for both in labels for handle, text in zip(*both, strict=True)}
        columns = max(1, int(figure.get_figwidth() / 1.5))
        where = {"loc": "outside lower center", "frameon": False, "ncols": columns}
        figure.legend(list(handles.values()), list(handles), **where)
        for kind, metadata in _METADATA.items():
            with atomic_path(folder / f"{picture.name}.{kind}", force=True) as temporary:
                figure.savefig(temporary, dpi=130, metadata=metadata)


def _finish(axes: Any, title: str, x: str, y: str) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_title(title, fontsize=8)
    axes.set(xlabel=_SHOWN[x][0] if x else "", ylabel=_SHOWN[y][0])
    if y == "fit_cpu_seconds":
        axes.set_yscale("log")


def _curves(axes: Any, trials: pd.DataFrame, x: str, metric: str) -> None:
    """Mean of a metric against ``x`` with a band of one standard deviation, one line for each method."""
    for method in (m for m in METHODS if m in set(trials.method)):
        by_x = trials[trials.method == method].groupby(x)[metric]
        mean, sd = (_SHOWN[metric][1] * value for value in (by_x.mean(), by_x.std()))
        colour, marker = _LOOK[method]
        axes.plot(mean, color=colour, marker=marker, lw=1.2, ms=3, label=METHODS[method].label)
        if (sd > 0).any():
            low, high = mean - sd.fillna(0), mean + sd.fillna(0)
            axes.fill_between(mean.index, low, high, color=colour, alpha=0.12, lw=0)


def _steps(axes: Any, trials: pd.DataFrame, x: str, kind: str) -> None:
    """Weights or biases by rank, from the top."""
    for trial in trials.itertuples():
        colour, _ = _LOOK[trial.method]
        values = np.array(trial.fitted[kind])[::-1]
        values = values if kind == "weights" else values - values[-1]
        ranks = np.arange(1, len(values) + 1)
        look = {"color": colour, "lw": 1.2, "drawstyle": "steps-mid"}
        axes.plot(ranks, values, label=METHODS[trial.method].label, **look)
        constant = constant_from(trial.fitted["weights"], trial.fitted["biases"])
        axes.axvline(constant, color=colour, lw=0.8, ls=":")


def constant_from(weights: Sequence[float], biases: Sequence[float]) -> int:
    """First rank, counted from 1 at the top, from which weights and biases (lowest rank first) stay within 1 % of their range
    of the lowest rank's."""
    changed = np.zeros(len(weights), dtype=bool)
    for values in (np.asarray(weights), np.asarray(biases)):
        changed |= np.abs(values - values[0]) > 0.01 * (values.max() - values.min())
    return int(len(changed) - np.argmax(changed)) + 1 if changed.any() else 1
