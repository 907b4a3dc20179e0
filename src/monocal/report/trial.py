"""Rows to fit on and rows to judge on: no calibrator is judged on the rows that it was fitted on.

With a test set, fit on the calibration set and judge on the test set. With one set, cross-validate. A calibrator that comes
fitted is judged as it is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold

from ..arrays import to_numpy
from ..data import LogitsSet
from ..errors import InputError
from ..inputs.formats import class_names
from ..inputs.names import by_column, classes_of
from ..inputs.validation import check_choice, check_labels, check_logits, check_probabilities, read_numbers
from ..metrics import order_audit
from ..workers import Worker, WorkerDied, packed

FOLDS = 5


@dataclass(frozen=True)
class Judged:
    """What a calibrator did to the rows it is judged on.

    Its probabilities (n, m), the order of the classes (None of many labels), whether every fit keeps the ranking of the rows by
    P(class 1), seconds to fit, and itself, as fitted last.
    """

    probabilities: np.ndarray
    audit: Any  # OrderAudit
    keeps_ranking: bool
    seconds: float
    model: Any


@dataclass(frozen=True)
class Trial:
    """Rows to fit on and rows to judge on.

    Attributes
    ----------
    values, labels : arrays of shape (n, m) and (n,)
        The rows to judge on; of many labels both have the shape (n, L).
    folds : tuple of (fit values, fit labels, indices of the judged rows)
    kind : {"logits", "probabilities"}
    crossed : bool
        Whether the same set serves for both, by cross-validation.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.report import Trial, as_set
    >>> data = mc.data.synthetic(400, 4)
    >>> trial = Trial.of(as_set((data.values, data.labels), "cal"), None)
    >>> trial.crossed, len(trial.folds)
    (True, 5)
    >>> trial.judge(mc.TemperatureScaling()).probabilities.shape
    (400, 4)
    """

    values: np.ndarray
    labels: np.ndarray
    folds: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]
    kind: str
    crossed: bool

    @classmethod
    def of(cls, cal: LogitsSet, test: LogitsSet | None, seed: int = 0) -> Trial:
        """Test set where there is one, else cross-validation."""
        assert cal.labels is not None
        if test is not None:
            assert test.labels is not None
            if (test.kind, test.n_classes) != (cal.kind, cal.n_classes):
                raise InputError(
                    f"test: expected {cal.kind} of {cal.n_classes} classes as in the calibration set, "
                    f"got {test.kind} of {test.n_classes}"
                )
            fold = cal.values, cal.labels, np.arange(test.n_samples)
            return cls(test.values, test.labels, (fold,), cal.kind, False)
        if cal.n_samples < 2:
            raise InputError("cal: one row cannot be split: give a test set, or at least two rows")
        folder: Any = KFold(min(FOLDS, cal.n_samples), shuffle=True, random_state=seed)
        two = cal.n_classes == 2 and not cal.many_labels
        if two and np.bincount(cal.labels, minlength=2).min() >= FOLDS:
            folder = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)  # one class alone says nothing
        splits = folder.split(cal.values, cal.labels)
        folds = tuple((cal.values[fit], cal.labels[fit], rows) for fit, rows in splits)
        return cls(cal.values, cal.labels, folds, cal.kind, True)

    @property
    def calibration(self) -> tuple[np.ndarray, np.ndarray]:
        """Values and labels of the calibration set."""
        return (self.values, self.labels) if self.crossed else self.folds[0][:2]

    @property
    def before(self) -> np.ndarray:
        """Probabilities without calibration."""
        if self.kind == "probabilities":
            return np.asarray(self.values)
        values = self.values.astype(np.float64)
        return np.asarray(softmax(values, axis=1) if self.labels.ndim == 1 else expit(values))

    def judge(
        self, calibrator: Any, *, fitted: bool = False, context: Any = None, sample_weight: Any = None
    ) -> Judged:
        """Fit copies on each fold (or use the calibrator as it is) and apply them to the rows to judge on.

        ``context`` and ``sample_weight`` (n,) go with the rows of a cross-validation; a context may be columns by name.
        """
        many = self.labels.ndim == 2
        probabilities = np.empty(self.values.shape)
        scores = np.empty(self.values.shape, dtype=self.values.dtype)
        seconds, model, keeps_ranking = 0.0, calibrator, True
        for fit_values, fit_labels, rows in self.folds:
            others = np.setdiff1d(np.arange(len(self.values)), rows)
            to_fit, to_apply = (_context_of(context, part) for part in (others, rows))
            if sample_weight is not None:
                to_fit["sample_weight"] = sample_weight[others]
            if not fitted:
                begin = time.perf_counter()
                model = clone(calibrator).fit(fit_values, fit_labels, **to_fit)
                seconds += time.perf_counter() - begin
            keeps_ranking &= bool(getattr(model, "preserves_ranking", False))
            probabilities[rows] = model.predict_proba(self.values[rows], **to_apply)
            by_logits = self.kind == "logits" and not many
            scores[rows] = (
                model.transform(self.values[rows], **to_apply) if by_logits else probabilities[rows]
            )
        audit = None if many else order_audit(self.values, scores, input=self.kind)
        return Judged(probabilities, audit, keeps_ranking, seconds / len(self.folds), model)


def _context_of(context: Any, rows: np.ndarray) -> dict[str, Any]:
    if context is None:
        return {}
    columns = isinstance(context, Mapping)
    return {"context": {k: c[rows] for k, c in context.items()} if columns else context[rows]}


def row_nll(probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """-log of the probability (n,) of the label of each row."""
    with np.errstate(divide="ignore"):
        return -np.log(probs[np.arange(len(probs)), labels].astype(np.float64))


def as_set(rows: Any, name: str, kind: str = "logits") -> LogitsSet:
    """A `LogitsSet` with labels, from one or from a pair (values, labels); checked.

    Parameters
    ----------
    rows : LogitsSet or (values, labels)
    name : str
        What messages call it.
    kind : {"logits", "probabilities"}
        What the values of a pair are.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.report import as_set
    >>> as_set(([[2.0, 1.0], [0.0, 3.0]], [0, 1]), "cal").n_samples
    2
    """
    if not isinstance(rows, LogitsSet):
        values, labels = _pair(rows, name)
        places, names = by_column(labels, values, name=f"labels of {name}"), class_names(values)
        rows = LogitsSet(values, places, kind, class_names=names and classes_of(names))  # type: ignore[arg-type]
    check_choice(rows.kind, f"kind of {name}", ("logits", "probabilities"))
    check = check_probabilities if rows.kind == "probabilities" else check_logits
    values = to_numpy(check(rows.values, name).values)
    if values.shape[1] < 2:
        raise InputError(f"{name}: expected at least two classes, got shape {values.shape}")
    labels = to_numpy(check_labels(rows.labels, values, f"labels of {name}"))
    return replace(rows, values=values, labels=labels)


def as_label_set(rows: Any, name: str, cal: LogitsSet) -> LogitsSet:
    """The same of many labels, of the kind and the size of ``cal``."""
    if not isinstance(rows, LogitsSet):
        if any(hasattr(part, "columns") for part in _pair(rows, name)):
            raise InputError(
                f"{name}: expected arrays of values and labels; for frames make a LogitsSet (see monocal.read)"
            )
        values, labels = (
            to_numpy(read_numbers(part, f"{what} of {name}", "one number for each label"))
            for part, what in zip(_pair(rows, name), ("values", "labels"), strict=True)
        )
        rows = LogitsSet(values, labels, cal.kind, many_labels=True)
    if rows.labels is None:
        raise InputError(
            f"{name}: it has no labels, and calibration is judged by them: give labels of shape (n, L)."
        )
    shape, of_labels = np.shape(rows.values), np.shape(rows.labels)
    if (
        rows.kind != cal.kind
        or shape[1:] != np.shape(cal.values)[1:]
        or len(shape) != 2
        or of_labels != shape
    ):
        raise InputError(
            f"{name}: expected {cal.kind} and labels of shape (n, {cal.n_classes}) as in the calibration set, "
            f"got {rows.kind} of shape {shape} and labels of shape {of_labels}."
        )
    return rows


def _pair(rows: Any, name: str) -> tuple[Any, Any]:
    if not isinstance(rows, tuple | list) or len(rows) != 2:
        raise InputError(
            f"{name}: expected a LogitsSet (see monocal.read) or a pair (values, labels), got {type(rows).__name__}"
        )
    return rows[0], rows[1]


class TimedTrial:
    """``judge(method, seconds)`` as `Trial.judge`, without the fitted model, in a process that is ended when the time is over.

    A context manager. The rows are sent once, and again to a process that replaces one that had to be ended. A method that
    cannot be pickled is judged in this process, where nothing can stop it. ``starting`` counts the seconds that went into
    starting processes, which are no method's; ``ended`` says that the next method has to wait for a new process.
    """

    def __init__(self, trial: Trial):
        self.starting = 0.0
        self.ended = False
        self._trial = trial
        self._worker: Worker | None = None

    def __enter__(self) -> TimedTrial:
        return self

    def __exit__(self, *rest: object) -> None:
        if self._worker is not None:
            self._worker.close()

    def judge(self, method: Any, seconds: float) -> Judged:
        """What the method does to the rows to judge on, or TimeoutError once ``seconds`` are over."""
        try:
            request = packed(_judge, method)
        except Exception:  # pickling anybody's class may raise anything
            return self._trial.judge(method)
        if self._worker is None:
            begin = time.perf_counter()
            self._worker, self.ended = Worker(), False
            self._worker.call(_keep, self._trial)
            self.starting += time.perf_counter() - begin
        try:
            return self._worker.answer(request, seconds)
        except (TimeoutError, WorkerDied):
            self._worker.close()  # a method may raise TimeoutError, too: then the process is still there
            self._worker, self.ended = None, True
            raise


# In the worker.

_kept: list[Trial] = []


def _keep(trial: Trial) -> None:
    _kept[:] = [trial]


def _judge(method: Any) -> Judged:
    return replace(_kept[0].judge(method), model=None)
