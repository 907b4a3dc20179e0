"""The probabilities that docs/design.md says a fitted calibrator gives, computed another way, in double precision.

With the available classes of a row sorted ascending, ranks counted so that the top has the last one, and the depths
``v = z_top - z`` (one subtraction in the precision the library works in, cut at a million; ``U`` at the lowest rank in use):

    g_i = -( w_i v_i + (w_top - w_i) U + (b_top - b_i) ),     tied classes get the mean of their ranks,     p = softmax(g)

Only the learnt numbers are read from a calibrator (`weights_`, `coefficients_`, ...). With each row comes a bound of what
rounding may do: to every logit ``8 eps (w_top U + b_top)`` and the grid of the exponential, to every ramp the error of its
statistic over its width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

CUT = 1e6
_ROUNDINGS = 8.0


@dataclass(frozen=True)
class Expected:
    """Probabilities (n, m) from ties of equal logits and of equal depths, and how far rounding may lead from one of them."""

    by_logit: np.ndarray
    by_depth: np.ndarray
    tolerance: np.ndarray  # (n, 1)

    def excess(self, p: np.ndarray) -> np.ndarray:
        """By how much each row of ``p`` is further away than rounding explains, (n,)."""
        away = [np.abs(p - e) - self.tolerance for e in (self.by_logit, self.by_depth)]
        return np.minimum(*(a.max(axis=1) for a in away))


def _grid(eps: float) -> float:
    """Arguments of the exponential are rounded to 2^-20 (2^-48): what that and the roundings around it do to a probability."""
    return 64.0 * eps


def expected(calibrator: Any, logits: np.ndarray, single: bool) -> Expected | None:
    """What ``predict_proba`` should give for logits (n, m) of doubles; None where the oracle does not know the method."""
    method = _METHODS.get(type(calibrator).__name__)
    if method is None:
        return None
    result = method(calibrator, logits, single)
    if calibrator.input == "logits":
        return result
    # A logarithm is rounded as well, and a weight makes more of that; what it makes equal may change its rank.
    blur = 128 * float(np.finfo(np.float32).eps) if single else 1024 * float(np.finfo(np.float64).eps)
    apart = np.diff(np.sort(logits, axis=1), axis=1)
    doubtful = ((apart > 0) & (apart < blur)).any(axis=1, keepdims=True)
    tolerance = result.tolerance + blur * (1.0 + _steepness(calibrator))
    return replace(result, tolerance=np.where(doubtful, 1.0, tolerance))


def _steepness(calibrator: Any) -> float:
    """The largest weight a logit may have."""
    if hasattr(calibrator, "coefficients_"):
        return float(calibrator.coefficients_[0].sum())
    if hasattr(calibrator, "temperature_"):
        return 1.0 / float(calibrator.temperature_)
    return float(np.max(calibrator.weights_))


def logits_of(calibrator: Any, values: np.ndarray) -> np.ndarray:
    """Logits of what the calibrator takes: a probability of 0 is half the smallest of its row or of the calibration set."""
    if calibrator.input == "logits":
        return values
    least = np.where(values > 0, values, np.inf).min(axis=1, keepdims=True)
    least = np.minimum(least, calibrator.smallest_probability_)
    return np.where(values > 0, np.log(np.where(values > 0, values, 1.0)), np.log(least) - np.log(2.0))


# Rank maps.


@dataclass(frozen=True)
class _Row:
    """Rows sorted ascending."""

    order: np.ndarray  # (n, m)
    z: np.ndarray
    v: np.ndarray
    available: np.ndarray
    height: np.ndarray  # (n, 1)
    eps: float


def _sorted(logits: np.ndarray, r: int, single: bool) -> _Row:
    order = np.argsort(logits, axis=1, kind="stable")
    z = np.take_along_axis(logits, order, axis=1)
    kind = np.float32 if single else np.float64
    with np.errstate(over="ignore", under="ignore"):
        v = (z[:, -1:].astype(kind) - z.astype(kind)).astype(np.float64)
    v = np.minimum(v, CUT)
    available = z > -np.inf
    height = np.where(available, v, 0.0)[:, z.shape[1] - r :].max(axis=1, keepdims=True)
    return _Row(order, z, v, available, height, float(np.finfo(kind).eps))


def _ranked(
    rows: _Row, w: np.ndarray, b: np.ndarray, unsure: np.ndarray | float = 0.0, stage: Any = None
) -> Expected:
    """Weights and biases (1 or n, r) by rank, lowest first; what is below the ranks in use has the lowest one's.

    Then the second stage of a conditional map, where there is one.
    """
    m, r = rows.z.shape[1], w.shape[1]
    rank = np.maximum(np.arange(m) - (m - r), 0)
    w_i, b_i = w[:, rank], b[:, rank]
    g = -(w_i * rows.v + (w[:, -1:] - w_i) * rows.height + (b[:, -1:] - b_i))
    tolerance = _ROUNDINGS * rows.eps * (w[:, -1:] * rows.height + b[:, -1:]) + _grid(rows.eps) + unsure
    tolerance = np.broadcast_to(tolerance, (len(g), 1))
    both = [_mean_of_ties(g, key, rows.available) for key in (rows.z, rows.v)]
    if stage is not None:
        (one, tolerance), (other, _) = (_second_stage(stage, f, rows, tolerance) for f in both)
        both = [one, other]
    return Expected(
        *(_unsorted(_softmax(f, rows.available), rows.order) for f in both), np.asarray(tolerance)
    )


def _second_stage(
    stage: Any, f: np.ndarray, rows: _Row, tolerance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``W f + A 1[top]`` of sorted rows, row by row from the definition, and the tolerance after it."""
    out, doubt = np.empty_like(f), np.empty_like(tolerance)
    for i in range(len(f)):
        top = (rows.z[i] == rows.z[i, -1]) & rows.available[i]
        s = 1.0
        if stage.class_scales is not None and top.sum() == 1:
            s = float(stage.class_scales.scales[rows.order[i, -1]])
        depth = (f[i, -1] - f[i]) * s
        lower = np.sort(depth[~top & rows.available[i]])
        odds = 0.0
        if top.sum() > 1:
            odds = -np.log((top.sum() - 1) + np.exp(-lower).sum())
        elif len(lower):
            odds = lower[0] - np.log(np.exp(lower[0] - lower).sum())
        weight, lift = stage.steps[:, 0]
        unsure = np.zeros(2)
        error = 4 * s * float(tolerance[i, 0]) + 16 * rows.eps * abs(odds)
        for ramp, steps in zip(stage.factors.ramps, stage.steps[:, 1:].T, strict=True):
            width = ramp.one - ramp.zero
            weight, lift = np.array([weight, lift]) + np.clip((odds - ramp.zero) / width, 0.0, 1.0) * steps
            unsure += min(error / abs(width) + 8 * rows.eps, 1.0) * steps
        with np.errstate(invalid="ignore"):
            out[i] = np.where(rows.available[i], (f[i] - f[i, -1]) * s * weight, f[i])
        if top.sum() == 1:
            out[i] += top * lift
        # A class far below has no probability, whatever the weight.
        doubt[i] = tolerance[i] * s * weight + unsure[0] * s * min(float(rows.height[i, 0]), 40.0) + unsure[1]
        doubt[i] += 8 * rows.eps * (abs(lift) + 40.0)
    return out, doubt


def _mean_of_ties(g: np.ndarray, key: np.ndarray, available: np.ndarray) -> np.ndarray:
    first = np.ones(g.shape, dtype=bool)
    first[:, 1:] = (key[:, 1:] != key[:, :-1]) | (available[:, 1:] != available[:, :-1])
    group = np.cumsum(first.ravel()) - 1
    count = np.bincount(group)
    if (count == 1).all():
        return g
    lowest = np.minimum.reduceat(g.ravel(), np.flatnonzero(first.ravel()))
    mean = lowest + np.bincount(group, weights=g.ravel() - lowest[group]) / count
    return mean[group].reshape(g.shape)


def _softmax(g: np.ndarray, available: np.ndarray) -> np.ndarray:
    with np.errstate(under="ignore"):
        e = np.where(
            available, np.exp(g - g.max(axis=1, keepdims=True, where=available, initial=-np.inf)), 0.0
        )
        return e / e.sum(axis=1, keepdims=True)


def _unsorted(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    out = np.empty_like(values)
    np.put_along_axis(out, order, values, axis=1)
    return out


def _temperature(calibrator: Any, logits: np.ndarray, single: bool) -> Expected:
    rows = _sorted(logits, logits.shape[1], single)
    # One weight for all: only depths matter, and of those only what the exponential does not swallow.
    flat = _ranked(rows, np.full((1, 1), 1.0 / calibrator.temperature_), np.zeros((1, 1)))
    return replace(flat, tolerance=np.full((len(logits), 1), _grid(rows.eps)))


def _mcct(calibrator: Any, logits: np.ndarray, single: bool) -> Expected:
    w, b = calibrator.weights_[None], calibrator.biases_[None]
    return _ranked(_sorted(logits, w.shape[1], single), w, b)


def _conditional(calibrator: Any, logits: np.ndarray, single: bool) -> Expected:
    c = calibrator.coefficients_  # (2, K, r)
    ramps, statistics = calibrator.factors_.ramps, calibrator.factors_.statistics
    rows = _sorted(logits, c.shape[2], single)
    psi, unsure = np.ones((len(logits), 1 + len(ramps))), np.zeros((len(logits), 1 + len(ramps)))
    result = [_statistic(s, rows, c.shape[2]) for s in statistics]
    for k, ramp in enumerate(ramps, 1):
        q, error = result[ramp.statistic]
        width = ramp.one - ramp.zero
        with np.errstate(over="ignore", invalid="ignore"):
            psi[:, k] = np.clip((q - ramp.zero) / width, 0.0, 1.0)
            error = error + 2 * rows.eps * (abs(ramp.zero) + abs(ramp.one))
            unsure[:, k] = np.minimum(error / abs(width) + 4 * rows.eps, 1.0)
        # Where a statistic is far from the ramp its error cannot reach it.
        far = (np.minimum(np.abs(q - ramp.zero), np.abs(q - ramp.one)) > 2 * error) & (
            (psi[:, k] == 0) | (psi[:, k] == 1)
        )
        unsure[far, k] = 0.0
    w, b = (np.cumsum(psi @ kind, axis=1) for kind in c)
    doubt = (unsure @ c[0].sum(axis=1))[:, None] * rows.height + (unsure @ c[1].sum(axis=1))[:, None]
    return _ranked(rows, w, b, doubt, getattr(calibrator, "adjustment_", None))


def _statistic(which: str | Callable[[Any], Any], rows: _Row, r: int) -> tuple[np.ndarray, np.ndarray]:
    """Values (n,) and how far rounding may move them."""
    v, on, eps = rows.v, rows.available, rows.eps
    m = v.shape[1]
    count = on.sum(axis=1)
    deepest = np.where(on, v, 0.0).max(axis=1)
    if not isinstance(which, str):
        u = np.maximum(rows.height - v[:, m - r :], 0.0) * on[:, m - r :]
        # A function of a user's own may jump, so it is asked on both sides, too.
        low, q, high = (
            np.clip(np.asarray(which(u * (1 + side * 16 * eps)), dtype=np.float64), -1e30, 1e30)
            for side in (-1, 0, 1)
        )
        return q, 16 * eps * (np.abs(q) + rows.height[:, 0]) + np.maximum(np.abs(q - low), np.abs(high - q))
    margin = np.where(count >= 2, v[:, -2], 0.0) if m >= 2 else np.zeros(len(v))
    if which == "margin":
        return margin, 4 * eps * margin
    mean = np.where(on, v, 0.0).sum(axis=1) / count
    if which == "mean_gap":
        return mean, 16 * eps * deepest
    if which == "spread":
        return np.sqrt((np.where(on, v - mean[:, None], 0.0) ** 2).sum(axis=1) / count), 16 * eps * deepest
    with np.errstate(under="ignore", divide="ignore"):
        e = np.where(on, np.exp(-v), 0.0)
        if which == "entropy":
            q = np.log(e.sum(axis=1)) + (e * np.where(on, v, 0.0)).sum(axis=1) / e.sum(axis=1)
            return q, 64 * eps * (1 + q) * np.sqrt(m)
        if which == "log_odds":
            below = np.where(on, np.exp(np.minimum(margin[:, None] - v, 0.0)), 0.0)[:, :-1].sum(axis=1)
            q = margin - np.log(np.maximum(below, 1.0))
            return q, 16 * eps * (1 + margin) * np.sqrt(m)
    raise ValueError(which)


_METHODS: dict[str, Callable[[Any, np.ndarray, bool], Expected]] = {
    "TemperatureScaling": _temperature,
    "MCCT": _mcct,
    "MCCTInverse": _mcct,
    "ConditionalMCCT": _conditional,
}


# The same rank map in fifty digits, one row at a time.


def exact_row(logits: Sequence[float], w: Sequence[float], b: Sequence[float]) -> list[float]:
    """``softmax(w_rank (z - z_low) + b_rank)`` of one row of finite or masked logits, by mpmath."""
    import mpmath

    with mpmath.workdps(50):
        at = [i for i, z in enumerate(logits) if z > -np.inf]
        z = {i: mpmath.mpf(float(logits[i])) for i in at}
        top = max(z.values())
        v = {i: min(top - z[i], mpmath.mpf(CUT)) for i in at}
        ranked = sorted(at, key=lambda i: z[i])
        first = len(w) - len(ranked)  # rank of the lowest available class; below 0 in a tail
        rank = {i: max(first + place, 0) for place, i in enumerate(ranked)}
        height = max(v[i] for place, i in enumerate(ranked) if first + place >= 0)
        f = {i: mpmath.mpf(float(w[rank[i]])) * (height - v[i]) + mpmath.mpf(float(b[rank[i]])) for i in at}
        mean = {i: mpmath.fsum(f[j] for j in at if z[j] == z[i]) / sum(z[j] == z[i] for j in at) for i in at}
        largest = max(mean.values())
        e = {i: mpmath.exp(mean[i] - largest) for i in at}
        total = mpmath.fsum(e.values())
        return [float(e[i] / total) if i in e else 0.0 for i in range(len(logits))]
