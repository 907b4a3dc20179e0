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
from ..errors import FileError, MissingExtraError, on_the_command_line
from . import compare_report, fit_apply, judge, monitor, ship
from .output import message_file, one_line, say

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


class Command(TyperCommand):
    """A command whose ``--more`` shows the options that its ``--help`` hides."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--more" in args:
            for option in self.params:
                option.hidden = False  # type: ignore[attr-defined]  # of arguments it has no meaning
            self.epilog = None
            typer.echo(self.get_help(ctx))
            ctx.exit()
        return super().parse_args(ctx, args)


class Commands(TyperGroup):
    """Runs a command; whatever goes wrong ends in one sentence on stderr and a code."""

    def invoke(self, ctx: Any) -> Any:
        message_file.set(None)
        with warnings.catch_warnings(), on_the_command_line():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show_warning  # restored by catch_warnings
            try:
                return super().invoke(ctx)
            except (typer.Exit, typer.Abort):
                raise
            except Exception as error:  # a person at a terminal gets a sentence, whatever it was
                usage_or_pipe = hasattr(error, "exit_code") or getattr(error, "errno", None) == errno.EPIPE
                if usage_or_pipe or os.environ.get("MONOCAL_DEBUG"):
                    raise
                _tell(error)
                raise typer.Exit(2 if ctx.invoked_subcommand == "check" else 1) from error


def _show_warning(message: Warning | str, *rest: Any, **more: Any) -> None:
    say(f"warning: {_with_file(message)}", fg=typer.colors.YELLOW, err=True)


def _with_file(message: object) -> str:
    """A message of the library, which may not know the file that its arrays come from."""
    text, file = one_line(message), str(message_file.get() or "")
    return text if file in text else f"{file}: {text}"


def _explain(error: Exception) -> str:
    if isinstance(error, (FileError, MissingExtraError)):
        return one_line(error)
    if isinstance(error, ValueError) and str(error):  # also of numpy and scikit-learn, about the data
        return _with_file(error)
    if isinstance(error, MemoryError):
        return "There is not enough memory for this: use fewer rows, or --top-k where there are many classes."
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}; check the name, the permissions and the space left."
    if isinstance(error, OSError):
        # No file is named, so it was the terminal or a pipe: writing files has messages of its own.
        return f"What was to be printed could not be: {error.strerror or error}; check where the output goes."
    what = f"{type(error).__name__}: {one_line(error)}"
    return f"monocal failed in a way it should not ({what}); with MONOCAL_DEBUG=1 it shows where."


def _tell(error: Exception) -> None:
    say(f"error: {_explain(error)}", fg=typer.colors.RED, err=True)


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
        _tell(error)
        code = 1
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if not code:
            _tell(error)
        code = code or 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more when it ends
    sys.exit(code)


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
    _reads = "kind" in _command.__annotations__
    app.command(cls=Command, epilog=f"More options: monocal {_command.__name__} --more" if _reads else None)(
        _command
    )
