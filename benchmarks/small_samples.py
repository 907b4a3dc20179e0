"""Few calibration rows: is any calibrator ever much worse than none? And how the default of ``prior_rows`` was chosen.

    python benchmarks/small_samples.py [--data ../shared/logits] [--draws 30] [--sizes 20 50 100 200]
    python benchmarks/small_samples.py --search PARAMETER VALUE ... [--methods MCCT ...]

The first prints a Markdown table: NLL on the test part, less that of the uncalibrated classifier, mean and worst over all sets
and draws of a few calibration rows, and worst over the draws in which all labels are right; the largest loss that is allowed
stands beside them. Then the change that ``prior_rows`` makes when all rows are used.

With ``--search`` the test part is not read: fits on a few rows of the calibration part are judged on its other rows, once for
each value of the parameter (``prior_rows``, ``shrinkage``, or ``mild``: the share of the milder part of the prior).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_softmax

import monocal as mc
import pages
from command_line import add_logits, parser_of
from monocal import data
from monocal.core import cone as prior

METHODS: dict[str, type[mc.Calibrator]] = {
    "temperature": mc.TemperatureScaling,
    "MCCT": mc.MCCT,
    "conditional": mc.ConditionalMCCT,
}
# The most that any draw may lose.
LIMITS = {20: 0.30, 50: 0.15, 100: 0.08, 200: 0.05}
JUDGED = 1500


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
        found: dict[str, list[float]] = {name: [] for name in METHODS}
        all_right = []
        for splits in sets:
            test = rows_of(splits.test)
            for number in range(draws):
                rows = draw(splits.cal.n_samples, size, number)
                right = splits.cal.values[rows].argmax(axis=1) == splits.cal.labels[rows]
                all_right.append(bool(right.all()))
                for name, kind in METHODS.items():
                    found[name].append(excess(kind(), rows_of(splits.cal, rows), test))
            print(".", end="", file=sys.stderr, flush=True)
        cells = [str(size), f"{LIMITS[size]:.2f}" if size in LIMITS else ""]
        for name in METHODS:
            values = np.array(found[name])
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


@contextmanager
def milder(share: float) -> Iterator[None]:
    """Another share of the milder part of the prior."""
    before, prior.MILD_SHARE = prior.MILD_SHARE, share
    try:
        yield
    finally:
        prior.MILD_SHARE = before


def search(
    sets: list[data.Splits],
    sizes: list[int],
    draws: int,
    parameter: str,
    values: list[float],
    names: list[str],
) -> str:
    header = [parameter] + [f"{name}, {size}" for name in names for size in sizes]

    def measured(make: Callable[[], mc.Calibrator], size: int) -> str:
        found = []
        for splits in sets:
            for number in range(draws):
                order = np.random.default_rng([size, number, 1]).permutation(splits.cal.n_samples)
                rest = rows_of(splits.cal, order[size : size + JUDGED])
                found.append(excess(make(), rows_of(splits.cal, order[:size]), rest))
        return f"{np.mean(found):+.4f} / {np.max(found):+.3f}"

    lines = []
    for value in values:
        given = {} if parameter == "mild" else {parameter: value}
        with milder(value if parameter == "mild" else prior.MILD_SHARE):
            cells = [
                measured(lambda n=name, g=given: METHODS[n](**g), size) for name in names for size in sizes
            ]
        lines.append([f"{value:g}", *cells])
        print(lines[-1], file=sys.stderr, flush=True)
    return pages.table(header, lines)


def main() -> None:
    parser = parser_of(__doc__)
    add_logits(parser)
    parser.add_argument("--draws", type=int, default=30, help="draws of a few rows")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(LIMITS), help="how many are few rows")
    parser.add_argument(
        "--search", nargs="+", metavar=("PARAMETER", "VALUE"), help="compare values of a parameter instead"
    )
    parser.add_argument(
        "--methods",
        nargs="*",
        default=list(METHODS),
        choices=list(METHODS),
        metavar="NAME",
        help="with --search: which of temperature, MCCT and conditional",
    )
    options = parser.parse_args()
    sets = [place.read() for place in data.find(options.data)] if options.data.is_dir() else []
    if not sets:
        sys.exit(f"No logits in {options.data}: give a folder of sets with --data.")
    if options.search:
        parameter, *values = options.search
        print(
            search(sets, options.sizes, options.draws, parameter, [float(v) for v in values], options.methods)
        )
        return
    print(table(sets, options.sizes, options.draws), "\n")
    print(full_size(sets))


if __name__ == "__main__":
    main()
