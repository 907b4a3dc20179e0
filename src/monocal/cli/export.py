"""``monocal export``: a calibrator to ship with a model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError, require
from .output import Force, Json, Out, check_extension, check_not_read, note, print_json

if TYPE_CHECKING:
    from ..calibrators.base import Calibrator


class Target(StrEnum):
    """What to write."""

    onnx = "onnx"
    torch = "torch"


def export(
    calibrator: Annotated[
        Path, typer.Argument(metavar="CALIBRATOR", help="A file that `monocal fit` wrote.")
    ],
    to: Annotated[
        Target,
        typer.Option("--to", help="onnx: a graph of standard operators; torch: an exported program (.pt2)."),
    ],
    out: Out,
    append_to: Annotated[
        Path | None,
        typer.Option(
            "--append-to", help="An ONNX classifier: write it with the calibrator at its end (onnx only)."
        ),
    ] = None,
    ndim: Annotated[
        str | None,
        typer.Option(
            "--ndim",
            metavar="NUMBER|any",
            help="How many axes its input has: 4 for images (N, C, H, W), any (onnx only). Two when left out.",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
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
    if not ndim.isdecimal() or int(ndim) < 2:
        raise InputError(f"--ndim must be a whole number of at least 2, or any, but is {ndim!r}.")
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
    example = torch.randn([model.n_features_in_ if i == classes else 3 + i for i in range(ndim)])
    program = torch.export.export(module, (example,), dynamic_shapes=(sides,))
    program_bytes = io.BytesIO()
    torch.export.save(program, program_bytes)
    path.write_bytes(
        program_bytes.getbuffer()
    )  # given a path, torch aborts the process where the disk is full
