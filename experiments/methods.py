"""The columns of the tables: what is fitted, under which name, and what of it is random.

The first ten are the paper's, each as its comparison ran it; the others are monocal's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import monocal as mc


@dataclass(frozen=True)
class Method:
    """One column of the tables.

    Attributes
    ----------
    label : str
        As shown.
    make : callable
        ``make(seed, top_k)`` gives the unfitted calibrator, or None for the probabilities as they are.
    flags : str
        Words: "paper", one of the paper's columns; "random", the result depends on the seed; "slow", time grows with the cube
        of the number of ranks; "pairs", a parameter for every pair of classes, which is too many with many classes.
    """

    label: str
    make: Callable[[int, int | None], Any]
    flags: str = ""

    in_paper = property(lambda self: "paper" in self.flags)
    random = property(lambda self: "random" in self.flags)
    slow_ranks = property(lambda self: "slow" in self.flags)
    pairwise = property(lambda self: "pairs" in self.flags)


_ETS = mc.EnsembleTemperatureScaling.as_published
_MCCT, _MCCT_I = mc.MCCT.as_published, mc.MCCTInverse.as_published
_ISOTONIC = mc.IsotonicCalibration
_PTS = mc.ParameterizedTemperatureScaling
METHODS: dict[str, Method] = {
    "uncalibrated": Method("Uncalibrated", lambda seed, k: None, "paper"),
    "ts": Method("TS", lambda seed, k: mc.TemperatureScaling(prior_rows=0), "paper"),
    "vs": Method("VS", lambda seed, k: mc.VectorScaling.as_published(), "paper"),
    "hb": Method("HB", lambda seed, k: mc.HistogramBinning(), "paper"),
    "ets": Method("ETS", lambda seed, k: _ETS("ETS"), "paper"),
    "ets_mse": Method("ETS MSE", lambda seed, k: _ETS("ETS MSE"), "paper"),
    "pts": Method("PTS", lambda seed, k: _PTS.as_published(seed), "paper random"),
    "diag": Method("DIAG", lambda seed, k: mc.IntraOrderPreserving(seed=seed), "paper random"),
    "mcct_published": Method("MCCT published", lambda seed, k: _MCCT(top_k=k), "paper slow"),
    "mcct_i_published": Method("MCCT-I published", lambda seed, k: _MCCT_I(top_k=k), "paper slow"),
    "mcct": Method("MCCT", lambda seed, k: mc.MCCT(top_k=k)),
    "conditional": Method("Conditional MCCT", lambda seed, k: mc.ConditionalMCCT(top_k=k)),
    "pts_trained": Method("PTS trained", lambda seed, k: _PTS(seed=seed), "random"),
    "isotonic": Method("Isotonic", lambda seed, k: _ISOTONIC()),
    "isotonic_ovr": Method("Isotonic OvR", lambda seed, k: _ISOTONIC(mode="one_vs_rest")),
    "dirichlet": Method("Dirichlet", lambda seed, k: mc.DirichletCalibration(), "pairs"),
    "matrix": Method("Matrix scaling", lambda seed, k: mc.MatrixScaling(), "pairs"),
}

_OURS = ("mcct", "conditional")
# Figure 1: methods that may change the order of the classes, and two that do not.
ORDER_CURVES = ("vs", "hb", "isotonic_ovr", "dirichlet", "matrix", "mcct_published", *_OURS)
# Figure 2: methods that are said to need little data.
SIZE_CURVES = ("ts", "ets", "ets_mse", "mcct_published", "mcct_i_published", *_OURS)
# Figures 3 and 4: methods with a top-k.
RANK_CURVES = ("mcct_published", "mcct_i_published", "mcct")
# Methods whose weights and biases by rank are kept and drawn.
BY_RANK = ("mcct_published", "mcct_i_published", "mcct")
