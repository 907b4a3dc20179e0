"""The names of scikit-learn that are used here and that it does not promise to keep, all in one place.

Each of them is what scikit-learn's own meta-estimators and scorers are made of, and none has a public substitute. Where a version
of scikit-learn moves one, this file is the only one to change.
"""

from __future__ import annotations

# The base of scorers: routes weights, and lets several scorers share one prediction. `make_scorer` hides the estimator.
from sklearn.metrics._scorer import _BaseScorer as BaseScorer

# Rows of whatever an estimator takes: arrays, sparse matrices, frames, lists.
from sklearn.utils import _safe_indexing as rows_of

# The same for keyword arguments of fit: those with a value for each row are cut, others are passed on.
from sklearn.utils.validation import _check_method_params as params_of_rows

__all__ = ["BaseScorer", "params_of_rows", "rows_of"]
