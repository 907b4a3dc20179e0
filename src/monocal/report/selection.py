"""Which calibrator should I use? Fit several, judge them on the same rows, recommend one and say why.

The recommended one has the lowest NLL among those that guarantee the order of the classes. NLL is a mean over rows, so the
difference of two methods is the mean of row differences ``d_i``, with interval ``mean(d) ± z sd(d) / sqrt(n)``.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import norm

from ..errors import MissingExtraError
from ..metrics import Evaluation, OrderAudit, PriceOfOrder, evaluate
from ..metrics.price import price_of_rows
from .deadline import TimedTrial
from .trial import Judged, Trial

METRICS = ("nll", "ece", "brier", "accuracy")


@dataclass(frozen=True)
class MethodResult:
    """One method on the rows to judge on; ``note`` says why there are no figures, or what to know of them."""

    name: str
    keeps_order: bool
    evaluation: Evaluation | None = None
    audit: OrderAudit | None = None
    seconds: float = 0.0
    note: str = ""
    row_nll: np.ndarray | None = field(default=None, repr=False)
    row_top: np.ndarray | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Difference:
    """Mean of paired row differences of NLL, a - b, and its interval."""

    mean: float
    low: float
    high: float

    @property
    def decided(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class MethodComparison:
    """Methods in the order they were given, and which to use.

    Attributes
    ----------
    results : tuple of MethodResult
    recommended : str or None
        None when no method that keeps the order could be judged.
    level : float
    """

    results: tuple[MethodResult, ...]
    recommended: str | None
    level: float
    labels: np.ndarray | None = field(default=None, repr=False)

    @property
    def price(self) -> tuple[str, PriceOfOrder] | None:
        """The best method that may re-order, and what the recommended one loses to it; None where one of them is missing."""
        free = next((one for one in self.judged if not one.keeps_order), None)
        if free is None or self.recommended is None:
            return None
        keeping = self[self.recommended]
        assert keeping.row_nll is not None and free.row_nll is not None  # noqa: PT018
        assert keeping.row_top is not None and free.row_top is not None  # noqa: PT018
        assert self.labels is not None
        found = price_of_rows(
            keeping.row_nll, free.row_nll, keeping.row_top, free.row_top, self.labels, self.level
        )
        return free.name, found

    def __getitem__(self, name: str) -> MethodResult:
        return next(result for result in self.results if result.name == name)

    @property
    def judged(self) -> list[MethodResult]:
        """Those with figures, the lowest NLL first."""
        found = [result for result in self.results if result.evaluation is not None]
        return sorted(found, key=_nll)

    def difference(self, a: str, b: str) -> Difference:
        """NLL of a minus that of b, paired by row."""
        rows_a, rows_b = self[a].row_nll, self[b].row_nll
        assert rows_a is not None
        assert rows_b is not None
        with np.errstate(invalid="ignore"):
            d = np.where(rows_a == rows_b, 0.0, rows_a - rows_b)
            room = norm.ppf((1 + self.level) / 2) * d.std() / np.sqrt(len(d))
        if not np.isfinite(room):  # a label with probability zero: the sign is all there is
            return Difference(float(d.mean()), -np.inf, np.inf)
        return Difference(float(d.mean()), float(d.mean() - room), float(d.mean() + room))


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
        process of its own, which is ended. Starting that process is not counted.
    on_method : callable, optional
        Called with the name of each method before it is fitted.
    """
    if methods is None:
        methods = default_methods(trial.kind)
    judged: dict[str, Judged] = {}
    if known is not None:
        alike = (name for name, method in methods.items() if _same(method, known[0]))
        name = next(alike, f"this {type(known[0]).__name__}")
        methods = {**methods, name: known[0]}
        judged[name] = known[1]
    end = time.perf_counter() + time_limit
    results = [_result(UNCALIBRATED, True, trial, trial.before, n_boot, level, seed)]
    with TimedTrial(trial) as timed:
        for name, method in methods.items():
            keeps = bool(getattr(method, "preserves_order", False))
            left = end + timed.starting - time.perf_counter()
            if name not in judged and left <= 0:
                note = f"not tried: the {time_limit:g} seconds for the comparison were over"
                results.append(MethodResult(name, keeps, note=note))
                continue
            if on_method is not None:
                on_method(name)
            # A third of what is left, so that a slow method leaves time for those after it.
            found = judged.get(name) or partial(timed.judge, method, left / 3)
            results.append(_try(trial, name, keeps, found, n_boot, level, seed))
    candidates = [result for result in results[1:] if result.evaluation is not None and result.keeps_order]
    best = min(candidates, key=_nll, default=None)
    return MethodComparison(tuple(results), None if best is None else best.name, level, trial.labels)


def default_methods(kind: str = "logits") -> dict[str, Any]:
    """Every calibrator of `monocal.calibrators`, unfitted, by name: those that need no extra first, then those that keep the
    order."""
    from ..calibration import MCCTInverse
    from ..registry import calibrators
    from ..structured import LabelShift, Stacked

    # One variant a class; MCCT-I is MCCT in other units; published variants are there for the paper's tables; the others that are
    # left out are frames for methods that are tried by themselves.
    left_out = (MCCTInverse, Stacked, LabelShift)
    infos = [info for info in calibrators() if not info.published and info.cls not in left_out]
    infos.sort(key=lambda info: (bool(info.extras), not info.preserves_order))
    found: dict[str, Any] = {}
    for info in infos:
        found.setdefault(_method_name(info.cls), info.make().set_params(input=kind))
    return found


_PEOPLE = ("Bayesian", "Dirichlet")


def _method_name(kind: type) -> str:
    """``TemperatureScaling`` as temperature scaling, ``ConditionalMCCT`` as conditional MCCT."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[0-9]+", kind.__name__)
    return " ".join(part if part.isupper() or part in _PEOPLE else part.lower() for part in parts)


UNCALIBRATED = "uncalibrated"


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


def _nll(result: MethodResult) -> float:
    assert result.evaluation is not None
    return result.evaluation["nll"].value
