"""Rows whose confidence is wrong by class, by site and by age, what is known of them, and a calibrator that knows of it."""

import numpy as np
import pandas as pd

import monocal as mc

M = 7
SITES = np.array(["a", "b", "c", "d"])


def uneven(n=2400, m=M, seed=0):
    """Rows whose confidence is wrong by class, by site and by age: logits, labels and context."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, m)) * 3
    site, age = rng.integers(0, 4, n), rng.uniform(20, 80, n)
    sure = np.array([0.3, 0.6, 1.0, 1.3])[site] * np.where(age > 50, 1.0, 0.5)
    sure = sure * np.linspace(0.5, 1.5, m)[z.argmax(axis=1)]
    y = (z * sure[:, None] + rng.gumbel(size=z.shape)).argmax(axis=1)
    return z, y, pd.DataFrame({"site": pd.Categorical(SITES[site]), "age": age})


def fitted_with_context():
    """Fitted with site and age as context and little shrinkage, so that both have large effects."""
    return mc.ConditionalMCCT(shrinkage=2.0).fit(*uneven()[:2], context=uneven()[2])


def any_context(n, seed=7):
    """Context of every kind: known, unknown, missing, far away."""
    rng = np.random.default_rng(seed)
    site = rng.choice(np.array([*SITES, "elsewhere", None], dtype=object), n)
    age = rng.choice([21.0, 50.0, 77.0, np.nan, np.inf, -np.inf, -1e30], n)
    return pd.DataFrame({"site": site, "age": age})


def numbers_of(context):
    """The same context as one table of numbers."""
    codes = np.searchsorted(SITES, context["site"].astype(str))
    return np.stack([codes, context["age"]], axis=1)
