"""One method on one size, in a process of its own:  ``python -m peers.cell SPEC``.

Time is the best of several runs, in units of one ``scipy.special.log_softmax`` over the same logits in this process. Memory is
the peak of the resident set beyond what it was before the call. Then the model is judged: NLL on a second sample, excess of its
objective over the minimum or the certificate it came with, order of the classes. Results are written after each of the two
parts, so that a judge who takes too long costs no measurement.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax

from .methods import METHODS, Method

HELD_OUT = 5000  # rows, at most
_AUDITED = 2**21  # entries whose order is looked at
_SECONDS, _RUNS = 1.0, 30  # short calls are repeated until one of these is spent
_ONCE = (
    20.0  # seconds of a call that is not repeated; below, a second one shows what the first had to prepare
)


def watch(function: Callable[[], Any]) -> tuple[Any, float, int]:
    """Result, best time in seconds, and the bytes that the first run needed at its peak."""
    gc.collect()
    before = restart_peak()
    begin = time.perf_counter()
    result = function()
    times = [time.perf_counter() - begin]
    memory = peak() - before
    while times[0] < _ONCE and (len(times) < 2 or (sum(times) < _SECONDS and len(times) < _RUNS)):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return result, min(times), max(memory, 0)


def restart_peak() -> int:
    """Forget the peak of the resident set, where the system can, and return what it now is, in bytes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    try:
        with open("/proc/self/status") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def warm_up(method: Method) -> None:
    """Import and initialise what a first call would."""
    from monocal.data import synthetic

    data = synthetic(300, 5, seed=2, keep_truth=False)
    inputs = method.prepare(data.values)
    method.predict(method.fit(inputs, data.labels), inputs)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def measure(method: Method, n: int, m: int) -> tuple[dict[str, float], Any]:
    from monocal.data import synthetic

    warm_up(method)
    data = synthetic(n, m, seed=0, keep_truth=False)
    logits, labels = np.ascontiguousarray(data.values, dtype=np.float32), data.labels
    inputs = method.prepare(logits)
    unit = watch(lambda: log_softmax(logits, axis=1))[1]
    model, fit, fit_memory = watch(lambda: method.fit(inputs, labels))
    _, predict, predict_memory = watch(lambda: method.predict(model, inputs))
    unit = min(unit, watch(lambda: log_softmax(logits, axis=1))[1])
    row = {
        "unit_ms": 1e3 * unit,
        "fit": fit / unit,
        "predict": predict / unit,
        "fit_ms": 1e3 * fit,
        "predict_ms": 1e3 * predict,
        "fit_memory": fit_memory / logits.nbytes,
        "predict_memory": predict_memory / logits.nbytes,
    }
    return row, (model, logits, inputs, labels)


def judge(method: Method, fitted: Any) -> dict[str, float | str]:
    """Numbers that JSON has no sign for are strings that `float` reads."""
    from monocal.data import synthetic
    from monocal.metrics import order_audit

    model, logits, inputs, labels = fitted
    n, m = logits.shape
    held = synthetic(min(n, HELD_OUT), m, seed=1, keep_truth=False)
    seen = method.prepare(held.values)
    p = np.asarray(method.predict(model, seen))
    with np.errstate(divide="ignore", invalid="ignore"):
        at_label = p[np.arange(len(p)), held.labels].astype(np.float64) / p.sum(axis=1, dtype=np.float64)
        row = {"nll": float(-np.log(at_label).mean())}
    few = slice(0, max(1, _AUDITED // m))
    # Only the order of the numbers counts here; what the method was given is what it could have kept.
    row["inverted"] = order_audit(np.asarray(seen)[few], p[few], input="logits").all.share_inverted
    if method.excess is not None:
        row["excess"] = float(method.excess(model, logits, inputs, labels))
    if method.solution is not None:
        solution = method.solution(model)
        row |= {"violation": float(solution.kkt), "certified": bool(solution.converged)}
    return {key: value if np.isfinite(value) else str(value) for key, value in row.items()}


def why(error: BaseException) -> str:
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    wants_memory = isinstance(error, MemoryError) or any(
        sign in str(error).lower()
        for sign in ("out of memory", "allocate", "resource_exhausted", "bad_alloc")
    )
    return "out of memory" if wants_memory else text


def main() -> None:
    spec = json.loads(sys.argv[1])
    if spec["memory_gb"] and sys.platform != "win32":
        import resource

        limit = int(spec["memory_gb"] * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    warnings.simplefilter("ignore")
    method = METHODS[spec["method"]]

    def write(row: dict[str, Any]) -> None:
        with open(spec["file"], "a") as file:
            file.write(json.dumps(row) + "\n")

    try:
        row, fitted = measure(method, spec["rows"], spec["classes"])
        write(row)
    except Exception as error:  # a peer may fail in any way it likes: that is its row of the table
        write({"failed": why(error)})
        return
    try:
        write(judge(method, fitted))
    except Exception as error:  # the same, after it has been timed
        write({"not_judged": why(error)})


if __name__ == "__main__":
    main()
