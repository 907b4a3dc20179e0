"""How probable the labels of some rows are: their mean log-likelihood, in double precision whatever the rows are in."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp

from ..arrays import Array, to_numpy
from ..errors import InputError
from ..inputs.context import check_context_rows
from ..inputs.inputs import elsewhere
from ..inputs.top_k import TopK
from ..inputs.validation import check_labels, check_weights, ignored_rows, read_matrix
from .applying import AppliesMap, as_arguments
from .given_rows import gathered


class ScoresLabels(AppliesMap):
    """What `score` gives, with or without a context."""

    def _score(self, X: Any, y: Any, sample_weight: Any, context: Any = None) -> float:
        if isinstance(X, TopK):
            y, sample_weight, _ = ignored_rows(y, sample_weight, len(X), self.ignore_index)
            log_p = self._apply(X, "predict_proba", None, context).log_likelihood(X.class_numbers(y))
            return _mean(log_p, check_weights(sample_weight, X.values))
        compared = self._compared(X)
        X, y, sample_weight = self._arrays(X, y, sample_weight)
        flat = self._laid_out(X)
        if flat is not None:
            X = gathered(flat.rows)
            y, sample_weight = flat.column(y, "y"), flat.column(sample_weight, "sample_weight")
        if elsewhere(X) is not None:
            raise InputError(
                "score: X must be an array in memory. For larger data, feed blocks of predict_blocks to metrics.Evaluator."
            )
        codes = self._codes(context, flat)
        given = read_matrix(X)
        y, sample_weight, ignored = ignored_rows(y, sample_weight, len(given.values), self.ignore_index)
        given = compared._read(X if ignored is None else self.reader.without(given, ignored))
        labels = to_numpy(check_labels(y, given.values))
        weight = check_weights(sample_weight, given.values)
        check_context_rows(codes, len(labels))
        f = to_numpy(self._calibrate(self._logits_of(given), *as_arguments(codes))).astype(np.float64)
        log_p = f[np.arange(len(f)), labels] - logsumexp(f, axis=1)
        return _mean(log_p, weight)


def _mean(terms: np.ndarray, weight: Array | None) -> float:
    """Mean of terms (n,), of which those without weight may be anything."""
    if weight is None:
        return float(terms.mean())
    share = to_numpy(weight)
    return float(np.average(terms[share > 0], weights=share[share > 0]))
