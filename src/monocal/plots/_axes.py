"""Where displays draw: new axes or the caller's, with the library's colours given one by one, so rcParams stay as they are."""

from __future__ import annotations

from typing import Any

from .. import errors

BEFORE, AFTER, BAND, LINE = "#b5482a", "#1f6fa8", "#8a8f98", "#555a63"
SERIES = ("#1f6fa8", "#b5482a", "#3d7f4e", "#8656a5", "#8a6d1f")


def pyplot() -> Any:
    """matplotlib.pyplot, or a sentence on how to install it."""
    return errors.require("matplotlib.pyplot", "plots")


def panels(
    ax: Any, columns: int, heights: tuple[float, ...], size: tuple[float, float]
) -> tuple[Any, list[list[Any]]]:
    """Figure and axes [row][column]: in a new figure, or as insets of the axes given, which are then emptied."""
    if ax is None:
        figure, grid = pyplot().subplots(
            len(heights),
            columns,
            figsize=(size[0] * columns, size[1]),
            height_ratios=heights,
            squeeze=False,
            layout="constrained",
        )
        return figure, [list(row) for row in grid]
    if columns == 1 and len(heights) == 1:
        return ax.figure, [[ax]]
    pyplot()
    ax.set_axis_off()
    total, gap = sum(heights), 0.12
    width = (1 - gap * (columns - 1)) / columns
    room = 1 - gap * (len(heights) - 1)
    rows, top = [], 1.0
    for height in heights:
        tall = room * height / total
        rows.append([ax.inset_axes((j * (width + gap), top - tall, width, tall)) for j in range(columns)])
        top -= tall + gap
    return ax.figure, rows


def tidy(ax: Any) -> None:
    """Less ink: no upper and right spine, a faint grid behind the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color="#d9dce1", linewidth=0.6)
    ax.set_axisbelow(True)
