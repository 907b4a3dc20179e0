"""All calibrators by name, with what each promises and needs; and one vocabulary of names for Python and the command line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from .calibrators import (
    BetaCalibration,
    BinaryMCCT,
    LabelShift,
    MultilabelMCCT,
    PlattScaling,
    Stacked,
    StructuredMCCT,
    StructuredScaling,
    VennAbers,
)
from .calibrators.affine import DirichletCalibration, MatrixScaling, VectorScaling
from .calibrators.base import Calibrator
from .calibrators.bayesian_binning import BayesianBinning
from .calibrators.conditional import ConditionalMCCT
from .calibrators.ensemble_temperature import EnsembleTemperatureScaling
from .calibrators.histogram import HistogramBinning
from .calibrators.intra_order_preserving import IntraOrderPreserving
from .calibrators.isotonic import IsotonicCalibration
from .calibrators.mcct import MCCT, MCCTInverse
from .calibrators.parameterized_temperature import ParameterizedTemperatureScaling
from .calibrators.scaling_binning import ScalingBinning
from .calibrators.spline import SplineCalibration
from .calibrators.temperature import TemperatureScaling
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
    _make: Callable[[], Calibrator] = field(repr=False)

    def make(self) -> Calibrator:
        """A new calibrator that is not fitted."""
        return self._make()


_ZHANG = "Zhang, Batista, Kanhere (2025), UAI"
_GUO = "Guo, Pleiss, Sun, Weinberger (2017), ICML"
_MIX = "Zhang, Kailkhura, Han (2020), ICML"
_TOMANI = "Tomani, Cremers, Buettner (2022), ECCV"
_BERTA = "Berta, Holzmüller, Jordan, Bach (2025), arXiv 2511.03685"
_RAHIMI = "Rahimi, Shaban, Cheng, Hartley, Boots (2020), NeurIPS"

# name, how to make it, reference
_METHODS: tuple[tuple[str, Callable[[], Calibrator], str], ...] = (
    ("TS", TemperatureScaling, _GUO),
    ("TS MSE", lambda: TemperatureScaling(loss="mse"), _GUO),
    ("ETS", EnsembleTemperatureScaling, _MIX),
    ("ETS MSE", lambda: EnsembleTemperatureScaling(loss="mse"), _MIX),
    ("MCCT", MCCT, _ZHANG),
    ("MCCT-I", MCCTInverse, _ZHANG),
    ("Conditional MCCT", ConditionalMCCT, "monocal"),
    ("Structured MCCT", StructuredMCCT, "monocal"),
    ("SMS", StructuredScaling, _BERTA),
    ("SVS", lambda: StructuredScaling(kind="vector"), _BERTA),
    ("Stacked", Stacked, "monocal"),
    ("Label shift", LabelShift, "Saerens, Latinne, Decaestecker (2002), Neural Computation"),
    ("PTS", ParameterizedTemperatureScaling, _TOMANI),
    ("DIAG", IntraOrderPreserving, _RAHIMI),
    ("OI", lambda: IntraOrderPreserving(mode="oi"), _RAHIMI),
    ("OP", lambda: IntraOrderPreserving(mode="op"), _RAHIMI),
    ("Isotonic", IsotonicCalibration, _MIX),
    ("Isotonic OvR", lambda: IsotonicCalibration(mode="one_vs_rest"), "Zadrozny, Elkan (2002), KDD"),
    ("VS", VectorScaling, _GUO),
    ("MS", MatrixScaling, _GUO),
    (
        "Dirichlet",
        DirichletCalibration,
        "Kull, Perello-Nieto, Kängsepp, Silva Filho, Song, Flach (2019), NeurIPS",
    ),
    ("HB", HistogramBinning, "Zadrozny, Elkan (2001), ICML"),
    ("HB equal mass", lambda: HistogramBinning(strategy="mass"), "Zadrozny, Elkan (2001), ICML"),
    ("BBQ", BayesianBinning, "Naeini, Cooper, Hauskrecht (2015), AAAI"),
    ("Scaling-binning", ScalingBinning, "Kumar, Liang, Ma (2019), NeurIPS"),
    (
        "Spline",
        SplineCalibration,
        "Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu, Hartley (2021), ICLR",
    ),
    ("VS published", VectorScaling.as_published, _GUO),
    ("MS published", MatrixScaling.as_published, _GUO),
    ("ETS published", EnsembleTemperatureScaling.as_published, _MIX),
    ("ETS MSE published", lambda: EnsembleTemperatureScaling.as_published("ETS MSE"), _MIX),
    ("PTS published", ParameterizedTemperatureScaling.as_published, _TOMANI),
    ("MCCT published", MCCT.as_published, _ZHANG),
    ("MCCT-I published", MCCTInverse.as_published, _ZHANG),
)
_ONE_SCORE: tuple[tuple[str, Callable[[], Calibrator], str], ...] = (
    ("Binary MCCT", BinaryMCCT, "monocal"),
    ("Platt", PlattScaling, "Platt (1999), Advances in Large Margin Classifiers"),
    ("Beta", BetaCalibration, "Kull, Silva Filho, Flach (2017), AISTATS"),
    ("Venn-Abers", VennAbers, "Vovk, Petej (2014), UAI"),
)
_MULTILABEL: tuple[tuple[str, Callable[[], Calibrator], str], ...] = (
    ("Multilabel MCCT", MultilabelMCCT, "monocal"),
)
_NEED_TORCH = (ParameterizedTemperatureScaling, IntraOrderPreserving)


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
    found = []
    table = _MULTILABEL if multilabel else _ONE_SCORE if one_score else _METHODS
    for name, make, reference in table:
        made = make()
        found.append(
            CalibratorInfo(
                name=name,
                cls=type(made),
                preserves_order=made.preserves_order,
                preserves_top1=made.preserves_top1,
                extras=("torch",) if isinstance(made, _NEED_TORCH) else (),
                reference=reference,
                published=name.endswith("published"),
                one_score=one_score and not multilabel,
                multilabel=multilabel,
                _make=make,
            )
        )
    return found


# Beginnings that mean one method, whatever else may begin so one day.
_SHORT = {
    "binary": "binary-mcct",
    "conditional": "conditional-mcct",
    "structured": "structured-mcct",
    "temperature": "temperature-scaling",
}


def methods() -> dict[str, Calibrator]:
    """Every method by the name to ask for it, not fitted: ``temperature-scaling`` is `TemperatureScaling()`.

    Classes under their own names, then the names of `all_calibrators`: ``ts-mse``, ``isotonic-ovr``, ...
    """
    listed = all_calibrators() + all_calibrators(one_score=True)
    own = {_hyphenated(info.cls.__name__): info.cls() for info in listed if not info.published}
    return own | {info.name.lower().replace(" ", "-"): info.make() for info in listed}


def find_method(name: str) -> tuple[str, Calibrator]:
    """The name as listed and a new calibrator, for a name whole or begun, with or without hyphens and capitals."""
    known = methods()
    plain = letters(_SHORT.get(letters(name), name))
    same = [spelt for spelt in known if letters(spelt) == plain]
    begun = [spelt for spelt in known if plain and letters(spelt).startswith(plain)]
    if same or len({repr(known[spelt]) for spelt in begun}) == 1:
        spelt = (same or begun)[0]
        return spelt, known[spelt]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    perhaps = f" (perhaps {near[0]})" if near else ""
    raise InputError(f"There is no method {name!r}{perhaps}: choose one of {', '.join(known)}.")


def letters(name: str) -> str:
    """A name without hyphens, underscores, spaces and capitals."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _hyphenated(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()
