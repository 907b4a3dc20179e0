"""A trial: one method, fitted on (part of) one calibration set and judged on its test set. One trial, one file.

    file name = set . method . hash(configuration) . json

The hash covers the data, the method with its parameters, seed, sizes and the version of monocal, so a file is either the result
of exactly this trial or has another name. Files appear whole or not at all: a stopped run continues with what is missing.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from scipy.special import softmax
from threadpoolctl import threadpool_limits

import monocal as mc
from monocal.data import Location, LogitsSet, Splits, atomic_path

from .methods import BY_RANK, METHODS
from .optimum import continued_nll

FORMAT = 2  # of the result files; a new number makes old ones count as missing
METRICS = ("ece", "kde_ece", "eq_bin_ece", "nll", "brier", "accuracy")


@dataclass(frozen=True)
class Dataset:
    """A calibration and a test set, identified by content."""

    name: str
    location: Location
    digest: str
    n_classes: int
    n_cal: int
    n_test: int

    @classmethod
    def of(cls, location: Location) -> Dataset:
        """Read once to learn size and content."""
        splits = load(location)
        digest = hashlib.sha256()
        for part in (splits.cal, splits.test):
            for array in (part.values, part.labels):
                digest.update(str((array.dtype, array.shape)).encode())
                digest.update(np.ascontiguousarray(array).data)
        sizes = splits.cal.n_classes, splits.cal.n_samples, splits.test.n_samples
        return cls(splits.name, location, digest.hexdigest()[:16], *sizes)


@lru_cache(maxsize=2)
def load(location: Location) -> Splits:
    """Both sets as logits; of probabilities, their logarithms."""
    splits = location.read()
    return Splits(_as_logits(splits.cal), _as_logits(splits.test), splits.name)


def _as_logits(part: LogitsSet) -> LogitsSet:
    if part.kind == "logits":
        return part
    values = part.values.astype(np.promote_types(part.values.dtype, np.float32))
    # A zero is an underflow: half the smallest positive probability keeps it lowest and finite.
    smallest = max(values[values > 0].min() / 2, np.finfo(values.dtype).tiny)
    logits = np.log(np.maximum(values, smallest))
    return LogitsSet(logits, part.labels, "logits", part.name, part.path)


@dataclass(frozen=True)
class Trial:
    """What decides a result.

    ``n_cal`` None: the whole calibration set. ``top_k`` None: all ranks. ``examine``: also measure how far from the optimum the
    published optimiser stopped.
    """

    dataset: Dataset
    method: str
    seed: int = 0
    n_cal: int | None = None
    top_k: int | None = None
    examine: bool = False

    @property
    def configuration(self) -> dict[str, Any]:
        """Everything the result depends on, as plain values."""
        calibrator = METHODS[self.method].make(self.seed, self.top_k)
        parameters = {} if calibrator is None else calibrator.get_params()
        return {
            "format": FORMAT,
            "monocal": mc.__version__,
            "set": self.dataset.name,
            "data": self.dataset.digest,
            "parameters": {name: repr(value) for name, value in parameters.items()},
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name != "dataset"},
        }

    @property
    def file_name(self) -> str:
        """Readable, and unique to the configuration."""
        text = json.dumps(self.configuration, sort_keys=True)
        readable = re.sub(r"[^A-Za-z0-9_-]+", "_", self.dataset.name)[:60]
        return f"{readable}.{self.method}.{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def rows(self) -> np.ndarray:
        """Calibration rows of the trial: the first ``n_cal`` of the seed's permutation, so that smaller parts are nested."""
        n = self.dataset.n_cal
        if self.n_cal is None:
            return np.arange(n)
        return np.random.default_rng(self.seed).permutation(n)[: self.n_cal]


def run_trials(trials: Sequence[Trial], folder: Path, jobs: int) -> tuple[pd.DataFrame, int]:
    """One row for each trial, and how many had been finished before. Workers are processes with one thread each."""
    results = {trial: read_result(trial, folder) for trial in trials}
    missing = [trial for trial, result in results.items() if result is None]
    with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1, verbose=1):
        run = joblib.Parallel()(joblib.delayed(run_trial)(trial, folder) for trial in missing)
    results |= dict(zip(missing, run, strict=True))
    rows = [_row(trial, result) for trial, result in results.items()]
    return pd.DataFrame(rows), len(trials) - len(missing)


def read_result(trial: Trial, folder: Path) -> dict[str, Any] | None:
    """The finished result of a trial; None where there is none, it failed, or its file is damaged."""
    try:
        result = json.loads((folder / trial.file_name).read_text(encoding="utf-8"))
        is_own = result["configuration"] == trial.configuration and not result["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return result if is_own else None


def run_trial(trial: Trial, folder: Path) -> dict[str, Any]:
    """Compute a trial and write its file. A trial that fails is a result too: the message is kept, and the run continues."""
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always")
        try:
            result = {"message": "", **_compute(trial)}
        except Exception as error:  # any method on anybody's data
            result = {"message": f"{type(error).__name__}: {error}"}
            result |= {"metrics": {}, "times": {}, "fitted": {}}
    result["warnings"] = sorted({f"{w.category.__name__}: {w.message}" for w in caught})
    result["times"]["total_cpu_seconds"] = time.process_time() - began
    result |= {"configuration": trial.configuration, "versions": versions()}
    text = json.dumps(result, indent=1)
    with atomic_path(folder / trial.file_name, force=True) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    return json.loads(text)


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {"monocal": mc.__version__, "python": platform.python_version(), **packages}


def _compute(trial: Trial) -> dict[str, Any]:
    splits = load(trial.dataset.location)
    rows = trial.rows()
    logits, labels = splits.cal.values[rows], splits.cal.labels[rows]
    test, truth = splits.test.values, splits.test.labels
    calibrator = METHODS[trial.method].make(trial.seed, trial.top_k)
    wall, cpu = time.perf_counter(), time.process_time()
    if calibrator is not None:
        calibrator.fit(logits, labels)
    spent = time.perf_counter() - wall, time.process_time() - cpu
    before = softmax(test.astype(np.float64), axis=1)
    after, transformed = before, test
    if calibrator is not None:
        after, transformed = calibrator.predict_proba(test), calibrator.transform(test)
    estimates = mc.evaluate(after, truth, metrics=METRICS).estimates
    metrics = {name: estimate.value for name, estimate in estimates.items()}
    audit = mc.order_audit(test, transformed, input="logits")
    floor = mc.ece_floor(after, truth)
    metrics |= {
        "accuracy_change": metrics["accuracy"] - mc.metrics.accuracy(before, truth),
        "rows_reordered": audit.all.share_inverted,
        "top_changed": audit.all.share_top1_changed,
        "uncertain_top_changed": audit.uncertain.share_top1_changed,
        "ece_floor": floor.median,
        "ece_band": np.quantile(floor.draws, 0.975),
    }
    return {
        "metrics": {name: float(value) for name, value in metrics.items()},
        "times": dict(zip(("fit_seconds", "fit_cpu_seconds"), spent, strict=True)),
        "fitted": _fitted(trial, calibrator, logits, labels),
    }


def _fitted(trial: Trial, calibrator: Any, logits: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """How the optimiser ended and, on whole calibration sets, the parameters and how much lower the objective goes."""
    fitted: dict[str, Any] = {}
    if (s := getattr(calibrator, "solution_", None)) is not None:
        fitted = {"converged": bool(s.converged), "iterations": s.n_iter, "kkt": float(s.kkt)}
    if trial.method in BY_RANK and trial.n_cal is None:
        fitted |= {"weights": calibrator.weights_.tolist(), "biases": calibrator.biases_.tolist()}
    if trial.examine:
        stopped, lowest = continued_nll(logits, labels, calibrator.weights_, calibrator.biases_)
        fitted |= {"stopped_nll": stopped, "lowest_nll": lowest}
    return fitted


def _row(trial: Trial, result: dict[str, Any]) -> dict[str, Any]:
    """A trial and its result as a row of the data frame."""
    data = trial.dataset
    return {
        "set": data.name,
        "n_classes": data.n_classes,
        "method": trial.method,
        "label": METHODS[trial.method].label,
        "seed": trial.seed,
        "n_cal": trial.n_cal or data.n_cal,
        "n_test": data.n_test,
        "top_k": trial.top_k or data.n_classes,
        "capped": trial.top_k is not None,
        "message": result["message"],
        **result["metrics"],
        **result["times"],
        "fitted": result["fitted"],
        "file": trial.file_name,
    }
