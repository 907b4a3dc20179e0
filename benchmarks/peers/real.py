"""Structured scaling and monocal's combination on real classifier outputs: fitted on one part, judged on the other.

Every set of a folder, in this process: NLL, ECE (15 bins) and accuracy of each method. Sets whose parts differ in class
frequencies are shown but not averaged.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import pages

from .methods import METHODS
from .tables import Row

COMPARED = (
    "monocal/TemperatureScaling",
    "monocal/ConditionalMCCT",
    "probmetrics/SVS",
    "monocal/StructuredScaling vector",
    "probmetrics/SMS",
    "monocal/StructuredScaling",
    "monocal/StructuredMCCT",
)
RIVAL, OWN = "probmetrics/SMS", "monocal/StructuredMCCT"


def judge(folder: Path) -> list[Row]:
    """A row for every set and method."""
    from monocal import data, label_shift_test

    rows = []
    for place in data.find(folder):
        splits = place.read()
        cal, test = splits.cal, splits.test
        shifted = label_shift_test(cal.labels, test.labels, n_classes=cal.n_classes).shifted
        for name in COMPARED:
            print(f"{cal.name}: {name}", file=sys.stderr, flush=True)
            rows.append({"set": cal.name, "label_shift": shifted, "method": name} | _judged(name, cal, test))
    return rows


def _judged(name: str, cal: Any, test: Any) -> dict[str, Any]:
    from monocal import metrics

    method = METHODS[name]
    logits = [
        np.log(np.maximum(part.values, 1e-30)) if part.kind == "probabilities" else part.values
        for part in (cal, test)
    ]
    inputs = [method.prepare(np.ascontiguousarray(z, dtype=np.float32)) for z in logits]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = np.asarray(method.predict(method.fit(inputs[0], cal.labels), inputs[1]), dtype=np.float64)
    except Exception as error:  # a peer may fail in any way it likes: that is its row
        return {"failed": f"{type(error).__name__}: {error}"}
    p /= p.sum(axis=1, keepdims=True)
    return {
        "nll": float(metrics.nll(p, test.labels)),
        "ece": float(metrics.ece(p, test.labels)),
        "accuracy": float(metrics.accuracy(p, test.labels)),
    }


def table(rows: list[Row]) -> str:
    """NLL by set and method, the means of all three figures, and how often monocal's combination is below SMS."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    cell = {(row["set"], row["method"]): row for row in rows}
    shifted = {row["set"] for row in rows if row["label_shift"]}
    kept = [s for s in sets if s not in shifted and all("nll" in cell[s, m] for m in COMPARED)]

    def line(name: str) -> list[str]:
        row_cells = [cell[name, method] for method in COMPARED]
        best = min(one.get("nll", np.inf) for one in row_cells)
        shown = ["failed" if "nll" not in one else f"{one['nll']:.4f}" for one in row_cells]
        marked = [
            f"**{x}**" if one.get("nll") == best else x for x, one in zip(shown, row_cells, strict=True)
        ]
        return [name + (" (label shift)" if name in shifted else ""), *marked]

    def mean(key: str, times: float, digits: int) -> list[str]:
        return [f"{times * np.mean([cell[s, m][key] for s in kept]):.{digits}f}" for m in COMPARED]

    body = [line(name) for name in sets]
    if not kept:
        return pages.table(["NLL", *COMPARED], body)
    body += [
        [f"mean NLL of {len(kept)}", *mean("nll", 1, 4)],
        ["mean ECE, %", *mean("ece", 100, 2)],
        ["mean accuracy, %", *mean("accuracy", 100, 2)],
    ]
    below = sum(cell[s, OWN]["nll"] < cell[s, RIVAL]["nll"] for s in kept)
    sentence = f"{OWN} has a lower NLL than {RIVAL} on {below} of {len(kept)} sets without label shift."
    return f"{pages.table(['NLL', *COMPARED], body)}\n\n{sentence}"
