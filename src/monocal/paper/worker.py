"""One cell: fit on calibration rows, judge on test rows, say what it cost.

A cell that fails is a result too: its message goes into the file and the run goes on.
"""

from __future__ import annotations

import platform
import time
import warnings
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

import monocal as mc

from .cells import Cell, known_labels, load, write_result
from .columns import BY_RANK, METHODS
from .optimum import continued_nll

MEASURED = ("ece", "kde_ece", "eq_bin_ece", "nll", "brier", "accuracy")


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Compute a cell and write its file; returns what was written."""
    began, began_cpu = time.perf_counter(), time.process_time()
    result: dict[str, Any] = {"status": "done", "message": ""}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result |= _computed(cell)
        except Exception as error:  # any method on anybody's data: report it, go on
            result |= {"status": "failed", "message": f"{type(error).__name__}: {error}", "metrics": {}}
    result["warnings"] = sorted({f"{w.category.__name__}: {w.message}" for w in caught})
    result["times"] = {
        **result.get("times", {}),
        "total_seconds": time.perf_counter() - began,
        "total_cpu_seconds": time.process_time() - began_cpu,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    result["versions"] = versions()
    return write_result(folder, cell, result)


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    packages = ("numpy", "scipy", "scikit-learn")
    return {
        "monocal": mc.__version__,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def calibration_rows(cell: Cell) -> np.ndarray:
    """Which calibration rows a cell uses: the first ``n_cal`` of the seed's permutation, so that parts are nested."""
    n = cell.dataset.n_cal
    if cell.n_cal is None:
        return np.arange(n)
    return np.random.default_rng(cell.seed).permutation(n)[: cell.n_cal]


def _computed(cell: Cell) -> dict[str, Any]:
    splits = load(cell.dataset.location)
    rows = calibration_rows(cell)
    logits, labels = splits.cal.values[rows], known_labels(splits.cal)[rows]
    test, truth = splits.test.values, known_labels(splits.test)
    calibrator = METHODS[cell.method].make(cell.seed, cell.top_k)

    wall, cpu = time.perf_counter(), time.process_time()
    if calibrator is not None:
        calibrator.fit(logits, labels)
    fit_seconds, fit_cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    wall = time.perf_counter()
    before = softmax(test.astype(np.float64), axis=1)
    after = before if calibrator is None else calibrator.predict_proba(test)
    predict_seconds = time.perf_counter() - wall

    metrics = {name: e.value for name, e in mc.evaluate(after, truth, metrics=MEASURED).estimates.items()}
    metrics["accuracy_change"] = metrics["accuracy"] - mc.metrics.accuracy(before, truth)
    scores = test if calibrator is None else calibrator.transform(test)
    audit = mc.order_audit(test, scores, input="logits")
    metrics |= {
        "rows_reordered": audit.all.share_inverted,
        "top_changed": audit.all.share_top1_changed,
        "uncertain_top_changed": audit.uncertain.share_top1_changed,
    }
    floor = mc.ece_floor(after, truth)
    metrics |= {"ece_floor": floor.median, "ece_band": float(np.quantile(floor.draws, 0.975))}
    return {
        "metrics": {name: float(value) for name, value in metrics.items()},
        "rows": {"cal": len(rows), "test": len(truth), "uncertain": audit.uncertain.rows},
        "times": {
            "fit_seconds": fit_seconds,
            "fit_cpu_seconds": fit_cpu_seconds,
            "predict_seconds": predict_seconds,
        },
        "fitted": _fitted(cell, calibrator, logits, labels),
    }


def _fitted(cell: Cell, calibrator: Any, logits: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """How the optimiser ended and, on whole calibration sets, the parameters and how much lower there was to go."""
    fitted: dict[str, Any] = {}
    solution = getattr(calibrator, "solution_", None)
    if solution is not None:
        fitted = {
            "status": solution.status,
            "converged": solution.converged,
            "iterations": solution.n_iter,
            "objective": solution.objective,
            "kkt": solution.kkt,
        }
    if cell.method in BY_RANK and cell.n_cal is None:
        fitted |= {"weights": calibrator.weights_.tolist(), "biases": calibrator.biases_.tolist()}
    if cell.examine:
        stopped, lowest = continued_nll(logits, labels, calibrator.weights_, calibrator.biases_)
        fitted |= {"stopped_nll": stopped, "lowest_nll": lowest}
    return fitted
