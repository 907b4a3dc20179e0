"""The fitted map, written once for every array library: the array API standard, without a branch on values.

    v = z_top - z                           depths below the top of a row, sorted: v_0 = 0 <= v_1 <= ...
    g = max(w_d v + D_d, bound_d)           d the piece of the rank, bound_d the largest g of any class above the piece
    D_d = sum of s_j U + b_j                over the jumps above piece d, with increments s_j, b_j of weight and bias
    g' = W g + A                            second stage, below the top (`core.second_stage`)
    p  = exp(-g') / sum exp(-g')

``U`` is the depth of the lowest rank in use. Then ``g = f_top - f`` for ``f = w (U - v) + b``. Increments are non-negative, so
weights never fall and ``D`` never rises as the rank rises; within a piece ``w v + D`` rounds monotonely, and between pieces the
bound keeps the order whatever the rounding. All is measured from the top, so a finite number that masks a class (-1e4, -3e38)
takes no digits from the others.

`apply` runs on numpy, torch (with gradients), jax and cupy arrays; ndonnx arrays make it an ONNX graph. On numpy arrays parts
that would change nothing are left out (no masks, no ties); elsewhere nothing depends on values, so it can be traced.
Arrays have classes first, (m, n): what belongs to a row (n,) then broadcasts. Where speed needs it, the same map is computed by
`core.numpy_map` (rows of numpy without masks), `engines.numba_engine` (large arrays) and `engines.triton_map` (CUDA).

How a calibrator plugs in. It returns its steps, the first first, each with the name of a function, arrays and plain data:

    def _map_steps(self):
        return [MapStep("binary", {"knots": self.knots_}, {"n_knots": len(self.knots_)})]

    def binary(z, a, s, xp, context):        # z (n, m); a: the arrays, in the library of z; s: the plain data
        return MapRows(f)                    # calibrated logits, classes first (m, n), in array API operations of xp

    FUNCTIONS["binary"] = binary

``to_torch``, its ``state_dict``, ``to_onnx`` and chains (`Stacked`, `LabelShift`) need nothing else. Where the order is kept,
``MapRows(f, lower=v > 0)`` with ``f`` at most 0 makes argmax safe from rounding too; ``"keeps_order": True`` in the plain
data says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..arrays import EXP_GRID
from .libraries import HOST, classes_first, leading, means_of_runs, ramps_of, restored, sorted_rows
from .ranked import LARGEST
from .second_stage import second_stage, second_step
from .statistics import STATISTICS, Depths, RampFactors

# Logits are measured from the top of the row, where half precision has its digits: the largest is 0.
PROBABILITIES, LOGITS, LOGS = "probabilities", "logits", "logs"
# Kind, arrays and static data of a step.
Step = tuple[str, dict[str, Any], dict[str, Any]]
# How the names of arrays begin that stay in double precision: a time or a score, say, may be large and its differences small.
IN_DOUBLE = ("typical", "knots", "values", "slopes", "label", "effect")
# Precision and least normal number.
_LIMITS = {"float32": (2.0**-23, 2.0**-126), "float64": (2.0**-52, 2.0**-1022)}
# exp(-1000) is zero in every precision.
_NOTHING = -1000.0


@dataclass(frozen=True)
class MapStep:
    """One step of a fitted map: ``FUNCTIONS[kind]`` with these arrays (empty ones are not kept), and plain data for JSON."""

    kind: str
    arrays: dict[str, np.ndarray]
    static: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MapRows:
    """What a step gives: calibrated logits (L, n), classes first, -inf where a class is masked."""

    f: Any  # with its largest at 0, where `lower` is given
    # Which classes lie below the top of the step's input, where the step keeps the order.
    lower: Any = None
    restore: Callable[[Any], Any] | None = None  # brings an array like `f` back to (n, m)
    # The output itself (L, n), from its name: for a step whose `f` are no logits of classes.
    finish: Callable[[str], Any] | None = None


@dataclass(frozen=True)
class FittedMap:
    """All numbers of a fitted calibrator, without the library around them."""

    name: str
    n_classes: int
    steps: tuple[MapStep, ...]
    # Of calibrators of probabilities, the smallest positive one of the calibration set; 0 where they are taken as they are, not
    # as logarithms.
    smallest_probability: float | None = None
    classes: list[str] | None = None
    class_axis: int = -1

    @property
    def n_context(self) -> int:
        """Columns of the context that the map takes with the logits."""
        return len((self.steps[0].static.get("adjustment") or {}).get("categories", ()))

    @property
    def input(self) -> str:
        """What the map takes: logits, probabilities, or scores of any scale."""
        by_size = "logits" if self.smallest_probability is None else "probabilities"
        return str(self.steps[0].static.get("input", by_size))

    @property
    def of_scores(self) -> bool:
        """Whether rows are scores of one event, rather than a number for each class or label."""
        return self.steps[-1].static.get("rows") == "scores"

    def of_one_score(self) -> FittedMap | None:
        """The map of one score per row, which a map of two columns applies to their difference; None where there is none."""
        last = self.steps[-1]
        if last.static.get("rows") == "classes":
            step = replace(last, static=last.static | {"rows": "scores"})
            return replace(self, n_classes=1, steps=(*self.steps[:-1], step))
        return self if self.of_scores and self.n_classes == 1 else None

    def width(self, output: str) -> int:
        """Columns of an output: of scores of one event, P of both classes or the log-odds alone."""
        if not self.of_scores:
            return self.n_classes
        return 1 if output == LOGITS else 2

    @property
    def functions(self) -> list[Callable[..., Any]]:
        """Statistics that are the user's own functions, which no file can hold."""
        return [q for s in self.steps for q in s.static.get("statistics", ()) if not isinstance(q, str)]


def apply(
    x: Any,
    steps: list[Step],
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
    z = _logarithms(x, smallest_probability, xp) if smallest_probability else x
    eps, tiny = narrow or _LIMITS[str(z.dtype).rpartition(".")[2]]
    for number, (name, arrays, static) in enumerate(steps, 1):
        rows = FUNCTIONS[name](z, arrays, static, xp, context)
        f = _finished(rows, output if number == len(steps) else LOGITS, xp, eps, tiny)
        z = xp.permute_dims(f, (1, 0)) if rows.restore is None else rows.restore(f)
    return z


def _finished(rows: MapRows, output: str, xp: Any, eps: float, tiny: float) -> Any:
    """The output of a step, with the top strictly above what lies below it in the logits of the step."""
    f, lower = rows.f, rows.lower
    if rows.finish is not None:
        return rows.finish(output)
    if lower is None:
        f = f - xp.max(f, axis=0)
    kind = str(f.dtype).rpartition(".")[2]
    narrow = eps > _LIMITS[kind][0]
    if lower is not None and not narrow:
        # In logits a unit below the top is enough; after exp, and a sum with the top, a step of the grid is.
        f = _kept_below(f, lower, -tiny if output == LOGITS else -1.0 / EXP_GRID[kind], xp)
    top: Any = 0.0
    if output == PROBABILITIES:
        e = xp.exp(_on_grid(f, xp))
        top = 1.0 / xp.total(e)
        f = e * top
    elif output == LOGS:
        top = -xp.log(xp.total(xp.exp(f)))
        f = f + top
    if lower is None or not (narrow or output == LOGS):
        return f
    ratio = eps / _LIMITS[kind][0]
    if narrow and output != LOGITS:  # round the top to the narrower type (Veltkamp)
        top = top * (ratio + 1.0) - (top * (ratio + 1.0) - top)
    # Less than this is rounded to at least one unit below the top.
    below = top - (0.75 * eps * abs(top) + tiny)
    return _kept_below(f, lower, below if output != PROBABILITIES else xp.clip(below, min=0.0), xp)


def _kept_below(f: Any, lower: Any, high: Any, xp: Any) -> Any:
    """``f`` with the classes in ``lower`` no higher than ``high``."""
    if xp is HOST and not np.count_nonzero((f > high) & lower):
        return f  # already so
    return xp.where(lower, xp.clip(f, max=high) if isinstance(high, float) else xp.minimum(f, high), f)


def _on_grid(f: Any, xp: Any) -> Any:
    """Rounded to a grid on which any implementation of exp is monotone, with the gradient of what was rounded."""
    grid = EXP_GRID[str(f.dtype).rpartition(".")[2]]
    if xp is HOST:
        return np.rint(f * grid) * (1.0 / grid)
    d = xp.clip(f, min=_NOTHING)
    rounded = xp.round(d * grid) / grid
    return d + (rounded - d).detach() if hasattr(d, "detach") else rounded


def _logarithms(p: Any, smallest: float, xp: Any) -> Any:
    """Logarithms, in double precision so that they cannot change places; a zero stands for half the smallest positive.

    That may be smaller than any number of the type of ``p``, so it is halved by its logarithm.
    """
    positive = p > 0
    one = xp.filled(p, 1.0)
    logs = xp.log(xp.double(xp.where(positive, p, one)))
    least = xp.min(xp.where(positive, logs, xp.filled(logs, math.inf)), axis=1, keepdims=True)
    half = xp.clip(least, max=math.log(smallest)) - math.log(2.0)
    return xp.astype(xp.where(positive, logs, half), p.dtype)


# Steps


def scale_map(z: Any, a: dict[str, Any], s: dict[str, Any], xp: Any, context: Any) -> MapRows:
    """One weight for all classes of all rows: only the top matters."""
    x = classes_first(z, xp)
    v = xp.max(x, axis=0) - x
    w = a["steps"][0, 0, 0]
    if xp is HOST and np.count_nonzero(v <= LARGEST) == v.size:
        f = v * -w
    else:
        masked = xp.isinf(x)
        v = xp.where(masked, xp.filled(v, 0.0), xp.clip(v, max=LARGEST))
        f = xp.where(masked, xp.filled(v, -math.inf), -(v * w))
    return MapRows(f, v > 0)


def rank_map(
    z: Any, a: dict[str, Any], s: dict[str, Any], xp: Any, context: Any, rest: Any = None
) -> MapRows:
    """Weights and biases by rank, as functions of statistics of the row; and what comes after.

    ``rest`` are a depth and a number (n,) of equal classes below all others, which come last in the result, and the number of
    the top class, where the columns are not all classes.
    """
    r = min(s["n_ranks"], z.shape[1])
    x, index = sorted_rows(z, max(r, min(2, z.shape[1])), xp)
    v = cut = xp.row(x, 0) - x
    masked = None
    if xp is not HOST or index.shape[1] < len(v) or np.count_nonzero(v[-1] <= LARGEST) < len(z):
        masked = xp.isinf(x)
        # A masked class takes part in nothing; -inf itself would make gradients nan.
        cut = xp.clip(v, max=LARGEST)
        v = xp.where(masked, xp.filled(v, 0.0), cut)
    whole = masked is None and r == v.shape[0]
    height = v[-1, ...] if whole else xp.max(leading(v, r), axis=0)
    times = None
    if rest is not None:
        depth, times, top_class = rest
        below = xp.maximum(depth, height)[None, :]
        v, cut = xp.concat([v, below], axis=0), xp.concat([cut, below], axis=0)
        none = xp.zeros_like(v, dtype=xp.bool) if masked is None else masked
        masked = xp.concat([none[: v.shape[0] - 1, ...], (times == 0)[None, :]], axis=0)
    g = _below_top(v, cut, height, masked, times, a, s, xp)
    lower = cut > 0
    if s["adjustment"] is not None:
        if masked is not None:
            g = xp.where(masked, xp.filled(g, 0.0), g)
        top = index[:, 0] if rest is None else top_class
        g = second_stage(g, lower, top, masked, a, s["adjustment"], xp, context, times)
    f = -g
    if masked is not None:
        f = xp.where(masked, xp.filled(f, -math.inf), f)
    return MapRows(f, lower, lambda y: restored(y, index, z.shape[1], xp))


def _below_top(
    v: Any, cut: Any, height: Any, masked: Any, times: Any, a: dict[str, Any], s: dict[str, Any], xp: Any
) -> Any:
    """How far calibrated logits lie below the top (L, n); ``cut`` are depths below which masked classes lie, too."""
    steps = a["steps"]  # (K, 2, D), of weights and biases, from the lowest piece
    if s["n_factors"] > 1:
        depths = Depths(v, masked, xp, times=times)
        values = [_statistic(q, depths, height, s["n_ranks"], xp) for q in s["statistics"]]
        stacked = xp.stack([xp.astype(q, v.dtype, copy=False) for q in values], axis=0)
        psi = ramps_of(stacked, a.get("ramp_statistic"), a["ramp_zero"], a["ramp_width"], xp)
        steps = xp.mixed(steps, psi)
    else:
        steps = steps[0, ..., None]
    if not s["n_jumps"]:
        return v * steps[0, 0, ...]
    # By piece, the top one first: weights, and `a` and `b` of ``D = a U + b``.
    w = xp.flip(xp.running_sum(steps[0, ...]), axis=0)
    of_height, rest = (_sums_before(xp.flip(steps[kind, ...], axis=0), xp) for kind in (0, 1))
    piece = a["piece"]
    ranked = leading(cut, piece.shape[0])
    if s["scale_jumps"]:
        g = ranked * xp.take(w, piece, axis=0)
        if steps.shape[-1] == 1:
            g = g + (xp.take(of_height, piece, axis=0) * height + xp.take(rest, piece, axis=0))
        else:
            drop = _sums_before(xp.flip(steps[0, ...] * height + steps[1, ...], axis=0), xp)
            g = g + xp.take(drop, piece, axis=0)
        bound = xp.running_maximum(xp.take(g, a["above"], axis=0))
        g = xp.maximum(g, xp.take(bound, piece, axis=0))
    else:
        g = ranked * w[:1, ...] + xp.take(rest, piece, axis=0)
    return _level_ties(g, cut, height, masked, w[-1, ...], a["jumps"], times is not None, xp)


def _sums_before(x: Any, xp: Any) -> Any:
    """Running sums (D, n) of what stands before each place."""
    none = 0 * x[:1, ...]
    return none if x.shape[0] == 1 else xp.concat([none, xp.running_sum(x[:-1, ...])], axis=0)


def _statistic(q: Any, depths: Depths, height: Any, r: int, xp: Any) -> Any:
    """A statistic (n,) by its name, or by a function of the sorted logits (n, r) from the lowest, lowest first."""
    if isinstance(q, str):
        return STATISTICS[q](depths)
    anchored = xp.clip(height - depths.depth[:r, ...], min=0.0)
    return xp.asarray(q(xp.permute_dims(xp.flip(anchored, axis=0), (1, 0))))


def _level_ties(
    g: Any, v: Any, height: Any, masked: Any, w_low: Any, jumps: Any, has_rest: bool, xp: Any
) -> Any:
    """Tied ranks share the mean of theirs, and the tail goes on where the lowest rank ends, with its weight."""
    r = g.shape[0]
    low, ranked = g[-1, ...], leading(v, r)
    if has_rest and masked is not None:  # a rest lies below the lowest class that is available
        low = xp.max(xp.where(leading(masked, r), 0.0 * g, g), axis=0)
    tied = True
    if xp is HOST:  # `g` differs within a group only where a jump splits it
        split = np.flatnonzero((ranked[r - jumps] == ranked[r - jumps - 1]).any(axis=0))
        tied = len(split) > 0
        if tied:
            low = low.copy()
            g[:, split] = means_of_runs(g[:, split], ranked[:, split], xp)
    else:
        g = means_of_runs(g, ranked, xp)
    if v.shape[0] == r:
        return g - xp.row(g, 0) if tied else g
    tail = v[r:, ...]
    beyond_low = low + w_low * (tail - height)
    if tied:
        # Classes of the tail that equal the lowest in use belong to its group, with the lowest rank's value.
        lowest = ranked == height
        kept = xp.sum(xp.astype(lowest, g.dtype), axis=0)
        equal = (tail == height) if masked is None else (tail == height) & ~masked[r:, ...]
        counted = equal[:-1, ...] if has_rest else equal  # of a rest nothing is known but the depth
        more = xp.sum(xp.astype(counted, g.dtype), axis=0)
        shared = xp.minimum(xp.maximum(low + (g - low) * (kept / (kept + more)), g), low + 0.0 * g)
        g = xp.where(lowest & (more > 0), shared, g)
        of_group = xp.max(xp.where(lowest, g, xp.filled(g, 0.0)), axis=0)
        beyond_low = xp.where(equal, of_group, beyond_low)
    # The top may itself be a group that a jump falls into.
    return xp.concat([g, beyond_low], axis=0) - xp.row(g, 0)


def affine_map(z: Any, a: dict[str, Any], s: dict[str, Any], xp: Any, context: Any) -> MapRows:
    """``f = coef x + intercept`` of ``x = (z - max z) / T``, or with a floor ``e`` of ``log((1 - e) softmax(z / T) + e / m)``.

    ``origin`` says what is taken from ``x`` then: its mean over the row, the logarithm of its sum of exponentials, or nothing.
    A class that is not available stays so; where others look at it, ``centre`` stands for it.
    """
    x = classes_first(z, xp)
    masked = xp.isinf(x)
    x = (xp.where(masked, xp.filled(x, 0.0), x) - xp.max(x, axis=0)) * s["scale"]
    if s["floor"]:
        e = xp.where(masked, xp.filled(x, 0.0), xp.exp(x))
        x = xp.log(e * ((1.0 - s["floor"]) / xp.total(e)) + s["floor"] / x.shape[0])
    else:
        x = xp.clip(x, min=-LARGEST)
    origin = s.get("origin")
    if origin == "mean":
        count = xp.sum(xp.astype(~masked, x.dtype), axis=0)
        x = x - xp.total(xp.where(masked, xp.filled(x, 0.0), x)) / count
    elif origin == "logsumexp":
        x = x - xp.log(xp.total(xp.where(masked, xp.filled(x, 0.0), xp.exp(x))))
    x = xp.where(masked, a["centre"][:, None], x)
    coef = a["coef"]
    f = xp.matmul(coef, x) if s["matrix"] else x * coef[:, None]
    return MapRows(xp.where(masked, xp.filled(f, -math.inf), f + a["intercept"][:, None]))


FUNCTIONS: dict[str, Callable[..., MapRows]] = {
    "scale": scale_map,
    "ranks": rank_map,
    "affine": affine_map,
}


# Fitted objects as steps


def rank_step(
    starts: np.ndarray,
    scale_steps: np.ndarray,
    bias_steps: np.ndarray,
    factors: RampFactors | None,
    n_classes: int,
    n_ranks: int,
    adjustment: Any,
) -> MapStep:
    """The step of a rank map with increments (K, D) at ``starts``, counted from the lowest rank in use; and a second stage."""
    used = starts < n_ranks
    steps = np.stack([scale_steps[:, used], bias_steps[:, used]], axis=1).astype(np.float64)
    with_steps = np.union1d(0, np.flatnonzero(steps.any(axis=(1, 2))))
    steps, factors = steps[with_steps], None if factors is None else factors.only(with_steps)
    jumps = starts[used][1:].astype(np.int64)
    statistic, zero, width = (RampFactors((), ()) if factors is None else factors).table
    second, more = second_step(adjustment)
    static = {
        "n_classes": n_classes,
        "n_ranks": n_ranks,
        "statistics": [] if factors is None else list(factors.statistics),
        "n_jumps": len(jumps),
        "n_factors": len(steps),
        "scale_jumps": bool(steps[:, 0, 1:].any()),
        "adjustment": second,
    }
    first = np.append(0, n_ranks - jumps[::-1])
    arrays = {
        "jumps": jumps,
        # From the top: the piece of each rank, and the rank above each piece.
        "piece": np.repeat(np.arange(len(first)), np.diff(first, append=n_ranks)),
        "above": np.maximum(first - 1, 0),
        "steps": steps,
        "ramp_statistic": statistic,
        "ramp_zero": zero,
        "ramp_width": width,
        **more,
    }
    plain = not len(jumps) and factors is None and second is None and n_ranks == n_classes
    return MapStep("scale" if plain else "ranks", arrays, static)


def affine_step(
    coef: np.ndarray,
    intercept: np.ndarray,
    centre: np.ndarray,
    scale: float = 1.0,
    floor: float = 0.0,
    origin: str | None = None,
) -> MapStep:
    """An affine map of logits or log-probabilities; see `affine_map`."""
    static = {"scale": float(scale), "floor": float(floor), "matrix": np.ndim(coef) == 2, "origin": origin}
    return MapStep("affine", {"coef": coef, "intercept": intercept, "centre": centre}, static)


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


def steps_as(steps: Sequence[MapStep], array: Callable[[np.ndarray], Any], dtype: Any) -> list[Step]:
    """Steps for `apply`: arrays of a library made by ``array``, numbers in a type of numpy."""
    return [
        (
            step.kind,
            {
                name: array(x.astype(dtype) if x.dtype.kind == "f" and not name.startswith(IN_DOUBLE) else x)
                for name, x in step.arrays.items()
                if np.size(x)
            },
            step.static,
        )
        for step in steps
    ]
