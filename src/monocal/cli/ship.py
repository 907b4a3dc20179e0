"""``monocal export``: a calibrator to ship with a model. ``monocal demo``: the whole way on a small real classifier."""

from __future__ import annotations

import contextlib
import io
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from ..errors import InputError, require
from . import output
from .compare_report import report
from .fit_apply import apply, fit
from .judge import evaluate
from .options import takes

if TYPE_CHECKING:
    from ..calibrators.base import Calibrator


@takes
def export(
    calibrator: Path,
    to: Literal["onnx", "torch"],
    out: Path,
    append_to: Path | None = None,
    ndim: int | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Write a calibrator for onnxruntime or torch.

    What runs it then needs no monocal.

    Example: monocal export cal.json --to onnx -o calibrator.onnx
    """
    from ..io import atomic_path
    from ..persistence import load

    if append_to is not None and to != "onnx":
        raise InputError("--append-to works with --to onnx only.")
    output.check_extension(out, ".onnx" if to == "onnx" else ".pt2")
    output.check_not_read(out, calibrator, append_to)
    if append_to is not None and out.exists():
        require("onnx", "onnx")
        from ..export.onnx import external_files

        output.check_not_read(out, *external_files(append_to))
    with atomic_path(out, force=force) as temporary:
        model = load(calibrator)
        if to == "onnx":
            graph = model.to_onnx(append_to=append_to, ndim=ndim)
            require("onnx", "onnx").save(graph, str(temporary))
        else:
            _write_torch(model, temporary, ndim or 2)
    if as_json:
        output.print_json({"out": out, "to": to, "class": type(model).__name__})
    else:
        output.note(f"{type(model).__name__} written to {out} for {to}.")


def _write_torch(model: Calibrator, path: Path, ndim: int) -> None:
    import torch

    from ..core.map import map_of

    warnings.filterwarnings("ignore", module="torch")  # its own affairs
    module = model.to_torch()
    for name, buffer in module.named_buffers():
        if buffer.numel() == 0:  # torch.export.save fails on an empty tensor that came from numpy
            setattr(module, name, torch.zeros_like(buffer))
    if not -ndim <= model.class_axis < ndim:
        raise InputError(
            f"--ndim {ndim}: the calibrator's class_axis={model.class_axis} is no axis of such a tensor."
        )
    if ndim == 1 and map_of(model).of_one_score() is None:
        raise InputError("--ndim 1 is for calibrators of one score per row.")
    classes = None if ndim == 1 else model.class_axis % ndim
    shape = [model.n_features_in_ if axis == classes else 3 + axis for axis in range(ndim)]
    sides = {axis: torch.export.Dim(f"axis_{axis}", max=2**31) for axis in range(ndim) if axis != classes}
    example: tuple[Any, ...] = (torch.rand(shape),)
    if module.n_context:
        rows = [shape[axis] for axis in sides]
        example += (torch.zeros([*rows, module.n_context], dtype=torch.float64),)
    program = torch.export.export(module, example, dynamic_shapes=(sides,) * len(example))
    program_bytes = io.BytesIO()
    torch.export.save(program, program_bytes)
    path.write_bytes(
        program_bytes.getbuffer()
    )  # given a path, torch aborts the process where the disk is full


@takes
def demo(out: Path = Path("monocal-demo"), force: bool = False, as_json: bool = False) -> None:
    """Calibrate a digits classifier and show what happened.

    Trains a small network on handwritten digits, and runs the commands that a user would run: fit, apply, evaluate, report. The
    data, the calibrator, the probabilities and the report stay in a folder. A folder left by an earlier demo is written over.
    """
    from ..data import digits_example, write

    data, cal, probs, page = (
        out / name for name in ("digits.npz", "calibrator.json", "probabilities.npz", "report.html")
    )
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: give the name of a folder with -o.")
    others = sorted(set(out.iterdir()) - {data, cal, probs, page}) if out.is_dir() else []
    if others and not force:
        raise InputError(
            f"{out} holds {others[0].name!r}, which no demo wrote, and was left as it is: choose another folder with -o or use "
            "--force."
        )
    with output.progress("Training a network on digits"):
        digits = digits_example()
    out.mkdir(parents=True, exist_ok=True)
    write(data, digits, force=True)
    with contextlib.redirect_stdout(io.StringIO()) if as_json else contextlib.nullcontext():
        for words, command in (
            (f"fit {data} -o {cal}", partial(fit, path=data, out=cal, force=True)),
            (
                f"apply {cal} {data} -o {probs}",
                partial(apply, calibrator=cal, path=data, out=probs, force=True),
            ),
            (f"evaluate {data} -c {cal}", partial(evaluate, path=data, calibrator=cal)),
            (
                f"report {data} -c {cal} -o {page}",
                partial(report, path=data, calibrator=cal, out=page, force=True),
            ),
        ):
            typer.echo(f"\n$ monocal {words}")
            command()
        typer.echo(f"\nOpen the report in a browser: {page.resolve().as_uri()}")
    if as_json:
        output.print_json({"files": [data, cal, probs, page]})
