"""Watch a classifier's probabilities over time: windows of rows, two tests that rarely cry wolf, and when to refit.

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
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from ..arrays import to_numpy
from ..data.atomic import atomic_path
from ..errors import FileError, InputError
from ..metrics.floor import ece_by_chance
from ..metrics.outcomes import Outcomes, bin_index, equal_width_edges
from ..metrics.units import count, percent, points
from ..validation import check_count, check_fraction, check_number
from .betting import Bets
from .frequencies import FrequencyTest, FrequencyWatch

_BINS = 15
_DRAWS = 200
# Rows that a fit needs to be judged by itself; with fewer, let it lean on the old one.
_ENOUGH = 500
_KIND = "monocal monitor 1"


@dataclass(frozen=True)
class Window:
    """What one window of the stream showed; numbers that need labels are None where it has none.

    Attributes
    ----------
    first_row, rows, labelled : int
        Where it begins in the stream, its rows, and those whose label is known.
    accuracy, confidence, nll : float or None
        Of its labelled rows.
    over_confidence, low, high : float or None
        Confidence less accuracy, and its 95 % interval.
    ece, floor, floor_high : float or None
        ECE, what perfect calibration shows on these rows (median), and what it exceeds one time in forty.
    evidence : float
        Logarithm (base 10) of the wealth of the bet against calibration after this window.
    frequency_p, frequency_level : float or None
        p-value of the predicted classes' frequencies, and what it must not fall below; None before there is a reference.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(2000, 4, seed=1)
    >>> wrong = (data.values[1000:], 3 - data.labels[1000:])
    >>> cal = mc.MCCT().fit(data.values[:1000], data.labels[:1000])
    >>> found = mc.monitor([(data.values[:1000], data.labels[:1000]), wrong], calibrator=cal)
    >>> [(window.first_row, window.rows) for window in found.windows]
    [(0, 500), (500, 500), (1000, 500), (1500, 500)]
    """

    first_row: int
    rows: int
    labelled: int
    accuracy: float | None
    confidence: float | None
    nll: float | None
    over_confidence: float | None
    low: float | None
    high: float | None
    ece: float | None
    floor: float | None
    floor_high: float | None
    evidence: float
    frequency_p: float | None
    frequency_level: float | None


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
    >>> found = mc.monitor([(data.values[:1000], data.labels[:1000]), wrong], calibrator=cal)
    >>> found.alarms[0].kind, found.alarms[0].since
    ('calibration', 1000)
    """

    kind: str
    window: int
    row: int
    since: int
    sentence: str


@dataclass
class _Waiting:
    """Rows of a window that is not full yet."""

    predicted: np.ndarray
    confidence: np.ndarray
    label_prob: np.ndarray
    right: np.ndarray
    known: np.ndarray

    @classmethod
    def none(cls) -> _Waiting:
        return cls(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, bool))

    def __add__(self, other: _Waiting) -> _Waiting:
        return _Waiting(
            *(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(_Waiting))
        )

    def __getitem__(self, rows: slice) -> _Waiting:
        return _Waiting(*(getattr(self, f.name)[rows] for f in fields(_Waiting)))

    def __len__(self) -> int:
        return len(self.predicted)


@dataclass
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
    >>> honest = rng.dirichlet(np.ones(3) / 2, size=4000)
    >>> labels = (rng.random(4000)[:, None] > honest.cumsum(axis=1)).sum(axis=1)
    >>> monitor = mc.Monitor().update(honest, labels)
    >>> len(monitor.windows), monitor.alarms
    (8, [])
    >>> sure = honest**2 / (honest**2).sum(axis=1, keepdims=True)
    >>> monitor.update(sure, labels).alarms[0].kind
    'calibration'
    """

    reference: Any = None
    window: int = 500
    alpha: float = 0.05
    tolerance: float = 0.01
    class_names: Sequence[str] | None = None
    windows: list[Window] = field(default_factory=list, init=False)
    alarms: list[Alarm] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.window, self.alpha = check_count(self.window, "window"), check_fraction(self.alpha, "alpha")
        check_number(self.tolerance, "tolerance", least=0, most=0.5)
        self._bets = Bets.begin(float(self.tolerance))
        self._watch: FrequencyWatch | None = None
        self._waiting = _Waiting.none()
        self._n_classes: int | None = None
        self._rows = 0
        if self.reference is not None:
            counts = _reference_counts(self.reference)
            self._n_classes, self.reference = len(counts), None
            self._watch = FrequencyWatch(self.alpha / 2, counts)

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
            True classes; -1 where one is not known. None: none is.
        """
        shape = np.shape(probs)
        if len(shape) == 2 and shape[0] == 0:
            return self
        if labels is None:
            known, y = np.zeros(shape[:1], bool), np.zeros(shape[:1], np.int64)
        else:
            given = np.asarray(to_numpy(labels))
            known = given != -1
            y = np.where(known, given, 0)
        rows = Outcomes.of(probs, y)
        if self._n_classes not in (None, rows.n_classes):
            raise InputError(f"probs has {rows.n_classes} classes, but those before had {self._n_classes}.")
        self._n_classes = rows.n_classes
        self._waiting += _Waiting(rows.predicted, rows.confidence, rows.label_prob, rows.correct, known)
        while len(self._waiting) >= self.window:
            self._close(self.window)
        return self

    def finish(self) -> Monitor:
        """Close the window that is not full, if it has rows; returns the monitor itself."""
        if len(self._waiting):
            self._close(len(self._waiting))
        return self

    def _close(self, size: int) -> None:
        rows, self._waiting = self._waiting[:size], self._waiting[size:]
        counts = np.bincount(rows.predicted, minlength=self._n_classes or 0)
        test = None
        if self._watch is None:
            self._watch = FrequencyWatch(self.alpha / 2, counts)
        else:
            test = self._watch.update(counts)
        some = rows.known
        if some.any():
            self._bets.update(rows.confidence[some], rows.right[some] > 0, self._rows)
        self.windows.append(_window(rows, self._rows, self._bets, test, len(self.windows)))
        self._rows += size
        self._raise_alarms(test)

    def _raise_alarms(self, test: FrequencyTest | None) -> None:
        raised = {alarm.kind for alarm in self.alarms}
        here = len(self.windows) - 1
        if "calibration" not in raised and self._bets.log_wealth >= -np.log(self.alpha / 2):
            since = int(self._bets.since[self._bets.best])
            self.alarms.append(Alarm("calibration", here, self._rows, since, self._off_in_words()))
        if "frequencies" not in raised and test is not None and test.shifted:
            since = self.windows[here - test.windows + 1].first_row
            self.alarms.append(
                Alarm("frequencies", here, self._rows, since, self._shift_in_words(test, since))
            )

    def _off_in_words(self) -> str:
        k = self._bets.best
        rows, since = int(self._bets.rows[k]), int(self._bets.since[k])
        gap = float(self._bets.gap[k]) / rows
        if abs(gap) > self.tolerance:
            how = f"{'over' if gap > 0 else 'under'}-confident by {points(abs(gap))}"
        else:
            how = "too sure for some confidences and not sure enough for others"
        remedy = "refit on these rows"
        if rows < _ENOUGH:
            remedy += ", leaning on the calibrator that is in use (start=)"
        return f"Not calibrated any more: {how} on the {count(rows)} labelled rows since row {since:,}. To mend it, {remedy}."

    def _shift_in_words(self, test: FrequencyTest, since: int) -> str:
        name = f"class {test.most}" if self.class_names is None else self.class_names[test.most]
        return (
            f"The predicted classes have other frequencies since row {since:,}: {name} is {percent(test.now)} of them, "
            f"and was {percent(test.before)}. If nothing else changed, LabelShift.adapt corrects it without labels."
        )

    @property
    def verdict(self) -> str:
        """What is to be known now, in a sentence or two."""
        if self.alarms:
            # Of calibration more is known by now than when the alarm was raised.
            return " ".join(
                self._off_in_words() if alarm.kind == "calibration" else alarm.sentence
                for alarm in self.alarms
            )
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
        waiting = {f.name: getattr(self._waiting, f.name).tolist() for f in fields(_Waiting)}
        return {
            "kind": _KIND,
            "window": self.window,
            "alpha": self.alpha,
            "tolerance": self.tolerance,
            "class_names": None if self.class_names is None else list(self.class_names),
            "n_classes": self._n_classes,
            "rows": self._rows,
            "bets": self._bets.to_dict(),
            "frequencies": None if self._watch is None else self._watch.to_dict(),
            "waiting": waiting,
            "windows": [asdict(window) for window in self.windows],
            "alarms": [asdict(alarm) for alarm in self.alarms],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what is known so far to a JSON file, whole or not at all; `Monitor.load` goes on from it."""
        with atomic_path(path, force=True) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), allow_nan=False), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Monitor:
        """The monitor that `save` wrote."""
        try:
            with open(path, encoding="utf-8") as file:
                return cls._restored(json.load(file))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FileError(
                f"{os.fspath(path)} is no file that Monitor.save wrote, or damaged: begin a new one under another name."
            ) from error

    @classmethod
    def _restored(cls, state: dict[str, Any]) -> Monitor:
        if state["kind"] != _KIND:
            raise ValueError(state["kind"])
        monitor = cls(**{name: state[name] for name in ("window", "alpha", "tolerance", "class_names")})
        monitor._n_classes, monitor._rows = state["n_classes"], int(state["rows"])
        monitor._bets = Bets.from_dict(state["bets"])
        if state["frequencies"] is not None:
            monitor._watch = FrequencyWatch.from_dict(state["frequencies"])
            if len(monitor._watch.reference) != monitor._n_classes:
                raise ValueError("n_classes")
        empty = _Waiting.none()
        monitor._waiting = _Waiting(
            *(np.array(state["waiting"][f.name], getattr(empty, f.name).dtype) for f in fields(_Waiting))
        )
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
        Makes probabilities of ``X``.
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
    found = Monitor(reference, window, alpha, tolerance, class_names)
    told = 0

    def tell() -> None:
        nonlocal told
        for alarm in found.alarms[told:]:
            if on_alarm is not None:
                on_alarm(alarm)
        told = len(found.alarms)

    for block in stream:
        X, labels = block if isinstance(block, (tuple, list)) and len(block) == 2 else (block, None)
        found.update(X if calibrator is None else calibrator.predict_proba(X), labels)
        tell()
    found.finish()
    tell()
    return found


def _reference_counts(given: Any) -> np.ndarray:
    values = np.asarray(to_numpy(given))
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
    return counts


def _window(rows: _Waiting, first_row: int, bets: Bets, test: FrequencyTest | None, number: int) -> Window:
    some, n = rows.known, int(rows.known.sum())
    seen: dict[str, float | None] = dict.fromkeys(
        ("accuracy", "confidence", "nll", "over_confidence", "low", "high", "ece", "floor", "floor_high")
    )
    if n:
        c, right = rows.confidence[some], rows.right[some]
        gap = float((c - right).mean())
        # The larger of what was seen and what honest confidences have: a window without errors has no spread.
        spread = max(float(np.mean((c - right - gap) ** 2)), float(np.mean(c * (1 - c))))
        half = 1.96 * np.sqrt(spread / n)
        cell = bin_index(c, equal_width_edges(_BINS))
        ece, draws = ece_by_chance(c, right, np.ones(n), cell, _DRAWS, number)
        seen = {
            "accuracy": float(right.mean()),
            "confidence": float(c.mean()),
            "nll": float(-np.log(np.maximum(rows.label_prob[some], np.finfo(float).tiny)).mean()),
            "over_confidence": gap,
            "low": gap - half,
            "high": gap + half,
            "ece": ece,
            "floor": float(np.median(draws)),
            "floor_high": float(np.quantile(draws, 0.975)),
        }
    return Window(
        first_row=first_row,
        rows=len(rows),
        labelled=n,
        **seen,
        evidence=bets.log_wealth / np.log(10.0),
        frequency_p=None if test is None else test.p_value,
        frequency_level=None if test is None else test.level,
    )
