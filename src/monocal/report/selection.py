"""Which calibrator should I use? Fit several, judge them on the same rows, recommend one and say why.

Never on noise: the difference of two methods is the mean of their row differences of NLL with its interval (`metrics.paired`).

    best          the lowest NLL among the methods that guarantee the order of the classes
    alike         those of them whose interval against the best holds zero
    recommended   the simplest of these

Where the best method that may re-order is clearly better than the best that may not, the simplest of its kind is named as well,
with what the order costs. The rows that choose are the rows that judge, and every sentence that recommends says so.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ..calibrators import (
    MCCT,
    BayesianBinning,
    BetaCalibration,
    BinaryMCCT,
    ConditionalMCCT,
    DirichletCalibration,
    EnsembleTemperatureScaling,
    HistogramBinning,
    IntraOrderPreserving,
    IsotonicCalibration,
    LabelShift,
    MatrixScaling,
    MCCTInverse,
    ParameterizedTemperatureScaling,
    PlattScaling,
    ScalingBinning,
    SplineCalibration,
    Stacked,
    StructuredMCCT,
    StructuredScaling,
    TemperatureScaling,
    VectorScaling,
    VennAbers,
)
from ..errors import MissingExtraError
from ..metrics import Evaluation, OrderAudit, PriceOfOrder, evaluate
from ..metrics.paired import NEGLIGIBLE, Difference, paired_difference
from ..metrics.price import price_of_rows
from ..selection import method_name
from .deadline import TimedTrial
from .trial import Judged, Trial

# By how much there is to understand, and to learn from the rows: one number, one a rank or class, matrices, networks. Steps come
# last: they make equal what was not.
SIMPLEST_FIRST: tuple[type, ...] = (
    TemperatureScaling,
    PlattScaling,
    BetaCalibration,
    BinaryMCCT,
    VennAbers,
    EnsembleTemperatureScaling,
    MCCT,
    MCCTInverse,
    ConditionalMCCT,
    IsotonicCalibration,
    ParameterizedTemperatureScaling,
    IntraOrderPreserving,
    VectorScaling,
    StructuredScaling,
    MatrixScaling,
    DirichletCalibration,
    StructuredMCCT,
    LabelShift,
    Stacked,
    SplineCalibration,
    ScalingBinning,
    HistogramBinning,
    BayesianBinning,
)


def complexity(method: Any) -> int:
    """Place in `SIMPLEST_FIRST`; a method that is not of this library comes after all that are."""
    return next((i for i, kind in enumerate(SIMPLEST_FIRST) if type(method) is kind), len(SIMPLEST_FIRST))


METRICS = ("nll", "ece", "brier", "accuracy")


@dataclass(frozen=True)
class MethodResult:
    """One method on the rows to judge on; ``note`` says why there are no figures, or what to know of them.

    ``complexity`` is its place among all methods, the simplest first.

    Attributes
    ----------
    name : str
    keeps_order : bool
    evaluation : Evaluation or None
        None where the method was not judged.
    audit : OrderAudit or None
    seconds : float
        To fit.
    note : str
    complexity : int
    row_nll, row_top : ndarray of shape (n,), or None
        By row: the loss, and the confidence of the top class.

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
    """Methods in the order they were given, and which to use.

    Attributes
    ----------
    results : tuple of MethodResult
    level : float
    labels : ndarray of shape (n,)
        Of the rows judged on.
    asked : str or None
        The method that was asked for by name, judged before the others.
    default : str or None
        The method that is recommended unless another is clearly better, in place of the simplest.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.report import MethodComparison, MethodResult
    >>> data = mc.data.synthetic(400, 4)
    >>> result = MethodResult("the truth", True, mc.evaluate(data.truth, data.labels, metrics="nll"))
    >>> found = MethodComparison((result, MethodResult("slow", True, note="stopped")), level=0.95)
    >>> [one.name for one in found.judged], found["slow"].note
    (['the truth'], 'stopped')
    """

    results: tuple[MethodResult, ...]
    level: float
    labels: np.ndarray | None = field(default=None, repr=False)
    asked: str | None = None
    default: str | None = None

    def __getitem__(self, name: str) -> MethodResult:
        return next(result for result in self.results if result.name == name)

    def __contains__(self, name: object) -> bool:
        return any(result.name == name for result in self.results)

    @property
    def judged(self) -> list[MethodResult]:
        """Those with figures, the lowest NLL first."""
        found = [result for result in self.results if result.evaluation is not None]
        return sorted(found, key=lambda result: result.nll)

    def best(self, *, keeping: bool) -> MethodResult | None:
        """The method of lowest NLL among those that keep the order, or among those that may not."""
        return next(iter(self._candidates(keeping)), None)

    def alike(self, *, keeping: bool) -> list[MethodResult]:
        """The best and those that cannot be told from it, the simplest first."""
        best = self.best(keeping=keeping)
        if best is None:
            return []
        tied = [one for one in self._candidates(keeping) if not self.clearly_worse(one.name, best.name)]
        return sorted(tied, key=lambda one: (one.complexity, one.nll))

    @property
    def recommended(self) -> str | None:
        """The default, or else the simplest, of the order-keeping methods that cannot be told from the best of them.

        ``"uncalibrated"`` where every one of them is clearly worse than no calibration; None where none could be judged.
        """
        best = self.best(keeping=True)
        if best is None:
            return None
        if UNCALIBRATED in self and self.clearly_worse(best.name, UNCALIBRATED):
            return UNCALIBRATED
        alike = [one.name for one in self.alike(keeping=True)]
        return self.default if self.default in alike else alike[0]

    @property
    def recommended_free(self) -> str | None:
        """The simplest of the best methods that may re-order, where the order has a price; else None."""
        price = self.price
        return self.alike(keeping=False)[0].name if price is not None and price[1].costs else None

    @property
    def price(self) -> tuple[str, PriceOfOrder] | None:
        """The best method that may re-order, and what the best that keeps the order loses to it; None without one of them.

        The best of k is better than it should be, so its interval is that of k: ``1 - (1 - level) / k``.
        """
        keeping, free = self.best(keeping=True), self.best(keeping=False)
        if keeping is None or free is None:
            return None
        assert keeping.row_nll is not None
        assert keeping.row_top is not None
        assert free.row_nll is not None
        assert free.row_top is not None
        assert self.labels is not None
        level = 1 - (1 - self.level) / len(self._candidates(keeping=False))
        return free.name, price_of_rows(
            keeping.row_nll, free.row_nll, keeping.row_top, free.row_top, self.labels, level
        )

    def difference(self, a: str, b: str) -> Difference:
        """NLL of a minus that of b, paired by row."""
        rows_a, rows_b = self[a].row_nll, self[b].row_nll
        assert rows_a is not None
        assert rows_b is not None
        return paired_difference(rows_a, rows_b, self.level)

    def clearly_worse(self, a: str, b: str) -> bool:
        """Whether a has a higher NLL than b by more than noise; one that gives a label no probability at all is."""
        if np.isinf(self[a].nll) or np.isinf(self[b].nll):
            return self[a].nll > self[b].nll
        found = self.difference(a, b)
        return found.low > 0 and found.mean >= NEGLIGIBLE

    def _candidates(self, keeping: bool) -> list[MethodResult]:
        return [one for one in self.judged if one.name != UNCALIBRATED and one.keeps_order == keeping]


def compare_methods(
    trial: Trial,
    methods: Mapping[str, Any] | None = None,
    *,
    known: tuple[Any, Judged] | None = None,
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
    n_boot, level, seed
        Of the intervals, as in `monocal.evaluate`.
    time_limit : float
        Seconds in all. A method that takes more than a third of those left is stopped, and the result says so: it runs in a
        process of its own, which is ended. Starting that process is not counted, but none is started for the last second.
    on_method : callable, optional
        Called with the name of each method before it is fitted.

    Returns
    -------
    MethodComparison

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.report import Trial, as_set, compare_methods
    >>> data = mc.data.synthetic(400, 4)
    >>> trial = Trial.of(as_set((data.values, data.labels), "cal"), None)
    >>> found = compare_methods(trial, {"TS": mc.TemperatureScaling(), "MCCT": mc.MCCT()}, n_boot=20)
    >>> [result.name for result in found.results]
    ['uncalibrated', 'TS', 'MCCT']
    >>> found.recommended
    'TS'
    """
    if methods is None:
        methods = default_methods(trial.kind, trial.before.shape[1])
    judged: dict[str, Judged] = {}
    asked = None
    if known is not None:
        alike = (name for name, method in methods.items() if _same(method, known[0]))
        asked = next(alike, f"{method_name(type(known[0]))} as given")
        methods = {**methods, asked: known[0]}
        judged[asked] = known[1]
    two = trial.before.shape[1] == 2  # the order that matters is then that of the rows
    default = next((name for name, method in methods.items() if two and type(method) is BinaryMCCT), None)
    end = time.perf_counter() + time_limit
    results = [_result(UNCALIBRATED, True, trial, trial.before, n_boot, level, seed)]
    with TimedTrial(trial) as timed:
        for name, method in methods.items():
            keeps = bool(getattr(method, "preserves_ranking" if two else "preserves_order", False))
            left = end + timed.starting - time.perf_counter()
            if name not in judged and left <= (_WORTH_A_START if timed.ended else 0):
                note = f"not tried: the {time_limit:g} seconds for the comparison were over"
                results.append(MethodResult(name, keeps, note=note))
                continue
            if on_method is not None:
                on_method(name)
            # A third of what is left, so that a slow method leaves time for those after it.
            found = judged.get(name) or partial(timed.judge, method, left / 3)
            result = _try(trial, name, keeps, found, n_boot, level, seed)
            results.append(replace(result, complexity=complexity(method)))
    return MethodComparison(tuple(results), level, trial.labels, asked, default)


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
    from ..registry import all_calibrators

    # MCCT-I is MCCT in other units; published variants are there for the paper's tables; the others are frames for methods that
    # are tried by themselves.
    left_out = (MCCTInverse, Stacked, LabelShift)
    two = n_classes == 2
    listed = all_calibrators(one_score=True) * two + all_calibrators()
    infos = [info for info in listed if not info.published and info.cls not in left_out]
    infos = [info for info in infos if networks or not info.extras]
    infos.sort(key=lambda info: (bool(info.extras), not info.preserves_order))
    found: dict[str, Any] = {}
    for info in infos:
        made = info.make().set_params(input=kind)
        if two and info.cls is IsotonicCalibration:
            made.set_params(mode="one_vs_rest")  # what isotonic calibration means for two classes
        found.setdefault(method_name(info.cls), made)
    keeps = "preserves_ranking" if two else "preserves_order"
    return dict(sorted(found.items(), key=lambda one: (not getattr(one[1], keeps), complexity(one[1]))))


UNCALIBRATED = "uncalibrated"
_WORTH_A_START = 1.0  # seconds left, below which no new process is started, which takes longer


def _same(a: Any, b: Any) -> bool:
    """Same class, same settings."""
    return type(a) is type(b) and repr(a.get_params()) == repr(b.get_params())


def _try(
    trial: Trial,
    name: str,
    keeps: bool,
    found: Judged | Callable[[], Judged],
    n_boot: int,
    level: float,
    seed: int,
) -> MethodResult:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            judged = found if isinstance(found, Judged) else found()
            result = _result(name, keeps, trial, judged.probabilities, n_boot, level, seed)
        except (MissingExtraError, TimeoutError) as error:
            return MethodResult(name, keeps, note=str(error))
        except Exception as error:  # one method that fails must not cost the others' results
            return MethodResult(name, keeps, note=f"failed: {error}")
    notes = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning))
    return replace(result, audit=judged.audit, seconds=judged.seconds, note=" ".join(notes))


def _result(
    name: str, keeps: bool, trial: Trial, probs: np.ndarray, n_boot: int, level: float, seed: int
) -> MethodResult:
    found = evaluate(probs, trial.labels, metrics=list(METRICS), n_boot=n_boot, level=level, seed=seed)
    with np.errstate(divide="ignore"):
        row_nll = -np.log(probs[np.arange(len(probs)), trial.labels].astype(np.float64))
    return MethodResult(name, keeps, found, row_nll=row_nll, row_top=probs.argmax(axis=1))
