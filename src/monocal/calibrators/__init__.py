"""Every calibrator, one family a file: those that keep the order of classes or of rows, and those to compare with.

A concrete subclass of `Calibrator` with a public name, in any file of this folder, is public here and in `monocal`, and is listed
by `monocal.all_calibrators`, by the command line and by comparisons.
"""

from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules

from .base import Calibrator
from .binary_map import ScoreMap

CALIBRATORS: dict[str, type[Calibrator]] = {
    name: kind
    for file in iter_modules(__path__)
    for module in [import_module(f"{__name__}.{file.name}")]
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Calibrator) and kind.__module__ == module.__name__
    if not isabstract(kind) and not name.startswith("_")
}
globals().update(CALIBRATORS)
__all__ = ["Calibrator", "ScoreMap"]
__all__ += CALIBRATORS
