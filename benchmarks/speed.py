"""What fitting and predicting cost, in units of one ``scipy.special.log_softmax`` pass over the same array.

    python benchmarks/speed.py [--threads 1 2] [--csv FILE] [--docs]      all tables
    python benchmarks/speed.py --threads 1 4 16 --only scaling            one fit on more and more cores
    python benchmarks/speed.py --threads 1 --only growth --csv FILE       rows, classes and jumps over two decades

Machines differ and are noisy, so times are ratios within one process, the best of several runs, and each number of threads
has a process of its own. Peak memory is what Python and numpy allocate beyond the input (tracemalloc), as a multiple of the
input. *Rounded* logits are multiples of 1/1024, as half precision leaves them: nearly every row has ties. *Single rows*: one
row of ten classes, in milliseconds. Growth: time a logit while rows, classes or jumps grow a hundredfold. Profile: the stages of
one fit at the largest size.
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
ROUNDED = "rounded logits"
# Growth: what grows, over two decades, and what it is compared with.
ROWS, CLASSES, JUMPS = (1000, 3000, 10_000, 30_000, 100_000), (10, 30, 100, 300, 1000), (1, 3, 10, 30, 100)
PARTS = ("times", "growth", "single", "profile", "scaling")


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
    from monocal.engines import numba_engine

    kept, numba_engine.available = numba_engine.available, lambda: False
    try:
        yield
    finally:
        numba_engine.available = kept


def logits_of(n, m):
    import numpy as np

    from monocal.data import synthetic

    data = synthetic(n, m, seed=0, keep_truth=False)
    return np.ascontiguousarray(data.values, dtype=np.float32), data.labels


def rounded(z):
    return (z * 1024).round() / 1024


def map_with_jumps(jumps, m):
    """A map whose weights and biases jump at so many ranks, all over the row and more of them near its top."""
    import numpy as np

    from monocal.calibrators.rank_map import RankMap

    near = m - np.unique(np.geomspace(1, m - 1, jumps + 1).astype(int))[: max(jumps // 2, 1)]
    far = np.linspace(1, m - 1, 4 * jumps).astype(int)
    far = far[~np.isin(far, near)]
    starts = np.sort(np.concatenate([near, far[np.linspace(0, len(far) - 1, jumps - len(near)).astype(int)]]))
    steps = np.random.default_rng(0).uniform(0.01, 0.1, (2, 1, jumps + 1))
    steps[0, :, 1::2], steps[1, :, ::2] = 0.0, 0.0  # weights and biases in turn
    return RankMap(np.append(0, starts), steps[0], steps[1])


def measure(n, m, repeats):
    from scipy.special import log_softmax

    z, y = logits_of(n, m)
    unit = best_time(lambda: log_softmax(z, axis=1), 5)

    def row_of(name, cal, z=z):
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
        import monocal as mc

        coarse = rounded(z)
        yield row_of(f"MCCT, {ROUNDED}", mc.MCCT(), coarse)
        yield row_of(f"ConditionalMCCT, {ROUNDED}", mc.ConditionalMCCT(), coarse)
        for name, logits in (("36 jumps", z), (f"36 jumps, {ROUNDED}", coarse)):
            rank_map = map_with_jumps(36, m)
            rank_map.apply(logits, "probabilities")
            predict = best_time(lambda f=rank_map.apply, x=logits: f(x, "probabilities"), repeats) / unit
            yield {"rows": n, "classes": m, "method": name, "unit_ms": 1e3 * unit, "predict": predict}
        with without_loops():
            yield row_of("MCCT, without numba", next(c for name, c in calibrators(m) if name == "MCCT"))
    try:
        import numpy as np

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
    from monocal.core.rows import Rows
    from monocal.data import synthetic
    from monocal.inputs.reader import ArraySource

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

    prepare, sum_ = ArraySource.prepare, Rows.sum

    def timed_sum(self, function, *args):
        what = "labels and moments" if function == "totals" else "evaluations"
        return timed(
            f"{what}, {'all rows' if self.n_rows == n else 'coarse copy'}", sum_, self, function, *args
        )

    mc.MCCT().fit(z, y)
    ArraySource.prepare = lambda *args, **keywords: timed(
        "sorting rows, finding labels", prepare, *args, **keywords
    )
    Rows.sum = timed_sum
    try:
        begin = time.perf_counter()
        mc.MCCT().fit(z, y)
        whole = time.perf_counter() - begin
    finally:
        ArraySource.prepare, Rows.sum = prepare, sum_
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


def growth(repeats):
    """Nanoseconds a logit of `MCCT`, while one number grows a hundredfold."""
    import monocal as mc

    def fit_and_predict(n, m):
        z, y = logits_of(n, m)
        cal = mc.MCCT().fit(z, y)
        cal.predict_proba(z)
        runs = repeats if z.size > 1e6 else 5 * repeats
        fit, predict = (
            best_time(lambda f=f: f(), runs) for f in (lambda: cal.fit(z, y), lambda: cal.predict_proba(z))
        )
        return {"rows": n, "classes": m, "fit_ns": 1e9 * fit / z.size, "predict_ns": 1e9 * predict / z.size}

    for n in ROWS:
        yield {"growth": "rows", **fit_and_predict(n, 100)}
    for m in CLASSES:
        yield {"growth": "classes", **fit_and_predict(10_000, m)}
    z, _ = logits_of(5000, 1000)
    for jumps in JUMPS:
        rank_map = map_with_jumps(jumps, 1000)
        rank_map.apply(z, "probabilities")
        seconds = best_time(lambda f=rank_map.apply: f(z, "probabilities"), repeats)
        yield {
            "growth": "jumps",
            "rows": 5000,
            "classes": 1000,
            "jumps": jumps,
            "predict_ns": 1e9 * seconds / z.size,
        }


def single_rows():
    """Milliseconds for one row of ten classes, after a warm-up."""
    z, y = logits_of(2000, 10)
    for name, cal in calibrators(10):
        cal.fit(z, y)
        yield {"single": name, "ms": 1e3 * best_time(lambda cal=cal: cal.predict_proba(z[:1]), 1000)}


def scaling(n, m, repeats):
    """One fit and one prediction, to be compared between numbers of threads."""
    import monocal as mc

    z, y = logits_of(n, m)
    for name, make in (("MCCT", mc.MCCT), ("ConditionalMCCT", mc.ConditionalMCCT)):
        cal = make().fit(z, y)
        cal.predict_proba(z)
        fit = best_time(lambda cal=cal: cal.fit(z, y), repeats)
        predict = best_time(lambda cal=cal: cal.predict_proba(z), repeats)
        yield {"rows": n, "classes": m, "scaling": name, "fit_ms": 1e3 * fit, "predict_ms": 1e3 * predict}


def child(sizes, repeats, parts):
    rows = []
    if "times" in parts:
        rows += [row for n, m in sizes for row in measure(n, m, repeats if n * m > 1e6 else 5 * repeats)]
    if "growth" in parts:
        rows += growth(repeats)
    if "single" in parts:
        rows += single_rows()
    if "profile" in parts:
        rows += profile(*sizes[-1])
    if "scaling" in parts:
        rows += scaling(*sizes[-1], repeats)
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
    lines = [
        [size_of(r), r["method"], *(shown(r, *c) for c in COLUMNS.values())] for r in rows if "unit_ms" in r
    ]
    return pages.table(["rows x classes", "method", *COLUMNS], lines, words=2)


def growth_table(rows):
    lines = [
        [
            r["growth"],
            size_of(r),
            str(r.get("jumps", "")),
            shown(r, "fit_ns", ".1f"),
            shown(r, "predict_ns", ".2f"),
        ]
        for r in rows
        if "growth" in r
    ]
    return pages.table(
        ["what grows", "rows x classes", "jumps", "`MCCT` fit, ns per logit", "predict"], lines, words=2
    )


def single_line(rows):
    times = ", ".join(f"`{r['single']}` {r['ms']:.3f}" for r in rows if "single" in r)
    return f"One row of ten classes, `predict_proba` in ms: {times}."


def scaling_table(by_threads):
    """One line a method and number of threads, compared with the first number."""
    first = {r["scaling"]: r for r in next(iter(by_threads.values())) if "scaling" in r}
    lines = []
    for threads, rows in by_threads.items():
        for r in (r for r in rows if "scaling" in r):
            base = first[r["scaling"]]
            parts = [f"{r[k]:.0f} ({r[k] / base[k]:.2f})" for k in ("fit_ms", "predict_ms")]
            lines.append([r["scaling"], str(threads), *parts])
    return pages.table([f"{size_of(first['MCCT'])}", "threads", "fit, ms (of the first)", "predict"], lines)


def profile_table(rows):
    stages = [r for r in rows if "stage" in r]
    lines = [[r["stage"], str(r["calls"]), f"{r['passes']:.2f}"] for r in stages]
    return pages.table([f"stage of one `MCCT` fit, {size_of(stages[0])}", "times", "passes"], lines)


def report(by_threads):
    """All tables, one number of threads after the other."""
    parts = [pages.setting("numpy", "scipy", "scikit-learn", "numba")]
    for threads, rows in by_threads.items():
        name = {1: "One thread", 2: "Two threads"}.get(threads, f"{threads} threads")
        tables = {
            "unit_ms": times_table,
            "single": single_line,
            "growth": growth_table,
            "stage": profile_table,
        }
        shown_tables = [shows(rows) for key, shows in tables.items() if any(key in r for r in rows)]
        parts += [f"{name}:", *shown_tables] if shown_tables else []
    if any("scaling" in r for rows in by_threads.values() for r in rows):
        parts.append(scaling_table(by_threads))
    return "\n\n".join(parts)


IN_THE_README = ("TemperatureScaling", "MCCT", "ConditionalMCCT", "scikit-learn temperature")


def summary(by_threads):
    """The largest size on one thread: what the README shows."""
    timed = [r for r in by_threads[1] if "unit_ms" in r]
    largest = size_of(max(timed, key=lambda r: r["rows"] * r["classes"]))
    lines = [
        [r["method"], shown(r, "fit", ".1f"), shown(r, "predict", ".1f"), f"{r['fit_ms']:.0f}"]
        for r in timed
        if size_of(r) == largest and r["method"] in IN_THE_README
    ]
    header = [f"{largest} float32, one thread", "fit", "predict", "fit, ms"]
    setting = pages.setting("numpy", "scipy", "scikit-learn", "numba")
    return f"{pages.table(header, lines)}\n\n{setting}"


def main():
    parser = pages.parser_of(__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="how many; each has a process")
    parser.add_argument("--repeats", type=int, default=3, help="runs, of which the fastest counts")
    parser.add_argument(
        "--sizes", nargs="+", default=[f"{n}x{m}" for n, m in SIZES], help="rows x classes, as 5000x100"
    )
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=[p for p in PARTS if p != "scaling"], help="which tables"
    )
    parser.add_argument("--csv", help="a file for the numbers of the tables")
    parser.add_argument(
        "--docs", action="store_true", help="write the tables into README.md and docs/performance.md"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.docs and not {1, 2} <= set(options.threads):
        parser.error("--docs compares one thread with two: measure both")
    sizes = [tuple(map(int, s.split("x"))) for s in options.sizes]
    if options.child:
        child(sizes, options.repeats, options.only)
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
            "--only",
            *options.only,
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
