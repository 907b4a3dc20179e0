"""Several methods on the same rows, and the one to use.

The method is that of `monocal.selection.recommend`, which uses the calibration rows alone: no method is chosen because it won
on the rows that judge. The comparison can only veto it, where it makes the NLL, the ECE or a group worse beyond chance. Where
the recommended method is not among those compared (a list of the caller's), it is

    best          the lowest NLL among the methods that guarantee the order
    alike         those of them whose interval against the best holds zero
    recommended   the simplest of these

The difference of two methods is the mean of their row differences of NLL with its interval. Where the best method that may
re-order is clearly better than the best that may not, it is named with what the order costs.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ..errors import CalibrationWarning, InputError, MissingExtraError
from ..metrics import Evaluation, OrderAudit, PriceOfOrder, evaluate
from ..metrics.differences import NEGLIGIBLE, Difference, paired_difference, price_of_rows
from ..metrics.groups import read_groups
from ..metrics.units import number, percent, quoted, with_interval
from ..registry import all_calibrators, method_name
from ..selection import Recommendation, groups_differ, recommend
from .trial import Judged, TimedTrial, Trial, row_nll

UNCALIBRATED = "uncalibrated"
METRICS = ("nll", "ece", "brier", "accuracy")
METRICS_OF_TWO = (*METRICS, "positive_ece", "positive_brier")
_DRAWN_ROWS = 2_000_000  # of the test whether the ECE rose
_QUICK = 30_000  # rows times classes, below which a process would take longer to start than most methods
_WORTH_A_START = 1.0  # seconds left, below which no new process is started

# By how much there is to understand, and to learn from the rows: one number, one a rank or class, matrices, networks. Steps come
# last: they make equal what was not.
SIMPLEST_FIRST = (
    "TemperatureScaling",
    "PlattScaling",
    "BetaCalibration",
    "BinaryMCCT",
    "VennAbers",
    "EnsembleTemperatureScaling",
    "MCCT",
    "ConditionalMCCT",
    "IsotonicCalibration",
    "ParameterizedTemperatureScaling",
    "IntraOrderPreserving",
    "VectorScaling",
    "StructuredScaling",
    "MatrixScaling",
    "DirichletCalibration",
    "StructuredMCCT",
    "SplineCalibration",
    "ScalingBinning",
    "HistogramBinning",
    "BayesianBinning",
)
# MCCT-I is MCCT in other units; the others are frames for methods that are tried by themselves.
_LEFT_OUT = ("MCCTInverse", "Stacked", "LabelShift")


def complexity(method: Any) -> int:
    """Place in `SIMPLEST_FIRST`; other methods come after all of these."""
    name = type(method).__name__
    return SIMPLEST_FIRST.index(name) if name in SIMPLEST_FIRST else len(SIMPLEST_FIRST)


@dataclass(frozen=True)
class MethodResult:
    """One method on the rows to judge on; ``note`` says why there are no figures, or what to know of them.

    Attributes
    ----------
    name, note : str
    keeps_order : bool
        Of two classes: whether it keeps the ranking of the rows.
    evaluation, audit : Evaluation, OrderAudit
        None where the method was not judged.
    seconds : float
        To fit.
    complexity : int
        Its place among all methods, the simplest first.
    row_nll, row_top : ndarray of shape (n,)
        By row: the loss, and the class on top.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.report import MethodResult
    >>> data = mc.data.synthetic(400, 4)
    >>> result = MethodResult("the truth", True, mc.evaluate(data.truth, data.labels, metrics="nll"))
    >>> round(result.nll, 2)
    0.5
    """

    name: str
    keeps_order: bool
    evaluation: Evaluation | None = None
    audit: OrderAudit | None = None
    seconds: float = 0.0
    note: str = ""
    complexity: int = len(SIMPLEST_FIRST)
    row_nll: np.ndarray | None = field(default=None, repr=False)
    row_top: np.ndarray | None = field(default=None, repr=False)

    @property
    def nll(self) -> float:
        """Of the rows judged on."""
        assert self.evaluation is not None
        return self.evaluation["nll"].value


@dataclass(frozen=True)
class MethodComparison:
    """Methods in the order they were tried, and which to use.

    Attributes
    ----------
    results : tuple of MethodResult
    level : float
    labels : ndarray of shape (n,)
        Of the rows judged on.
    asked : str or None
        The method that was asked for.
    default, recommendation, judged_default
        The method that is recommended unless it does harm, why, and what it did to the rows.
    harm : tuple of str
        What it makes worse beyond chance.
    differ : bool
        Whether groups of a test set differ after it, which it was not fitted for.
    two : bool
        Whether there are two classes, so that the order which matters is that of the rows.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.report import MethodComparison, MethodResult
    >>> data = mc.data.synthetic(400, 4)
    >>> result = MethodResult("the truth", True, mc.evaluate(data.truth, data.labels, metrics="nll"))
    >>> made = MethodComparison((result, MethodResult("slow", True, note="stopped")), level=0.95)
    >>> [one.name for one in made.judged], made["slow"].note
    (['the truth'], 'stopped')
    """

    results: tuple[MethodResult, ...]
    level: float
    labels: np.ndarray | None = field(default=None, repr=False)
    asked: str | None = None
    default: str | None = None
    recommendation: Recommendation | None = None
    judged_default: Judged | None = field(default=None, repr=False)
    harm: tuple[str, ...] = ()
    differ: bool = False
    two: bool = False

    def __getitem__(self, name: str) -> MethodResult:
        return next(result for result in self.results if result.name == name)

    def __contains__(self, name: object) -> bool:
        return any(result.name == name for result in self.results)

    @property
    def judged(self) -> list[MethodResult]:
        """Those with figures, the lowest NLL first."""
        return sorted((one for one in self.results if one.evaluation is not None), key=lambda one: one.nll)

    @property
    def unfinished(self) -> list[str]:
        """Methods without figures."""
        return [one.name for one in self.results if one.evaluation is None]

    def candidates(self, keeping: bool) -> list[MethodResult]:
        """Methods with figures that keep the order, or that may not; the lowest NLL first."""
        return [one for one in self.judged if one.name != UNCALIBRATED and one.keeps_order == keeping]

    def best(self, *, keeping: bool) -> MethodResult | None:
        """The method of lowest NLL among those that keep the order, or among those that may not."""
        return next(iter(self.candidates(keeping)), None)

    def alike(self, *, keeping: bool) -> list[MethodResult]:
        """The best and those that differ from it by no more than chance, the simplest first."""
        every = self.candidates(keeping)
        tied = [one for one in every if not self.clearly_worse(one.name, every[0].name)]
        return sorted(tied, key=lambda one: (one.complexity, one.nll))

    @property
    def recommended(self) -> str | None:
        """The method to use: ``"uncalibrated"`` where the one recommended does harm, None where none could be judged."""
        if self.default is not None:
            return UNCALIBRATED if self.harm else self.default
        best = self.best(keeping=True)
        if best is None:
            return None
        if UNCALIBRATED in self and self.clearly_worse(best.name, UNCALIBRATED):
            return UNCALIBRATED
        return self.alike(keeping=True)[0].name

    @property
    def shown(self) -> str | None:
        """The method that a page is about: the one asked for, the one recommended, or the best there is."""
        if self.asked is not None or self.default is not None:
            return self.asked or self.default
        best = self.recommended
        return self.candidates(True)[0].name if best == UNCALIBRATED else best

    @property
    def price(self) -> tuple[str, PriceOfOrder] | None:
        """The best method that may re-order, and what the best that keeps the order loses to it; None without one of them.

        The best of k is better than it should be, so its interval is that of k: ``1 - (1 - level) / k``.
        """
        keeping, free = self.best(keeping=True), self.best(keeping=False)
        with_context = self.recommendation is not None and self.recommendation.context
        if keeping is None or free is None or with_context:  # the others have no context
            return None
        rows = (keeping.row_nll, free.row_nll, keeping.row_top, free.row_top, self.labels)
        level = 1 - (1 - self.level) / len(self.candidates(keeping=False))
        return free.name, price_of_rows(*rows, level)  # type: ignore[arg-type]  # they were judged

    @property
    def recommended_free(self) -> str | None:
        """The method to use where the order may change, where keeping it has a price; else None."""
        price = self.price
        if price is None or not price[1].costs:
            return None
        names = [one.name for one in self.alike(keeping=False)]
        return self.default if self.default in names else names[0]

    def difference(self, a: str, b: str) -> Difference:
        """NLL of a minus that of b, paired by row."""
        rows_a, rows_b = self[a].row_nll, self[b].row_nll
        assert rows_a is not None
        assert rows_b is not None
        return paired_difference(rows_a, rows_b, self.level)

    def clearly_worse(self, a: str, b: str) -> bool:
        """Whether a has a higher NLL than b by more than noise; one that gives a label no probability at all is."""
        if np.isinf([self[a].nll, self[b].nll]).any():
            return self[a].nll > self[b].nll
        return _rises(self.difference(a, b))


def _rises(difference: Difference) -> bool:
    return difference.low > 0 and difference.mean >= NEGLIGIBLE


def compare_methods(
    trial: Trial,
    methods: Mapping[str, Any] | None = None,
    *,
    known: tuple[Any, Judged] | None = None,
    groups: Any = None,
    class_names: Sequence[str] | None = None,
    n_boot: int = 200,
    level: float = 0.95,
    time_limit: float = 60.0,
    seed: int = 0,
    on_method: Callable[[str], None] | None = None,
) -> MethodComparison:
    """Fit and judge every method.

    Parameters
    ----------
    trial : Trial
        Which rows to fit and to judge on.
    methods : mapping of str to unfitted calibrators, optional
        Default: `default_methods`.
    known : (calibrator, Judged), optional
        One that has been judged already: it is not fitted again, and takes part whether or not ``methods`` has it.
    groups : array-like of shape (n,), frame or mapping of columns, optional
        Of the rows judged on. They are the ``context`` of the recommended method where they differ, in a cross-validation.
    class_names, n_boot, level, seed
        As in `monocal.evaluate`.
    time_limit : float
        Seconds in all. A method that takes more than a third of those left is stopped, and the result says so: it runs in a
        process of its own, which is ended. Starting it is not counted; small sets need none. The recommendation does not depend
        on it.
    on_method : callable, optional
        Called with the name of each method before it is fitted.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.report import Trial, as_set, compare_methods
    >>> data = mc.data.synthetic(400, 4)
    >>> trial = Trial.of(as_set((data.values, data.labels), "cal"), None)
    >>> made = compare_methods(trial, {"TS": mc.TemperatureScaling(), "MCCT": mc.MCCT()}, n_boot=20)
    >>> [result.name for result in made.results]
    ['uncalibrated', 'TS', 'MCCT']
    >>> made.recommended
    'TS'
    """
    announce = on_method or (lambda name: None)
    before, two = trial.before, trial.values.shape[1] == 2
    advised = recommend(
        *trial.calibration, kind=trial.kind, groups=groups if trial.crossed else None, class_names=class_names
    )
    default = advised.title if methods is None else _name_of(methods, advised.calibrator)
    tried = dict(default_methods(trial.kind, before.shape[1]) if methods is None else methods)
    judged: dict[str, Judged] = {}
    asked = None
    if known is not None:
        asked = _name_of(tried, known[0]) or f"{method_name(type(known[0]))} as given"
        tried[asked], judged[asked] = known
    if default is not None and advised.context:
        default = f"{default} with context"
    if default is not None:
        tried[default] = advised.calibrator
        if default not in judged:
            announce(default)
            context = context_of(groups, len(trial.labels)) if advised.context else None
            with warnings.catch_warnings(), suppress(InputError):  # it is then listed with the reason
                warnings.simplefilter("ignore", CalibrationWarning)  # the page says what is wrong
                judged[default] = trial.judge(advised.calibrator, context=context)
            default = default if default in judged else None

    options = {"n_boot": n_boot, "level": level, "seed": seed}
    results = [_result(UNCALIBRATED, True, trial, before, **options)]
    results += _try_all(trial, tried, judged, time_limit, announce, options)
    chosen = None if default is None else judged[default]
    harm: tuple[str, ...] = ()
    differ = False
    if chosen is not None:
        harm = harm_of(before, chosen.probabilities, trial.labels, groups, level, seed)
        if groups is not None and not trial.crossed:
            number_of_row = read_groups(groups, len(trial.labels)).number
            differ = groups_differ(chosen.probabilities, trial.labels, number_of_row)
    reason = None if default is None else advised
    return MethodComparison(
        tuple(results), level, trial.labels, asked, default, reason, chosen, harm, differ, two
    )


def _name_of(methods: Mapping[str, Any], method: Any) -> str | None:
    """The name under which the same class with the same settings is listed."""
    alike = (n for n, other in methods.items() if type(other) is type(method) and repr(other) == repr(method))
    return next(alike, None)


def context_of(groups: Any, n: int) -> np.ndarray:
    """Groups as one name per row."""
    made = read_groups(groups, n)
    return np.array(made.names, dtype=object)[made.number].astype(str)


def _try_all(
    trial: Trial,
    methods: Mapping[str, Any],
    judged: Mapping[str, Judged],
    time_limit: float,
    announce: Callable[[str], None],
    options: dict[str, Any],
) -> list[MethodResult]:
    two, small = trial.values.shape[1] == 2, trial.values.size <= _QUICK
    end, results = time.perf_counter() + time_limit, []
    with TimedTrial(trial) as timed:
        for name, method in methods.items():
            keeps = bool(getattr(method, "preserves_ranking" if two else "preserves_order", False))
            left = end + timed.starting - time.perf_counter()
            if name in judged:
                made = _try(trial, name, keeps, partial(judged.__getitem__, name), options)
            elif left <= (_WORTH_A_START if timed.ended else 0):
                note = f"not tried: the {time_limit:g} seconds for the comparison were over"
                made = MethodResult(name, keeps, note=note)
            else:
                announce(name)
                own = complexity(method) < len(SIMPLEST_FIRST) and not type(method).extras
                # A third of what is left, so that a slow method leaves time for those after it.
                work = (
                    partial(trial.judge, method) if small and own else partial(timed.judge, method, left / 3)
                )
                made = _try(trial, name, keeps, work, options)
            results.append(replace(made, complexity=complexity(method)))
    return results


def _try(
    trial: Trial, name: str, keeps: bool, work: Callable[[], Judged], options: dict[str, Any]
) -> MethodResult:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            judged = work()
            if trial.values.shape[1] == 2:
                keeps = judged.keeps_ranking  # of Platt scaling only a fit knows
            result = _result(name, keeps, trial, judged.probabilities, **options)
        except (MissingExtraError, TimeoutError) as error:
            return MethodResult(name, keeps, note=str(error))
        except Exception as error:  # one method that fails must not cost the others' results
            return MethodResult(name, keeps, note=f"failed: {error}")
    notes = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning))
    return replace(result, audit=judged.audit, seconds=judged.seconds, note=" ".join(notes))


def _result(name: str, keeps: bool, trial: Trial, probs: np.ndarray, **options: Any) -> MethodResult:
    metrics = METRICS_OF_TWO if probs.shape[1] == 2 else METRICS
    evaluation = evaluate(probs, trial.labels, metrics=metrics, **options)
    loss = row_nll(probs, trial.labels)
    return MethodResult(name, keeps, evaluation, row_nll=loss, row_top=probs.argmax(axis=1))


def harm_of(
    before: np.ndarray, after: np.ndarray, labels: np.ndarray, groups: Any, level: float, seed: int
) -> tuple[str, ...]:
    """What calibration makes worse beyond chance: the NLL, the ECE (of two classes that of P(class 1)), or a group."""
    old, new = (row_nll(p, labels) for p in (before, after))
    harm = []
    change = paired_difference(new, old, level)
    if _rises(change):
        harm.append(f"raises the NLL by {with_interval(change.mean, change.low, change.high, level)}")
    old_ece, new_ece, raised = ece_raised(before, after, labels, level, seed)
    if raised:
        harm.append(f"raises the ECE from {percent(old_ece)} to {percent(new_ece)}")
    if groups is not None:
        made = read_groups(groups, len(labels))
        for k, name in enumerate(made.names):
            rows = made.number == k
            change = paired_difference(new[rows], old[rows], 1 - (1 - level) / len(made.names))
            if _rises(change):
                harm.append(f"makes {quoted(name)} worse (NLL higher by {number(change.mean, 3)})")
    return tuple(harm)


def ece_raised(
    before: np.ndarray, after: np.ndarray, labels: np.ndarray, level: float, seed: int
) -> tuple[float, float, bool]:
    """ECE before and after, in 15 equal bins, and whether it rose by more than rows drawn again explain."""
    n, generator = len(labels), np.random.default_rng(seed)
    sides = []
    for p in (before, after):
        claim = p[:, 1] if p.shape[1] == 2 else p.max(axis=1)
        right = labels == (1 if p.shape[1] == 2 else p.argmax(axis=1))
        sides.append((np.minimum((15 * claim).astype(int), 14), right - claim))

    def eces(weight: np.ndarray) -> list[float]:
        return [float(np.abs(np.bincount(bins, weight * gap)).sum()) / n for bins, gap in sides]

    old, new = eces(np.ones(n))
    if new <= old:
        return old, new, False
    n_draws = int(np.clip(_DRAWN_ROWS // n, 40, 200))
    draws = np.array([eces(np.bincount(generator.integers(n, size=n), minlength=n)) for _ in range(n_draws)])
    low = 2 * (new - old) - np.quantile(draws[:, 1] - draws[:, 0], (1 + level) / 2)
    return old, new, bool(low > 0)


def default_methods(kind: str = "logits", n_classes: int = 3, *, networks: bool = False) -> dict[str, Any]:
    """Unfitted calibrators by name: those that keep the order first, the simplest of them first.

    One variant a class. ``networks`` adds those that train one, for minutes. With two classes, what matters is the order of the
    rows, and the methods for one score take part.

    Parameters
    ----------
    kind : {"logits", "probabilities"}
    n_classes : int
    networks : bool

    Examples
    --------
    >>> from monocal.report import default_methods
    >>> list(default_methods())[:3]
    ['temperature scaling', 'ensemble temperature scaling', 'MCCT']
    """
    two = n_classes == 2
    made: dict[str, Any] = {}
    for info in all_calibrators(one_score=True) * two + all_calibrators():
        if info.published or info.cls.__name__ in _LEFT_OUT or (info.extras and not networks):
            continue
        method = info.make().set_params(input=kind)
        if two and info.cls.__name__ == "IsotonicCalibration":
            method.set_params(mode="one_vs_rest")  # what isotonic calibration means for two classes
        made.setdefault(method_name(info.cls), method)
    keeps = "preserves_ranking" if two else "preserves_order"
    return dict(sorted(made.items(), key=lambda one: (not getattr(one[1], keeps), complexity(one[1]))))
