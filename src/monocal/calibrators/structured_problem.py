"""The objective of structured scaling, with its curvature: multinomial regression with a ridge of several strengths.

    F(D) = sum_n share_n [ log sum_j exp f_nj - f_n,label ] + sum strength D^2,      f_nj = x_nj + D_j . phi_nj

as in `affine_problem`. Its Hessian applied to a direction ``V`` is one more pass over the rows,

    u_nj = V_j . phi_nj,     r_nj = share_n p_nj (u_nj - sum_k p_nk u_nk),     (H V)_j = sum_n r_nj phi_nj + 2 strength_j V_j.

Where parameters are few the matrix itself is formed and factorised. Where they are many the ridge is strong, a fraction of
the rows is enough to guess the curvature, and conjugate gradients need a few products: the blocks of the Hessian that belong
to one class each, inverted, bring all directions close to alike.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from ..arrays import ordered_softmax
from ..core.rows import sample_step
from ..core.smooth import Point, conjugate_gradients
from ..parallel import block_rows, parallel_sum
from .affine_problem import AffineProblem, MatrixProblem
from .vector import SINGLE

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
