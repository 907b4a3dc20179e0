"""The fitted map of one score: `evaluate` for numpy, and the same as functions of the array API standard for exports.

    x(s)      the score itself, or soft log-odds  log((p + e) / (1 - p + e)), which never end growing (`position`)
    f(x)      a broken line, increasing on every piece:  min(value_j + slope_j (x - knot_j), value_{j+1})
    P(1)      1 / (1 + exp(-f))

Each step is a function that does not decrease in floating-point arithmetic: additions, products with a positive number and
quotients are rounded correctly, hence monotone; each piece of the line is cut at the value where the next begins; and the
arguments of exp and log are rounded to a grid on which their values differ by more than the error of any library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray
from scipy import special

from ..core.map import FUNCTIONS, LOGITS, PROBABILITIES, MapRows, MapStep
from .state import expect

# Log-odds of probabilities that are exactly 0 or 1: beyond those of any number of double precision between.
FARTHEST = 750.0
# Soft log-odds grow by this part of the log-odds beyond |log-odds| = 16, so that probabilities of 1e-30 keep their ranks.
_TAIL, _TAIL_BEGINS = 2e-5, 16.0
# The same for log-odds as the input, over the whole range: there may be many rows beyond.
_TAIL_OF_LOGITS = 1e-3
# Bits of the argument of a logarithm that are rounded off, and the grid of the argument of an exponential.
_SPLIT, _EXP_GRID = 2.0**7 + 1.0, 2.0**46
_LARGEST = float(np.finfo(np.float64).max)
# Probabilities this far from 0 and 1 have log-odds within 16.
_ORDINARY = 2e-7
# Rows that are computed at a time; more than the second number go through a table of the knots, of so many bins.
BLOCK, _FEW, _BINS = 1 << 16, 4096, 1024


@dataclass(frozen=True)
class ScoreMap:
    """A fitted map of one score.

    Attributes
    ----------
    input : {"logits", "probabilities", "scores"}
    softness : float
        ``e`` above; 0: ``x`` is the score itself.
    knots, values : ndarray of shape (K,)
        Corners of the broken line, both increasing.
    slopes : ndarray of shape (K + 1,)
        Of each piece, the two beyond the knots included; positive.

    Examples
    --------
    >>> import monocal as mc
    >>> cal = mc.BinaryMCCT(input="scores").fit([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1])
    >>> cal.maps_[0].softness, bool((cal.maps_[0].slopes > 0).all())
    (0.0, True)
    """

    input: str
    softness: float
    knots: ndarray
    values: ndarray
    slopes: ndarray

    def check(self) -> None:
        """Raise ValueError unless the map increases."""
        knots, values, slopes = (np.asarray(a, np.float64) for a in (self.knots, self.values, self.slopes))
        right: Any = knots.ndim == 1 and knots.size and values.shape == knots.shape
        right = right and slopes.shape == (len(knots) + 1,) and np.isfinite([*knots, *values, *slopes]).all()
        right = right and (np.diff(knots) > 0).all() and (np.diff(values) >= 0).all() and (slopes > 0).all()
        expect(right, "map_", self, "knots and values that rise, and slopes above 0, all finite")
        right = self.input in ("logits", "probabilities", "scores") and 0 <= self.softness < 1
        expect(right, "map_", self, "one of three inputs and a softness from 0 to 1")


def evaluate(score: ndarray, parameters: ScoreMap) -> ndarray:
    """Calibrated log-odds of scores (n,); of many with a table in place of a search."""
    x = position(score, parameters.input, parameters.softness, np)
    knots = parameters.knots
    locate = _table(knots) if len(score) > _FEW else None
    piece = np.searchsorted(knots, x, side="right") if locate is None else locate(x)
    corners = knots, parameters.values, parameters.slopes
    f: ndarray = _broken_line(x, *corners, lambda table: table.take(piece), np)
    return f


def _broken_line(
    x: Any, knots: Any, values: Any, slopes: Any, of_piece: Callable[[Any], Any], xp: Any
) -> Any:
    """Piece 0 lies below the first knot and ends there, piece j > 0 begins at knot j - 1; ``of_piece`` reads a table (..., K + 1)
    at the piece of each ``x``."""
    first, base = (xp.concat([a[..., :1], a], axis=-1) for a in (knots, values))
    end = xp.concat([values, 0.0 * values[..., :1] + _LARGEST], axis=-1)
    with np.errstate(over="ignore", under="ignore"):
        f = of_piece(base) + of_piece(slopes) * (x - of_piece(first))
    return xp.minimum(f, of_piece(end))


def _table(knots: ndarray) -> Callable[[ndarray], ndarray] | None:
    """A function that counts the knots up to ``x`` by equal bins between the first and the last; None where these overflow.

    Exact, whatever the rounding of the bins: a knot in a lower bin than ``x`` is below ``x``, those in the same are compared.
    """
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scale = (_BINS - 2) / (knots[-1] - knots[0])
        offset = 1.0 - knots[0] * scale
    if not np.isfinite([scale, offset]).all():
        return None

    def bins(x: ndarray) -> ndarray:
        with np.errstate(over="ignore"):
            place = x * scale
        place += offset
        np.maximum(place, 0.0, out=place)
        return np.minimum(place, _BINS - 1.0, out=place).astype(np.intp)

    of_knots, padded = bins(knots), np.append(knots, np.inf)
    before = np.searchsorted(of_knots, np.arange(_BINS), side="left")
    most = int(np.bincount(of_knots).max())

    def locate(x: ndarray) -> ndarray:
        piece = before.take(bins(x))
        for _ in range(most):
            piece += x >= padded.take(piece)
        return piece

    return locate


def export_step(
    maps: Sequence[ScoreMap],
    rows: str,
    labels: Sequence[ScoreMap] = (),
    effects: Sequence[tuple[bool, Any]] = (),
) -> MapStep:
    """The map as a step of `core.map`.

    ``rows`` are "classes" (n, 2), one column for each of two classes; "scores" (n, J), each with a map of its own, whose sum is
    the log-odds; or "labels" (n, L): one map of all scores, followed by one of its log-odds for each label. ``effects`` are
    those of the columns of a context: whether it is a category, and what it does.
    """
    arrays = _padded(maps, "") | (_padded(labels, "label_") if labels else {})
    for i, (is_category, effect) in enumerate(effects):
        # The effect of a category that no calibration row had is 0.
        arrays[f"effect_{i}"] = np.append(effect.values, 0.0) if is_category else effect.values
        arrays[f"knots_{i}"] = effect.knots
        if len(effect.slopes):
            arrays[f"slopes_{i}"] = np.append(effect.slopes, 0.0)
    sizes = [len(effect.values) if is_category else None for is_category, effect in effects]
    static = {
        "input": maps[0].input,
        "softness": [float(one.softness) for one in maps],
        "rows": rows,
        "adjustment": {"categories": sizes},
        "centres": [float(effect.centre) for _, effect in effects],
    }
    return MapStep("score", arrays, static)


def _padded(maps: Sequence[ScoreMap], prefix: str) -> dict[str, ndarray]:
    """Knots, values and slopes of all maps (G, K), those of fewer knots filled up with knots that no score reaches."""
    most, arrays = max(len(one.knots) for one in maps), {}
    for name, size in (("knots", most), ("values", most), ("slopes", most + 1)):
        rows = [np.asarray(getattr(one, name), dtype=np.float64) for one in maps]
        last = [_LARGEST if name == "knots" else row[-1] for row in rows]
        filled = [np.append(row, np.full(size - len(row), x)) for row, x in zip(rows, last, strict=True)]
        arrays[prefix + name] = np.stack(filled)
    return arrays


def _exported(z: Any, a: dict[str, Any], s: dict[str, Any], xp: Any, context: Any) -> MapRows:
    """The map of rows (n, m), traceable."""
    scores, rows = xp.permute_dims(xp.double(z), (1, 0)), s["rows"]
    if s["input"] == "probabilities":
        scores = xp.clip(scores[1:, :] if rows == "classes" else scores, min=0.0, max=1.0)
    elif rows == "classes":
        scores = xp.clip(scores[1:, :] - scores[:1, :], min=-_LARGEST, max=_LARGEST)
    if rows == "labels":
        scores = xp.reshape(scores, (1, -1))
    x = [position(scores[i : i + 1, :], s["input"], e, xp) for i, e in enumerate(s["softness"])]
    f = _lines(xp.concat(x, axis=0), a, "", xp)
    if rows == "labels":
        f = _lines(xp.reshape(f, (a["label_knots"].shape[0], -1)), a, "label_", xp)
    else:
        f = sum((f[i : i + 1, :] for i in range(1, len(x))), f[:1, :])
    if s["centres"]:
        f = _with_effects(f, context, a, s, xp)

    def finish(output: str) -> Any:
        # Cut where log-odds would overflow in the type of the rows.
        largest = float(np.finfo(str(z.dtype).rpartition(".")[2]).max)
        g = xp.clip(f, min=-largest, max=largest)
        if output == LOGITS:
            g = xp.concat([-0.5 * g, 0.5 * g], axis=0) if rows == "classes" else g
        else:
            g = g if rows == "labels" else xp.concat([-g, g], axis=0)
            g = expit(g, xp) if output == PROBABILITIES else xp.clip(g, max=0.0) - xp.log1p(xp.exp(-abs(g)))
        return xp.astype(g, z.dtype)

    return MapRows(f, finish=finish)


FUNCTIONS["score"] = _exported


def _with_effects(f: Any, context: Any, a: dict[str, Any], s: dict[str, Any], xp: Any) -> Any:
    """Log-odds (1, n) with what the columns of the context do to them; see `calibrators.binary_context`."""
    factor, added = 1.0, 0.0
    for i, (size, centre) in enumerate(zip(s["adjustment"]["categories"], s["centres"], strict=True)):
        column, values = xp.double(context[:, i]), xp.double(a[f"effect_{i}"])
        if size is None:
            knots = xp.double(a[f"knots_{i}"])
            inside = xp.minimum(xp.maximum(column, knots[:1]), knots[-1:])
            left = xp.sum(xp.astype(inside[None, :] >= knots[1:-1, None], xp.int64), axis=0)
            slopes = (values[1:] - values[:-1]) / (knots[1:] - knots[:-1])
            y = xp.take(values, left, axis=0)
            y = y + xp.take(slopes, left, axis=0) * (inside - xp.take(knots, left, axis=0))
            added = added + xp.where(xp.isnan(column), 0.0 * values[:1], y)
            continue
        seen = (column >= 0) & (column < size)
        code = xp.astype(xp.where(seen, column, 0.0 * column + size), xp.int64)
        added = added + xp.take(values, code, axis=0)
        if f"slopes_{i}" in a:
            slope = xp.take(xp.double(a[f"slopes_{i}"]), code, axis=0)
            factor, added = factor + slope, added - slope * centre
    return f * factor + added


def _lines(x: Any, a: dict[str, Any], prefix: str, xp: Any) -> Any:
    """Broken lines (knots, values and slopes of each, (G, K)) at ``x`` (G, n); pieces by comparison with all knots."""
    knots, values, slopes = (xp.double(a[f"{prefix}{name}"]) for name in ("knots", "values", "slopes"))
    ends = xp.permute_dims(knots, (1, 0))[:, :, None]
    piece = xp.sum(xp.astype(x[None, ...] >= ends, xp.int64), axis=0)
    return _broken_line(x, knots, values, slopes, lambda a: xp.take_along_axis(a, piece, axis=1), xp)


def position(score: Any, input: str, softness: float, xp: Any) -> Any:
    """``x`` of scores: the score itself, or its soft log-odds."""
    if input == "probabilities":
        soft = ordered_log((score + softness) / ((1.0 - score) + softness), xp)
        # The short way, for rows none of which has log-odds beyond 16.
        plain = isinstance(score, ndarray) and len(score) and score.min() > _ORDINARY
        return soft if plain and score.max() < 1.0 - _ORDINARY else soft + _tail(log_odds(score, xp), xp)
    if softness == 0.0:
        return score
    # log((s + e) / (1 - s + e)) with s = 1 / (1 + exp(-|v|)), written so that only one term depends on v.
    small = ordered_exp(-abs(score), xp)
    whole = 1.0 + softness
    ratio = softness / whole + (whole - softness * softness / whole) / (softness + whole * small)
    size = ordered_log(xp.clip(ratio, min=1.0), xp)
    return xp.where(score < 0, -size, size) + _TAIL_OF_LOGITS * score


def _tail(odds: Any, xp: Any) -> Any:
    """What soft log-odds grow by where the log-odds are large."""
    return _TAIL * (xp.clip(odds - _TAIL_BEGINS, min=0.0) + xp.clip(odds + _TAIL_BEGINS, max=0.0))


def softened(v: ndarray, input: str, softness: float) -> ndarray:
    """`position` of scores of numpy, those of probabilities as log-odds: for a fit, where rounding does not matter."""
    if input != "probabilities":
        return position(v, input, softness, np)
    return np.log((special.expit(v) + softness) / (special.expit(-v) + softness)) + _tail(v, np)


def log_odds(p: Any, xp: Any) -> Any:
    """``log(p / (1 - p))``; that of 0 and 1 lies beyond all others."""
    inside = ordered_log(xp.clip(p, min=5e-324) / xp.clip(1.0 - p, min=1e-300), xp)
    return xp.where(p >= 1.0, 0.0 * p + FARTHEST, xp.where(p <= 0.0, 0.0 * p - FARTHEST, inside))


def expit(f: Any, xp: Any) -> Any:
    """``1 / (1 + exp(-f))``, never decreasing; 0 where exp overflows."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + xp.exp(_on_grid(xp.clip(-f, min=-FARTHEST - 1.0, max=FARTHEST + 1.0), xp)))


def ordered_exp(x: Any, xp: Any) -> Any:
    """``exp(x)`` for ``x <= 0``, never decreasing."""
    return xp.exp(_on_grid(xp.clip(x, min=-FARTHEST - 1.0), xp))


def _on_grid(x: Any, xp: Any) -> Any:
    """Arguments of an exponential rounded to a grid, with the gradient of what was rounded."""
    rounded = xp.round(x * _EXP_GRID) * (1.0 / _EXP_GRID)
    return x + (rounded - x).detach() if hasattr(x, "detach") else rounded


def ordered_log(r: Any, xp: Any) -> Any:
    """``log(r)`` for ``r > 0``, never decreasing: of ``r`` rounded to 46 bits (Veltkamp's splitting)."""
    big = r * _SPLIT
    return xp.log(big - (big - r))
