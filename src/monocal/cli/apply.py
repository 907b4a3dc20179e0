"""``monocal apply``: calibrated probabilities of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import Force, Json, Out, note, print_json, progress
from .reading import Kind, Reading, reads

if TYPE_CHECKING:
    import numpy as np

    from ..calibration import Calibrator
    from ..data import LogitsSet


@reads
def apply(
    reading: Reading,
    calibrator: Annotated[
        Path, typer.Argument(metavar="CALIBRATOR", help="A file that `monocal fit` wrote.")
    ],
    path: Annotated[
        Path, typer.Argument(metavar="DATA", help="Outputs of the same classifier; labels are not needed.")
    ],
    out: Out,
    write_as: Annotated[
        Kind,
        typer.Option(
            "--as", help="What to write; calibrated logits are those whose softmax is the probabilities."
        ),
    ] = Kind.probabilities,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write calibrated probabilities of other outputs.

    The extension decides the format: .npz, .npy, .csv, .tsv, .parquet, .safetensors, .h5. Labels are kept where there are any
    (an .npy file holds one array only). From .npy to .npy, files larger than memory work.

    Example: monocal apply cal.json test.npz -o probs.npz
    """
    from ..data import atomic_path, check_writable
    from ..errors import FileError
    from ..persistence import load

    check_writable(out)
    if any(given.exists() and out.exists() and given.samefile(out) for given in (path, calibrator)):
        raise FileError(f"{out} is what is being read: name another file to write, so that nothing is lost.")
    with atomic_path(out, force=force) as temporary:
        model = load(calibrator)
        data = reading.read_for(model, path)
        with progress(f"Calibrating {data.n_samples:,} x {data.n_classes:,}", data.n_samples) as update:
            names = _write(temporary, model, data, write_as.value, update)
    result = {"out": out, "n_samples": data.n_samples, "n_classes": data.n_classes, "arrays": names}
    if as_json:
        print_json(result)
    else:
        note(f"{data.n_samples:,} x {data.n_classes:,} calibrated {write_as.value} written to {out}.")


def _write(temporary: Path, model: Calibrator, data: LogitsSet, kind: str, update: Any) -> list[str]:
    import numpy as np

    from ..data import write
    from .probabilities import by_blocks

    function = model.predict_proba if kind == "probabilities" else model.transform
    if temporary.suffix.lower() == ".npy":
        mapped = np.lib.format.open_memmap(temporary, "w+", data.values.dtype, data.values.shape)
        by_blocks(function, data.values, mapped, update)
        mapped.flush()
        return [kind]
    values = np.empty(data.values.shape, data.values.dtype)
    by_blocks(function, data.values, values, update)
    arrays: dict[str, np.ndarray] = {kind: values}
    if data.labels is not None:
        arrays["labels"] = data.labels
    write(temporary, arrays)
    return list(arrays)
