"""``monocal audit``: what a calibrator, anybody's, did to the order of the classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from .output import CHECK_FAILED, Json, print_json, print_table, progress
from .reading import Kind, Reading, reads

if TYPE_CHECKING:
    from ..metrics import OrderAudit


@reads
def audit(
    reading: Reading,
    before: Annotated[
        Path, typer.Argument(metavar="BEFORE", help="Logits or probabilities before calibration.")
    ],
    after: Annotated[
        Path | None,
        typer.Argument(metavar="[AFTER]", help="The same rows and classes after it.", show_default=False),
    ] = None,
    calibrator: Annotated[
        Path | None,
        typer.Option("--calibrator", "-c", help="Instead of AFTER: apply this calibrator to BEFORE."),
    ] = None,
    after_kind: Annotated[
        Kind | None, typer.Option("--after-kind", help="What AFTER holds, where its name does not say it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Count the rows in which classes changed places.

    The calibrator may be any, also of other libraries: two files, before and after, are all it needs. Ends with code 3 when two
    classes changed places or a tie was broken.

    Example: monocal audit test.npz probs.npz
    """
    if calibrator is not None and after is None:
        result = _of_calibrator(reading, before, calibrator)
    elif after is not None and calibrator is None:
        result = _of_files(reading, before, after, after_kind)
    else:
        raise InputError("Give either AFTER, a second file, or --calibrator.")
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result)
    if not result.preserved:
        raise typer.Exit(CHECK_FAILED)


def _of_calibrator(reading: Reading, path: Path, calibrator: Path) -> OrderAudit:
    from ..metrics import order_audit
    from ..persistence import load

    model, data = reading.read_for(load(calibrator), path)
    with progress(f"Auditing {data.n_samples:,} x {data.n_classes:,}"):
        function = model.predict_proba if data.kind == "probabilities" else model.transform
        return order_audit(data.values, function(data.values), input=data.kind)


def _of_files(reading: Reading, before: Path, after: Path, after_kind: Kind | None) -> OrderAudit:
    from ..metrics import order_audit

    old = reading.read(before, with_labels=False)
    elsewhere = replace(reading, kind=after_kind, logits_name=None)
    new = elsewhere.read(after, with_labels=False).in_order_of(old.class_names)
    with progress(f"Auditing {old.n_samples:,} x {old.n_classes:,}"):
        return order_audit(old.values, _comparable(new.values, new.kind, old.kind), input=old.kind)


def _comparable(values: Any, kind: str, wanted: str) -> Any:
    """Values whose order can be compared with that of logits or of probabilities.

    Any numbers can be compared with logits. What is compared with probabilities must be some: the ranks, made to sum to one,
    have the order and the ties of the values exactly, which a softmax would not.
    """
    if kind == wanted or wanted == "logits":
        return values
    from scipy.stats import rankdata

    ranks = rankdata(values, method="dense", axis=1).astype(float)
    return ranks / ranks.sum(axis=1, keepdims=True)


def _print(result: OrderAudit) -> None:
    columns = {"all rows": result.all, f"uncertain (top below {result.uncertain_below:g})": result.uncertain}
    counts = {
        "rows": [f"{c.rows:,}" for c in columns.values()],
        "with classes that changed places": [
            f"{c.rows_inverted:,} ({c.share_inverted:.2%})" for c in columns.values()
        ],
        "with another top class": [
            f"{c.top1_changed:,} ({c.share_top1_changed:.2%})" for c in columns.values()
        ],
        "pairs that changed places": [f"{c.inverted_pairs:,}" for c in columns.values()],
        "ties broken": [f"{c.ties_broken:,}" for c in columns.values()],
        "ties made": [f"{c.ties_made:,}" for c in columns.values()],
    }
    print_table(["", *columns], [[name, *cells] for name, cells in counts.items()])
    typer.echo(
        "The order of the classes was kept." if result.preserved else "The order of the classes was not kept."
    )
