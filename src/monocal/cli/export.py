"""``monocal export``: a calibrator to ship with a model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError, require
from .output import Force, Json, Out, check_extension, check_not_read, note, print_json

if TYPE_CHECKING:
    from ..calibration.base import Calibrator


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
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a calibrator for onnxruntime or torch.

    What runs it then needs no monocal.

    Example: monocal export cal.json --to onnx -o calibrator.onnx
    """
    from ..data import atomic_path
    from ..persistence import load

    if append_to is not None and to is not Target.onnx:
        raise InputError("--append-to works with --to onnx only.")
    check_extension(out, ".onnx" if to is Target.onnx else ".pt2")
    check_not_read(out, calibrator, append_to)
    if append_to is not None and out.exists():
        check_not_read(out, *_weights_of(append_to))
    with atomic_path(out, force=force) as temporary:
        model = load(calibrator)
        if to is Target.onnx:
            _write_onnx(model, temporary, append_to)
        else:
            _write_torch(model, temporary)
    if as_json:
        print_json({"out": out, "to": to.value, "class": type(model).__name__})
    else:
        note(f"{type(model).__name__} written to {out} for {to.value}.")


def _weights_of(model: Path) -> list[Path]:
    """The other files in which an ONNX model keeps its weights."""
    require("onnx", "onnx")
    from ..export.onnx import external_files

    return external_files(model)


def _write_onnx(model: Calibrator, path: Path, append_to: Path | None) -> None:
    graph = model.to_onnx(append_to=append_to)
    import onnx

    onnx.save(graph, str(path))


def _write_torch(model: Calibrator, path: Path) -> None:
    import io
    import warnings

    import torch

    warnings.filterwarnings("ignore", module="torch")  # its own affairs
    module = model.to_torch()
    for name, buffer in module.named_buffers():
        if buffer.numel() == 0:  # torch.export.save fails on an empty tensor that came from numpy
            setattr(module, name, torch.zeros_like(buffer))
    rows = torch.export.Dim("rows", max=2**31)
    example = torch.randn(3, model.n_features_in_)
    program = torch.export.export(module, (example,), dynamic_shapes=({0: rows},))
    program_bytes = io.BytesIO()
    torch.export.save(program, program_bytes)
    path.write_bytes(
        program_bytes.getbuffer()
    )  # given a path, torch aborts the process where the disk is full
