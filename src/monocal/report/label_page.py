"""The report on many labels: which are off beyond chance, before and after calibration, one row of a table for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import clone
from sklearn.model_selection import KFold

from ..arrays import to_numpy
from ..calibrators.multilabel import MultilabelMCCT
from ..data import LogitsSet
from ..errors import InputError, InputTypeError
from ..inputs.names import listing
from ..inputs.validation import read_numbers
from ..metrics import LabelEvaluation, evaluate_labels
from ..metrics.units import count, from_to, number, percent
from ..plots import ReliabilityDisplay, reliability_curve
from .collect import how_judged, in_one_order, notes_of, now, saved_calibrator, template_of, versions
from .page import file_to_save, origin, render, section, settings, svg
from .sentences import ENOUGH, Verdict
from .trial import FOLDS


@dataclass(frozen=True)
class LabelReport:
    """All figures of a report on many labels.

    Attributes
    ----------
    title, judged_how : str
    cal : LogitsSet
        The calibration set.
    labels : ndarray of shape (n, L)
        Of the rows that are judged: 0, 1, and -1 where it is not known.
    probabilities : tuple of ndarrays (n, L)
        Before and after.
    before, after : LabelEvaluation
    calibrator : MultilabelMCCT
    saved : str or None
        It as JSON.
    versions : dict of str to str
    created : str
    notes : tuple of str

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

    title: str
    judged_how: str
    cal: LogitsSet
    labels: np.ndarray
    probabilities: tuple[np.ndarray, np.ndarray]
    before: LabelEvaluation
    after: LabelEvaluation
    calibrator: Any
    saved: str | None
    versions: dict[str, str]
    created: str
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """What the page says first."""
        macro = from_to(self.before.macro["nll"], self.after.macro["nll"], number)
        details = f"NLL, mean over labels: {macro}.", "The order of the rows is kept within every label."
        headline, name = self.before.verdict, type(self.calibrator).__name__
        off, left = len(self.before.off), len(self.after.off)
        if off:
            state, advice = "bad", f"Use {name}" if left < off else f"{name} does not help here"
        elif min(self.before.rows) < ENOUGH:
            state, advice = "few", f"If calibration is wanted before there are more rows, use {name}"
            headline = f"Too few rows to say: {headline[0].lower()}{headline[1:]}"
        else:
            state, advice = "good", f"No calibration is needed; if one is wanted, use {name}"
        after = f"{self.after.verdict[0].lower()}{self.after.verdict[1:]}"
        return Verdict(state, headline, f"{advice}. After it, {after}", details)

    def to_html(self) -> str:
        """The page: one text, no network."""
        kind, name = self.cal.kind, type(self.calibrator).__name__
        code = (
            'import monocal as mc\n\ncal = mc.load("calibrator.json")\n'
            f"probabilities = cal.predict_proba({kind})   # ({kind} of shape (n, {self.cal.n_classes}))"
        )
        return render(
            self,
            intro=f"{count(self.cal.n_samples)} rows to calibrate on, {self.cal.n_classes} labels. {self.judged_how}",
            cards=self._cards(),
            picture=self._picture(),
            about=[
                "The picture has all entries of all labels together, in bins of equal width; the table below has each label, "
                "with ECEs in bins of equal mass."
            ],
            caution="",
            file=file_to_save(self.saved, name),
            code=code,
            sections=[self._table(), origin(self, [("data", self.cal.name)], settings(self.calibrator))],
            open_first=True,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        sides = {"before": self.before.to_dict(), "after": self.after.to_dict()}
        return {"judged_on": self.judged_how, **sides, "verdict": self.verdict.to_dict()}

    def _cards(self) -> list[tuple[str, str, str]]:
        before, after, of = self.before, self.after, f"of {len(self.before.names)}"
        return [
            ("labels off beyond chance", f"{len(before.off)} → {len(after.off)}", of),
            ("ECE", from_to(before.macro["ece"], after.macro["ece"], percent), "mean over labels"),
            ("NLL", from_to(before.macro["nll"], after.macro["nll"], number), "mean over labels"),
            ("ranking of the rows", "kept", "within every label"),
        ]

    def _picture(self) -> Any:
        labelled = self.labels >= 0
        curves = {
            side: reliability_curve(
                np.stack([1 - p[labelled], p[labelled]], axis=1), self.labels[labelled], label=1
            )
            for side, p in zip(("before", "after"), self.probabilities, strict=True)
        }
        display = ReliabilityDisplay(curves, of_classes=True)
        display.axes = "P(label)", "frequency of the label"
        return svg(display, "Reliability diagram of all labels, before and after", overlay=True)

    def _table(self) -> dict[str, Any]:
        before, after = self.before, self.after
        rows = [
            (
                name,
                f"{count(before.positives[i])} of {count(before.rows[i])}",
                from_to(before.mean[i], after.mean[i], percent),
                from_to(before.nll[i], after.nll[i], number),
                from_to(before.ece[i], after.ece[i], percent),
                from_to(before.floor[i], after.floor[i], percent),
                " → ".join("off" if name in side.off else "–" for side in (before, after)),
            )
            for i, name in enumerate(before.names)
        ]
        for name, old, new in (("macro", before.macro, after.macro), ("micro", before.micro, after.micro)):
            nll, ece = from_to(old["nll"], new["nll"], number), from_to(old["ece"], new["ece"], percent)
            rows.append((name, "", "", nll, ece, "", ""))
        head = ("label", "positives", "mean probability", "NLL", "ECE", "ECE by chance", "beyond chance")
        note = "macro: the mean over labels; micro: all entries together."
        return section(
            "Every label, before → after calibration", [note], tables=[("Labels", head, rows, None)]
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
            f"write_report: of many labels it takes calibrator, title, seed and on_step, not {listing(others)}."
        )
    cal = _checked(cal, "cal", cal)
    test = None if test is None else _checked(test, "test", cal)
    template, fitted = template_of(calibrator, cal)
    template = MultilabelMCCT(input=cal.kind) if template is None else template
    if not isinstance(template, MultilabelMCCT):
        raise InputError(f"calibrator: many labels take a MultilabelMCCT, got {type(template).__name__}.")
    cal, test = in_one_order(cal, test, template if fitted else None)
    if on_step is not None:
        on_step("fitting")
    model = template if fitted else clone(template).fit(cal.values, cal.labels)
    judged = cal if test is None else test
    if test is not None or fitted:
        after = model.predict_proba(judged.values)
    else:
        after = _cross_validated(template, cal, seed)
    before = expit(judged.values) if judged.kind == "logits" else np.asarray(judged.values)
    sides = [
        evaluate_labels(p, judged.labels, names=cal.class_names, random_state=seed) for p in (before, after)
    ]
    return LabelReport(
        title=title or f"Calibration of {cal.name if cal.name != 'data' else 'your data'}",
        judged_how=how_judged(judged.n_samples, fitted, test is not None),
        cal=cal,
        labels=np.asarray(judged.labels),
        probabilities=(before, after),
        before=sides[0],
        after=sides[1],
        calibrator=model,
        saved=saved_calibrator(model, cal, fitted, sides[1]),
        versions=versions(),
        created=now(),
        notes=notes_of(cal, test),
    )


def _checked(rows: Any, name: str, cal: LogitsSet) -> LogitsSet:
    """A set of many labels, from one or from a pair of arrays, with labels and of the kind and the size of ``cal``."""
    if not isinstance(rows, LogitsSet):
        if not isinstance(rows, tuple | list) or len(rows) != 2 or any(hasattr(x, "columns") for x in rows):
            raise InputError(
                f"{name}: expected a LogitsSet (of a frame, see monocal.read) or a pair of arrays (values, labels), got "
                f"{type(rows).__name__}"
            )
        values, labels = (
            to_numpy(read_numbers(x, f"{what} of {name}", "one number for each label"))
            for x, what in zip(rows, ("values", "labels"), strict=True)
        )
        rows = LogitsSet(values, labels, cal.kind, many_labels=True)
    if rows.labels is None:
        raise InputError(
            f"{name}: it has no labels, and calibration is judged by them: give labels of shape (n, L)."
        )
    shape = np.shape(rows.values)
    if (
        len(shape) != 2
        or (rows.kind, shape[1]) != (cal.kind, cal.n_classes)
        or np.shape(rows.labels) != shape
    ):
        raise InputError(
            f"{name}: expected {cal.kind} and labels of shape (n, {cal.n_classes}) as in the calibration set, got {rows.kind} "
            f"of shape {shape} and labels of shape {np.shape(rows.labels)}."
        )
    return rows


def _cross_validated(template: MultilabelMCCT, cal: LogitsSet, seed: int) -> np.ndarray:
    """Probabilities of every row by a calibrator fitted on the other folds."""
    assert cal.labels is not None
    if cal.n_samples < 2:
        raise InputError("cal: one row cannot be split: give a test set, or at least two rows")
    after = np.empty(cal.values.shape)
    for rows, others in KFold(min(FOLDS, cal.n_samples), shuffle=True, random_state=seed).split(cal.values):
        fold = clone(template).fit(cal.values[rows], cal.labels[rows])
        after[others] = fold.predict_proba(cal.values[others])
    return after
