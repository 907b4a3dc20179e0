"""The loops of `compiled` that apply a map to rows in which the jumps have been found, in numba.

    psi_k = min(max((q - zero_k) / width_k, 0), 1)      factors, ramps of statistics q of the row
    w_d, D_d = running sums, see `calibration.pieces`
    f  = -max(w_d v + D_d, bound_d)                     d the jumps a class lies above, v its depth below the top of the row
                                                        a group of ties that a jump falls into: the mean over its ranks
    f' = W f - A 1[not top]                             a second stage, which looks at the odds of the top after ``f``

The bound is what the lowest class above the piece has: where the weight changes, rounding must not let a class cross the jump.
Everything is measured from the top, so that a class far below (a number such as -1e5 that hides it) costs the others no digits.

A row stays in the cache from its depths to its probabilities. Depths, and where the jumps fall, are those of `search_loops`.
A loop is given every array once: where two of its arrays are one, it cannot take several numbers at a time.
"""

# mypy: disable-error-code="no-untyped-def, call-arg, misc, assignment"

from __future__ import annotations

import numpy as np

from ..arrays import EXP_GRID
from .numba.loops import F32, MOST, exp, loop, strict_loop, total_of
from .search_loops import INF, NONE, depths_of

UP, DOWN = F32(EXP_GRID["float32"]), F32(1.0 / EXP_GRID["float32"])
# Exponentials that add up to no more than this may have lost digits, or all of them.
FAINT = F32(1e-25)


@strict_loop
def mix(height, statistics, which, zeros, widths, factors, steps, out):
    """Weights and drops (2, n, D) of rows, from factors (n, K), or from statistics (n, S) where there are no factors."""
    pieces = steps.shape[2]
    psi = np.ones(steps.shape[1], np.float32)
    for n in range(out.shape[1]):
        for k in range(zeros.size):
            risen = (statistics[n, which[k]] - zeros[k]) / widths[k]
            psi[k + 1] = min(max(risen, F32(0)), F32(1))
        if factors.shape[0]:
            psi[:] = factors[n]
        for kind in range(2):
            row = out[kind, n]
            row[:] = F32(0)
            for k in range(psi.size):
                for d in range(pieces):
                    row[d] += psi[k] * steps[kind, k, d]
        w, drop = out[0, n], out[1, n]
        above = F32(0)
        for d in range(pieces - 1, -1, -1):
            rise = w[d] * height[n] + drop[d]
            drop[d] = above
            above += rise
        for d in range(1, pieces):
            w[d] += w[d - 1]


@strict_loop
def pass_on(v, begin, t, x, y):
    """``y = x[j]`` where ``v <= t[j]``, four jumps at a time; the last counts."""
    t0, t1, t2, t3 = t[begin], t[begin + 1], t[begin + 2], t[begin + 3]
    x0, x1, x2, x3 = x[begin], x[begin + 1], x[begin + 2], x[begin + 3]
    for i in range(v.size):
        here = y[i]
        here = x0 if v[i] <= t0 else here
        here = x1 if v[i] <= t1 else here
        here = x2 if v[i] <= t2 else here
        y[i] = x3 if v[i] <= t3 else here


@strict_loop
def pass_to_ties(v, begin, t, x, y):
    """``y = x[j]`` where ``v == t[j]``, four groups at a time."""
    t0, t1, t2, t3 = t[begin], t[begin + 1], t[begin + 2], t[begin + 3]
    x0, x1, x2, x3 = x[begin], x[begin + 1], x[begin + 2], x[begin + 3]
    for i in range(v.size):
        here = y[i]
        here = x0 if v[i] == t0 else here
        here = x1 if v[i] == t1 else here
        here = x2 if v[i] == t2 else here
        y[i] = x3 if v[i] == t3 else here


@strict_loop
def bounds_of(depth, w, drop, bound):
    """What the lowest class above each piece has, of the pieces upwards; jumps come in the order of their ranks from the top."""
    pieces = w.size
    bound[pieces - 1] = F32(0)
    for j in range(pieces - 1):
        d = pieces - 1 - j
        there = (
            depth[j] * w[d] + drop[d] if depth[j] < MOST else F32(0)
        )  # below masked classes there is nothing
        bound[d - 1] = max(bound[d], there)


@strict_loop
def group_value(v, j, over, many, ranks, w, drop, bound):
    """The mean over the ranks of a group of ties into which jump j is the first to fall."""
    pieces = w.size
    least = max(v * w[pieces - 1 - j] + drop[pieces - 1 - j], bound[pieces - 1 - j])
    total, at, value = 0.0, over, least
    while at < many:
        d = pieces - 1 - j
        until = min(ranks[j], many) if d > 0 else many
        value = max(v * w[d] + drop[d], bound[d])
        total += np.float64(until - at) * np.float64(value)
        at = until
        j += 1
    return min(max(F32(total / np.float64(many - over)), least), value)


@strict_loop
def jump_lists(depth, w, t, x):
    """Where the parameter changes: depths and new values, upwards; filled to fours with depths nothing has."""
    k = 0
    for d in range(1, w.size):
        if w[d] != w[d - 1]:
            t[k], x[k] = depth[w.size - 1 - d], w[d]
            k += 1
    while k % 4:
        t[k], x[k] = F32(-1), F32(0)
        k += 1
    return k


@strict_loop
def logits_of_row(v, ranks, depth, over, many, w, drop, bound, t, x, y, result):
    """Calibrated logits of all classes, masked ones too, 0 at the top."""
    result[:] = drop[0]
    for begin in range(0, jump_lists(depth, drop, t, x), 4):
        pass_on(v, begin, t, x, result)
    bounds_of(depth, w, drop, bound)
    jumps = jump_lists(depth, w, t, x)
    if jumps:
        y[:] = w[0]
        for begin in range(0, jumps, 4):
            pass_on(v, begin, t, x, y)
        for i in range(v.size):
            result[i] = v[i] * y[i] + result[i]
        y[:] = bound[0]
        for begin in range(0, jump_lists(depth, bound, t, x), 4):
            pass_on(v, begin, t, x, y)
        for i in range(v.size):
            result[i] = max(result[i], y[i])
    else:
        only = w[0]
        for i in range(v.size):
            result[i] = v[i] * only + result[i]
    k, known, least = 0, NONE, F32(0)
    for j in range(ranks.size):
        if many[j] <= ranks[j] or many[j] == known:
            continue
        known = many[j]
        t[k], x[k] = depth[j], group_value(depth[j], j, over[j], many[j], ranks, w, drop, bound)
        if over[j] == NONE:  # a jump splits the classes that share the top: it comes down
            least = x[k]
        k += 1
    while k % 4:
        t[k], x[k] = F32(-1), F32(0)
        k += 1
    for begin in range(0, k, 4):
        pass_to_ties(v, begin, t, x, result)
    for i in range(v.size):
        result[i] = least - result[i]


@strict_loop
def tops_of(v):
    """How many classes are on top, and the first of them."""
    tops, first = np.int32(0), np.int32(v.size)
    for i in range(v.size):
        on_top = v[i] == F32(0)
        tops += np.int32(on_top)
        first = min(first, np.int32(i) if on_top else np.int32(v.size))
    return tops, first


@loop
def exponentials(v, x, scale, result):
    # Masked classes have none. Products may be fused with sums here: what the order rests on has been rounded before.
    for i in range(v.size):
        result[i] = F32(0) if v[i] >= MOST else exp(x[i] * scale)


@strict_loop
def odds_of_top(v, f, scale, first, x, e):
    """Logarithm of the odds of the class ``first``, which is on top, under the softmax of ``scale f``; 0 where it is alone."""
    for i in range(v.size):
        x[i] = f[i]
    exponentials(v, x, scale, e)
    e[first] = F32(0)
    others = total_of(e)
    if others > FAINT:
        return -np.log(others)
    # Nothing may be left of them: measure from the second class.
    second = -INF
    for i in range(v.size):
        if i != first and v[i] < MOST:
            second = max(second, x[i])
    if second == -INF:
        return F32(0)
    x[first] = second
    for i in range(v.size):
        x[i] -= second
    exponentials(v, x, scale, e)
    e[first] = F32(0)
    return -second * scale - np.log(max(total_of(e), F32(1)))


@strict_loop
def second_stage_of(odds, zeros, widths, steps, term):
    """Weight and lift of a row: what its context gives, and ramps of the odds."""
    weight, lift = term[1], term[2]
    for k in range(zeros.size):
        psi = min(max((odds - zeros[k]) / widths[k], F32(0)), F32(1))
        weight += psi * steps[0, k]
        lift += psi * steps[1, k]
    return weight, lift


@strict_loop
def to_grid(v, f, weight, lift, result):
    """``weight f - lift``, 0 on top, on the grid of `arrays.ordered_exp`; how many are at 0, and how many are on top."""
    at_zero, tops = np.int32(0), np.int32(0)
    for i in range(v.size):
        x = f[i] * weight
        x = F32(0) if v[i] == F32(0) else x - lift
        x = np.rint(x * UP) * DOWN
        result[i] = x
        at_zero += np.int32(x == F32(0))
        tops += np.int32(v[i] == F32(0))
    return at_zero, tops


@strict_loop
def scaled(v, f, weight, lift, result):
    for i in range(v.size):
        x = f[i] * weight
        x = F32(0) if v[i] == F32(0) else x - lift
        result[i] = -INF if v[i] >= MOST else x


@strict_loop
def calibrate(
    z, top, ranks, depth, over, many, done, weights, drops, class_scales, zeros, widths, steps, terms, normalise,
    out, lost,
):  # fmt: skip
    # A second stage: where there are terms, one row of them or as many as rows.
    m = z.shape[1]
    step, drop_step, term_step = (
        np.intp(weights.shape[0] > 1),
        np.intp(drops.shape[0] > 1),
        np.intp(terms.shape[0] > 1),
    )
    v, y, f, e = (
        np.empty(m, np.float32),
        np.empty(m, np.float32),
        np.empty(m, np.float32),
        np.empty(m, np.float32),
    )
    t, x = np.empty(ranks.size + 4, np.float32), np.empty(ranks.size + 4, np.float32)
    bound = np.empty(weights.shape[1], np.float32)
    for n in range(z.shape[0]):
        lost[n] = False
        if not done[n]:
            continue
        result, w, drop = out[n], weights[n * step], drops[n * drop_step]
        depths_of(z[n], top[n], v)
        logits_of_row(v, ranks, depth[n], over[n], many[n], w, drop, bound, t, x, y, f)
        weight, lift = F32(1), F32(0)
        if terms.shape[0]:
            term = terms[n * term_step]
            tops, first = tops_of(v)
            scale = term[0] * (class_scales[first] if tops == 1 and class_scales.size else F32(1))
            weight, lift = second_stage_of(
                odds_of_top(v, f, scale, first, e, result), zeros, widths, steps, term
            )
            weight, lift = weight * scale, lift if tops == 1 else F32(0)
        if normalise:
            at_zero, tops = to_grid(v, f, weight, lift, e)
            exponentials(v, e, F32(1), result)
            share = F32(1) / total_of(result)
            for i in range(m):
                result[i] *= share
            # Another class has come to equal the top: `argmax` may name it.
            lost[n] = at_zero > tops
        else:
            scaled(v, f, weight, lift, result)
