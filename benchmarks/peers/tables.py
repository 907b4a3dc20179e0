"""Rows of results as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pages

from .environment import PEERS
from .methods import RIVALS
from .optimum import ENOUGH

Row = dict[str, Any]
HEADER = [
    "library",
    "method",
    "fit",
    "fit, ms",
    "predict",
    "memory of fit",
    "of predict",
    "NLL",
    "optimum",
    "order",
]
NAMED = ("monocal", "numpy", "scipy", "torch", *PEERS)


def number(value: Any) -> str:
    """Three digits that matter, in plain notation."""
    if value is None:
        return ""
    x = float(value)
    if not math.isfinite(x):
        return {math.inf: "∞", -math.inf: "-∞"}.get(x, "not a number")
    digits = max(0, 2 - math.floor(math.log10(abs(x)))) if x else 0
    return f"{x:,.{min(digits, 4)}f}"


def seen(rows: list[Row], key: str) -> str:
    """The different values of cells that may have been measured at different times."""
    return ", ".join(sorted({row[key] for row in rows if key in row})) or "unknown"


def optimum(row: Row) -> str:
    if "violation" in row:
        return f"{'' if row['certified'] else 'not '}certified, violation {float(row['violation']):.0e}"
    if row.get("excess") is None:
        return "n/a"
    excess = float(row["excess"])
    if math.isnan(excess):
        return "not checked"
    if excess <= ENOUGH:
        return "reached"
    return "no minimum in sight" if math.isinf(excess) else f"missed by {excess:.0e}"


def order(row: Row) -> str:
    share = row.get("inverted")
    if share is None:
        return ""
    return "kept" if share == 0 else f"{100 * share:.3g} % of rows inverted"


def size_table(rows: list[Row]) -> str:
    """All methods on one size."""

    def line(r: Row) -> list[str]:
        names = [r["library"], r["method"]]
        if "failed" in r:
            return [*names, r["failed"], *[""] * (len(HEADER) - 3)]
        judged = (
            [r["not_judged"], "", ""]
            if "not_judged" in r
            else [f"{float(r['nll']):.4f}".replace("inf", "∞"), optimum(r), order(r)]
        )
        return [
            *names,
            number(r["fit"]),
            number(r["fit_ms"]),
            number(r["predict"]),
            f"{r['fit_memory']:.2f}",
            f"{r['predict_memory']:.2f}",
            *judged,
        ]

    return pages.table(HEADER, map(line, rows), words=2)


def sizes_of(rows: list[Row]) -> list[tuple[int, int]]:
    return list(dict.fromkeys((r["rows"], r["classes"]) for r in rows))


def pairs(rows: list[Row]) -> list[Row]:
    """Time of every method of monocal's as a multiple of each rival's, on each size where both were measured."""
    at = {(f"{r['library']}/{r['method']}", r["rows"], r["classes"]): r for r in rows}
    compared = []
    for own, rivals in RIVALS.items():
        for rival in rivals:
            for n, m in sizes_of(rows):
                a, b = at.get((own, n, m)), at.get((rival, n, m))
                if a is None or b is None:
                    continue
                row = {"monocal": own.split("/", 1)[1], "instead of": rival, "rows": n, "classes": m}
                for part in ("fit", "predict"):
                    row[part] = a[part] / b[part] if part in a and part in b else None
                row["note"] = a.get("failed") or b.get("failed", "")
                row["who failed"] = "monocal" if "failed" in a else "rival" if "failed" in b else ""
                compared.append(row)
    return compared


def pair_table(rows: list[Row]) -> str:
    """Fit, and in brackets predict; below 1 monocal is the faster one."""
    compared = pairs(rows)
    sizes = sizes_of(rows)
    names = list(dict.fromkeys((r["monocal"], r["instead of"]) for r in compared))
    at = {(r["monocal"], r["instead of"], r["rows"], r["classes"]): r for r in compared}

    def cell(r: Row | None) -> str:
        if r is None:
            return ""
        if r["fit"] is not None:
            return f"{number(r['fit'])} ({number(r['predict'])})"
        if r["note"].startswith("left out"):
            return ""
        return f"{r['who failed']}: {r['note']}"

    lines = [[own, rival, *(cell(at.get((own, rival, n, m))) for n, m in sizes)] for own, rival in names]
    return pages.table(["monocal", "instead of", *(f"{n} x {m}" for n, m in sizes)], lines, words=2)


def slower(rows: list[Row]) -> list[str]:
    """A sentence for every fit or prediction that takes longer than the rival's."""
    return [
        f"{r['monocal']} {part} at {r['rows']} x {r['classes']}: {number(r[part])} times {r['instead of']}"
        for r in pairs(rows)
        for part in ("fit", "predict")
        if r[part] is not None and r[part] > 1
    ]


# The comparison at a glance: a line for each method that a user would pick, and what all pairs say together.

PICKED = {
    "monocal/TemperatureScaling": "monocal `TemperatureScaling`",
    "monocal/MCCT": "monocal `MCCT`",
    "monocal/ConditionalMCCT": "monocal `ConditionalMCCT`",
    "scikit-learn/temperature": "scikit-learn, temperature",
    "scikit-learn/isotonic": "scikit-learn, isotonic",
    "probmetrics/TS": "probmetrics, TS",
    "probmetrics/SMS": "probmetrics, SMS",
    "netcal/TemperatureScaling": "netcal, temperature",
    "netcal/TemperatureScaling float64": "netcal, temperature, float64",
    "torch-uncertainty/TemperatureScaler": "torch-uncertainty, temperature",
    "uncertainty-calibration/PlattBinnerMarginal": "uncertainty-calibration",
    "dirichletcal/FullDirichlet": "dirichletcal",
}


def glance(rows: list[Row]) -> str:
    """Does it keep the order, does it reach its optimum, and the time of a fit on each size, in passes of ``log_softmax``."""
    by_name: dict[str, list[Row]] = {}
    for r in rows:
        by_name.setdefault(f"{r['library']}/{r['method']}", []).append(r)
    sizes = sizes_of(rows)

    def line(name: str) -> list[str]:
        at = {(r["rows"], r["classes"]): r for r in by_name[name]}
        return [
            PICKED[name],
            kept(by_name[name]),
            reached(by_name[name]),
            *(fit_cell(at.get(size)) for size in sizes),
        ]

    header = ["", "keeps the order", "reaches its optimum", *(f"{n:,} x {m:,}" for n, m in sizes)]
    return pages.table(header, [line(name) for name in PICKED if name in by_name], words=3)


def kept(rows: list[Row]) -> str:
    """Over all sizes that were judged."""
    worst = max((r["inverted"] for r in rows if r.get("inverted") is not None), default=None)
    if worst is None:
        return ""
    return "yes" if worst == 0 else f"no: up to {100 * worst:.3g} % of rows"


def reached(rows: list[Row]) -> str:
    if any("violation" in r for r in rows):
        return "certified" if all(r.get("certified", True) for r in rows) else "not certified"
    excess = max((float(r["excess"]) for r in rows if r.get("excess") is not None), default=math.nan)
    if math.isnan(excess):
        return ""
    return "yes" if excess <= ENOUGH else f"no: {100 * excess:.2g} % above"


def fit_cell(row: Row | None) -> str:
    if row is None:
        return ""
    if "failed" not in row:
        return number(row["fit"])
    why = row["failed"]
    return "–" if why.startswith("left out") else why if why.startswith(("over", "out of")) else "error"


def sentences(rows: list[Row]) -> str:
    """Who is faster how often, and whether the order was kept where it is promised."""
    lines = []
    for part, what in (("fit", "fits"), ("predict", "predictions")):
        ratios = [r[part] for r in pairs(rows) if r[part] is not None]
        if ratios:
            faster = sum(ratio < 1 for ratio in ratios)
            lines.append(f"- Of {len(ratios)} pairs of {what}, monocal's is the faster one in {faster}.")
    families = ("MCCT", "ConditionalMCCT")
    own = [r for r in rows if r["library"] == "monocal" and r["method"] in families and "inverted" in r]
    if own:
        swapped = sum(r["inverted"] > 0 for r in own)
        certified = sum(bool(r.get("certified")) for r in own)
        lines.append(
            f"- Of {len(own)} fits of `MCCT` and `ConditionalMCCT`, {certified} carry a certificate of "
            f"optimality, and {swapped or 'none'} swapped two classes in any row."
        )
    return "\n".join(lines)


def page(rows: list[Row], machine: Row, versions: dict[str, str], limit: float) -> str:
    """The whole report: what one takes in at a glance, then the pairs, then everything."""
    named = ", ".join(f"{name} {versions[name]}" for name in NAMED if name in versions)
    late = slower(rows)
    parts = [
        "## At a glance",
        "Time of a fit, in units of one `scipy.special.log_softmax` over the same logits, on one thread. Lower is better.",
        glance(rows),
        sentences(rows),
        f"Measured {machine['date']} by `benchmarks/peers.py` with monocal {versions.get('monocal', 'unknown')}. "
        f"{machine['cpu']}, {machine['cores']} cores, one thread. Python {machine['python']}; {named}. A fit that took longer "
        f"than {limit:g} s was stopped; – means that a method has too many parameters for that size.",
        "## Instead of",
        "Time of monocal's method as a multiple of what a user would pick instead: fit, and in brackets predict. Below 1 monocal "
        "is the faster one.",
        pair_table(rows),
        "### Where monocal is slower",
        "\n".join(f"- {line}" for line in late) or "None of monocal's methods is the slower one.",
        "## All tables",
        "Fit and predict are multiples of one `scipy.special.log_softmax` over the same logits in the same process. Memory is "
        "the peak beyond the input, in multiples of it. NLL is that of a second sample. An optimum is reached if the method's "
        f"own objective is within {ENOUGH:g} (relative) of its minimum, found independently in double precision. Where vector, "
        "matrix and Dirichlet maps missed it, the gap shown is a lower bound. It is certified if the optimality conditions, "
        "which the fit itself evaluates, are violated by no more than its tolerance. A cell that took longer than "
        "its limit was stopped and names it.",
    ]
    for n, m in sizes_of(rows):
        here = [r for r in rows if (r["rows"], r["classes"]) == (n, m)]
        parts += [f"### {n:,} x {m:,}", size_table(here)]
    return "\n\n".join(parts) + "\n"


def write_csv(path: Path, rows: list[Row]) -> None:
    fields = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        writer.writerows(rows)
