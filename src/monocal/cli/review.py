"""``monocal review``: above which confidence answers may go out without a person looking."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .context import Context, context_for
from .groups import Groups, find_groups
from .output import CHECK_FAILED, Json, check_extension, check_not_read, print_json
from .reading import Reading, reads


@reads
def review(
    reading: Reading,
    path: Annotated[
        Path,
        typer.Argument(metavar="TEST", help="Logits or probabilities, and labels; not the rows of the fit."),
    ],
    calibrator: Annotated[
        Path | None, typer.Option("--calibrator", "-c", help="Apply this calibrator first.")
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            "--max-error", help="Largest share of wrong answers allowed among those that go out [0.02]."
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Probability with which the promise holds.")
    ] = 0.95,
    cost_error: Annotated[
        float | None,
        typer.Option("--cost-error", help="Cost of a wrong answer: the cheapest threshold instead."),
    ] = None,
    cost_review: Annotated[
        float | None, typer.Option("--cost-review", help="Cost of one review, with --cost-error.")
    ] = None,
    groups: Groups = None,
    context: Context = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="Draw error against automated share here (.png, .svg, .pdf)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find which answers may go out without review.

    The error among these is at most --max-error with the stated confidence, for rows of the same kind. Ends with code 3 where no
    threshold can promise that.

    Example: monocal review test.csv -c cal.json --max-error 0.02
    """
    from ..metrics import review_rule
    from ..metrics.groups import PREDICTED
    from ..persistence import load
    from .probabilities import before_and_after, uncalibrated

    if picture is not None:
        check_extension(picture, ".png", ".svg", ".pdf")
        check_not_read(picture, path, calibrator)
    if calibrator is None:
        data = reading.read(path, need_labels=True)
        probs = uncalibrated(data.values, data.kind)
    else:
        model, data = reading.read_for(load(calibrator), path, need_labels=True)
        probs = before_and_after(model, data.values, context_for(model, context, data, path, reading.group))[
            1
        ]
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
        typer.echo(str(rule))
    if not rule.n_automated:
        raise typer.Exit(CHECK_FAILED)
