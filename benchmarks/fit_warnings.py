"""What a fit decides and warns of, on simulated rows: noise that is used, biases that are named, maps that are worse than none.

    python benchmarks/fit_warnings.py [--trials 100]

Noise: how often the second stage uses a column of five random categories (5 % at most), on calibrated and over-confident rows, by
the number of rows and by weights. Bias: one class of several shifted by a number of logits; what the order costs in accuracy, and
how often `ConditionalMCCT` warns. Folds: how often a map with little shrinkage warns of held-out folds, and what it does to the
NLL of 3,000 new rows, in the trials with and without a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import log_softmax

import monocal as mc
import pages
from command_line import parser_of

BIASES = [(3, 0, 3.0), (4, 3, -2.0), (4, 3, -4.0), (10, 0, 2.0), (10, 0, 4.0), (10, 3, -4.0), (20, 0, 4.0)]
MAPS: dict[str, Callable[[], mc.Calibrator]] = {
    "ConditionalMCCT()": mc.ConditionalMCCT,
    "MCCT()": mc.MCCT,
    "MCCT(shrinkage=0, prior_rows=0)": lambda: mc.MCCT(shrinkage=0, prior_rows=0),
    "ConditionalMCCT(shrinkage=.5, prior_rows=0)": lambda: mc.ConditionalMCCT(shrinkage=0.5, prior_rows=0),
}


def fit(cal: mc.Calibrator, *rows: Any, **keywords: Any) -> list[str]:
    """Fit, and return what was warned of."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        cal.fit(*rows, **keywords)
    return [str(one.message) for one in caught if one.category is mc.CalibrationWarning]


def noise(n: int, heavy: bool, trials: int) -> list[str]:
    used = 0
    for trial in range(trials):
        rng = np.random.default_rng([trial, n])
        data = mc.data.synthetic(n, 5, seed=trial)
        weight = np.where(rng.random(n) < 0.05, 20.0, 1.0) if heavy else None
        cal = mc.ConditionalMCCT(by_class=False)
        fit(cal, data.values, data.labels, weight, context={"noise": rng.integers(0, 5, n)})
        used += cal.adjustment_.column_scales[0].variance > 0
    return [f"{n:,}", "5 % of weight 20" if heavy else "equal", f"{100 * used / trials:.1f}"]


def bias(m: int, j: int, by: float, trials: int) -> list[str]:
    cost, warned = 0.0, 0
    for trial in range(trials):
        data = mc.data.synthetic(2000, m, overconfidence=1.0, seed=trial)
        z = data.values + by * np.eye(m)[j]
        right, left = ((x.argmax(axis=1) == data.labels).mean() for x in (data.values, z))
        cost += right - left
        warned += any("StructuredMCCT" in text for text in fit(mc.ConditionalMCCT(), z, data.labels))
    return [
        f"{m} classes, class {j} by {by:+g}",
        f"{100 * cost / trials:.1f}",
        f"{100 * warned / trials:.0f}",
    ]


def folds(name: str, n: int, m: int, trials: int) -> list[str]:
    harm: dict[bool, list[float]] = {True: [], False: []}
    for trial in range(trials):
        data = mc.data.synthetic(n, m, overconfidence=1.0, seed=trial)
        cal = MAPS[name]()
        warned = any("held out" in text for text in fit(cal, data.values, data.labels))
        new = mc.data.synthetic(3000, m, overconfidence=1.0, seed=10_000 + trial)
        at = np.arange(3000), new.labels
        before, after = (
            log_softmax(x.astype(float), axis=1)[at] for x in (new.values, cal.transform(new.values))
        )
        harm[warned].append(float((before - after).mean()))
    change = [f"{np.mean(x):+.4f}" if x else "" for x in harm.values()]
    return [name, f"{n:,} x {m}", f"{100 * len(harm[True]) / trials:.0f}", *change]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--trials", type=int, default=100, help="simulated fits for each line of the table")
    trials = parser.parse_args().trials
    sizes = [(n, heavy) for heavy in (False, True) for n in (1000, 5000, 20_000)]
    lines = [noise(n, heavy, max(10, trials * 1000 // n)) for n, heavy in sizes]
    print(pages.table(["rows", "weights", "noise is used, %"], lines, words=2), flush=True)
    lines = [bias(*case, max(5, trials // 10)) for case in BIASES]
    print(pages.table(["bias", "the order costs, points", "warned, %"], lines), flush=True)
    shapes = [(name, n, m) for name in MAPS for n, m in ((60, 5), (200, 30), (500, 5))]
    lines = [folds(*case, max(10, trials // 4)) for case in shapes]
    header = ["map of calibrated rows", "rows x classes", "warned, %", "NLL where warned", "NLL elsewhere"]
    print(pages.table(header, lines))


if __name__ == "__main__":
    main()
