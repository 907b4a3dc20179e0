"""Put what a benchmark measured where the documentation shows it: between ``<!-- name -->`` and ``<!-- /name -->``.

python benchmarks/pages.py docs/performance.md scaling FILE      what was measured on another machine
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterable
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Where the documentation's real logits lie: in the folder above the repository.
LOGITS = ROOT.parent / "shared" / "logits"


class _Format(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """The text as it is written, and after the help of an option its default, where it has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        none = action.default is None or isinstance(action.default, bool) or action.default == []
        return action.help if none else super()._get_help_string(action)


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """The command line of a benchmark, without options: ``--help`` shows the docstring of its file."""
    return argparse.ArgumentParser(description=text, formatter_class=_Format)


def add_logits(parser: argparse.ArgumentParser) -> None:
    """The option of a folder of real logits."""
    parser.add_argument("--data", type=Path, default=LOGITS, help="folder of sets of real logits")


def write_into(page: str, name: str, text: str, keys: int = 0) -> None:
    """Replace the marked part of a page, given relative to the repository; with ``keys`` of a table only the lines that begin
    with the same so many cells."""
    path = ROOT / page
    before, mark, rest = path.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not mark or not end:
        raise SystemExit(f"{page} has no part marked {name!r}.")
    if keys:
        old = rest.partition(end)[0]
        new = {_cells(line)[:keys]: line for line in text.strip().splitlines()}
        text = "\n".join(new.pop(_cells(line)[:keys], line) for line in old.splitlines())
        if new:
            raise SystemExit(f"{page} has no line that begins with {' | '.join(next(iter(new)))!r}.")
    path.write_text(before + mark + text.strip() + "\n" + end + after, encoding="utf-8")


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def table(header: Iterable[str], rows: Iterable[Iterable[str]], words: int = 1) -> str:
    """Markdown; the first ``words`` columns are left-aligned, the others are numbers."""
    head = list(header)
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *rows])


def setting(*packages: str) -> str:
    """Date, machine and versions."""
    there = [p for p in packages if find_spec(p.replace("scikit-learn", "sklearn"))]
    versions = ", ".join(f"{p} {'.'.join(version(p).split('.')[:2])}" for p in there)
    return (
        f"{date.today()}, {_processor()}, Python {'.'.join(platform.python_version_tuple()[:2])}, {versions}."
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    if not names:
        return platform.processor() or platform.machine()
    wide = any(line.startswith("flags") and " avx512f " in f"{line} " for line in lines)
    return f"{len(names)} cores of an {names[0]} processor ({platform.machine()}{' with AVX-512' if wide else ''})"


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("page", help="relative to the repository")
    parser.add_argument("name", help="of the marked part")
    parser.add_argument("file", type=Path, help="what the part shall hold")
    options = parser.parse_args()
    write_into(options.page, options.name, options.file.read_text(encoding="utf-8"))
