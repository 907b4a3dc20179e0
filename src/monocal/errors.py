"""Exceptions, warnings, and how a missing optional package is reported.

Every message says which argument, what was expected, what came, and what to do.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from types import ModuleType

_PACKAGE = os.path.dirname(__file__) + os.sep


class InputError(ValueError):
    """An argument is not what it must be; the message says which, how, and what to do."""


class InputTypeError(InputError, TypeError):
    """An argument holds things of another kind than it must."""


class FileError(InputError):
    """A file cannot be read as what it was said to be."""


class MissingExtraError(ImportError):
    """An optional package is not installed; the message names the command that installs it."""


class OrderWarning(UserWarning):
    """The method at hand does not guarantee the order of the classes."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the caller's own line: the nearest one outside this package that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def require(module: str, extra: str) -> ModuleType:
    """Import an optional ``module``, or say which extra of monocal brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{package} is needed for this and is not installed: run  pip install 'monocal[{extra}]'"
        ) from error
