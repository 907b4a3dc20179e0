"""Exceptions, warnings, and how a missing optional package is reported.

Every message says which argument, what was expected, what came, and what to do. It names an argument as the caller writes it
(`wording`): ``labels=`` in Python is ``--labels-name`` on the command line.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE = os.path.dirname(__file__) + os.sep
# Options of the command line that are not called as the argument in Python.
_FLAGS = {
    "labels_file": "labels",
    "labels": "labels-name",
    "values": "logits-name",
    "weights": "weights-name",
    "separator": "sep",
}

_COMMAND_LINE = ContextVar("command_line", default=False)
_PART_OF_A_FIT = ContextVar("part_of_a_fit", default=False)


@contextmanager
def _within(flag: ContextVar[bool]) -> Iterator[None]:
    before = flag.set(True)
    try:
        yield
    finally:
        flag.reset(before)


# Within this context, messages name options of the command line.
on_the_command_line = partial(_within, _COMMAND_LINE)
# Within this context, what a fitted map leaves wrong is no concern of the user's: it is one part of another map.
part_of_a_fit = partial(_within, _PART_OF_A_FIT)


def wording(python: str, value: object = None) -> str:
    """What a caller writes for an argument, which ends with ``=`` in Python where it takes a value."""
    name = python.partition("=")[0]
    if _COMMAND_LINE.get():
        flag = "--" + _FLAGS.get(name, name.replace("_", "-"))
        return flag if value is None else f"{flag} {value}"
    return python if value is None else f"{name}={value!r}"


def in_part_of_a_fit() -> bool:
    """Whether the caller is within `part_of_a_fit`."""
    return _PART_OF_A_FIT.get()


class InputError(ValueError):
    """An argument is not what it must be; the message says which, how, and what to do.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.evaluate([[0.9, 0.1]], [2])
    Traceback (most recent call last):
        ...
    monocal.errors.InputError: labels: label 2 in row 0 is not one of the 2 classes 0..1 that probs has columns for ...
    """


class InputTypeError(InputError, TypeError):
    """An argument holds things of another kind than it must.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.errors import InputTypeError
    >>> issubclass(InputTypeError, mc.InputError), issubclass(InputTypeError, TypeError)
    (True, True)
    """


class FileError(InputError):
    """A file cannot be read as what its name or an argument says it is.

    Examples
    --------
    >>> import monocal as mc
    >>> mc.load("nowhere.json")
    Traceback (most recent call last):
        ...
    monocal.errors.FileError: There is no file nowhere.json: check the name and the folder.
    """


class KindError(FileError):
    """A file holds logits where probabilities were asked for, or the reverse."""


class MissingExtraError(ImportError):
    """An optional package is not installed; the message names the command that installs it.

    Examples
    --------
    >>> import monocal as mc
    >>> issubclass(mc.MissingExtraError, ImportError)
    True
    """


class OrderWarning(UserWarning):
    """The method at hand does not guarantee the order of the classes.

    Examples
    --------
    >>> import warnings
    >>> import monocal as mc
    >>> data = mc.data.synthetic(200, 3)
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     cal = mc.MCCT.as_published().fit(data.values, data.labels)
    >>> [warning.category.__name__ for warning in caught]
    ['OrderWarning']
    """


class CalibrationWarning(UserWarning):
    """A fitted map leaves a predicted class, or the rate of a class, wrong beyond chance; or it makes held-out rows worse.

    A map that keeps the order may not be able to do better; the message names what helps.

    Examples
    --------
    >>> import warnings
    >>> import monocal as mc
    >>> data = mc.data.synthetic(4000, 4)
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     cal = mc.ConditionalMCCT().fit(data.values - [0, 0, 0, 8], data.labels)
    >>> [warning.category.__name__ for warning in caught]
    ['CalibrationWarning']
    """


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the caller's own line: the nearest one outside this package that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def require(module: str, extra: str = "") -> ModuleType:
    """Import an optional ``module``, or say which extra of monocal brings it, if one does."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{package} is needed for this and is not installed: run  pip install "
            + (f"'monocal[{extra}]'" if extra else package)
        ) from error
