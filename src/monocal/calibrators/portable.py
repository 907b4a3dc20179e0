"""The fitted map, written once for every array library: the array API standard, without a look at values.

    v = z_top - z                                          depths below the top of a row, sorted: v_0 = 0 <= v_1 <= ...
    g_i = sum_{j <= i} w_j (v_j - v_{j-1}) + (w_{j-1} - w_j) (U - v_{j-1}) + (b_{j-1} - b_j)
    g'  = W g + A                                          second stage, below the top
    p   = exp(-g') / sum exp(-g')

``w_j``, ``b_j`` are weight and bias of the rank, ``U`` the depth of the lowest rank in use. The telescoped sum is
``g = f_top - f`` for ``f = w (U - v) + b``. All its terms are non-negative, so the order stands whatever the rounding; and all is
measured from the top, so a finite number that masks a class (-1e4, -3e38) takes no digits from the others.

`apply` runs on numpy, torch (with gradients), jax and cupy arrays; ndonnx arrays make it an ONNX graph. On numpy arrays parts
that would change nothing are left out (no masks, no ties); elsewhere nothing depends on values, so it can be traced.
Arrays have classes first, (m, n): what belongs to a row (n,) then broadcasts.

How a calibrator plugs in. It returns its steps, the first first, each with the name of a function, arrays and plain data:

    def _map_steps(self):
        return [MapStep("binary", {"knots": self.knots_}, {"n_knots": len(self.knots_)})]

    def binary(z, a, s, xp, context):        # z (n, m); a: the arrays, in the library of z; s: the plain data
        f = ...                              # calibrated logits, classes first (m, n), in array API operations of xp
        return MapRows(f)

    FUNCTIONS["binary"] = binary

``to_torch``, its ``state_dict``, ``to_onnx`` and chains (`Stacked`, `LabelShift`) need nothing else. Where the order is kept,
``MapRows(f, lower=v > 0)`` with ``f`` at most 0 makes argmax safe from rounding too; ``"keeps_order": True`` in the plain
data says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import array_api_compat
import numpy as np

from ..arrays import EXP_GRID
from ..core.ranked import LARGEST
from ..errors import InputError
from .statistics import STATISTICS, log_odds

# Logits are measured from the top of the row, where half precision has its digits: the largest is 0.
PROBABILITIES, LOGITS, LOGS = "probabilities", "logits", "logs"
# Precision and least normal number.
_LIMITS = {"float32": (2.0**-23, 2.0**-126), "float64": (2.0**-52, 2.0**-1022)}
# Beyond so many classes sums on the host are in double precision.
_FEW_CLASSES = 48
# Up to so many pairs of a jump and a rank all are compared.
_FEW_PAIRS = 1024
# exp(-1000) is zero in every precision.
_NOTHING = -1000.0


@dataclass(frozen=True)
class MapStep:
    """One step of a fitted map: ``FUNCTIONS[kind]`` with these numbers.

    Attributes
    ----------
    kind : str
    arrays : dict of str to ndarray
        None or no entry: empty arrays are not kept.
    static : dict
        Plain data (JSON), what the arrays mean.
    """

    kind: str
    arrays: dict[str, np.ndarray]
    static: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MapRows:
    """What a step gives: calibrated logits (L, n), classes first.

    Attributes
    ----------
    f : array
        Largest 0 where ``lower`` is given; -inf where a class is masked.
    lower : array of bool, or None
        Which classes lie below the top of the step's input, where the step keeps the order.
    restore : callable
        Brings an array like ``f`` back to (n, m).
    independent : bool
        Whether ``f`` are log-odds of labels of which any number may hold, not logits of classes of which one does.
    """

    f: Any
    lower: Any = None
    restore: Callable[[Any], Any] | None = None
    independent: bool = False


@dataclass(frozen=True)
class FittedMap:
    """All numbers of a fitted calibrator, without the library around them.

    Attributes
    ----------
    name : str
    n_classes : int
    steps : tuple of MapStep
    smallest_probability : float or None
        For calibrators of probabilities, the smallest positive one of the calibration set; None for logits.
    classes : list of str or None
    class_axis, n_context : int
    """

    name: str
    n_classes: int
    steps: tuple[MapStep, ...]
    smallest_probability: float | None = None
    classes: list[str] | None = None
    class_axis: int = -1

    @property
    def n_context(self) -> int:
        """Columns of the context that the map takes beside logits."""
        return len((self.steps[0].static.get("adjustment") or {}).get("categories", ()))

    @property
    def input(self) -> str:
        """What the map takes."""
        return "logits" if self.smallest_probability is None else "probabilities"

    @property
    def functions(self) -> list[Callable[..., Any]]:
        """Statistics that are the user's own functions, which no file can hold."""
        return [q for s in self.steps for q in s.static.get("statistics", ()) if not isinstance(q, str)]


def map_of(calibrator: Any) -> FittedMap:
    """The map of a fitted calibrator; one that cannot be exported is refused with a sentence."""
    calibrator._check_fitted()
    names = getattr(calibrator, "feature_names_in_", None)
    of_probabilities = calibrator.input == "probabilities"
    return FittedMap(
        name=type(calibrator).__name__,
        n_classes=int(calibrator.n_features_in_),
        steps=tuple(calibrator._map_steps()),
        smallest_probability=float(calibrator.smallest_probability_) if of_probabilities else None,
        classes=None if names is None else [str(name) for name in names],
        class_axis=int(calibrator.class_axis),
    )


def apply(
    x: Any,
    steps: list[tuple[str, dict[str, Any], dict[str, Any]]],
    xp: Any,
    output: str = PROBABILITIES,
    *,
    smallest_probability: float | None = None,
    context: Any = None,
    narrow: tuple[float, float] | None = None,
) -> Any:
    """Calibrated probabilities, logits or log-probabilities (n, m) of rows (n, m) in float32 or float64.

    ``steps`` are kind, arrays and static data of each. ``narrow`` are the precision and the least normal number of a narrower
    type that the result will be cast to: then it stays in order there.
    """
    z = x if smallest_probability is None else _logarithms(x, smallest_probability, xp)
    eps, tiny = narrow or _LIMITS[str(z.dtype).rpartition(".")[2]]
    for number, (name, arrays, static) in enumerate(steps, 1):
        rows = FUNCTIONS[name](z, arrays, static, xp, context)
        f = _finished(rows, output if number == len(steps) else LOGITS, xp, eps, tiny)
        z = xp.permute_dims(f, (1, 0)) if rows.restore is None else rows.restore(f)
    return z


def _finished(rows: MapRows, output: str, xp: Any, eps: float, tiny: float) -> Any:
    """The output of a step, with the top strictly above what lies below it in the logits of the step."""
    f, lower = rows.f, rows.lower
    if rows.independent:
        return _of_labels(f, output, xp)
    if lower is None:
        f = f - xp.max(f, axis=0)
    top: Any = 0.0
    if output == PROBABILITIES:
        e = xp.exp(_on_grid(f, xp))
        top = 1.0 / _sum(e, xp)
        f = e * top
    elif output == LOGS:
        top = -xp.log(_sum(xp.exp(f), xp))
        f = f + top
    if lower is None:
        return f
    ratio = eps / _LIMITS[str(f.dtype).rpartition(".")[2]][0]
    if ratio > 1.0:  # round the top to the narrower type (Veltkamp)
        top = top * (ratio + 1.0) - (top * (ratio + 1.0) - top)
    # Less than this is rounded to at least one unit below the top.
    below = top - (0.75 * eps * abs(top) + tiny)
    return xp.where(lower, xp.clip(f, max=below) if isinstance(below, float) else xp.minimum(f, below), f)


def _of_labels(f: Any, output: str, xp: Any) -> Any:
    """P(label), its logarithm, or the log-odds themselves."""
    if output == LOGITS:
        return f
    probability = 1.0 / (1.0 + xp.exp(_on_grid(-f, xp)))
    return probability if output == PROBABILITIES else xp.log(probability)


def _on_grid(f: Any, xp: Any) -> Any:
    """Rounded to a grid on which any implementation of exp is monotone, with the gradient of what was rounded."""
    grid = EXP_GRID[str(f.dtype).rpartition(".")[2]]
    if xp is HOST:
        return np.rint(f * grid) * (1.0 / grid)
    d = xp.clip(f, min=_NOTHING)
    rounded = xp.round(d * grid) / grid
    return d + (rounded - d).detach() if hasattr(d, "detach") else rounded


def _sum(x: Any, xp: Any) -> Any:
    """Sums over the classes (n,); in a graph in double precision, since a runtime's sums are not compensated."""
    if not is_graph(x):
        return xp.sum(x, axis=0)
    return xp.astype(xp.sum(xp.astype(x, xp.float64), axis=0), x.dtype)


def _logarithms(p: Any, smallest: float, xp: Any) -> Any:
    """Logarithms, in double precision so that they cannot change places; a zero stands for half the smallest positive.

    That may be smaller than any number of the type of ``p``, so it is halved by its logarithm.
    """
    positive = p > 0
    one = _filled(p, 1.0, xp)
    logs = xp.log(double(xp.where(positive, p, one), xp))
    least = xp.min(xp.where(positive, logs, _filled(logs, math.inf, xp)), axis=1, keepdims=True)
    half = xp.clip(least, max=math.log(smallest)) - math.log(2.0)
    return xp.astype(xp.where(positive, logs, half), p.dtype)


def _filled(x: Any, value: float, xp: Any) -> Any:
    """A value to choose instead of those of ``x``; a scalar where the library takes one."""
    return xp.scalar_like(x, value) if hasattr(xp, "scalar_like") else xp.full_like(x, value)


def double(x: Any, xp: Any) -> Any:
    """In double precision, where the device has it."""
    return x if str(getattr(x, "device", "")).startswith("mps") else xp.astype(x, xp.float64)


# Steps


def scale_map(z: Any, a: dict[str, Any], s: dict[str, Any], xp: Any, context: Any) -> MapRows:
    """One weight for all classes of all rows: only the top matters."""
    x = xp.permute_dims(z, (1, 0))
    v = xp.max(x, axis=0) - x
    w = a["steps"][0, 0, 0]
    if xp is HOST and np.count_nonzero(v <= LARGEST) == v.size:
        f = v * -w
    else:
        masked = xp.isinf(x)
        v = xp.where(masked, _filled(v, 0.0, xp), xp.clip(v, max=LARGEST))
        f = xp.where(masked, _filled(v, -math.inf, xp), -(v * w))
    return MapRows(f, v > 0)


def rank_map(z: Any, a: dict[str, Any], s: dict[str, Any], xp: Any, context: Any) -> MapRows:
    """Weights and biases by rank, as functions of statistics of the row; and what comes after."""
    r = s["n_ranks"]
    x, index = _sorted_rows(z, max(r, min(2, z.shape[1])), xp)
    v = x[0, ...] - x
    masked = None
    if xp is not HOST or index.shape[1] < len(v) or np.count_nonzero(v[-1] <= LARGEST) < len(z):
        masked = xp.isinf(x)
        # A masked class takes part in nothing; -inf itself would make gradients nan.
        v = xp.where(masked, _filled(v, 0.0, xp), xp.clip(v, max=LARGEST))
    whole = masked is None and r == v.shape[0]
    height = v[-1, ...] if whole else xp.max(v[:r, ...], axis=0)
    g = _below_top(v, height, masked, a, s, xp)
    lower = v > 0
    if masked is not None:
        g = xp.where(masked, _filled(g, 0.0, xp), g)
    if s["adjustment"] is not None:
        g = _second_stage(g, lower, index, masked, a, s["adjustment"], xp, context)
    f = -g
    if masked is not None:
        f = xp.where(masked, _filled(f, -math.inf, xp), f)
    return MapRows(f, lower, lambda y: _restored(y, index, z.shape[1], xp))


def _below_top(v: Any, height: Any, masked: Any, a: dict[str, Any], s: dict[str, Any], xp: Any) -> Any:
    """How far calibrated logits lie below the top (L, n)."""
    r = s["n_ranks"]
    psi = None
    if s["n_factors"] > 1:
        depths = Depths(v, masked, xp)
        values = [
            STATISTICS[q](depths) if isinstance(q, str) else _own_statistic(q, v[:r, ...], height, xp)
            for q in s["statistics"]
        ]
        psi = ramps_of(values, a, "ramp_", v, xp)
    steps = a["steps"][0, :, :, None]
    if psi is not None:
        # Not a matrix product, whose rounding depends on how many rows it is given.
        steps = xp.sum(a["steps"][1:, :, :, None] * psi[:, None, None, :], axis=0) + steps
    if not s["n_jumps"]:
        return v * steps[0, 0, ...]
    by_rank = xp.take(_running_sum(steps, xp, axis=1), a["piece"], axis=1)
    w, b = by_rank[0, ...], by_rank[1, ...]
    ranked = v[:r, ...]
    rise = (ranked[1:, ...] - ranked[:-1, ...]) * w[1:, ...]
    if s["scale_jumps"]:
        rise = rise + (w[:-1, ...] - w[1:, ...]) * (height - ranked[:-1, ...])
    if s["bias_jumps"]:
        rise = rise + (b[:-1, ...] - b[1:, ...])
    g = xp.concat([v[:1, ...], _running_sum(rise, xp)], axis=0)
    return _level_ties(g, v, height, masked, w[-1, ...], r - a["jumps"], xp)


def ramps_of(values: list[Any], a: dict[str, Any], prefix: str, v: Any, xp: Any) -> Any:
    """Factors (K - 1, n) that rise from 0 to 1 with a statistic (n,) of the row, in the type of ``v``."""
    if len(values) == 1:
        q = xp.astype(values[0], v.dtype, copy=False)
    else:
        q = xp.take(xp.astype(xp.stack(values, axis=0), v.dtype, copy=False), a[prefix + "statistic"], axis=0)
    return xp.clip((q - a[prefix + "zero"][:, None]) / a[prefix + "width"][:, None], min=0.0, max=1.0)


def _own_statistic(function: Callable[..., Any], v: Any, height: Any, xp: Any) -> Any:
    """A user's own statistic (n,), of the sorted logits (n, r) measured from the lowest, lowest first."""
    value = function(xp.permute_dims(xp.flip(xp.clip(height - v, min=0.0), axis=0), (1, 0)))
    return xp.astype(xp.asarray(value), v.dtype)


def _running_sum(x: Any, xp: Any, axis: int = 0) -> Any:
    """Sums of non-negative numbers up to each place, never falling: a device adds in an order of its own."""
    total = xp.cumulative_sum(x, axis=axis)
    return total.cummax(dim=axis).values if getattr(x, "is_cuda", False) else total


def _level_ties(g: Any, v: Any, height: Any, masked: Any, w_low: Any, jumps: Any, xp: Any) -> Any:
    """Tied ranks share the mean of theirs, and the tail goes on where the lowest rank ends, with its weight."""
    r = g.shape[0]
    low, ranked = g[-1, ...], v[:r, ...]
    tied = xp is not HOST or bool(np.count_nonzero(ranked[1:] == ranked[:-1]))
    if tied:
        if masked is not None:  # such classes are tied with no other
            ranked = xp.where(masked[:r, ...], _filled(ranked, 2 * LARGEST, xp), ranked)
        few = jumps.shape[0] * r <= _FEW_PAIRS and str(g.dtype).endswith("float32")
        g = _means_at_jumps(g, ranked, jumps, xp) if few else _means_of_runs(g, ranked, xp)
    if v.shape[0] == r:
        return g - g[0, ...] if tied else g
    tail = v[r:, ...]
    beyond_low = low + w_low * (tail - height)
    if tied:
        # Classes of the tail that equal the lowest in use belong to its group, with the lowest rank's value.
        lowest = ranked == height
        kept = xp.sum(xp.astype(lowest, g.dtype), axis=0)
        equal = (tail == height) if masked is None else (tail == height) & ~masked[r:, ...]
        more = xp.sum(xp.astype(equal, g.dtype), axis=0)
        shared = xp.minimum(xp.maximum(low + (g - low) * (kept / (kept + more)), g), low + 0.0 * g)
        g = xp.where(lowest & (more > 0), shared, g)
        of_group = xp.max(xp.where(lowest, g, _filled(g, 0.0, xp)), axis=0)
        beyond_low = xp.where(equal, of_group, beyond_low)
    # The top may itself be a group that a jump falls into.
    return xp.concat([g, beyond_low], axis=0) - g[0, ...]


def _means_at_jumps(g: Any, v: Any, jumps: Any, xp: Any) -> Any:
    """Means of ``g`` (r, n) over the classes that equal one at a jump: elsewhere ``g`` is the same for all of a run.

    In double precision sums of a few single-precision numbers are exact, so no mean leaves the range of its run.
    """
    equal = xp.take(v, jumps, axis=0)[:, None, ...] == v[None, ...]
    flags = xp.astype(equal, xp.float64)
    mean = xp.sum(flags * double(g, xp), axis=1) / xp.sum(flags, axis=1)
    mean = xp.astype(mean, g.dtype)[:, None, ...]
    found = xp.max(xp.where(equal, mean, _filled(mean, -1.0, xp)), axis=0)
    return xp.where(found < 0, g, found)


def _means_of_runs(g: Any, v: Any, xp: Any) -> Any:
    """Mean of ``g`` (r, n) over runs of equal ``v``; exactly ``g`` where it is the same throughout a run."""
    r = v.shape[0]
    new = xp.astype(v[1:, ...] != v[:-1, ...], xp.int64)
    zero = 0 * new[:1, ...]
    group = xp.concat([zero, xp.cumulative_sum(new, axis=0)], axis=0)
    rank = xp.cumulative_sum(0 * group + 1, axis=0) - 1
    # Where each group begins, one after another, and the end of the last.
    starts = xp.sort(xp.where(xp.concat([zero + 1, new], axis=0) > 0, rank, zero + r), axis=0)
    first = xp.take_along_axis(starts, group, axis=0)
    after = xp.take_along_axis(xp.concat([starts, zero + r], axis=0), group + 1, axis=0)
    wide = double(g, xp)
    total = xp.cumulative_sum(wide, axis=0)
    ends = [xp.take_along_axis(t, i, axis=0) for t in (total, wide) for i in (first, after - 1)]
    mean = (ends[1] - ends[0] + ends[2]) / xp.astype(after - first, wide.dtype)
    mean = xp.minimum(xp.maximum(mean, ends[2]), ends[3])
    return xp.astype(mean, g.dtype)


def _second_stage(
    g: Any,
    lower: Any,
    index: Any,
    masked: Any,
    a: dict[str, Any],
    s: dict[str, Any],
    xp: Any,
    context: Any,
) -> Any:
    """``g' = W g + A`` below the top: see `calibration.adjustment`."""
    shared = None
    if g.shape[0] > 1:
        shared = ~lower[1, ...] if masked is None else ~(lower[1, ...] | masked[1, ...])
    scale = None
    if s["by_class"]:
        scale = xp.take(a["class_scales"], index[:, 0], axis=0)
        scale = scale if shared is None else xp.where(shared, _filled(scale, 1.0, xp), scale)
    numbers: list[Any] = []
    if s["categories"]:
        by_column, numbers = of_context(context, a, s, xp, g.dtype)
        scale = by_column if scale is None else scale if by_column is None else scale * by_column
    if not s["n_ramps"]:
        both = a["second_steps"] + _filled(g[:1, ...], 0.0, xp)
    else:
        odds = log_odds(Depths(g if scale is None else g * scale, masked, xp))
        psi = ramps_of([odds, *numbers], a, "second_", g, xp)
        both = xp.sum(a["second_steps"][:, 1:, None] * psi[None, ...], axis=1) + a["second_steps"][:, :1]
    weight, lift = both[0, ...], both[1, ...]
    if shared is not None:
        lift = xp.where(shared, _filled(lift, 0.0, xp), lift)
    weight = weight if scale is None else weight * scale
    g = g * weight
    return xp.where(lower, g + lift, g)


def of_context(
    context: Any, a: dict[str, Any], s: dict[str, Any], xp: Any, dtype: Any
) -> tuple[Any, list[Any]]:
    """The scale (n,) that the categories of each row have together, None where there are none; and its numbers."""
    scale, numbers = None, []
    for i, count in enumerate(s["categories"]):
        column = context[:, i]
        if count is None:
            # In double precision: a time, say, is large beside its differences.
            away = double(column, xp) - a["typical"][i]
            numbers.append(xp.astype(xp.where(xp.isnan(away), _filled(away, 0.0, xp), away), dtype))
            continue
        known = (column >= 0) & (column < count)
        code = xp.astype(xp.where(known, column, _filled(column, float(count), xp)), xp.int64)
        found = xp.take(a[f"column_{i}"], code, axis=0)
        scale = found if scale is None else scale * found
    return scale, numbers


def affine_map(z: Any, a: dict[str, Any], s: dict[str, Any], xp: Any, context: Any) -> MapRows:
    """``f = coef x + intercept`` of ``x = (z - max z) / T``, or with a floor ``e`` of ``log((1 - e) softmax(z / T) + e / m)``.

    A class that is not available stays so; where others look at it, ``centre`` stands for it.
    """
    x = xp.permute_dims(z, (1, 0))
    masked = xp.isinf(x)
    x = (xp.where(masked, _filled(x, 0.0, xp), x) - xp.max(x, axis=0)) * s["scale"]
    if s["floor"]:
        e = xp.where(masked, _filled(x, 0.0, xp), xp.exp(x))
        x = xp.log(e * ((1.0 - s["floor"]) / _sum(e, xp)) + s["floor"] / x.shape[0])
    else:
        x = xp.clip(x, min=-LARGEST)
    x = xp.where(masked, a["centre"][:, None], x)
    coef = a["coef"]
    f = xp.matmul(coef, x) if s["matrix"] else x * coef[:, None]
    return MapRows(xp.where(masked, _filled(f, -math.inf, xp), f + a["intercept"][:, None]))


FUNCTIONS: dict[str, Callable[..., MapRows]] = {
    "scale": scale_map,
    "ranks": rank_map,
    "affine": affine_map,
}


class Depths:
    """The words of statistics (`calibration.depths`) for depths (m, n), sorted at least as far as the second."""

    def __init__(self, depth: Any, masked: Any, xp: Any):
        self.depth = double(depth, xp) if is_graph(depth) else depth
        self._masked, self._xp = masked, xp

    @property
    def second(self) -> Any:
        return self.depth[1 if self.depth.shape[0] > 1 else 0, ...]

    @property
    def count(self) -> Any:
        if self._masked is None:
            return float(self.depth.shape[0])
        return self._xp.sum(self._xp.astype(~self._masked, self.depth.dtype), axis=0)

    def sum(self, x: Any) -> Any:
        return self._xp.sum(self._available(x, 0), axis=0)

    def largest(self, x: Any) -> Any:
        return self._xp.max(abs(self._available(x, 0)), axis=0)

    def sum_but_one(self, x: Any) -> Any:
        return self._xp.sum(self._available(x, 1), axis=0)

    def _available(self, x: Any, begin: int) -> Any:
        x = x[begin:, ...] if begin else x
        return x if self._masked is None else self._xp.where(self._masked[begin:, ...], 0 * x, x)

    def exp(self, x: Any) -> Any:
        return self._xp.exp(x)

    def log(self, x: Any) -> Any:
        return self._xp.log(x)

    def log1p(self, x: Any) -> Any:
        return self._xp.log1p(x)

    def sqrt(self, x: Any) -> Any:
        """Its gradient at 0 is 0."""
        if self._xp is HOST:
            return np.sqrt(x)
        positive = x > 0
        return self._xp.where(positive, self._xp.sqrt(self._xp.where(positive, x, 1.0 + 0 * x)), 0 * x)

    def at_least(self, x: Any, low: float) -> Any:
        return self._xp.clip(x, min=low)

    def or_one(self, x: Any) -> Any:
        if self._xp is HOST:
            return x + (x == 0)
        return self._xp.where(x == 0, 1.0 + 0 * x, x)


# What the standard lacks: the largest of a row in order, and back. A library that has them gives `Functions` with both.


def _sorted_rows(z: Any, k: int, xp: Any) -> tuple[Any, Any]:
    """MapRows (n, m) from the top down (L, n), and the classes (n, k) that were put in order.

    Behind the k largest come all classes in their places, -inf where they are among the k; or the others in order.
    """
    m = z.shape[1]
    if hasattr(xp, "largest_of_rows"):
        values, index = xp.largest_of_rows(z, k)
        if k < m:
            nothing = xp.astype(0 * index, z.dtype) - math.inf
            values = xp.concat([values, xp.scatter_in_rows(z, index, nothing)], axis=1)
    else:
        index = xp.argsort(z, axis=1, descending=True)
        values = xp.take_along_axis(z, index, axis=1)
    x = xp.permute_dims(values, (1, 0))
    # Sums over the first axis then add one class after another, whatever the number of rows.
    return np.ascontiguousarray(x) if xp is HOST else x, index


def _restored(y: Any, index: Any, m: int, xp: Any) -> Any:
    """Values (L, n) by rank as values (n, m) by class."""
    k = index.shape[1]
    y = xp.permute_dims(y, (1, 0))
    if k < m:
        return xp.scatter_in_rows(y[:, k:], index, y[:, :k])
    if hasattr(xp, "scatter_in_rows"):
        return xp.scatter_in_rows(y, index, y)
    return xp.take_along_axis(y, xp.argsort(index, axis=1), axis=1)


def _host_largest(z: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    m = z.shape[1]
    if k == m:
        index = np.argsort(-z, axis=1)
    else:
        part = np.argpartition(-z, k - 1, axis=1)[:, :k]
        index = np.take_along_axis(part, np.argsort(-np.take_along_axis(z, part, axis=1), axis=1), axis=1)
    return z.reshape(-1)[_flat(index, m)], index


def _host_scatter(base: np.ndarray, index: np.ndarray, values: np.ndarray) -> np.ndarray:
    out = np.array(base, order="C")
    out.reshape(-1)[_flat(index, base.shape[1])] = values
    return out


def _flat(index: np.ndarray, m: int) -> np.ndarray:
    """Places of classes (n, k) in a flattened array (n, m)."""
    return index if len(index) == 1 else index + m * np.arange(len(index))[:, None]


def is_graph(x: Any) -> bool:
    """Whether an array stands for a tensor of an ONNX graph."""
    return type(x).__module__.startswith("ndonnx")


def _host_sum(x: np.ndarray, axis: int) -> Any:
    """Sums in an order that does not depend on how many rows there are; of many classes in double precision."""
    size = x.shape[axis]
    if size > _FEW_CLASSES:
        return np.add.reduce(x, axis=axis, dtype=np.float64).astype(x.dtype)
    if x.shape[-1] > 1 or size == 0:
        return np.add.reduce(x, axis=axis)
    total = np.add.accumulate(x, axis=axis)  # of a single row numpy would add pairs
    return total[-1] if axis == 0 else total[:, -1]


def _clip(x: Any, min: Any = None, max: Any = None) -> Any:
    x = x if min is None else np.maximum(x, min)
    return x if max is None else np.minimum(x, max)


class Functions:
    """A library under the names of the standard, with direct ways to the functions that are called often."""

    def __init__(self, library: Any, **direct: Any):
        self._library = library
        self.__dict__.update(direct)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


# numpy without the layers of Python around its reductions, for the many small calls.
HOST = Functions(
    array_api_compat.array_namespace(np.zeros(0)),
    where=np.where,
    minimum=np.minimum,
    exp=np.exp,
    log=np.log,
    concat=np.concatenate,
    permute_dims=np.ndarray.transpose,
    take=lambda x, index, axis: x.take(index, axis=axis),
    scalar_like=lambda x, value: x.dtype.type(value),
    isinf=np.isinf,
    sum=_host_sum,
    max=np.maximum.reduce,
    cumulative_sum=np.add.accumulate,
    clip=_clip,
    largest_of_rows=_host_largest,
    scatter_in_rows=_host_scatter,
    astype=lambda x, dtype, copy=True: x.astype(dtype, copy=copy),
)


def namespace_of(x: Any) -> Any:
    """The functions that `apply` is to be given for an array; for numpy those that leave out what changes nothing."""
    return HOST if type(x) is np.ndarray else array_api_compat.array_namespace(x)


# Fitted objects as steps


def rank_steps(calibrator: Any) -> list[MapStep]:
    """The step of a calibrator that is a rank map."""
    rank_map = getattr(calibrator, "rank_map_", None)
    if rank_map is None:
        raise InputError(
            f"{type(calibrator).__name__} cannot be exported. These can: TemperatureScaling, MCCT, MCCTInverse, ConditionalMCCT, "
            "BinaryMCCT, StructuredScaling, and StructuredMCCT, Stacked and LabelShift made of these; fit one of "
            "them, or call predict_proba."
        )
    m = int(calibrator.n_features_in_)
    r = m if rank_map.top_k is None else min(int(rank_map.top_k), m)
    mapped = rank_map.in_use
    used = mapped.starts < r
    scales, biases = (
        np.asarray(x, dtype=np.float64)[:, used] for x in (mapped.scale_steps, mapped.bias_steps)
    )
    jumps = mapped.starts[used][1:].astype(np.int64)
    factors = mapped.factors
    ramps = () if factors is None else factors.ramps
    second, more = _second_of(getattr(calibrator, "adjustment_", None))
    static = {
        "n_classes": m,
        "n_ranks": r,
        "statistics": [] if factors is None else list(factors.statistics),
        "n_jumps": len(jumps),
        "n_factors": len(scales),
        "scale_jumps": bool(scales[:, 1:].any()),
        "bias_jumps": bool(biases[:, 1:].any()),
        "adjustment": second,
    }
    arrays = {
        "jumps": jumps,
        # Of each rank, the top first.
        "piece": np.searchsorted(jumps, np.arange(r)[::-1], side="right"),
        "steps": np.stack([scales, biases], axis=1),
        "ramp_statistic": np.array([ramp.statistic for ramp in ramps], dtype=np.int64),
        "ramp_zero": np.zeros(0) if factors is None else factors.zeros,
        "ramp_width": np.zeros(0) if factors is None else factors.widths,
        **more,
    }
    plain = not len(jumps) and factors is None and second is None and r == m
    return [MapStep("scale" if plain else "ranks", arrays, static)]


def _second_of(fitted: Any) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """The second stage of a conditional map: what it is, and its numbers."""
    if fitted is None:
        return None, {}
    by_class = fitted.class_scales is not None and fitted.class_scales.variance > 0
    columns = fitted.column_scales
    static = {
        "by_class": by_class,
        "categories": [None if c is None else len(c.scales) for c in columns],
        "n_ramps": len(fitted.factors.ramps),
    }
    arrays = {
        # The scale of a category that no calibration row had is 1.
        **{f"column_{i}": np.append(c.scales, 1.0) for i, c in enumerate(columns) if c is not None},
        "typical": fitted.typical,
        "second_statistic": np.array([ramp.statistic for ramp in fitted.factors.ramps], dtype=np.int64),
        "second_zero": fitted.factors.zeros,
        "second_width": fitted.factors.widths,
        "second_steps": fitted.steps,
    }
    if by_class:
        arrays["class_scales"] = fitted.class_scales.scales
    return static, arrays


def affine_step(
    coef: np.ndarray, intercept: np.ndarray, centre: np.ndarray, scale: float = 1.0, floor: float = 0.0
) -> MapStep:
    """An affine map of log-probabilities; see `affine_map`."""
    static = {"scale": float(scale), "floor": float(floor), "matrix": np.ndim(coef) == 2}
    return MapStep("affine", {"coef": coef, "intercept": intercept, "centre": centre}, static)
