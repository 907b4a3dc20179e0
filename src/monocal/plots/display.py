"""What all displays share: where they draw, in which colours, and how predictions come in.

A display draws into a new figure or into the caller's axes, with the library's colours passed one by one, so that rcParams stay
as they are. Before calibration is always `BEFORE`, after it `AFTER`; other curves go through `SERIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from scipy.special import expit, softmax

from .. import errors
from ..arrays import to_numpy
from ..errors import InputError
from ..inputs.formats import format_of
from ..inputs.names import places_among
from ..inputs.validation import check_logits

BEFORE, AFTER, BAND, LINE, GRID = "#b5482a", "#1f6fa8", "#8a8f98", "#555a63", "#d9dce1"
SERIES = (AFTER, BEFORE, "#3d7f4e", "#8656a5", "#8a6d1f")
_SMALL = 2.2  # inches of a panel, below which its labels are small
_TITLE_PAD = 4.0  # points between a legend and the title above it

Curve = TypeVar("Curve")


class Display:
    """Values that `plot` draws: into ``figure_``, on the axes ``ax_``; see scikit-learn's displays."""

    figure_: Any
    ax_: Any


class CurvesDisplay(Display, Generic[Curve]):
    """Named curves of one kind."""

    def __init__(self, curves: Mapping[str, Curve]):
        if not curves:
            raise InputError("Expected at least one curve or evaluation, by name.")
        self.curves = dict(curves)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, name: str | None = None, **options: Any
    ) -> Any:
        """From a fitted calibrator (before and after it), a fitted classifier with ``predict_proba``, or several by name.

        ``name`` is the title of a single curve, ``options`` are those of `from_predictions`.
        """
        y_prob, before = predicted(estimator, X, name)
        y = labels_of(estimator, y)
        return cls.from_predictions(y, y_prob, before=before, name=name, **options)  # type: ignore[attr-defined]

    def colours(self) -> dict[str, str]:
        """Before and after have their own; others go through the series."""
        if set(self.curves) <= {"before", "after", "model"}:
            return {name: BEFORE if name == "before" else AFTER for name in self.curves}
        return {name: SERIES[i % len(SERIES)] for i, name in enumerate(self.curves)}


# Predictions.


def by_name(y_prob: Any, before: Any, name: str | None) -> dict[str, Any]:
    """Probabilities (n, m), or (n,) of class 1, by the title of their curve."""
    if isinstance(y_prob, Mapping):
        return dict(y_prob)
    one_column = isinstance(y_prob, list) or getattr(y_prob, "ndim", None) == 1
    if one_column and isinstance(word := next(iter(y_prob), None), str):
        raise InputError(
            f"y_prob: expected probabilities, but it holds text such as {str(word)!r}: give the labels first, then the "
            "probabilities, from_predictions(y_true, y_prob)."
        )
    return {name or "model": y_prob} if before is None else {"before": before, "after": y_prob}


def of_two_classes(probs: Any) -> bool:
    """Whether they are of two classes, in one column or two."""
    shape = np.shape(probs)
    return len(shape) == 1 or shape[1] <= 2


def labels_of(estimator: Any, y: Any) -> Any:
    """Labels as places in the ``classes_`` of a classifier, where they are all there."""
    one = next(iter(estimator.values())) if isinstance(estimator, Mapping) and estimator else estimator
    classes = getattr(one, "classes_", None)
    if classes is None or np.array_equal(classes, np.arange(len(classes))):
        return y
    place = places_among(np.asarray(to_numpy(y)).ravel(), classes)
    return y if (place < 0).any() else place


def predicted(estimator: Any, X: Any, name: str | None) -> tuple[Any, Any]:
    """Probabilities of one predictor, or of several by name; and those before a calibrator that is not called by a name."""
    if isinstance(estimator, Mapping):
        return {title: one.predict_proba(X) for title, one in estimator.items()}, None
    return estimator.predict_proba(X), before_probabilities(estimator, X) if name is None else None


def is_calibrator(estimator: Any) -> bool:
    """Whether it maps scores to probabilities, so that there is a before to show."""
    return hasattr(estimator, "preserves_order") and hasattr(estimator, "input")


def before_probabilities(estimator: Any, X: Any) -> Any:
    """The input of a calibrator as probabilities; None for a classifier, and for scores, which are none."""
    if not is_calibrator(estimator) or estimator.input == "scores":
        return None
    if estimator.input == "probabilities":
        return X
    shape = np.shape(X)
    if len(shape) == 1 or shape[1:] == (1,):
        return expit(np.asarray(to_numpy(X), dtype=np.float64).reshape(-1))
    p = softmax(to_numpy(check_logits(X).values).astype(np.float64), axis=1)
    return format_of(X).back(p, X, -1)  # with the names that labels may use


# Axes.


def pyplot() -> Any:
    """matplotlib.pyplot, or a sentence on how to install it."""
    return errors.require("matplotlib.pyplot", "plots")


def panels(
    ax: Any, columns: int, heights: tuple[float, ...], size: tuple[float, float], aside: float = 0.15
) -> tuple[Any, list[list[Any]]]:
    """Figure and axes [row][column]: in a new figure, or as insets of the caller's axes, which are emptied.

    Insets leave space for their labels in inches, whatever the size of the figure (``aside`` of them on the left), and a strip
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
    height = 1 - strip - bottom - below * (len(heights) - 1)
    rows, top = [], 1.0 - strip
    for share in (height * one / sum(heights) for one in heights):
        places = [left + j * (width + between) for j in range(columns)]
        rows.append([ax.inset_axes((place, top - share, width, share)) for place in places])
        top -= share + below
    if min(width * wide, height * tall) < _SMALL:
        for inset in (one for row in rows for one in row):
            inset.tick_params(labelsize="x-small")
            inset.title.set_size("small")
            inset.xaxis.label.set_size("x-small")
            inset.yaxis.label.set_size("x-small")
            inset.locator_params(nbins=4)
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
        make, style = figure.legend, style | {"loc": "outside upper center"}
    elif ax is panel:
        make = panel.legend
        style |= {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2}
    else:  # in the strip above the insets
        make, style = (
            ax.legend,
            {"frameon": False, "fontsize": "x-small", "loc": "upper center", "borderaxespad": 0.0},
        )
    width = (figure if ax is None else ax).get_window_extent().width
    made = widest(lambda columns: make(handles, labels, ncols=columns, **style), len(labels), width, figure)
    if ax is panel and panel.get_title():
        height = made.get_window_extent(figure.canvas.get_renderer()).height
        pad = height * 72 / figure.dpi + _TITLE_PAD
        panel.set_title(panel.get_title(), size=panel.title.get_size(), pad=pad)


def widest(place: Callable[[int], Any], count: int, width: float, figure: Any) -> Any:
    """The legend with the most columns that is no wider than ``width``, in pixels; with one, however wide."""
    for columns in range(count, 1, -1):
        made = place(columns)
        if made.get_window_extent(figure.canvas.get_renderer()).width <= width:
            return made
        made.remove()
    return place(1)


def points(
    ax: Any, x: Any, y: Any, out: Any, colour: str, label: str | None = None, tips: Any = None, **options: Any
) -> None:
    """Round markers, filled where ``out``: more than chance explains. They are whole at the edge of the axes.

    ``tips`` are texts, one for each point, that a page shows when the pointer is over it.
    """
    for filled in (False, True):
        shown = np.asarray(out) == filled
        if not shown.any():  # an empty line that is not clipped takes its place at the corner of the figure
            continue
        style = {
            "color": colour,
            "markerfacecolor": colour if filled else "white",
            "clip_on": False,
            "zorder": 3,
            "label": label if filled else None,
            "gid": None if tips is None else tip(np.asarray(tips, dtype=object)[shown]),
            **options,
        }
        ax.plot(np.asarray(x)[shown], np.asarray(y)[shown], "o", **style)


def tip(texts: Any) -> str:
    """The id of a line whose markers tell these texts on a page."""
    return "tip:" + "|".join(str(text).replace("|", "/") for text in texts)


def tidy(ax: Any) -> None:
    """Less ink: no upper and right spine, a faint grid behind the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)


def shortened(name: str, most: int = 28) -> str:
    """A name that fits next to a picture, with no sign that matplotlib would read as mathematics."""
    line = " ".join(name.split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return line.replace("$", r"\$")
