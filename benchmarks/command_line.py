"""The command line of a benchmark: ``--help`` shows the text at the top of its file, and every option with its default."""

from __future__ import annotations

import argparse
from pathlib import Path

# Where the documentation's real logits lie: beside the repository.
LOGITS = Path(__file__).parents[2] / "shared" / "logits"


class _Format(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """The text as it is written, and behind the help of an option its default, where it has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        none = action.default is None or isinstance(action.default, bool) or action.default == []
        return action.help if none else super()._get_help_string(action)


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """A parser without options, from the docstring of a script."""
    return argparse.ArgumentParser(description=text, formatter_class=_Format)


def add_logits(parser: argparse.ArgumentParser) -> None:
    """The option of a folder of real logits."""
    parser.add_argument("--data", type=Path, default=LOGITS, help="folder of sets of real logits")
