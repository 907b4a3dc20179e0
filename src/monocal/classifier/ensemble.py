"""The mean of several calibrated models, and what is left of the order of the classes.

    p_j = 1/K sum_k p_j^(k),        p^(k) = calibrator_k(scores of model_k)

Every member keeps the order of its own model. The models order the classes differently, so their mean has the order of none
of them. Where all members agree the mean agrees with them: if p_i^(k) >= p_j^(k) for every k then p_i >= p_j, in floating
point as well, since the members are added in the same order for every class and a rounded sum rises with each of its terms.
A class that every member names is named: where rounding ties it with another, it is lifted by one unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import keep_argmax
from .folds import encode


def mean_of_members(members: Sequence[Any], classes: np.ndarray, X: Any, context: Any) -> np.ndarray:
    """Probabilities (n, m) of all classes; a member gives nothing to a class it has not seen."""

    def of_all_classes(member: Any) -> np.ndarray:
        own = member.predict_proba(X, context)
        p = np.zeros((len(own), len(classes)), dtype=own.dtype)
        p[:, encode(member.classes_, classes)] = own
        return p

    first = of_all_classes(members[0])
    total, named = first, first.argmax(axis=1)
    agreed = np.ones(len(first), dtype=bool)
    for member in members[1:]:
        p = of_all_classes(member)
        total = total + p
        agreed &= p.argmax(axis=1) == named
    mean: np.ndarray = total / len(members)
    mean[agreed] = keep_argmax(mean[agreed], first[agreed])
    return mean
