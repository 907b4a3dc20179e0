"""``monocal report``: one page that says what was wrong and what calibration did about it."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from .by_name import make
from .groups import Groups, find_groups
from .output import Force, Json, Out, TimeLimit, check_extension, check_not_read, note, print_json, progress
from .reading import Reading, reads


@reads
def report(
    reading: Reading,
    path: Annotated[
        Path, typer.Argument(metavar="CAL", help="Logits (or probabilities) and labels to calibrate on.")
    ],
    out: Out,
    test: Annotated[
        Path | None,
        typer.Option("--test", help="Rows to judge on; left out, the test part of CAL or cross-validation."),
    ] = None,
    calibrator: Annotated[
        Path | None,
        typer.Option("--calibrator", "-c", help="Report on this saved calibrator instead of fitting one."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method", "-m", help="Calibrator to show; left out, the one the comparison recommends."
        ),
    ] = None,
    groups: Groups = None,
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.")] = None,
    compare: Annotated[bool, typer.Option("--compare/--no-compare", help="Compare methods.")] = True,
    everything: Annotated[
        bool, typer.Option("--all", help="Compare the networks as well, which take minutes.")
    ] = False,
    time_limit: TimeLimit = 60.0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a self-contained HTML page on a calibration.

    The verdict first, then diagrams, metrics with intervals, the comparison of methods, the order audit and the certificate.
    The page shows and holds the calibrator that it recommends.

    Example: monocal report cal.npz --test test.npz -o report.html
    """
    from ..errors import InputError
    from ..persistence import load
    from ..report import default_methods, write_report

    if calibrator is not None and method is not None:
        raise InputError("Give --calibrator (one that is fitted) or --method (one to fit), not both.")
    check_extension(out, ".html", ".htm")
    check_not_read(out, path, test, calibrator, reading.labels)
    cal, judge = reading.read_both(path, test)
    model = load(calibrator) if calibrator else make(method, cal) if method else None
    known = groups and find_groups(groups, judge or cal, test or path, reading.group)
    begun, steps = (
        count(),
        3 + (len(default_methods(cal.kind, cal.n_classes, networks=everything)) if compare else 0),
    )
    with progress("Reading", steps) as update:
        page = write_report(
            out,
            cal,
            judge,
            calibrator=model,
            methods=(everything or None) if compare else False,
            title=title,
            groups=known,
            time_limit=time_limit,
            on_step=lambda text: update(next(begun), text.capitalize()),
            force=force,
        )
    if as_json:
        sides = {"before": page.before, "after": page.after}
        print_json(
            {
                "report": out,
                "judged_on": page.judged_how,
                **{name: side.evaluation.to_dict() for name, side in sides.items()},
                "order": page.audit.to_dict(),
                "recommended": page.methods and page.methods.recommended,
                "shown": page.shown,
                "verdict": page.verdict.to_dict(),
            }
        )
    else:
        typer.echo(f"{page.verdict.headline} {page.verdict.advice}")
        note(f"Report written to {out}: open it in a browser.")
