"""``monocal apply``: calibrated probabilities of a file."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from .context import Context, context_for, say_unseen
from .output import Force, Json, Out, check_not_read, note, print_json, progress
from .reading import Kind, Reading, reads

if TYPE_CHECKING:
    import numpy as np

    from ..calibrators import Calibrator
    from ..io import LogitsSet


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
    context: Context = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write calibrated probabilities of other outputs.

    The extension decides the format: .csv, .tsv (also .csv.gz), .parquet, .feather, .npz, .npy, .safetensors, .h5. Labels, ids
    and other columns go along as they are (an .npy file holds one array only). From .npy to .npy, files larger than memory work.

    Example: monocal apply cal.json test.npz -o probs.npz
    """
    from ..io import atomic_path, check_writable
    from ..persistence import load

    check_writable(out)
    check_not_read(out, path, calibrator, reading.labels)
    with atomic_path(out, force=force) as temporary:
        model, data = reading.read_for(
            load(calibrator),
            path,
            need_labels=reading.labels is not None,
            mmap=path.suffix.lower() == ".npy",
        )
        if data.places_of is not None and reading.labels is not None:
            raise InputError("--labels go along with rows of a table; of pixels and tokens leave them out.")
        with progress(f"Calibrating {data.n_samples:,} x {data.n_classes:,}", data.n_samples) as update:
            known = context_for(model, context, data, path, reading.group)
            names = _write(temporary, model, data, write_as.value, calibrator, update, known)
    say_unseen(model, data.n_samples)
    result = {"out": out, "n_samples": data.n_samples, "n_classes": data.n_classes, "arrays": names}
    if as_json:
        print_json(result)
    else:
        note(f"{data.n_samples:,} x {data.n_classes:,} calibrated {write_as.value} written to {out}.")


def _calibrated(
    model: Calibrator, kind: str, places: tuple[int, ...] | None, values: np.ndarray, **known: Any
) -> np.ndarray:
    """Calibrated rows, in the columns that were read."""
    import numpy as np

    function = model.predict_proba if kind == "probabilities" else model.transform
    result: np.ndarray = function(values, **known)
    return result if places is None else result[:, np.argsort(places)]


def _write(
    temporary: Path,
    model: Calibrator,
    data: LogitsSet,
    kind: str,
    calibrator: Path,
    update: Any,
    context: Any,
) -> list[str]:
    import numpy as np

    from ..io.logits_set import float_type
    from ..io.write import put_arrays, put_npy
    from .probabilities import StoredRows, checked, in_blocks, in_shape, joined

    function = partial(_calibrated, model, kind, data.places)
    given = StoredRows(data.values) if isinstance(data.values, np.memmap) else data.values
    dtype = float_type(given.dtype)
    places = data.places_of
    entry = 1 if places is None else math.prod(places.lead[1:])
    blocks = checked(in_blocks(function, given, update, context, together=entry), kind, calibrator)
    if temporary.suffix.lower() == ".npy" and (places is None or places.axis > 0):
        shape = given.shape if places is None else places.array.shape
        put_npy(temporary, dtype, shape, blocks if places is None else in_shape(blocks, places))
        return [kind]
    found = joined(blocks, given.shape, dtype)
    arrays: dict[str, np.ndarray] = {
        kind: found if places is None else np.ascontiguousarray(places.back(found))
    }
    classes = data.class_names
    if data.labels is not None:
        arrays["labels"] = data.labels if data.places is None else np.asarray(data.places)[data.labels]
    if classes is not None and data.places is not None:  # written in the order of the file
        classes = tuple(classes[place] for place in np.argsort(data.places))
    return put_arrays(temporary, arrays, classes=classes, beside=_beside(data))


def _beside(data: LogitsSet) -> dict[str, Any]:
    """What goes with the rows: ids, words and labels, as they stand."""
    from ..io.read import to_carry

    if data.path is None or not data.aside:
        return {}
    found = to_carry(data.path, data.aside, text=True)
    # Of images and tokens, what goes along has an entry for each place, or for each entry of the first axes.
    lead = (data.n_samples,) if data.places_of is None else data.places_of.lead
    uneven = [name for name, column in found.items() if not _fits(column, lead)]
    if uneven:
        note(f"{data.path}: {uneven[0]!r} has another number of rows and is left out")
    return {name: column for name, column in found.items() if name not in uneven}


def _fits(column: Any, lead: tuple[int, ...]) -> bool:
    shape = tuple(getattr(column, "shape", (len(column),)))[: len(lead)]
    return shape == lead[: len(shape)] or len(column) == math.prod(lead)
