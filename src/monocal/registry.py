"""All calibrators by name, with what their classes promise and need; one vocabulary of names for Python and the command line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from .calibrators import CALIBRATORS, Calibrator
from .calibrators.multilabel import MultilabelMCCT
from .calibrators.score_rows import ScoreCalibrator
from .errors import InputError

# Names of persons in the names of classes.
_PEOPLE = ("Venn", "Abers", "Platt", "Bayesian", "Dirichlet")
# Beginnings that mean one method, whatever else may begin so one day.
_SHORT = {
    "sigmoid": "plattscaling",  # as scikit-learn calls it
    "logistic": "plattscaling",
    "binary": "binarymcct",
    "conditional": "conditionalmcct",
    "structured": "structuredmcct",
    "temperature": "temperaturescaling",
}


@dataclass(frozen=True)
class CalibratorInfo:
    """A method as `all_calibrators` lists it.

    Attributes
    ----------
    name : str
    cls : type
    preserves_order : bool
        Whether the order of the classes within every row is guaranteed.
    preserves_top1 : bool
        Whether the most probable class is guaranteed to stay.
    extras : tuple of str
        Extras of monocal that fitting needs.
    reference : str
        From the class's docstring.
    one_score : bool
        Whether it calibrates one score of two classes and keeps the order of the rows, rather than rows of classes.
    multilabel : bool
        Whether it calibrates a score for each of many labels, any number of which a row may have.
    published : bool
        Run as in the paper that compared it, for reproduction; not the best this method can do.
    make : callable
        ``make()`` gives a new calibrator that is not fitted.

    Examples
    --------
    >>> import monocal as mc
    >>> info = next(one for one in mc.all_calibrators() if one.name == "MCCT")
    >>> info.preserves_order, info.extras
    (True, ())
    >>> info.make()
    MCCT()
    """

    name: str
    cls: type[Calibrator]
    preserves_order: bool
    preserves_top1: bool
    extras: tuple[str, ...]
    reference: str
    published: bool
    one_score: bool
    multilabel: bool
    make: Callable[[], Calibrator] = field(repr=False)


def all_calibrators(*, one_score: bool = False, multilabel: bool = False) -> list[CalibratorInfo]:
    """Every method, with its guarantees, the extras it needs, and where it comes from: those that keep the order first.

    Parameters
    ----------
    one_score : bool
        Those that calibrate one score of two classes, in place of those for rows of any number of classes.
    multilabel : bool
        Those that calibrate a score for each of many labels.

    Returns
    -------
    list of CalibratorInfo

    Examples
    --------
    >>> import monocal as mc
    >>> [c.name for c in mc.all_calibrators() if c.preserves_order and not c.extras][:3]
    ['Conditional MCCT', 'ETS', 'ETS MSE']
    """
    listed = [
        info
        for cls in CALIBRATORS.values()
        for info in _listed(cls)
        if info.multilabel == multilabel and (multilabel or info.one_score == one_score)
    ]
    return sorted(listed, key=lambda info: (info.published, not info.preserves_order))


def _listed(cls: type[Calibrator]) -> list[CalibratorInfo]:
    title = method_name(cls)
    variants = vars(cls).get("_variants", {title[0].upper() + title[1:]: {}})
    return [
        CalibratorInfo(
            name=name,
            cls=cls,
            preserves_order=calibrator.preserves_order,
            preserves_top1=calibrator.preserves_top1,
            extras=cls.extras,
            reference=_reference(cls),
            published=name.endswith("published"),
            one_score=issubclass(cls, ScoreCalibrator) and cls is not MultilabelMCCT,
            multilabel=cls is MultilabelMCCT,
            make=partial(cls, **parameters),
        )
        for name, parameters in variants.items()
        for calibrator in [cls(**parameters)]
    ]


def _reference(cls: type) -> str:
    """The references in the docstring of a class or of the nearest base that has some."""
    for base in cls.__mro__:
        section = re.search(r"References\n *-+\n(.*?)\n\n", base.__doc__ or "", re.DOTALL)
        if section:
            return " ".join(section[1].split())
    return "monocal"


def method_name(kind: type) -> str:
    """``TemperatureScaling`` as temperature scaling, ``ConditionalMCCT`` as conditional MCCT."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[0-9]+", kind.__name__)
    return " ".join(part if part.isupper() or part in _PEOPLE else part.lower() for part in parts)


def _hyphenated(name: str) -> str:
    return name.lower().replace(" ", "-")


def methods() -> dict[str, Calibrator]:
    """Every method by the name to ask for it, not fitted: ``temperature-scaling`` is `TemperatureScaling()`.

    Classes under their own names, then the names of `all_calibrators`: ``ts-mse``, ``isotonic-ovr``, ...
    """
    listed = all_calibrators() + all_calibrators(one_score=True)
    own = {_hyphenated(method_name(info.cls)): info.cls() for info in listed if not info.published}
    return own | {_hyphenated(info.name): info.make() for info in listed}


def find_method(name: str) -> tuple[str, Calibrator]:
    """The name as listed and a new calibrator, for a name whole or begun, with or without hyphens and capitals."""
    known = methods()
    plain = _SHORT.get(letters(name), letters(name))
    begun = [listed for listed in known if plain and letters(listed).startswith(plain)]
    chosen = [listed for listed in begun if letters(listed) == plain] or begun
    if chosen and len({repr(known[listed]) for listed in chosen}) == 1:
        return chosen[0], known[chosen[0]]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    perhaps = f": did you mean {near[0]}?" if near else "."
    classes = dict.fromkeys(_hyphenated(method_name(type(method))) for method in known.values())
    raise InputError(f"There is no method {name!r}{perhaps} The methods are {', '.join(classes)}.")


def letters(name: str) -> str:
    """A name without hyphens, underscores, spaces and capitals."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
