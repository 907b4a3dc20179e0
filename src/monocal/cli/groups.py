"""``--groups``: for whom probabilities are calibrated, by a column of the file, of another file, or by the predicted class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np

    from ..io import LogitsSet
    from ..metrics import GroupEvaluation

Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="NAME_OR_FILE",
        help="Calibration by group as well: a column or array of TEST, a file of one value per row (FILE:NAME if it holds "
        "several), or 'predicted' for the predicted classes.",
    ),
]


def evaluate_by_group(
    sides: Mapping[str, np.ndarray], data: LogitsSet, wanted: str, path: Path, group: str | None, seed: int
) -> dict[str, GroupEvaluation]:
    """Calibration of each group, for every side."""
    from ..metrics import evaluate

    groups = find_groups(wanted, data, path, group)
    found = {
        side: evaluate(
            probs,
            data.labels,
            metrics="accuracy",
            sample_weight=data.weights,
            groups=groups,
            class_names=data.class_names,
            seed=seed,
        ).groups
        for side, probs in sides.items()
    }
    return {side: groups for side, groups in found.items() if groups is not None}


def find_groups(wanted: str, data: LogitsSet, path: Path, group: str | None) -> Any:
    """One value per row, or that the predicted classes are meant."""
    from ..io import find_columns
    from ..metrics.groups import PREDICTED

    if wanted == PREDICTED:
        return PREDICTED
    return find_columns(wanted, path, part=data.part, group=group, argument="groups=")


def print_groups(found: Mapping[str, GroupEvaluation]) -> None:
    """One sentence for every side, and the table of the last."""
    *earlier, last = found
    for side in earlier:
        typer.echo(f"{side.capitalize()}: {found[side].verdict}")
    typer.echo(f"{last.capitalize()}: {found[last]}" if earlier else str(found[last]))
