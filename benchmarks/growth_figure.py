"""How the cost of a logit grows with rows, classes and jumps: what `speed.py --only growth` measured, as a picture.

    python benchmarks/speed.py --threads 1 --only growth --csv growth.csv
    python benchmarks/growth_figure.py growth.csv docs/performance/cost.svg

A cost that is linear in what grows is a level line; the dashed line is ``log m``, which sorting a row of ``m`` classes costs.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

import pages

PANELS = {
    "rows": ("rows", "rows, at 100 classes"),
    "classes": ("classes", "classes, at 10,000 rows"),
    "jumps": ("jumps", "jumps, at 5,000 x 1,000"),
}
# Colours that people with any kind of colour vision can tell apart (Okabe and Ito).
LINES = {"fit_ns": ("fit", "#0072B2", "o"), "predict_ns": ("predict", "#D55E00", "s")}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """One panel for each of `PANELS`, nanoseconds a logit on logarithmic axes."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    from experiments.figures import STYLE

    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 2.8), layout="constrained")
        FigureCanvasAgg(figure)
        handles: dict[str, Any] = {}
        for axes, (name, (key, label)) in zip(
            figure.subplots(1, 3, sharey=True), PANELS.items(), strict=True
        ):
            here = [r for r in rows if r.get("growth") == name]
            for measured, (word, colour, marker) in LINES.items():
                points = [(r[key], r[measured]) for r in here if measured in r]
                if points:
                    (handles[f"MCCT {word}"],) = axes.plot(
                        *zip(*points, strict=True), color=colour, marker=marker, ms=3, lw=1.2
                    )
            if name == "classes" and here:
                m = np.array([r["classes"] for r in here], dtype=np.float64)
                last = here[-1]["predict_ns"]
                (handles["growth with log m"],) = axes.plot(
                    m, last * np.log(m) / np.log(m[-1]), color="#777777", ls="--", lw=1
                )
            axes.set(xscale="log", yscale="log", xlabel=label)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        figure.axes[0].set_ylabel("ns a logit")
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(path, metadata={"Date": None, "Creator": "monocal"})


def read(path: str) -> list[dict[str, Any]]:
    """Lines of growth in a file that `speed.py` wrote; what was not measured is left out."""
    with open(path, newline="") as file:
        lines = [row for row in csv.DictReader(file) if row.get("growth")]
    words = {"growth"}
    return [{k: v if k in words else float(v) for k, v in row.items() if v} for row in lines]


if __name__ == "__main__":
    parser = pages.parser_of(__doc__)
    parser.add_argument("csv", help="what speed.py wrote")
    parser.add_argument("picture", type=Path, help="the file to draw, by its ending an .svg, .png or .pdf")
    options = parser.parse_args()
    draw(read(options.csv), options.picture)
