"""What a report holds, and how it is collected, once: fit, judge and compare."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .. import persistence
from ..calibrators.multilabel import MultilabelMCCT
from ..data import LogitsSet
from ..errors import InputError, InputTypeError
from ..metrics import (
    Evaluation,
    Floor,
    GroupEvaluation,
    LabelEvaluation,
    LabelShiftTest,
    OrderAudit,
    ece_floor,
    evaluate,
    evaluate_labels,
    label_shift_test,
)
from ..metrics.differences import Difference, paired_difference
from ..metrics.groups import PREDICTED, read_groups
from ..metrics.outcomes import Outcomes
from ..metrics.table import row_terms
from ..plots import CalibrationCurve, GroupDisplay, margin_curve, margins, reliability_curve
from ..registry import method_name
from ..selection import recommend
from .comparison import MethodComparison, compare_methods, context_of, default_methods
from .sentences import Verdict, how_judged, label_verdict, verdict
from .trial import Judged, Trial, as_label_set, as_set

METRICS = ("nll", "brier", "ece", "adaptive_ece", "classwise_ece", "accuracy")
METRICS_OF_TWO = ("nll", "positive_brier", "positive_ece", "accuracy")  # the errors are those of P(class 1)
_ROWS_A_BIN = 10  # of the margin: fewer say nothing
_DRAWN_ROWS = 5_000_000  # rows drawn for intervals when the number of draws is not given: seconds


@dataclass(frozen=True)
class _Page:
    title: str
    cal: LogitsSet
    n_judged: int
    judged_how: str
    shown: str
    calibrator: Any
    saved: str | None
    notes: tuple[str, ...]
    created: str

    def to_html(self) -> str:
        """The page: one text, no network."""
        from .page import page

        return page(self)


@dataclass(frozen=True)
class Side:
    """One predictor on the rows it is judged on: before calibration, or after.

    Attributes
    ----------
    evaluation : Evaluation
    curve, margin : CalibrationCurve
        By confidence (P(class 1) of two classes), and by margin.
    floor : Floor
        What chance alone would show.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(400, 4)
    >>> report = mc.report.collect(data, calibrator=mc.MCCT(), methods=False, n_boot=20)
    >>> report.before.curve.ece > report.after.curve.ece
    True
    """

    evaluation: Evaluation
    curve: CalibrationCurve
    margin: CalibrationCurve
    floor: Floor


@dataclass(frozen=True)
class Report(_Page):
    """All figures of a report.

    Attributes
    ----------
    title, judged_how, created, notes : str
    cal : LogitsSet
        The calibration set.
    n_judged : int
    shown, calibrator, saved
        The method of this page (the one asked for, or the one recommended), fitted on all calibration rows, and as JSON.
    before, after : Side
    changes : dict of str to Difference
        After minus before, paired by row, of the metrics that are means over rows.
    audit : OrderAudit
    methods : MethodComparison or None
    shift : LabelShiftTest or None
        Of calibration against test labels, where there is a test set.
    context : bool
        Whether the calibrator was fitted with the groups as its context.
    class_names : tuple of str
    groups : tuple of dict of str to GroupEvaluation
        Predicted classes (not of two classes), then the caller's groups, each before and after.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(400, 4)
    >>> report = mc.report.collect(data, calibrator=mc.MCCT(), methods=False, n_boot=20)
    >>> report.audit.preserved, report.calibrator.solution_.converged
    (True, True)
    >>> report.verdict.state
    'bad'
    """

    before: Side
    after: Side
    changes: dict[str, Difference]
    audit: OrderAudit
    methods: MethodComparison | None
    shift: LabelShiftTest | None
    context: bool
    class_names: tuple[str, ...]
    groups: tuple[dict[str, GroupEvaluation], ...]

    @property
    def verdict(self) -> Verdict:
        """What the page says first."""
        return verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """What is judged, as plain values, ready for JSON."""
        return {
            "judged_on": self.judged_how,
            "before": self.before.evaluation.to_dict(),
            "after": self.after.evaluation.to_dict(),
            "order": self.audit.to_dict(),
            "recommended": self.methods and self.methods.recommended,
            "shown": self.shown,
            "verdict": self.verdict.to_dict(),
        }


@dataclass(frozen=True)
class LabelReport(_Page):
    """All figures of a report on many labels.

    Attributes
    ----------
    title, judged_how, created, notes, cal, n_judged, shown, calibrator, saved
        As in `Report`.
    before, after : LabelEvaluation
    curves : dict of str to CalibrationCurve
        Of all entries of all labels together, before and after.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=(500, 3))
    >>> y = (rng.uniform(size=p.shape) < p**2).astype(int)
    >>> data = mc.data.LogitsSet(p, y, kind="probabilities", many_labels=True)
    >>> report = mc.write_report("labels.html", data)
    >>> len(report.before.off), report.after.off
    (3, ())
    """

    before: LabelEvaluation
    after: LabelEvaluation
    curves: dict[str, CalibrationCurve]

    @property
    def verdict(self) -> Verdict:
        """What the page says first."""
        return label_verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        sides = {"before": self.before.to_dict(), "after": self.after.to_dict()}
        return {"judged_on": self.judged_how, **sides, "verdict": self.verdict.to_dict()}


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
    cal : LogitsSet or (values, labels)
        Calibration set: values of shape (n, m), labels of shape (n,).
    test : LogitsSet or (values, labels), optional
        Set to judge on. Without one the figures come from 5-fold cross-validation, and the page says so.
    calibrator : Calibrator, optional
        Unfitted: it is fitted on ``cal``. Fitted: it is judged as it is. Either is shown on the page, which says how it
        compares. Default: the one recommended for the calibration rows (`monocal.selection.recommend`).
    methods : mapping of names to unfitted calibrators, or bool, optional
        What to compare. Default: every calibrator that trains no network; True: those as well; False: no comparison.
    title : str, optional
    kind : {"logits", "probabilities"}
        What ``values`` are where arrays are given; a `LogitsSet` knows.
    groups : array-like of shape (n,), frame or mapping of columns, optional
        Groups of the judged rows (those of ``test``, or of ``cal`` without one): the page says which of them are off. Where they
        differ and there is no ``test``, the method is fitted with them as its context.
    n_bins : int
        Of the reliability diagram and ECE.
    n_boot : int, optional
        Bootstrap draws behind the intervals. Default: 500, fewer for large sets.
    level : float
        Of the intervals and of the band of perfect calibration.
    time_limit : float
        Seconds for the comparison of methods. One that takes more than a third of those left is stopped, and the
        verdict names it. The method recommended does not depend on it.
    seed : int
        Of the folds and of the draws.
    on_step : callable, optional
        Called with the name of each step, for a progress display.

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
    step = on_step or (lambda text: None)
    cal = as_set(cal, "cal", kind)
    test = None if test is None else as_set(test, "test", cal.kind)
    fitted = _is_fitted(calibrator, cal)
    cal, test = _in_one_order(cal, test, calibrator if fitted else None)
    trial = Trial.of(cal, test, seed)
    names = cal.class_names or tuple(f"class {c}" for c in range(cal.n_classes))
    if isinstance(groups, str) and groups == PREDICTED:
        groups = None  # they are always shown
    if groups is not None:
        read_groups(groups, len(trial.labels))  # refuses before the work, not after it
    if n_boot is None:
        n_boot = int(np.clip(_DRAWN_ROWS // len(trial.labels), 100, 500))
    if methods is True:
        methods = default_methods(cal.kind, cal.n_classes, networks=True)

    judged = comparison = None
    if calibrator is not None:
        step("fitting")
        judged = trial.judge(calibrator, fitted=fitted)
    if methods is not False:
        step("comparing methods")
        comparison = compare_methods(
            trial,
            methods,
            # One that came fitted may have seen the rows that the others are cross-validated on.
            known=None if judged is None or (fitted and trial.crossed) else (calibrator, judged),
            groups=groups,
            class_names=names,
            n_boot=min(n_boot, 200),
            level=level,
            time_limit=time_limit,
            seed=seed,
            on_method=lambda name: step(f"comparing methods: {name}"),
        )
    of_fit: dict[str, Any] = {}
    if judged is None:
        calibrator, judged, of_fit = _default(trial, methods, comparison, groups)
        shown = comparison and comparison.shown
    else:
        shown = comparison and (comparison.asked or f"{method_name(type(calibrator))} as given")
    refit = trial.crossed and not fitted
    model = clone(calibrator).fit(cal.values, cal.labels, **of_fit) if refit else judged.model

    step("measuring")
    both = trial.before, judged.probabilities
    sides = _sides(trial, both, n_bins, n_boot, level, seed)
    old, new = (row_terms(Outcomes.of(p, trial.labels)) for p in both)
    return Report(
        **_frame(title, cal, test, trial, fitted, model, sides[1].evaluation),
        shown=shown or method_name(type(calibrator)),
        before=sides[0],
        after=sides[1],
        changes={name: paired_difference(new[name], old[name], level) for name in old},
        audit=judged.audit,
        methods=comparison,
        shift=None if test is None else label_shift_test(cal.labels, test.labels, n_classes=cal.n_classes),
        context=bool(of_fit),
        class_names=names,
        groups=_groups(both, trial.labels, groups, names, level, seed),
    )


def collect_labels(
    cal: LogitsSet,
    test: Any = None,
    *,
    calibrator: Any = None,
    title: str | None = None,
    seed: int = 0,
    on_step: Callable[[str], None] | None = None,
    **others: Any,
) -> LabelReport:
    """Fit and judge; options are those of `collect`, without those of classes and of the comparison of methods."""
    if others:
        raise InputTypeError(
            "write_report: of many labels it takes calibrator, title, seed and on_step, "
            f"not {', '.join(map(repr, others))}."
        )
    cal = as_label_set(cal, "cal", cal)
    test = None if test is None else as_label_set(test, "test", cal)
    fitted = _is_fitted(calibrator, cal)
    calibrator = MultilabelMCCT(input=cal.kind) if calibrator is None else calibrator
    if not isinstance(calibrator, MultilabelMCCT):
        raise InputError(f"calibrator: many labels take a MultilabelMCCT, got {type(calibrator).__name__}.")
    cal, test = _in_one_order(cal, test, calibrator if fitted else None)
    if on_step is not None:
        on_step("fitting")
    trial = Trial.of(cal, test, seed)
    judged = trial.judge(calibrator, fitted=fitted)
    model = clone(calibrator).fit(cal.values, cal.labels) if trial.crossed and not fitted else judged.model
    labelled = trial.labels >= 0
    both = {"before": trial.before, "after": judged.probabilities}
    before, after = (
        evaluate_labels(p, trial.labels, names=cal.class_names, random_state=seed) for p in both.values()
    )
    return LabelReport(
        **_frame(title, cal, test, trial, fitted, model, after),
        shown=type(model).__name__,
        before=before,
        after=after,
        curves={
            side: reliability_curve(p[labelled], trial.labels[labelled], label=1) for side, p in both.items()
        },
    )


def _frame(
    title: str | None, cal: LogitsSet, test: Any, trial: Trial, fitted: bool, model: Any, evaluation: Any
) -> dict[str, Any]:
    """What every report has."""
    n_judged = len(trial.labels)
    sets = [cal] if test is None else [cal, test]
    notes = [note for data in sets for note in data.notes]
    if any(data.weights is not None for data in sets):
        notes.append("the weights of the rows are not used: every row counts alike")
    return {
        "title": title or f"Calibration of {'your data' if cal.name == 'data' else cal.name}",
        "cal": cal,
        "n_judged": n_judged,
        "judged_how": how_judged(n_judged, fitted, test is not None),
        "calibrator": model,
        "saved": _as_json(model, cal, fitted, evaluation),
        "notes": tuple(dict.fromkeys(notes)),
        "created": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _is_fitted(calibrator: Any, cal: LogitsSet) -> bool:
    if calibrator is None:
        return False
    if missing := {"fit", "predict_proba", "transform", "input"} - set(dir(calibrator)):
        raise InputError(
            f"calibrator: expected one of monocal's, got {type(calibrator).__name__} without {min(missing)}"
        )
    if calibrator.input != cal.kind:
        raise InputError(
            f"calibrator: it takes {calibrator.input}, but the calibration set holds {cal.kind}: make it with "
            f"input={cal.kind!r}"
        )
    try:
        check_is_fitted(calibrator)
    except NotFittedError:
        return False
    return True


def _in_one_order(cal: LogitsSet, test: LogitsSet | None, fitted: Any) -> tuple[LogitsSet, LogitsSet | None]:
    """Both with the columns, by name, as those of the fitted calibrator; without one, the test set as ``cal``."""
    names = getattr(fitted, "feature_names_in_", None)
    if names is None or len(names) != cal.n_classes:
        names = cal.class_names or ()
    order = tuple(map(str, names)) or None
    return cal.in_order_of(order), test and test.in_order_of(order)


def _default(
    trial: Trial, methods: Any, comparison: MethodComparison | None, groups: Any
) -> tuple[Any, Judged, dict[str, Any]]:
    """The method of a page for which none was asked: unfitted, judged, and the other arguments of its fit."""
    advised = comparison and comparison.recommendation
    if comparison and advised and comparison.judged_default:
        of_fit = {"context": context_of(groups, len(trial.labels))} if advised.context else {}
        return advised.calibrator, comparison.judged_default, of_fit
    shown = comparison and comparison.shown
    if isinstance(methods, Mapping) and shown:
        return methods[shown], trial.judge(methods[shown]), {}
    template = recommend(*trial.calibration, kind=trial.kind).calibrator
    return template, trial.judge(template), {}


Both = tuple[np.ndarray, np.ndarray]  # probabilities (n, m) of the judged rows, before and after


def _sides(trial: Trial, both: Both, n_bins: int, n_boot: int, level: float, seed: int) -> tuple[Side, Side]:
    margin = margins(trial.values, input=trial.kind)
    margin_bins = int(np.clip(len(margin) // _ROWS_A_BIN, 3, n_bins))

    def side(probs: np.ndarray) -> Side:
        same: dict[str, Any] = {"n_bins": n_bins, "level": level}
        two = probs.shape[1] == 2  # then all is said of P(class 1)
        names = list(METRICS_OF_TWO if two else METRICS)
        return Side(
            evaluate(probs, trial.labels, metrics=names, n_boot=n_boot, seed=seed, **same),
            reliability_curve(probs, trial.labels, label=1 if two else None, **same),
            margin_curve(probs, trial.labels, margin, n_bins=margin_bins, level=level),
            ece_floor(probs, trial.labels, metric="positive_ece" if two else "ece", seed=seed, **same),
        )

    return side(both[0]), side(both[1])


def _groups(
    both: Both, labels: np.ndarray, groups: Any, names: tuple[str, ...], level: float, seed: int
) -> tuple[dict[str, GroupEvaluation], ...]:
    """Before and after, by predicted class of three or more, and by the caller's groups."""
    asked = ([PREDICTED] if len(names) > 2 else []) + ([] if groups is None else [groups])
    same: dict[str, Any] = {"before": both[0], "class_names": names, "level": level, "seed": seed}
    return tuple(GroupDisplay.from_predictions(labels, both[1], one, **same).evaluations for one in asked)


def _as_json(model: Any, cal: LogitsSet, fitted: bool, evaluation: Any) -> str | None:
    """The calibrator as a file; None for one that JSON cannot hold. A fitted one was not fitted on these data, perhaps."""
    if cal.class_names is not None and not hasattr(model, "feature_names_in_"):
        model = copy(model)
        model.feature_names_in_ = np.array(cal.class_names, dtype=object)
    try:
        data = None if fitted else (cal.values, cal.labels)
        return persistence.to_json(model, data=data, metrics=evaluation.to_dict())
    except InputError:
        return None
