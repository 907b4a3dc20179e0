"""Draw the picture of the first page, docs/overview.svg and docs/overview-dark.svg, from made-up data:

    python tools/draw_overview.py

Reliability before and after, and one sample whose classes keep their order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

import monocal as mc
from monocal.plots import reliability_curve

DOCS = Path(__file__).resolve().parents[1] / "docs"
NAMES = ["cat", "dog", "owl", "fox", "elk"]
LIGHT = {"ink": "#1f2933", "faint": "#9aa5b1", "box": "#dfe3e8", "before": "#d1495b", "after": "#00798c"}
DARK = {"ink": "#e4e7eb", "faint": "#7b8794", "box": "#3b4450", "before": "#ff8a80", "after": "#4dd0e1"}


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities before and after, and labels, of rows that the calibrator has not seen."""
    made = mc.data.synthetic(6000, len(NAMES), seed=3, overconfidence=2.5)
    model = mc.ConditionalMCCT().fit(made.values[:3000], made.labels[:3000])
    logits = made.values[3000:]
    return softmax(logits, axis=1), model.predict_proba(logits), made.labels[3000:]


def title(when: str, probs: np.ndarray, labels: np.ndarray) -> str:
    off = 100 * (probs.max(axis=1).mean() - (probs.argmax(axis=1) == labels).mean())
    return f"{when}: off by {abs(off):.1f} points"


def diagram(
    axes: Any, probs: np.ndarray, labels: np.ndarray, when: str, colour: str, look: dict[str, str]
) -> None:
    """Points of bins with enough rows, and boxes where those of a perfectly calibrated model would lie."""
    curve = reliability_curve(probs, labels, n_bins=10)
    kept = curve.sums.weight >= 20
    for k in np.flatnonzero(kept):
        axes.fill_between(curve.edges[k : k + 2], curve.low[k], curve.high[k], color=look["box"], linewidth=0)
    axes.plot([0, 1], [0, 1], "--", color=look["faint"], linewidth=1)
    axes.plot(curve.confidence[kept], curve.accuracy[kept], "o-", color=colour, markersize=5, clip_on=False)
    axes.set_title(title(when, probs, labels), color=colour, fontsize=11)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="how sure it says it is", ylabel="how often it is right")
    axes.set_aspect("equal")


def sample(axes: Any, before: np.ndarray, after: np.ndarray, look: dict[str, str]) -> None:
    """The row whose two largest classes are closest to 97 % and a few per cent before."""
    row = np.abs(np.sort(before, axis=1)[:, -2:] - [0.03, 0.97]).sum(axis=1).argmin()
    order = before[row].argsort()
    place = np.arange(len(NAMES))
    for probs, shift, colour in ((before, 0.2, look["before"]), (after, -0.2, look["after"])):
        axes.barh(place + shift, probs[row][order], height=0.36, color=colour)
        for y, p in zip(place + shift, probs[row][order], strict=True):
            axes.text(p + 0.02, y, f"{100 * p:.1f} %", va="center", fontsize=8, color=look["ink"])
    axes.set_yticks(place, [NAMES[j] for j in order])
    axes.set(xlim=(0, 1.2), xlabel="probability", xticks=[0, 0.5, 1])
    axes.set_title("one sample: the same order", color=look["ink"], fontsize=11)


def draw(name: str, look: dict[str, str]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings = {
        "svg.hashsalt": "overview",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "text.color": look["ink"],
        "axes.edgecolor": look["faint"],
        "axes.labelcolor": look["ink"],
        "xtick.color": look["ink"],
        "ytick.color": look["ink"],
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    before, after, labels = data()
    with matplotlib.rc_context(settings):
        figure, panels = pyplot.subplots(1, 3, figsize=(10.5, 3.7), layout="constrained")
        diagram(panels[0], before, labels, "before", look["before"], look)
        diagram(panels[1], after, labels, "after", look["after"], look)
        sample(panels[2], before, after, look)
        figure.savefig(DOCS / name, transparent=True, metadata={"Date": None})
        pyplot.close(figure)


def main() -> None:
    """Draw the picture for light pages and for dark ones."""
    draw("overview.svg", LIGHT)
    draw("overview-dark.svg", DARK)


if __name__ == "__main__":
    main()
