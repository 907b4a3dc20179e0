"""Draw pictures: one colour a method in all figures, no state of matplotlib touched, the same bytes every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from monocal.data import atomic_path
from monocal.errors import require
from monocal.plots._axes import widest

from .curves import Panel, Picture

# Colours that people with any kind of colour vision can tell apart (Okabe and Ito, and a brown). Methods that never meet
# in a figure may share one.
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


def draw(picture: Picture, folder: Path) -> None:
    """Write ``NAME.svg`` and ``NAME.png`` into ``folder``."""
    matplotlib = require("matplotlib", "plots")
    figure_module = require("matplotlib.figure", "plots")
    agg = require("matplotlib.backends.backend_agg", "plots")
    n_rows, n_columns = len(picture.panels), max(map(len, picture.panels))
    with matplotlib.rc_context(STYLE):
        figure = figure_module.Figure(
            figsize=(1.0 + 3.1 * n_columns, 0.9 + 2.2 * n_rows), layout="constrained"
        )
        agg.FigureCanvasAgg(figure)
        axes = figure.subplots(n_rows, n_columns, squeeze=False)
        handles: dict[str, Any] = {}
        for i, row in enumerate(picture.panels):
            for j, panel in enumerate(row):
                handles |= _draw_panel(axes[i, j], panel, first_row=i == 0, last_row=i == n_rows - 1)
        _legend(figure, handles)
        for kind in ("svg", "png"):
            with atomic_path(folder / f"{picture.name}.{kind}", force=True) as temporary:
                metadata = {"Date": None, "Creator": "monocal"} if kind == "svg" else {"Software": "monocal"}
                figure.savefig(temporary, dpi=130, metadata=metadata)


def _legend(figure: Any, handles: dict[str, Any]) -> None:
    """Below the panels, in as many columns as the figure is wide: one more would be cut."""
    style = {"loc": "outside lower center", "frameon": False}
    widest(
        lambda columns: figure.legend(handles.values(), handles.keys(), ncols=columns, **style),
        len(handles),
        figure.bbox.width,
        figure,
    )


def _draw_panel(axes: Any, panel: Panel, *, first_row: bool, last_row: bool) -> dict[str, Any]:
    handles = {}
    for line in panel.lines:
        colour, marker = _LOOK[line.method]
        (handle,) = axes.plot(
            line.x,
            line.y,
            color=colour,
            lw=1.2,
            marker="" if panel.steps else marker,
            ms=3,
            drawstyle="steps-mid" if panel.steps else "default",
        )
        if np.any(line.spread > 0):
            with np.errstate(invalid="ignore"):
                axes.fill_between(
                    line.x, line.y - line.spread, line.y + line.spread, color=colour, alpha=0.12, lw=0
                )
        if line.marker_at is not None:
            axes.axvline(line.marker_at, color=colour, lw=0.8, ls=":")
        handles[line.label] = handle
    if panel.log_x:
        ticker = require("matplotlib.ticker", "plots")
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
        axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    if panel.log_y:
        axes.set_yscale("log")
    if first_row:
        axes.set_title(panel.title, fontsize=8)
    if last_row:
        axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    return handles
