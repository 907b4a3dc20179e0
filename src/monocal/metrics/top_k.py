"""Metrics of the k largest probabilities of a row and the mass of all others.

    p_y = p_each  where the label is not named      sum_j p_j^2 = sum over the named + N p_each^2

Confidence, accuracy and NLL need no more. Which of the classes that are not named come before others is not known, so ranks
below the k-th, and errors by class, are not either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..inputs.layout import ROWS, Layout
from ..inputs.top_k import TopK, TopKProbabilities
from ..inputs.validation import check_count, check_some_weight, check_weights, ignored_rows
from .outcomes import Outcomes
from .registry import METRICS


def can_tell(probs: TopK | TopKProbabilities, metric: str, top_k: int) -> bool:
    """Whether a metric can be computed of these rows."""
    named = (probs if isinstance(probs, TopK) else probs.rows).values.shape[1]
    return not METRICS[metric].classwise and (metric != "top_k_accuracy" or top_k <= named)


def outcomes(
    given: TopK | TopKProbabilities,
    labels: Any,
    sample_weight: Any,
    layout: Layout,
    *,
    n_bins: int,
    classwise: bool,
    names: tuple[str, str],
    part: bool,
) -> Outcomes:
    """What metrics need of the rows; see `Outcomes.of`."""
    if classwise:
        raise InputError(
            f"{names[0]}: the rows name their largest probabilities alone (TopK), and metrics by class need all. Leave out "
            + ", ".join(name for name, metric in METRICS.items() if metric.classwise)
            + "."
        )
    found = given.probabilities() if isinstance(given, TopK) else given
    rows = found.rows
    labels, sample_weight, _ = ignored_rows(labels, sample_weight, len(rows), layout.ignore_index)
    y = rows.class_numbers(labels, names[1], names[0])
    weight = check_weights(sample_weight, rows.values, first_row=0)
    weight = np.ones(len(y)) if weight is None else weight
    if not part:
        check_some_weight(bool(weight.any()), layout.ignore_index)
    p, index = found.probabilities, np.arange(len(y))
    column = rows.label_column(y)
    named = column < p.shape[1]
    label_prob = np.where(named, p[index, np.minimum(column, p.shape[1] - 1)], found.each)
    top = p.argmax(axis=1)
    predicted = found.ids[index, top].astype(np.int64)
    # Classes ahead of the label: more probable, or as probable and with a lower number; all named ones, where it is not named.
    ahead = (p > label_prob[:, None]) | ((p == label_prob[:, None]) & (found.ids < y[:, None]))
    ahead = np.where(named[:, None], ahead, np.isfinite(rows.values)) & np.isfinite(rows.values)
    kept = slice(None) if weight.all() else weight > 0
    largest = int(max(y.max(initial=0), found.ids.max(initial=0))) + 1
    return Outcomes(
        ROWS.flat(p),
        y[kept],
        weight[kept],
        check_count(n_bins, "n_bins"),
        predicted[kept],
        p[index, top][kept],
        (predicted == y).astype(np.float64)[kept],
        label_prob[kept],
        np.count_nonzero(ahead, axis=1).astype(np.int64)[kept],
        (np.square(p).sum(axis=1) + rows.other_count * found.each**2)[kept],
        None,
        np.zeros(0),
        kept,
        rows.n_classes or largest,
    )
