"""The objective of affine maps, a weight for every class or for every pair, as sums over rows wherever they are.

    F(D) = sum_n share_n [ log sum_j exp f_nj - f_n,label ] + sum strength D^2,      f_nj = x_nj + D_j . phi_nj

with ``phi_nj = (x_nj, 1)`` (a weight and a bias for every class, D of shape (m, 2)) or ``phi_n = (x_n1, ..., x_nm, 1)`` (a weight
for every pair, D of shape (m, m + 1)). Features ``x`` are logits over a temperature, so ``D = 0`` is temperature scaling. With
``r_nj = share_n (p_nj - 1[j = label])`` the gradient is ``sum_n r_nj phi_nj``; the Hessian applied to a direction ``V`` is

    u_nj = V_j . phi_nj,   r_nj = share_n p_nj (u_nj - sum_k p_nk u_nk),   (H V)_j = sum_n r_nj phi_nj + 2 strength_j V_j.

Where parameters are few the Hessian is formed. Where they are many, it is estimated from a sample of the rows, and conjugate
gradients find the Newton step, preconditioned with the blocks of single classes.

The temperature is the best common scale of logits with a free bias for every class (`shared_temperature`):

    min over c, b of   1/N sum_n w_n [ log sum_j exp(c z_nj + b_j) - c z_n,label - b_label ] + ridge |b|^2

A temperature alone has to make up for a bias: where one class is preferred throughout, the best one is large or infinite, and
the information of the scores would be lost with it. With free biases it is the slope of Platt scaling. As in temperature
scaling some prior rows are labelled by the classifier itself; these are linear in the parameters, ``- rho grad(c = 1, b = 0)``.
The larger of the two scales counts, so the map is never flatter than temperature scaling; with a strong ridge they are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from ..arrays import Array, array_namespace, compute_dtype, device_of, exp_, like, to_numpy
from ..core.rows import Blocks, MemoryBlocks, sample_step
from ..core.smooth import SmoothPoint, conjugate_gradients, minimize_smooth
from ..inputs.reader import Checked, Source
from ..parallel import one_blas_thread
from .temperature import TemperatureScaling

# Beyond this a logit says no more; sums of weights times this stay finite in single precision.
_LARGEST = 1e15
# Up to so many parameters the Hessian is formed: that is exact, and faster than to work without it.
FORMED = 192
# Rows whose outer products are formed at a time.
_FORMED_ROWS = 512
# Products with the Hessian in one step.
_PRODUCTS = 200
# Rounding of a row's NLL in single precision: that of the mean falls with the root of the rows.
_SINGLE = 3e-7
# Up to this many logits double precision costs nothing; beyond, rows in single precision reach the tolerance as well.
DOUBLE_BELOW = 2**18

Operator = Callable[[np.ndarray], np.ndarray]


def features(logits: Array, temperature: float, floor: float = 0.0) -> Array:
    """Logarithms of tempered probabilities mixed with a share ``floor`` of the uniform distribution, (n, m).

    Without a floor, up to a shift of the row: ``(z - max z) / T``, not below -1e15. NaN for a class that is not available.
    """
    xp = array_namespace(logits)
    dtype = compute_dtype(logits)
    with np.errstate(over="ignore", under="ignore"):
        x = xp.astype(logits, dtype, copy=False) - xp.astype(xp.max(logits, axis=1, keepdims=True), dtype)
        x *= 1.0 / temperature
        x = xp.where(xp.isinf(logits), x, xp.clip(x, min=-_LARGEST))
        if floor:
            p = exp_(x)
            p *= (1.0 - floor) / xp.sum(p, axis=1, keepdims=True)
            p += floor / logits.shape[1]
            x = xp.log(p)
    return xp.where(xp.isinf(logits), xp.asarray(np.nan, dtype=x.dtype, **device_of(x)), x)


def weights_of(rows: Checked) -> np.ndarray:
    """A weight for each row, in double precision."""
    return np.ones(len(rows)) if rows.weight is None else to_numpy(rows.weight).astype(np.float64)


@dataclass(frozen=True)
class FeatureBlock:
    """Rows as the objective reads them."""

    x: Array  # (n, m), the centre (0 at first) where a class is not available
    labels: Array  # (n,)
    share: Array  # (n, 1), in double precision
    masked: Array | None  # (n, m)
    p: Any = None  # (n, m), probabilities at the deviation where the Hessian is taken

    @classmethod
    def of(
        cls, rows: Checked, *, features: Callable[[Array], Array], total: float, double: bool
    ) -> FeatureBlock:
        """Checked rows with their features; ``total`` is the weight of all rows."""
        xp = array_namespace(rows.logits)
        x = features(xp.astype(rows.logits, xp.float64, copy=False) if double else rows.logits)
        masked = xp.isnan(x) if bool(xp.any(xp.isnan(x))) else None
        if masked is not None:
            x = xp.where(masked, xp.zeros_like(x), x)
        if rows.weight is None:
            share = xp.ones(len(rows), dtype=xp.float64, **device_of(x))
        else:
            share = xp.astype(rows.weight, xp.float64)
        return cls(x, rows.labels, (share / total)[:, None], masked)

    @property
    def n_rows(self) -> int:
        return int(self.labels.shape[0])

    def every(self, step: int) -> list[FeatureBlock]:
        masked = None if self.masked is None else self.masked[::step]
        return [FeatureBlock(self.x[::step], self.labels[::step], self.share[::step], masked)]

    def centred(self, centre: np.ndarray) -> FeatureBlock:
        """``centre`` (m,) for classes that are not available, where other classes look at them."""
        if self.masked is None:
            return self
        return replace(self, x=array_namespace(self.x).where(self.masked, like(centre, self.x), self.x))

    def at(self, deviation: np.ndarray) -> FeatureBlock:
        """The same with the probabilities at a deviation."""
        xp = array_namespace(self.x)
        with np.errstate(under="ignore"):
            p = exp_(self.moved(deviation))
            p /= xp.sum(p, axis=1, keepdims=True)
        return replace(self, p=p)

    def linear(self, deviation: np.ndarray) -> Array:
        """``D_j . phi_nj`` (n, m)."""
        weights, bias = like(deviation[:, :-1], self.x), like(deviation[:, -1], self.x)
        f = self.x @ weights.T if deviation.shape[1] > 2 else self.x * weights[:, 0]
        f += bias
        return f

    def adjoint(self, residual: Array, pairs: bool) -> np.ndarray:
        """``sum_n r_nj phi_nj``, in the shape of a deviation."""
        xp = array_namespace(residual)
        bias = xp.sum(residual, axis=0, dtype=xp.float64)[:, None]
        if pairs:
            return np.concatenate([to_numpy(residual.T @ self.x), to_numpy(bias)], axis=1)
        return to_numpy(
            xp.concat([xp.sum(residual * self.x, axis=0, dtype=xp.float64)[:, None], bias], axis=1)
        )

    def moved(self, deviation: np.ndarray) -> Array:
        """``f - max f`` (n, m)."""
        xp = array_namespace(self.x)
        f = self.linear(deviation)
        f += self.x
        if self.masked is not None:
            f = xp.where(self.masked, xp.asarray(-np.inf, dtype=f.dtype, **device_of(f)), f)
        f -= xp.max(f, axis=1, keepdims=True)
        return f


# What a pass adds up: numpy arrays.


def _share_by_class(block: FeatureBlock) -> np.ndarray:
    """Weighted sums of the features of available classes, and their weights, (2, m)."""
    xp = array_namespace(block.x)
    x = xp.astype(block.x, xp.float64)
    there = xp.ones_like(x) if block.masked is None else xp.astype(~block.masked, xp.float64)
    return to_numpy(xp.stack([xp.sum(block.share * x, axis=0), xp.sum(block.share * there, axis=0)]))


def _value_and_gradient(block: FeatureBlock, deviation: np.ndarray) -> np.ndarray:
    """NLL and its gradient, (1 + size,)."""
    xp = array_namespace(block.x)
    f = block.moved(deviation)
    rows = xp.arange(block.n_rows, **device_of(f))
    label = xp.astype(f[rows, block.labels], xp.float64)
    with np.errstate(under="ignore"):
        residual = exp_(f)
        total = xp.sum(residual, axis=1, keepdims=True)
        residual *= xp.astype(block.share / total, f.dtype)
    share = block.share[:, 0]
    residual[rows, block.labels] -= xp.astype(share, f.dtype)
    value = float(xp.sum(share * (xp.log(xp.astype(total[:, 0], xp.float64)) - label)))
    return np.append(value, block.adjoint(residual, deviation.shape[1] > 2))


def _product(block: FeatureBlock, direction: np.ndarray) -> np.ndarray:
    """The Hessian of the NLL times a direction."""
    xp = array_namespace(block.x)
    u = block.linear(direction)
    u -= xp.sum(block.p * u, axis=1, keepdims=True)
    u *= block.p
    u *= xp.astype(block.share, u.dtype)
    return block.adjoint(u, direction.shape[1] > 2)


def _hessian(block: FeatureBlock, deviation: np.ndarray) -> np.ndarray:
    """Of the NLL, (size, size), class after class."""
    xp = array_namespace(block.x)
    m, k = deviation.shape
    p_all = xp.astype(block.at(deviation).p, xp.float64)
    x_all = xp.astype(block.x, xp.float64)
    hessian = np.zeros((m * k, m * k))
    by_class = hessian.reshape(m, k, m, k)
    j = np.arange(m)
    for i in range(0, block.n_rows, _FORMED_ROWS):
        p, x, share = (rows[i : i + _FORMED_ROWS] for rows in (p_all, x_all, block.share))
        p = p / xp.sum(p, axis=1, keepdims=True)
        ones = xp.ones_like(x[:, :1])
        phi = xp.concat([x, ones], axis=1)[:, None, :] if k > 2 else xp.stack([x, xp.ones_like(x)], axis=2)
        pairs = p[:, :, None] * phi
        flat = xp.reshape(pairs, (pairs.shape[0], m * k))
        hessian -= to_numpy(flat.T @ (share * flat))
        own = xp.permute_dims(share[:, :, None] * pairs, (1, 2, 0)) @ xp.permute_dims(phi, (1, 0, 2))
        by_class[j, :, j, :] += to_numpy(own)
    return hessian


def _class_moments(block: FeatureBlock) -> np.ndarray:
    """Sums of ``p (1 - p) (x^2, x, 1)``, (3, m)."""
    xp = array_namespace(block.x)
    h = block.p * (1.0 - block.p) * xp.astype(block.share, block.x.dtype)
    hx = h * block.x
    return to_numpy(xp.stack([xp.sum(one, axis=0, dtype=xp.float64) for one in (hx * block.x, hx, h)]))


def _pair_moments(block: FeatureBlock) -> np.ndarray:
    """``sum_n w_n phi_n phi_n'``, ``w_n`` the mean of ``p (1 - p)``; below it the sum of that for each class, (m + 2, m + 1)."""
    xp = array_namespace(block.x)
    m = block.x.shape[1]
    h = block.p * (1.0 - block.p) * xp.astype(block.share, block.x.dtype)
    weighted = block.x * (xp.sum(h, axis=1, keepdims=True) / m)
    mass = to_numpy(xp.sum(h, axis=0, dtype=xp.float64))
    first = to_numpy(xp.sum(weighted, axis=0, dtype=xp.float64))
    out = np.zeros((m + 2, m + 1))
    out[:m, :m] = to_numpy(weighted.T @ block.x)
    out[:m, m] = out[m, :m] = first
    out[m, m] = mass.sum() / m
    out[m + 1, :m] = mass
    return out


class AffineProblem:
    """The objective; implements `core.smooth.SmoothProblem`.

    Parameters
    ----------
    source : Source
        Checked rows.
    features : callable
        Features (n, m) of logits, NaN where a class is not available; the same for blocks of any size.
    total : float
        Weight of all rows.
    strength : ndarray of shape (m, 2) or (m, m + 1)
        Positive penalty of each squared deviation, the bias last. In a matrix it is the same for all weights off the diagonal.
    """

    def __init__(
        self, source: Source, features: Callable[[Array], Array], total: float, strength: np.ndarray
    ):
        n, m = source.shape
        double = n * m <= DOUBLE_BELOW
        self.shape = strength.shape
        self.rows: Blocks = source.hold(
            partial(FeatureBlock.of, features=features, total=total, double=double)
        )
        self.centre = np.zeros(m)
        if self.shape[1] > 2:
            first, mass = self.rows.sum(_share_by_class)
            self.centre = first / np.maximum(mass, np.finfo(np.float64).tiny)
            self.rows = self.rows.changed(partial(FeatureBlock.centred, centre=self.centre))
        self.resolution = 1e-14 if double or not source.single_precision else _SINGLE / n**0.5
        self.formed = strength.size <= FORMED
        step = 1 if self.formed else sample_step(n, m) or 1
        self._sample, self._part = self.rows, 1.0
        if step > 1:
            thin = self.rows.sum(FeatureBlock.every, step)
            self._sample = MemoryBlocks(thin)
            self._part = float(sum(to_numpy(block.share).sum() for block in thin))  # a sample stands for all
        self.strength, self.modulus = strength, 2.0 * strength.ravel()

    # Parameters are the deviations, flat; `SharedScale` ties some of them.

    def deviation(self, at: np.ndarray) -> np.ndarray:
        return at.reshape(self.shape)

    def tied(self, gradient: np.ndarray) -> np.ndarray:
        """The adjoint of `deviation`."""
        return gradient.ravel()

    def evaluate(self, at: np.ndarray) -> tuple[float, np.ndarray]:
        value, *gradient = self.rows.sum(_value_and_gradient, self.deviation(at))
        pull = 0.5 * self.modulus * at
        return float(value + pull @ at), self.tied(np.reshape(gradient, self.shape)) + 2.0 * pull

    def sharpen(self) -> bool:
        if self._sample is self.rows:
            return False
        self._sample, self._part = self.rows, 1.0
        return True

    def newton_step(self, point: SmoothPoint, closeness: float) -> np.ndarray:
        deviation = self.deviation(point.at)
        if self.formed:
            hessian = self.tied_hessian(self._sample.sum(_hessian, deviation)) + np.diag(self.modulus)
            return -cho_solve(cho_factor(hessian, overwrite_a=True, check_finite=False), point.gradient)
        sample = self._sample.changed(partial(FeatureBlock.at, deviation=deviation))

        def product(v: np.ndarray) -> np.ndarray:
            return self.tied(sample.sum(_product, self.deviation(v)) / self._part) + self.modulus * v

        precondition = self.preconditioner(sample)
        return conjugate_gradients(product, -point.gradient, precondition, closeness, _PRODUCTS)

    def tied_hessian(self, hessian: np.ndarray) -> np.ndarray:
        return hessian

    def preconditioner(self, sample: Blocks) -> Operator:
        """An approximate inverse of the Hessian: the blocks of single classes."""
        if self.shape[1] > 2:
            return _inverse_of_pairs(sample.sum(_pair_moments) / self._part, self.strength)
        second, first, mass = sample.sum(_class_moments) / self._part
        a, d = second + 2.0 * self.strength[:, 0], mass + 2.0 * self.strength[:, 1]
        inverse = np.stack([d, -first, -first, a]).reshape(2, 2, -1) / (a * d - first**2)
        return lambda v: np.einsum("abj,jb->ja", inverse, v.reshape(self.shape)).ravel()


def _inverse_of_pairs(moments: np.ndarray, strength: np.ndarray) -> Operator:
    """The block of class ``j`` is close to ``s_j K + 2 strength_j``, with ``s_j`` the share of class ``j`` in the moments ``K``.

    One decomposition of ``K`` inverts them all: the strengths differ from class to class only in the place ``j`` of the class
    itself, a change of rank one.
    """
    shared, mass = moments[:-1], moments[-1, :-1]
    m = len(mass)
    part = mass / max(mass.mean(), np.finfo(np.float64).tiny)
    # The strength of a column as all classes but its own have it.
    base = 2.0 * np.append(np.full(m, strength[0, -2]), strength[0, -1])
    root = 1.0 / np.sqrt(base)
    values, vectors = eigh(root[:, None] * shared * root)
    basis = root[:, None] * vectors
    scale = 1.0 / (1.0 + part[:, None] * np.maximum(values, 0.0))
    own = np.arange(m)
    change = 2.0 * strength[own, own] - base[:m]
    column = (basis[:m] * scale) @ basis.T  # row j: the inverse without the change, its column j
    change = change / (1.0 + change * column[own, own])

    def apply(v: np.ndarray) -> np.ndarray:
        w = ((v.reshape(strength.shape) @ basis) * scale) @ basis.T
        w -= (change * np.diag(w))[:, None] * column
        return w.ravel()

    return apply


# The temperature.

_TOL, _MAX_ITER = 1e-6, 50
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
    weight = weights_of(rows)
    return np.array([weight.sum(), weight @ margin])


class SharedScale(AffineProblem):
    """One weight for all classes: parameters ``(u, b_1, ..., b_m)``, ``f_j = (1 + u) x_j + b_j`` with ``x = z / unit``.

    Parameters
    ----------
    source : Source
    unit : float
    total : float
        Weight of all rows.
    ridge : float
        Of the biases.
    prior : float
        Share of the prior rows.
    """

    def __init__(self, source: Source, unit: float, total: float, ridge: float, prior: float):
        m = source.shape[1]
        self._pull = np.zeros(m + 1)
        super().__init__(source, partial(features, temperature=unit), total, np.zeros((m, 2)))
        self.modulus = 2.0 * np.append(_STEADY, np.full(m, ridge))
        if prior:
            as_given = self.deviation(np.append(unit - 1.0, np.zeros(m)))
            gradient = self.rows.sum(_value_and_gradient, as_given)[1:]
            self._pull = prior * self.tied(gradient.reshape(m, 2))

    def deviation(self, at: np.ndarray) -> np.ndarray:
        return np.column_stack([np.full(len(at) - 1, at[0]), at[1:]])

    def tied(self, gradient: np.ndarray) -> np.ndarray:
        return np.append(gradient[:, 0].sum(), gradient[:, 1])

    def evaluate(self, at: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = super().evaluate(at)
        return value - float(self._pull @ at), gradient - self._pull

    def tied_hessian(self, hessian: np.ndarray) -> np.ndarray:
        m = self.shape[0]
        full = hessian.reshape(m, 2, m, 2)
        tied = np.empty((m + 1, m + 1))
        tied[0, 0] = full[:, 0, :, 0].sum()
        tied[0, 1:] = tied[1:, 0] = full[:, 0, :, 1].sum(axis=0)
        tied[1:, 1:] = full[:, 1, :, 1]
        return tied

    def preconditioner(self, sample: Blocks) -> Operator:
        second, _, mass = sample.sum(_class_moments) / self._part
        inverse = 1.0 / (np.append(second.sum(), mass) + self.modulus)
        return lambda v: inverse * v
