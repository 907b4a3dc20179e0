"""Fit and calibrate rows larger than memory: time and peak memory, and whether the fit is that in memory.

    python benchmarks/streaming.py                                      a minute: 200,000 x 1000 in a file, 0.8 GB
    python benchmarks/streaming.py --rows 10000000                      40 GB in a file (twice that on the disk with the result)
    python benchmarks/streaming.py --rows 10000000 --generated          as many from a function that gives blocks, without a file

Every stage runs in a process of its own, whose peak resident memory the system reports. The fit in memory, to compare
with, runs where the rows take less than 4 GB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import pages


def make(rows: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    from monocal.data import synthetic

    data = synthetic(rows, classes, seed=seed)
    return data.values.astype(np.float32), data.labels


def write(path: Path, rows: int, classes: int) -> None:
    block = max(1, 2**24 // classes)
    with open(path, "wb") as x, open(path.with_suffix(".labels"), "wb") as y:
        for begin in range(0, rows, block):
            z, labels = make(min(block, rows - begin), classes, seed=begin)
            x.write(z.tobytes())
            y.write(labels.tobytes())


def blocks(rows: int, classes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows as they would come from many files; so that making them costs nothing, a few blocks come again and again."""
    size = max(1, 2**22 // classes)
    for number, begin in enumerate(range(0, rows, size)):
        z, labels = _kept_block(size, classes, number % 4)
        n = min(size, rows - begin)
        yield z[:n], labels[:n]


@cache
def _kept_block(size: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return make(size, classes, seed)


def stage(path: Path | None, rows: int, classes: int, what: str, method: str) -> dict[str, object]:
    """One stage in this process."""
    import resource

    import monocal as mc

    if path is None:
        data: tuple[Any, ...] = (partial(blocks, rows, classes),)
    else:
        X = np.memmap(path, dtype=np.float32, mode="r", shape=(rows, classes))
        y = np.memmap(path.with_suffix(".labels"), dtype=np.int64, mode="r", shape=(rows,))
        data = (X, y)
    begin = time.perf_counter()
    if what == "in memory":
        parts = [data] if path else list(data[0]())
        data = tuple(np.concatenate([part[i] for part in parts]) for i in (0, 1))
    if what == "predict":
        cal = getattr(mc, method)().fit(*make(2000, classes, 1))
        begin = time.perf_counter()
        if path is None:
            for _ in cal.predict_blocks(data[0]):
                pass
        else:
            out = np.memmap(path.with_suffix(".out"), dtype=np.float32, mode="w+", shape=(rows, classes))
            cal.predict_proba(data[0], out=out)
        result: dict[str, object] = {}
    else:
        solution = getattr(mc, method)().fit(*data).solution_
        passes = sum(step.rows == rows for step in solution.history)
        result = {"kkt": solution.kkt, "passes": passes, "coefficients": solution.coefficients.tolist()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return {**result, "seconds": time.perf_counter() - begin, "peak_gb": peak}


def main() -> None:
    parser = pages.parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the data")
    parser.add_argument("--classes", type=int, default=1000, help="classes of the data")
    parser.add_argument(
        "--generated", action="store_true", help="from a function that gives blocks, not from a file"
    )
    parser.add_argument("--folder", type=Path, help="where to put the file; the temporary folder if not said")
    parser.add_argument("--method", default="MCCT", help="class of the calibrator")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stage:
        print(json.dumps(stage(args.path, args.rows, args.classes, args.stage, args.method)))
        return
    size = args.rows * args.classes * 4 / 1e9
    stages = ["fit", "predict", *(["in memory"] if size < 4 else [])]
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = None if args.generated else Path(folder) / "logits.bin"
        if path is not None:
            write(path, args.rows, args.classes)
        print(f"{args.rows:,} x {args.classes:,} float32, {size:.1f} GB")
        print(
            "| stage | seconds | peak memory, GB | evaluations | optimality |\n|---|---:|---:|---:|---:|",
            flush=True,
        )
        results = {}
        for what in stages:
            command = [sys.executable, __file__, "--stage", what, *(["--path", str(path)] if path else [])]
            command += ["--rows", str(args.rows), "--classes", str(args.classes), "--method", args.method]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            r = results[what] = json.loads(out)
            more = f"{r['passes']} | {r['kkt']:.1e}" if "kkt" in r else " | "
            print(f"| {what} | {r['seconds']:.1f} | {r['peak_gb']:.2f} | {more} |", flush=True)
        if "in memory" in results:
            same = results["fit"]["coefficients"] == results["in memory"]["coefficients"]
            print("The fit in parts equals that in memory" + (" bit for bit." if same else " only nearly."))


if __name__ == "__main__":
    main()
