"""``monocal export``: a calibrator to ship with a model. ``monocal demo``: the whole way on a small real classifier."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError, MissingExtraError, require
from .fit_apply import make
from .options import Target, takes
from .output import check_extension, check_not_read, note, print_evaluations, print_json, progress

if TYPE_CHECKING:
    from ..calibrators.base import Calibrator

_FILES = {
    "digits.npz": "logits and labels, to calibrate on and to test on",
    "calibrator.json": "the fitted calibrator: monocal.load, or `monocal apply`",
    "probabilities.npz": "calibrated probabilities of the test part",
    "reliability.png": "the reliability diagram",
    "report.html": "the report",
}
_METRICS = ("accuracy", "nll", "brier", "ece", "debiased_ece", "classwise_ece")


@takes
def export(
    calibrator: Path,
    to: Target,
    out: Path,
    append_to: Path | None = None,
    ndim: str | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Write a calibrator for onnxruntime or torch.

    What runs it then needs no monocal.

    Example: monocal export cal.json --to onnx -o calibrator.onnx
    """
    from ..io import atomic_path
    from ..persistence import load

    if append_to is not None and to is not Target.onnx:
        raise InputError("--append-to works with --to onnx only.")
    axes = _axes(ndim)
    check_extension(out, ".onnx" if to is Target.onnx else ".pt2")
    check_not_read(out, calibrator, append_to)
    if append_to is not None and out.exists():
        check_not_read(out, *_weights_of(append_to))
    with atomic_path(out, force=force) as temporary:
        model = load(calibrator)
        if to is Target.onnx:
            _write_onnx(model, temporary, append_to, axes)
        else:
            _write_torch(model, temporary, axes)
    if as_json:
        print_json({"out": out, "to": to.value, "class": type(model).__name__})
    else:
        note(f"{type(model).__name__} written to {out} for {to.value}.")


def _axes(ndim: str | None) -> int | str | None:
    """The number of axes that was typed, or ``any``."""
    if ndim is None or ndim == "any":
        return ndim
    if not ndim.isdecimal() or int(ndim) < 1:
        raise InputError(f"--ndim must be a whole number of at least 1, or any, but is {ndim!r}.")
    return int(ndim)


def _weights_of(model: Path) -> list[Path]:
    """The other files in which an ONNX model keeps its weights."""
    require("onnx", "onnx")
    from ..export.onnx import external_files

    return external_files(model)


def _write_onnx(model: Calibrator, path: Path, append_to: Path | None, ndim: int | str | None) -> None:
    graph = model.to_onnx(append_to=append_to, ndim=ndim)
    import onnx

    onnx.save(graph, str(path))


def _write_torch(model: Calibrator, path: Path, axes: int | str | None) -> None:
    import io
    import warnings

    import torch

    from ..core.map import map_of

    if axes == "any":
        raise InputError("--ndim any works with --to onnx only: an exported program has one number of axes.")
    ndim = int(axes or 2)
    warnings.filterwarnings("ignore", module="torch")  # its own affairs
    module = model.to_torch()
    for name, buffer in module.named_buffers():
        if buffer.numel() == 0:  # torch.export.save fails on an empty tensor that came from numpy
            setattr(module, name, torch.zeros_like(buffer))
    if not -ndim <= model.class_axis < ndim:
        raise InputError(
            f"--ndim {ndim}: the calibrator's class_axis={model.class_axis} is no axis of such a tensor."
        )
    classes = model.class_axis % ndim
    sides = {i: torch.export.Dim(f"axis_{i}", max=2**31) for i in range(ndim) if i != classes}
    shape = [model.n_features_in_ if i == classes else 3 + i for i in range(ndim)]
    if ndim == 1:
        if map_of(model).of_one_score() is None:
            raise InputError("--ndim 1 is for calibrators of one score per row.")
        shape, sides = [3], {0: torch.export.Dim("axis_0", max=2**31)}
    example: tuple[Any, ...] = (torch.rand(shape),)
    if module.n_context:
        rows = shape if ndim == 1 else shape[:classes] + shape[classes + 1 :]
        example += (torch.zeros([*rows, module.n_context], dtype=torch.float64),)
    program = torch.export.export(module, example, dynamic_shapes=(sides,) * len(example))
    program_bytes = io.BytesIO()
    torch.export.save(program, program_bytes)
    # Given a path, torch aborts the process where the disk is full.
    path.write_bytes(program_bytes.getbuffer())


@takes
def demo(out: Path = Path("monocal-demo"), force: bool = False, as_json: bool = False) -> None:
    """Calibrate a digits classifier and show what happened.

    Trains a small network on handwritten digits, calibrates it, prints the figures before and after, and leaves the data, the
    calibrator, the probabilities, a picture and a report in a folder. A folder left by an earlier demo is written over.
    """
    from ..data import LogitsSet, digits_example, write
    from ..metrics import evaluate, order_audit
    from .row_blocks import before_and_after

    _check_folder(out, force)
    with progress("Training a network on digits") as update:
        digits = digits_example()
        cal, test = digits.cal, digits.test
        update(0, "Calibrating")
        calibrator = make(None, cal).fit(cal.values, cal.labels)
        before, after = before_and_after(calibrator, test.values)
        sides = {"before": before, "after": after}
        evaluations = {
            name: evaluate(p, test.labels, metrics=_METRICS, n_boot=200) for name, p in sides.items()
        }
        audit = order_audit(test.values, calibrator.transform(test.values), input="logits")
        update(0, "Writing")
        out.mkdir(parents=True, exist_ok=True)
        write(out / "digits.npz", digits, force=True)
        metrics = {"on": "the test data", **{name: e.to_dict() for name, e in evaluations.items()}}
        calibrator.save(out / "calibrator.json", data=(cal.values, cal.labels), metrics=metrics, force=True)
        write(out / "probabilities.npz", LogitsSet(after, test.labels, "probabilities"), force=True)
        missing = _write_pictures(out, digits, calibrator, update)
    made = [out / name for name in _FILES if (out / name).exists()]
    if as_json:
        print_json(
            {"files": made, **{k: e.to_dict() for k, e in evaluations.items()}, "order": audit.to_dict()}
        )
        return
    print_evaluations(
        evaluations,
        f"A network that memorised 400 digits, {type(calibrator).__name__} fitted on {cal.n_samples} others, judged on "
        f"{test.n_samples} more (95 % intervals)",
    )
    changed = "none" if audit.preserved else f"{audit.all.rows_inverted:,}"
    typer.echo(f"\nClasses changed places in {changed} of the {test.n_samples:,} rows.\n\nWritten to {out}/:")
    for path in made:
        typer.echo(f"  {path.name:<18} {_FILES[path.name]}")
    for text in missing:
        note(text)
    last = out / "report.html"
    if last.exists():
        typer.echo(f"\nOpen the report in a browser: {last.resolve().as_uri()}")


def _check_folder(out: Path, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: give the name of a folder with -o.")
    if out.is_dir() and not force:
        others = sorted(path.name for path in out.iterdir() if path.name not in _FILES)
        if others:
            raise InputError(
                f"{out} holds {others[0]!r}, which no demo wrote, and was left as it is: choose another folder with -o or use "
                f"--force."
            )


def _write_pictures(out: Path, digits: Any, calibrator: Any, update: Any) -> list[str]:
    """The picture and the report; what could not be made is named and does not stop the demo."""
    from ..io import atomic_path
    from ..report import write_report

    missing = []
    try:
        from ..plots import ReliabilityDisplay

        display = ReliabilityDisplay.from_estimator(calibrator, digits.test.values, digits.test.labels).plot()
        with atomic_path(out / "reliability.png", force=True) as temporary:
            display.figure_.savefig(temporary, dpi=150)
    except MissingExtraError as error:
        missing.append(f"No picture: {error}")
    write_report(
        out / "report.html",
        digits.cal,
        digits.test,
        calibrator=calibrator,
        title="Calibration of a digits classifier",
        on_step=lambda text: update(0, f"Report: {text}"),
        force=True,
    )
    return missing
