"""All calibrators by name, with what each promises and needs; and one vocabulary of names for Python and the command line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from . import calibrators as c
from .errors import InputError


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
    cls: type[c.Calibrator]
    preserves_order: bool
    preserves_top1: bool
    extras: tuple[str, ...]
    reference: str
    published: bool
    one_score: bool
    multilabel: bool
    make: Callable[[], c.Calibrator] = field(repr=False)


_ZHANG = "Zhang, Batista, Kanhere (2025), UAI"
_GUO = "Guo, Pleiss, Sun, Weinberger (2017), ICML"
_MIX = "Zhang, Kailkhura, Han (2020), ICML"
_TOMANI = "Tomani, Cremers, Buettner (2022), ECCV"
_BERTA = "Berta, Holzmüller, Jordan, Bach (2025), arXiv 2511.03685"
_RAHIMI = "Rahimi, Shaban, Cheng, Hartley, Boots (2020), NeurIPS"

# Name, how to make it, reference.
Method = tuple[str, Callable[[], c.Calibrator], str]
_METHODS: tuple[Method, ...] = (
    ("TS", c.TemperatureScaling, _GUO),
    ("TS MSE", lambda: c.TemperatureScaling(loss="mse"), _GUO),
    ("ETS", c.EnsembleTemperatureScaling, _MIX),
    ("ETS MSE", lambda: c.EnsembleTemperatureScaling(loss="mse"), _MIX),
    ("MCCT", c.MCCT, _ZHANG),
    ("MCCT-I", c.MCCTInverse, _ZHANG),
    ("Conditional MCCT", c.ConditionalMCCT, "monocal"),
    ("Structured MCCT", c.StructuredMCCT, "monocal"),
    ("SMS", c.StructuredScaling, _BERTA),
    ("SVS", lambda: c.StructuredScaling(kind="vector"), _BERTA),
    ("Stacked", c.Stacked, "monocal"),
    ("Label shift", c.LabelShift, "Saerens, Latinne, Decaestecker (2002), Neural Computation"),
    ("PTS", c.ParameterizedTemperatureScaling, _TOMANI),
    ("DIAG", c.IntraOrderPreserving, _RAHIMI),
    ("OI", lambda: c.IntraOrderPreserving(mode="oi"), _RAHIMI),
    ("OP", lambda: c.IntraOrderPreserving(mode="op"), _RAHIMI),
    ("Isotonic", c.IsotonicCalibration, _MIX),
    ("Isotonic OvR", lambda: c.IsotonicCalibration(mode="one_vs_rest"), "Zadrozny, Elkan (2002), KDD"),
    ("VS", c.VectorScaling, _GUO),
    ("MS", c.MatrixScaling, _GUO),
    (
        "Dirichlet",
        c.DirichletCalibration,
        "Kull, Perello-Nieto, Kängsepp, Silva Filho, Song, Flach (2019), NeurIPS",
    ),
    ("HB", c.HistogramBinning, "Zadrozny, Elkan (2001), ICML"),
    ("HB equal mass", lambda: c.HistogramBinning(strategy="mass"), "Zadrozny, Elkan (2001), ICML"),
    ("BBQ", c.BayesianBinning, "Naeini, Cooper, Hauskrecht (2015), AAAI"),
    ("Scaling-binning", c.ScalingBinning, "Kumar, Liang, Ma (2019), NeurIPS"),
    (
        "Spline",
        c.SplineCalibration,
        "Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu, Hartley (2021), ICLR",
    ),
    ("VS published", c.VectorScaling.as_published, _GUO),
    ("MS published", c.MatrixScaling.as_published, _GUO),
    ("ETS published", c.EnsembleTemperatureScaling.as_published, _MIX),
    ("ETS MSE published", lambda: c.EnsembleTemperatureScaling.as_published("ETS MSE"), _MIX),
    ("PTS published", c.ParameterizedTemperatureScaling.as_published, _TOMANI),
    ("MCCT published", c.MCCT.as_published, _ZHANG),
    ("MCCT-I published", c.MCCTInverse.as_published, _ZHANG),
)
_METHODS_OF_ONE_SCORE: tuple[Method, ...] = (
    ("Binary MCCT", c.BinaryMCCT, "monocal"),
    ("Platt", c.PlattScaling, "Platt (1999), Advances in Large Margin Classifiers"),
    ("Beta", c.BetaCalibration, "Kull, Silva Filho, Flach (2017), AISTATS"),
    ("Venn-Abers", c.VennAbers, "Vovk, Petej (2014), UAI"),
)
_METHODS_OF_LABELS: tuple[Method, ...] = (("Multilabel MCCT", c.MultilabelMCCT, "monocal"),)


def all_calibrators(*, one_score: bool = False, multilabel: bool = False) -> list[CalibratorInfo]:
    """Every method, with its guarantees, the extras it needs, and where it comes from.

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
    >>> [c.name for c in mc.all_calibrators() if c.preserves_order and not c.extras][:4]
    ['TS', 'TS MSE', 'ETS', 'ETS MSE']
    """
    one_score = one_score and not multilabel
    table = _METHODS_OF_LABELS if multilabel else _METHODS_OF_ONE_SCORE if one_score else _METHODS
    return [
        CalibratorInfo(
            name=name,
            cls=type(calibrator),
            preserves_order=calibrator.preserves_order,
            preserves_top1=calibrator.preserves_top1,
            extras=calibrator.extras,
            reference=reference,
            published=name.endswith("published"),
            one_score=one_score,
            multilabel=multilabel,
            make=make,
        )
        for name, make, reference in table
        for calibrator in [make()]
    ]


# Beginnings that mean one method, whatever else may begin so one day.
_SHORT = {
    "binary": "binary-mcct",
    "conditional": "conditional-mcct",
    "structured": "structured-mcct",
    "temperature": "temperature-scaling",
}


def methods() -> dict[str, c.Calibrator]:
    """Every method by the name to ask for it, not fitted: ``temperature-scaling`` is `TemperatureScaling()`.

    Classes under their own names, then the names of `all_calibrators`: ``ts-mse``, ``isotonic-ovr``, ...
    """
    listed = all_calibrators() + all_calibrators(one_score=True)
    own = {_hyphenated(info.cls.__name__): info.cls() for info in listed if not info.published}
    return own | {info.name.lower().replace(" ", "-"): info.make() for info in listed}


def find_method(name: str) -> tuple[str, c.Calibrator]:
    """The name as listed and a new calibrator, for a name whole or begun, with or without hyphens and capitals."""
    known = methods()
    plain = letters(_SHORT.get(letters(name), name))
    same = [listed for listed in known if letters(listed) == plain]
    begun = [listed for listed in known if plain and letters(listed).startswith(plain)]
    if same or len({repr(known[listed]) for listed in begun}) == 1:
        listed = (same or begun)[0]
        return listed, known[listed]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    perhaps = f": did you mean {near[0]}?" if near else "."
    classes = dict.fromkeys(_hyphenated(type(method).__name__) for method in known.values())
    raise InputError(f"There is no method {name!r}{perhaps} The methods are {', '.join(classes)}.")


def letters(name: str) -> str:
    """A name without hyphens, underscores, spaces and capitals."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _hyphenated(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()
