"""Rows whose classifier prefers some classes, and the loss of a model on rows."""

import numpy as np

from monocal.data import synthetic

DATA = synthetic(1500, 6, seed=0)
BIAS = np.array([3.0, 0.0, 0.0, 0.0, -3.0, 0.0])
BIASED = DATA.values + BIAS


def nll(model, z, y):
    return -model.score(z, y)
