"""``monocal compare``: every method on rows it has not seen. ``monocal report``: one page on what calibration did."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError
from . import output
from .fit_apply import make
from .options import Reading, find_groups, refuse_for_many_labels, takes

if TYPE_CHECKING:
    from ..report import MethodComparison, MethodResult

_TIME_LIMIT = 60.0  # seconds, of a report
# Columns that a narrow terminal does not show, the first to go first.
_DROPPED = ("ECE, 95 %", "fit, s", "Brier", "accuracy", "NLL, 95 %", "rows re-ordered", "ECE")


@takes
def compare(
    reading: Reading,
    path: Path,
    test: Path | None = None,
    only: str | None = None,
    everything: bool = False,
    time_limit: float = 600.0,
    n_boot: int = 200,
    seed: int = 0,
    wide: bool = False,
    as_json: bool = False,
) -> None:
    """Compare every method and recommend one.

    Methods are ranked by NLL, with 95 % intervals. The one recommended is the one that monocal fit takes, unless it does harm
    on these rows; of a list without it, the simplest that is indistinguishable from the best. The price of the order is shown.

    Example: monocal compare cal.npz --test test.npz
    """
    from ..metrics import label_shift_test
    from ..registry import find_method
    from ..report import Trial, as_set, compare_methods, default_methods
    from ..report.comparison import UNCALIBRATED
    from ..report.sentences import recommendation
    from ..report.trial import FOLDS

    cal, judge = reading.read_both(path, test)
    trial = Trial.of(as_set(cal, str(path)), judge and as_set(judge, str(test or path)), seed)
    methods = default_methods(cal.kind, cal.n_classes, networks=everything or only is not None)
    if only:
        titles = {repr(method): title for title, method in methods.items()}
        chosen = [(find_method(name)[0], make(name, cal)) for name in only.split(",")]
        methods = {titles.get(repr(method), name): method for name, method in chosen}
    number = count(1)
    with output.progress("Comparing") as update:
        result = compare_methods(
            trial,
            methods,
            class_names=cal.class_names,
            n_boot=n_boot,
            time_limit=time_limit,
            seed=seed,
            on_method=lambda name: update(f"{name} ({next(number)} of {len(methods)})"),
        )
    if judge is None:
        how = f"{min(FOLDS, cal.n_samples)}-fold cross-validation of {cal.n_samples:,} samples"
    else:
        how = f"{cal.n_samples:,} samples to calibrate on, {judge.n_samples:,} others to judge on"
    advice = recommendation(result)
    shift = None if judge is None else label_shift_test(cal.labels, judge.labels, n_classes=cal.n_classes)
    if as_json:
        of_shift = {"label_shift": shift and shift.to_dict()}
        output.print_json({"judged_on": how, "reason": advice, **of_shift, **_results_as_dict(result)})
    else:
        _print_methods(result, f"{cal.name}: {how}", cal.n_classes == 2, wide)
        output.say(advice)
        if shift is not None and shift.shifted:
            output.say(str(shift))
        if result.recommended not in (None, UNCALIBRATED):
            name = find_method(result.recommended)[0]
            output.next_command(
                join(["monocal", "fit", str(path), *reading.typed(), "-m", name, "-o", "cal.json"])
            )
    if not result.judged:  # which a pipeline must notice
        raise typer.Exit(1)


def _print_methods(result: MethodComparison, title: str, two: bool, wide: bool) -> None:
    """The table of methods; those without figures below it."""
    ece, brier = ("positive_ece", "positive_brier") if two else ("ece", "brier")
    rows = []
    for one in result.judged:
        assert one.evaluation is not None
        e = one.evaluation
        cells = [one.name]
        for metric in ("nll", ece):
            cells += [output.show(metric, e[metric]), output.show_interval(metric, e[metric])]
        cells += [output.show(brier, e[brier]), output.show("accuracy", e["accuracy"])]
        # Of two classes the order that matters is that of the rows.
        rows.append([*cells, "" if two else _order(one), f"{one.seconds:.2f}"])
    columns = ["", "NLL", "NLL, 95 %", "ECE", "ECE, 95 %", "Brier", "accuracy", "rows re-ordered", "fit, s"]
    dropped = output.print_table(
        columns, rows, title, mark=result.recommended or "", drop=_DROPPED, wide=wide
    )
    if dropped:
        output.say(f"Left out, the terminal is narrow: {'; '.join(dropped)} (--wide shows all).")
    for one in _without_figures(result):
        output.say(f"{one.name}: {output.one_line(one.note)}")


def _order(one: MethodResult) -> str:
    if one.keeps_order or one.audit is None:
        return "never"
    return f"{100 * one.audit.all.share_inverted:.2f} %"


def _without_figures(result: MethodComparison) -> list[MethodResult]:
    return [one for one in result.results if one.evaluation is None]


def _results_as_dict(result: MethodComparison) -> dict[str, Any]:
    methods = [
        {
            "name": one.name,
            "guarantees_order": one.keeps_order,
            "seconds": one.seconds,
            "note": one.note,
            "evaluation": one.evaluation and one.evaluation.to_dict(),
            "order": one.audit and one.audit.to_dict(),
        }
        for one in (*result.judged, *_without_figures(result))
    ]
    return {
        "recommended": result.recommended,
        "within_noise": [one.name for one in result.alike(keeping=True)],
        "recommended_if_order_may_change": result.recommended_free,
        "price_of_order": result.price and {"method": result.price[0], **result.price[1].to_dict()},
        "methods": methods,
    }


@takes
def report(
    reading: Reading,
    path: Path,
    out: Path,
    test: Path | None = None,
    calibrator: Path | None = None,
    method: str | None = None,
    groups: str | None = None,
    title: str | None = None,
    compare: bool = True,
    everything: bool = False,
    time_limit: float = _TIME_LIMIT,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Write a self-contained HTML page on a calibration.

    The verdict first, then diagrams, metrics with intervals, the comparison of methods, the order audit and the certificate.
    The page shows and holds the calibrator that it recommends. Of many labels (columns p_* and y_*) it has a row for each.

    Example: monocal report cal.npz --test test.npz -o report.html
    """
    from ..persistence import load
    from ..report import write_report

    if calibrator is not None and method is not None:
        raise InputError("Give --calibrator (one that is fitted) or --method (one to fit), not both.")
    output.check_extension(out, ".html", ".htm")
    output.check_not_read(out, path, test, calibrator, reading.labels_file)
    cal, judge = reading.read_both(path, test, many_labels=True)
    options: dict[str, Any] = {}
    if cal.many_labels:
        unused = {"--groups": groups, "--all": everything, "--no-compare": not compare}
        refuse_for_many_labels(path, unused | {"--time-limit": time_limit != _TIME_LIMIT})
    else:
        by = find_groups(groups, judge or cal, test or path, reading.group)
        methods = (everything or None) if compare else False
        options = {"methods": methods, "groups": by, "time_limit": time_limit}
    model = load(calibrator) if calibrator else make(method, cal) if method else None
    if getattr(model, "context_", None) is not None:
        raise InputError(
            f"{calibrator} was fitted with context, which a report has no place for: use monocal evaluate --calibrator."
        )
    with output.progress("Reading") as update:
        page = write_report(
            out, cal, judge, calibrator=model, title=title, on_step=update, force=force, **options
        )
    if as_json:
        output.print_json({"report": out, **page.to_dict()})
    else:
        output.say(f"{page.verdict.headline} {page.verdict.advice}")
        output.note(f"Report written to {out}: open it in a browser.")
