"""Where displays draw: new axes or the caller's, with the library's colours given one by one, so rcParams stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import errors

BEFORE, AFTER, BAND, LINE = "#b5482a", "#1f6fa8", "#8a8f98", "#555a63"
_SMALL = 2.2  # inches of a panel, below which its labels are small
_TITLE_PAD = 4.0  # points between a legend and the title above it
SERIES = ("#1f6fa8", "#b5482a", "#3d7f4e", "#8656a5", "#8a6d1f")


def pyplot() -> Any:
    """matplotlib.pyplot, or a sentence on how to install it."""
    return errors.require("matplotlib.pyplot", "plots")


def panels(
    ax: Any, columns: int, heights: tuple[float, ...], size: tuple[float, float], aside: float = 0.15
) -> tuple[Any, list[list[Any]]]:
    """Figure and axes [row][column]: in a new figure, or as insets of the axes given, which are then emptied.

    Insets leave room for their labels in inches, whatever the size of the figure (``aside`` of them on the left), and a strip
    above them for a legend.
    """
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
    box = ax.get_window_extent()
    wide, tall = (max(pixels / ax.figure.dpi, 0.5) for pixels in (box.width, box.height))
    between, below, strip = min(0.35, 0.62 / wide), min(0.3, 0.42 / tall), min(0.3, 0.5 / tall)
    left, bottom = min(0.4, aside / wide), min(0.1, 0.15 / tall)
    width = (1 - left - between * (columns - 1)) / columns
    room = 1 - strip - bottom - below * (len(heights) - 1)
    small = min(width * wide, room * tall) < _SMALL
    rows, top = [], 1.0 - strip
    for height in heights:
        share = room * height / sum(heights)
        made = [
            ax.inset_axes((left + j * (width + between), top - share, width, share)) for j in range(columns)
        ]
        for inset in made if small else []:
            inset.tick_params(labelsize="x-small")
            inset.title.set_size("small")
            inset.xaxis.label.set_size("x-small")
            inset.yaxis.label.set_size("x-small")
            inset.locator_params(nbins=4)
        rows.append(made)
        top -= share + below
    return ax.figure, rows


def legend(ax: Any, figure: Any, panel: Any) -> None:
    """The legend of ``panel`` where no data are: above a new figure, or above what was drawn into the caller's ``ax``.

    It has as many columns as fit into that width. A title of the caller's ``ax`` moves above it.
    """
    handles, labels = panel.get_legend_handles_labels()
    if not labels:
        return
    style: dict[str, Any] = {"frameon": False, "fontsize": "small"}
    if ax is None:

        def place(columns: int) -> Any:
            return figure.legend(handles, labels, loc="outside upper center", ncols=columns, **style)

    elif ax is panel:

        def place(columns: int) -> Any:
            corner = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
            return panel.legend(ncols=columns, **corner, **style)

    else:  # in the strip above the insets

        def place(columns: int) -> Any:
            small = style | {"fontsize": "x-small"}
            return ax.legend(handles, labels, loc="upper center", borderaxespad=0.0, ncols=columns, **small)

    room = (figure if ax is None else ax).get_window_extent().width
    made = widest(place, len(labels), room, figure)
    if ax is panel and panel.get_title():
        height = made.get_window_extent(figure.canvas.get_renderer()).height
        panel.set_title(
            panel.get_title(), size=panel.title.get_size(), pad=height * 72 / figure.dpi + _TITLE_PAD
        )


def widest(place: Callable[[int], Any], count: int, room: float, figure: Any) -> Any:
    """The legend with the most columns that is no wider than ``room``, in pixels; with one, however wide."""
    for columns in range(count, 1, -1):
        made = place(columns)
        if made.get_window_extent(figure.canvas.get_renderer()).width <= room:
            return made
        made.remove()
    return place(1)


def points(ax: Any, x: Any, y: Any, out: Any, colour: str, label: str | None = None, **options: Any) -> None:
    """Round markers, filled where ``out``: more than chance explains. They are whole at the edge of the axes."""
    for filled in (False, True):
        some = np.asarray(out) == filled
        if not some.any():  # an empty line that is not clipped takes its place at the corner of the figure
            continue
        face = colour if filled else "white"
        named = label if filled else None
        style = {
            "color": colour,
            "markerfacecolor": face,
            "clip_on": False,
            "zorder": 3,
            "label": named,
            **options,
        }
        ax.plot(np.asarray(x)[some], np.asarray(y)[some], "o", **style)


def tidy(ax: Any) -> None:
    """Less ink: no upper and right spine, a faint grid behind the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color="#d9dce1", linewidth=0.6)
    ax.set_axisbelow(True)
