"""What the finished cells say: the paper's tables and its further ones, and every cell as a row of a CSV file.

Table 1  ECE, 15 bins          Table 4  NLL                 Table 6  change of accuracy
Table 2  ECE by kernels        Table 5  Brier score         Table 7  rows whose order changed
Table 3  EQ-BIN ECE
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from monocal.data import atomic_path

from .cells import Cell
from .columns import METHODS
from .plan import Plan
from .running import Results
from .tables import Table, mean_and_spread

CAPPED, FAILED = "†", "‡"


@dataclass(frozen=True)
class _Measure:
    metric: str
    title: str
    caption: str
    unit: float
    decimals: int = 2
    higher_is_better: bool = False


_TABLES = (
    _Measure("ece", "Table 1: ECE", "Expected calibration error, 15 bins, in %.", 100),
    _Measure("kde_ece", "Table 2: ECE-KDE", "Calibration error by kernel density estimation, in %.", 100),
    _Measure("eq_bin_ece", "Table 3: EQ-BIN ECE", "Sum of gaps over bins of 1000 samples, times 10.", 10),
    _Measure("nll", "Table 4: NLL", "Negative log-likelihood, in nats.", 1, 4),
    _Measure("brier", "Table 5: Brier score", "Sum of squared errors, times 100.", 100),
    _Measure(
        "accuracy_change",
        "Table 6: change of accuracy",
        "Accuracy after less accuracy before, in percentage points; the largest in bold.",
        100,
        higher_is_better=True,
    ),
    _Measure(
        "rows_reordered",
        "Table 7: rows whose order changed",
        "Test rows in which two classes swapped their order, in %.",
        100,
    ),
)


def make_tables(plan: Plan, results: Results) -> list[Table]:
    """All tables of a run."""
    shape = (len(plan.datasets), len(plan.methods))
    cells: dict[tuple[int, int], list[Cell]] = {}
    rows = {dataset: i for i, dataset in enumerate(plan.datasets)}
    columns = {method: j for j, method in enumerate(plan.methods)}
    for cell in plan.tables:
        cells.setdefault((rows[cell.dataset], columns[cell.method]), []).append(cell)
    marks: dict[tuple[int, int], str] = {}
    for place, group in cells.items():
        capped = CAPPED if any(c.top_k is not None for c in group) else ""
        failed = FAILED if any(results[c]["status"] != "done" for c in group) else ""
        if capped or failed:
            marks[place] = capped + failed
    note = ""
    if any(CAPPED in mark for mark in marks.values()):
        note += f" {CAPPED} The published optimiser was given the top {plan.settings.table_ranks} ranks only."
    if any(FAILED in mark for mark in marks.values()):
        note += f" {FAILED} Failed in at least one run; see the list of what was not run."
    paper = tuple(j for j, m in enumerate(plan.methods) if METHODS[m].in_paper)
    tables = []
    for measure in _TABLES:
        mean, spread = np.full(shape, np.nan), np.full(shape, np.nan)
        for place, group in cells.items():
            values = [results[c]["metrics"][measure.metric] for c in group if results[c]["status"] == "done"]
            mean[place], spread[place] = (measure.unit * v for v in mean_and_spread(values))
        tables.append(
            Table(
                measure.title,
                measure.caption + note,
                tuple(d.name for d in plan.datasets),
                tuple(METHODS[m].label for m in plan.methods),
                mean,
                spread,
                measure.decimals,
                measure.higher_is_better,
                marks,
                paper,
            )
        )
    return tables


def write_csv(path: Path, plan: Plan, results: Results) -> None:
    """One line per cell, in the order of the plan."""
    rows = [_flat(cell, results[cell]) for cell in (*plan.tables, *plan.sizes, *plan.ranks)]
    unique = list({row["file"]: row for row in rows}.values())
    names = list(dict.fromkeys(name for row in unique for name in row))
    with (
        atomic_path(path, force=True) as temporary,
        open(temporary, "w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(unique)


def _flat(cell: Cell, result: dict[str, Any]) -> dict[str, Any]:
    return {
        "set": cell.dataset.name,
        "n_classes": cell.dataset.n_classes,
        "method": METHODS[cell.method].label,
        "seed": cell.seed,
        "n_cal": cell.n_cal or cell.dataset.n_cal,
        "n_test": cell.dataset.n_test,
        "top_k": cell.top_k or cell.dataset.n_classes,
        "status": result["status"],
        **result["metrics"],
        **{k: v for k, v in result["times"].items() if k != "finished"},
        "file": cell.file_name,
    }
