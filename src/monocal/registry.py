"""All calibrators by name, with what each promises and needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .baselines.affine import DirichletCalibration, MatrixScaling, VectorScaling
from .baselines.bayesian_binning import BayesianBinning
from .baselines.ensemble_temperature import EnsembleTemperatureScaling
from .baselines.histogram import HistogramBinning
from .baselines.intra_order_preserving import IntraOrderPreserving
from .baselines.isotonic import IsotonicCalibration
from .baselines.parameterized_temperature import ParameterizedTemperatureScaling
from .baselines.scaling_binning import ScalingBinning
from .baselines.spline import SplineCalibration
from .calibration.base import Calibrator
from .calibration.conditional import ConditionalMCCT
from .calibration.mcct import MCCT, MCCTInverse
from .calibration.temperature import TemperatureScaling
from .structured import LabelShift, Stacked, StructuredMCCT, StructuredScaling


@dataclass(frozen=True)
class CalibratorInfo:
    """A method as `calibrators` lists it.

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
    published : bool
        Run as in the paper that compared it, for reproduction; not the best this method can do.

    Examples
    --------
    >>> import monocal as mc
    >>> info = next(one for one in mc.calibrators() if one.name == "MCCT")
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
_NEED_TORCH = (ParameterizedTemperatureScaling, IntraOrderPreserving)


def calibrators() -> list[CalibratorInfo]:
    """Every method, with its guarantees, the extras it needs, and where it comes from.

    Returns
    -------
    list of CalibratorInfo

    Examples
    --------
    >>> import monocal as mc
    >>> [c.name for c in mc.calibrators() if c.preserves_order and not c.extras][:4]
    ['TS', 'TS MSE', 'ETS', 'ETS MSE']
    """
    found = []
    for name, make, reference in _METHODS:
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
                _make=make,
            )
        )
    return found
