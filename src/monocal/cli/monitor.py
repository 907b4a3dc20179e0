"""``monocal monitor``: is what a classifier says still true? Files in the order of time, and a state that goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError
from . import output
from .fit_apply import before_and_after, uncalibrated
from .options import Reading, context_for, ordered, takes

if TYPE_CHECKING:
    from ..calibrators import Calibrator
    from ..io import LogitsSet
    from ..monitoring import Monitor

# Lines of the table: of more windows, the last ones.
_SHOWN = 20


@takes
def monitor(
    reading: Reading,
    paths: list[Path],
    calibrator: Path | None = None,
    reference: Path | None = None,
    window: int | None = None,
    alpha: float | None = None,
    tolerance: float | None = None,
    state: Path | None = None,
    restart: bool = False,
    plot: Path | None = None,
    as_json: bool = False,
) -> None:
    """Watch calibration over time.

    Windows of rows: over-confidence, ECE against what chance does, and two tests, of calibration (with labels) and of the
    frequencies of the predicted classes (without). Over the whole stream a false alarm has the probability alpha at most, however
    often one looks. A label of -1, or that of --ignore-index, is not known. Ends with code 3 when there is an alarm.

    Example: monocal monitor monday.npz tuesday.npz -c cal.json --state watch.json
    """
    from ..persistence import load

    if plot is not None:
        output.check_extension(plot, ".png", ".svg", ".pdf")
        output.check_not_read(plot, *paths, calibrator, reference, state)
    model = None if calibrator is None else load(calibrator)
    options = {"window": window, "alpha": alpha, "tolerance": tolerance}
    options = {name: value for name, value in options.items() if value is not None}
    if state is not None and state.exists():
        watch = _resumed(reading, model, reference, state, options, restart)
    elif restart:
        raise InputError("--restart goes on from a --state that is there: leave it out to begin.")
    else:
        watch = _begun(reading, model, reference, options)
    _check_calibrator(watch, calibrator, state, restart)
    for path in paths:
        data, probs = _probabilities(reading, model, path, watch.class_names)
        if watch.class_names is None:
            watch.class_names = data.class_names
        watch.update(probs, data.labels)
    if state is None:
        watch.finish()
    else:
        watch.save(state)
    if plot is not None and watch.windows:
        _draw(watch, plot)
    if as_json:
        saved = watch.to_dict()
        keys = ("windows", "alarms", "rows", "window", "alpha", "tolerance")
        output.print_json({**{key: saved[key] for key in keys}, "verdict": watch.verdict})
    else:
        _print(watch)
    if watch.alarms:
        raise typer.Exit(output.CHECK_FAILED)


def _begun(
    reading: Reading, model: Calibrator | None, reference: Path | None, options: dict[str, Any]
) -> Monitor:
    from ..monitoring import Monitor

    if reference is not None:
        data, options["reference"] = _probabilities(reading, model, reference, None)
        options["class_names"] = data.class_names
    return Monitor(**options, fitted_rows=getattr(model, "n_rows_", None))


def _resumed(
    reading: Reading,
    model: Calibrator | None,
    reference: Path | None,
    state: Path,
    options: dict[str, Any],
    restart: bool,
) -> Monitor:
    from ..monitoring import Monitor

    if options or (reference is not None and not restart):
        flags = [f"--{name}" for name in options] + ["--reference"] * (reference is not None)
        raise InputError(
            f"{state} goes on as it began: leave out {', '.join(flags)}, or name another --state."
        )
    watch = Monitor.load(state)
    if not restart:
        return watch
    rows = getattr(model, "n_rows_", None)
    if reference is None:
        return watch.restart(fitted_rows=rows)
    return watch.restart(_probabilities(reading, model, reference, watch.class_names)[1], rows)


def _check_calibrator(watch: Monitor, calibrator: Path | None, state: Path | None, restart: bool) -> None:
    """A state is of one calibrator: what another says would be judged by what was seen of the first."""
    now = None if calibrator is None else hashlib.sha256(calibrator.read_bytes()).hexdigest()
    if watch.n_rows and not restart and watch.calibrator != now:
        raise InputError(
            f"{state} was begun with another calibrator. After a refit give --restart, so that the tests begin again; or name "
            "another --state."
        )
    watch.calibrator = now


def _probabilities(
    reading: Reading, model: Calibrator | None, path: Path, names: Sequence[str] | None
) -> tuple[LogitsSet, Any]:
    """The set of a file, its classes in the order of ``names``, and what users see of its rows."""
    if model is None:
        data = ordered(reading.read(path, unknown=True), names)
        return data, uncalibrated(data.values, data.kind)
    of_rows, data = reading.read_for(model, path, with_labels=True, unknown=True)
    data = ordered(data, names)
    columns = context_for(of_rows, None, data, path, reading.group)
    return data, before_and_after(of_rows, data.values, columns)["after"]


def _draw(watch: Monitor, path: Path) -> None:
    from ..errors import require
    from ..io import atomic_path

    require("matplotlib", "plots").use("agg")
    from ..plots import MonitorDisplay

    figure = MonitorDisplay(watch).plot().figure_
    with atomic_path(path, force=True) as temporary:
        figure.savefig(temporary, dpi=150)


def _print(watch: Monitor) -> None:
    if len(watch.windows) > _SHOWN:
        output.note(f"The last {_SHOWN} of {len(watch.windows)} windows:")
    rows = []
    for w in watch.windows[-_SHOWN:]:
        counts = [f"{count:,}" for count in (w.first_row, w.rows, w.labelled)]
        shares = [
            "" if x is None else f"{100 * x:.1f} %" for x in (w.accuracy, w.confidence, w.ece, w.floor_high)
        ]
        rows.append([*counts, *shares, f"{w.evidence:.1f}"])
    columns = ["from row", "rows", "labels", "accuracy", "confidence", "ECE", "by chance <", "evidence"]
    if rows:
        output.print_table(columns, rows, drop=("labels", "rows"))
    output.say(watch.verdict)
