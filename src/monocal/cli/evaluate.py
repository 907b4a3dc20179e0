"""``monocal evaluate``: how good the probabilities of a file are, with and without a calibrator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .context import Context, context_for
from .forecast import forecast
from .groups import Groups, evaluate_by_group, print_groups
from .output import Boot, Json, Seed, note, print_evaluations, print_json, progress, show_p
from .reading import Reading, reads

if TYPE_CHECKING:
    from ..io import LogitsSet
    from ..metrics import Evaluation, LabelShiftTest


@reads
def evaluate(
    reading: Reading,
    path: Annotated[Path, typer.Argument(metavar="TEST", help="Logits or probabilities, and labels.")],
    calibrator: Annotated[
        Path | None,
        typer.Option("--calibrator", "-c", help="A file that `monocal fit` wrote: shows before and after."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", help="Names with commas between, such as nll,ece; all when left out."),
    ] = None,
    decompose: Annotated[
        bool,
        typer.Option(
            "--decompose", help="What of NLL and Brier score a map that keeps the order could remove."
        ),
    ] = False,
    groups: Groups = None,
    context: Context = None,
    n_boot: Boot = 200,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure calibration, before and after a calibrator.

    Every metric, with a 95 % interval where one can be given, and the ECE that perfect calibration would show on these rows.

    Example: monocal evaluate test.npz --calibrator cal.json --groups subject
    """
    from .. import metrics as measure
    from ..calibrators import LabelShift
    from ..persistence import load
    from .probabilities import before_and_after, uncalibrated

    names = [name.strip() for name in metrics.split(",")] if metrics else None
    shift = None
    if calibrator is None:
        data = reading.read(path, need_labels=True)
        sides = {"value": uncalibrated(data.values, data.kind)}
    else:
        model, data = reading.read_for(load(calibrator), path, need_labels=True)
        _warn_if_fitted_on(calibrator, data)
        shift = None if isinstance(model, LabelShift) else _shift_since_fit(calibrator, data)
        known = context_for(model, context, data, path, reading.group)
        sides = dict(zip(("before", "after"), before_and_after(model, data.values, known), strict=True))

    def measured(rows: slice) -> tuple[dict[str, measure.Evaluation], measure.Floor]:
        assert data.labels is not None
        labels, weights = data.labels[rows], None if data.weights is None else data.weights[rows]
        options: dict[str, Any] = {"sample_weight": weights, "seed": seed}
        found = {
            side: measure.evaluate(probs[rows], labels, metrics=names, n_boot=n_boot, **options)
            for side, probs in sides.items()
        }
        return found, measure.ece_floor(next(reversed(sides.values()))[rows], labels, **options)

    with progress(f"Evaluating {data.n_samples:,} x {data.n_classes:,}") as update:
        update(expected=forecast(measured, data.values.shape))
        found, floor = measured(slice(None))
    by_group = evaluate_by_group(sides, data, groups, path, reading.group, seed) if groups else {}
    parts = {}
    if decompose:
        parts = {
            side: measure.decompose(probs, data.labels, sample_weight=data.weights)
            for side, probs in sides.items()
        }
    if as_json:
        told: dict[str, Any] = {side: evaluation.to_dict() for side, evaluation in found.items()}
        for side, one in by_group.items():
            told[side]["groups"] = one.to_dict()
        for side, split in parts.items():
            told[side]["decomposition"] = split.to_dict()
        told |= {"ece_floor": floor.to_dict(), "label_shift": shift and shift.to_dict()}
        print_json({"data": path, "calibrator": calibrator, **told})
        return
    title = f"{data.name}: {data.n_samples:,} samples, {data.n_classes:,} classes"
    print_evaluations(found, f"{title}{_intervals(next(iter(found.values())))}")
    assert floor.p_value is not None  # labels were given
    assert floor.observed is not None
    verdict = "more than chance" if floor.more_than_chance else "no more than chance can do"
    typer.echo(
        f"Perfectly calibrated, these rows would show an ECE of {100 * floor.median:.2f} % ({100 * floor.level:g} % "
        f"of the time at most {100 * floor.high:.2f} %): {100 * floor.observed:.2f} % is {verdict} ({show_p(floor.p_value)})."
    )
    for side, split in parts.items():
        typer.echo(f"{'' if len(parts) == 1 else side + ': '}NLL {split.nll}; Brier score {split.brier}.")
    if shift is not None and shift.shifted:
        typer.echo(shift.sentence(data.class_names))
    if by_group:
        typer.echo("")
        print_groups(by_group)


def _intervals(found: Evaluation) -> str:
    """What the intervals are, where there are any; only those of calibration errors are drawn."""
    from ..metrics import METRICS

    if all(estimate.low is None for estimate in found.estimates.values()):
        return ""
    drawn = any(METRICS[name].error is not None for name in found.estimates)
    return f", {found.level:.0%} intervals".replace("%", " %") + (
        f" from {found.n_boot} draws" if drawn else ""
    )


def _warn_if_fitted_on(calibrator: Path, data: LogitsSet) -> None:
    from ..persistence import describe, fingerprint

    saved = describe(calibrator)["data"]
    same_shape = isinstance(saved, dict) and saved.get("shape") == list(data.values.shape)
    if same_shape and saved.get("sha256") == fingerprint(data.values, data.labels, data.weights)["sha256"]:
        note(f"{calibrator} was fitted on these very data: the figures after are better than on others.")


def _shift_since_fit(calibrator: Path, data: LogitsSet) -> LabelShiftTest | None:
    """Whether the labels have other frequencies than those the calibrator was fitted on; None where the file does not tell."""
    import numpy as np

    from ..metrics.differences import label_shift_of_counts
    from ..persistence import describe

    saved = describe(calibrator)["data"]
    counts = saved.get("label_counts") if isinstance(saved, dict) else None
    if not isinstance(counts, list) or len(counts) != data.n_classes or data.labels is None:
        return None
    if not all(type(count) is int and 0 <= count < 2**53 for count in counts) or not any(counts):
        return None  # nobody knows who wrote it
    return label_shift_of_counts(np.array(counts), np.bincount(data.labels, minlength=data.n_classes))
