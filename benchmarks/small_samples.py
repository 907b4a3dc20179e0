"""Few calibration rows: is any calibrator ever much worse than none?

    python benchmarks/small_samples.py [--data ../shared/logits] [--draws 30] [--sizes 20 50 100 200]

Prints a Markdown table: NLL on the test part, less that of the uncalibrated classifier, mean and worst over all sets
and draws of a few calibration rows, and worst over the draws in which all labels are right; the largest loss that is allowed
is shown as well. Then the change that ``prior_rows`` makes when all rows are used.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_softmax

import monocal as mc
import pages
from monocal import data

METHODS: dict[str, type[mc.Calibrator]] = {
    "temperature": mc.TemperatureScaling,
    "MCCT": mc.MCCT,
    "conditional": mc.ConditionalMCCT,
}
# The most that any draw may lose.
LIMITS = {20: 0.30, 50: 0.15, 100: 0.08, 200: 0.05}


@dataclass(frozen=True, eq=False)
class Rows:
    """Logits, labels, and the NLL without calibration."""

    values: np.ndarray
    labels: np.ndarray

    @cached_property
    def uncalibrated(self) -> float:
        return nll(self.values, self.labels)


def nll(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(-log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(labels)), labels].mean())


def excess(model: mc.Calibrator, fitted: Rows, judged: Rows) -> float:
    """NLL of a fit on some rows, less that of no calibration."""
    model.fit(fitted.values, fitted.labels)
    return nll(model.transform(judged.values), judged.labels) - judged.uncalibrated


def rows_of(part: data.LogitsSet, rows: np.ndarray | slice = slice(None)) -> Rows:
    return Rows(part.values[rows], part.labels[rows])


def draw(n_rows: int, size: int, number: int) -> np.ndarray:
    return np.random.default_rng([size, number]).permutation(n_rows)[:size]


def table(sets: list[data.Splits], sizes: list[int], draws: int) -> str:
    header = ["rows", "largest allowed"]
    for name in METHODS:
        header += [f"{name}: mean", "worst", "all labels right: worst"]
    lines = []
    for size in sizes:
        measured: dict[str, list[float]] = {name: [] for name in METHODS}
        all_right = []
        for splits in sets:
            test = rows_of(splits.test)
            for number in range(draws):
                rows = draw(splits.cal.n_samples, size, number)
                right = splits.cal.values[rows].argmax(axis=1) == splits.cal.labels[rows]
                all_right.append(bool(right.all()))
                for name, kind in METHODS.items():
                    measured[name].append(excess(kind(), rows_of(splits.cal, rows), test))
            print(".", end="", file=sys.stderr, flush=True)
        cells = [str(size), f"{LIMITS[size]:.2f}" if size in LIMITS else ""]
        for name in METHODS:
            values = np.array(measured[name])
            certain = values[np.array(all_right)]
            worst = f"{certain.max():+.3f} ({len(certain)} draws)" if len(certain) else "no such draw"
            cells += [f"{values.mean():+.3f}", f"{values.max():+.3f}", worst]
        lines.append(cells)
    print(file=sys.stderr)
    return pages.table(header, lines)


def full_size(sets: list[data.Splits]) -> str:
    """The change that the prior makes to the NLL of fits on all rows."""
    lines = []
    for name, kind in METHODS.items():
        change = [
            excess(kind(), rows_of(s.cal), rows_of(s.test))
            - excess(kind(prior_rows=0), rows_of(s.cal), rows_of(s.test))
            for s in sets
        ]
        lines.append([name, f"{np.mean(change):+.5f}", f"{min(change):+.5f}", f"{max(change):+.5f}"])
    return pages.table(["change of NLL by the prior, all rows", "mean", "lowest", "highest"], lines)


def main() -> None:
    parser = pages.parser_of(__doc__)
    pages.add_logits(parser)
    parser.add_argument("--draws", type=int, default=30, help="draws of a few rows")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(LIMITS), help="how many are few rows")
    options = parser.parse_args()
    sets = [place.read() for place in data.find(options.data)] if options.data.is_dir() else []
    if not sets:
        sys.exit(f"No logits in {options.data}: give a folder of sets with --data.")
    print(table(sets, options.sizes, options.draws), "\n")
    print(full_size(sets))


if __name__ == "__main__":
    main()
