"""``monocal fit``: learn a calibrator from a file and save it. ``monocal apply``: calibrated probabilities of a file."""

from __future__ import annotations

import json
import math
import re
import warnings
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError, wording
from .options import Reading, Written, context_for, find_columns, reads
from .output import (
    CHECK_FAILED,
    check_extension,
    check_not_read,
    next_command,
    note,
    print_evaluations,
    print_json,
    progress,
    say,
)

if TYPE_CHECKING:
    import numpy as np

    from ..calibrators import Calibrator
    from ..io import LogitsSet
    from ..metrics import Evaluation

_METRICS = ("accuracy", "nll", "brier", "ece")
_METRICS_OF_TWO = ("accuracy", "nll", "positive_brier", "positive_ece")  # of P(class 1)
_MOST_ROWS, _MOST_NUMBERS = 10_000, 5_000_000  # in folds that are held out


def make(
    name: str | None, data: LogitsSet, parameters: dict[str, Any] | None = None, *, context: bool = False
) -> Calibrator:
    """A calibrator for these logits or probabilities that is not fitted yet; None: the one recommended for them."""
    from ..calibrators.isotonic import IsotonicCalibration
    from ..calibrators.multilabel import MultilabelMCCT
    from ..registry import all_calibrators, find_method, letters
    from ..selection import recommend

    if data.many_labels:
        if name is not None and not "multilabelmcct".startswith(letters(name)):
            raise InputError(
                f"--method {name}: files of many labels are fitted with multilabel-mcct; leave it out."
            )
        calibrator: Calibrator = MultilabelMCCT()
    else:
        if name is None:
            advised = recommend(
                data.values,
                data.labels,
                kind=data.kind,
                keep_order=context,
                sample_weight=data.weights,
                class_names=data.class_names,
            )
            name = advised.name
            if data.n_classes > 2 and not advised.calibrator.preserves_order:
                note(f"{advised.title}: {advised.reason}")
        calibrator = find_method(name)[1]
        one_score = type(calibrator) in [info.cls for info in all_calibrators(one_score=True)]
        if one_score and data.n_classes > 2:
            raise InputError(
                f"{type(calibrator).__name__} is for two classes, and {data.path or data.name} has {data.n_classes}: use "
                "--method conditional-mcct, which keeps the order of the classes, or structured-mcct."
            )
    parameters = dict(parameters or {})
    settable = calibrator.get_params()
    for parameter in parameters:
        if parameter not in settable:
            title = type(calibrator).__name__
            raise InputError(f"{title} has no parameter {parameter!r}: it has {', '.join(settable)}.")
    if isinstance(calibrator, IsotonicCalibration) and data.n_classes == 2 and parameters.get("mode") is None:
        parameters["mode"] = "one_vs_rest"  # what isotonic calibration means for two classes
    if "input" in settable:
        parameters = {"input": data.kind, **parameters}
    elif data.kind != calibrator.input:
        raise InputError(f"{name} works on {calibrator.input} only: give it a file of {calibrator.input}.")
    return calibrator.set_params(**parameters)


def parse_settings(settings: list[str]) -> dict[str, Any]:
    """``["tol=1e-8", "shrinkage=cv"]`` as parameters: JSON where it is JSON, else text; none is None."""
    parameters = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set takes NAME=VALUE, such as --set tol=1e-8, got {setting!r}.")
        parameters[name.strip().replace("-", "_")] = parse(text.strip())
    return parameters


def parse(text: str) -> Any:
    """A value as it would be written in JSON, or text."""
    if text.lower() == "none":
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


@reads
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
    calibration data and the metrics on them. Ends with code 3 when the fit did not converge; the calibrator is saved all the
    same.

    Example: monocal fit cal.npz -o cal.json
    """
    from sklearn.exceptions import ConvergenceWarning

    from ..io import atomic_path
    from ..persistence import to_json

    check_extension(out, ".json")
    check_not_read(out, path, reading.labels_file)
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
                f"{wording('context=')}: {type(calibrator).__name__} takes none. Use --method {other}, or leave it out."
            )
        title = f"Fitting {type(calibrator).__name__} on {data.n_samples:,} x {data.n_classes:,} {data.kind}"
        with progress(title) as update:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                calibrator.fit(data.values, data.labels, sample_weight=data.weights, **keywords)
            update(text="Measuring")
            evaluations = {} if data.many_labels else _measured(calibrator, data, **keywords)
            held_out = _held_out(calibrator, data, keywords)
        metrics = {"on": "the calibration data", **{key: e.to_dict() for key, e in evaluations.items()}}
        _describe_input(calibrator, data, reading)
        rows = (data.values, data.labels, *(() if data.weights is None else (data.weights,)))
        temporary.write_text(to_json(calibrator, data=rows, metrics=metrics), encoding="utf-8")

    converged = not any(issubclass(w.category, ConvergenceWarning) for w in caught)
    for warning in caught:
        warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
    if as_json:
        of_fit = {"converged": converged, "held_out": held_out, "metrics": metrics}
        print_json({"calibrator": out, **_as_dict(calibrator, data), **of_fit})
    else:
        _print_fit(calibrator, data, evaluations, held_out)
        _say_next(calibrator, data, path, out, bool(context))
    if not converged:
        raise typer.Exit(CHECK_FAILED)


def _as_dict(calibrator: Calibrator, data: LogitsSet) -> dict[str, Any]:
    return {
        "class": type(calibrator).__name__,
        "parameters": calibrator.get_params(),
        "read": data.taken,
        "n_samples": data.n_samples,
        "n_classes": data.n_classes,
        "input": data.kind,
        "classes": data.class_names,
        "preserves_order": calibrator.preserves_order,
        "certificate": _certificate(calibrator),
    }


def _describe_input(calibrator: Calibrator, data: LogitsSet, reading: Reading) -> None:
    """What files are to look like that the calibrator is applied to: the axis and the names of the classes."""
    import numpy as np

    layout = {
        "class_axis": -1 if reading.class_axis is None else reading.class_axis,
        "ignore_index": reading.ignore_index,
    }
    if layout.keys() <= calibrator.get_params().keys():  # calibrators of one score have no axis of classes
        calibrator.set_params(**layout)
    if data.class_names is not None:
        calibrator.feature_names_in_ = np.array(data.class_names, dtype=object)


def _measured(calibrator: Calibrator, data: LogitsSet, **keywords: Any) -> dict[str, Evaluation]:
    from ..metrics import evaluate
    from .row_blocks import before_and_after

    sides = zip(("before", "after"), before_and_after(calibrator, data.values, **keywords), strict=True)
    names = _METRICS_OF_TWO if data.n_classes == 2 else _METRICS
    return {
        side: evaluate(probs, data.labels, metrics=names, sample_weight=data.weights) for side, probs in sides
    }


def _held_out(calibrator: Calibrator, data: LogitsSet, keywords: dict[str, Any]) -> dict[str, float] | None:
    """NLL of rows that were held out, before and after; None where folds cannot be fitted or would take minutes."""
    from ..io import LogitsSet
    from ..metrics.differences import paired_difference
    from ..registry import all_calibrators
    from ..report.trial import Trial, row_nll

    if data.many_labels or any(type(calibrator) is info.cls and info.extras for info in all_calibrators()):
        return None
    part = slice(None, None, -(-data.n_samples // max(1, min(_MOST_ROWS, _MOST_NUMBERS // data.n_classes))))
    assert data.labels is not None
    weights = None if data.weights is None else data.weights[part]
    context = {name: column[part] for name, column in keywords.get("context", {}).items()} or None
    try:
        trial = Trial.of(LogitsSet(data.values[part], data.labels[part], data.kind), None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said of the fit itself
            after = trial.judge(calibrator, context=context, sample_weight=weights).probabilities
    except ValueError:  # too few rows, or a class, in a fold
        return None
    old, new = (row_nll(p, trial.labels) for p in (trial.before, after))
    if weights is not None:
        old, new = (loss * weights / weights.mean() for loss in (old, new))
    change = paired_difference(new, old, 0.95)
    figures = {"before": old.mean(), "after": new.mean(), "change": change.mean}
    return {
        **{name: float(value) for name, value in figures.items()},
        "low": change.low,
        "high": change.high,
    }


def _print_fit(
    calibrator: Calibrator,
    data: LogitsSet,
    evaluations: dict[str, Evaluation],
    held_out: dict[str, float] | None,
) -> None:
    name, classes = type(calibrator).__name__, "labels" if data.many_labels else "classes"
    say(data.taken)
    title = f"{name} fitted on {data.n_samples:,} samples of {data.n_classes:,} {classes}."
    if evaluations:
        print_evaluations(evaluations, f"{title} On these same samples:")
    else:
        say(title)
    if held_out is not None:
        say(held_out_sentence(held_out))
    certificate = _certificate(calibrator)
    if certificate is not None:
        say(
            f"{certificate['status']} (violation {certificate['kkt']:.1e}, {certificate['n_iter']} iterations)."
        )


def held_out_sentence(result: dict[str, float]) -> str:
    """How NLL changes on held-out folds."""
    change = f"On held-out folds NLL {result['before']:.4f} -> {result['after']:.4f}"
    if result["high"] < 0:
        return f"{change}."
    if result["low"] > 0:
        return f"{change}: worse than no calibration. More rows or a simpler method (-m temperature-scaling) may help."
    return f"{change}: no better than no calibration, as far as these rows can tell."


def _say_next(calibrator: Calibrator, data: LogitsSet, path: Path, out: Path, context: bool) -> None:
    from ..io.named_arrays import extension
    from ..io.write import WRITABLE

    suffix = extension(path) if extension(path) in WRITABLE else ".npz"
    say(f"Saved to {out}.")
    next_command(f"monocal apply {quote(str(out))} TEST -o probs{suffix}")
    name = type(calibrator).__name__
    if calibrator.preserves_order or data.many_labels:
        return
    if data.n_classes == 2:
        ranking = "keeps" if getattr(calibrator, "preserves_ranking", False) else "may change"
        within = " within each context" if context else ""
        note(
            f"{name} {ranking} the ranking of the rows (AUC){within}; P(class 1) may pass 1/2, where the predicted class changes."
        )
    else:
        note(f"{name} may change the order of the classes; check it with `monocal audit`.")


def _certificate(calibrator: Any) -> dict[str, Any] | None:
    solution = getattr(calibrator, "solution_", None)
    if solution is None:
        return None
    names = ("converged", "status", "kkt", "duality_gap", "objective", "n_iter")
    return {name: getattr(solution, name) for name in names}


@reads
def apply(
    reading: Reading,
    calibrator: Path,
    path: Path,
    out: Path,
    write_as: Written = Written.probabilities,
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
    from ..persistence import load

    check_writable(out)
    check_not_read(out, path, calibrator, reading.labels_file)
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
        with progress(f"Calibrating {data.n_samples:,} x {data.n_classes:,}", data.n_samples) as update:
            columns = context_for(model, context, data, path, reading.group)
            names = _write(temporary, model, data, write_as.value, calibrator, reading, update, columns)
    unseen = getattr(model, "unseen_", 0)
    if unseen:
        note(
            f"{unseen:,} of {data.n_samples:,} rows have a context that no calibration row had: they take the shared scale."
        )
    result = {"out": out, "n_samples": data.n_samples, "n_classes": data.n_classes, "arrays": names}
    if as_json:
        print_json(result)
    else:
        note(f"{data.n_samples:,} x {data.n_classes:,} calibrated {write_as.value} written to {out}.")


def _calibrated(
    model: Calibrator, kind: str, places: tuple[int, ...] | None, values: np.ndarray, **keywords: Any
) -> np.ndarray:
    """Calibrated rows, in the columns that were read."""
    import numpy as np

    function = model.predict_proba if kind == "probabilities" else model.transform
    result: np.ndarray = function(values, **keywords)
    return result if places is None else result[:, np.argsort(places)]


def _write(
    temporary: Path,
    model: Calibrator,
    data: LogitsSet,
    kind: str,
    calibrator: Path,
    reading: Reading,
    update: Any,
    context: Any,
) -> list[str]:
    import numpy as np

    from ..io.logits_set import float_type
    from ..io.write import TABLES, put_arrays, put_npy
    from .row_blocks import StoredRows, checked, in_blocks, in_shape, joined

    function = partial(_calibrated, model, kind, data.places)
    values = StoredRows(data.values) if isinstance(data.values, np.memmap) else data.values
    dtype = float_type(values.dtype)
    places = data.places_of
    entry = 1 if places is None else math.prod(places.lead[1:])
    scale = "many" if data.many_labels and kind == "probabilities" else kind
    blocks = checked(in_blocks(function, values, update, context, together=entry), scale, calibrator)
    if temporary.suffix.lower() == ".npy" and (places is None or places.axis > 0):
        shape = values.shape if places is None else places.array.shape
        put_npy(temporary, dtype, shape, blocks if places is None else in_shape(blocks, places))
        return [kind]
    result = joined(blocks, values.shape, dtype)
    classes = data.class_names
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
    return put_arrays(
        temporary, arrays, classes=classes, along=_columns_to_keep(data, reading, temporary, to_table)
    )


def _names_of_results(columns: tuple[str, ...], kind: str) -> list[str]:
    """``score`` -> ``score_calibrated``; a name that says logits does not stay where probabilities are written."""
    from ..io.column_names import CALIBRATED

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
    uneven = [name for name, column in carried.items() if not _fits(column, lead)]
    if uneven:
        note(f"{data.path}: {uneven[0]!r} has another number of rows and is left out")
    return {name: column for name, column in carried.items() if name not in uneven}


def _fits(column: Any, lead: tuple[int, ...]) -> bool:
    shape = tuple(getattr(column, "shape", (len(column),)))[: len(lead)]
    return shape == lead[: len(shape)] or len(column) == math.prod(lead)
