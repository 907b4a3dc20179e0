"""Draw the picture of the first page, docs/overview.svg and docs/overview-dark.svg:

    python tools/draw_overview.py

Two classes, a classifier with balanced class weights: reliability before and after, and the map between the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

import monocal as mc
from monocal.plots import reliability_curve

DOCS = Path(__file__).resolve().parents[1] / "docs"
LIGHT = {"ink": "#1f2933", "faint": "#9aa5b1", "before": "#d1495b", "after": "#00798c"}
DARK = {"ink": "#e4e7eb", "faint": "#7b8794", "before": "#ff8a80", "after": "#4dd0e1"}


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """P(class 1) before and after, and labels, of rows that neither classifier nor calibrator has seen."""
    X, y = make_classification(30_000, weights=[0.9], class_sep=0.7, random_state=0)
    classifier = LogisticRegression(class_weight="balanced").fit(X[:3000], y[:3000])
    scores = classifier.decision_function(X)
    calibrator = mc.BinaryMCCT().fit(scores[3000:6000], y[3000:6000])
    return classifier.predict_proba(X[6000:])[:, 1], calibrator.predict_proba(scores[6000:]), y[6000:]


def title(when: str, probs: np.ndarray, labels: np.ndarray) -> str:
    return f"{when}: {100 * probs.mean():.0f} % predicted, {100 * labels.mean():.0f} % positive"


def reliability(axes: Any, probs: np.ndarray, labels: np.ndarray, when: str, look: dict[str, str]) -> None:
    """Frequency against P(class 1), in bins with enough rows."""
    curve = reliability_curve(probs, labels, n_bins=10, label=1)
    kept = curve.sums.weight >= 20
    axes.plot(
        curve.confidence[kept],
        curve.accuracy[kept],
        "o-",
        color=look[when],
        markersize=5,
        clip_on=False,
        label=title(when, probs, labels),
    )


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
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(6.6, 3.4), layout="constrained")
        left.plot([0, 1], [0, 1], "--", color=look["faint"], linewidth=1)
        reliability(left, before, labels, "before", look)
        reliability(left, after, labels, "after", look)
        left.set_title("Probability and frequency", fontsize=10)
        left.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability", ylabel="observed frequency")
        left.legend(frameon=False, fontsize=8, loc="upper left", borderaxespad=0)
        order = before.argsort()
        right.plot([0, 1], [0, 1], "--", color=look["faint"], linewidth=1)
        right.plot(before[order], after[order], color=look["after"], linewidth=2)
        right.set_title("The ranking stays", fontsize=10)
        right.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability before", ylabel="probability after")
        figure.savefig(DOCS / name, transparent=True, metadata={"Date": None})
        pyplot.close(figure)


def main() -> None:
    """Draw the picture for light pages and for dark ones."""
    draw("overview.svg", LIGHT)
    draw("overview-dark.svg", DARK)


if __name__ == "__main__":
    main()
