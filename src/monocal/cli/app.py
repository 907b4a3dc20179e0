"""The application: its commands, and one place where errors become sentences and exit codes."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__
from ..errors import InputError, MissingExtraError, with_wording
from . import compare_report, fit_apply, judge, monitor, ship
from .output import in_words, one_line, say, set_message_file

# Codes of errors where 1 means something else.
_CODES = {"check": 2}

HELP = """Calibrated class probabilities that keep the ranking.

Give it a file of a classifier's logits and labels that it was not trained on:

\b
  monocal fit cal.npz -o cal.json                learn the correction
  monocal apply cal.json test.npz -o probs.npz   correct other logits
  monocal report cal.npz -o report.html          all of it on one page

Files: .csv, .tsv (also .csv.gz), .xlsx, .parquet, .feather, .npz, .npy, .safetensors, .h5, .pt, .json, .jsonl, .txt, pickles
of arrays, a folder of .npy files. Arrays and columns are found by name: logits or probabilities, and labels, which may be the
names of the columns; a file with logits_val, y_val, logits_test and y_test is used by its parts.

Exit codes: 0 done; 1 something is wrong with the data, the files or the values of options; 2 wrong usage; 3 done, but a check
failed (a fit that did not converge, an order that was not kept); `check` ends with 1 where calibration is off, and with 2 on
errors; 130 stopped with Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.
"""

# What one writes in Python, as one types it in a command.
_IN_COMMANDS = {
    "labels_file=": "--labels",
    "separator=": "--sep",
    "labels=": "--labels-name",
    "values=": "--logits-name",
    "first_label=": "--first-label",
    "classes=": "--classes",
    "weights=": "--weights-name",
    "kind=": "--kind",
    "class_axis=": "--class-axis",
    "ndim=": "--ndim",
    "ignore_index=": "--ignore-index",
    "part=": "--part",
    "group=": "--group",
    "groups=": "--groups",
    "context=": "--context",
    "drop_missing=True": "--drop-missing",
    "force": "--force",
    "max_iter": "--set max_iter=...",
    "tol": "--set tol=...",
    "as a second file": "with --test",
}


# What --help shows first; --more shows every option.
_READING = ("kind", "labels_file", "labels", "values")
_SHOWN = {
    "fit": ("out", "method", "context", "force", "as_json", *_READING),
    "apply": ("out", "write_as", "context", "force", "as_json", "kind", "values"),
    "evaluate": ("calibrator", "everything", "explain", "groups", "as_json", *_READING),
    "check": ("calibrator", "max_ece_excess", "as_json", *_READING),
    "compare": ("test", "only", "everything", "time_limit", "as_json", *_READING),
    "report": ("out", "test", "calibrator", "groups", "force", *_READING),
    "audit": ("calibrator", "after_kind", "as_json", *_READING),
    "review": ("calibrator", "max_error", "groups", "picture", "as_json", *_READING),
    "monitor": ("calibrator", "reference", "window", "state", "as_json", *_READING),
}


class Command(TyperCommand):
    """A command whose help shows at most ten options; ``--more`` shows the rest."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--more" in args:
            ctx.meta["more"] = True
            typer.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        shown = _SHOWN.get(str(self.name))
        hidden = 0
        records = []
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if option.param_type_name == "option" else None
            if record is None:
                continue
            if shown is None or option.name in (*shown, "help") or ctx.meta.get("more"):
                records.append(record)
            else:
                hidden += 1
        with formatter.section("Options"):
            formatter.write_dl(records)
        if hidden:
            formatter.write_paragraph()
            formatter.write_text(f"{hidden} more options: {ctx.command_path} --more")


class Commands(TyperGroup):
    """Runs a command; whatever goes wrong ends in one sentence on stderr and a code."""

    def invoke(self, ctx: Any) -> Any:
        set_message_file(None)
        with warnings.catch_warnings(), with_wording(_IN_COMMANDS):
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning  # restored by catch_warnings
            try:
                return super().invoke(ctx)
            except (typer.Exit, typer.Abort):
                raise
            except Exception as error:  # a person at a terminal gets a sentence, whatever it was
                if hasattr(error, "exit_code") or getattr(error, "errno", None) == errno.EPIPE:
                    raise  # usage errors and closed pipes are typer's
                if os.environ.get("MONOCAL_DEBUG"):
                    raise
                raise typer.Exit(_CODES.get(ctx.invoked_subcommand, 1) * _tell(error)) from error


def _show_warning(message: Warning | str, *rest: Any, **more: Any) -> None:
    say(f"warning: {in_words(one_line(message))}", fg=typer.colors.YELLOW, err=True)


def _explain(error: Exception) -> str:
    if isinstance(error, (InputError, MissingExtraError)):
        return in_words(one_line(error))
    if isinstance(error, MemoryError):
        return "There is not enough memory for this: use fewer rows, or --top-k where there are many classes."
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}; check the name, the permissions and the space left."
    if isinstance(error, OSError):
        # No file is named, so it was the terminal or a pipe: writing files has messages of its own.
        return f"What was to be printed could not be: {error.strerror or error}; check where the output goes."
    kind = type(error).__name__
    if isinstance(error, ValueError):  # of numpy and scikit-learn, about the data
        return in_words(one_line(error)) or kind
    return f"monocal failed in a way it should not ({kind}: {one_line(error)}); with MONOCAL_DEBUG=1 it shows where."


app = typer.Typer(
    cls=Commands,
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> None:
    """Run the command of this process, and end it with the command's code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # of names that are not text
    code: Any = 0
    try:
        app()
    except SystemExit as leaving:
        code = leaving.code
    except OSError as error:  # of the help, which is printed before any command begins
        code = _tell(error)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        code = code or _tell(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more when it ends
    sys.exit(code)


def _tell(error: Exception) -> int:
    say(f"error: {_explain(error)}", fg=typer.colors.RED, err=True)
    return 1


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"monocal {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Options of the command itself."""


for _command in (
    fit_apply.fit,
    fit_apply.apply,
    judge.evaluate,
    compare_report.compare,
    compare_report.report,
    judge.check,
    judge.audit,
    judge.review,
    monitor.monitor,
    ship.export,
    ship.demo,
):
    app.command(cls=Command)(_command)
