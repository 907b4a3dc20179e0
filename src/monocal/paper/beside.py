"""The paper's printed numbers beside ours, and the reason where they differ.

Of two values, ours as shown,

    =  the same to the digit,
    ≈  within 0.02, or within two standard deviations over our seeds,
    ≠  different.

The signs say what the colours of the page say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from .columns import METHODS
from .plan import Plan
from .published import COLUMNS, DECIMALS, MEASURES, Printed, recognised
from .tables import Table

Match = Literal["same", "near", "different"]
SIGNS: dict[Match, str] = {"same": "=", "near": "≈", "different": "≠"}
_NEAR = 0.02

_WHY = {
    "vs": "Ours is the optimum of the likelihood, without a penalty; where a gradient method stops depends on its steps.",
    "hb": "Ties: many rows have one confidence, and bins of 1000 rows divide them. Which row falls into which bin moves EQ-BIN "
    "ECE (on DenseNet-40 between 2.6 and 3.0); ours shares them between the bins.",
    "ets": "Not explained: ours is the optimum, and SLSQP from the published start ends at it too.",
    "ets_mse": "Not explained: ours is the optimum, and SLSQP from the published start ends at it too.",
    "pts": "Seeds: 200 epochs at a learning rate of 5e-5 leave the network near its random start.",
    "diag": "A network: its start is random, and rows held out decide when training stops.",
}


@dataclass(frozen=True)
class Pair:
    """A printed value, ours (mean and standard deviation over seeds) and how they match."""

    printed: float
    ours: float
    spread: float

    @property
    def match(self) -> Match:
        """As shown, not as computed."""
        if round(self.ours, DECIMALS) == self.printed:
            return "same"
        room = max(_NEAR, 2 * self.spread) if np.isfinite(self.spread) else _NEAR
        return "near" if abs(round(self.ours, DECIMALS) - self.printed) <= room + 1e-9 else "different"

    @property
    def text(self) -> str:
        """Printed, sign, ours."""
        spread = f" ± {self.spread:.{DECIMALS}f}" if np.isfinite(self.spread) else ""
        return f"{self.printed:.{DECIMALS}f} {SIGNS[self.match]} {round(self.ours, DECIMALS):.{DECIMALS}f}{spread}"


@dataclass(frozen=True)
class Beside:
    """One of the paper's sets: printed and ours, by method and measure.

    Attributes
    ----------
    set_name : str
    row : Printed
    pairs : dict of str to dict of str to Pair
        By method, then by measure, both as `columns` and `published` name them.
    """

    set_name: str
    row: Printed
    pairs: dict[str, dict[str, Pair]]

    @property
    def title(self) -> str:
        """Which network it is."""
        return f"{self.row.model} on {self.row.data}: published beside ours"

    def count(self, match: Match) -> int:
        """How many values match so."""
        return sum(pair.match == match for pairs in self.pairs.values() for pair in pairs.values())

    @property
    def text(self) -> str:
        """How much agrees."""
        total = sum(len(pairs) for pairs in self.pairs.values())
        return (
            f"{self.set_name} is the paper's {self.row.model} on {self.row.data}: its uncalibrated values are the printed ones "
            f"in all three tables. Of {total} printed values {self.count('same')} come out to the digit (=), {self.count('near')}"
            f" within {_NEAR} or two standard deviations over seeds (≈), {self.count('different')} differ (≠). Each cell: "
            "published, sign, ours."
        )

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        values = {
            method: {
                m: {"published": pair.printed, "ours": pair.ours, "match": pair.match}
                for m, pair in pairs.items()
            }
            for method, pairs in self.pairs.items()
        }
        return {"set": self.set_name, "data": self.row.data, "model": self.row.model, "values": values}

    @property
    def header(self) -> tuple[str, ...]:
        """Columns of the table."""
        return ("method", *MEASURES.values(), "why they differ")

    @property
    def rows(self) -> list[tuple[str, list[Pair], str]]:
        """Label of the method, its pairs, and the reason where they are not all the same."""
        found = []
        for method, pairs in self.pairs.items():
            differ = any(pair.match != "same" for pair in pairs.values())
            found.append(
                (METHODS[method].label, list(pairs.values()), _WHY.get(method, "") if differ else "")
            )
        return found


def make_beside(plan: Plan, tables: list[Table]) -> list[Beside]:
    """For every set of the run that is one of the paper's."""
    if "uncalibrated" not in plan.methods:
        return []
    by_measure = dict(zip(MEASURES, tables, strict=False))  # the paper's three come first
    at = {method: j for j, method in enumerate(plan.methods)}
    found = []
    for i, dataset in enumerate(plan.datasets):
        plain = {m: float(table.mean[i, at["uncalibrated"]]) for m, table in by_measure.items()}
        row = recognised(dataset.n_classes, plain)
        if row is None:
            continue
        pairs = {
            method: {
                m: Pair(
                    row.value(m, method), float(table.mean[i, at[method]]), float(table.spread[i, at[method]])
                )
                for m, table in by_measure.items()
                if np.isfinite(table.mean[i, at[method]])
            }
            for method in COLUMNS
            if method in at
        }
        found.append(Beside(dataset.name, row, {method: p for method, p in pairs.items() if p}))
    return found
