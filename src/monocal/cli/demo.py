"""``monocal demo``: the whole way on a small real classifier, from logits to a report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError, MissingExtraError
from .by_name import make
from .output import Json, note, print_evaluations, print_json, progress

if TYPE_CHECKING:
    from ..metrics import BinSums

_FILES = ("digits.npz", "calibrator.json", "probabilities.npz", "reliability.png", "report.html")
_METRICS = ("accuracy", "nll", "brier", "ece", "debiased_ece", "classwise_ece")


def demo(
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder to write to; made if it is not there.")
    ] = Path("monocal-demo"),
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that holds other files.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Calibrate a digits classifier and show what happened.

    Trains a small network on handwritten digits, calibrates it, prints the figures before and after with a reliability diagram
    in text, and leaves the data, the calibrator, the probabilities, a picture and a report in a folder. A folder left by an
    earlier demo is written over.
    """
    from ..data import LogitsSet, digits_example, write
    from ..metrics import bin_sums, evaluate, order_audit
    from .probabilities import before_and_after

    _check_folder(out, force)
    with progress("Training a network on digits") as update:
        digits = digits_example()
        cal, test = digits.cal, digits.test
        update(0, "Calibrating")
        calibrator = make(None, cal).fit(cal.values, cal.labels)
        before, after = before_and_after(calibrator, test.values)
        sides = {"before": before, "after": after}
        evaluations = {
            name: evaluate(p, test.labels, metrics=_METRICS, n_boot=200) for name, p in sides.items()
        }
        audit = order_audit(test.values, calibrator.transform(test.values), input="logits")
        update(0, "Writing")
        out.mkdir(parents=True, exist_ok=True)
        write(out / "digits.npz", digits, force=True)
        metrics = {"on": "the test data", **{name: e.to_dict() for name, e in evaluations.items()}}
        calibrator.save(out / "calibrator.json", data=(cal.values, cal.labels), metrics=metrics, force=True)
        write(out / "probabilities.npz", LogitsSet(after, test.labels, "probabilities"), force=True)
        missing = _write_pictures(out, digits, calibrator, update)
    made = [out / name for name in _FILES if (out / name).exists()]
    if as_json:
        print_json(
            {"files": made, **{k: e.to_dict() for k, e in evaluations.items()}, "order": audit.to_dict()}
        )
        return
    print_evaluations(
        evaluations,
        f"A network that memorised 400 digits, {type(calibrator).__name__} fitted on {cal.n_samples} others, judged on "
        f"{test.n_samples} more (95 % intervals)",
    )
    for name, probs in sides.items():
        typer.echo(f"\nHow often it is right when it says so, {name}")
        typer.echo(_picture(bin_sums(probs, test.labels, n_bins=10)))
    changed = "none" if audit.preserved else f"{audit.all.rows_inverted:,}"
    typer.echo(f"\nClasses changed places in {changed} of the {test.n_samples:,} rows.\n\nWritten to {out}/:")
    for path in made:
        typer.echo(f"  {path.name:<18} {_TOLD[path.name]}")
    for told in missing:
        note(told)
    last = out / "report.html"
    if last.exists():
        typer.echo(f"\nOpen the report in a browser: {last.resolve().as_uri()}")


_TOLD = {
    "digits.npz": "logits and labels, to calibrate on and to test on",
    "calibrator.json": "the fitted calibrator: monocal.load, or `monocal apply`",
    "probabilities.npz": "calibrated probabilities of the test part",
    "reliability.png": "the reliability diagram",
    "report.html": "the report",
}


def _check_folder(out: Path, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: give the name of a folder with -o.")
    if out.is_dir() and not force:
        others = sorted(path.name for path in out.iterdir() if path.name not in _FILES)
        if others:
            raise InputError(
                f"{out} holds {others[0]!r}, which no demo wrote, and was left as it is: choose another folder with -o or use "
                f"--force."
            )


def _write_pictures(out: Path, digits: Any, calibrator: Any, update: Any) -> list[str]:
    """The picture and the report; what could not be made is said and does not stop the demo."""
    from ..io import atomic_path
    from ..report import write_report

    missing = []
    try:
        from ..plots import ReliabilityDisplay

        display = ReliabilityDisplay.from_estimator(calibrator, digits.test.values, digits.test.labels).plot()
        with atomic_path(out / "reliability.png", force=True) as temporary:
            display.figure_.savefig(temporary, dpi=150)
    except MissingExtraError as error:
        missing.append(f"No picture: {error}")
    write_report(
        out / "report.html",
        digits.cal,
        digits.test,
        calibrator=calibrator,
        title="Calibration of a digits classifier",
        on_step=lambda text: update(0, f"Report: {text}"),
        force=True,
    )
    return missing


def _picture(bins: BinSums, width: int = 50) -> str:
    """A reliability diagram in text: a bar as long as the accuracy, a mark at the mean confidence."""
    full, mark = ("█", "│") if "utf" in (sys.stdout.encoding or "").lower() else ("#", "|")
    lines = ["  confidence " + f"accuracy (bar) and confidence ({mark})".ljust(width + 1) + "  samples"]
    for k, weight in enumerate(bins.weight):
        if weight == 0:
            continue
        bar = (full * round(width * bins.accuracy[k])).ljust(width + 1)
        place = round(width * bins.mean_confidence[k])
        lines.append(
            f"  {bins.edges[k]:.1f} - {bins.edges[k + 1]:.1f}  {bar[:place]}{mark}{bar[place + 1 :]}  {weight:,.0f}"
        )
    return "\n".join(lines)
