"""The columns of the tables: what is fitted, under which name, and what of it is random.

The first ten are the paper's, each as its comparison ran it; the others are what monocal offers beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import monocal as mc


@dataclass(frozen=True)
class Method:
    """One column.

    Attributes
    ----------
    label : str
        As shown.
    make : callable
        ``make(seed, top_k)`` gives the unfitted calibrator, or None for the probabilities as they are.
    in_paper : bool
        Among the columns of the paper's tables.
    random : bool
        Whether the result depends on the seed.
    slow_ranks : bool
        Whether time grows with the cube of the number of ranks, so that many of them must be capped.
    pairwise : bool
        Whether there is a parameter for every pair of classes, which is too many with many classes.
    """

    label: str
    make: Callable[[int, int | None], Any]
    in_paper: bool = False
    random: bool = False
    slow_ranks: bool = False
    pairwise: bool = False


METHODS: dict[str, Method] = {
    "uncalibrated": Method("Uncalibrated", lambda seed, top_k: None, in_paper=True),
    "ts": Method("TS", lambda seed, top_k: mc.TemperatureScaling(prior_rows=0), in_paper=True),
    "vs": Method("VS", lambda seed, top_k: mc.VectorScaling.as_published(), in_paper=True),
    "hb": Method("HB", lambda seed, top_k: mc.HistogramBinning(), in_paper=True),
    "ets": Method(
        "ETS", lambda seed, top_k: mc.EnsembleTemperatureScaling.as_published("ETS"), in_paper=True
    ),
    "ets_mse": Method(
        "ETS MSE", lambda seed, top_k: mc.EnsembleTemperatureScaling.as_published("ETS MSE"), in_paper=True
    ),
    "pts": Method(
        "PTS",
        lambda seed, top_k: mc.ParameterizedTemperatureScaling.as_published(seed),
        in_paper=True,
        random=True,
    ),
    "diag": Method(
        "DIAG", lambda seed, top_k: mc.IntraOrderPreserving(seed=seed), in_paper=True, random=True
    ),
    "mcct_published": Method(
        "MCCT published",
        lambda seed, top_k: mc.MCCT.as_published(top_k=top_k),
        in_paper=True,
        slow_ranks=True,
    ),
    "mcct_i_published": Method(
        "MCCT-I published",
        lambda seed, top_k: mc.MCCTInverse.as_published(top_k=top_k),
        in_paper=True,
        slow_ranks=True,
    ),
    "mcct": Method("MCCT", lambda seed, top_k: mc.MCCT(top_k=top_k)),
    "conditional": Method("Conditional MCCT", lambda seed, top_k: mc.ConditionalMCCT(top_k=top_k)),
    "pts_trained": Method(
        "PTS trained", lambda seed, top_k: mc.ParameterizedTemperatureScaling(seed=seed), random=True
    ),
    "isotonic": Method("Isotonic", lambda seed, top_k: mc.IsotonicCalibration()),
    "isotonic_ovr": Method("Isotonic OvR", lambda seed, top_k: mc.IsotonicCalibration(mode="one_vs_rest")),
    "dirichlet": Method("Dirichlet", lambda seed, top_k: mc.DirichletCalibration(), pairwise=True),
    "matrix": Method("Matrix scaling", lambda seed, top_k: mc.MatrixScaling(), pairwise=True),
}

# Figure 1: methods that may change the order of the classes, and two that do not.
ORDER_CURVES = ("vs", "hb", "isotonic_ovr", "dirichlet", "matrix", "mcct_published", "mcct", "conditional")
# Figure 2: methods that are said to need little data.
SIZE_CURVES = ("ts", "ets", "ets_mse", "mcct_published", "mcct_i_published", "mcct", "conditional")
# Figures 3 and 4: methods with a top-k.
RANK_CURVES = ("mcct_published", "mcct_i_published", "mcct")
# Methods whose weights and biases by rank are kept and drawn.
BY_RANK = ("mcct_published", "mcct_i_published", "mcct")
