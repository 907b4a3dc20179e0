"""The fitted map of one score, as one function of the array API standard: `apply`.

    x(s)      the score itself, or soft log-odds  log((p + e) / (1 - p + e)), which never end growing (`_soft_log_odds`)
    f(x)      a broken line, increasing on every piece:  min(value_j + slope_j (x - knot_j), value_{j+1})
    P(1)      1 / (1 + exp(-f))

Each step is a function that does not decrease in floating-point arithmetic: additions, products with a positive number and
quotients are rounded correctly, hence monotone; each piece of the line is cut at the value where the next begins; and the
arguments of exp and log are rounded to a grid on which their values differ by more than the error of any library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.libraries import double
from ..core.map import FUNCTIONS, MapRows, MapStep

# Log-odds of probabilities that are exactly 0 or 1: beyond those of any number of double precision between.
FARTHEST = 750.0
# Soft log-odds grow by this part of the log-odds beyond |log-odds| = 16, so that probabilities of 1e-30 keep their ranks.
TAIL, TAIL_BEGINS = 2e-5, 16.0
# The same for log-odds as the input, over the whole range: there may be many rows beyond.
_TAIL_OF_LOGITS = 1e-3
# Bits of the argument of a logarithm that are rounded off, and the grid of the argument of an exponential.
_SPLIT, _EXP_GRID = 2.0**7 + 1.0, 2.0**46
_LARGEST = float(np.finfo(np.float64).max)
# Logarithms below this stand for probabilities of 0: the least of any positive one is -744.44.
_LOG_ZERO = -745.0
# Up to this, 1 - exp(-x) is x to 8 digits.
_NEAR_ONE = 2.0**-26
# Probabilities this far from 0 and 1 have log-odds within 16.
_ORDINARY = 2e-7


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
    knots: np.ndarray
    values: np.ndarray
    slopes: np.ndarray

    def check(self) -> None:
        """Raise ValueError unless the map increases."""
        knots, values, slopes = (
            np.asarray(a, dtype=np.float64) for a in (self.knots, self.values, self.slopes)
        )
        right = (
            knots.ndim == 1
            and len(knots) >= 1
            and values.shape == knots.shape
            and slopes.shape == (len(knots) + 1,)
        )
        finite = (
            right
            and all(np.isfinite(a).all() for a in (knots, values, slopes))
            and np.isfinite(self.softness)
        )
        if (
            not finite
            or not (np.diff(knots) > 0).all()
            or not (np.diff(values) >= 0).all()
            or not (slopes > 0).all()
        ):
            raise ValueError(
                "map_ cannot be this: expected knots and values that rise, and slopes above 0, all finite"
            )
        if self.input not in ("logits", "probabilities", "scores") or not 0 <= self.softness < 1:
            raise ValueError("map_ cannot be this: expected one of three inputs and a softness from 0 to 1")


def apply(score: Any, parameters: ScoreMap, xp: Any, locate: Callable[[Any], Any] | None = None) -> Any:
    """Calibrated log-odds of scores (n,) in double precision; ``locate(x)`` counts the knots up to ``x``."""
    x = position(score, parameters.input, parameters.softness, xp)
    knots, values, slopes = (
        _constant(a, score, xp) for a in (parameters.knots, parameters.values, parameters.slopes)
    )
    piece = xp.searchsorted(knots, x, side="right") if locate is None else locate(x)
    # Piece 0 lies below the first knot and ends there; piece j > 0 begins at knot j - 1.
    first = xp.concat([knots[:1], knots])
    base = xp.concat([values[:1], values])
    end = xp.concat([values, _constant(np.array([_LARGEST]), score, xp)])
    f = xp.take(base, piece) + xp.take(slopes, piece) * (x - xp.take(first, piece))
    return xp.minimum(f, xp.take(end, piece))


def export_step(parameters: ScoreMap) -> MapStep:
    """The map as a step of `core.map`, for rows of two classes: logits, or the logarithms of probabilities."""
    arrays = {"knots": parameters.knots, "values": parameters.values, "slopes": parameters.slopes}
    return MapStep("score", arrays, {"input": parameters.input, "softness": float(parameters.softness)})


def _exported(z: Any, a: dict[str, Any], s: dict[str, Any], xp: Any, context: Any) -> MapRows:
    """The map of rows (n, 2), traceable: pieces are found by comparison with all knots."""
    rows = double(z, xp)
    odds = xp.clip(rows[:, 1] - rows[:, 0], min=-_LARGEST, max=_LARGEST)
    if s["input"] == "probabilities":
        e, far = s["softness"], xp.clip(odds, min=-FARTHEST, max=FARTHEST)
        soft = ordered_log((ordered_exp(rows[:, 1], xp) + e) / (ordered_exp(rows[:, 0], xp) + e), xp)
        x = soft + TAIL * (xp.clip(far - TAIL_BEGINS, min=0.0) + xp.clip(far + TAIL_BEGINS, max=0.0))
    else:
        x = position(odds, s["input"], s["softness"], xp)
    line = [double(a[name], xp)[None, ...] for name in ("knots", "values", "slopes")]
    f = 0.5 * _in_range(_lines(x[None, ...], line, xp), z, xp)[0, ...]
    return MapRows(xp.astype(xp.stack([-f, f], axis=0), z.dtype))


def export_labels(shared: ScoreMap, maps: tuple[ScoreMap, ...]) -> MapStep:
    """The maps of many labels as a step: one of all scores, then one of its log-odds for each label."""
    most = max(len(one.knots) for one in maps)

    def table(name: str, size: int, last: float | None = None) -> np.ndarray:
        rows = [np.asarray(getattr(one, name), dtype=np.float64) for one in maps]
        return np.stack(
            [np.append(row, np.full(size - len(row), row[-1] if last is None else last)) for row in rows]
        )

    arrays = {f"shared_{name}": getattr(shared, name) for name in ("knots", "values", "slopes")}
    arrays |= {
        "knots": table("knots", most, _LARGEST),
        "values": table("values", most),
        "slopes": table("slopes", most + 1),
    }
    return MapStep("labels", arrays, {"input": shared.input, "softness": float(shared.softness)})


def _exported_labels(z: Any, a: dict[str, Any], s: dict[str, Any], xp: Any, context: Any) -> MapRows:
    """The maps of rows (n, L), traceable."""
    scores = xp.permute_dims(double(z, xp), (1, 0))
    x = xp.reshape(scores, (1, -1))
    if s["input"] == "probabilities":  # whose logarithms the scores are
        p = ordered_exp(x, xp)
        # 1 - exp(x), where it has no digits -x; both fall as x rises.
        rest = xp.where(x > -_NEAR_ONE, -x, xp.clip(1.0 - p, min=_NEAR_ONE))
        odds = x - ordered_log(xp.clip(rest, min=1e-300), xp)
        odds = xp.where(x < _LOG_ZERO, 0.0 * x - FARTHEST, xp.where(x >= 0.0, 0.0 * x + FARTHEST, odds))
        soft = ordered_log((p + s["softness"]) / (rest + s["softness"]), xp)
        x = soft + TAIL * (xp.clip(odds - TAIL_BEGINS, min=0.0) + xp.clip(odds + TAIL_BEGINS, max=0.0))
    else:
        x = position(x, s["input"], s["softness"], xp)
    shared = [double(a[f"shared_{name}"], xp)[None, ...] for name in ("knots", "values", "slopes")]
    f = xp.reshape(_lines(x, shared, xp), (a["knots"].shape[0], -1))
    f = _lines(f, [double(a[name], xp) for name in ("knots", "values", "slopes")], xp)
    return MapRows(xp.astype(_in_range(f, z, xp), z.dtype), independent=True)


def _in_range(f: Any, like: Any, xp: Any) -> Any:
    """Log-odds cut where their differences would overflow in the type of ``like``."""
    largest = _LARGEST if str(like.dtype).endswith("float64") else float(np.finfo(np.float32).max)
    return xp.clip(f, min=-largest / 2, max=largest / 2)


def _lines(x: Any, lines: list[Any], xp: Any) -> Any:
    """Broken lines (knots, values and slopes of each, (G, K)) at ``x`` (G, n); pieces by comparison with all knots."""
    knots, values, slopes = lines
    ends = xp.permute_dims(knots, (1, 0))[:, :, None]
    piece = xp.sum(xp.astype(x[None, ...] >= ends, xp.int64), axis=0)
    tables = (
        xp.concat([values[:, :1], values], axis=1),
        slopes,
        xp.concat([knots[:, :1], knots], axis=1),
        xp.concat([values, 0.0 * values[:, :1] + _LARGEST], axis=1),
    )
    base, slope, first, end = (xp.take_along_axis(table, piece, axis=1) for table in tables)
    return xp.minimum(base + slope * (x - first), end)


FUNCTIONS["score"] = _exported
FUNCTIONS["labels"] = _exported_labels


def position(score: Any, input: str, softness: float, xp: Any) -> Any:
    """``x`` of scores: the score itself, or its soft log-odds."""
    if input == "probabilities":
        soft = ordered_log((score + softness) / ((1.0 - score) + softness), xp)
        if (
            isinstance(score, np.ndarray)
            and len(score)
            and score.min() > _ORDINARY
            and score.max() < 1.0 - _ORDINARY
        ):
            return soft  # the short way, for rows none of which has log-odds beyond 16
        far = log_odds(score, xp)
        beyond = xp.clip(far - TAIL_BEGINS, min=0.0) + xp.clip(far + TAIL_BEGINS, max=0.0)
        return soft + TAIL * beyond
    if softness == 0.0:
        return score
    # log((s + e) / (1 - s + e)) with s = 1 / (1 + exp(-|v|)), written so that only one term depends on v.
    small = ordered_exp(-abs(score), xp)
    whole = 1.0 + softness
    ratio = softness / whole + (whole - softness * softness / whole) / (softness + whole * small)
    size = ordered_log(xp.clip(ratio, min=1.0), xp)
    return xp.where(score < 0, -size, size) + _TAIL_OF_LOGITS * score


def log_odds(p: Any, xp: Any) -> Any:
    """``log(p / (1 - p))``; that of 0 and 1 lies beyond all others."""
    tiny = 5e-324
    odds = xp.clip(p, min=tiny) / xp.clip(1.0 - p, min=1e-300)
    inside = ordered_log(odds, xp)
    return xp.where(p >= 1.0, 0.0 * p + FARTHEST, xp.where(p <= 0.0, 0.0 * p - FARTHEST, inside))


def expit(f: Any, xp: Any) -> Any:
    """``1 / (1 + exp(-f))``, never decreasing; 0 where exp overflows."""
    return 1.0 / (1.0 + xp.exp(xp.round(f * -_EXP_GRID) * (1.0 / _EXP_GRID)))


def ordered_exp(x: Any, xp: Any) -> Any:
    """``exp(x)`` for ``x <= 0``, never decreasing, with the gradient of what was rounded."""
    x = xp.clip(x, min=-FARTHEST - 1.0)
    rounded = xp.round(x * _EXP_GRID) * (1.0 / _EXP_GRID)
    return xp.exp(x + (rounded - x).detach() if hasattr(x, "detach") else rounded)


def ordered_log(r: Any, xp: Any) -> Any:
    """``log(r)`` for ``r > 0``, never decreasing: of ``r`` rounded to 46 bits (Veltkamp's splitting)."""
    big = r * _SPLIT
    return xp.log(big - (big - r))


def _constant(a: np.ndarray, like: Any, xp: Any) -> Any:
    a = np.asarray(a, dtype=np.float64)
    return a if isinstance(like, np.ndarray) else xp.asarray(a, device=like.device)
