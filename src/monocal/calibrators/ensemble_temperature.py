"""Ensemble temperature scaling, and the mixtures it is one of.

    q = w_1 softmax(z / T) + w_2 softmax(z) + w_3 / m,      w >= 0,  sum w = 1        (Zhang, Kailkhura, Han, 2020)

Each part is ordered like ``z``, and so, rounded term by term, is their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
from numpy import ndarray

from ..arrays import ordered_softmax
from ..inputs.validation import check_choice
from ..parallel import one_blas_thread, parallel_sum, row_slices
from ..solver import ConeProblem, Expansion, Solution, minimize
from . import state
from .binning import ProbabilityCalibrator, softmax
from .temperature import best_temperature

# Steps of EM before Newton's in the search for the weights of a mixture, and how often both are tried.
_CLIMBS, _ROUNDS = 30, 5


@dataclass(kw_only=True, eq=False, repr=False)
class EnsembleTemperatureScaling(ProbabilityCalibrator):
    """Mix temperature scaling with the given probabilities and the uniform distribution.

    First the temperature, then the weights: a concave likelihood or a quadratic on a triangle, so their optimum is exact.

    Parameters
    ----------
    loss : {"nll", "mse"}
        What the weights minimise.
    temperature_loss : {"nll", "mse"} or None
        What the temperature minimises; None: the same.
    input, class_axis, ignore_index
        See `Calibrator`.

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
    >>> data = mc.data.synthetic(2000, 10)
    >>> cal = mc.EnsembleTemperatureScaling().fit(data.values, data.labels)
    >>> float(round(cal.weights_.sum(), 6))
    1.0
    """

    _variants: ClassVar = {
        "ETS": {},
        "ETS MSE": {"loss": "mse"},
        "ETS published": {"loss": "mse", "temperature_loss": "nll"},
        "ETS MSE published": {"loss": "mse", "temperature_loss": "mse"},
    }
    loss: str = "nll"
    temperature_loss: str | None = None

    preserves_order = True
    preserves_top1 = True
    preserves_ranking = True

    _state: ClassVar[state.Rules] = {"temperature_": state.positive, "weights_": state.shares}

    @classmethod
    def as_published(cls, variant: str = "ETS") -> EnsembleTemperatureScaling:
        """What published comparisons call "ETS" (temperature by NLL, weights by MSE) and "ETS MSE" (both by MSE)."""
        check_choice(variant, "variant", ("ETS", "ETS MSE"))
        return cls(**cls._variants[f"{variant} published"])

    def _fit(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
        temperature_loss = self.loss if self.temperature_loss is None else self.temperature_loss
        check_choice(self.loss, "loss", ("nll", "mse"))
        check_choice(temperature_loss, "temperature_loss", ("nll", "mse"))
        self.temperature_ = best_temperature(logits, labels, weight, temperature_loss)
        share = np.ones(len(labels)) if weight is None else weight
        share = share / share.sum()
        at_label = np.empty((len(labels), 3))

        def moments(block: slice) -> ndarray:
            parts = self._parts(logits[block].astype(np.float64))
            rows = np.arange(len(parts[0]))
            at_label[block] = np.stack([part[rows, labels[block]] for part in parts], axis=1)
            if self.loss == "nll":
                return np.zeros((3, 3))
            return np.array([[share[block] @ np.vecdot(a, b) for a in parts] for b in parts])

        gram = parallel_sum(moments, row_slices(logits))
        if self.loss == "nll":
            w = most_likely_mixture(at_label, share, np.full(3, 1.0 / 3.0)).coefficients
            self.weights_ = w / w.sum()
        else:
            self.weights_ = simplex_least_squares(gram, share @ at_label)

    def _parts(self, logits: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        """Tempered, given and uniform probabilities, each (n, m)."""
        p = softmax(logits)
        with np.errstate(over="ignore", under="ignore"):
            depth = logits.astype(p.dtype) - logits.max(axis=1, keepdims=True).astype(p.dtype)
            depth *= p.dtype.type(1.0 / self.temperature_)
        available = ~np.isinf(logits)
        uniform = available * (1.0 / available.sum(axis=1, keepdims=True)).astype(p.dtype)
        return ordered_softmax(depth), p, uniform

    def _remap(self, logits: ndarray) -> ndarray:
        parts = self._parts(logits)
        w = self.weights_.astype(parts[0].dtype)
        with np.errstate(under="ignore"):
            return w[0] * parts[0] + w[1] * parts[1] + w[2] * parts[2]


def simplex_least_squares(gram: ndarray, target: ndarray) -> ndarray:
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
            right = np.append(target[support], 1.0)
            w[support] = np.linalg.lstsq(system, right, rcond=None)[0][:size]
            value = w @ gram @ w - 2.0 * target @ w
            if (w >= 0).all() and value < lowest - 1e-15:
                best, lowest = w / w.sum(), value
    return best


class MixtureProblem(ConeProblem):
    """``sum_j w_j - sum_n share_n log(q_n . w)`` over ``w >= 0``, whose minimiser sums to 1 by itself (scale ``w`` to see it).

    Since ``w . gain = 1`` for ``gain_j = sum_n share_n q_nj / (q_n . w)``, weights of sum 1 are the most likely exactly when no
    gain exceeds 1, and they miss the maximum by ``max_j gain_j - 1`` at most.
    """

    def __init__(self, q: ndarray, share: ndarray, start: ndarray):
        super().__init__(q.shape[1], penalty=1.0)
        self.rounding, self.n_rows = 1e-13, len(q)
        self.q, self.share, self._start = q, share, start

    def start(self) -> ndarray:
        return self._start

    def evaluate(self, coefficients: ndarray, working: ndarray) -> Expansion:
        mixed = self.q @ coefficients
        if not (mixed > 0).all():
            nothing = np.zeros(len(coefficients))
            return Expansion(np.inf, nothing, np.zeros((len(working), len(working))))
        part = self.q / mixed[:, None]
        own = part[:, working]
        value = -float(self.share @ np.log(mixed))
        return Expansion(value, -(self.share @ part), (own.T * self.share) @ own)

    def candidates(self, gradient: ndarray, size: int) -> ndarray:
        # What no row can be of would leave the Hessian without curvature; it stays at zero all the same.
        order = np.argsort(gradient + self.penalty)[:size]
        return np.sort(order[gradient[order] < 0])

    @property
    def worth(self) -> ndarray:
        return self.penalty

    def excess(self, coefficients: ndarray, here: Expansion) -> float:
        # Convex: F(w) - F(w*) <= g . (w - w*), and w* sums to 1.
        g = here.gradient + self.penalty
        return max(float(g @ coefficients) + max(-float(g.min()), 0.0), 0.0)


def most_likely_mixture(
    q: ndarray, share: ndarray, start: ndarray, tol: float = 1e-9, max_iter: int = 100
) -> Solution:
    """Weights that maximise ``sum_n share_n log(q_n . w)`` for ``q`` (n, a) and shares of sum 1, from positive ones on.

    EM climbs in steps that never fail, however unequal the parts, and that soon become small; Newton goes the rest of the way.
    """
    w = start
    with one_blas_thread:
        for _ in range(_ROUNDS):
            for _ in range(_CLIMBS):
                w = w * (share @ (q / (q @ w)[:, None]))
            solution = minimize(MixtureProblem(q, share, w), tol=tol, max_iter=max_iter)
            if solution.converged:
                break
            w = 0.9 * w + 0.1 * start
    return solution
