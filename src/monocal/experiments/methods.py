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
    most_classes : int or None
        Not run beyond this many classes: the number of parameters is its square.
    """

    label: str
    make: Callable[[int, int | None], Any]
    in_paper: bool = False
    random: bool = False
    slow_ranks: bool = False
    most_classes: int | None = None


METHODS: dict[str, Method] = {
    "uncalibrated": Method("Uncalibrated", lambda seed, top_k: None, in_paper=True),
    "ts": Method("TS", lambda seed, top_k: mc.TemperatureScaling(), in_paper=True),
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
}

# Figure 1: methods that may change the order of the classes, and two that do not.
ORDER_CURVES = ("vs", "hb", "isotonic", "dirichlet", "matrix", "mcct_published", "mcct", "conditional")
# Figure 2: methods that are said to need little data.
SIZE_CURVES = ("ts", "ets", "ets_mse", "mcct_published", "mcct_i_published", "mcct", "conditional")
# Figures 3 and 4: methods with a top-k.
RANK_CURVES = ("mcct_published", "mcct_i_published", "mcct")
# Methods whose weights and biases by rank are kept and drawn.
BY_RANK = ("mcct_published", "mcct_i_published", "mcct")
