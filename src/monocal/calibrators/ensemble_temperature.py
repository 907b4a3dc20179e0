"""Ensemble temperature scaling (Zhang, Kailkhura, Han, 2020): a mixture of three predictions.

    q = w_1 softmax(z / T) + w_2 softmax(z) + w_3 / m,      w >= 0,  w_1 + w_2 + w_3 = 1.

First ``T``, then ``w``: a concave likelihood or a quadratic on a triangle, so the optimum is exact. Each part is
ordered like ``z`` and so, rounded term by term, is their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize

from ..arrays import ordered_softmax
from ..inputs.validation import check_choice
from ..parallel import sum_rows
from . import state
from .probability_map import ProbabilityCalibrator, softmax
from .temperature import best_temperature


@dataclass(kw_only=True, eq=False, repr=False)
class EnsembleTemperatureScaling(ProbabilityCalibrator):
    """Mix temperature scaling with the given probabilities and the uniform distribution.

    Parameters
    ----------
    loss : {"nll", "mse"}
        What the weights minimise.
    temperature_loss : {"nll", "mse"} or None
        What the temperature minimises; None: the same.
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    temperature_ : float
    weights_ : ndarray of shape (3,)
        Of the tempered, the given and the uniform probabilities. Uniform means over the classes available in the row.

    References
    ----------
    Zhang, Kailkhura, Han (2020). Mix-n-Match: ensemble and compositional methods for uncertainty calibration in deep
    learning. ICML.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.data import synthetic
    >>> data = synthetic(2000, 10, seed=0)
    >>> cal = mc.EnsembleTemperatureScaling().fit(data.values, data.labels)
    >>> float(round(cal.weights_.sum(), 6))
    1.0
    """

    loss: str = "nll"
    temperature_loss: str | None = None
    input: str = "logits"
    class_axis: int = -1
    ignore_index: int | None = None

    preserves_order = True
    preserves_top1 = True
    preserves_ranking = True

    _state: ClassVar[state.Rules] = {
        "temperature_": state.positive,
        "weights_": state.shares,
    }

    @classmethod
    def as_published(cls, variant: str = "ETS") -> EnsembleTemperatureScaling:
        """What published comparisons call "ETS" (temperature by NLL, weights by MSE) and "ETS MSE" (both by MSE)."""
        check_choice(variant, "variant", ("ETS", "ETS MSE"))
        return cls(loss="mse", temperature_loss="nll" if variant == "ETS" else "mse")

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_choice(self.loss, "loss", ("nll", "mse"))
        temperature_loss = self.loss if self.temperature_loss is None else self.temperature_loss
        check_choice(temperature_loss, "temperature_loss", ("nll", "mse"))
        self.temperature_ = best_temperature(logits, labels, weight, temperature_loss)
        share = np.ones(len(labels)) if weight is None else weight
        share = share / share.sum()
        if self.loss == "nll":
            at_label = np.empty((len(labels), 3))

            def read(block: slice) -> int:
                for i, part in enumerate(self._parts(logits[block].astype(np.float64))):
                    at_label[block, i] = _at(part, labels[block])
                return 0

            sum_rows(read, logits)
            self.weights_ = most_likely_mixture(at_label, share)
        else:

            def moments(block: slice) -> np.ndarray:
                parts = self._parts(logits[block].astype(np.float64))
                gram = [[share[block] @ np.vecdot(a, b) for a in parts] for b in parts]
                return np.column_stack([gram, [share[block] @ _at(part, labels[block]) for part in parts]])

            sums = sum_rows(moments, logits)
            self.weights_ = simplex_least_squares(sums[:, :3], sums[:, 3])

    def _parts(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tempered, given and uniform probabilities, each (n, m)."""
        p = softmax(logits)
        with np.errstate(over="ignore", under="ignore"):
            depth = logits.astype(p.dtype) - logits.max(axis=1, keepdims=True).astype(p.dtype)
            depth *= p.dtype.type(1.0 / self.temperature_)
        available = ~np.isinf(logits)
        uniform = available * (1.0 / available.sum(axis=1, keepdims=True)).astype(p.dtype)
        return ordered_softmax(depth), p, uniform

    def _remap(self, logits: np.ndarray) -> np.ndarray:
        parts = self._parts(logits)
        w = self.weights_.astype(parts[0].dtype)
        with np.errstate(under="ignore"):
            return w[0] * parts[0] + w[1] * parts[1] + w[2] * parts[2]


def _at(part: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return part[np.arange(len(labels)), labels]


def most_likely_mixture(q: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Weights on the simplex that maximise ``sum_n share_n log(q_n . w)``, for ``q`` (n, a)."""
    smallest = np.finfo(np.float64).tiny

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = np.maximum(q @ w, smallest)
        return float(-share @ np.log(mixed)), -(share / mixed) @ q

    a = q.shape[1]
    found = minimize(
        loss,
        np.full(a, 1.0 / a),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * a,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": np.ones_like},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    w = np.maximum(found.x, 0.0)
    return w / w.sum()


def simplex_least_squares(gram: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Weights on the simplex that minimise ``w' gram w - 2 target' w``: the best over all supports."""
    a = len(target)
    best, lowest = np.zeros(a), np.inf
    for size in range(1, a + 1):
        for support in map(list, combinations(range(a), size)):
            # Stationarity with the multiplier of sum(w) = 1.
            system = np.ones((size + 1, size + 1))
            system[:size, :size] = gram[np.ix_(support, support)]
            system[size, size] = 0.0
            w = np.zeros(a)
            w[support] = np.linalg.lstsq(system, np.append(target[support], 1.0), rcond=None)[0][:size]
            value = w @ gram @ w - 2.0 * target @ w
            if (w >= 0).all() and value < lowest - 1e-15:
                best, lowest = w / w.sum(), value
    return best
