"""How each method of each library is called, and which of them stand against each other.

All are given the same float32 logits in the form they take (logits, probabilities, tensors), prepared before the clock starts,
and asked for the probabilities of all classes. Settings are the libraries' defaults, but for Dirichlet calibration, where all
minimise the objective of monocal's default, since the others have no penalty to start with.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any

import numpy as np

from . import optimum

MANY = 5000  # classes
PAIRS_OF_CLASSES = "a weight for every pair of classes"
ONE_VS_REST = "a curve for every class, and most classes have no row"


@dataclass(frozen=True)
class Method:
    """A way to calibrate.

    Attributes
    ----------
    fit : callable (given, labels) -> model
    predict : callable (model, given) -> probabilities (n, m)
    prepare : callable (logits) -> given
    excess : callable (model, logits, given, labels) -> float, optional
        By how much the method's own objective is above its minimum, relative to it. None: not convex, no objective, or a
        certificate.
    solution : callable (model) -> solution, optional
        Where the fit comes with a certificate: ``kkt``, the violation of the optimality conditions, and ``converged``.
    not_for_many : str
        Why it makes no sense for thousands of classes, or nothing.
    """

    fit: Callable[[Any, np.ndarray], Any]
    predict: Callable[[Any, Any], np.ndarray]
    prepare: Callable[[np.ndarray], Any] = lambda logits: logits
    excess: Callable[[Any, np.ndarray, Any, np.ndarray], float] | None = None
    not_for_many: str = ""
    solution: Callable[[Any], Any] | None = None

    def left_out(self, m: int) -> str:
        return self.not_for_many if m > MANY else ""


def probabilities(logits: np.ndarray) -> np.ndarray:
    from scipy.special import softmax

    return softmax(logits, axis=1)


def at_scale(scale: Callable[[Any], float]) -> Callable[..., float]:
    """Excess of a temperature scaling whose ``1 / T`` is ``scale(model)``."""
    return lambda model, z, inputs, y: optimum.temperature_excess(z, y, scale(model))


def affine(problem: Callable[..., optimum.Affine]) -> Callable[..., float]:
    """Excess of the affine map described by ``problem(model, logits, given, labels)``."""
    return lambda model, z, inputs, y: optimum.affine_excess(problem(model, z, inputs, y), y)


# monocal


def monocal(name: str, excess: Any = None, not_for_many: str = "", **settings: Any) -> Method:
    def fit(logits: np.ndarray, labels: np.ndarray) -> Any:
        import monocal as mc

        return getattr(mc, name)(**settings).fit(logits, labels)

    return Method(fit, lambda model, z: model.predict_proba(z), excess=excess, not_for_many=not_for_many)


def certified(name: str, not_for_many: str = "", **settings: Any) -> Method:
    """A map whose fit is certified."""
    return replace(monocal(name, None, not_for_many, **settings), solution=lambda model: model.solution_)


# scikit-learn


def sklearn(method: str, excess: Any = None, not_for_many: str = "") -> Method:
    def fit(logits: np.ndarray, labels: np.ndarray) -> Any:
        from sklearn_peer import calibrated

        return calibrated(logits, labels, method)

    return Method(fit, lambda model, z: model.predict_proba(z), excess=excess, not_for_many=not_for_many)


def sklearn_scale(model: Any) -> float:
    return float(model.calibrated_classifiers_[0].calibrators[0].beta_)


# probmetrics


def probmetrics(name: str, excess: Any = None, not_for_many: str = "") -> Method:
    """Those of its methods that take probabilities only."""

    def fit(p: np.ndarray, labels: np.ndarray) -> Any:
        from probmetrics import calibrators

        return getattr(calibrators, name)().fit(p, labels)

    return Method(fit, lambda model, p: model.predict_proba(p), probabilities, excess, not_for_many)


def probmetrics_temperature() -> Method:
    def wrapped(logits: np.ndarray) -> Any:
        import torch
        from probmetrics.distributions import CategoricalLogits

        return CategoricalLogits(torch.from_numpy(logits))

    def fit(logits: np.ndarray, labels: np.ndarray) -> Any:
        import torch
        from probmetrics.calibrators import TemperatureScalingCalibrator

        return TemperatureScalingCalibrator().fit_torch(wrapped(logits), torch.from_numpy(labels))

    return Method(
        fit,
        lambda model, z: model.predict_proba_torch(wrapped(z)).get_probs().numpy(),
        excess=at_scale(lambda model: float(model.invtemp_)),
    )


def probmetrics_spline() -> Method:
    """A spline for the top probability, as published; the other classes share what it leaves."""

    def fit(p: np.ndarray, labels: np.ndarray) -> Any:
        from probmetrics.calibrators import CDFSplineCalibrator

        return CDFSplineCalibrator().fit(p.max(axis=1), (p.argmax(axis=1) == labels).astype(np.int64))

    def predict(model: Any, p: np.ndarray) -> np.ndarray:
        top = p.max(axis=1)
        q = np.clip(model.predict_proba(top)[:, 1], 1e-6, 1.0 - 1e-6)  # it may leave [0, 1]
        result = p * ((1.0 - q) / np.maximum(1.0 - top, 1e-30))[:, None]
        result[np.arange(len(p)), p.argmax(axis=1)] = q
        return result

    return Method(fit, predict, probabilities)


# netcal, uncertainty-calibration, dirichletcal


def netcal(where: str, name: str, excess: Any = None, not_for_many: str = "", dtype: Any = None) -> Method:
    def fit(p: np.ndarray, labels: np.ndarray) -> Any:
        model = getattr(importlib.import_module(f"netcal.{where}"), name)()
        model.fit(p, labels)
        return model

    def prepare(logits: np.ndarray) -> np.ndarray:
        return probabilities(logits).astype(dtype or logits.dtype, copy=False)

    return Method(fit, lambda model, p: model.transform(p), prepare, excess, not_for_many)


def netcal_scale(model: Any) -> float:
    return float(np.ravel(model.temperature)[0])


def platt_binning() -> Method:
    def fit(p: np.ndarray, labels: np.ndarray) -> Any:
        import calibration

        model = calibration.PlattBinnerMarginalCalibrator(len(p), num_bins=15)
        model.train_calibration(p, labels)
        return model

    return Method(fit, lambda model, p: model.calibrate(p), probabilities, not_for_many=ONE_VS_REST)


def dirichlet_pull(n: int, m: int) -> float:
    """``lam`` and ``mu`` of monocal's default."""
    return 300.0 * m * (m - 1) / n


def dirichletcal() -> Method:
    def fit(p: np.ndarray, labels: np.ndarray) -> Any:
        from dirichletcal import FullDirichletCalibrator

        m = p.shape[1]
        pull = dirichlet_pull(*p.shape)
        return FullDirichletCalibrator(reg_lambda=pull / (m * (m - 1)), reg_mu=pull / m).fit(p, labels)

    return Method(fit, lambda model, p: model.predict_proba(p), probabilities, not_for_many=PAIRS_OF_CLASSES)


# torch-uncertainty


def torch_uncertainty(name: str, excess: Any = None, not_for_many: str = "") -> Method:
    def prepare(logits: np.ndarray) -> Any:
        import torch

        return torch.from_numpy(logits)

    def fit(logits: Any, labels: np.ndarray) -> Any:
        import torch

        n, m = logits.shape
        settings: dict[str, Any] = {}
        if name in ("VectorScaler", "MatrixScaler", "DirichletScaler"):
            settings["num_classes"] = m
        if name == "DirichletScaler":
            settings["lambda_reg"] = settings["mu_reg"] = dirichlet_pull(n, m)
        model = getattr(_torch_uncertainty_calibration(), name)(**settings)
        # One batch: what a loader would give, without the time it takes to collect rows.
        model.fit([(logits, torch.from_numpy(labels))], progress=False)
        return model

    def predict(model: Any, logits: Any) -> np.ndarray:
        return model(logits).softmax(dim=1).detach().numpy()

    return Method(fit, predict, prepare, excess, not_for_many)


def _torch_uncertainty_calibration() -> ModuleType:
    """The calibration module without the packages around it, whose imports ask for lightning, torchvision and timm."""
    name = "torch_uncertainty.post_processing"
    if name not in sys.modules:
        spec = importlib.util.find_spec("torch_uncertainty")
        if spec is None or not spec.submodule_search_locations:
            raise ImportError("torch_uncertainty is not installed")
        folder = spec.submodule_search_locations[0]
        for package, path in (("torch_uncertainty", folder), (name, f"{folder}/post_processing")):
            sys.modules[package] = ModuleType(package)
            sys.modules[package].__path__ = [path]
        sys.modules[name].PostProcessing = importlib.import_module(f"{name}.abstract").PostProcessing
    return importlib.import_module(f"{name}.calibration")


METHODS: dict[str, Method] = {
    "scipy/softmax, uncalibrated": Method(lambda z, y: None, lambda model, z: probabilities(z)),
    # The likelihood that the others maximise; by default monocal gives the classifier's own probabilities a share.
    "monocal/TemperatureScaling": monocal(
        "TemperatureScaling", at_scale(lambda c: 1.0 / c.temperature_), prior_rows=0
    ),
    "monocal/EnsembleTemperatureScaling": monocal("EnsembleTemperatureScaling"),
    "monocal/MCCT": certified("MCCT"),
    "monocal/ConditionalMCCT": certified("ConditionalMCCT"),
    "monocal/StructuredScaling vector": certified("StructuredScaling", kind="vector"),
    "monocal/StructuredScaling": certified("StructuredScaling", PAIRS_OF_CLASSES),
    "monocal/StructuredMCCT": certified("StructuredMCCT"),
    "monocal/VectorScaling": certified("VectorScaling"),
    "monocal/MatrixScaling": certified("MatrixScaling", PAIRS_OF_CLASSES),
    "monocal/DirichletCalibration": certified("DirichletCalibration", PAIRS_OF_CLASSES),
    "monocal/HistogramBinning": monocal("HistogramBinning", not_for_many=ONE_VS_REST),
    "monocal/IsotonicCalibration": monocal("IsotonicCalibration"),
    "monocal/IsotonicCalibration one_vs_rest": monocal(
        "IsotonicCalibration", not_for_many=ONE_VS_REST, mode="one_vs_rest"
    ),
    "monocal/BayesianBinning": monocal("BayesianBinning", not_for_many=ONE_VS_REST),
    "monocal/ScalingBinning": monocal("ScalingBinning", not_for_many=ONE_VS_REST),
    "monocal/SplineCalibration": monocal("SplineCalibration"),
    "scikit-learn/temperature": sklearn("temperature", at_scale(sklearn_scale)),
    "scikit-learn/isotonic": sklearn("isotonic", not_for_many=ONE_VS_REST),
    "probmetrics/TS": probmetrics_temperature(),
    "probmetrics/ETS": probmetrics("ETSCalibrator"),
    "probmetrics/SVS": probmetrics("SVSCalibrator", affine(optimum.of_structured)),
    "probmetrics/SMS": probmetrics("SMSCalibrator", affine(optimum.of_structured), PAIRS_OF_CLASSES),
    "probmetrics/CDF spline": probmetrics_spline(),
    "netcal/TemperatureScaling": netcal("scaling", "TemperatureScaling", at_scale(netcal_scale)),
    "netcal/TemperatureScaling float64": netcal(
        "scaling", "TemperatureScaling", at_scale(netcal_scale), dtype=np.float64
    ),
    "netcal/BetaCalibration": netcal("scaling", "BetaCalibration", not_for_many=ONE_VS_REST),
    "netcal/HistogramBinning": netcal("binning", "HistogramBinning", not_for_many=ONE_VS_REST),
    "netcal/IsotonicRegression": netcal("binning", "IsotonicRegression", not_for_many=ONE_VS_REST),
    "netcal/BBQ": netcal("binning", "BBQ", not_for_many=ONE_VS_REST),
    "torch-uncertainty/TemperatureScaler": torch_uncertainty(
        "TemperatureScaler", at_scale(lambda c: c.inv_temp.item())
    ),
    "torch-uncertainty/VectorScaler": torch_uncertainty("VectorScaler", affine(optimum.of_scaler)),
    "torch-uncertainty/MatrixScaler": torch_uncertainty(
        "MatrixScaler", affine(optimum.of_scaler), PAIRS_OF_CLASSES
    ),
    "torch-uncertainty/DirichletScaler": torch_uncertainty(
        "DirichletScaler", affine(optimum.of_scaler), PAIRS_OF_CLASSES
    ),
    "torch-uncertainty/HistogramBinningScaler": torch_uncertainty(
        "HistogramBinningScaler", not_for_many=ONE_VS_REST
    ),
    "torch-uncertainty/IsotonicRegressionScaler": torch_uncertainty(
        "IsotonicRegressionScaler", not_for_many=ONE_VS_REST
    ),
    "torch-uncertainty/BBQScaler": torch_uncertainty("BBQScaler", not_for_many=ONE_VS_REST),
    "uncertainty-calibration/PlattBinnerMarginal": platt_binning(),
    "dirichletcal/FullDirichlet": dirichletcal(),
}

# What a user would pick instead of a method of monocal's. No library has MCCT: its users have temperature scaling.
RIVALS: dict[str, tuple[str, ...]] = {
    "monocal/TemperatureScaling": (
        "scikit-learn/temperature",
        "probmetrics/TS",
        "netcal/TemperatureScaling float64",
        "torch-uncertainty/TemperatureScaler",
    ),
    "monocal/MCCT": ("scikit-learn/temperature", "probmetrics/TS"),
    "monocal/ConditionalMCCT": ("scikit-learn/temperature", "probmetrics/TS"),
    "monocal/EnsembleTemperatureScaling": ("probmetrics/ETS",),
    "monocal/StructuredScaling vector": ("probmetrics/SVS",),
    "monocal/StructuredScaling": ("probmetrics/SMS",),
    "monocal/StructuredMCCT": ("probmetrics/SMS",),
    "monocal/VectorScaling": ("probmetrics/SVS", "torch-uncertainty/VectorScaler"),
    "monocal/MatrixScaling": ("probmetrics/SMS", "torch-uncertainty/MatrixScaler"),
    "monocal/DirichletCalibration": ("dirichletcal/FullDirichlet", "torch-uncertainty/DirichletScaler"),
    "monocal/HistogramBinning": ("netcal/HistogramBinning", "torch-uncertainty/HistogramBinningScaler"),
    "monocal/IsotonicCalibration one_vs_rest": (
        "scikit-learn/isotonic",
        "netcal/IsotonicRegression",
        "torch-uncertainty/IsotonicRegressionScaler",
    ),
    "monocal/BayesianBinning": ("netcal/BBQ", "torch-uncertainty/BBQScaler"),
    "monocal/ScalingBinning": ("uncertainty-calibration/PlattBinnerMarginal",),
    "monocal/SplineCalibration": ("probmetrics/CDF spline",),
}


def choose(patterns: list[str]) -> list[str]:
    """Names that match any of the patterns (``netcal/*``), or all where there are none."""
    chosen = [
        name for name in METHODS if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
    unknown = [p for p in patterns if not any(fnmatchcase(name, p) for name in METHODS)]
    if unknown:
        sys.exit(f"No method matches {', '.join(unknown)}. There are: {', '.join(METHODS)}.")
    return chosen
