"""What fitting and predicting cost, in units of one ``scipy.special.log_softmax`` pass over the same array.

    python benchmarks/speed.py [--threads 1 2] [--csv FILE] [--docs]

Machines differ and are noisy, so times are ratios within one process, the best of several runs, and each number of threads
has a process of its own. Peak memory is what Python and numpy allocate beyond the input (tracemalloc), as a multiple of the
input. Growth: the same fit on 1, 2 and 4 times as many rows. Profile: the stages of one fit at the largest size.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
import tracemalloc
from contextlib import contextmanager

import pages

SIZES = [(5000, 10), (5000, 100), (25_000, 1000)]


def best_time(function, repeats):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def peak_memory(function):
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def calibrators(m):
    import monocal as mc

    yield "TemperatureScaling", mc.TemperatureScaling()
    yield "MCCT", mc.MCCT()
    yield "MCCT, shrinkage=0", mc.MCCT(shrinkage=0)
    if m > 100:
        yield "MCCT, top_k=100", mc.MCCT(top_k=100)
    yield "ConditionalMCCT", mc.ConditionalMCCT()


@contextmanager
def without_loops():
    """As if numba were not installed."""
    from monocal.kernel import compiled

    kept, compiled.available = compiled.available, lambda: False
    try:
        yield
    finally:
        compiled.available = kept


def measure(n, m, repeats):
    import numpy as np
    from scipy.special import log_softmax

    from monocal.data import synthetic

    data = synthetic(n, m, seed=0, keep_truth=False)
    z, y = np.ascontiguousarray(data.values, dtype=np.float32), data.labels
    unit = best_time(lambda: log_softmax(z, axis=1), 5)

    def row_of(name, cal):
        row = {"rows": n, "classes": m, "method": name, "unit_ms": 1e3 * unit}
        cal.fit(z, y)  # what is compiled or imported on first use is not counted
        row["fit"] = best_time(lambda: cal.fit(z, y), repeats) / unit
        row["predict"] = best_time(lambda: cal.predict_proba(z), repeats) / unit
        row["fit_ms"] = row["fit"] * unit * 1e3
        row["fit_memory"] = peak_memory(lambda: cal.fit(z, y)) / z.nbytes
        row["predict_memory"] = peak_memory(lambda: cal.predict_proba(z)) / z.nbytes
        row["kkt"] = cal.solution_.kkt
        row["full_passes"] = sum(step.rows == n for step in cal.solution_.history)
        return row

    for name, cal in calibrators(m):
        yield row_of(name, cal)
    if n * m >= 2**22:
        with without_loops():
            yield row_of("MCCT, without numba", next(c for name, c in calibrators(m) if name == "MCCT"))
    try:
        y_all = y.copy()
        y_all[:m] = np.arange(m)  # scikit-learn needs every class to be present
        from sklearn_peer import calibrated

        fit = best_time(lambda: calibrated(z, y_all, "temperature"), 2)
        peer = calibrated(z, y_all, "temperature")
        predict = best_time(lambda: peer.predict_proba(z), repeats)
        yield {
            "rows": n,
            "classes": m,
            "method": "scikit-learn temperature",
            "unit_ms": 1e3 * unit,
            "fit": fit / unit,
            "predict": predict / unit,
            "fit_ms": 1e3 * fit,
        }
    except (ImportError, ValueError) as error:
        print(f"scikit-learn's temperature scaling was left out: {error}", file=sys.stderr)


def profile(n, m):
    """Where the time of one fit goes: stages and their cost in passes."""
    import numpy as np
    from scipy.special import log_softmax

    import monocal as mc
    from monocal.data import synthetic
    from monocal.rows.memory import MemoryRows

    data = synthetic(n, m, seed=0, keep_truth=False)
    z, y = np.ascontiguousarray(data.values, dtype=np.float32), data.labels
    unit = best_time(lambda: log_softmax(z, axis=1), 5)
    spent = {}

    def timed(stage, function, *args, **keywords):
        begin = time.perf_counter()
        result = function(*args, **keywords)
        calls, seconds = spent.get(stage, (0, 0.0))
        spent[stage] = calls + 1, seconds + time.perf_counter() - begin
        return result

    prepare, sum_ = MemoryRows.prepare, MemoryRows.sum

    def timed_sum(self, function, *args):
        what = "labels and moments" if function.__name__ == "totals" else "evaluations"
        return timed(
            f"{what}, {'all rows' if self.n_rows == n else 'coarse copy'}", sum_, self, function, *args
        )

    mc.MCCT().fit(z, y)
    MemoryRows.prepare = lambda *args, **keywords: timed(
        "sorting rows, finding labels", prepare, *args, **keywords
    )
    MemoryRows.sum = timed_sum
    try:
        begin = time.perf_counter()
        mc.MCCT().fit(z, y)
        whole = time.perf_counter() - begin
    finally:
        MemoryRows.prepare, MemoryRows.sum = prepare, sum_
    spent["the rest (checks, solver)"] = 1, whole - sum(seconds for _, seconds in spent.values())
    spent["whole fit"] = 1, whole
    for stage, (calls, seconds) in spent.items():
        yield {
            "rows": n,
            "classes": m,
            "method": "MCCT profile",
            "stage": stage,
            "calls": calls,
            "passes": seconds / unit,
        }


def growth(m, repeats):
    import numpy as np

    import monocal as mc
    from monocal.data import synthetic

    base = None
    for factor in (1, 2, 4):
        data = synthetic(6000 * factor, m, seed=1, keep_truth=False)
        z = np.ascontiguousarray(data.values, dtype=np.float32)
        if base is None:
            mc.MCCT().fit(z, data.labels)  # what is compiled or imported on first use is not counted
        seconds = best_time(lambda z=z, y=data.labels: mc.MCCT().fit(z, y), repeats)
        base = base or seconds
        yield {"rows": 6000 * factor, "classes": m, "method": "MCCT growth", "relative": seconds / base}


def child(sizes, repeats):
    rows = [row for n, m in sizes for row in measure(n, m, repeats if n * m > 1e6 else 5 * repeats)]
    rows += growth(1000, repeats)
    rows += profile(*sizes[-1])
    print(json.dumps(rows))


COLUMNS = {
    "fit, passes": ("fit", ".1f"),
    "predict, passes": ("predict", ".2f"),
    "fit, ms": ("fit_ms", ".0f"),
    "memory of fit": ("fit_memory", ".2f"),
    "of predict": ("predict_memory", ".2f"),
    "evaluations of all rows": ("full_passes", "d"),
}


def shown(row, column, form):
    return format(row[column], form) if row.get(column) is not None else ""


def size_of(row):
    return f"{row['rows']:,} x {row['classes']:,}"


def times_table(rows):
    lines = [[size_of(r), r["method"], *(shown(r, *c) for c in COLUMNS.values())] for r in rows if "fit" in r]
    return pages.table(["rows x classes", "method", *COLUMNS], lines, words=2)


def growth_line(rows):
    steps = ", ".join(f"{r['rows']:,} rows {r['relative']:.2f}" for r in rows if "relative" in r)
    return f"Growth of the `MCCT` fit with the rows (1000 classes), relative to the smallest: {steps}."


def profile_table(rows):
    stages = [r for r in rows if "stage" in r]
    lines = [[r["stage"], str(r["calls"]), f"{r['passes']:.2f}"] for r in stages]
    return pages.table([f"stage of one `MCCT` fit, {size_of(stages[0])}", "times", "passes"], lines)


def report(by_threads):
    """All tables, one number of threads after the other."""
    parts = [pages.setting("numpy", "scipy", "scikit-learn", "numba")]
    for threads, rows in by_threads.items():
        name = {1: "One thread", 2: "Two threads"}.get(threads, f"{threads} threads")
        parts += [f"{name}:", times_table(rows), growth_line(rows), profile_table(rows)]
    return "\n\n".join(parts)


def summary(by_threads):
    """The largest size, on one thread beside two: what the README shows."""
    one, two = ({(r["method"], size_of(r)): r for r in by_threads[t] if "fit" in r} for t in (1, 2))
    largest = size_of(max(one.values(), key=lambda r: r["rows"] * r["classes"]))
    lines = [
        [
            method,
            *(shown(rows[method, size], c, ".1f") for c in ("fit", "predict") for rows in (one, two)),
            shown(r, "fit_memory", ".2f"),
        ]
        for (method, size), r in one.items()
        if size == largest
    ]
    header = ["fit, one thread", "two threads", "predict, one thread", "two threads", "memory of fit"]
    small = " and ".join(
        f"{r['fit_ms']:.0f} ms on {size}"
        for (name, size), r in one.items()
        if name == "MCCT" and size != largest
    )
    return "\n\n".join(
        [
            pages.table([f"{largest} float32, to the certificate", *header], lines),
            f"{pages.setting('numpy', 'scipy', 'scikit-learn', 'numba')} Memory is beyond the input, in multiples of it. "
            f"`MCCT` takes {small}.",
        ]
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--sizes", nargs="+", default=[f"{n}x{m}" for n, m in SIZES], help="rows x classes, as 5000x100"
    )
    parser.add_argument("--csv")
    parser.add_argument(
        "--docs", action="store_true", help="write the tables into README.md and docs/performance.md"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.docs and not {1, 2} <= set(options.threads):
        parser.error("--docs shows one thread beside two: measure both")
    sizes = [tuple(map(int, s.split("x"))) for s in options.sizes]
    if options.child:
        child(sizes, options.repeats)
        return
    by_threads = {}
    for threads in options.threads:
        limit = {
            name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        }
        command = [
            sys.executable,
            __file__,
            "--child",
            "--repeats",
            str(options.repeats),
            "--sizes",
            *options.sizes,
        ]
        result = subprocess.run(
            command, env={**os.environ, **limit}, stdout=subprocess.PIPE, text=True, check=True
        )
        by_threads[threads] = json.loads(result.stdout.splitlines()[-1])
    print(report(by_threads))
    if options.docs:
        pages.write_into("docs/performance.md", "speed", report(by_threads))
        pages.write_into("README.md", "speed", summary(by_threads))
    if options.csv:
        everything = [{"threads": threads, **r} for threads, rows in by_threads.items() for r in rows]
        fields = list(dict.fromkeys(key for row in everything for key in row))
        with open(options.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, fields)
            writer.writeheader()
            writer.writerows(everything)


if __name__ == "__main__":
    main()
