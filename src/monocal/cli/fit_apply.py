"""``monocal fit``: learn a calibrator from a file and save it. ``monocal apply``: calibrated probabilities of a file."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

import typer

from ..errors import FileError, InputError
from . import output
from .options import Reading, context_for, find_columns, takes

if TYPE_CHECKING:
    import numpy as np

    from ..calibrators import Calibrator
    from ..io import LogitsSet
    from ..metrics import Evaluation

_METRICS = ("accuracy", "nll", "brier", "ece")
_METRICS_OF_TWO = ("accuracy", "nll", "positive_brier", "positive_ece")  # of P(class 1)
_MOST_ROWS, _MOST_NUMBERS = 10_000, 5_000_000  # in folds that are held out
_BLOCK = 1 << 23  # logits of a file handled at a time


def make(
    name: str | None, data: LogitsSet, parameters: Mapping[str, Any] | None = None, *, context: bool = False
) -> Calibrator:
    """A calibrator for these logits or probabilities that is not fitted yet; None: the one recommended for them."""
    from ..calibrators.isotonic import IsotonicCalibration
    from ..registry import find_method

    if data.many_labels:
        calibrator = _of_many_labels(name)
    else:
        calibrator = _recommended(data, context) if name is None else find_method(name)[1]
    chosen = dict(parameters or {})
    if isinstance(calibrator, IsotonicCalibration) and data.n_classes == 2 and chosen.get("mode") is None:
        chosen["mode"] = "one_vs_rest"  # what isotonic calibration means for two classes
    if "input" in calibrator.get_params():
        chosen.setdefault("input", data.kind)
    elif data.kind != calibrator.input:
        raise InputError(f"{name} works on {calibrator.input} only: give it a file of {calibrator.input}.")
    return calibrator.set_params(**chosen)


def _of_many_labels(name: str | None) -> Calibrator:
    from ..calibrators.multilabel import MultilabelMCCT
    from ..registry import letters

    if name is not None and not "multilabelmcct".startswith(letters(name)):
        raise InputError(
            f"--method {name}: files of many labels are fitted with multilabel-mcct; leave it out."
        )
    return MultilabelMCCT()


def _recommended(data: LogitsSet, context: bool) -> Calibrator:
    from ..registry import find_method
    from ..selection import recommend

    advised = recommend(
        data.values,
        data.labels,
        kind=data.kind,
        keep_order=context,
        sample_weight=data.weights,
        class_names=data.class_names,
    )
    if data.n_classes > 2 and not advised.calibrator.preserves_order:
        output.note(f"{advised.title}: {advised.reason}")
    return find_method(advised.name)[1]


def parse_settings(settings: list[str]) -> dict[str, Any]:
    """``["tol=1e-8", "shrinkage=cv"]`` as parameters."""
    parameters = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set takes NAME=VALUE, such as --set tol=1e-8, got {setting!r}.")
        parameters[name.strip().replace("-", "_")] = parse(text.strip())
    return parameters


def parse(text: str) -> Any:
    """A value as it would be written in JSON, or text; none is None."""
    if text.lower() == "none":
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


@takes
def fit(
    reading: Reading,
    path: Path,
    out: Path,
    method: str | None = None,
    top_k: int | None = None,
    shrinkage: str | None = None,
    context: str | None = None,
    settings: list[str] | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Learn a calibrator and save it as JSON.

    The file keeps the parameters, the fitted state, the names of the classes where the data have some, a fingerprint of the
    calibration data and metrics of held-out folds. Ends with code 3 when the fit did not converge; the calibrator is saved all
    the same.

    Example: monocal fit cal.npz -o cal.json
    """
    from sklearn.exceptions import ConvergenceWarning

    from ..io import atomic_path
    from ..persistence import to_json

    output.check_extension(out, ".json")
    output.check_not_read(out, path, reading.labels_file)
    parameters: dict[str, Any] = parse_settings(settings or [])
    parameters |= {} if top_k is None else {"top_k": top_k}
    parameters |= {} if shrinkage is None else {"shrinkage": parse(shrinkage)}
    with atomic_path(out, force=force) as temporary:
        data = reading.read_to_learn(path, weights=True, many_labels=True)
        calibrator = make(method, data, parameters, context=bool(context))
        columns = find_columns(context, data, path, reading.group, "context=")
        keywords: dict[str, Any] = {} if columns is None else {"context": columns}
        if keywords and not calibrator.takes_context:
            other = "binary-mcct" if data.n_classes == 2 else "conditional-mcct"
            raise InputError(
                f"--context: {type(calibrator).__name__} takes none. Use --method {other}, or leave it out."
            )
        with output.progress(f"Fitting {type(calibrator).__name__} on {data.n_samples:,} rows") as update:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                calibrator.fit(data.values, data.labels, sample_weight=data.weights, **keywords)
            update("Fitting folds")
            held_out = _held_out(calibrator, data, columns)
        metrics = {"on": "held-out folds", **{name: result.to_dict() for name, result in held_out.items()}}
        _describe_input(calibrator, data, reading)
        rows = (data.values, data.labels, *(() if data.weights is None else (data.weights,)))
        temporary.write_text(to_json(calibrator, data=rows, metrics=metrics), encoding="utf-8")
    for warning in caught:
        warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
    converged = not any(issubclass(w.category, ConvergenceWarning) for w in caught)
    solution = getattr(calibrator, "solution_", None)
    if as_json:
        names = ("converged", "status", "kkt", "duality_gap", "objective", "n_iter")
        output.print_json(
            {
                "calibrator": out,
                "class": type(calibrator).__name__,
                "parameters": calibrator.get_params(),
                "read": data.taken,
                "n_samples": data.n_samples,
                "n_classes": data.n_classes,
                "input": data.kind,
                "classes": data.class_names,
                "preserves_order": calibrator.preserves_order,
                "certificate": solution and {name: getattr(solution, name) for name in names},
                "converged": converged,
                "metrics": metrics,
            }
        )
    else:
        output.say(data.taken)
        classes = "labels" if data.many_labels else "classes"
        output.say(
            f"{type(calibrator).__name__} fitted on {data.n_samples:,} samples of {data.n_classes:,} {classes}."
        )
        _print_held_out(**held_out)
        if solution is not None:
            output.say(f"{solution.status} (violation {solution.kkt:.1e}, {solution.n_iter} iterations).")
        _say_next(calibrator, data, path, out)
    if not converged:
        raise typer.Exit(output.CHECK_FAILED)


def _describe_input(calibrator: Calibrator, data: LogitsSet, reading: Reading) -> None:
    """What files are to look like that the calibrator is applied to: the axis and the names of the classes."""
    import numpy as np

    axis = -1 if reading.class_axis is None else reading.class_axis
    if {"class_axis", "ignore_index"} <= calibrator.get_params().keys():  # one score has no axis of classes
        calibrator.set_params(class_axis=axis, ignore_index=reading.ignore_index)
    if data.class_names is not None:
        calibrator.feature_names_in_ = np.array(data.class_names, dtype=object)


def uncalibrated(values: np.ndarray, kind: str) -> np.ndarray:
    """What logits (their softmax) or probabilities (themselves) say without calibration."""
    import numpy as np

    from ..arrays import ordered_softmax

    if kind == "probabilities":
        return np.asarray(values)
    # Halves are too coarse to sum a thousand of them to one.
    return ordered_softmax(np.asarray(values, dtype=np.promote_types(values.dtype, np.float32)))


def before_and_after(
    calibrator: Calibrator, values: np.ndarray, context: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Probabilities before and after the calibrator."""
    before = uncalibrated(values, calibrator.input)
    of_rows = {} if context is None else {"context": context}
    return {
        "before": before,
        "after": calibrator.predict_proba(values.astype(before.dtype, copy=False), **of_rows),
    }


def _held_out(calibrator: Calibrator, data: LogitsSet, context: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metrics before and after of rows that were held out in folds, and the change of NLL.

    Nothing where folds cannot be fitted or would take minutes.
    """
    from .. import metrics
    from ..io import LogitsSet
    from ..registry import all_calibrators
    from ..report.trial import Trial

    if data.many_labels or any(type(calibrator) is info.cls and info.extras for info in all_calibrators()):
        return {}
    part = slice(None, None, -(-data.n_samples // max(1, min(_MOST_ROWS, _MOST_NUMBERS // data.n_classes))))
    weights = None if data.weights is None else data.weights[part]
    if context is not None:
        context = {name: column[part] for name, column in context.items()}
    try:
        trial = Trial.of(LogitsSet(data.values[part], data.labels[part], data.kind), None)  # type: ignore[index]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said of the fit itself
            after = trial.judge(calibrator, context=context, sample_weight=weights).probabilities
    except ValueError:  # too few rows, or a class, in a fold
        return {}
    names = _METRICS_OF_TWO if data.n_classes == 2 else _METRICS
    sides = {"before": trial.before, "after": after}
    return {
        **{
            side: metrics.evaluate(p, trial.labels, metrics=names, sample_weight=weights)
            for side, p in sides.items()
        },
        "change": metrics.compare(after, trial.before, trial.labels, sample_weight=weights, n_boot=400),
    }


def _print_held_out(before: Evaluation | None = None, after: Any = None, change: Any = None) -> None:
    if before is None:
        return
    output.print_evaluations({"before": before, "after": after}, "On held-out folds:")
    if change.verdict == "B is better":
        output.say(
            "NLL is worse than without calibration. More rows or a simpler method (-m temperature-scaling) may help."
        )
    elif change.verdict == "undecided":
        output.say("NLL is no better than without calibration, as far as these rows can tell.")


def _say_next(calibrator: Calibrator, data: LogitsSet, path: Path, out: Path) -> None:
    from ..io.named_arrays import extension
    from ..io.write import WRITABLE

    suffix = extension(path) if extension(path) in WRITABLE else ".npz"
    output.say(f"Saved to {out}.")
    output.next_command(f"monocal apply {quote(str(out))} TEST -o probs{suffix}")
    name = type(calibrator).__name__
    if calibrator.preserves_order or data.many_labels:
        return
    if data.n_classes > 2:
        output.note(f"{name} may change the order of the classes; check it with `monocal audit`.")
        return
    ranking = "keeps" if getattr(calibrator, "preserves_ranking", False) else "may change"
    within = " within each context" if getattr(calibrator, "context_", None) is not None else ""
    output.note(
        f"{name} {ranking} the ranking of the rows (AUC){within}; P(class 1) may pass 1/2, where the predicted class changes."
    )


@takes
def apply(
    reading: Reading,
    calibrator: Path,
    path: Path,
    out: Path,
    write_as: Literal["logits", "probabilities"] = "probabilities",
    context: str | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Write calibrated probabilities of other outputs.

    The extension decides the format: .csv, .tsv (also .csv.gz), .xlsx, .parquet, .feather, .npz, .npy, .safetensors, .h5. A table
    keeps all its columns and gets the calibrated ones (score_calibrated). Labels and ids of other files go along as they are (an
    .npy file holds one array only). From .npy to .npy, files larger than memory work.

    Example: monocal apply cal.json test.npz -o probs.npz
    """
    from ..io import atomic_path, check_writable
    from ..io.write import put_npy
    from ..persistence import load

    check_writable(out)
    output.check_not_read(out, path, calibrator, reading.labels_file)
    with atomic_path(out, force=force) as temporary:
        model, data = reading.read_for(
            load(calibrator),
            path,
            need_labels=reading.labels_file is not None,
            many_labels=True,
            mmap=path.suffix.lower() == ".npy",
        )
        if data.places_of is not None and reading.labels_file is not None:
            raise InputError("--labels go along with rows of a table; of pixels and tokens leave them out.")
        with output.progress(f"Calibrating {data.n_samples:,} x {data.n_classes:,}") as update:
            columns = context_for(model, context, data, path, reading.group)
            blocks = _checked_blocks(model, data, write_as, columns, calibrator, update)
            if out.suffix.lower() == ".npy" and data.places_of is None:
                put_npy(temporary, _float_type(data), data.values.shape, blocks)
                names: list[str] = [write_as]
            else:
                names = _write(temporary, blocks, data, write_as, reading)
    unseen = getattr(model, "unseen_", 0)
    if unseen:
        output.note(
            f"{unseen:,} of {data.n_samples:,} rows have a context that no calibration row had: they take the shared scale."
        )
    if as_json:
        output.print_json(
            {"out": out, "n_samples": data.n_samples, "n_classes": data.n_classes, "arrays": names}
        )
    else:
        output.note(f"{data.n_samples:,} x {data.n_classes:,} calibrated {write_as} written to {out}.")


def _float_type(data: LogitsSet) -> np.dtype:
    from ..io.assembly import float_type

    return float_type(data.values.dtype)


def _checked_blocks(
    model: Calibrator,
    data: LogitsSet,
    kind: str,
    context: Mapping[str, np.ndarray] | None,
    calibrator: Path,
    update: Callable[[str], None],
) -> Iterator[np.ndarray]:
    """Calibrated rows, some at a time, in the columns that were read; refused where no fitted calibrator gives such rows."""
    import numpy as np

    function = model.predict_proba if kind == "probabilities" else model.transform
    n, m = data.values.shape
    step = max(1, _BLOCK // m)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        keywords = {} if context is None else {"context": {name: x[rows] for name, x in context.items()}}
        block = function(np.asarray(data.values[rows], _float_type(data)), **keywords)
        with np.errstate(invalid="ignore", over="ignore"):
            bad = ~(block < np.inf).all(axis=1)
            if kind == "probabilities":
                bad |= ((block < 0) | (block > 1.001)).any(axis=1)
            if kind == "probabilities" and not data.many_labels:
                off = np.abs(block.sum(axis=1, dtype=np.float64) - 1)
                bad |= off > max(1e-4, 8 * float(np.finfo(block.dtype).eps))
        if bad.any():
            raise FileError(
                f"{calibrator} gives no {kind} for row {start + int(np.argmax(bad))} (nan, inf or a wrong sum), so it is damaged "
                f"or made by hand, and nothing was written: fit it again."
            )
        yield block if data.places is None else block[:, np.argsort(data.places)]
        update(f"Calibrating: {min(start + step, n):,} of {n:,} rows")


def _write(
    temporary: Path, blocks: Iterator[np.ndarray], data: LogitsSet, kind: str, reading: Reading
) -> list[str]:
    """Calibrated values and what goes with the rows; gives the names of the arrays."""
    import numpy as np

    from ..io.write import TABLES, put_arrays

    result = np.concatenate(list(blocks))
    classes, places = data.class_names, data.places_of
    if classes is not None and data.places is not None:  # written in the order of the file
        classes = tuple(classes[place] for place in np.argsort(data.places))
    to_table = bool(data.columns) and temporary.name.lower().endswith(tuple(TABLES))
    if to_table:
        columns = [result[:, 1]] if len(data.columns) < data.n_classes else list(result.T)
        arrays = dict(zip(_names_of_results(data.columns, kind), columns, strict=True))
    else:
        arrays = {kind: result if places is None else np.ascontiguousarray(places.back(result))}
    if data.labels is not None and not data.many_labels:
        arrays["labels"] = data.labels if data.places is None else np.asarray(data.places)[data.labels]
    along = _columns_to_keep(data, reading, temporary, to_table)
    return put_arrays(temporary, arrays, classes=classes, along=along)


def _names_of_results(columns: tuple[str, ...], kind: str) -> list[str]:
    """``score`` -> ``score_calibrated``; a name that says logits does not stay where probabilities are written."""
    from ..io.columns import CALIBRATED

    if kind == "logits":
        return [f"{name}{CALIBRATED}_logit" for name in columns]
    return [re.sub(r"(?i)log_?(it|prob(abilitie|a)?)s?", "prob", name) + CALIBRATED for name in columns]


def _columns_to_keep(data: LogitsSet, reading: Reading, out: Path, to_table: bool) -> dict[str, Any]:
    """What goes with the rows: all columns of a table that becomes a table; else ids, words and labels, as they stand."""
    from ..io.read import to_carry

    if data.path is None or not (data.aside or to_table):
        return {}
    source = reading.open(data.path)
    text = out.suffix.lower() in (".csv", ".tsv", ".gz")
    carried = to_carry(source, source.names if to_table else data.aside, text=text)
    if data.kept is not None:
        carried = {name: column.take(data.kept) for name, column in carried.items()}
    # Of images and tokens, what goes along has an entry for each place, or for each entry of the first axes.
    lead = (data.n_samples,) if data.places_of is None else data.places_of.lead
    fits = {name: _fits(column, lead) for name, column in carried.items()}
    if not all(fits.values()):
        output.note(
            f"{data.path}: {min(fits, key=fits.__getitem__)!r} has another number of rows and is left out"
        )
    return {name: column for name, column in carried.items() if fits[name]}


def _fits(column: Any, lead: tuple[int, ...]) -> bool:
    shape = tuple(getattr(column, "shape", (len(column),)))[: len(lead)]
    return shape == lead[: len(shape)] or len(column) == math.prod(lead)
