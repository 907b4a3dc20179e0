"""What structured scaling costs beside `ConditionalMCCT`: time and memory of a fit on the same array, in one process.

    python benchmarks/structured.py [--sizes 5000x10 8000x100 ...] [--repeats 3]

Prints a Markdown table. Time is the best of several fits, in units of the best of `ConditionalMCCT`; memory is the peak of what
Python and numpy allocate beyond the input (tracemalloc), as a multiple of the input. Matrix forms are left out above 200 classes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import monocal as mc
import pages
from command_line import parser_of
from monocal.data import synthetic
from speed import best_time, peak_memory

SIZES = ["5000x10", "5000x100", "8000x100", "8000x200", "25000x1000"]
MOST_PAIRED = 200
METHODS: dict[str, Callable[[], mc.Calibrator]] = {
    "ConditionalMCCT()": mc.ConditionalMCCT,
    'StructuredScaling(kind="vector")': lambda: mc.StructuredScaling(kind="vector"),
    "StructuredScaling()": mc.StructuredScaling,
    'StructuredScaling(kind="vector", shrinkage="cv")': lambda: mc.StructuredScaling(
        kind="vector", shrinkage="cv"
    ),
    'StructuredScaling(shrinkage="cv")': lambda: mc.StructuredScaling(shrinkage="cv"),
    'StructuredMCCT(kind="vector")': lambda: mc.StructuredMCCT(kind="vector"),
    'StructuredMCCT(kind="matrix")': lambda: mc.StructuredMCCT(kind="matrix"),
}


def is_paired(model: mc.Calibrator) -> bool:
    return getattr(model, "kind", "vector") == "matrix"


def measure(n: int, m: int, repeats: int) -> list[list[str]]:
    data = synthetic(n, m, seed=0, keep_truth=False)
    z, y = np.ascontiguousarray(data.values, dtype=np.float32), data.labels
    lines, unit = [], 0.0
    for name, make in METHODS.items():
        if is_paired(make()) and m > MOST_PAIRED:
            continue
        make().fit(z[:500], y[:500])  # what is compiled or imported on first use is not counted
        took = best_time(lambda make=make: make().fit(z, y), repeats)
        unit = unit or took
        memory = peak_memory(lambda make=make: make().fit(z, y)) / z.nbytes
        lines.append([f"{n:,} x {m:,}", name, f"{took:.2f}", f"{took / unit:.1f}", f"{memory:.1f}"])
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="rows x classes, as 5000x100")
    parser.add_argument("--repeats", type=int, default=3, help="fits, of which the fastest counts")
    options = parser.parse_args()
    lines = []
    for size in options.sizes:
        lines += measure(*map(int, size.split("x")), options.repeats)
    header = ["rows x classes", "method", "fit, s", "in fits of ConditionalMCCT", "memory"]
    print(pages.table(header, lines))


if __name__ == "__main__":
    main()
