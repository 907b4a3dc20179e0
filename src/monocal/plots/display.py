"""What all displays share: how predictions come in, where and in which colours they draw, and SVG for a page.

A display draws into a new figure or into the caller's axes, with the library's colours passed one by one, so that rcParams stay
as they are. Before calibration is always `BEFORE`, after it `AFTER`; other curves go through `SERIES`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from html import escape
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
# Variables of the style of a page, for each colour.
_VARIABLES = {
    BEFORE: "before",
    AFTER: "after",
    BAND: "band",
    LINE: "soft",
    GRID: "faint",
    SERIES[2]: "good",
    SERIES[3]: "third",
    SERIES[4]: "fourth",
    "#000000": "ink",
    "#262626": "ink",
    "#ffffff": "paper",
}

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
        cls, estimator: Any, X: Any, y: Any, *args: Any, name: str | None = None, **options: Any
    ) -> Any:
        """From a fitted calibrator (before and after it), a fitted classifier with ``predict_proba``, or several by name.

        ``name`` is the title of a single curve; all else is passed on to `from_predictions`.
        """
        before = None
        if isinstance(estimator, Mapping):
            y_prob: Any = {title: one.predict_proba(X) for title, one in estimator.items()}
        else:
            y_prob = estimator.predict_proba(X)
            before = _before(estimator, X) if name is None else None
        y = _places_of_labels(first_of(estimator), y)
        return cls.from_predictions(y, y_prob, *args, before=before, name=name, **options)

    @classmethod
    def from_predictions(
        cls, y_true: Any, y_prob: Any, *, before: Any = None, name: str | None = None, **options: Any
    ) -> Any:
        """From labels and probabilities (several of these by name), and those before calibration if there are any.

        ``options`` are those of the function that computes a curve.
        """
        return cls(cls._curves(y_true, by_name(y_prob, before, name), **options))

    @classmethod
    def _curves(cls, y_true: Any, parts: dict[str, Any], **options: Any) -> dict[str, Curve]:
        """The curves of probabilities by name."""
        raise NotImplementedError

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
    return {name or "model": y_prob} if before is None else {"before": before, "after": y_prob}


def first_of(estimator: Any) -> Any:
    """It, or the first of several by name."""
    return next(iter(estimator.values()), None) if isinstance(estimator, Mapping) else estimator


def _places_of_labels(estimator: Any, y: Any) -> Any:
    """Labels as places in the ``classes_`` of a classifier, where they are all there."""
    classes = getattr(estimator, "classes_", None)
    if classes is None or np.array_equal(classes, np.arange(len(classes))):
        return y
    place = places_among(np.asarray(to_numpy(y)).ravel(), classes)
    return y if (place < 0).any() else place


def is_calibrator(estimator: Any) -> bool:
    """Whether it maps scores to probabilities, so that there is a before to show."""
    return hasattr(estimator, "preserves_order") and hasattr(estimator, "input")


def _before(estimator: Any, X: Any) -> Any:
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


def panels(
    ax: Any, columns: int, heights: tuple[float, ...], size: tuple[float, float], aside: float = 0.15
) -> tuple[Any, list[list[Any]]]:
    """Figure and axes [row][column]: in a new figure, in ``ax`` itself, or as insets of ``ax``, which is emptied.

    Insets leave space for their labels in inches, whatever the size of the figure (``aside`` of them on the left), and a strip
    above them for a legend.
    """
    plt = errors.require("matplotlib.pyplot", "plots")
    rows = len(heights)
    if ax is None:
        figure, grid = plt.subplots(
            rows,
            columns,
            figsize=(size[0] * columns, size[1]),
            height_ratios=heights,
            squeeze=False,
            layout="constrained",
        )
        return figure, [list(row) for row in grid]
    if columns == rows == 1:
        return ax.figure, [[ax]]
    ax.set_axis_off()
    box = ax.get_window_extent()
    wide, tall = (max(pixels / ax.figure.dpi, 0.5) for pixels in (box.width, box.height))
    left, between = min(0.4, aside / wide), min(0.35, 0.62 / wide)
    top, below = 1 - min(0.3, 0.5 / tall), min(0.3, 0.42 / tall)
    width = (1 - left - between * (columns - 1)) / columns
    height = (top - min(0.1, 0.15 / tall) - below * (rows - 1)) / sum(heights)
    grid = []
    for part in heights:
        top -= part * height
        line = [(left + j * (width + between), top, width, part * height) for j in range(columns)]
        grid.append([ax.inset_axes(place) for place in line])
        top -= below
    for inset in (one for row in grid for one in row):
        inset.tick_params(labelsize="x-small")
        for text in (inset.title, inset.xaxis.label, inset.yaxis.label):
            text.set_size("x-small")
        inset.locator_params(nbins=4)
    return ax.figure, grid


def legend(ax: Any, figure: Any, panel: Any, title: str | None = None) -> None:
    """The legend of ``panel`` where no data are: above a new figure, or above what was drawn into the caller's ``ax``.

    It has as many columns as fit, and a title of ``ax`` itself moves above it.
    """
    handles, labels = panel.get_legend_handles_labels()
    if not labels:
        return
    place = figure if ax is None else ax
    width = place.get_window_extent().width / figure.dpi
    label = 0.55 + 0.06 * sum(map(len, labels)) / len(labels)  # inches: the line, and its name
    columns = max(1, min(len(labels), int(width / label)))
    style: dict[str, Any] = {"frameon": False, "fontsize": "small", "ncols": columns, "title": title}
    if ax is None:
        figure.legend(handles, labels, loc="outside upper center", **style)
    elif ax is panel:
        ax.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, **style)
        if ax.get_title():
            pad = 7 + 13 * -(-len(labels) // columns)  # points
            ax.set_title(ax.get_title(), size=ax.title.get_size(), pad=pad)
    else:
        ax.legend(handles, labels, loc="upper center", borderaxespad=0, **style | {"fontsize": "x-small"})


def points(
    ax: Any,
    x: Any,
    y: Any,
    out: Any,
    colour: str,
    *,
    labels: Any = (None, None),
    tips: Any = None,
    **options: Any,
) -> None:
    """Round markers, whole at the edge of the axes, filled where ``out``: more than chance explains.

    ``labels`` are for hollow and for filled ones; ``tips`` are texts that a page shows when the pointer is over a marker.
    """
    out = np.asarray(out)
    for filled, label in zip((False, True), labels, strict=True):
        shown = out == filled
        if not shown.any():  # an empty line that is not clipped takes its place at the corner of the figure
            continue
        style = {
            "color": colour,
            "markerfacecolor": colour if filled else "white",
            "clip_on": False,
            "zorder": 3,
            "label": label,
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
    return (line if len(line) <= most else f"{line[: most - 1]}…").replace("$", r"\$")


# SVG.


def to_svg(display: Any, name: str, size: tuple[float, float] | None = None, **options: Any) -> str:
    """The figure of a display as one ``<svg>`` element for a page; ``options`` are those of its ``plot``.

    matplotlib draws. Text stays text; each colour of the library becomes a CSS variable with that colour as its fallback; the
    texts of markers become ``<title>`` elements. ``name`` is what a screen reader says, ``size`` is in inches.
    """
    plt = errors.require("matplotlib.pyplot", "plots")
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "path.simplify": True}):
        ax = None if size is None else plt.subplots(figsize=size, layout="constrained")[1]
        figure = display.plot(ax, **options).figure_
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    text = out.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    box = text.split('viewBox="')[1].split('"')[0]
    head = f'<svg class="chart" role="img" aria-label="{escape(name)}" viewBox="{box}">'
    text = head + text[text.index(">") + 1 :].replace("xlink:href", "href")
    # Ids of groups would occur in every picture of a page; those of shapes are salted.
    text = re.sub(r'<g id="(?!tip:)[^"]*"', "<g", text)
    text = re.sub(r'<g id="tip:([^"]*)">(.*?)</g>', _with_titles, text, flags=re.DOTALL)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var(--{variable}, {colour})")
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    return re.sub(r"\s*\n\s*", "\n", text)


def _with_titles(group: re.Match[str]) -> str:
    """The k-th marker gets the k-th text."""
    texts = iter(group[1].split("|"))
    marked = re.sub(
        r"<use([^>]*)/>", lambda use: f"<use{use[1]}><title>{next(texts, '')}</title></use>", group[2]
    )
    return f'<g class="tips">{marked}</g>'
