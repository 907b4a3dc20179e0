"""Do intervals hold the truth as often as they say, and alarms come as rarely? Simulated predictors whose truth is known.

    python benchmarks/statistics_check.py [--trials 400] [--only coverage two alarms monitor] [--lines TEXT ...] [--docs]

Every line says how many samples it is of. A line that looks off is measured again with more of them:

    python benchmarks/statistics_check.py --only coverage --lines "calibrated, 2 classes | 60,000" --trials 2000 --docs

Coverage: logits ``z`` are normal, labels are drawn from ``softmax(z)``, and the predictor says ``softmax(s z)``: calibrated at
``s = 1``, too sure above, too modest below. "wave" is wrong in both directions: ``s`` goes up and down with the margin of the
row. "rare" has two classes, the second with the probability given in every row. The truth is the metric of the population:
of millions of rows with the probability of being right in place of the outcome, weights included.

Alarms: tests of a hypothesis that is true, and what a false alarm costs in test NLL; among them stationary streams of 100,000
rows after a fit on few. Monitor: honest streams, and drifts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, softmax

import monocal as mc
import pages
from monocal.metrics import METRICS
from monocal.metrics.intervals import BinNoise
from monocal.metrics.outcomes import bin_index, equal_width_edges

KINDS = {
    "calibrated": 1.0,
    "almost": 1.05,
    "a little too sure": 1.2,
    "too sure": 1.6,
    "too modest": 0.75,
    "wave": 1.2,
}
COLUMNS = ["nll", "brier", "accuracy", "ece", "debiased_ece", "adaptive_ece"]
COLUMNS_OF_TWO = [
    "positive_brier",
    "positive_ece",
    "auc",
    "calibration_slope",
    "calibration_intercept",
    "calibration_in_the_large",
]
_SELDOM = 0.1  # an interval shown in fewer trials than this is not counted as shown


class World(NamedTuple):
    """A predictor, the number of its classes, how frequent a rare second class is, and the weights of rows.

    ``varied``: two classes whose probability differs from row to row, ``rare`` on average; else it is ``rare`` in every row.
    """

    kind: str
    m: int = 2
    rare: float = 0.0
    weights: str = "equal"
    varied: bool = False

    @property
    def name(self) -> str:
        average = " on average" if self.varied else ""
        classes = f"{100 * self.rare:g} % positives{average}" if self.rare else f"{self.m} classes"
        weights = "" if self.weights == "equal" else f", {WEIGHTS[self.weights]}"
        return f"{self.kind}, {classes}{weights}"


WEIGHTS = {
    "equal": "",
    "class": "class 1 of weight 10",
    "twenty": "5 % of rows of weight 20",
    "lognormal": "log-normal weights",
}

COVERAGE: list[tuple[World, int]] = [
    *((World(kind, rare=rare), n) for kind in ("calibrated", "too sure") for rare, n in (
        (0.01, 100), (0.001, 1000), (0.01, 200), (0.05, 50), (0.05, 100), (0.05, 200), (0.01, 2000), (0.01, 60_000))),
    *((World(kind, rare=0.02, weights="class"), n) for kind in ("calibrated", "too sure") for n in (200, 2000, 60_000)),
    *((World(kind, 10), n) for kind in KINDS for n in (50, 500, 5000)),
    *((World("calibrated", m), 60_000) for m in (2, 10)),
    *((World("too sure", 100), n) for n in (500, 5000)),
    *((World(kind, 10, weights=w), n) for kind in ("calibrated", "too sure") for w in ("class", "twenty", "lognormal")
      for n in (500, 5000)),
    *((World("too sure", rare=0.1, weights=w, varied=True), n) for w in ("twenty", "lognormal") for n in (200, 400, 2000)),
]  # fmt: skip
COVERAGE_OF_TWO: list[tuple[World, int]] = [
    *((World(kind, rare=rare, varied=True), n) for kind in ("calibrated", "too sure", "too modest") for rare, n in (
        (0.4, 50), (0.1, 200), (0.02, 2000), (0.4, 2000), (0.01, 60_000))),
    *((World(kind, rare=0.1, weights=w, varied=True), 2000) for kind in ("calibrated", "too sure")
      for w in ("class", "twenty", "lognormal")),
]  # fmt: skip


def draw(world: World, n: int, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """What a predictor says, the true probabilities, labels and weights."""
    m, scale = world.m, KINDS[world.kind]
    if world.varied:
        z = 1.5 * generator.standard_normal(n) + _shift(world.rare)
        logits = np.column_stack([np.zeros(n), z])
    elif world.rare:
        logits = np.log(np.tile([1 - world.rare, world.rare], (n, 1)))
    else:
        logits = (3.0 if m > 50 else 2.0) * generator.standard_normal((n, m))
    truth = softmax(logits, axis=1)
    sharpness = np.full((n, 1), scale)
    if world.kind == "wave":
        low, high = np.partition(logits, m - 2, axis=1)[:, m - 2 :].T
        sharpness[:, 0] = 1 + 2 * (scale - 1) * np.sin(3 * (high - low))
    labels = (generator.random((n, 1)) > np.cumsum(truth, axis=1)).sum(axis=1).clip(max=m - 1)
    return softmax(sharpness * logits, axis=1), truth, labels, draw_weights(world.weights, labels, generator)


@cache
def _shift(rare: float) -> float:
    """The mean of normal log-odds of standard deviation 1.5 whose probabilities are ``rare`` on average."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    return float(brentq(lambda a: weights @ expit(1.5 * nodes + a) / weights.sum() - rare, -20, 20))


def draw_weights(kind: str, labels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    if kind == "class":
        return np.where(labels == 1, 10.0, 1.0)
    if kind == "twenty":
        return np.where(generator.random(len(labels)) < 0.05, 20.0, 1.0)
    return generator.lognormal(size=len(labels)) if kind == "lognormal" else np.ones(len(labels))


class Population(NamedTuple):
    """Rows of a population as intervals see them, with the probability of being right in place of the outcome."""

    confidence: np.ndarray
    correct: np.ndarray
    weight: np.ndarray
    n_bins: int = 15

    @property
    def top_bin(self) -> np.ndarray:
        return bin_index(self.confidence, equal_width_edges(self.n_bins))

    @property
    def by_confidence(self) -> np.ndarray:
        return np.argsort(self.confidence)


@cache
def population(world: World, entries: int = 6_000_000) -> dict[str, float]:
    """The true value of every metric that has an interval, of so many rows that their own noise does not matter."""
    generator, parts = np.random.default_rng(1), []
    step = 1_000_000 // world.m
    for _ in range(entries // 1_000_000):
        probs, truth, _, _ = draw(world._replace(weights="equal"), step, generator)
        if world.weights == "class":  # the classes as they count in weights
            truth = truth * np.where(np.arange(world.m) == 1, 10.0, 1.0)
        weight = truth.sum(axis=1)
        truth = truth / weight[:, None]
        top = probs.argmax(axis=1)[:, None]
        right, confidence = (np.take_along_axis(x, top, axis=1)[:, 0] for x in (truth, probs))
        nll = -(truth * np.log(probs)).sum(axis=1)
        brier = (probs**2).sum(axis=1) - 2 * (probs * truth).sum(axis=1) + 1
        parts.append(np.stack([weight, confidence, right, nll, brier, probs[:, 1], truth[:, 1]]))
    weight, confidence, right, nll, brier, p, y = np.concatenate(parts, axis=1)
    views = {"top": Population(confidence, right, weight), "positive": Population(p, y, weight)}
    errors = {
        name: BinNoise(views[metric.error.of], metric.error, 15).observed  # type: ignore[arg-type]
        for name, metric in METRICS.items()
        if metric.error and (world.m == 2 or not metric.binary)
    }
    means = {"accuracy": right, "nll": nll, "brier": brier}
    if world.m == 2:
        means |= {"positive_brier": brier / 2, "calibration_in_the_large": p - y}
    true = errors | {name: float(weight @ x / weight.sum()) for name, x in means.items()}
    if world.varied:
        x, order = logit(p), np.argsort(p)
        ones, zeros = (weight * y)[order], (weight * (1 - y))[order]
        true["auc"] = float(ones @ (np.cumsum(zeros) - zeros / 2) / ones.sum() / zeros.sum())
        true["calibration_slope"] = float(
            _recalibrated(np.column_stack([np.ones_like(x), x]), 0.0, y, weight)[1]
        )
        true["calibration_intercept"] = float(_recalibrated(np.ones((len(x), 1)), x, y, weight)[0])
    return true


def _recalibrated(X: np.ndarray, offset: Any, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Coefficients of the logistic regression of ``y``."""
    beta = np.zeros(X.shape[1])
    for _ in range(30):
        mean = expit(offset + X @ beta)
        beta = beta + np.linalg.solve((X.T * (weight * mean * (1 - mean))) @ X, X.T @ (weight * (y - mean)))
    return beta


def cover(
    world: World, n: int, names: list[str], trials: int, boot: int, entries: int = 6_000_000
) -> dict[str, tuple[float, float, float]]:
    """Of each metric: share of trials with an interval, and of those the shares that hold the truth and their own estimate."""
    true, held = population(world, entries), {name: np.zeros(3) for name in names}
    for trial in range(trials):
        generator = np.random.default_rng([trial, n, world.m, list(KINDS).index(world.kind)])
        probs, _, labels, weight = draw(world, n, generator)
        result = mc.evaluate(probs, labels, metrics=names, n_boot=boot, seed=trial, sample_weight=weight)
        for name in names:
            e = result[name]
            if e.low is not None:
                held[name] += [1, e.low <= true[name] <= e.high, e.low <= e.value <= e.high]
    return {name: (c[0] / trials, c[1] / max(c[0], 1), c[2] / max(c[0], 1)) for name, c in held.items()}


def reject(world: World, n: int, names: list[str], trials: int, boot: int) -> dict[str, float]:
    """Share of the trials in which the paired test finds a difference of two equally good predictors."""
    rejected = dict.fromkeys(names, 0)
    for trial in range(trials):
        generator = np.random.default_rng([trial, n, world.m, list(KINDS).index(world.kind), 1])
        probs, _, labels, _ = draw(world, n, generator)
        a, b = (softmax(np.log(probs) + generator.standard_normal(probs.shape), axis=1) for _ in range(2))
        for name in names:
            pair = mc.metrics.compare(a, b, labels, name, n_boot=boot, seed=trial, top_k=min(5, world.m - 1))
            rejected[name] += pair.p_value <= 0.05
    return {name: count / trials for name, count in rejected.items()}


def chosen(cells: list[str], lines: list[str]) -> bool:
    """Whether a line that begins with these cells is to be measured: all are where no ``lines`` are named."""
    return not lines or any(text in " | ".join(cells) for text in lines)


def coverage_table(
    trials: int, boot: int, worlds: list[tuple[World, int]], columns: list[str], only: list[str]
) -> str:
    lines = []
    for world, n in worlds:
        if not chosen([world.name, f"{n:,}"], only):
            continue
        # Few rows of a rare class often have no interval.
        number = 3 * trials if world.rare and n <= 200 else max(trials // 4, min(trials, 2_000_000 // n))
        cells = [
            f"{100 * share:.1f}" if shown >= 0.995 else f"{100 * share:.1f} (shown in {100 * shown:.0f} %)" if shown >= _SELDOM
            else "none" for shown, share, _ in cover(world, n, columns, number, boot).values()
        ]  # fmt: skip
        lines.append([world.name, f"{n:,}", f"{number:,}", *cells])
        print(lines[-1], flush=True)
    return pages.table(["predictor", "rows", "samples", *columns], lines)


class Alarm(NamedTuple):
    """How often a true hypothesis was rejected, and the mean and largest rise of test NLL, where there is one."""

    rate: float
    harm: list[float]


def errors(n: int, weights: str, trials: int) -> list[Alarm]:
    """Calibrated predictors: is the ECE called more than chance, or any predicted class off?"""
    alarms = np.zeros(2)
    for trial in range(trials):
        probs, _, labels, _ = draw(World("calibrated", 5), n, np.random.default_rng([trial, n]))
        weight = draw_weights(weights, labels, np.random.default_rng([trial, n, 1]))
        floor = mc.ece_floor(probs, labels, 200, sample_weight=weight, seed=trial)
        assert floor.more_than_chance == (floor.observed > floor.high)
        result = mc.evaluate(
            probs, labels, metrics="ece", groups="predicted", sample_weight=weight, seed=trial
        )
        alarms += floor.more_than_chance, result.groups.off.any()
    return [Alarm(rate, []) for rate in alarms / trials]


def second_stage(n: int, weights: str, trials: int) -> list[Alarm]:
    """Is a column of noise used by the second stage, and is the predicted class, where classes do not differ?"""
    alarms, harm = np.zeros(2), np.empty((2, trials))
    test = mc.data.synthetic(4000, 5, seed=10_000)
    for trial in range(trials):
        rng = np.random.default_rng([trial, n])
        data = mc.data.synthetic(n, 5, seed=trial)
        weight = None if weights == "equal" else draw_weights(weights, data.labels, rng)
        group, other = (rng.integers(0, 5, k).astype(str) for k in (n, 4000))
        rows = (data.values, data.labels, weight)
        plain = mc.ConditionalMCCT(by_class=False).fit(*rows)
        base = mc.metrics.nll(plain.predict_proba(test.values), test.labels)
        column = mc.ConditionalMCCT(by_class=False).fit(*rows, context={"g": group})
        by_class = mc.ConditionalMCCT().fit(*rows)
        scales = (
            column.adjustment_ and column.adjustment_.column_scales[0],
            by_class.adjustment_ and by_class.adjustment_.class_scales,
        )
        alarms += [bool(one is not None and one.variance > 0) for one in scales]
        probs = (column.predict_proba(test.values, context={"g": other}), by_class.predict_proba(test.values))
        harm[:, trial] = [mc.metrics.nll(one, test.labels) - base for one in probs]
    return [Alarm(float(rate), list(rise)) for rate, rise in zip(alarms / trials, harm, strict=True)]


def label_shift(n: int, weights: str, trials: int) -> list[Alarm]:
    """Does `LabelShift.adapt` find a shift of the classes where there is none?"""
    alarms, harm = 0, []
    for trial in range(trials):
        data = mc.data.synthetic(2 * n, 5, seed=trial)
        old, new = slice(n), slice(n, None)
        weight = draw_weights(weights, data.labels[old], np.random.default_rng([trial, n]))
        cal = mc.LabelShift(mc.TemperatureScaling()).fit(
            data.values[old], data.labels[old], sample_weight=weight
        )
        before = mc.metrics.nll(cal.predict_proba(data.values[new]), data.labels[new])
        cal.adapt(data.values[new])
        alarms += bool(cal.shifted_)
        harm.append(mc.metrics.nll(cal.predict_proba(data.values[new]), data.labels[new]) - before)
    return [Alarm(alarms / trials, harm)]


def stationary(make: Callable[[], Any], n: int, trials: int, rows: int = 100_000) -> list[Alarm]:
    """Does the monitor raise an alarm on a stream like the rows that the calibrator was fitted on?"""
    alarms = 0
    for trial in range(trials):
        data = mc.data.synthetic(n + rows, 5, seed=trial)
        cal = make().fit(data.values[:n], data.labels[:n])
        stream = [(data.values[n:], data.labels[n:])]
        reference = cal.predict_proba(data.values[:n])
        alarms += bool(mc.monitor(stream, calibrator=cal, reference=reference, window=1000).alarms)
    return [Alarm(alarms / trials, [])]


class Hypotheses(NamedTuple):
    """What is true, on how many rows with which weights, the level in per cent, and what rejects it in so many trials."""

    names: list[str]
    n: int
    weights: str
    level: str
    measure: Callable[[int], list[Alarm]]
    trials: int


def hypotheses(trials: int) -> list[Hypotheses]:
    truths = []
    names = ["ECE above its floor, calibrated", "a predicted class off, calibrated"]
    for weights, n in product(("equal", "twenty", "lognormal"), (50, 200, 2000, 20_000)):
        number = 3 * trials if n < 20_000 else 2 * trials
        truths.append(Hypotheses(names, n, weights, "5", partial(errors, n, weights), number))
    names = ["a column of noise is used", "`by_class_` says more than chance"]
    for weights, sizes in (
        ("equal", (1000, 5000, 20_000, 60_000)),
        ("twenty", (1000, 5000)),
        ("lognormal", (1000,)),
    ):
        for n in sizes:
            number = trials if n < 60_000 else trials // 2
            truths.append(Hypotheses(names, n, weights, "5", partial(second_stage, n, weights), number))
    names = ["`LabelShift.adapt` finds a shift"]
    for weights in ("equal", "twenty", "lognormal"):
        truths.append(
            Hypotheses(names, 2000, weights, "0.1", partial(label_shift, 2000, weights), 5 * trials)
        )
    for name, make in (("temperature", mc.TemperatureScaling), ("conditional", mc.ConditionalMCCT)):
        names = [f"monitor, stationary 100,000 rows after a {name} fit"]
        for n in (300, 1000):
            truths.append(
                Hypotheses(names, n, "equal", "5", partial(stationary, make, n), max(20, trials // 2))
            )
    return truths


def alarms_table(trials: int, only: list[str]) -> str:
    lines = []
    for true in hypotheses(trials):
        starts = [[name, f"{true.n:,}", WEIGHTS[true.weights] or "equal"] for name in true.names]
        if not any(chosen(start, only) for start in starts):
            continue
        for start, alarm in zip(starts, true.measure(true.trials), strict=True):
            rise = f"{np.mean(alarm.harm):+.4f} (worst {max(alarm.harm):+.4f})" if alarm.harm else ""
            lines.append([*start, f"{100 * alarm.rate:.1f}", true.level, rise, f"{true.trials:,}"])
            print(lines[-1], flush=True)
    header = ["test of what is true", "rows", "weights", "alarms, %", "allowed", "rise of test NLL", "trials"]
    return pages.table(header, lines)


def stream(
    rng: np.random.Generator, n: int, power: float = 1.0, weights: Any = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Honest rows, or rows whose probabilities are raised to a power, or whose classes have other frequencies."""
    truth = rng.dirichlet(np.ones(5) / 2, size=n) * weights
    truth /= truth.sum(axis=1, keepdims=True)
    labels = (rng.random(n)[:, None] > truth.cumsum(axis=1)).sum(axis=1).clip(max=4)
    said = truth**power
    return said / said.sum(axis=1, keepdims=True), labels


def delay(streams: int, **drift: Any) -> tuple[float, float]:
    """Rows from a drift after 5,000 honest rows to the alarm (median), and the share of streams in which there was one."""
    delays = []
    for seed in range(streams):
        rng = np.random.default_rng([seed, 1])
        monitor = mc.Monitor(reference=stream(rng, 5_000)[0], window=250)
        monitor.update(*stream(rng, 5_000))
        early = len(monitor.alarms)
        probs, labels = stream(rng, 20_000, **drift)
        late = monitor.update(probs, None if "weights" in drift else labels).alarms[early:]
        delays.append(late[0].row - 5_000 if late else np.inf)
    return float(np.median(delays)), float(np.isfinite(delays).mean())


def monitor_table(trials: int) -> str:
    alarms = {"calibration": 0, "frequencies": 0}
    honest, few = trials // 2, max(20, trials // 20)
    for seed in range(honest):
        rng = np.random.default_rng(seed)
        watch = mc.Monitor(reference=stream(rng, 5_000)[0], window=250).update(*stream(rng, 20_000))
        for alarm in watch.alarms:
            alarms[alarm.kind] += 1
    shares = ", ".join(f"{kind} {100 * number / honest:.1f} %" for kind, number in alarms.items())
    lines = [[f"honest, {honest:,} streams of 20,000 rows", f"false alarms: {shares} (alpha: 5 %)"]]
    for name, drift in (
        ("too sure, power 1.2", {"power": 1.2}),
        ("too sure, power 1.4", {"power": 1.4}),
        ("too sure, power 2", {"power": 2.0}),
        ("not sure enough, power 0.7", {"power": 0.7}),
        ("one class of five twice as frequent, no labels", {"weights": np.array([2.0, 1, 1, 1, 1])}),
    ):
        rows, share = delay(few, **drift)
        seen = f"alarm after {rows:,.0f} rows (median of {few}); in {100 * share:.0f} % of streams"
        lines.append([name, seen if share else f"no alarm within 20,000 rows ({few} streams)"])
    return pages.table(["stream, watched with a reference of 5,000 rows", "what happened"], lines, words=2)


def main(parts: Iterable[str] = ("coverage", "two", "alarms", "monitor")) -> None:
    parser = pages.parser_of(__doc__)
    parser.add_argument(
        "--trials",
        type=int,
        default=400,
        help="samples for each line; fewer where rows are many, more where they are few or fits are fast",
    )
    parser.add_argument("--boot", type=int, default=100, help="draws behind the intervals of errors")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="which of the tables")
    parser.add_argument(
        "--lines",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="measure only lines whose first cells contain such a text; --docs keeps the others of the page",
    )
    parser.add_argument(
        "--docs", action="store_true", help="write docs/guarantees.md and docs/examples/monitoring.md"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    makers = {
        "coverage": (
            "docs/guarantees.md",
            lambda: coverage_table(options.trials, options.boot, COVERAGE, COLUMNS, options.lines),
            2,
        ),
        "two": (
            "docs/guarantees.md",
            lambda: coverage_table(
                options.trials, options.boot, COVERAGE_OF_TWO, COLUMNS_OF_TWO, options.lines
            ),
            2,
        ),
        "alarms": ("docs/guarantees.md", lambda: alarms_table(options.trials, options.lines), 3),
        "monitor": ("docs/examples/monitoring.md", lambda: monitor_table(options.trials), 1),
    }
    for part in options.only:
        page, make, keys = makers[part]
        table = make()
        print(table, flush=True)
        if options.docs:
            pages.write_into(
                page, {"monitor": "monitoring"}.get(part, part), table, keys if options.lines else 0
            )


if __name__ == "__main__":
    main()
