"""The calibration objective written out class by class, in double precision and without any of the library's code.

    F(c) = 1/N sum_n weight_n [ log sum_j exp f_j - f_label ],      f_j = sum_a c_a atom_a(j)

Atoms are (kind, factor, start). Classes are ranked by logit; classes below the top k have the lowest rank. Tied classes share
the mean of what their ranks would give them.
"""

from __future__ import annotations

import numpy as np

SCALE, BIAS = 0, 1


def atom_values(z, kinds, psi, starts, n_ranks):
    """Values (a, classes) of all atoms for one row of available logits."""
    order = np.argsort(z, kind="stable")
    rank = np.empty(len(z), dtype=int)
    rank[order] = np.arange(len(z)) - (len(z) - n_ranks)  # negative in the tail
    u = z - z[order[max(len(z) - n_ranks, 0)]]
    values = np.empty((len(kinds), len(z)))
    for a, (kind, factor, start) in enumerate(zip(kinds, psi, starts, strict=True)):
        # Ranks of masked classes lie below those of the row: the lowest available one stands for them.
        inside = np.maximum(rank, 0) >= start
        values[a] = factor * np.where(inside, u if kind == SCALE else 1.0, 0.0)
    for value in np.unique(z):
        tied = z == value
        values[:, tied] = values[:, tied].mean(axis=1, keepdims=True)
    return values


def objective(logits, labels, weights, factors, atoms, coefficients, top_k=None):
    """Value, gradient (a,) and Hessian (a, a) of ``F``; ``atoms`` is a list of (kind, factor, start)."""
    total = weights.sum()
    value, gradient, hessian = 0.0, np.zeros(len(atoms)), np.zeros((len(atoms), len(atoms)))
    kinds = [kind for kind, _, _ in atoms]
    m = logits.shape[1]
    n_ranks = min(top_k or m, m)
    for z, y, w, psi in zip(logits, labels, weights, factors, strict=True):
        there = np.isfinite(z)
        starts = [start - max(n_ranks - there.sum(), 0) for _, _, start in atoms]
        x = atom_values(
            z[there], kinds, [psi[k] for _, k, _ in atoms], starts, min(n_ranks, int(there.sum()))
        )
        f = coefficients @ x
        label = int(np.flatnonzero(there).searchsorted(y))
        p = np.exp(f - f.max())
        value += w * (np.log(p.sum()) + f.max() - f[label])
        p /= p.sum()
        mean = x @ p
        gradient += w * (mean - x[:, label])
        away = x - mean[:, None]
        hessian += w * (away * p) @ away.T
    return value / total, gradient / total, hessian / total
