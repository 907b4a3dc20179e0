"""Rows of `TopK` in a fit and in a prediction: named classes with ranks of their own, and the rest as one group below them.

    f_i = w_i u_i + b_i  of the named,      f_rest = w_0 u_rest + b_0,      Z = sum_i exp f_i + N exp f_rest

``u_rest <= 0``: the rest lies below the lowest named class, from which ``u`` is measured, and has its weight and bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import keep_argmax, ordered_exp
from ..core.engine import Block
from ..core.ranked import LARGEST, Ranked, Rest, Tail, rank_rows
from ..core.rows import Rows
from ..core.statistics import compute
from ..engines import ARRAY
from ..errors import InputError
from ..inputs.context import check_context_rows
from ..inputs.reader import OutOfCore, Reader, RowMap
from ..inputs.validation import check_some_weight, check_top_k, check_weights, ignored_rows
from ..parallel import row_slices
from .top_k import TopK, TopKProbabilities

_NEEDS_ALL = (
    "needs all logits, but got the largest only (TopK). Use TemperatureScaling, MCCT or MCCTInverse, or ConditionalMCCT fitted "
    "on such rows."
)
# Statistics that are the same whatever is known of the classes below. The other statistics differ, because the unnamed classes
# are treated as equal.
EXACT = ("margin", "log_odds")


class TopKSource(OutOfCore):
    """`TopK` with labels and weights: named classes with the rest of each row."""

    refusal = f"X: this method {_NEEDS_ALL}"
    single_precision = False

    def __init__(self, top: TopK, y: Any = None, sample_weight: Any = None, context: Any = None):
        self.top, self.y, self.weight, self.context = top, y, sample_weight, context

    def open(self, reader: Reader) -> TopKSource:
        _check_logits_wanted(reader.input)
        top, context, self.reader = self.top, self.context, reader
        ignore = reader.layout.ignore_index
        y, sample_weight, _ = ignored_rows(self.y, self.weight, len(top), ignore)
        labels = top.class_numbers(y)
        weight = check_weights(sample_weight, top.values, first_row=0)
        if weight is not None:
            check_some_weight(bool(weight.any()), ignore)
        check_context_rows(context, len(top))
        columns = top.label_column(labels)
        if weight is not None and not weight.all():
            kept = weight > 0
            top, columns, weight = top[kept], columns[kept], weight[kept]
            context = None if context is None else context[kept]
        self.top, self.columns, self.weight, self.context = top, columns, weight, context
        self.first, self.shape = top.values, top.values.shape
        return self

    def apply(self, row_map: RowMap, out: Any) -> Any:
        if out is not None:
            raise InputError("out: the result for TopK is an object of its own. Call the method without out.")
        calibrator = row_map.calibrator
        rank_map = getattr(calibrator, "rank_map_", None)
        if rank_map is None:
            raise InputError(f"X: {row_map.name} {_NEEDS_ALL}")
        _check_logits_wanted(calibrator.input)
        check_context_rows(row_map.context, len(self.top))
        fitted = row_map.n_classes
        expected = min(rank_map.top_k or fitted, fitted)
        top = self.top
        if top.origin is not None and (len(rank_map.starts) > 1 or not same_on_all(rank_map.factors)):
            top = top.filled_to(expected)
        z = top.values
        in_use = min(rank_map.top_k or z.shape[1], z.shape[1])
        if len(rank_map.starts) > 1 and in_use != expected:
            raise InputError(
                f"X names {in_use} classes a row, but {row_map.name} was fitted for the {expected} largest: fit "
                f"it on such rows, or on all logits with top_k={in_use}."
                + (f" Or read the responses with k={expected}." if top.origin and in_use > expected else "")
            )
        if not same_on_all(rank_map.factors) and fitted != z.shape[1]:
            raise InputError(
                f"X: {row_map.name} was fitted on rows of {fitted} classes with statistics that the largest {z.shape[1]} alone "
                f"do not tell. Fit it on such rows, or with statistics={EXACT}."
            )
        if row_map.method == "predict":
            return top.top_class
        rows = rank_rows(z, rank_map.top_k, np.float64)
        rest = Rest(_rest_depth(rows, z, top.rest_value), top.rest_count)
        f, f_rest = rank_map.with_rest(
            z, rest, getattr(calibrator, "adjustment_", None), row_map.context, top.top_class
        )
        highest = f.max(axis=1)
        e, e_rest = ordered_exp(f - highest[:, None]), ordered_exp(f_rest - highest)
        total = e.sum(axis=1) + top.rest_count * e_rest
        log_total = np.log(total) + highest
        if row_map.method == "transform":
            return TopK(keep_argmax(f, z), top.ids, log_total, top.n_classes, origin=top.origin)
        share = 1.0 / total
        each = np.where(top.rest_count > 0, e_rest * share, 0.0)
        p, logs = keep_argmax(e * share[:, None], z), keep_argmax(f - log_total[:, None], z)
        return TopKProbabilities(p, top.ids, each * top.rest_count, each, logs, f_rest - log_total, top)

    def n_classes_with(self, top_k: int | None) -> int:
        """Classes of the rows that a fitted map may be applied to.

        With a ``top_k`` of its own the map is the same on all logits as on the largest, so those may be calibrated too.
        """
        whole = self.top.n_classes if top_k is not None else None
        return whole or self.shape[1]

    def hold(self, make: Any) -> Any:
        raise InputError(self.refusal)

    def prepare(self, **how: Any) -> Rows:
        check_top_k(how.get("top_k"), self.shape[1])
        counted = np.average(self.top.rest_count, weights=self.weight)
        n_classes = self.top.n_classes or round(self.shape[1] + float(counted))
        # In double precision throughout: the rows are short.
        return Rows.of_blocks(
            [
                self._block(rows, how.get("top_k"), how.get("statistics", ()), n_classes)
                for rows in row_slices(self.top.values)
            ]
        )

    def _block(self, rows: slice, top_k: int | None, statistics: Sequence[Any], n_classes: int) -> Block:
        z, column = self.top.values[rows], self.columns[rows]
        count, value = self.top.rest_count[rows], self.top.rest_value[rows]
        outside = column == z.shape[1]
        weight = None if self.weight is None else self.weight[rows]
        stand_in = np.where(outside, z.argmax(axis=1), column)
        (block,) = ARRAY.prepare(z, stand_in, weight, top_k=top_k, dtype=np.float64)
        ranked = block.rows
        rest = Rest(_rest_depth(ranked, z, value), count)
        tail = ranked.tail or Tail(None, np.zeros(len(z), dtype=np.int64), False)
        ranked = replace(ranked, tail=replace(tail, rest=rest), n_classes=n_classes)
        return replace(
            block,
            rows=ranked,
            statistics=np.stack(compute(statistics, ranked), axis=1) if statistics else None,
            label_depth=np.where(outside, rest.depth, block.label_depth),
            label_rank=np.where(outside, 0, block.label_rank),
            label_held=np.where(outside, 1, block.label_held),
            label_size=np.where(outside, 1, block.label_size),
            top_class=self.top.top_class[rows],
            context=None if self.context is None else self.context[rows],
        )


def same_on_all(factors: Any) -> bool:
    """Whether factors of a row are the same from its largest logits and a rest as from all logits."""
    names = () if factors is None else factors.statistics
    return all(not isinstance(name, str) or name in EXACT for name in names)


def _check_logits_wanted(input: str) -> None:
    if input != "logits":
        raise InputError("X: TopK holds logits or log-probabilities; use input='logits' for both.")


def _rest_depth(rows: Ranked, z: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Depth of the rest's classes, at least that of the lowest named one."""
    top = rows.top[:, 0]
    named = np.where(np.isfinite(z), top[:, None] - z, 0.0).max(axis=1)
    return np.clip(np.maximum(top - value, named), rows.height, LARGEST)
