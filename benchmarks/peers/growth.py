"""How the time of a fit grows: with the rows at 100 classes, with the classes at 2000 rows.

On logarithmic axes a time ``c x^a`` is a line of slope ``a``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import pages

from .tables import Row

ROWS = [(n, 100) for n in (1000, 2000, 4000, 8000, 16_000, 32_000, 64_000)]
CLASSES = [(2000, m) for m in (10, 32, 100, 320, 1000, 3200, 10_000, 32_000)]
LINES = {  # colours that people with any kind of colour vision can tell apart (Okabe and Ito)
    "monocal/TemperatureScaling": ("#E69F00", "v"),
    "monocal/MCCT": ("#0072B2", "o"),
    "monocal/ConditionalMCCT": ("#009E73", "^"),
    "scikit-learn/temperature": ("#D55E00", "s"),
    "probmetrics/TS": ("#CC79A7", "D"),
}
PANELS = (
    ("rows", ROWS, "rows, at 100 classes"),
    ("classes", CLASSES, "classes, at 2000 rows"),
)


def sizes() -> list[tuple[int, int]]:
    return list(dict.fromkeys(ROWS + CLASSES))


def series(rows: Iterable[Row], name: str, axis: str, where: list[tuple[int, int]]) -> tuple[list, list]:
    """Sizes along ``axis`` and milliseconds of the fits of one method that succeeded there."""
    points = sorted(
        (r[axis], r["fit_ms"])
        for r in rows
        if f"{r['library']}/{r['method']}" == name and (r["rows"], r["classes"]) in where and "fit_ms" in r
    )
    return [x for x, _ in points], [ms for _, ms in points]


def slope(x: list, y: list) -> float:
    """Exponent of growth over the upper half, where constant costs no longer count."""
    half = len(x) // 2
    return float(np.polyfit(np.log(x[half:]), np.log(y[half:]), 1)[0]) if len(x) - half > 1 else float("nan")


def table(rows: list[Row]) -> str:
    def line(name: str) -> list[str]:
        cells = []
        for axis, where, _ in PANELS:
            x, y = series(rows, name, axis, where)
            cells += [
                f"{y[0]:.1f} at {x[0]}, {y[-1]:.1f} at {x[-1]}" if x else "",
                f"{slope(x, y):.2f}" if len(x) > 2 else "",
            ]
            failed = [
                r
                for r in rows
                if f"{r['library']}/{r['method']}" == name
                and (r["rows"], r["classes"]) in where
                and "failed" in r
            ]
            if failed:
                cells[-2] += f"; from {failed[0][axis]}: {failed[0]['failed']}"
        return [name, *cells]

    header = ["method", "fit, ms, by rows", "exponent", "fit, ms, by classes", "exponent"]
    return "### Growth\n\n" + pages.table(header, map(line, LINES))


def draw(rows: list[Row], folder: Path) -> None:
    """Write ``growth.svg`` and ``growth.png``."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    from experiments.figures import STYLE

    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.4), layout="constrained")
        FigureCanvasAgg(figure)
        handles: dict[str, Any] = {}
        for axes, (axis, where, label) in zip(figure.subplots(1, 2, sharey=True), PANELS, strict=True):
            for name, (colour, marker) in LINES.items():
                x, y = series(rows, name, axis, where)
                if x:
                    (handles[name.replace("/", " ")],) = axes.plot(
                        x, y, color=colour, marker=marker, ms=3, lw=1.2
                    )
            passes: dict[int, list[float]] = {}
            for r in rows:
                if (r["rows"], r["classes"]) in where and "unit_ms" in r:
                    passes.setdefault(r[axis], []).append(r["unit_ms"])
            x = sorted(passes)
            (handles["one log_softmax"],) = axes.plot(
                x, [np.median(passes[v]) for v in x], color="#777777", ls="--", lw=1
            )
            axes.set(xscale="log", yscale="log", xlabel=label)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        figure.axes[0].set_ylabel("fit, ms, one thread")
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
        for kind in ("svg", "png"):
            metadata = {"Date": None, "Creator": "monocal"} if kind == "svg" else {"Software": "monocal"}
            figure.savefig(folder / f"growth.{kind}", dpi=130, metadata=metadata)
