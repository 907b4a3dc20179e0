"""benchmarks/results/reproduce.md shows what the code as it is computes: the quick cells of two sets, and one published fit."""

from __future__ import annotations

import warnings

import pytest

import monocal as mc
from experiments.methods import METHODS
from page_figures import SMALL, assert_current, probabilities, shown, tables
from real_logits import load_shared_logits

RESULTS = "python tools/write_results.py LOGITS"
QUICK = ("uncalibrated", "ts", "vs", "hb", "ets", "ets_mse", "mcct", "conditional", "isotonic", "matrix")
MEASURED = (  # by the number of the table: of those with this row and column, the tables come in this order
    lambda p, y: 100 * mc.metrics.ece(p, y),
    lambda p, y: 100 * mc.metrics.kde_ece(p, y),
    lambda p, y: 10 * mc.metrics.eq_bin_ece(p, y),
    mc.metrics.nll,
    lambda p, y: 100 * mc.metrics.brier(p, y),
)


def results_tables() -> list[dict[str, dict[str, str]]]:
    return [table for table in tables("benchmarks/results/reproduce.md") if "Average rank" in table]


@pytest.mark.parametrize("name", SMALL[1:])
def test_the_tables_of_the_papers_experiments(name: str) -> None:
    for method in QUICK:
        for table, measure in zip(results_tables(), MEASURED, strict=False):
            cell = table[name][METHODS[method].label].strip("* |")
            if cell != "∞":
                assert_current(cell, measure(*probabilities(name, method)), RESULTS)


def test_the_published_procedure_on_a_set_of_the_paper() -> None:
    """Of the design page too: how many rows it re-orders."""
    data = load_shared_logits("nncal_cifar10_densenet40")
    with warnings.catch_warnings(action="ignore", category=mc.OrderWarning):
        published = mc.MCCT.as_published().fit(data.logits_val, data.y_val)
    audit = mc.order_audit(data.logits_test, published.transform(data.logits_test), input="logits")
    value = 100 * audit.all.share_inverted
    assert_current(results_tables()[6]["nncal_cifar10_densenet40"]["MCCT published"], value, RESULTS)
    assert_current(
        shown("docs/design.md", "DenseNet-40, CIFAR-10", "test rows with two classes swapped"), value, RESULTS
    )
