"""Figures in the documentation are those of the code as it is: cells that are quick to compute are computed again.

A page says which command wrote its figures, and so does a test that fails. Times are not compared: they depend on the machine.
Those of benchmarks/results/reproduce.md are in tests/experiments.
"""

from __future__ import annotations

import pytest

import monocal as mc
from page_figures import SMALL, assert_current, probabilities, shown, tables


def first_stage() -> mc.ConditionalMCCT:
    return mc.ConditionalMCCT(by_class=False)


QUALITY = "python benchmarks/quality.py --docs"
NLL_COLUMNS = {"NLL temperature": mc.TemperatureScaling, "NLL first": first_stage, "NLL": mc.ConditionalMCCT}
ECE_COLUMNS = {
    "ECE % temperature": mc.TemperatureScaling,
    "ECE % first": first_stage,
    "ECE %": mc.ConditionalMCCT,
}


@pytest.mark.parametrize("name", SMALL)
def test_the_quality_of_the_conditional_family(name: str) -> None:
    for column, make in NLL_COLUMNS.items():
        value = mc.metrics.nll(*probabilities(name, make))
        assert_current(shown("docs/conditional.md", name, column), value, QUALITY)
    for column, make in ECE_COLUMNS.items():
        value = 100 * mc.metrics.ece(*probabilities(name, make))
        assert_current(shown("docs/conditional.md", name, column), value, QUALITY)


def test_the_first_page_shows_what_the_page_behind_it_shows() -> None:
    means = next(table for table in tables("README.md") if "ECE %" in table.get("uncalibrated", {}))
    for row in means:
        for column in ("NLL, 8 image sets", "NLL, 8 of text, astronomy, language models"):
            assert means[row][column].strip("* |") == shown("docs/conditional.md", row, column), (
                f"run  {QUALITY}"
            )


STRUCTURED = {
    "`TemperatureScaling`": mc.TemperatureScaling,
    "`ConditionalMCCT(by_class=False)`": first_stage,
    '`StructuredScaling`, "vector"': lambda: mc.StructuredScaling(kind="vector"),
    "`StructuredScaling`": mc.StructuredScaling,
}


@pytest.mark.parametrize("name", SMALL)
def test_the_table_of_structured_scaling(name: str) -> None:
    for column, make in STRUCTURED.items():
        value = mc.metrics.nll(*probabilities(name, make))
        assert_current(
            shown("docs/structured.md", name, column), value, "python benchmarks/peers.py --real LOGITS"
        )
