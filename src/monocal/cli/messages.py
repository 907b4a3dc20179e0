"""The library's messages, in the words of a person who has a file and types commands.

In Python the data are ``X``, ``y`` and ``sample_weight``; here they are the file that was read last.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from pathlib import Path

_FILE: ContextVar[str] = ContextVar("file", default="the data")
# As a word by itself: not in quotes, in a path, or in a piece of Python.
_WORDS = tuple(
    (re.compile(rf"(?<![\w'\"/.=-]){name}(?![\w'\"/=(\[-]|\.\w)"), words)
    for name, words in (
        ("X", "{file}"),
        ("y", "the labels of {file}"),
        ("sample_weight", "the weights of {file}"),
    )
)
_PYTHON = re.compile(r"\binput='(\w+)'| \(n_features = \d+\)")


def speak_of(path: Path | None) -> None:
    """The file that messages are about, from now on."""
    _FILE.set("the data" if path is None else str(path))


def in_words(message: str) -> str:
    """A message without the names of arguments in Python."""
    for name, words in _WORDS:
        told = words.format(file=_FILE.get()).replace("\\", r"\\")
        message = name.sub(told, message)
    return _PYTHON.sub(lambda found: f"--kind {found[1]}" if found[1] else "", message)
