"""Commands that judge: ``evaluate`` figures, ``check`` for continuous integration, ``audit`` of the order, ``review`` rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError
from . import output
from .fit_apply import before_and_after, uncalibrated
from .options import Kind, Reading, context_for, find_groups, refuse_for_many_labels, takes

if TYPE_CHECKING:
    import numpy as np

    from ..io import LogitsSet
    from ..metrics import Evaluation, Floor

_N_BOOT = 200


def _sides(
    reading: Reading, path: Path, calibrator: Path | None, context: str | None, many_labels: bool = False
) -> tuple[LogitsSet, dict[str, np.ndarray]]:
    """The labelled set, and its probabilities: ``value``, or ``before`` and ``after`` a calibrator."""
    from scipy.special import expit

    from ..persistence import load

    if calibrator is None:
        data = reading.read(path, need_labels=True, many_labels=many_labels)
    else:
        model, data = reading.read_for(load(calibrator), path, need_labels=True, many_labels=many_labels)
    if data.many_labels:
        before = expit(data.values) if data.kind == "logits" else data.values
        return data, (
            {"value": before}
            if calibrator is None
            else {"before": before, "after": model.predict_proba(data.values)}
        )
    if calibrator is None:
        return data, {"value": uncalibrated(data.values, data.kind)}
    columns = context_for(model, context, data, path, reading.group)
    return data, before_and_after(model, data.values, columns)


@takes
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
    from ..metrics.table import Options, available, main_metrics

    data, sides = _sides(reading, path, calibrator, context, many_labels=True)
    files = {"data": path, "calibrator": calibrator}
    if data.many_labels:
        unused = {"--groups": groups, "--metrics": metrics, "--decompose": decompose, "--context": context}
        unused |= {"--all": everything, "--explain": explain, "--n-boot": n_boot != _N_BOOT}
        refuse_for_many_labels(path, unused | {"--weights-name": reading.weights})
        return _evaluate_labels(data, sides, files, as_json, seed)
    names = [name.strip() for name in metrics.split(",")] if metrics else None
    if names is None and not as_json:
        names = available(data.n_classes, Options()) if everything else main_metrics(data.n_classes)
    by = find_groups(groups, data, path, reading.group)
    if calibrator is not None:
        _note_if_fitted_on(calibrator, data)
    rows: dict[str, Any] = {"labels": data.labels, "sample_weight": data.weights}
    how = {"metrics": names, "n_boot": n_boot, "seed": seed, "groups": by, "class_names": data.class_names}
    with output.progress(f"Evaluating {data.n_samples:,} x {data.n_classes:,}"):
        results = {side: measure.evaluate(probs, **rows, **how) for side, probs in sides.items()}
        last = next(reversed(sides.values()))
        floor = measure.ece_floor(last, **rows, metric=ece_of(data.n_classes), seed=seed)
    parts = {side: measure.decompose(probs, **rows) for side, probs in sides.items()} if decompose else {}
    if as_json:
        plain: dict[str, Any] = {side: evaluation.to_dict() for side, evaluation in results.items()}
        for side, split in parts.items():
            plain[side]["decomposition"] = split.to_dict()
        return output.print_json(files | plain | {"ece_floor": floor.to_dict()})
    title = f"{data.name}: {data.n_samples:,} samples, {data.n_classes:,} classes"
    intervals = any(e.low is not None for result in results.values() for e in result.estimates.values())
    output.print_evaluations(results, f"{title}{', 95 % intervals' * intervals}", explain=explain)
    output.say(floor_sentence(floor, data.n_classes == 2))
    for side, split in parts.items():
        output.say(f"{'' if len(parts) == 1 else side + ': '}NLL {split.nll}; Brier score {split.brier}.")
    if by is not None:
        _print_groups(results)


def ece_of(n_classes: int) -> str:
    """The ECE that is judged: of two classes that of P(class 1), of more that of the predicted class."""
    return "positive_ece" if n_classes == 2 else "ece"


def _chance(floor: Floor) -> str:
    return "more than chance" if floor.more_than_chance else "no more than chance can do"


def floor_sentence(floor: Floor, two: bool) -> str:
    """The ECE of these rows against that of perfect calibration."""
    low, high, seen = (f"{100 * (value or 0):.2f} %" for value in (floor.median, floor.high, floor.observed))
    return (
        f"Perfectly calibrated, these rows would show an ECE{' of P(class 1)' * two} of {low} ({100 * floor.level:g} % of the "
        f"time at most {high}): {seen} is {_chance(floor)} ({output.show_p(floor.p_value or 0.0)})."
    )


def _print_groups(results: dict[str, Evaluation]) -> None:
    """One sentence for every side, and the table of the last."""
    *earlier, last = results
    typer.echo("")
    for side in earlier:
        output.say(f"{side.capitalize()}: {results[side].groups.verdict}")  # type: ignore[union-attr]  # groups were asked for
    _print_prose_and_table(results[last].groups, f"{last.capitalize()}: " if earlier else "")


def _print_prose_and_table(result: object, title: str) -> None:
    """Wrap what stands before the first empty line; the rest as it is."""
    prose, _, table = str(result).partition("\n\n")
    output.say(title + prose)
    typer.echo(f"\n{table}")


def _note_if_fitted_on(calibrator: Path, data: LogitsSet) -> None:
    from ..persistence import describe, fingerprint

    saved = describe(calibrator)["data"]
    same_shape = isinstance(saved, dict) and saved.get("shape") == list(data.values.shape)
    if same_shape and saved.get("sha256") == fingerprint(data.values, data.labels, data.weights)["sha256"]:
        output.note(
            f"{calibrator} was fitted on these very data: the figures after are better than on others."
        )


def _evaluate_labels(
    data: LogitsSet, sides: dict[str, np.ndarray], files: dict[str, Any], as_json: bool, seed: int
) -> None:
    """Each of many labels, the mean over labels, and which are off beyond chance."""
    from ..metrics import evaluate_labels

    results = {
        side: evaluate_labels(values, data.labels, names=data.class_names, random_state=seed)
        for side, values in sides.items()
    }
    if as_json:
        return output.print_json(files | {side: result.to_dict() for side, result in results.items()})
    for side, result in results.items():
        _print_prose_and_table(result, f"{side.capitalize()}: " if len(results) > 1 else "")


@takes
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
    observed = floor.observed or 0.0
    excess = observed - floor.median
    off = floor.more_than_chance and excess > max_ece_excess
    if as_json:
        result = {"calibrated": not off, "metric": metric, "max_ece_excess": max_ece_excess}
        output.print_json(
            {"data": path, "calibrator": calibrator} | result | {"ece_excess": excess} | floor.to_dict()
        )
    else:
        allowed = f" (allowed: {100 * max_ece_excess:.2f})" if max_ece_excess else ""
        output.say(
            f"{'off' if off else 'ok'}: the ECE{' of P(class 1)' * (data.n_classes == 2)} of {data.n_samples:,} rows is "
            f"{100 * observed:.2f} %, {abs(100 * excess):.2f} points {'above' if excess > 0 else 'below'} perfect "
            f"calibration{allowed}; {_chance(floor)} ({output.show_p(floor.p_value or 0.0)})"
        )
    if off:
        raise typer.Exit(1)


@takes
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

    if after is not None and calibrator is None:
        old = reading.read(before, with_labels=False)
        of_after = replace(reading, kind=after_kind, values=None)
        new = of_after.read(after, with_labels=False, known_classes=old.class_names)
        values = _comparable(new.in_order_of(old.class_names), old.kind)
    elif calibrator is not None and after is None:
        model, old = reading.read_for(load(calibrator), before)
        function = model.predict_proba if old.kind == "probabilities" else model.transform
        columns = context_for(model, None, old, before, reading.group)
        values = function(old.values, **({} if columns is None else {"context": columns}))
        if old.n_classes == 2 and not model.preserves_order and getattr(model, "preserves_ranking", False):
            output.note(
                f"{type(model).__name__} keeps the ranking of the rows (AUC), not the two classes of a row."
            )
    else:
        raise InputError("Give either AFTER, a second file, or --calibrator.")
    result = order_audit(old.values, values, input=old.kind)
    if as_json:
        output.print_json(result.to_dict())
    else:
        output.say(str(result.all))
        output.say(f"Uncertain (top below {result.uncertain_below:g}): {result.uncertain}")
        output.say(f"The order of the classes was {'' if result.preserved else 'not '}kept.")
    if not result.preserved:
        raise typer.Exit(output.CHECK_FAILED)


def _comparable(data: LogitsSet, kind: str) -> np.ndarray:
    """Values whose order can be compared with that of logits or of probabilities.

    Any numbers can be compared with logits. What is compared with probabilities must be some: the ranks, made to sum to one,
    have the order and the ties of the values exactly, which a softmax would not.
    """
    from scipy.stats import rankdata

    if kind in (data.kind, "logits"):
        return data.values
    ranks = rankdata(data.values, method="dense", axis=1).astype(float)
    return ranks / ranks.sum(axis=1, keepdims=True)


@takes
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
        output.check_extension(picture, ".png", ".svg", ".pdf")
        output.check_not_read(picture, path, calibrator)
    data, sides = _sides(reading, path, calibrator, context)
    probs = sides[next(reversed(sides))]
    by = find_groups(groups, data, path, reading.group)
    if by is PREDICTED:
        names = data.class_names or [str(k) for k in range(probs.shape[1])]
        by = [names[k] for k in probs.argmax(axis=1)]
    costs = {"cost_error": cost_error, "cost_review": cost_review}
    rule = review_rule(probs, data.labels, max_error=max_error, confidence=confidence, groups=by, **costs)
    if picture is not None:
        from ..plots import RiskCoverageDisplay

        RiskCoverageDisplay.from_rule(rule).plot().figure_.savefig(picture)
    if as_json:
        output.print_json({"data": path, "calibrator": calibrator, **rule.to_dict()})
    else:
        output.say(str(rule))
    if not rule.n_automated:
        raise typer.Exit(output.CHECK_FAILED)
