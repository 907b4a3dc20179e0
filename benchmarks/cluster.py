"""A fit on a Dask cluster of one and of two worker processes on this machine, compared with one process without Dask.

    python benchmarks/cluster.py --rows 10000000 --classes 100

Every worker has one thread. The rows are made by the workers (nothing is sent), and the largest difference of the coefficients
to those of one process is shown. Chunks are as large as Dask makes them by itself (128 MiB): a task costs the scheduler about
a millisecond, in which a worker reads a million logits. Small data have ``--chunks`` of them.
"""

from __future__ import annotations

import os
import time

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy: the workers inherit it

import dask
import dask.array as da
import numpy as np
from dask.utils import parse_bytes
from distributed import Client, LocalCluster, wait

import monocal as mc
import pages

# Dask has workers give memory back at once, and then the system allocates every temporary array again: three times the time.
KEEP_MEMORY = {
    f"distributed.nanny.pre-spawn-environ.MALLOC_{name}_THRESHOLD_": 2**28 for name in ("TRIM", "MMAP")
}


def logits(block: np.ndarray, classes: int) -> np.ndarray:
    """Rows from their numbers."""
    rng = np.random.default_rng(int(block[0]))
    return 2.5 * rng.standard_normal((len(block), classes), dtype=np.float32)


def labels(z: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(abs(int(z[0, 0] * 1e6)))
    gumbel = -np.log(-np.log(rng.random(z.shape, dtype=np.float32) + 1e-12) + 1e-12)
    return (0.6 * z + gumbel).argmax(axis=1)


def arrays(rows: int, classes: int, chunk: int) -> tuple[da.Array, da.Array]:
    number = da.arange(rows, chunks=chunk)
    X = number.map_blocks(
        logits, classes, dtype=np.float32, new_axis=1, chunks=(number.chunks[0], (classes,))
    )
    return X, X.map_blocks(labels, drop_axis=1, dtype=np.int64)


def main() -> None:
    parser = pages.parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the data")
    parser.add_argument("--classes", type=int, default=200, help="classes of the data")
    parser.add_argument("--repeat", type=int, default=3, help="fits, of which the fastest counts")
    parser.add_argument("--chunks", type=int, default=8, help="at least so many chunks")
    args = parser.parse_args()
    dask.config.set(KEEP_MEMORY)
    chunk = min(
        parse_bytes(dask.config.get("array.chunk-size")) // (4 * args.classes), -(-args.rows // args.chunks)
    )
    X, y = arrays(args.rows, args.classes, chunk)
    here = dask.compute(X, y)
    print(
        f"{pages.setting('dask')} MCCT, {args.rows:,} x {args.classes:,} float32, chunks of {chunk:,} rows.\n"
    )
    print(
        "| where | seconds, best of repeats | all | times faster than one worker | difference to one process |"
    )
    print("|---|---:|---|---:|---:|", flush=True)

    def report(where: str, *data: object) -> None:
        taken = []
        for _ in range(args.repeat):
            begin = time.perf_counter()
            cal = mc.MCCT().fit(*data)
            taken.append(time.perf_counter() - begin)
        difference = np.abs(cal.solution_.coefficients - expected).max()
        if where == "1 worker":
            alone.append(min(taken))
        faster = f"{alone[0] / min(taken):.2f}" if alone else ""
        all_times = ", ".join(f"{t:.2f}" for t in taken)
        print(f"| {where} | {min(taken):.2f} | {all_times} | {faster} | {difference:.1e} |", flush=True)

    alone: list[float] = []

    expected = mc.MCCT().fit(*here).solution_.coefficients  # and the loops are loaded
    report("one process, one thread", *here)
    for n in (1, 2):
        with (
            LocalCluster(
                n_workers=n, threads_per_worker=1, dashboard_address=":0", silence_logs=50
            ) as cluster,
            Client(cluster),
        ):
            held = dask.persist(X, y)
            wait(held)
            mc.MCCT().fit(*arrays(min(args.rows, 20_000 * n), args.classes, 10_000))  # workers load the loops
            report(f"{n} worker{'s'[: n - 1]}", *held)


if __name__ == "__main__":
    main()
