"""JSON from a file:  ``.json`` is one value or a list of them, ``.jsonl`` one value per line (packed with gzip, too)."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

from monocal.errors import FileError
from monocal.io.sources import as_path, check_magic, extension, reading


def read_json(path: str | os.PathLike[str]) -> list[Any]:
    """The values of a JSON file; a list in a ``.json`` file counts as its members."""
    path = as_path(path)
    what = "a JSON file"
    with reading(path, what):
        path.stat()
    check_magic(path, what, *([b"\x1f\x8b"] if extension(path).endswith(".gz") else []))
    with reading(path, what):
        opener = gzip.open if extension(path).endswith(".gz") else open
        with opener(path, "rt", encoding="utf-8-sig") as file:
            text = file.read()
    if extension(path).startswith(".jsonl") or extension(path).startswith(".ndjson"):
        return [_parsed(line, path, i) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    found = _parsed(text, path)
    return found if isinstance(found, list) else [found]


def _parsed(text: str, path: Path, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = "" if line is None else f", line {line},"
        raise FileError(
            f"{path}{where} is no JSON ({str(error)[:100]}): write it again; a value in each line needs the ending .jsonl."
        ) from error
