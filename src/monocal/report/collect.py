"""Everything a report says is collected here, once: fit, judge and compare."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .. import persistence
from ..errors import InputError
from ..io import LogitsSet
from ..metrics import Evaluation, ece_floor, evaluate, label_shift_test
from ..metrics.grouping import read_groups
from ..metrics.groups import PREDICTED
from ..metrics.outcomes import Outcomes
from ..metrics.paired import Difference, paired_difference
from ..metrics.scores import score_terms
from ..plots import (
    EffectCurve,
    RankParameters,
    effect_curve,
    margin_curve,
    margins,
    rank_parameters,
    reliability_curve,
)
from ..selection import method_name
from .confidence import confidence_change
from .contents import METRICS, Report, Side
from .for_whom import ForWhom, for_whom
from .selection import UNCALIBRATED, MethodComparison, compare_methods, default_methods
from .trial import FOLDS, Trial, as_set

_ROWS_A_BIN = 10  # of the margin: fewer tell nothing
_DRAWN_ROWS = 5_000_000  # rows drawn for intervals when the number of draws is not given: seconds


def collect(
    cal: Any,
    test: Any = None,
    *,
    calibrator: Any = None,
    methods: Mapping[str, Any] | bool | None = None,
    title: str | None = None,
    kind: str = "logits",
    groups: Any = None,
    n_bins: int = 15,
    n_boot: int | None = None,
    level: float = 0.95,
    time_limit: float = 60.0,
    seed: int = 0,
    on_step: Callable[[str], None] | None = None,
) -> Report:
    """Fit, judge and compare.

    Parameters
    ----------
    cal, test, calibrator, methods, title, kind, groups, n_bins, n_boot, level, time_limit, seed, on_step
        As in `monocal.report.write_report`.

    Returns
    -------
    Report

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(400, 4)
    >>> report = mc.report.collect(data, calibrator=mc.TemperatureScaling(), methods=False, n_boot=20)
    >>> report.shown, report.n_judged
    ('temperature scaling', 400)
    >>> report.after.evaluation["nll"].value < report.before.evaluation["nll"].value
    True
    """
    tell = on_step or (lambda text: None)
    cal = as_set(cal, "cal", kind)
    test = None if test is None else as_set(test, "test", cal.kind)
    trial = Trial.of(cal, test, seed)
    if isinstance(groups, str) and groups == PREDICTED:
        groups = None  # they are always shown
    if groups is not None:
        read_groups(groups, len(trial.labels))  # refuses before the work, not after it
    given = _given(calibrator, cal)
    fitted = given is not None and _is_fitted(given)
    if n_boot is None:
        n_boot = int(np.clip(_DRAWN_ROWS // len(trial.labels), 100, 500))

    judged = comparison = None
    if given is not None:
        tell("fitting")
        judged = trial.judge(given, fitted=fitted)
    if methods is not False:
        tell("comparing methods")
        wanted = (
            methods
            if isinstance(methods, Mapping)
            else default_methods(cal.kind, cal.n_classes, networks=methods is True)
        )
        comparison = compare_methods(
            trial,
            wanted,
            # One that came fitted may have seen the rows that the others are cross-validated on.
            known=None if judged is None or (fitted and trial.crossed) else (given, judged),
            n_boot=min(n_boot, 200),
            level=level,
            time_limit=time_limit,
            seed=seed,
            on_method=lambda name: tell(f"comparing methods: {name}"),
        )
    template = given
    if judged is None:
        tell("fitting")
        template = _to_ship(comparison, wanted) if comparison is not None else None
        template = _default(cal) if template is None else template
        judged = trial.judge(template)
    refit = trial.crossed and not fitted
    model = clone(template).fit(cal.values, cal.labels) if refit else judged.model
    shown = method_name(type(template))
    if comparison is not None:
        if given is None:
            shown = _shipped_name(comparison) or shown
        else:
            shown = comparison.asked or f"{shown} as given"

    tell("measuring")
    both = trial.before, judged.probabilities
    sides = _sides(trial, both, n_bins, n_boot, level, seed)
    if comparison is not None:  # one interval for one number
        comparison = _with_figures(
            comparison, {UNCALIBRATED: sides[0].evaluation, shown: sides[1].evaluation}
        )

    parameters, effects = _inside(model, cal)
    name = cal.name if cal.name != "data" else "your data"
    return Report(
        title=title or f"Calibration of {name}",
        data_name=name,
        kind=cal.kind,
        n_cal=cal.n_samples,
        n_judged=len(trial.labels),
        n_classes=cal.n_classes,
        judged_how=_how(trial, fitted, test is not None),
        before=sides[0],
        after=sides[1],
        changes=_changes(trial, both, level),
        audit=judged.audit,
        methods=comparison,
        shift=None if test is None else label_shift_test(cal.labels, test.labels, n_classes=cal.n_classes),
        class_names=cal.class_names,
        shown=shown,
        calibrator=model,
        saved=_saved(model, cal, fitted, sides[1].evaluation),
        for_whom=_for_whom(trial, both, groups, cal.class_names, level, seed),
        confidence=confidence_change(model, trial.values, both[0]),
        parameters=parameters,
        effects=effects,
        explanation=str(model.explain()) if hasattr(model, "explain") else None,
        solution=getattr(model, "solution_", None),
        fingerprint=persistence.fingerprint(cal.values, cal.labels),
        versions=_versions(),
        created=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        notes=tuple(dict.fromkeys(note for one in (cal, test) if one is not None for note in _notes(one))),
    )


def _shipped_name(comparison: MethodComparison) -> str | None:
    """What the page shows: the recommended method; the best there is where none should be used; None where none was judged."""
    name = comparison.recommended
    if name != UNCALIBRATED:
        return name
    best = comparison.best(keeping=True)
    return None if best is None else best.name


def _to_ship(comparison: MethodComparison, methods: Mapping[str, Any]) -> Any:
    name = _shipped_name(comparison)
    return None if name is None else methods[name]


Both = tuple[np.ndarray, np.ndarray]  # probabilities (n, m) of the judged rows, before and after


def _sides(trial: Trial, both: Both, n_bins: int, n_boot: int, level: float, seed: int) -> tuple[Side, Side]:
    margin = margins(trial.values, input=trial.kind)
    margin_bins = int(np.clip(len(margin) // _ROWS_A_BIN, 3, n_bins))

    def side(probs: np.ndarray) -> Side:
        same: dict[str, Any] = {"n_bins": n_bins, "level": level}
        two = probs.shape[1] == 2  # then all is said of P(class 1)
        names = [*METRICS, *(["positive_ece"] if two else [])]
        return Side(
            evaluate(probs, trial.labels, metrics=names, n_boot=n_boot, seed=seed, **same),
            reliability_curve(probs, trial.labels, label=1 if two else None, **same),
            margin_curve(probs, trial.labels, margin, n_bins=margin_bins, level=level),
            ece_floor(probs, trial.labels, metric="positive_ece" if two else "ece", seed=seed, **same),
        )

    return side(both[0]), side(both[1])


def _for_whom(
    trial: Trial, both: Both, groups: Any, names: tuple[str, ...] | None, level: float, seed: int
) -> tuple[ForWhom, ...]:
    """By predicted class, and by the groups given."""
    names = names or tuple(f"class {c}" for c in range(trial.values.shape[1]))
    options: dict[str, Any] = {"class_names": names, "level": level, "seed": seed}
    asked = (PREDICTED,) if groups is None else (PREDICTED, groups)
    return tuple(for_whom(*both, trial.labels, one, options) for one in asked)


def _changes(trial: Trial, both: Both, level: float) -> dict[str, Difference]:
    old, new = (score_terms(Outcomes.of(p, trial.labels), 1) for p in both)
    return {name: paired_difference(new[name], old[name], level) for name in METRICS if name in old}


def _with_figures(comparison: MethodComparison, known: dict[str, Evaluation]) -> MethodComparison:
    """The comparison with evaluations that are on the page already."""
    results = tuple(
        replace(one, evaluation=known[one.name]) if one.evaluation is not None and one.name in known else one
        for one in comparison.results
    )
    return replace(comparison, results=results)


def _notes(data: LogitsSet) -> list[str]:
    """What to know of a set."""
    unused = (
        ["the weights of the rows are not used: every row counts alike"] if data.weights is not None else []
    )
    return [*data.notes, *unused]


def _default(cal: LogitsSet) -> Any:
    from ..selection import recommend

    return recommend(cal.values, cal.labels, kind=cal.kind).calibrator


def _given(calibrator: Any, cal: LogitsSet) -> Any:
    if calibrator is None:
        return None
    for needed in ("fit", "predict_proba", "transform", "input"):
        if not hasattr(calibrator, needed):
            raise InputError(
                f"calibrator: expected one of monocal's, got {type(calibrator).__name__} without {needed}"
            )
    if calibrator.input != cal.kind:
        raise InputError(
            f"calibrator: it takes {calibrator.input}, but the calibration set holds {cal.kind}: make it with "
            f"input={cal.kind!r}"
        )
    return calibrator


def _is_fitted(calibrator: Any) -> bool:
    try:
        check_is_fitted(calibrator)
    except NotFittedError:
        return False
    return True


def _how(trial: Trial, fitted: bool, tested: bool) -> str:
    n = f"{len(trial.labels):,}"
    if tested and fitted:
        return f"The calibrator came fitted; all figures are of the {n} rows of the test set."
    if tested:
        return f"Fitted on the calibration set; all figures are of the {n} rows of the test set, which the fit has not seen."
    if fitted:
        return (
            f"The calibrator came fitted and there is no test set: all figures are of the {n} rows given. If it was fitted on "
            "them, they flatter it."
        )
    folds = min(FOLDS, len(trial.labels))
    return (
        f"There is no test set, so the figures come from {folds}-fold cross-validation: each of the {n} rows was judged by a "
        f"calibrator fitted on the other {folds - 1} fold{'s' if folds > 2 else ''}. The calibrator described below was fitted "
        "on all rows."
    )


def _inside(model: Any, cal: LogitsSet) -> tuple[RankParameters | None, tuple[EffectCurve, ...]]:
    """Parameters by rank and conditional effects, where the calibrator has them."""
    rank_map = getattr(model, "rank_map_", None)
    if rank_map is None:
        return None, ()
    parameters = rank_parameters(model, cal.values)
    if rank_map.factors is None:
        return parameters, ()
    statistics = getattr(rank_map.factors, "statistics", ("margin",))
    return parameters, tuple(effect_curve(model, cal.values, statistic) for statistic in statistics)


def _saved(model: Any, cal: LogitsSet, fitted: bool, evaluation: Evaluation) -> str | None:
    """The calibrator as a file; None for one that JSON cannot hold. A fitted one was not fitted on these data, perhaps."""
    if cal.class_names is not None and not hasattr(model, "feature_names_in_"):
        model = copy(model)
        model.feature_names_in_ = np.array(cal.class_names, dtype=object)
    try:
        data = None if fitted else (cal.values, cal.labels)
        return persistence.to_json(model, data=data, metrics=evaluation.to_dict())
    except InputError:
        return None


def _versions() -> dict[str, str]:
    import scipy
    import sklearn

    from .. import __version__

    return {
        "monocal": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "Python": platform.python_version(),
    }
