"""monocal in CalArena: its own runner, on sets in its own format, our calibrators and its.

    python benchmarks/arena.py CALARENA --logits FOLDER [--benchmark ours-multiclass] [--docs]
    python benchmarks/arena.py CALARENA --benchmarks-dir CALARENA/calibration_benchmarks --benchmark cv-binary
    python benchmarks/arena.py --two-classes [--logits FOLDER]

CALARENA is a checkout of https://github.com/probkit/CalArena; run this in an environment that has what it needs (``probmetrics``,
``h5py``, ``pandas``, ``tqdm``). With ``--logits`` the ``.npz`` files of a folder (``logits_val``, ``y_val``, ``logits_test``,
``y_test``) are written in its format first, if they have 3 to 100 classes: HDF5, ``{dataset}/{model}/probas_cal`` and so on, and
a list of experiments. The runner and our ``custom_calibrators.py`` lie in one folder and the runner is not changed; every
calibrator is a process of its own. What is finished is kept. The win rate of a method is the share of (experiment, other method)
pairs in which it has the lower log-loss or Brier score.

``--two-classes`` needs no checkout: the sets of CIFAR-10 as its binary cells have them, the probability of all animals together,
fitted on one part and evaluated on the other.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy.special import softmax
from sklearn.metrics import log_loss

import monocal as mc
import pages
from monocal.integrations.calarena import CUSTOM_CALIBRATORS

ITS = ("Base-model", "Isotonic", "TS", "ETS", "VS", "SVS", "SMS")
OURS = ("monocal-TS", "monocal-MCCT", "monocal-Conditional", "monocal-Structured")
PLUG_IN = "from monocal.integrations.calarena import CUSTOM_CALIBRATORS\n"
LARGEST = 100  # classes: matrix scaling of more takes hours
ANIMALS = [2, 3, 4, 5, 6, 7]  # of CIFAR-10
TWO_CLASSES = {
    "Platt": mc.PlattScaling,
    "beta": mc.BetaCalibration,
    "isotonic": mc.IsotonicCalibration,
    "Venn-Abers": mc.VennAbers,
    "monocal-Binary": mc.BinaryMCCT,
}


def parts_of(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Probabilities and labels of the two parts of a set of logits."""
    with np.load(path) as arrays:
        return {
            short: (softmax(arrays[f"logits_{part}"].astype(np.float64), axis=1), arrays[f"y_{part}"])
            for part, short in (("val", "cal"), ("test", "test"))
        }


def write_benchmark(logits: Path, folder: Path, name: str) -> None:
    """Sets of logits in CalArena's format."""
    import h5py

    folder.mkdir(parents=True, exist_ok=True)
    experiments = []
    with h5py.File(folder / f"{name}.h5", "w") as file:
        for path in sorted(logits.glob("*.npz")):
            parts = parts_of(path)
            m = parts["cal"][0].shape[1]
            if not 3 <= m <= LARGEST:
                continue
            dataset, model = path.stem.rsplit("_", 1) if "_" in path.stem else (path.stem, "model")
            group = file.create_group(f"{dataset}/{model}")
            for part, (probas, labels) in parts.items():
                group[f"probas_{part}"], group[f"labels_{part}"] = probas, labels.astype(np.int64)
            experiments.append({"dataset": dataset, "model": model, "n_classes": m})
    with open(folder / f"{name}-experiments.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["dataset", "model", "n_classes"])
        writer.writeheader()
        writer.writerows(experiments)


def run(
    arena: Path, work: Path, benchmarks: Path, name: str, methods: list[str]
) -> dict[str, list[dict[str, str]]]:
    """Results of the runner, by method: a row for each experiment."""
    work.mkdir(parents=True, exist_ok=True)
    shutil.copy(arena / "run_benchmark.py", work)
    (work / "custom_calibrators.py").write_text(PLUG_IN)
    environment = os.environ | {"PYTHONPATH": str(pages.ROOT / "src")}
    results = {}
    for method in methods:
        result = work / "results" / name / f"{method}.csv"
        if not result.exists():
            command = [sys.executable, "run_benchmark.py", "--benchmark", name, "--calibrator", method]
            command += ["--benchmarks_dir", str(benchmarks.resolve())]
            done = subprocess.run(
                command, cwd=work, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                print(f"{method}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
        with open(result, newline="") as file:
            results[method] = list(csv.DictReader(file))
    return results


def win_rates(values: dict[str, np.ndarray]) -> dict[str, float]:
    """Share of (experiment, other method) pairs won, a tie counting half."""
    rates = {}
    for name, own in values.items():
        others = np.stack([other for key, other in values.items() if key != name])
        rates[name] = float(np.mean((own < others) + 0.5 * (own == others)))
    return rates


def table(results: dict[str, list[dict[str, str]]]) -> str:
    """Win rates and means, the best by log-loss first."""

    def column(metric: str) -> dict[str, np.ndarray]:
        return {
            name: np.array([float(row[f"{name}_{metric}"]) for row in rows]) for name, rows in results.items()
        }

    loss, brier, ece, accuracy = map(column, ("logloss", "brier", "ece-15", "accuracy"))
    by_loss, by_brier = win_rates(loss), win_rates(brier)
    header = ["method", "wins by log-loss", "wins by Brier", "log-loss", "ECE, %", "accuracy, %"]
    lines = [
        [
            f"**{name}**" if name.startswith("monocal") else name,
            *(f"{by_loss[name]:.2f}", f"{by_brier[name]:.2f}", f"{loss[name].mean():.4f}"),
            *(f"{100 * ece[name].mean():.2f}", f"{100 * accuracy[name].mean():.2f}"),
        ]
        for name in sorted(results, key=lambda name: -by_loss[name])
    ]
    return pages.table(header, lines)


def two_classes(logits: Path) -> str:
    """NLL of methods for one score, where classes of CIFAR-10 are joined to animals and machines."""
    lines = []
    for path in sorted(logits.glob("*cifar10_*.npz")):
        (p, y), (new, truth) = (
            (np.minimum(probs[:, ANIMALS].sum(axis=1), 1.0), np.isin(labels, ANIMALS).astype(int))
            for probs, labels in parts_of(path).values()
        )
        results = [make(input="probabilities").fit(p, y).predict_proba(new) for make in TWO_CLASSES.values()]
        structured = CUSTOM_CALIBRATORS["monocal-Structured"]().fit(p, y).predict_proba(new)[:, 1]
        losses = [log_loss(truth, q) for q in (new, *results, structured)]  # zeros are cut, as in CalArena
        lines.append([path.stem, *(f"{loss:.4f}" for loss in losses)])
    return pages.table(["animal or machine, NLL", "nothing", *TWO_CLASSES, "monocal-Structured"], lines)


def main() -> None:
    parser = pages.parser_of(__doc__)
    parser.add_argument("arena", type=Path, nargs="?", help="a checkout of CalArena")
    parser.add_argument("--logits", type=Path, help="a folder of .npz files to write in its format")
    parser.add_argument("--two-classes", action="store_true", help="animals and machines, and nothing else")
    parser.add_argument("--benchmark", default="ours-multiclass", help="name of the benchmark")
    parser.add_argument(
        "--benchmarks-dir", type=Path, help="where benchmarks lie; a folder in --out by default"
    )
    parser.add_argument("--methods", nargs="+", default=[*ITS, *OURS], help="its calibrators and ours")
    parser.add_argument("--out", type=Path, default=Path("out/arena"), help="what is finished is kept here")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/results.md")
    options = parser.parse_args()
    if options.two_classes:
        print(two_classes(options.logits or pages.LOGITS))
        return
    if options.arena is None:
        parser.error("a checkout of CalArena is needed; without one there is --two-classes")
    benchmarks = options.benchmarks_dir or options.out / "benchmarks"
    if options.logits is not None and not (benchmarks / f"{options.benchmark}.h5").exists():
        write_benchmark(options.logits, benchmarks, options.benchmark)
    results = run(options.arena, options.out / "work", benchmarks, options.benchmark, options.methods)
    if not results:
        sys.exit("No calibrator ran: is CalArena's environment complete?")
    shown = table(results)
    print(shown)
    if options.docs:
        pages.write_into("docs/results.md", "arena", shown)


if __name__ == "__main__":
    main()
