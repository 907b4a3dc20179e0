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

import numpy as np
from numpy import ndarray
from scipy.linalg import cho_factor, cho_solve, eigh

from ..arrays import compute_dtype
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
# Of the shared temperature: a ridge of the scale itself that only keeps the problem strongly convex.
_TOL, _MAX_ITER, _STEADY, _DEEPEST = 1e-6, 50, 1e-10, 1e6

Operator = Callable[[ndarray], ndarray]


def features(logits: ndarray, temperature: float, floor: float = 0.0) -> ndarray:
    """Logarithms of tempered probabilities mixed with a share ``floor`` of the uniform distribution, (n, m).

    Without a floor, up to a shift of the row: ``(z - max z) / T``, not below -1e15. NaN for a class that is not available.
    """
    dtype = compute_dtype(logits)
    masked = np.isinf(logits)
    with np.errstate(over="ignore", under="ignore"):
        x = logits.astype(dtype, copy=False) - logits.max(axis=1, keepdims=True).astype(dtype)
        x *= 1.0 / temperature
        x = np.where(masked, x, np.maximum(x, -_LARGEST))
        if floor:
            p = np.exp(x, out=x)
            p *= (1.0 - floor) / p.sum(axis=1, keepdims=True)
            p += floor / logits.shape[1]
            x = np.log(p)
    x[masked] = np.nan
    return x


def weights_of(rows: Checked) -> ndarray:
    """A weight for each row, in double precision."""
    return np.ones(len(rows)) if rows.weight is None else rows.weight.astype(np.float64)


@dataclass(frozen=True)
class FeatureBlock:
    """Rows as the objective reads them."""

    x: ndarray  # (n, m), the centre (0 at first) where a class is not available
    labels: ndarray  # (n,)
    share: ndarray  # (n, 1), in double precision
    masked: ndarray | None  # (n, m)
    p: ndarray | None = None  # (n, m), probabilities at the deviation where the Hessian is taken

    @classmethod
    def of(cls, rows: Checked, *, features: Operator, total: float, double: bool) -> FeatureBlock:
        """Checked rows with their features; ``total`` is the weight of all rows."""
        x = features(rows.logits.astype(np.float64, copy=False) if double else rows.logits)
        missing = np.isnan(x)
        masked = missing if missing.any() else None
        x[missing] = 0.0
        return cls(x, rows.labels, (weights_of(rows) / total)[:, None], masked)

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    def every(self, step: int) -> list[FeatureBlock]:
        masked = None if self.masked is None else self.masked[::step]
        return [FeatureBlock(self.x[::step], self.labels[::step], self.share[::step], masked)]

    def centred(self, centre: ndarray) -> FeatureBlock:
        """``centre`` (m,) for classes that are not available, where other classes look at them."""
        if self.masked is None:
            return self
        return replace(self, x=np.where(self.masked, centre.astype(self.x.dtype), self.x))

    def at(self, deviation: ndarray) -> FeatureBlock:
        """The same with the probabilities at a deviation."""
        with np.errstate(under="ignore"):
            f = self.moved(deviation)
            p = np.exp(f, out=f)
            p /= p.sum(axis=1, keepdims=True)
        return replace(self, p=p)

    def linear(self, deviation: ndarray) -> ndarray:
        """``D_j . phi_nj`` (n, m)."""
        deviation = deviation.astype(self.x.dtype)
        pairs = deviation.shape[1] > 2
        f: ndarray = self.x @ deviation[:, :-1].T if pairs else self.x * deviation[:, 0]
        f += deviation[:, -1]
        return f

    def moved(self, deviation: ndarray) -> ndarray:
        """``f - max f`` (n, m)."""
        f = self.linear(deviation)
        f += self.x
        if self.masked is not None:
            f[self.masked] = -np.inf
        f -= f.max(axis=1, keepdims=True)
        return f

    def adjoint(self, residual: ndarray, pairs: bool) -> ndarray:
        """``sum_n r_nj phi_nj``, in the shape of a deviation."""
        weights = residual.T @ self.x if pairs else _column_sums(residual * self.x)[:, None]
        return np.concatenate([weights, _column_sums(residual)[:, None]], axis=1)

    def curvature(self) -> ndarray:
        """Weighted ``p (1 - p)`` (n, m)."""
        assert self.p is not None
        return self.p * (1.0 - self.p) * self.share.astype(self.x.dtype)


# What a pass adds up.


def _column_sums(x: ndarray) -> ndarray:
    total: ndarray = x.sum(axis=0, dtype=np.float64)
    return total


def _share_by_class(block: FeatureBlock) -> ndarray:
    """Weighted sums of the features of available classes, and their weights, (2, m)."""
    x = block.x.astype(np.float64)
    there = np.ones_like(x) if block.masked is None else (~block.masked).astype(np.float64)
    return np.stack([(block.share * x).sum(axis=0), (block.share * there).sum(axis=0)])


def _value_and_gradient(block: FeatureBlock, deviation: ndarray) -> ndarray:
    """NLL and its gradient, (1 + size,)."""
    f, share = block.moved(deviation), block.share
    at_label = np.arange(block.n_rows), block.labels
    label = f[at_label].astype(np.float64)
    with np.errstate(under="ignore"):
        residual = np.exp(f, out=f)
        total = residual.sum(axis=1, keepdims=True)
        residual *= (share / total).astype(f.dtype)
    residual[at_label] -= share[:, 0].astype(f.dtype)
    value = np.sum(share[:, 0] * (np.log(total[:, 0].astype(np.float64)) - label))
    return np.append(value, block.adjoint(residual, deviation.shape[1] > 2))


def _product(block: FeatureBlock, direction: ndarray) -> ndarray:
    """The Hessian of the NLL times a direction."""
    u = block.linear(direction)
    u -= (block.p * u).sum(axis=1, keepdims=True)
    u *= block.p
    u *= block.share.astype(u.dtype)
    return block.adjoint(u, direction.shape[1] > 2)


def _hessian(block: FeatureBlock, deviation: ndarray) -> ndarray:
    """Of the NLL, (size, size), class after class."""
    m, k = deviation.shape
    p_all = np.asarray(block.at(deviation).p, dtype=np.float64)
    x_all = block.x.astype(np.float64)
    hessian = np.zeros((m * k, m * k))
    by_class = hessian.reshape(m, k, m, k)
    for i in range(0, block.n_rows, _FORMED_ROWS):
        p, x, share = (rows[i : i + _FORMED_ROWS] for rows in (p_all, x_all, block.share))
        p = p / p.sum(axis=1, keepdims=True)
        ones = np.ones_like(x)
        phi = np.stack([x, ones], axis=2)
        if k > 2:
            phi = np.concatenate([x, ones[:, :1]], axis=1)[:, None]
        pairs = p[:, :, None] * phi
        flat = pairs.reshape(len(p), m * k)
        hessian -= flat.T @ (share * flat)
        own = (share[:, :, None] * pairs).transpose(1, 2, 0) @ phi.transpose(1, 0, 2)
        by_class[np.arange(m), :, np.arange(m), :] += own
    return hessian


def _class_moments(block: FeatureBlock) -> ndarray:
    """Sums of ``p (1 - p) (x^2, x, 1)``, (3, m)."""
    h = block.curvature()
    hx = h * block.x
    return np.stack([_column_sums(one) for one in (hx * block.x, hx, h)])


def _pair_moments(block: FeatureBlock) -> ndarray:
    """``sum_n w_n phi_n phi_n'``, ``w_n`` the mean of ``p (1 - p)``; below it the sum of that for each class, (m + 2, m + 1)."""
    m, h = block.x.shape[1], block.curvature()
    weighted = block.x * (h.sum(axis=1, keepdims=True) / m)
    out = np.zeros((m + 2, m + 1))
    out[:m, :m] = weighted.T @ block.x
    out[:m, m] = out[m, :m] = _column_sums(weighted)
    out[m + 1, :m] = _column_sums(h)
    out[m, m] = out[m + 1, :m].sum() / m
    return out


class AffineProblem:
    """The objective; implements `core.smooth.SmoothProblem`. ``strength``, (m, 2) or (m, m + 1), is the penalty of each squared
    deviation, the bias last; in a matrix it is the same for all weights off the diagonal."""

    def __init__(self, source: Source, features: Operator, total: float, strength: ndarray):
        n, m = source.shape
        double = n * m <= DOUBLE_BELOW
        self.shape = strength.shape
        make = partial(FeatureBlock.of, features=features, total=total, double=double)
        self.rows: Blocks = source.hold(make)
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
            self._part = float(sum(block.share.sum() for block in thin))  # a sample stands for all
        self.strength, self.modulus = strength, 2.0 * strength.ravel()

    # Parameters are the deviations, flat; `SharedScale` ties some of them.

    def deviation(self, at: ndarray) -> ndarray:
        return at.reshape(self.shape)

    def tied(self, gradient: ndarray) -> ndarray:
        """The adjoint of `deviation`."""
        return gradient.ravel()

    def tied_hessian(self, hessian: ndarray) -> ndarray:
        return hessian

    def evaluate(self, at: ndarray) -> tuple[float, ndarray]:
        value, *gradient = self.rows.sum(_value_and_gradient, self.deviation(at))
        pull = 0.5 * self.modulus * at
        return float(value + pull @ at), self.tied(np.reshape(gradient, self.shape)) + 2.0 * pull

    def sharpen(self) -> bool:
        if self._sample is self.rows:
            return False
        self._sample, self._part = self.rows, 1.0
        return True

    def newton_step(self, point: SmoothPoint, closeness: float) -> ndarray:
        deviation = self.deviation(point.at)
        if self.formed:
            hessian = self.tied_hessian(self._sample.sum(_hessian, deviation))
            factor = cho_factor(hessian + np.diag(self.modulus), overwrite_a=True, check_finite=False)
            return -cho_solve(factor, point.gradient)
        sample = self._sample.changed(partial(FeatureBlock.at, deviation=deviation))

        def product(v: ndarray) -> ndarray:
            image = sample.sum(_product, self.deviation(v)) / self._part
            return self.tied(image) + self.modulus * v

        inverse = self.preconditioner(sample)
        return conjugate_gradients(product, -point.gradient, inverse, closeness, _PRODUCTS)

    def preconditioner(self, sample: Blocks) -> Operator:
        """An approximate inverse of the Hessian: the blocks of single classes."""
        if self.shape[1] > 2:
            return _inverse_of_pairs(sample.sum(_pair_moments) / self._part, self.strength)
        second, first, mass = sample.sum(_class_moments) / self._part
        a, d = second + 2.0 * self.strength[:, 0], mass + 2.0 * self.strength[:, 1]
        inverse = np.stack([d, -first, -first, a]).reshape(2, 2, -1) / (a * d - first**2)
        return lambda v: np.einsum("abj,jb->ja", inverse, v.reshape(self.shape)).ravel()


def _inverse_of_pairs(moments: ndarray, strength: ndarray) -> Operator:
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

    def apply(v: ndarray) -> ndarray:
        w = ((v.reshape(strength.shape) @ basis) * scale) @ basis.T
        w -= (change * np.diag(w))[:, None] * column
        return w.ravel()

    return apply


class SharedScale(AffineProblem):
    """One weight for all classes: parameters ``(u, b_1, ..., b_m)``, ``f_j = (1 + u) x_j + b_j`` with ``x = z / unit``.

    ``total`` is the weight of all rows, ``ridge`` that of the biases, ``prior`` the share of the prior rows.
    """

    def __init__(self, source: Source, unit: float, total: float, ridge: float, prior: float):
        m = source.shape[1]
        self._pull = np.zeros(m + 1)
        super().__init__(source, partial(features, temperature=unit), total, np.zeros((m, 2)))
        self.modulus = 2.0 * np.append(_STEADY, np.full(m, ridge))
        if prior:
            unchanged = self.deviation(np.append(unit - 1.0, np.zeros(m)))
            gradient = self.rows.sum(_value_and_gradient, unchanged)[1:]
            self._pull = prior * self.tied(gradient.reshape(m, 2))

    def deviation(self, at: ndarray) -> ndarray:
        return np.column_stack([np.full(len(at) - 1, at[0]), at[1:]])

    def tied(self, gradient: ndarray) -> ndarray:
        return np.append(gradient[:, 0].sum(), gradient[:, 1])

    def tied_hessian(self, hessian: ndarray) -> ndarray:
        m = self.shape[0]
        full = hessian.reshape(m, 2, m, 2)
        tied = np.empty((m + 1, m + 1))
        tied[0, 0] = full[:, 0, :, 0].sum()
        tied[0, 1:] = tied[1:, 0] = full[:, 0, :, 1].sum(axis=0)
        tied[1:, 1:] = full[:, 1, :, 1]
        return tied

    def evaluate(self, at: ndarray) -> tuple[float, ndarray]:
        value, gradient = super().evaluate(at)
        return value - float(self._pull @ at), gradient - self._pull

    def preconditioner(self, sample: Blocks) -> Operator:
        second, _, mass = sample.sum(_class_moments) / self._part
        inverse = 1.0 / (np.append(second.sum(), mass) + self.modulus)
        return lambda v: inverse * v


def shared_temperature(source: Source, first: TemperatureScaling, ridge: float) -> float:
    """The temperature with free biases, not above that of ``first``, which is fitted on the same rows."""
    weight, margin = source.hold(as_they_are).sum(_margins)
    unit = min(first.temperature_, margin / weight) if margin > 0 else first.temperature_
    prior = first.prior_rows / (weight + first.prior_rows)
    problem = SharedScale(source, unit, weight, ridge, prior)
    with one_blas_thread:
        change = minimize_smooth(problem, tol=_TOL, max_iter=_MAX_ITER).coefficients[0]
    return 1.0 / max(1.0 / first.temperature_, float(1.0 + change) / unit)


def as_they_are(rows: Checked) -> Checked:
    return rows


def _margins(rows: Checked) -> ndarray:
    """Total weight, and the weighted sum of how far the second class lies below the first."""
    weight = weights_of(rows)
    if rows.logits.shape[1] < 2:
        return np.array([weight.sum(), 0.0])
    top = np.sort(rows.logits, axis=1)[:, -2:].astype(np.float64)
    return np.array([weight.sum(), weight @ np.minimum(top[:, 1] - top[:, 0], _DEEPEST)])
