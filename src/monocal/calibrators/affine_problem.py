"""Multinomial regression on logits, from temperature scaling on.

    F(D) = sum_n share_n [ log sum_j exp f_nj - f_n,label ] + sum strength D^2,      f_nj = c x_nj + D_j . phi_nj,   c = 1/T,

with ``phi_nj = (x_nj, 1)`` (a weight and a bias for every class: `VectorProblem`) or ``phi_n = (x_n1, ..., x_nm, 1)`` (a weight
for every pair: `MatrixProblem`). It is convex, with gradient ``sum_n R_nj phi_nj``, ``R_n = share_n (p_n - y_n)``.

A solver sees ``theta`` in ``D_j = H_j^(-1/2) theta_j``, where ``H_j = sum_n share_n p_nj (1 - p_nj) phi phi' + strength`` is the
curvature at the start (for a matrix its mean over the classes), so that all directions look alike to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ..arrays import ordered_softmax
from ..parallel import block_rows, parallel_map, parallel_sum


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
