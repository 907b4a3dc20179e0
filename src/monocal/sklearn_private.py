"""The names of scikit-learn that are used here and that it does not promise to keep.

Each of them is what scikit-learn's own meta-estimators are made of, and none has a public substitute. Where a version of
scikit-learn moves one, this file is the one to change. The base of scorers is not here but in `metrics.scoring`: calibrators,
which ask for these names, need none of scikit-learn's metrics.
"""

from __future__ import annotations

# Rows of whatever an estimator takes: arrays, sparse matrices, frames, lists.
from sklearn.utils import _safe_indexing as rows_of

# What `set_output` asks of an estimator. `transform` is wrapped by it, and has to hand over what the wrapper takes.
from sklearn.utils._set_output import _get_output_config as output_config

# Whether keyword arguments of fit go where they are requested, or to the estimator alone.
from sklearn.utils.metadata_routing import _routing_enabled as routing_enabled

# Votes and confidences of classes from scores of pairs, as SVC itself makes them.
from sklearn.utils.multiclass import _ovr_decision_function as scores_from_pairs

# Rows of keyword arguments of fit: those with a value for each row are cut, others are passed on.
from sklearn.utils.validation import _check_method_params as params_of_rows

__all__ = ["output_config", "params_of_rows", "routing_enabled", "rows_of", "scores_from_pairs"]
