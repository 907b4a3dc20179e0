"""What servers of language models return: the k largest logits of a row, their ids, and the log-sum-exp of all.

    R = exp(logsumexp) - sum_i exp(z_i)          mass of the classes that are not named
    z_rest = log(R / N)                          they count as N equal classes

``N`` is the number of classes not named, where that is known; else the smallest for which ``z_rest`` is not above the lowest
named logit, so that every class of the rest stays below the named ones. The rest is what the tail is with ``top_k``: it has
the parameters of the lowest rank and stays in the normaliser. A label that is not named falls on one of its classes.

Some servers name the actual token as well, far below the k largest. If there are not enough classes for all of the rest to lie
below it, it cannot be one of the largest, and it counts as one of the rest.

A tail is not flat. At a scale ``s`` it has the mass ``sum_j exp(s z_j)``, and the flat one ``N (R / N)^s``: by Jensen's
inequality no less where ``s < 1``, no more where ``s > 1``. Either way the flat tail moves more than the true one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ..arrays import keep_argmax, ordered_exp, to_numpy
from ..errors import InputError
from ..kernel.block import Block
from ..kernel.choice import ARRAY
from ..ranks.ranked import LARGEST, Ranked, Rest, Tail, rank_rows
from ..validation import (
    ANY_CLASS,
    check_labels,
    check_logits,
    check_number,
    check_some_weight,
    check_top_k,
    check_weights,
    ignored_rows,
    read_matrix,
    read_numbers,
)
from .interface import RowMap
from .memory import HeldBlocks, MemoryRows
from .parallel import row_slices
from .reader import Reader

# Single precision cannot tell a smaller part of the total from nothing.
_LEAST_REST = np.log(2.0**-24)
# How far the named classes may exceed the total: log-probabilities are often rounded to a few digits.
_SLACK = 0.02
# More classes than any vocabulary has, for rows that do not say how many there are.
_MOST = 2**20
# What OpenAI's servers write for "very unlikely": no logarithm of anything.
_SENTINEL = -9999.0


@dataclass(frozen=True, eq=False)
class TopK:
    """The largest logits of each row with the ids of their classes, and the log-sum-exp of all classes.

    Parameters
    ----------
    values : array-like of shape (n, k)
        Logits or log-probabilities of the named classes, in any order. Rows that name fewer are filled up with ``-inf``;
        -9999.0, which OpenAI's servers write for "very unlikely", counts as ``-inf``, too.
    ids : array-like of int, shape (n, k)
        Their class numbers; those of filled places do not matter.
    logsumexp : array-like of shape (n,) or float
        ``log sum exp`` over all classes, named or not; 0 for log-probabilities, which is the default.
    n_classes : int, optional
        How many classes there are in all (the size of the vocabulary), if that is known.
    k : int, optional
        How many of the largest to keep of each row, largest first. vLLM's ``prompt_logprobs`` names the actual token beside the
        k largest: give its k, and that token is one of the rest unless it is among them.

    Examples
    --------
    >>> import numpy as np, monocal as mc
    >>> top = mc.TopK(np.log([[0.6, 0.2], [0.5, 0.3]]), [[7, 3], [3, 9]], n_classes=1000)
    >>> cal = mc.TemperatureScaling().fit(top, [7, 4])
    >>> result = cal.predict_proba(top)
    >>> bool(np.allclose(result.probabilities.sum(axis=1) + result.rest, 1.0))
    True
    """

    values: np.ndarray
    ids: np.ndarray
    logsumexp: Any = 0.0
    n_classes: int | None = None
    k: int | None = None
    named: np.ndarray = field(
        init=False, repr=False
    )  # (n, k), values of the largest; -inf for what belongs to the rest
    rest_count: np.ndarray = field(init=False, repr=False)  # (n,), N
    rest_value: np.ndarray = field(init=False, repr=False)  # (n,), z_rest

    def __post_init__(self) -> None:
        given = read_matrix(self.values, "values").values
        z = np.asarray(to_numpy(given), dtype=np.float64)
        z = to_numpy(check_logits(np.where(z == _SENTINEL, -np.inf, z), "values").values)
        ids = to_numpy(read_numbers(self.ids, "ids", "a class number"))
        if ids.shape != z.shape or ids.dtype.kind not in "iu":
            raise InputError(
                f"ids must be whole numbers of the shape of values, {z.shape}, but have shape {ids.shape} and type {ids.dtype}."
            )
        if self.k is not None:
            check_number(self.k, "k", least=1, whole=True)
            largest = np.argsort(-z, axis=1, kind="stable")[:, : self.k]
            z, ids = (np.take_along_axis(a, largest, axis=1) for a in (z, ids))
        if self.n_classes is not None and self.n_classes < z.shape[1]:
            raise InputError(f"n_classes is {self.n_classes}, but values name {z.shape[1]} classes a row.")
        valid = np.isfinite(z)
        _check_ids(ids, valid, self.n_classes)
        total = to_numpy(read_numbers(self.logsumexp, "logsumexp", "a real number")).astype(np.float64)
        if total.shape not in ((), (len(z),)):
            raise InputError(
                f"logsumexp must be one number or one a row, ({len(z)},), but has shape {total.shape}."
            )
        total = np.broadcast_to(total, (len(z),))
        _check_total(z, total)
        named = np.where(_among_largest(z, total, self.n_classes or _MOST), z, -np.inf)
        count, value = _rest(named, total, self.n_classes, (np.isfinite(z) & np.isinf(named)).sum(axis=1))
        found = {"values": z, "ids": ids, "logsumexp": total}
        for name, array in {**found, "named": named, "rest_count": count, "rest_value": value}.items():
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> TopK:
        """Some of the rows."""
        index = np.atleast_1d(np.arange(len(self))[rows])
        return TopK(self.values[index], self.ids[index], self.logsumexp[index], self.n_classes)

    def label_column(self, labels: np.ndarray) -> np.ndarray:
        """Where each row names its label; k where it does not."""
        named = (self.ids == labels[:, None]) & np.isfinite(self.named)
        column: np.ndarray = np.where(named.any(axis=1), named.argmax(axis=1), self.values.shape[1])
        return column


@dataclass(frozen=True, eq=False)
class TopKProbabilities:
    """Calibrated probabilities of the named classes and of all others together: a row of both sums to 1.

    Attributes
    ----------
    probabilities : ndarray of shape (n, k)
        In the order of the logits; 0 in filled places. What is named but belongs to the rest has ``each``.
    ids : ndarray of shape (n, k)
    rest : ndarray of shape (n,)
        Probability of all other classes.
    each : ndarray of shape (n,)
        Probability of one of them, if they share it equally; never above that of a named class.
    """

    probabilities: np.ndarray
    ids: np.ndarray
    rest: np.ndarray
    each: np.ndarray


_NEEDS_ALL = "needs all logits, but got the largest only (TopK). Use TemperatureScaling, MCCT or MCCTInverse."


class TopKLogits:
    """`TopK` with labels and weights; implements `interface.Elsewhere`."""

    refusal = f"X: this method {_NEEDS_ALL}"
    names = None

    def __init__(self, top: TopK, y: Any = None, sample_weight: Any = None):
        self.top, self.y, self.weight = top, y, sample_weight

    def open(self, reader: Reader) -> TopKSource:
        _check_logits_wanted(reader.input)
        top = self.top
        rows = np.broadcast_to(0.0, (len(top), top.n_classes or ANY_CLASS))
        ignore = reader.layout.ignore_index
        y, given, _ = ignored_rows(self.y, self.weight, len(top), ignore)
        labels = to_numpy(check_labels(y, rows))
        weight = check_weights(given, top.values, first_row=0)
        if weight is not None:
            check_some_weight(bool(weight.any()), ignore)
        columns = top.label_column(labels)
        if weight is not None and not weight.all():
            kept = weight > 0
            top, columns, weight = top[kept], columns[kept], weight[kept]
        return TopKSource(reader, top, columns, weight)

    def apply(self, row_map: RowMap, out: Any) -> Any:
        if out is not None:
            raise InputError("out: the result for TopK is an object of its own. Call the method without out.")
        rank_map = row_map.rank_map
        if rank_map is None or rank_map.factors is not None:
            raise InputError(f"X: {row_map.name} {_NEEDS_ALL}")
        _check_logits_wanted(row_map.input)
        top, z = self.top, self.top.named
        fitted = row_map.n_classes
        expected = min(rank_map.top_k or fitted, fitted)
        in_use = min(rank_map.top_k or z.shape[1], z.shape[1])
        if len(rank_map.starts) > 1 and in_use != expected:
            raise InputError(
                f"X names {in_use} classes a row, but {row_map.name} was fitted for the {expected} largest: fit "
                f"it on such rows, or on all logits with top_k={in_use}."
            )
        if row_map.method == "predict":
            return np.take_along_axis(top.ids, z.argmax(axis=1)[:, None], axis=1)[:, 0]
        rows = rank_rows(z, rank_map.top_k, np.float64)
        f = rank_map.transform(z)
        below = rows.height - np.maximum(_rest_depth(rows, z, top.rest_value), rows.height)
        f_rest = below * rank_map.scale_steps[0, 0] + rank_map.bias_steps[0, 0]
        highest = f.max(axis=1)
        e, e_rest = ordered_exp(f - highest[:, None]), ordered_exp(f_rest - highest)
        total = e.sum(axis=1) + top.rest_count * e_rest
        of_rest = np.isfinite(top.values) & np.isinf(z)  # named, and one of the rest all the same
        if row_map.method == "transform":
            f = np.where(of_rest, f_rest[:, None], keep_argmax(f, z))
            return TopK(f, top.ids, np.log(total) + highest, top.n_classes)
        share = 1.0 / total
        each = np.where(top.rest_count > 0, e_rest * share, 0.0)
        p = np.where(of_rest, each[:, None], keep_argmax(e * share[:, None], z))
        return TopKProbabilities(p, top.ids, each * (top.rest_count - of_rest.sum(axis=1)), each)


def _check_logits_wanted(input: str) -> None:
    if input != "logits":
        raise InputError("X: TopK holds logits or log-probabilities; use input='logits' for both.")


@dataclass(frozen=True)
class TopKSource:
    """Named classes with the rest of each row; implements `interface.Source`."""

    reader: Reader
    top: TopK
    columns: np.ndarray
    weight: np.ndarray | None
    single_precision = False

    @property
    def shape(self) -> tuple[int, int]:
        n, k = self.top.values.shape
        return n, k

    def first_rows(self) -> np.ndarray:
        return self.top.values

    def n_classes_with(self, top_k: int | None) -> int:
        """Classes of the rows that a fitted map may be applied to.

        With a ``top_k`` of its own the map is the same on all logits as on the largest, so those may be calibrated too.
        """
        whole = self.top.n_classes if top_k is not None else None
        return whole or self.shape[1]

    def hold(self, make: Any) -> HeldBlocks:
        raise InputError(TopKLogits.refusal)

    def prepare(self, **how: Any) -> MemoryRows:
        check_top_k(how.get("top_k"), self.shape[1])
        if how.get("statistics"):
            raise InputError(
                "X: ConditionalMCCT needs all logits, but got the largest only (TopK). Use MCCT or TemperatureScaling."
            )
        # In double precision throughout: the rows are short.
        return MemoryRows([self._block(rows, how.get("top_k")) for rows in row_slices(self.top.values)])

    def _block(self, rows: slice, top_k: int | None) -> Block:
        z, column = self.top.named[rows], self.columns[rows]
        count, value = self.top.rest_count[rows], self.top.rest_value[rows]
        outside = column == z.shape[1]
        weight = None if self.weight is None else self.weight[rows]
        stand_in = np.where(outside, z.argmax(axis=1), column)
        block = ARRAY.prepare(z, stand_in, weight, top_k=top_k, dtype=np.float64)
        ranked = block.rows
        rest = Rest(_rest_depth(ranked, z, value), count)
        tail = ranked.tail or Tail(None, np.zeros(len(z), dtype=np.int64), False)
        counted = np.average(self.top.rest_count, weights=self.weight)
        n_classes = self.top.n_classes or round(z.shape[1] + float(counted))
        return replace(
            block,
            rows=replace(ranked, tail=replace(tail, rest=rest), n_classes=n_classes),
            label_depth=np.where(outside, rest.depth, block.label_depth),
            label_rank=np.where(outside, 0, block.label_rank),
            label_held=np.where(outside, 1, block.label_held),
            label_size=np.where(outside, 1, block.label_size),
        )


def _check_total(z: np.ndarray, total: np.ndarray) -> None:
    """The named classes alone must not have more than all."""
    named = logsumexp(z, axis=1)
    wrong = ~np.isfinite(total) | (named > total + _SLACK)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"logsumexp: in row {row} it is {total[row]:.6g}, but the named classes alone have {named[row]:.6g}. It must be "
            "that of all classes (0 for log-probabilities)."
        )


def _mass(named: np.ndarray, total: np.ndarray) -> np.ndarray:
    """``log R`` beside named classes of this log-sum-exp."""
    with np.errstate(divide="ignore"):
        share = np.log(-np.expm1(np.minimum(named - total, 0.0)))
    mass: np.ndarray = np.maximum(share, _LEAST_REST) + total
    return mass


def _among_largest(z: np.ndarray, total: np.ndarray, n_classes: int) -> np.ndarray:
    """Which classes can be the largest of their rows, (n, k): as many as leave a rest whose mean is not above the lowest.

    All, where no number of them does: then the log-sum-exp is not that of so few classes.
    """
    order = np.argsort(-z, axis=1, kind="stable")
    falling = np.take_along_axis(z, order, axis=1)
    with np.errstate(invalid="ignore"):
        mass = _mass(np.logaddexp.accumulate(falling, axis=1), total[:, None])
    kept = 1 + np.arange(z.shape[1])
    others = n_classes - kept
    fits = (mass - np.log(np.maximum(others, 1)) <= falling + 1e-9) | (others <= 0)
    fits |= mass <= total[:, None] + _LEAST_REST + 1.0  # nothing that can be told from rounding
    fits &= np.isfinite(falling)
    most = np.where(fits.any(axis=1), (kept * fits).max(axis=1), z.shape[1])
    among = np.empty(z.shape, dtype=bool)
    np.put_along_axis(among, order, kept <= most[:, None], axis=1)
    return among


def _rest(
    z: np.ndarray, total: np.ndarray, n_classes: int | None, least: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``N``, not below ``least``, and ``z_rest`` of each row."""
    valid = np.isfinite(z)
    mass = _mass(logsumexp(z, axis=1), total)
    lowest = np.where(valid, z, np.inf).min(axis=1)
    if n_classes is None:
        below = np.ceil(np.exp(np.minimum(mass - lowest, np.log(_MOST))) * (1.0 - 1e-12))
        count = np.maximum(np.maximum(below, least), 1.0)
    else:
        count = (n_classes - valid.sum(axis=1)).astype(np.float64)
    return count, np.minimum(mass - np.log(np.maximum(count, 1.0)), lowest)


def _rest_depth(rows: Ranked, z: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Depth of the rest's classes, at least that of the lowest named one."""
    top = rows.top[:, 0]
    named = np.where(np.isfinite(z), top[:, None] - z, 0.0).max(axis=1)
    depth: np.ndarray = np.clip(np.maximum(top - value, named), rows.height, LARGEST)
    return depth


def _check_ids(ids: np.ndarray, valid: np.ndarray, n_classes: int | None) -> None:
    outside = valid & ((ids < 0) | (ids >= (n_classes or np.inf)))
    if outside.any():
        row, column = np.argwhere(outside)[0]
        bound = "" if n_classes is None else f" and below n_classes={n_classes}"
        raise InputError(
            f"ids: row {row} has {ids[row, column]}, expected class numbers of at least 0{bound}."
        )
    # Filled places get numbers of their own, so that only real ids can meet.
    filled = -1 - np.arange(ids.shape[1])
    ordered = np.sort(np.where(valid, ids.astype(np.int64), filled), axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if twice.any():
        raise InputError(
            f"ids: row {int(np.argmax(twice))} names a class twice. Each class may be named once a row."
        )
