"""Multinomial regression on logits, starting from temperature scaling: the objectives of affine maps with all rows in memory.

    F(D) = sum_n share_n [ log sum_j exp f_nj - f_n,label ] + sum strength D^2,      f_nj = c x_nj + D_j . phi_nj,   c = 1/T,

with ``phi_nj = (x_nj, 1)`` (a weight and a bias for every class: `VectorProblem`) or ``phi_n = (x_n1, ..., x_nm, 1)`` (a weight
for every pair: `MatrixProblem`). It is convex, with gradient ``sum_n R_nj phi_nj``, ``R_n = share_n (p_n - y_n)``.

L-BFGS sees ``theta`` in ``D_j = H_j^(-1/2) theta_j``, where ``H_j = sum_n share_n p_nj (1 - p_nj) phi phi' + strength`` is the
curvature at the start (for a matrix its mean over the classes), so that all directions are scaled alike. `CurvedMatrix` is the
matrix form for Newton's method. Its Hessian applied to a direction ``V`` is one more pass over the rows,

    u_nj = V_j . phi_nj,     r_nj = share_n p_nj (u_nj - sum_k p_nk u_nk),     (H V)_j = sum_n r_nj phi_nj + 2 strength_j V_j.

Where parameters are few the Hessian is formed. Where they are many, conjugate gradients find the step, preconditioned with the
blocks of single classes, on some of the rows while that is exact enough.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from ..arrays import ordered_softmax
from ..core.rows import sample_step
from ..core.smooth import Point, conjugate_gradients
from ..parallel import block_rows, parallel_map, parallel_sum
from .vector_sums import SINGLE


class AffineProblem(ABC):
    """The objective for a solver that starts at ``theta = 0``, which is temperature scaling.

    Parameters
    ----------
    x : ndarray of shape (n, m)
        Features; NaN for a class that is not available. Owned: changed in place.
    labels : ndarray of shape (n,)
    share : ndarray of shape (n,)
        Weights that sum to one.
    scale : float
        ``c = 1/T``.
    strength : ndarray
        Penalty of each squared deviation: (m, 2), or (m, m + 1); the bias is last.
    """

    def __init__(
        self, x: np.ndarray, labels: np.ndarray, share: np.ndarray, scale: float, strength: np.ndarray
    ):
        self.x, self.labels, self.share, self.scale, self.strength = x, labels, share, scale, strength
        masked = np.isnan(x)
        self.masked = masked if masked.any() else None
        weight = np.where(masked, 0.0, share[:, None]) if self.masked is not None else share[:, None]
        seen = np.maximum(weight.sum(axis=0), np.finfo(np.float64).tiny)
        self.centre = np.einsum("nm,nm->m", np.broadcast_to(weight, x.shape), np.nan_to_num(x)) / seen
        np.copyto(x, self.centre.astype(x.dtype), where=masked)
        size = self._block_size()
        self.blocks = [slice(i, i + size) for i in range(0, len(x), size)]
        self._find_units()
        self.size = strength.size

    def parameters(self, theta: np.ndarray) -> np.ndarray:
        """Deviations from temperature scaling, in the shape of ``strength``."""
        return self._in_units(theta.reshape(self.strength.shape))

    def evaluate(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Objective and gradient at ``theta`` (size,)."""
        deviation = self.parameters(theta)
        value = float(np.vdot(self.strength * deviation, deviation))
        gradient = 2.0 * self.strength * deviation
        narrow = deviation.astype(self.x.dtype)
        for v, g in parallel_map(lambda block: self._block(block, narrow), self.blocks):
            value += v
            gradient += g
        return value, self._gradient_in_units(gradient).ravel()

    def _block(self, block: slice, deviation: np.ndarray) -> tuple[float, np.ndarray]:
        """NLL of a block of rows and its gradient."""
        x, y, share = self.x[block], self.labels[block], self.share[block]
        at_label = (np.arange(len(y)), y)
        f = self._forward(x, deviation)
        if self.masked is not None:
            f[self.masked[block]] = -np.inf
        f -= f.max(axis=1, keepdims=True)
        label = f[at_label].astype(np.float64)
        with np.errstate(under="ignore"):
            residual = np.exp(f, out=f)
            total = residual.sum(axis=1)
            residual *= (share / total).astype(x.dtype)[:, None]
        residual[at_label] -= share.astype(x.dtype)
        value = float(share @ (np.log(total.astype(np.float64)) - label))
        return value, np.concatenate(
            [self._backward(residual, x), residual.sum(axis=0, dtype=np.float64)[:, None]], axis=1
        )

    def _doubt(self, block: slice) -> np.ndarray:
        """``share p (1 - p)`` at the start."""
        f = self.x[block] * self.x.dtype.type(self.scale)
        if self.masked is not None:
            f[self.masked[block]] = -np.inf
        p = ordered_softmax(f)
        return self.share[block][:, None] * (p * (1.0 - p))

    # What distinguishes a vector from a matrix.

    def _block_size(self) -> int:
        return block_rows(self.x)

    @abstractmethod
    def _find_units(self) -> None: ...

    @abstractmethod
    def _in_units(self, theta: np.ndarray) -> np.ndarray:
        """Deviations from theta: a linear map."""

    def _gradient_in_units(self, gradient: np.ndarray) -> np.ndarray:
        """Gradient in theta from that in the deviations: the adjoint map."""
        return self._in_units(gradient)

    @abstractmethod
    def _forward(self, x: np.ndarray, deviation: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _backward(self, residual: np.ndarray, x: np.ndarray) -> np.ndarray: ...


class VectorProblem(AffineProblem):
    """A weight and a bias for every class."""

    def _find_units(self) -> None:
        def moments(block: slice) -> np.ndarray:
            x, h = self.x[block].astype(np.float64), self._doubt(block)
            return np.stack([np.einsum("nm,nm,nm->m", h, x, x), np.einsum("nm,nm->m", h, x), h.sum(axis=0)])

        second, first, mass = parallel_sum(moments, self.blocks)
        curvature = np.stack([second, first, first, mass], axis=1).reshape(-1, 2, 2)
        curvature += self.strength[:, :, None] * np.eye(2)
        self.unit = _inverse_root(curvature)

    def _in_units(self, theta: np.ndarray) -> np.ndarray:
        return np.einsum("jab,jb->ja", self.unit, theta)

    def _forward(self, x: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        f = x * (deviation[:, 0] + x.dtype.type(self.scale))
        f += deviation[:, 1]
        return f

    def _backward(self, residual: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.einsum("nm,nm->m", residual, x)[:, None]


class MatrixProblem(AffineProblem):
    """A weight for every pair of classes, and a bias."""

    def _block_size(self) -> int:
        # A matrix product pays only with many rows, because its result is (m, m).
        return max(block_rows(self.x), 2 * self.x.shape[1])

    def _find_units(self) -> None:
        def moments(block: slice) -> np.ndarray:
            x = self.x[block]
            weight = self._doubt(block).sum(axis=1, keepdims=True)
            weighted = x * weight.astype(x.dtype)
            first = weighted.sum(axis=0, dtype=np.float64)[:, None]
            return np.block([[weighted.T @ x, first], [first.T, weight.sum()]])

        m = self.x.shape[1]
        curvature = parallel_sum(moments, self.blocks) / m
        strength = self.strength.mean(axis=0)
        self.unit = _inverse_root(curvature + np.diag(strength))
        # Parameters that are penalised unlike their column (the diagonal of a Dirichlet matrix) have their own unit.
        curved = np.maximum(np.diag(curvature), np.finfo(np.float64).tiny)
        with np.errstate(over="ignore"):  # a parameter without curvature and penalty has no unit
            self.own = np.sqrt(np.minimum((curved + strength) / (curved + self.strength), 1e200))

    def _in_units(self, theta: np.ndarray) -> np.ndarray:
        return (theta @ self.unit) * self.own

    def _gradient_in_units(self, gradient: np.ndarray) -> np.ndarray:
        return (gradient * self.own) @ self.unit

    def _forward(self, x: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        f = x @ deviation[:, :-1].T
        f += x * x.dtype.type(self.scale)
        f += deviation[:, -1]
        return f

    def _backward(self, residual: np.ndarray, x: np.ndarray) -> np.ndarray:
        return residual.T @ x


def _inverse_root(a: np.ndarray) -> np.ndarray:
    """Symmetric ``a^(-1/2)`` of positive semi-definite matrices (..., k, k); where there is no curvature, a bounded unit."""
    values, vectors = np.linalg.eigh(a)
    largest = values.max()
    values = np.maximum(values, 1e-8 * largest if largest > 0 else 1.0)
    return (vectors / np.sqrt(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2)


# Up to so many parameters the Hessian is formed: that is exact, and faster than to work without it.
_FORMED = 192
_FORMED_ROWS = 512
_PRODUCTS = 200


@dataclass(frozen=True)
class _Part:
    """Rows with their probabilities: what the curvature is made of."""

    x: np.ndarray
    p: np.ndarray
    share: np.ndarray  # (n, 1)


class CurvedProblem(AffineProblem):
    """An affine problem in plain units that also knows its Hessian, from all rows or from some."""

    def _find_units(self) -> None:
        self.resolution = 1e-14 if self.x.dtype == np.float64 else SINGLE / len(self.x) ** 0.5
        self.formed = self.strength.size <= _FORMED
        self.published = self.strength
        self.set_strength(self.strength)

    def set_strength(self, strength: np.ndarray) -> None:
        """The same problem with another ridge."""
        self.strength = strength
        self.modulus = 2.0 * strength.ravel()
        self.step = 1 if self.formed else sample_step(*self.x.shape) or 1
        self._inverse: tuple[Any, ...] | None = None

    def _in_units(self, theta: np.ndarray) -> np.ndarray:
        return theta

    def _gradient_in_units(self, gradient: np.ndarray) -> np.ndarray:
        return gradient

    def sharpen(self) -> bool:
        if self.step == 1:
            return False
        self.step = 1
        return True

    def newton_step(self, point: Point, closeness: float) -> np.ndarray:
        parts = self._parts(point.at)
        if self.formed:
            hessian = sum(self._formed(part) for part in parts) + np.diag(self.modulus)
            return -cho_solve(cho_factor(hessian, overwrite_a=True, check_finite=False), point.gradient)
        self._precondition(parts)
        return conjugate_gradients(
            lambda v: self._product(parts, v), -point.gradient, self._preconditioned, closeness, _PRODUCTS
        )

    def _parts(self, at: np.ndarray) -> list[_Part]:
        """Some of the rows, or all, in blocks, with the probabilities at a point."""
        chosen = np.arange(0, len(self.x), self.step)
        # A sample stands for all: its shares add up to one as well.
        share = self.share[chosen] / self.share[chosen].sum()
        deviation = at.reshape(self.strength.shape).astype(self.x.dtype)
        size = _FORMED_ROWS if self.formed else block_rows(self.x)
        parts = []
        for i in range(0, len(chosen), size):
            rows = chosen[i : i + size]
            x = self.x[rows]
            f = self._forward(x, deviation)
            if self.masked is not None:
                f[self.masked[rows]] = -np.inf
            parts.append(_Part(x, ordered_softmax(f), share[i : i + size, None].astype(x.dtype)))
        return parts

    def _product(self, parts: list[_Part], v: np.ndarray) -> np.ndarray:
        """The Hessian times ``v`` (size,)."""
        direction = v.reshape(self.strength.shape)
        narrow = direction.astype(self.x.dtype)

        def one(part: _Part) -> np.ndarray:
            u = self._linear(part.x, narrow)
            u -= np.vecdot(part.p, u)[:, None]
            u *= part.p
            u *= part.share
            bias = u.sum(axis=0, dtype=np.float64)[:, None]
            return np.concatenate([self._backward(u, part.x), bias], axis=1)

        return (parallel_sum(one, parts) + 2.0 * self.strength * direction).ravel()

    def _forward(self, x: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        f = self._linear(x, deviation)
        f += x
        return f

    @abstractmethod
    def _linear(self, x: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        """``D_j . phi_nj``."""

    @abstractmethod
    def _formed(self, part: _Part) -> np.ndarray:
        """The Hessian of some rows without the ridge, (size, size)."""

    @abstractmethod
    def _precondition(self, parts: list[_Part]) -> None:
        """Prepare what `_preconditioned` needs."""

    @abstractmethod
    def _preconditioned(self, v: np.ndarray) -> np.ndarray:
        """An approximate inverse of the Hessian times ``v`` (size,)."""


class CurvedMatrix(CurvedProblem, MatrixProblem):
    """A weight for every pair of classes.

    The block of class ``j`` is close to ``s_j K + 2 strength_j``, ``K = sum_n share_n w_n phi_n phi_n'`` with ``w_n`` the mean of
    ``p (1 - p)``, and ``s_j`` the share of class ``j`` in it. One decomposition of ``K`` inverts them all: the strengths differ
    from class to class only in the place ``j`` of the class itself, a change of rank one.
    """

    def _linear(self, x: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        f = x @ deviation[:, :-1].T
        f += deviation[:, -1]
        return f

    def _formed(self, part: _Part) -> np.ndarray:
        n, m = part.x.shape
        phi = np.concatenate([part.x, np.ones((n, 1), dtype=part.x.dtype)], axis=1)
        all_pairs = (part.p[:, :, None] * phi[:, None, :]).reshape(n, -1)
        hessian = -(all_pairs.T @ (part.share * all_pairs))
        for j in range(m):
            own = slice(j * (m + 1), (j + 1) * (m + 1))
            hessian[own, own] += phi.T @ (part.share * part.p[:, j : j + 1] * phi)
        return hessian

    def _precondition(self, parts: list[_Part]) -> None:
        if self._inverse is not None:
            return
        m = self.x.shape[1]

        def moments(part: _Part) -> np.ndarray:
            doubt = part.share * part.p * (1.0 - part.p)
            weighted = part.x * (doubt.sum(axis=1, keepdims=True) / m)
            corner = doubt.sum(dtype=np.float64) / m
            first = weighted.sum(axis=0, dtype=np.float64)[:, None]
            shared = np.block([[weighted.T @ part.x, first], [first.T, corner]])
            return np.concatenate([shared.ravel(), doubt.sum(axis=0, dtype=np.float64)])

        found = parallel_sum(moments, parts)
        shared, mass = found[:-m].reshape(m + 1, m + 1), found[-m:]
        part_of = mass / max(mass.mean(), np.finfo(np.float64).tiny)
        # The strength of a column as all classes but its own have it.
        base = 2.0 * np.append(np.full(m, self.strength[0, -2 if m > 1 else 0]), self.strength[0, -1])
        root = 1.0 / np.sqrt(base)
        values, vectors = eigh(root[:, None] * shared * root)
        basis = root[:, None] * vectors
        scale = 1.0 / (1.0 + part_of[:, None] * np.maximum(values, 0.0))
        own = np.arange(m)
        change = 2.0 * self.strength[own, own] - base[:m]
        column = (basis[:m] * scale) @ basis.T  # row j: the inverse without the change, its column j
        self._inverse = (basis, scale, column, change / (1.0 + change * column[own, own]))

    def _preconditioned(self, v: np.ndarray) -> np.ndarray:
        assert self._inverse is not None
        basis, scale, column, change = self._inverse
        v = v.reshape(self.strength.shape)
        w = ((v @ basis) * scale) @ basis.T
        w -= (change * np.diag(w))[:, None] * column
        return w.ravel()
