"""Prior targets: the probabilities of the classifier itself, to which every label gives a small share.

    q = (1 - 1/16) softmax(z / unit)  +  1/16 softmax(z / (10 unit))

The second part is ten times softer, because an over-confident network is wrong more often than it
says. The unit is 1, or smaller where logits differ by much less than one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

MILD, MILD_SHARE = 0.1, 1 / 16
_ALIKE = 1e-12  # a scale at which all classes have one probability


def prior_scales(mean_depth: Callable[[float], float], n_classes: int) -> tuple[tuple[float, float], ...]:
    """Shares and the scale at which each is said, from the mean depth of the classes at any scale.

    The softmax of logits that differ by much less than one (cosines, say) says nothing: they are first brought to a
    deviation of about one. The largest of m normal numbers lies roughly sqrt(2 log m) / 1.5 deviations above their mean.
    """
    unit = min(1.0, 1.5 * mean_depth(_ALIKE) / np.sqrt(2.0 * np.log(max(n_classes, 2)))) or 1.0
    return (1.0 - MILD_SHARE, 1.0 / unit), (MILD_SHARE, MILD / unit)
