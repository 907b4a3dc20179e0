"""The vector form of structured scaling as sums over rows, which may be in memory, on a device, in a file or on a cluster.

    x = log( (1 - e) softmax(z / T) + e / m )
    F(D) = sum_n share_n [ log sum_j exp f_nj - f_n,label ] + sum strength D^2,      f_nj = x_nj + v_j x_nj + b_j,   D = (v, b).

With ``r_nj = share_n (p_nj - 1[j = label])`` the gradient is ``sum_n r_nj (x_nj, 1)``; the Hessian applied to a direction ``V``

    u_nj = V_j . (x_nj, 1),   r_nj = share_n p_nj (u_nj - sum_k p_nk u_nk),   (H V)_j = sum_n r_nj (x_nj, 1) + 2 strength_j V_j.

A pass returns a few numbers for every class. Where parameters are few the Hessian is formed. Where they are many, it is estimated
from some rows, held in memory, and conjugate gradients with the 2 x 2 blocks of single classes find the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..arrays import Array, array_namespace, compute_dtype, device_of, exp_, like, to_numpy
from ..core.rows import Blocks, MemoryBlocks, sample_step
from ..core.smooth import Point, conjugate_gradients
from ..inputs.reader import Checked, Source

# Beyond this a logit says no more.
_LARGEST = 1e15


def tempered(logits: Array, temperature: float) -> Array:
    """``(z - max z) / T``, not below -1e15 but for classes that are not available; of any array library."""
    xp = array_namespace(logits)
    dtype = compute_dtype(logits)
    with np.errstate(over="ignore"):
        x = xp.astype(logits, dtype, copy=False) - xp.astype(xp.max(logits, axis=1, keepdims=True), dtype)
        x *= 1.0 / temperature
    return xp.where(xp.isinf(logits), x, xp.clip(x, min=-_LARGEST))


def features(logits: Array, temperature: float, floor: float) -> Array:
    """Logarithms of tempered probabilities mixed with a share ``floor`` of the uniform distribution, (n, m).

    Without a floor, up to a shift of the row. NaN for a class that is not available.
    """
    xp = array_namespace(logits)
    x = tempered(logits, temperature)
    if floor:
        with np.errstate(under="ignore"):
            p = exp_(x)
            p *= (1.0 - floor) / xp.sum(p, axis=1, keepdims=True)
            p += floor / logits.shape[1]
            x = xp.log(p)
    return xp.where(xp.isinf(logits), xp.asarray(np.nan, dtype=x.dtype, **device_of(x)), x)


# Up to so many parameters the Hessian is formed: that is exact, and faster than to work without it.
FORMED = 192
# Products with the Hessian in one step.
_PRODUCTS = 200
# Rounding of a row's NLL in single precision: that of the mean falls with the root of the rows.
SINGLE = 3e-7
# Up to this many logits double precision costs nothing; beyond, rows in single precision reach the tolerance as well.
DOUBLE_BELOW = 2**18


@dataclass(frozen=True)
class ClassBlock:
    """Rows as the vector form reads them."""

    x: Array  # (n, m), 0 where a class is not available
    labels: Array  # (n,)
    share: Array  # (n, 1), in double precision
    masked: Array | None  # (n, m)

    @property
    def n_rows(self) -> int:
        return int(self.labels.shape[0])

    def every(self, step: int) -> ClassBlock:
        masked = None if self.masked is None else self.masked[::step]
        return ClassBlock(self.x[::step], self.labels[::step], self.share[::step], masked)

    def moved(self, deviation: np.ndarray) -> Array:
        """``f - max f`` (n, m) at weights and biases (m, 2)."""
        xp = array_namespace(self.x)
        f = self.x * like(deviation[:, 0], self.x)
        f += like(deviation[:, 1], self.x)
        f += self.x
        if self.masked is not None:
            f = xp.where(self.masked, xp.asarray(-np.inf, dtype=f.dtype, **device_of(f)), f)
        f -= xp.max(f, axis=1, keepdims=True)
        return f

    def probabilities(self, deviation: np.ndarray) -> Array:
        xp = array_namespace(self.x)
        with np.errstate(under="ignore"):
            p = exp_(self.moved(deviation))
            p /= xp.sum(p, axis=1, keepdims=True)
        return p


def _class_block(
    rows: Checked, *, temperature: float, floor: float, total: float, double: bool
) -> ClassBlock:
    """Checked rows with their features; ``total`` is the weight of all rows."""
    xp = array_namespace(rows.logits)
    logits = xp.astype(rows.logits, xp.float64, copy=False) if double else rows.logits
    x = features(logits, temperature, floor)
    masked = xp.isnan(x) if bool(xp.any(xp.isnan(x))) else None
    if masked is not None:
        x = xp.where(masked, xp.zeros_like(x), x)
    if rows.weight is None:
        share = xp.ones(len(rows), dtype=xp.float64, **device_of(x))
    else:
        share = xp.astype(rows.weight, xp.float64)
    return ClassBlock(x, rows.labels, (share / total)[:, None], masked)


# What a pass adds up: numpy arrays, of one row for each number a class has.


def _by_class(block: ClassBlock, residual: Array) -> np.ndarray:
    """``sum_n r_nj (x_nj, 1)``, (m, 2)."""
    xp = array_namespace(residual)
    both = [xp.sum(residual * block.x, axis=0, dtype=xp.float64), xp.sum(residual, axis=0, dtype=xp.float64)]
    return to_numpy(xp.stack(both, axis=1))


def _value_and_gradient(block: ClassBlock, deviation: np.ndarray) -> np.ndarray:
    """NLL and its gradient, (1 + 2 m,)."""
    xp = array_namespace(block.x)
    f = block.moved(deviation)
    rows = xp.arange(block.n_rows, **device_of(f))
    label = xp.astype(f[rows, block.labels], xp.float64)
    with np.errstate(under="ignore"):
        residual = exp_(f)
        total = xp.sum(residual, axis=1, keepdims=True)
        residual *= xp.astype(block.share / total, f.dtype)
    residual[rows, block.labels] -= xp.astype(block.share[:, 0], f.dtype)
    share = block.share[:, 0]
    value = float(xp.sum(share * (xp.log(xp.astype(total[:, 0], xp.float64)) - label)))
    return np.append(value, _by_class(block, residual))


def _product(block: ClassBlock, deviation: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The Hessian of the NLL times a direction (m, 2)."""
    xp = array_namespace(block.x)
    p = block.probabilities(deviation)
    u = block.x * like(direction[:, 0], p)
    u += like(direction[:, 1], p)
    u -= xp.sum(p * u, axis=1, keepdims=True)
    u *= p
    u *= xp.astype(block.share, u.dtype)
    return _by_class(block, u)


def _blocks_of_hessian(block: ClassBlock, deviation: np.ndarray) -> np.ndarray:
    """Sums of ``p (1 - p) (x^2, x, 1)``, (3, m)."""
    xp = array_namespace(block.x)
    p = block.probabilities(deviation)
    h = p * (1.0 - p)
    h *= xp.astype(block.share, h.dtype)
    hx = h * block.x
    sums = [xp.sum(one, axis=0, dtype=xp.float64) for one in (hx * block.x, hx, h)]
    return to_numpy(xp.stack(sums))


def _hessian(block: ClassBlock, deviation: np.ndarray) -> np.ndarray:
    """Of the NLL, (2 m, 2 m), weights before biases."""
    xp = array_namespace(block.x)
    m = block.x.shape[1]
    p = xp.astype(block.probabilities(deviation), xp.float64)
    x = xp.astype(block.x, xp.float64)
    own = block.share * p
    px = p * x
    both = xp.concat([px, p], axis=1)
    hessian = -to_numpy(both.T @ (block.share * both))
    second, first, mass = (to_numpy(xp.sum(s, axis=0)) for s in (own * x * x, own * x, own))
    j = np.arange(m)
    hessian[j, j] += second
    hessian[j + m, j + m] += mass
    hessian[j, j + m] += first
    hessian[j + m, j] += first
    return hessian


def _thin(block: ClassBlock, step: int) -> list[ClassBlock]:
    return [block.every(step)]


def _share(block: ClassBlock) -> float:
    return float(array_namespace(block.share).sum(block.share))


class StreamedVectorProblem:
    """The objective of the vector form; implements `solver.smooth.SmoothProblem`.

    Parameters
    ----------
    source : Source
        Checked rows.
    temperature, floor : float
        Of the features.
    total : float
        Weight of all rows.
    strength : ndarray of shape (m, 2)
        Penalty of each squared deviation.
    """

    def __init__(self, source: Source, temperature: float, floor: float, total: float, strength: np.ndarray):
        n, m = source.shape
        double = n * m <= DOUBLE_BELOW
        self.rows: Blocks = source.hold(
            partial(_class_block, temperature=temperature, floor=floor, total=total, double=double)
        )
        self.centre = np.zeros(m)  # no class looks at another
        self.resolution = 1e-14 if double or not source.single_precision else SINGLE / n**0.5
        self.formed = 2 * m <= FORMED
        self._step = 1 if self.formed else sample_step(n, m) or 1
        self._some, self._part = self.rows, 1.0
        if self._step > 1:
            self._some = MemoryBlocks(self.rows.sum(_thin, self._step))
            self._part = self._some.sum(_share)  # a sample stands for all
        self.published = strength
        self.set_strength(strength)

    def set_strength(self, strength: np.ndarray) -> None:
        """The same problem with another ridge."""
        self.strength = strength
        self.modulus = 2.0 * strength.ravel()

    def evaluate(self, at: np.ndarray) -> tuple[float, np.ndarray]:
        deviation = at.reshape(self.strength.shape)
        found = self.rows.sum(_value_and_gradient, deviation)
        pull = self.strength * deviation
        return float(found[0] + np.vdot(pull, deviation)), found[1:] + 2.0 * pull.ravel()

    def sharpen(self) -> bool:
        if self._some is self.rows:
            return False
        self._some, self._part = self.rows, 1.0
        return True

    def curvature(self, deviation: np.ndarray) -> np.ndarray:
        """The Hessian of the NLL, (2 m, 2 m), weights before biases."""
        return self._some.sum(_hessian, deviation)

    def curvature_by_class(self, deviation: np.ndarray) -> np.ndarray:
        """What the diagonal blocks of the Hessian are made of, (3, m)."""
        return self._some.sum(_blocks_of_hessian, deviation) / self._part

    def curvature_along(self, deviation: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """The Hessian of the NLL times a direction (m, 2), flat."""
        return self._some.sum(_product, deviation, direction).ravel() / self._part

    def newton_step(self, point: Point, closeness: float) -> np.ndarray:
        deviation = point.at.reshape(self.strength.shape)
        if self.formed:
            order = np.arange(len(point.at)).reshape(self.strength.shape).T.ravel()
            hessian = self.curvature(deviation) + np.diag(self.modulus[order])
            step = np.empty_like(point.at)
            step[order] = -cho_solve(
                cho_factor(hessian, overwrite_a=True, check_finite=False), point.gradient[order]
            )
            return step
        second, first, mass = self.curvature_by_class(deviation)
        a, d = second + 2.0 * self.strength[:, 0], mass + 2.0 * self.strength[:, 1]
        inverse = np.stack([d, -first, -first, a]).reshape(2, 2, -1) / (a * d - first**2)

        def product(v: np.ndarray) -> np.ndarray:
            return self.curvature_along(deviation, v.reshape(self.strength.shape)) + self.modulus * v

        def preconditioned(v: np.ndarray) -> np.ndarray:
            return np.einsum("abj,jb->ja", inverse, v.reshape(self.strength.shape)).ravel()

        return conjugate_gradients(product, -point.gradient, preconditioned, closeness, _PRODUCTS)
