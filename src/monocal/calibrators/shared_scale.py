"""The best common scale of logits, with a free bias for every class: the temperature that affine maps are shrunk towards.

    min over c, b of   1/N sum_n w_n [ log sum_j exp(c z_nj + b_j) - c z_n,label - b_label ] + ridge |b|^2

A temperature alone has to make up for a bias: where one class is preferred throughout, the best one is large or infinite, and
the information of the scores would be lost with it. With free biases it is the slope of Platt scaling. As in temperature
scaling some prior rows are labelled by the classifier itself; these are linear in the parameters, ``- rho grad(c = 1, b = 0)``.
The larger of the two scales counts, so the map is never flatter than temperature scaling; with a strong ridge they are equal.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..arrays import array_namespace, to_numpy
from ..core.smooth import Point, conjugate_gradients, minimize_smooth
from ..inputs.reader import Checked, Source
from ..parallel import one_blas_thread
from .temperature import TemperatureScaling
from .vector_sums import StreamedVectorProblem

_TOL, _MAX_ITER, _PRODUCTS = 1e-6, 50, 200
# A ridge of the scale itself, so small that it only keeps the problem strongly convex.
_STEADY = 1e-10
_DEEPEST = 1e6


def shared_temperature(source: Source, first: TemperatureScaling, ridge: float) -> float:
    """The temperature with free biases, not above that of ``first``, which is fitted on the same rows."""
    weight, margin = source.hold(as_they_are).sum(_margins)
    unit = min(first.temperature_, margin / weight) if margin > 0 else first.temperature_
    problem = SharedScale(source, unit, weight, ridge, first.prior_rows / (weight + first.prior_rows))
    with one_blas_thread:
        change = minimize_smooth(problem, tol=_TOL, max_iter=_MAX_ITER).coefficients[0]
    return 1.0 / max(1.0 / first.temperature_, float(1.0 + change) / unit)


def as_they_are(rows: Checked) -> Checked:
    return rows


def _margins(rows: Checked) -> np.ndarray:
    """Total weight, and the weighted sum of how far the second class lies below the first."""
    xp = array_namespace(rows.logits)
    if rows.logits.shape[1] < 2:
        margin = np.zeros(len(rows))
    else:
        top = to_numpy(xp.astype(xp.sort(rows.logits, axis=1)[:, -2:], xp.float64))
        margin = np.minimum(top[:, 1] - top[:, 0], _DEEPEST)
    weight = np.ones(len(rows)) if rows.weight is None else to_numpy(rows.weight).astype(np.float64)
    return np.array([weight.sum(), weight @ margin])


class SharedScale(StreamedVectorProblem):
    """The vector form with one weight for all classes: parameters ``(u, b_1, ..., b_m)``, ``f_j = (1 + u) x_j + b_j``.

    Parameters
    ----------
    source : Source
    unit : float
        ``x = z / unit``.
    total : float
        Weight of all rows.
    ridge : float
    prior : float
        Share of the prior rows.
    """

    def __init__(self, source: Source, unit: float, total: float, ridge: float, prior: float):
        m = source.shape[1]
        super().__init__(source, unit, 0.0, total, np.zeros((m, 2)))
        self.ridge = np.append(_STEADY, np.full(m, ridge))
        self.modulus = 2.0 * self.ridge
        as_given = np.append(unit - 1.0, np.zeros(m))
        self._pull = np.zeros(m + 1)
        if prior:
            self._pull = prior * self._tied(super().evaluate(self._deviation(as_given).ravel())[1])

    def _deviation(self, at: np.ndarray) -> np.ndarray:
        return np.column_stack([np.full(len(at) - 1, at[0]), at[1:]])

    def _tied(self, by_class: np.ndarray) -> np.ndarray:
        """A gradient in the tied parameters from that in all of them."""
        own = by_class.reshape(-1, 2)
        return np.append(own[:, 0].sum(), own[:, 1])

    def evaluate(self, at: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = super().evaluate(self._deviation(at).ravel())
        value += float(self.ridge @ at**2 - self._pull @ at)
        return value, self._tied(gradient) + 2.0 * self.ridge * at - self._pull

    def newton_step(self, point: Point, closeness: float) -> np.ndarray:
        deviation = self._deviation(point.at)
        m = len(deviation)
        if self.formed:
            full = self.curvature(deviation)
            hessian = np.diag(self.modulus)
            hessian[0, 0] += full[:m, :m].sum()
            hessian[0, 1:] += full[:m, m:].sum(axis=0)
            hessian[1:, 0] = hessian[0, 1:]
            hessian[1:, 1:] += full[m:, m:]
            return -cho_solve(cho_factor(hessian, check_finite=False), point.gradient)
        second, _, mass = self.curvature_by_class(deviation)
        inverse = 1.0 / (np.append(second.sum(), mass) + self.modulus)

        def product(v: np.ndarray) -> np.ndarray:
            return self._tied(self.curvature_along(deviation, self._deviation(v))) + self.modulus * v

        return conjugate_gradients(product, -point.gradient, lambda v: inverse * v, closeness, _PRODUCTS)
