"""How often intervals hold the truth, and tests reject it: simulated predictors whose true metrics are known.

    python benchmarks/interval_coverage.py [--trials 200] [--boot 200] [--jobs 2] [--rows 500 2000] [--metrics ece nll]

Logits ``z`` are normal, labels are drawn from ``softmax(z)``, and the predictor says ``softmax(s z)``: calibrated at ``s = 1``,
too sure above, too modest below. "wave" is wrong in both directions: ``s`` goes up and down with the margin of the row. The
truth is the metric of the population: of 100,000 rows with the probability of being right in place of the outcome.

The last table compares two predictors that are equally good in truth, ``softmax(s z + noise)`` with noise of their own, on the
first of the sizes, and counts in five times as many trials how often the paired test says otherwise at 5 %.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
from scipy.special import softmax

import monocal as mc
from command_line import parser_of
from monocal.metrics import METRICS
from monocal.metrics.outcomes import Outcomes
from monocal.metrics.registry import Options, Statistics

KINDS = {
    "calibrated": 1.0,
    "almost": 1.05,
    "a little too sure": 1.2,
    "too sure": 1.6,
    "too modest": 0.75,
    "wave": 1.2,
}
SIZES, CLASSES = (500, 2000, 10_000), (2, 10, 100)
SHOWN = [name for name, metric in METRICS.items() if metric.mean or metric.error is not None]
TESTED = [name for name, metric in METRICS.items() if metric.mean]
Task = tuple[str, int, int, list[str], int, int]


def draw(kind: str, n: int, m: int, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """What a predictor says, the true probabilities, and labels."""
    logits = (3.0 if m > 50 else 2.0) * generator.standard_normal((n, m))
    truth = softmax(logits, axis=1)
    sharpness = np.full((n, 1), KINDS[kind])
    if kind == "wave":
        low, high = np.partition(logits, m - 2, axis=1)[:, m - 2 :].T
        sharpness[:, 0] = 1 + 2 * (KINDS[kind] - 1) * np.sin(3 * (high - low))
    labels = (generator.random((n, 1)) > np.cumsum(truth, axis=1)).sum(axis=1).clip(max=m - 1)
    return softmax(sharpness * logits, axis=1), truth, labels


@cache
def population(kind: str, m: int, n: int = 100_000, seed: int = 1) -> dict[str, float]:
    """The true value of every metric that has an interval."""
    generator = np.random.default_rng(seed)
    probs, truth, labels = draw(kind, n, m, generator)
    top = np.argsort(-probs, axis=1)[:, :5]
    right = np.take_along_axis(truth, top, axis=1)
    rows = Outcomes.of(probs, labels)
    statistics = Statistics(replace(rows, correct=right[:, 0]), Options())
    values = {name: float(METRICS[name].error(statistics)) for name in SHOWN if METRICS[name].error}
    values["accuracy"] = float(right[:, 0].mean())
    values["top_k_accuracy"] = float(right.sum(axis=1).mean())
    values["nll"] = float(-(truth * np.log(probs)).sum(axis=1).mean())
    values["brier"] = float(((probs**2).sum(axis=1) - 2 * (probs * truth).sum(axis=1) + 1).mean())
    return values


def cover(task: Task) -> dict[str, tuple[float, float]]:
    """Share of the trials whose interval holds the truth, and that whose interval holds its own estimate."""
    kind, n, m, names, trials, boot = task
    true = population(kind, m)
    held = {name: np.zeros(2) for name in names}
    for trial in range(trials):
        generator = np.random.default_rng([trial, n, m, list(KINDS).index(kind)])
        probs, _, labels = draw(kind, n, m, generator)
        result = mc.evaluate(probs, labels, metrics=names, n_boot=boot, seed=trial)
        for name in names:
            e = result[name]
            held[name] += [e.low <= true[name] <= e.high, e.low <= e.value <= e.high]
    return {name: tuple(count / trials) for name, count in held.items()}


def reject(task: Task) -> dict[str, float]:
    """Share of the trials in which the paired test finds a difference, though there is none."""
    kind, n, m, names, trials, boot = task
    rejected = dict.fromkeys(names, 0)
    for trial in range(trials):
        generator = np.random.default_rng([trial, n, m, list(KINDS).index(kind), 1])
        probs, _, labels = draw(kind, n, m, generator)
        a, b = (softmax(np.log(probs) + generator.standard_normal((n, m)), axis=1) for _ in range(2))
        for name in names:
            found = mc.metrics.compare(a, b, labels, name, n_boot=boot, seed=trial, top_k=min(5, m - 1))
            rejected[name] += found.p_value <= 0.05
    return {name: count / trials for name, count in rejected.items()}


def table(title: list[str], lines: Iterable[list[str]]) -> None:
    print("\n| " + " | ".join(title) + " |")
    print("|---|" + "---:|" * (len(title) - 1))
    for line in lines:
        print("| " + " | ".join(line) + " |", flush=True)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--trials", type=int, default=200, help="samples for each line of the tables")
    parser.add_argument("--boot", type=int, default=200, help="draws of the bootstrap")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES, help="sizes of a sample")
    parser.add_argument(
        "--metrics", nargs="+", default=SHOWN, choices=SHOWN, metavar="NAME", help="which metrics"
    )
    args = parser.parse_args()
    names = args.metrics

    def tasks(kinds: Iterable[str], sizes: Iterable[int], names: list[str], trials: int) -> list[Task]:
        return [(kind, n, m, names, trials, args.boot) for kind, m, n in product(kinds, CLASSES, sizes)]

    def line(task: Task, shares: Iterable[float]) -> list[str]:
        return [task[0], str(task[2]), f"{task[1]:,}", *(f"{100 * share:.1f}" for share in shares)]

    with ProcessPoolExecutor(args.jobs) as pool:
        print(f"Coverage of 95 % intervals in %, {args.trials} trials each, n_boot={args.boot}")
        todo, found = tasks(KINDS, args.rows, names, args.trials), []

        def covered() -> Iterable[list[str]]:
            for task, held in zip(todo, pool.map(cover, todo), strict=True):
                found.append([held[name] for name in names])
                yield line(task, (truth for truth, _ in found[-1]))

        table(["predictor", "classes", "rows", *names], covered())
        held = 100 * np.array(found)
        truth, estimate = held[..., 0], held[..., 1]
        over = {"lowest": truth.min(axis=0), "mean": truth.mean(axis=0), "highest": truth.max(axis=0)}
        over["holds its own estimate"] = estimate.min(axis=0)
        table(["all of these", *names], ([name, *(f"{v:.1f}" for v in row)] for name, row in over.items()))
        tested = [name for name in names if name in TESTED]
        if tested:
            print(
                f"\nRejections by the paired test at 5 % in %, {5 * args.trials} trials each: two equally good predictors"
            )
            todo = tasks(("calibrated", "too sure"), args.rows[:1], tested, 5 * args.trials)
            sizes = (
                line(task, each.values()) for task, each in zip(todo, pool.map(reject, todo), strict=True)
            )
            table(["predictor", "classes", "rows", *tested], sizes)


if __name__ == "__main__":
    main()
