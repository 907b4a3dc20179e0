"""``monocal fit``: learn a calibrator from a file and save it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError, spoken
from .by_name import make, parse, parse_settings
from .context import Context, find_context
from .forecast import forecast
from .output import (
    CHECK_FAILED,
    Force,
    Json,
    Out,
    check_extension,
    check_not_read,
    note,
    print_evaluations,
    print_json,
    progress,
)
from .reading import Reading, reads

if TYPE_CHECKING:
    from ..calibrators import Calibrator
    from ..io import LogitsSet
    from ..metrics import Evaluation

_METRICS = ("accuracy", "nll", "brier", "ece")


@reads
def fit(
    reading: Reading,
    path: Annotated[
        Path, typer.Argument(metavar="CAL", help="Logits (or probabilities) and labels to calibrate on.")
    ],
    out: Out,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            help="Calibrator, as `monocal compare` names them [binary-mcct for two classes, conditional-mcct for more].",
            show_default=False,
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", min=1, help="Ranks with parameters of their own, from the top.")
    ] = None,
    shrinkage: Annotated[
        str | None,
        typer.Option("--shrinkage", help="Pull towards temperature scaling: a number, or cv to choose it."),
    ] = None,
    context: Context = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any other parameter of the method; may be repeated."
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Learn a calibrator and save it as JSON.

    The file keeps the parameters, the fitted state, the names of the classes where the data have some, a fingerprint of the
    calibration data and the metrics on them. Ends with code 3 when the fit did not converge; the calibrator is saved all the
    same.

    Example: monocal fit cal.npz -o cal.json
    """
    import numpy as np
    from sklearn.exceptions import ConvergenceWarning

    from ..io import atomic_path
    from ..io.sources import extension
    from ..io.write import WRITABLE
    from ..persistence import to_json

    check_extension(out, ".json")
    check_not_read(out, path, reading.labels)
    parameters: dict[str, Any] = parse_settings(settings or [])
    if top_k is not None:
        parameters["top_k"] = top_k
    if shrinkage is not None:
        parameters["shrinkage"] = parse(shrinkage)
    with atomic_path(out, force=force) as temporary:
        data = reading.read_to_learn(path, weights=True)
        calibrator = make(method, data, parameters, context=bool(context))
        name = type(calibrator).__name__
        known = _known(calibrator, find_context(context, data, path, reading.group))
        text = f"Fitting {name} on {data.n_samples:,} x {data.n_classes:,} {data.kind}"
        with progress(text) as update:
            expected = forecast(partial(_on_some, calibrator, data), data.values.shape)
            update(expected=expected)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                calibrator.fit(data.values, data.labels, sample_weight=data.weights, **known)
            update(text="Measuring", expected=expected)
            evaluations = _measured(calibrator, data, **known)
        layout = {
            "class_axis": -1 if reading.class_axis is None else reading.class_axis,
            "ignore_index": reading.ignore_index,
        }
        if (
            layout.keys() <= calibrator.get_params().keys()
        ):  # calibrators of one score have no axis of classes
            calibrator.set_params(**layout)
        if data.class_names is not None:
            calibrator.feature_names_in_ = np.array(data.class_names, dtype=object)
        metrics = {"on": "the calibration data", **{key: e.to_dict() for key, e in evaluations.items()}}
        rows = (data.values, data.labels, *(() if data.weights is None else (data.weights,)))
        temporary.write_text(to_json(calibrator, data=rows, metrics=metrics), encoding="utf-8")

    failed = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
    for warning in caught:
        warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
    if as_json:
        print_json(
            {
                "calibrator": out,
                "class": name,
                "parameters": calibrator.get_params(),
                "read": data.taken,
                "n_samples": data.n_samples,
                "n_classes": data.n_classes,
                "input": data.kind,
                "classes": data.class_names,
                "preserves_order": calibrator.preserves_order,
                "converged": not failed,
                "certificate": _certificate(calibrator),
                "metrics": metrics,
            }
        )
    else:
        title = f"{name} fitted on {data.n_samples:,} samples of {data.n_classes:,} classes. On these same samples:"
        typer.echo(data.taken)
        print_evaluations(evaluations, title)
        certificate = _certificate(calibrator)
        if certificate is not None:
            typer.echo(
                f"{certificate['status']} (violation {certificate['kkt']:.1e}, {certificate['n_iter']} iterations)."
            )
        suffix = extension(path) if extension(path) in WRITABLE else ".npz"
        typer.echo(f"Saved to {out}. Next: monocal apply {quote(str(out))} TEST -o probs{suffix}")
        if getattr(calibrator, "preserves_ranking", False) and data.n_classes == 2:
            note(
                f"{name} keeps the ranking of the rows (AUC); P(class 1) may pass 1/2, where the predicted class changes."
            )
        elif not calibrator.preserves_order:
            note(f"{name} may change the order of the classes; check it with `monocal audit`.")
    if failed:
        raise typer.Exit(CHECK_FAILED)


def _known(calibrator: Calibrator, context: Any) -> dict[str, Any]:
    from sklearn.utils.validation import has_fit_parameter

    if context is None:
        return {}
    if not has_fit_parameter(calibrator, "context"):
        raise InputError(
            f"{spoken('context=')}: {type(calibrator).__name__} takes none. Use --method conditional-mcct, or leave it out."
        )
    return {"context": context}


def _measured(calibrator: Calibrator, data: LogitsSet, **known: Any) -> dict[str, Evaluation]:
    from ..metrics import evaluate
    from .probabilities import before_and_after

    sides = zip(("before", "after"), before_and_after(calibrator, data.values, **known), strict=True)
    return {
        side: evaluate(probs, data.labels, metrics=_METRICS, sample_weight=data.weights)
        for side, probs in sides
    }


def _on_some(calibrator: Calibrator, data: LogitsSet, rows: slice) -> None:
    """The whole work on some of the rows."""
    from sklearn.base import clone

    assert data.labels is not None
    some = replace(data, values=data.values[rows], labels=data.labels[rows], weights=None)
    _measured(clone(calibrator).fit(some.values, some.labels), some)


def _certificate(calibrator: Any) -> dict[str, Any] | None:
    solution = getattr(calibrator, "solution_", None)
    if solution is None:
        return None
    names = ("converged", "status", "kkt", "duality_gap", "objective", "n_iter")
    return {name: getattr(solution, name) for name in names}
