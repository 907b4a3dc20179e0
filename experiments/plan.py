"""Which trials a run consists of.

    tables    every method on every set, as many seeds as it needs
    sizes     methods on growing parts of the calibration set, several draws of each
    ranks     methods with a top-k, over k

A cell that two of them need is one trial. Nothing here is random or depends on time: the same data and settings give the
same plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from .methods import METHODS, ORDER_CURVES, RANK_CURVES, SIZE_CURVES
from .trials import Dataset, Trial


@dataclass(frozen=True)
class Settings:
    """How much to run.

    Attributes
    ----------
    seeds : int
        Runs of a method that is random.
    draws : int
        Random parts of a calibration set, of each size.
    fractions, counts : tuple
        Sizes of those parts, as shares and as numbers of samples.
    curve_sets, rank_sets : int
        How many sets the curves over sizes and over k are drawn for.
    rank_fractions : tuple of float
        The values of k, as shares of the number of classes.
    table_ranks, curve_ranks : int
        Most ranks that the published optimiser, whose time grows with their cube, is given in tables and over k, and in
        curves over sizes. Beyond, it runs with its top-k at this number, and the output says so.
    table_pairs, curve_pairs : int
        Most classes for which methods with a parameter for every pair of classes are run, in tables and in curves.
    """

    seeds: int = 10
    draws: int = 10
    fractions: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    counts: tuple[int, ...] = (100, 200)
    curve_sets: int = 3
    rank_sets: int = 2
    rank_fractions: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6)
    table_ranks: int = 1000
    curve_ranks: int = 100
    table_pairs: int = 1000
    curve_pairs: int = 100


FULL = Settings()
QUICK = Settings(
    seeds=1,
    draws=2,
    fractions=(0.5,),
    counts=(100,),
    curve_sets=2,
    rank_sets=1,
    rank_fractions=(0.01, 0.05, 0.1),
    table_ranks=100,
    table_pairs=100,
)


@dataclass(frozen=True)
class Plan:
    """The trials by what they are for; `trials` are all of them, once, the costly ones first."""

    datasets: tuple[Dataset, ...]
    settings: Settings
    seed: int
    methods: tuple[str, ...]
    tables: tuple[Trial, ...]
    sizes: tuple[Trial, ...]
    ranks: tuple[Trial, ...]

    @property
    def trials(self) -> list[Trial]:
        """Long trials first leave no core idle at the end."""
        different = {*self.tables, *self.sizes, *self.ranks}
        return sorted(different, key=lambda t: (-_cost(t), t.file_name))


def make_plan(datasets: tuple[Dataset, ...], settings: Settings, seed: int, methods: tuple[str, ...]) -> Plan:
    """All trials for these sets."""
    curve_sets = _varied(datasets)[: settings.curve_sets]
    rank_sets = sorted(_varied(datasets), key=lambda d: -d.n_classes)[: settings.rank_sets]
    return Plan(
        datasets,
        settings,
        seed,
        methods,
        tuple(t for d in datasets for m in methods for t in _full_trials(d, m, settings, seed)),
        tuple(t for d in curve_sets for m in methods for t in _size_trials(d, m, settings, seed)),
        tuple(t for d in rank_sets for m in methods for t in _rank_trials(d, m, settings, seed)),
    )


def _full_trials(dataset: Dataset, method: str, settings: Settings, seed: int) -> list[Trial]:
    if METHODS[method].pairwise and dataset.n_classes > settings.table_pairs:
        return []
    cap, slow = _cap(dataset, method, settings.table_ranks), METHODS[method].slow_ranks
    seeds = range(seed, seed + (settings.seeds if METHODS[method].random else 1))
    return [Trial(dataset, method, s, None, cap, examine=slow) for s in seeds]


def _size_trials(dataset: Dataset, method: str, settings: Settings, seed: int) -> list[Trial]:
    too_many = METHODS[method].pairwise and dataset.n_classes > settings.curve_pairs
    if method not in ORDER_CURVES + SIZE_CURVES or too_many:
        return []
    cap = _cap(dataset, method, settings.curve_ranks)
    sizes = {*settings.counts, *(round(f * dataset.n_cal) for f in settings.fractions)}
    parts = [
        Trial(dataset, method, seed + draw, n, cap)
        for n in sorted(sizes)
        if 0 < n < dataset.n_cal
        for draw in range(settings.draws)
    ]
    whole = _full_trials(dataset, method, settings, seed)
    if cap != _cap(dataset, method, settings.table_ranks):
        whole = [Trial(dataset, method, seed, None, cap)]
    return parts + whole


def _rank_trials(dataset: Dataset, method: str, settings: Settings, seed: int) -> list[Trial]:
    if method not in RANK_CURVES:
        return []
    ks = sorted({max(2, round(f * dataset.n_classes)) for f in settings.rank_fractions})
    most = settings.table_ranks if METHODS[method].slow_ranks else dataset.n_classes
    whole = _full_trials(dataset, method, settings, seed)  # k at its largest: all ranks, or the cap
    ks = [k for k in ks if k < min(most, dataset.n_classes)]
    return [Trial(dataset, method, seed, None, k) for k in ks] + whole


def _cap(dataset: Dataset, method: str, ranks: int) -> int | None:
    return ranks if METHODS[method].slow_ranks and dataset.n_classes > ranks else None


def _varied(datasets: tuple[Dataset, ...]) -> list[Dataset]:
    """In turn one set of each number of classes, from many classes to few."""
    by_classes: dict[int, list[Dataset]] = {}
    for d in datasets:
        by_classes.setdefault(d.n_classes, []).append(d)
    rounds = zip_longest(*(by_classes[m] for m in sorted(by_classes, reverse=True)))
    return [d for one in rounds for d in one if d is not None]


def _cost(trial: Trial) -> float:
    """Rough, for the order only."""
    ranks = trial.top_k or trial.dataset.n_classes
    cost = float((trial.n_cal or trial.dataset.n_cal) * trial.dataset.n_classes)
    if METHODS[trial.method].slow_ranks:
        cost += 100.0 * ranks**3
    return cost * (100.0 if METHODS[trial.method].random else 1.0)
