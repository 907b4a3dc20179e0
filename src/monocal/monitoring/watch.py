"""Watch a classifier's probabilities over time: windows of rows, two tests with bounded false alarms, and when to refit.

    calibration    a bet against it                 (`betting`, labels needed)        false alarms over the whole stream
    frequencies    of the predicted classes         (`frequencies`, no labels)        have probability alpha at most:
                                                                                      alpha / 2 for each of the two

Only a few numbers of each row are kept, and only until its window is full: the memory does not grow with the stream but for one
line per window.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import to_numpy
from ..errors import FileError, InputError
from ..inputs.formats import as_array
from ..inputs.names import by_column
from ..inputs.validation import check_count, check_fraction, check_number, read_numbers
from ..io import atomic_path
from ..metrics.outcomes import Outcomes
from ..metrics.units import count, percent, points
from .betting import Bets
from .frequencies import FrequencyTest, FrequencyWatch
from .window import ROW, Window, seen_in

# Rows that a fit needs to be judged by itself; with fewer, it starts from the old one.
_ENOUGH = 500
# A reference needs no more counts than this.
_MOST = 10**9
_KIND = "monocal monitor 1"


@dataclass(frozen=True)
class Alarm:
    """That something has changed: its kind (``"calibration"``, ``"frequencies"``), the window, since which row, and in words.

    Attributes
    ----------
    kind : {"calibration", "frequencies"}
    window, row : int
        When it was raised: number of the window, and of the row.
    since : int
        Row since which it has been so.
    sentence : str

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(2000, 4, seed=1)
    >>> wrong = (data.values[1000:], 3 - data.labels[1000:])
    >>> cal = mc.MCCT().fit(data.values[:1000], data.labels[:1000])
    >>> result = mc.monitor([(data.values[:1000], data.labels[:1000]), wrong], calibrator=cal)
    >>> result.alarms[0].kind, result.alarms[0].since
    ('calibration', 1000)
    """

    kind: str
    window: int
    row: int
    since: int
    sentence: str


@dataclass(repr=False)
class Monitor:
    """Watches probabilities over time; feed it with `update`.

    Parameters
    ----------
    reference : array of shape (n, m) or (m,), optional
        Calibrated probabilities of the calibration rows, or how often each class was predicted there: what the frequencies of
        the predicted classes are compared with. Without it, the first window.
    window : int
        Rows of a window.
    alpha : float
        Probability of a false alarm over the whole stream, at most.
    tolerance : float
        How far confidence may be from the truth without being called off: no calibrator is perfect, and a stream without end
        finds the smallest flaw.
    class_names : sequence of str, optional
    fitted_rows : float, optional
        Rows that the calibrator was fitted on, effective ones if they had weights: confidence may be off by 2.5
        standard errors of a share among so many, and by ``tolerance`` (their squares add). None: the rows of
        ``reference``; without one, confidence is taken to be right within ``tolerance``, which no fit on a few hundred rows is.

    Attributes
    ----------
    windows : list of Window
    alarms : list of Alarm
        The first of each kind.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> rng = np.random.default_rng(0)
    >>> calibrated = rng.dirichlet(np.ones(3) / 2, size=4000)
    >>> labels = (rng.random(4000)[:, None] > calibrated.cumsum(axis=1)).sum(axis=1)
    >>> monitor = mc.Monitor().update(calibrated, labels)
    >>> len(monitor.windows), monitor.alarms
    (8, [])
    >>> sure = calibrated**2 / (calibrated**2).sum(axis=1, keepdims=True)
    >>> monitor.update(sure, labels).alarms[0].kind
    'calibration'
    """

    reference: InitVar[Any] = None
    window: int = 500
    alpha: float = 0.05
    tolerance: float = 0.01
    class_names: Sequence[str] | None = None
    fitted_rows: float | None = None
    windows: list[Window] = field(default_factory=list, init=False)
    alarms: list[Alarm] = field(default_factory=list, init=False)
    calibrator: str | None = field(
        default=None, init=False
    )  # what makes the probabilities, by a name that changes with it

    def __post_init__(self, reference: Any) -> None:
        self.window, self.alpha = check_count(self.window, "window"), check_fraction(self.alpha, "alpha")
        check_number(self.tolerance, "tolerance", least=0, most=0.5)
        self.tolerance = float(self.tolerance)
        if self.fitted_rows is not None:
            check_number(self.fitted_rows, "fitted_rows", least=1)
        self._waiting = np.empty(0, ROW)
        self._n_classes: int | None = None
        self._rows = 0
        self._begin(reference)

    def _begin(self, reference: Any) -> None:
        """The tests before their first window."""
        counts = None if reference is None else _reference_counts(reference)
        if counts is not None:
            self._check_classes(len(counts), "reference")
        if self.fitted_rows is None and counts is not None:
            self.fitted_rows = float(counts.sum())
        self._bets = Bets.begin(self.tolerance, np.inf if self.fitted_rows is None else self.fitted_rows)
        self._watch = None if counts is None else FrequencyWatch(self.alpha / 2, counts)

    def _check_classes(self, n_classes: int, name: str) -> None:
        """As many classes as before, and as many names."""
        if self._n_classes not in (None, n_classes):
            raise InputError(f"{name} has {n_classes} classes, but those before had {self._n_classes}.")
        if self.class_names is not None and len(self.class_names) != n_classes:
            raise InputError(
                f"class_names has {len(self.class_names)} names, but there are {n_classes} classes."
            )
        self._n_classes = n_classes

    def __repr__(self) -> str:
        return f"Monitor({self.n_rows:,} rows, {len(self.windows)} windows, {len(self.alarms)} alarms)"

    @property
    def n_rows(self) -> int:
        """Rows seen, those of a window that is not full among them."""
        return self._rows + len(self._waiting)

    def update(self, probs: Any, labels: Any = None) -> Monitor:
        """Add rows in the order in which they came; returns the monitor itself.

        Parameters
        ----------
        probs : array-like of shape (n, m)
            Probabilities as they were given to users: calibrated ones, if there is a calibrator.
        labels : array-like of shape (n,), optional
            True classes; -1 where one is not known. None: none is. Which labels are known must not depend on whether the
            prediction was right: if errors are looked up more often than successes, calibrated probabilities seem too large. Rows
            whose labels come later are best fed when these have come.
        """
        n = len(probs)
        if n == 0:
            return self
        if labels is None:
            labelled, y = np.zeros(n, bool), np.zeros(n, np.int64)
        else:
            labels = by_column(labels, probs, ignore_index=-1, name="labels")
            y = to_numpy(read_numbers(labels, "labels", "a class number"))
            if y.shape not in ((n,), (n, 1)):
                raise InputError(
                    f"labels must have one entry for each of the {n} rows, but have shape {y.shape}."
                )
            labelled = y.reshape(n) != -1
            y = np.where(labelled, y.reshape(n), 0)
        rows = Outcomes.of(as_array(probs), y)
        self._check_classes(rows.n_classes, "probs")
        columns = (rows.predicted, rows.confidence, rows.label_prob, rows.correct, labelled)
        self._waiting = np.append(self._waiting, np.rec.fromarrays(columns, ROW))
        while len(self._waiting) >= self.window:
            self._close(self.window)
        return self

    def restart(self, reference: Any = None, fitted_rows: float | None = None) -> Monitor:
        """Begin again after an alarm, with a calibrator that was refitted; returns the monitor itself.

        What was seen stays in ``windows``; the tests begin again, with a new chance ``alpha`` of a false alarm. ``reference`` and
        ``fitted_rows`` are those of the new calibrator, as in `Monitor`; without a ``reference`` the next window is what
        frequencies are compared with.
        """
        self.finish()
        self.fitted_rows = fitted_rows
        self._begin(reference)
        self.alarms = []
        return self

    def finish(self) -> Monitor:
        """Close the window that is not full, if it has rows; returns the monitor itself."""
        if len(self._waiting):
            self._close(len(self._waiting))
        return self

    def _close(self, size: int) -> None:
        rows, self._waiting = self._waiting[:size], self._waiting[size:]
        counts = np.bincount(rows["predicted"], minlength=self._n_classes or 0)
        test = None
        if self._watch is None:
            self._watch = FrequencyWatch(self.alpha / 2, counts)
        else:
            test = self._watch.update(counts)
        labelled = rows[rows["known"]]
        if len(labelled):
            self._bets.update(labelled["confidence"], labelled["right"] > 0, self._rows)
        self.windows.append(seen_in(rows, self._rows, self._bets, test, len(self.windows)))
        self._rows += size
        self._raise_alarms(test)

    def _raise_alarms(self, test: FrequencyTest | None) -> None:
        raised = {alarm.kind for alarm in self.alarms}
        here = len(self.windows) - 1
        if "calibration" not in raised and self._bets.log_wealth >= -np.log(self.alpha / 2):
            k, bets = self._bets.best, self._bets
            rows, since = int(bets.rows[k]), int(bets.since[k])
            fitted = self.fitted_rows is not None
            sentence = off_in_words(float(bets.gap[k]) / rows, rows, since, self.tolerance, fitted)
            self.alarms.append(Alarm("calibration", here, self._rows, since, sentence))
        if "frequencies" not in raised and test is not None and test.shifted:
            since = self.windows[here - test.windows + 1].first_row
            self.alarms.append(
                Alarm("frequencies", here, self._rows, since, self._shift_in_words(test, since))
            )

    def _shift_in_words(self, test: FrequencyTest, since: int) -> str:
        name = f"class {test.most}" if self.class_names is None else self.class_names[test.most]
        return (
            f"The predicted classes have other frequencies since row {since:,}: {name} is {percent(test.now)} of them, "
            f"and was {percent(test.before)}. If nothing else changed, LabelShift.adapt corrects it without labels."
        )

    @property
    def verdict(self) -> str:
        """The state of the stream, in a sentence or two."""
        if self.alarms:
            return " ".join(f"{alarm.sentence} (Seen at row {alarm.row:,}.)" for alarm in self.alarms)
        if not self.windows:
            return f"No window is full yet: {self.n_rows:,} of {self.window:,} rows."
        labelled = sum(window.labelled for window in self.windows)
        if not labelled:
            return (
                f"The predicted classes have the frequencies they had, as far as {self._rows:,} rows tell. Calibration cannot be "
                "judged without labels."
            )
        return f"Nothing has changed as far as {self._rows:,} rows tell, {labelled:,} of them with labels."

    def to_dict(self) -> dict[str, Any]:
        """All there is to go on from, as plain values ready for JSON."""
        waiting = {name: self._waiting[name].tolist() for name in ROW.fields or ()}
        return {
            "kind": _KIND,
            "window": self.window,
            "alpha": self.alpha,
            "tolerance": self.tolerance,
            "class_names": None if self.class_names is None else list(self.class_names),
            "n_classes": self._n_classes,
            "calibrator": self.calibrator,
            "rows": self._rows,
            "bets": self._bets.to_dict(),
            "frequencies": None if self._watch is None else self._watch.to_dict(),
            "waiting": waiting,
            "windows": [asdict(window) for window in self.windows],
            "alarms": [asdict(alarm) for alarm in self.alarms],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a JSON file, whole or not at all; `Monitor.load` goes on from it."""
        with atomic_path(path, force=True) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), allow_nan=False), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Monitor:
        """The monitor that `save` wrote."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise FileError(f"{os.fspath(path)} cannot be read: {error.strerror}; check the name.") from error
        try:
            return cls._restored(json.loads(text, parse_constant=_refuse))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileError(
                f"{os.fspath(path)} is no file that Monitor.save wrote, or damaged: begin a new one under another name."
            ) from error

    @classmethod
    def _restored(cls, state: dict[str, Any]) -> Monitor:
        if state["kind"] != _KIND:
            raise ValueError(state["kind"])
        monitor = cls(**{name: state[name] for name in ("window", "alpha", "tolerance", "class_names")})
        monitor._n_classes, monitor._rows = state["n_classes"], int(state["rows"])
        monitor.calibrator = state.get("calibrator")
        monitor._bets = Bets.from_dict(state["bets"])
        monitor.fitted_rows = None if np.isinf(monitor._bets.fitted_rows) else monitor._bets.fitted_rows
        m, columns = monitor._n_classes, [np.array(state["waiting"][name]) for name in ROW.fields or ()]
        waiting = monitor._waiting = np.rec.fromarrays(columns, ROW)
        if state["frequencies"] is not None:
            monitor._watch = FrequencyWatch.from_dict(state["frequencies"], m)
        numbers = np.concatenate([waiting[name] for name in ("confidence", "label_prob", "right")])
        valid = (
            monitor._bets.tolerance == monitor.tolerance
            and monitor._rows >= 0
            and ((numbers >= 0) & (numbers <= 1)).all()
            and (not len(waiting) or (waiting["predicted"].min() >= 0 and waiting["predicted"].max() < m))
        )
        if not valid:
            raise ValueError("state")
        monitor.windows = [Window(**window) for window in state["windows"]]
        monitor.alarms = [Alarm(**alarm) for alarm in state["alarms"]]
        return monitor


def monitor(
    stream: Iterable[Any],
    *,
    calibrator: Any = None,
    reference: Any = None,
    window: int = 500,
    alpha: float = 0.05,
    tolerance: float = 0.01,
    class_names: Sequence[str] | None = None,
    on_alarm: Callable[[Alarm], Any] | None = None,
) -> Monitor:
    """Watch a stream of rows to its end.

    Parameters
    ----------
    stream : iterable
        Of pairs ``(X, labels)`` in the order of time, or of arrays ``X`` (n_i, m) whose labels are not known. ``X`` are
        probabilities as users got them or, with a ``calibrator``, what it takes.
    calibrator : Calibrator, optional
        Makes probabilities of ``X``; the rows it was fitted on (``n_rows_``) are ``fitted_rows`` of the monitor.
    reference, window, alpha, tolerance, class_names
        As in `Monitor`.
    on_alarm : function, optional
        Called with each `Alarm` as soon as it is raised.

    Returns
    -------
    Monitor
        With its last window closed, full or not.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(6000, 4, seed=1)
    >>> cal = mc.MCCT().fit(data.values[:3000], data.labels[:3000])
    >>> days = [(data.values[i : i + 500], data.labels[i : i + 500]) for i in range(3000, 6000, 500)]
    >>> mc.monitor(days, calibrator=cal).verdict
    'Nothing has changed as far as 3,000 rows tell, 3,000 of them with labels.'
    """
    watch = Monitor(
        reference, window, alpha, tolerance, class_names, fitted_rows=getattr(calibrator, "n_rows_", None)
    )

    def report(first: int) -> None:
        for alarm in watch.alarms[first:]:
            if on_alarm is not None:
                on_alarm(alarm)

    for block in stream:
        X, labels = block if isinstance(block, tuple) else (block, None)
        before = len(watch.alarms)
        watch.update(X if calibrator is None else calibrator.predict_proba(X), labels)
        report(before)
    before = len(watch.alarms)
    watch.finish()
    report(before)
    return watch


def off_in_words(gap: float, rows: int, since: int, tolerance: float, fitted: bool) -> str:
    """What an alarm of calibration says of ``rows`` labelled rows whose mean confidence is ``gap`` above their accuracy.

    Only what was calibrated, by a fit that is known, and not off from the first row on, is not calibrated any more.
    """
    if abs(gap) > tolerance:
        how = f"{'over' if gap > 0 else 'under'}-confident by {points(abs(gap))}"
    else:
        how = "too sure for some confidences and not sure enough for others"
    remedy = "refit on these rows" if fitted else "fit a calibrator on these rows"
    if fitted and rows < _ENOUGH:
        remedy += ", starting from the calibrator that is in use (start=)"
    verdict = "Not calibrated any more" if fitted and since > 0 else "Not calibrated"
    return (
        f"{verdict}: {how} on the {count(rows)} labelled rows since row {since:,}. To correct it, {remedy}."
    )


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _reference_counts(reference: Any) -> np.ndarray:
    values = np.asarray(to_numpy(reference))
    if values.ndim == 2:
        rows = Outcomes.of(values, np.zeros(len(values), np.int64), names=("reference", "labels"))
        return np.bincount(rows.predicted, minlength=rows.n_classes)
    counts = values.astype(np.int64) if values.ndim == 1 and values.dtype.kind in "iuf" else values
    if values.ndim != 1 or len(values) < 2 or not np.array_equal(counts, values) or (counts < 0).any():
        raise InputError(
            "reference: expected probabilities (n, m), or counts (m,) of how often each class was predicted, m >= 2; got shape "
            f"{values.shape} of {values.dtype}."
        )
    if not counts.any():
        raise InputError("reference: all counts are 0.")
    # So many are as good as known frequencies, and tables of more take long.
    return counts if counts.sum() <= _MOST else np.floor(counts * (_MOST / counts.sum())).astype(np.int64)
