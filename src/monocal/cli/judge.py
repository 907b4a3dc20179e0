"""Commands that judge: ``evaluate`` figures, ``check`` for continuous integration, ``audit`` of the order, ``review`` rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError
from .options import Kind, Reading, context_for, find_groups, reads, refuse_for_many_labels
from .output import (
    CHECK_FAILED,
    check_extension,
    check_not_read,
    metrics_to_show,
    note,
    print_evaluations,
    print_json,
    print_table,
    progress,
    say,
    show_p,
)

if TYPE_CHECKING:
    import numpy as np

    from ..io import LogitsSet
    from ..metrics import Evaluation, Floor, GroupEvaluation, LabelShiftTest, OrderAudit

_N_BOOT = 200


def _sides(
    reading: Reading, path: Path, calibrator: Path | None, context: str | None, many_labels: bool = False
) -> tuple[LogitsSet, dict[str, np.ndarray]]:
    """The labelled set, and its probabilities: ``value``, or ``before`` and ``after`` a calibrator."""
    from ..persistence import load
    from .row_blocks import before_and_after, uncalibrated

    if calibrator is None:
        data = reading.read(path, need_labels=True, many_labels=many_labels)
        return data, {"value": data.values if data.many_labels else uncalibrated(data.values, data.kind)}
    model, data = reading.read_for(load(calibrator), path, need_labels=True, many_labels=many_labels)
    if data.many_labels:
        return data, {"before": data.values, "after": model.predict_proba(data.values)}
    columns = context_for(model, context, data, path, reading.group)
    return data, dict(zip(("before", "after"), before_and_after(model, data.values, columns), strict=True))


@reads
def evaluate(
    reading: Reading,
    path: Path,
    calibrator: Path | None = None,
    everything: bool = False,
    explain: bool = False,
    metrics: str | None = None,
    decompose: bool = False,
    groups: str | None = None,
    context: str | None = None,
    n_boot: int = _N_BOOT,
    seed: int = 0,
    as_json: bool = False,
) -> None:
    """Measure calibration, before and after a calibrator.

    Six figures (--all: every one; --json has all), with a 95 % interval where one can be given, and the ECE that perfect
    calibration would show on these rows.

    Example: monocal evaluate test.npz --calibrator cal.json --groups subject
    """
    from .. import metrics as measure

    data, sides = _sides(reading, path, calibrator, context, many_labels=True)
    if data.many_labels:
        unused = {"--groups": groups, "--metrics": metrics, "--decompose": decompose, "--context": context}
        unused |= {"--all": everything, "--explain": explain, "--n-boot": n_boot != _N_BOOT}
        refuse_for_many_labels(path, unused | {"--weights-name": reading.weights})
        return _print_labels(data, sides, as_json, path, calibrator, seed)
    names = [name.strip() for name in metrics.split(",")] if metrics else None
    if names is None and not as_json:
        names = metrics_to_show(data.n_classes, everything)
    by = find_groups(groups, data, path, reading.group)
    shift = None if calibrator is None else _shift_since_fit(calibrator, data)
    rows: dict[str, Any] = {"labels": data.labels, "sample_weight": data.weights}
    options = {
        "metrics": names,
        "n_boot": n_boot,
        "seed": seed,
        "groups": by,
        "class_names": data.class_names,
    }
    with progress(f"Evaluating {data.n_samples:,} x {data.n_classes:,}"):
        results = {side: measure.evaluate(probs, **rows, **options) for side, probs in sides.items()}
        last = next(reversed(sides.values()))
        floor = measure.ece_floor(last, **rows, metric=ece_of(data.n_classes), seed=seed)
    parts = {side: measure.decompose(probs, **rows) for side, probs in sides.items()} if decompose else {}
    if as_json:
        plain: dict[str, Any] = {side: evaluation.to_dict() for side, evaluation in results.items()}
        for side, split in parts.items():
            plain[side]["decomposition"] = split.to_dict()
        plain |= {"ece_floor": floor.to_dict(), "label_shift": shift and shift.to_dict()}
        print_json({"data": path, "calibrator": calibrator, **plain})
        return
    title = f"{data.name}: {data.n_samples:,} samples, {data.n_classes:,} classes"
    print_evaluations(results, f"{title}{_intervals(next(iter(results.values())))}", explain=explain)
    say(floor_sentence(floor, data.n_classes == 2))
    for side, split in parts.items():
        say(f"{'' if len(parts) == 1 else side + ': '}NLL {split.nll}; Brier score {split.brier}.")
    if shift is not None and shift.shifted:
        say(shift.sentence(data.class_names))
    if by is not None:
        _print_groups({side: result.groups for side, result in results.items() if result.groups is not None})


def ece_of(n_classes: int) -> str:
    """The ECE that is judged: of two classes that of P(class 1), of more that of the predicted class."""
    return "positive_ece" if n_classes == 2 else "ece"


def floor_sentence(floor: Floor, two: bool) -> str:
    """The ECE of these rows against that of perfect calibration."""
    assert floor.observed is not None
    assert floor.p_value is not None  # labels were given
    verdict = "more than chance" if floor.more_than_chance else "no more than chance can do"
    low, high, seen = (f"{100 * value:.2f} %" for value in (floor.median, floor.high, floor.observed))
    return (
        f"Perfectly calibrated, these rows would show an ECE{' of P(class 1)' * two} of {low} ({100 * floor.level:g} % of the "
        f"time at most {high}): {seen} is {verdict} ({show_p(floor.p_value)})."
    )


def _print_groups(results: Mapping[str, GroupEvaluation]) -> None:
    """One sentence for every side, and the table of the last."""
    *earlier, last = results
    typer.echo("")
    for side in earlier:
        say(f"{side.capitalize()}: {results[side].verdict}")
    _print_prose_and_table(str(results[last]), f"{last.capitalize()}: " if earlier else "")


def _print_prose_and_table(text: str, title: str = "") -> None:
    """Wrap what stands before the first empty line; the rest as it is."""
    prose, _, table = text.partition("\n\n")
    say(title + prose)
    typer.echo(f"\n{table}")


def _intervals(result: Evaluation) -> str:
    """What the intervals are, where there are any; only those of calibration errors are drawn."""
    from ..metrics import METRICS

    if all(estimate.low is None for estimate in result.estimates.values()):
        return ""
    drawn = any(METRICS[name].error is not None for name in result.estimates)
    return f", {result.level:.0%} intervals".replace("%", " %") + (
        f" from {result.n_boot} draws" if drawn else ""
    )


def _shift_since_fit(calibrator: Path, data: LogitsSet) -> LabelShiftTest | None:
    """Whether the labels have other frequencies than those the calibrator was fitted on; None where the file does not tell.

    A note says if it was fitted on these very data.
    """
    import numpy as np

    from ..metrics.labels import label_shift_of_counts
    from ..persistence import describe, fingerprint

    saved = describe(calibrator)
    fitted_on = saved["data"] if isinstance(saved["data"], dict) else {}
    same_shape = fitted_on.get("shape") == list(data.values.shape)  # or a fingerprint is not needed
    if (
        same_shape
        and fitted_on.get("sha256") == fingerprint(data.values, data.labels, data.weights)["sha256"]
    ):
        note(f"{calibrator} was fitted on these very data: the figures after are better than on others.")
    counts = fitted_on.get("label_counts")
    if saved.get("class") == "LabelShift" or not isinstance(counts, list) or len(counts) != data.n_classes:
        return None
    if not all(type(count) is int and 0 <= count < 2**53 for count in counts) or not any(counts):
        return None  # anybody may have written it
    assert data.labels is not None
    return label_shift_of_counts(np.array(counts), np.bincount(data.labels, minlength=data.n_classes))


def _print_labels(
    data: LogitsSet,
    sides: dict[str, np.ndarray],
    as_json: bool,
    path: Path,
    calibrator: Path | None,
    seed: int,
) -> None:
    """Each of many labels, the mean over labels, and which are off beyond chance."""
    from scipy.special import expit

    from ..metrics import evaluate_labels

    results = {
        side: evaluate_labels(
            expit(values) if data.kind == "logits" and side != "after" else values,
            data.labels,
            names=data.class_names,
            random_state=seed,
        )
        for side, values in sides.items()
    }
    if as_json:
        plain = {side: result.to_dict() for side, result in results.items()}
        print_json({"data": path, "calibrator": calibrator, **plain})
        return
    for side, result in results.items():
        _print_prose_and_table(str(result), f"{side.capitalize()}: " if len(results) > 1 else "")


@reads
def check(
    reading: Reading,
    path: Path,
    calibrator: Path | None = None,
    max_ece_excess: float = 0.0,
    context: str | None = None,
    seed: int = 0,
    as_json: bool = False,
) -> None:
    """Check calibration in a pipeline.

    Ends with code 1 where calibration is off beyond chance and by more than --max-ece-excess, with 0 where it is not, and with 2
    where the data cannot be read. One line says why.

    Example: monocal check test.csv -c cal.json --max-ece-excess 0.02
    """
    from ..metrics import ece_floor

    data, sides = _sides(reading, path, calibrator, context)
    probs = sides[next(reversed(sides))]
    metric = ece_of(data.n_classes)
    floor = ece_floor(probs, data.labels, metric=metric, sample_weight=data.weights, seed=seed)
    assert floor.observed is not None
    excess = floor.observed - floor.median
    off = floor.more_than_chance and excess > max_ece_excess
    if as_json:
        result = {"calibrated": not off, "metric": metric, "max_ece_excess": max_ece_excess}
        source = {"data": path, "calibrator": calibrator}
        print_json({**source, **result, "ece_excess": excess, **floor.to_dict()})
    else:
        allowed = f" (allowed: {100 * max_ece_excess:.2f})" if max_ece_excess else ""
        chance = "more than chance" if floor.more_than_chance else "no more than chance can do"
        of_two = " of P(class 1)" if data.n_classes == 2 else ""
        side = "above" if excess > 0 else "below"
        say(
            f"{'off' if off else 'ok'}: the ECE{of_two} of {data.n_samples:,} rows is {100 * floor.observed:.2f} %, "
            f"{abs(100 * excess):.2f} points {side} perfect calibration{allowed}; {chance} ({show_p(float(floor.p_value or 0))})"
        )
    if off:
        raise typer.Exit(1)


@reads
def audit(
    reading: Reading,
    before: Path,
    after: Path | None = None,
    calibrator: Path | None = None,
    after_kind: Kind | None = None,
    as_json: bool = False,
) -> None:
    """Count the rows in which classes changed places.

    The calibrator may be any, also of other libraries: two files, before and after, are all it needs. Ends with code 3 when two
    classes changed places or a tie was broken.

    Example: monocal audit test.npz probs.npz
    """
    from ..metrics import order_audit
    from ..persistence import load

    if (calibrator is None) == (after is None):
        raise InputError("Give either AFTER, a second file, or --calibrator.")
    if after is None:
        model, old = reading.read_for(load(Path(str(calibrator))), before)
        function = model.predict_proba if old.kind == "probabilities" else model.transform
        columns = context_for(model, None, old, before, reading.group)
        values = function(old.values, **({} if columns is None else {"context": columns}))
        if old.n_classes == 2 and not model.preserves_order and getattr(model, "preserves_ranking", False):
            note(f"{type(model).__name__} keeps the ranking of the rows (AUC), not the two classes of a row.")
    else:
        old = reading.read(before, with_labels=False)
        renamed = replace(reading, kind=after_kind, values=None)
        new = renamed.read(after, with_labels=False, known_classes=old.class_names)
        new = new.in_order_of(old.class_names)
        values = _comparable(new.values, new.kind, old.kind)
    with progress(f"Auditing {old.n_samples:,} x {old.n_classes:,}"):
        result = order_audit(old.values, values, input=old.kind)
    if as_json:
        print_json(result.to_dict())
    else:
        _print_audit(result)
    if not result.preserved:
        raise typer.Exit(CHECK_FAILED)


def _comparable(values: Any, kind: str, other: str) -> Any:
    """Values whose order can be compared with that of logits or of probabilities.

    Any numbers can be compared with logits. What is compared with probabilities must be some: the ranks, made to sum to one,
    have the order and the ties of the values exactly, which a softmax would not.
    """
    if kind == other or other == "logits":
        return values
    from scipy.stats import rankdata

    ranks = rankdata(values, method="dense", axis=1).astype(float)
    return ranks / ranks.sum(axis=1, keepdims=True)


_AUDIT = {
    "rows": "{0.rows:,}",
    "with classes that changed places": "{0.rows_inverted:,} ({0.share_inverted:.2%})",
    "with another top class": "{0.top1_changed:,} ({0.share_top1_changed:.2%})",
    "pairs that changed places": "{0.inverted_pairs:,}",
    "ties broken": "{0.ties_broken:,}",
    "ties made": "{0.ties_made:,}",
}


def _print_audit(result: OrderAudit) -> None:
    columns = {"all rows": result.all, f"uncertain (top below {result.uncertain_below:g})": result.uncertain}
    rows = [[name, *(text.format(c) for c in columns.values())] for name, text in _AUDIT.items()]
    print_table(["", *columns], rows)
    say(f"The order of the classes was {'' if result.preserved else 'not '}kept.")


@reads
def review(
    reading: Reading,
    path: Path,
    calibrator: Path | None = None,
    max_error: float | None = None,
    confidence: float = 0.95,
    cost_error: float | None = None,
    cost_review: float | None = None,
    groups: str | None = None,
    context: str | None = None,
    picture: Path | None = None,
    as_json: bool = False,
) -> None:
    """Find which answers may go out without review.

    The error among these is at most --max-error with the stated confidence, for rows of the same kind. Ends with code 3 where no
    threshold can promise that.

    Example: monocal review test.csv -c cal.json --max-error 0.02
    """
    from ..metrics import review_rule
    from ..metrics.groups import PREDICTED

    if picture is not None:
        check_extension(picture, ".png", ".svg", ".pdf")
        check_not_read(picture, path, calibrator)
    data, sides = _sides(reading, path, calibrator, context)
    probs = sides[next(reversed(sides))]
    by = None if groups is None else find_groups(groups, data, path, reading.group)
    if isinstance(by, str) and by == PREDICTED:
        names = data.class_names or [str(k) for k in range(probs.shape[1])]
        by = [names[k] for k in probs.argmax(axis=1)]
    costs = {"cost_error": cost_error, "cost_review": cost_review}
    rule = review_rule(probs, data.labels, max_error=max_error, confidence=confidence, groups=by, **costs)
    if picture is not None:
        from ..plots import RiskCoverageDisplay

        RiskCoverageDisplay.from_rule(rule).plot().figure_.savefig(picture)
    if as_json:
        print_json({"data": path, "calibrator": calibrator, **rule.to_dict()})
    else:
        say(str(rule))
    if not rule.n_automated:
        raise typer.Exit(CHECK_FAILED)
