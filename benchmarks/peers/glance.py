"""The comparison at a glance: a line for each method that a user would pick, and what all pairs say together."""

from __future__ import annotations

import math

import pages

from .tables import ENOUGH, Row, number, pairs, sizes_of

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


def table(rows: list[Row]) -> str:
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
            *(fit(at.get(size)) for size in sizes),
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


def fit(row: Row | None) -> str:
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
