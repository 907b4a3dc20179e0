"""Watch a classifier's probabilities over time: windows of rows, two tests with bounded false alarms, and when to refit.

    calibration    a bet against it                 (`betting`, labels needed)        false alarms over the whole stream
    frequencies    of the predicted classes         (`frequencies`, no labels)        have probability alpha at most:
                                                                                      alpha / 2 for each of the two

A window shows accuracy, confidence, and ECE with what chance alone does:

    over_confidence = mean (c - right),     its interval +- 1.96 sqrt(v / n)

with ``v`` the larger of the observed variance and the one that calibrated confidences have: a window without errors shows none.
The floor of the ECE is drawn: every row right with the probability that it claims.

Only a few numbers of each row are kept, and only until its window is full: the memory does not grow with the stream but for one
line per window.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import to_numpy
from ..errors import FileError, InputError
from ..inputs.formats import as_array
from ..inputs.names import by_column
from ..inputs.validation import check_count, check_fraction, check_number, read_numbers
from ..io import atomic_path
from ..metrics.chance import ece_by_chance, most_by_chance
from ..metrics.outcomes import Outcomes, bin_index, equal_width_edges
from ..metrics.units import percent, points
from .betting import Bets
from .frequencies import FrequencyTest, FrequencyWatch

_BINS, _DRAWS = 15, 200
_ENOUGH = 500  # rows that a fit needs to be judged by itself; with fewer, it starts from the old one
_MOST = 10**9  # counts of a reference: so many are as good as known frequencies, and tables of more take long
_KIND = "monocal monitor 1"
# What is kept of a row until its window is full, by the names in saved files.
_ROW = np.dtype(
    [("predicted", np.int64), ("confidence", float), ("label_prob", float), ("right", float), ("known", bool)]
)


@dataclass(frozen=True)
class Window:
    """What one window of the stream showed; numbers that need labels are None where it has none.

    Attributes
    ----------
    first_row, rows, labelled : int
        Where it begins in the stream, its rows, and those whose label is known.
    accuracy, confidence, nll, over_confidence, low, high : float or None
        Of its labelled rows; ``over_confidence`` is confidence less accuracy, with its 95 % interval.
    ece, floor, floor_high : float or None
        ECE, what perfect calibration shows on these rows (median), and what it exceeds one time in twenty at most.
    evidence : float
        Logarithm (base 10) of the wealth of the bet against calibration after this window.
    frequency_p, frequency_level : float or None
        p-value of the predicted classes' frequencies, and what it must not fall below; None before there is a reference.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> window = mc.Monitor(window=50).update(np.full((100, 2), 0.5)).windows[1]
    >>> window.first_row, window.labelled
    (50, 0)
    """

    first_row: int
    rows: int
    labelled: int
    accuracy: float | None = None
    confidence: float | None = None
    nll: float | None = None
    over_confidence: float | None = None
    low: float | None = None
    high: float | None = None
    ece: float | None = None
    floor: float | None = None
    floor_high: float | None = None
    evidence: float = 0.0
    frequency_p: float | None = None
    frequency_level: float | None = None


def _numbers_of(labelled: np.ndarray, seed: int) -> dict[str, float]:
    """The numbers of a window's labelled rows (of type `_ROW`)."""
    n, c, right = len(labelled), labelled["confidence"], labelled["right"]
    gap = float((c - right).mean())
    spread = max(float(np.mean((c - right - gap) ** 2)), float(np.mean(c * (1 - c))))
    half = 1.96 * np.sqrt(spread / n)
    cell = bin_index(c, equal_width_edges(_BINS))
    ece, draws = ece_by_chance(c, right, np.ones(n), cell, _DRAWS, seed)
    return {
        "accuracy": float(right.mean()),
        "confidence": float(c.mean()),
        "nll": float(-np.log(np.maximum(labelled["label_prob"], np.finfo(float).tiny)).mean()),
        "over_confidence": gap,
        "low": gap - half,
        "high": gap + half,
        "ece": ece,
        "floor": float(np.median(draws)),
        "floor_high": most_by_chance(draws, 0.95),
    }


@dataclass(frozen=True)
class Alarm:
    """That something has changed.

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
    >>> import numpy as np
    >>> import monocal as mc
    >>> always_wrong = mc.Monitor().update(np.tile([0.9, 0.1], (500, 1)), np.ones(500, int))
    >>> always_wrong.alarms[0].kind, always_wrong.alarms[0].since
    ('calibration', 0)
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
        How far confidence may be from the truth: no calibrator is perfect, and a stream without end finds the smallest flaw.
    class_names : sequence of str, optional
    fitted_rows : float, optional
        Rows that the calibrator was fitted on, effective ones if they had weights: confidence may be off by 2.5 standard
        errors of a share among so many, and by ``tolerance`` (their squares add). None: the rows of ``reference``; without
        one, ``tolerance`` alone, which no fit on a few hundred rows keeps.

    Attributes
    ----------
    windows : list of Window
    alarms : list of Alarm
        The first of each kind.

    Examples
    --------
    >>> import numpy as np
    >>> import monocal as mc
    >>> calibrated = np.random.default_rng(0).dirichlet(np.ones(3) / 2, size=4000)
    >>> labels = (np.random.default_rng(1).random((4000, 1)) > calibrated.cumsum(axis=1)).sum(axis=1)
    >>> monitor = mc.Monitor().update(calibrated, labels)
    >>> len(monitor.windows), monitor.alarms
    (8, [])
    >>> monitor.update(np.eye(3)[calibrated.argmax(axis=1)], labels).alarms[0].kind
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
    # A name of what makes the probabilities, which changes with it.
    calibrator: str | None = field(default=None, init=False)

    def __post_init__(self, reference: Any) -> None:
        self.window, self.alpha = check_count(self.window, "window"), check_fraction(self.alpha, "alpha")
        check_number(self.tolerance, "tolerance", least=0, most=0.5)
        self.tolerance = float(self.tolerance)
        if self.fitted_rows is not None:
            check_number(self.fitted_rows, "fitted_rows", least=1)
        self._waiting = np.empty(0, _ROW)
        self._n_classes: int | None = None
        self._rows = 0
        self._begin(reference)

    def _begin(self, reference: Any) -> None:
        self._watch = None
        if reference is not None:
            counts = _reference_counts(reference)
            self._check_classes(len(counts), "reference")
            self.fitted_rows = float(counts.sum()) if self.fitted_rows is None else self.fitted_rows
            self._watch = FrequencyWatch(self.alpha / 2, counts)
        self._bets = Bets.begin(self.tolerance, np.inf if self.fitted_rows is None else self.fitted_rows)

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
        """Rows so far, those of a window that is not full among them."""
        return self._rows + len(self._waiting)

    def update(self, probs: Any, labels: Any = None) -> Monitor:
        """Add rows in the order in which they came; returns the monitor itself.

        Parameters
        ----------
        probs : array-like of shape (n, m)
            Probabilities as users got them: calibrated ones, if there is a calibrator.
        labels : array-like of shape (n,), optional
            True classes; -1 where one is not known, None where none is. Which labels are known must not depend on whether the
            prediction was right. Rows whose labels come later are best added when these have come.
        """
        n = len(probs)
        if n == 0:
            return self
        y = np.full(n, -1)
        if labels is not None:
            labels = by_column(labels, probs, ignore_index=-1, name="labels")
            y = to_numpy(read_numbers(labels, "labels", "a class number"))
            if y.shape not in ((n,), (n, 1)):
                raise InputError(
                    f"labels must have one entry for each of the {n} rows, but have shape {y.shape}."
                )
        y = y.reshape(n)
        known = y != -1
        rows = Outcomes.of(as_array(probs), np.where(known, y, 0))
        self._check_classes(rows.n_classes, "probs")
        columns = (rows.predicted, rows.confidence, rows.label_prob, rows.correct, known)
        self._waiting = np.append(self._waiting, np.rec.fromarrays(columns, _ROW))
        while len(self._waiting) >= self.window:
            self._close(self.window)
        return self

    def restart(self, reference: Any = None, fitted_rows: float | None = None) -> Monitor:
        """Begin again after an alarm, with a calibrator that was refitted; returns the monitor itself.

        The ``windows`` stay; the tests begin again, with a new chance ``alpha`` of a false alarm. ``reference`` and
        ``fitted_rows`` are those of the new calibrator; without a ``reference`` the next window is what frequencies are
        compared with.
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
        numbers = {}
        if len(labelled):
            self._bets.update(labelled["confidence"], labelled["right"] > 0, self._rows)
            numbers = _numbers_of(labelled, len(self.windows))
        evidence = self._bets.log_wealth / np.log(10.0)
        p, level = (None, None) if test is None else (test.p_value, test.level)
        window = Window(
            self._rows,
            size,
            len(labelled),
            **numbers,
            evidence=evidence,
            frequency_p=p,
            frequency_level=level,
        )
        self.windows.append(window)
        self._rows += size
        self._raise_alarms(test)

    def _raise_alarms(self, test: FrequencyTest | None) -> None:
        raised, here, bets = {alarm.kind for alarm in self.alarms}, len(self.windows) - 1, self._bets
        if "calibration" not in raised and bets.log_wealth >= -np.log(self.alpha / 2):
            k = bets.best
            rows, since = int(bets.rows[k]), int(bets.since[k])
            fitted = self.fitted_rows is not None
            sentence = off_in_words(float(bets.gap[k]) / rows, rows, since, self.tolerance, fitted)
            self.alarms.append(Alarm("calibration", here, self._rows, since, sentence))
        if "frequencies" not in raised and test is not None and test.p_value <= test.level:
            since = self.windows[here - test.windows + 1].first_row
            name = f"class {test.most}" if self.class_names is None else self.class_names[test.most]
            sentence = (
                f"The predicted classes have other frequencies since row {since:,}: {name} is {percent(test.now)} of them, and "
                f"was {percent(test.before)}. If nothing else changed, LabelShift.adapt corrects it without labels."
            )
            self.alarms.append(Alarm("frequencies", here, self._rows, since, sentence))

    @property
    def verdict(self) -> str:
        """The state of the stream, in a sentence or two."""
        if self.alarms:
            return " ".join(f"{alarm.sentence} (Seen at row {alarm.row:,}.)" for alarm in self.alarms)
        if not self.windows:
            return f"No window is full yet: {self.n_rows:,} of {self.window:,} rows."
        labelled = sum(window.labelled for window in self.windows)
        if labelled:
            return (
                f"Nothing has changed as far as {self._rows:,} rows tell, {labelled:,} of them with labels."
            )
        return (
            f"The predicted classes have the frequencies they had, as far as {self._rows:,} rows tell. Calibration cannot be "
            "judged without labels."
        )

    def to_dict(self) -> dict[str, Any]:
        """The whole state, as plain values ready for JSON."""
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
            "waiting": {name: self._waiting[name].tolist() for name in _ROW.fields or ()},
            "windows": [asdict(window) for window in self.windows],
            "alarms": [asdict(alarm) for alarm in self.alarms],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a JSON file, whole or not at all; `Monitor.load` continues from it."""
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
            return cls._restored(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileError(
                f"{os.fspath(path)} is no file that Monitor.save wrote, or damaged: begin a new one under another name."
            ) from error

    @classmethod
    def _restored(cls, state: dict[str, Any]) -> Monitor:
        monitor = cls(**{name: state[name] for name in ("window", "alpha", "tolerance", "class_names")})
        m = monitor._n_classes = state["n_classes"]
        monitor._rows, monitor.calibrator = int(state["rows"]), state.get("calibrator")
        bets = monitor._bets = Bets.from_dict(state["bets"])
        monitor.fitted_rows = None if np.isinf(bets.fitted_rows) else bets.fitted_rows
        waiting = np.rec.fromarrays([np.array(state["waiting"][name]) for name in _ROW.fields or ()], _ROW)
        monitor._waiting = waiting
        if state["frequencies"] is not None:
            monitor._watch = FrequencyWatch.from_dict(state["frequencies"], m)
        numbers = np.concatenate([waiting[name] for name in ("confidence", "label_prob", "right")])
        valid = (
            state["kind"] == _KIND
            and bets.tolerance == monitor.tolerance
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
    """Watch a stream of rows to its end; returns the `Monitor`, its last window closed.

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

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(6000, 4, seed=1)
    >>> cal = mc.MCCT().fit(data.values[:3000], data.labels[:3000])
    >>> mc.monitor([(data.values[3000:], data.labels[3000:])], calibrator=cal).verdict
    'Nothing has changed as far as 3,000 rows tell, 3,000 of them with labels.'
    """
    fitted_rows = getattr(calibrator, "n_rows_", None)
    watch = Monitor(reference, window, alpha, tolerance, class_names, fitted_rows=fitted_rows)
    for block in chain(stream, [None]):
        before = len(watch.alarms)
        if block is None:
            watch.finish()
        else:
            X, labels = block if isinstance(block, tuple) else (block, None)
            watch.update(X if calibrator is None else calibrator.predict_proba(X), labels)
        for alarm in watch.alarms[before:] if on_alarm else ():
            on_alarm(alarm)  # type: ignore[misc]
    return watch


def off_in_words(gap: float, rows: int, since: int, tolerance: float, fitted: bool) -> str:
    """The sentence of an alarm about ``rows`` labelled rows whose mean confidence is ``gap`` above their accuracy."""
    how = "too sure for some confidences and not sure enough for others"
    if abs(gap) > tolerance:
        how = f"{'over' if gap > 0 else 'under'}-confident by {points(abs(gap))}"
    remedy = "refit on these rows" if fitted else "fit a calibrator on these rows"
    if fitted and rows < _ENOUGH:
        remedy += ", starting from the calibrator that is in use (start=)"
    verdict = "Not calibrated any more" if fitted and since > 0 else "Not calibrated"
    return f"{verdict}: {how} on the {rows:,} labelled rows since row {since:,}. To correct it, {remedy}."


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
    return counts if counts.sum() <= _MOST else np.floor(counts * (_MOST / counts.sum())).astype(np.int64)
