"""Every sentence says what its numbers say, over a grid of cases."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import monocal as mc
from monocal.metrics import Price, PriceOfOrder, units
from monocal.metrics.differences import NEGLIGIBLE, paired_difference

INTERVALS = [
    (-0.085, -0.099, -0.071),
    (-0.002, -0.01, 0.006),
    (-3e-5, -4e-5, -2e-5),
    (0.0, 0.0, 0.0),
    (0.002, -0.006, 0.01),
    (3e-5, 2e-5, 4e-5),
    (0.085, 0.071, 0.099),
    (np.inf, np.inf, np.inf),
    (np.nan, -np.inf, np.inf),
]


@pytest.mark.parametrize(("nll", "accuracy"), [*itertools.product(INTERVALS, INTERVALS[:7])])
def test_the_price_of_order_is_called_what_it_is(nll, accuracy):
    price = PriceOfOrder(Price(*nll), Price(*accuracy), 1000, 120, 50, 60, (), 0.95)
    said, values = str(price), {"NLL": nll, "accuracy": accuracy}
    costs = {name: low > 0 and value >= NEGLIGIBLE for name, (value, low, _) in values.items()}
    gains = {name: high < 0 and value <= -NEGLIGIBLE for name, (value, _, high) in values.items()}
    if not any([*costs.values(), *gains.values()]):
        assert said.startswith("Keeping the order costs nothing that could be measured here")
        return
    assert "nothing" not in said
    for name in values:
        # The verb that belongs to the amount: the last one before it.
        amount = said[: re.search(f"{name}", said).start()]
        verb = re.findall("costs|gains", amount)[-1]
        missing = f"no {name} that could be measured" in said
        assert missing == (not costs[name] and not gains[name]), said
        assert missing or verb == ("costs" if costs[name] else "gains"), said
    assert "120 of 1,000 top classes move, 50 of them right before and 60 after" in said


@pytest.mark.parametrize("infinite", ["before", "after", "both", "the same row", "none"])
def test_an_infinite_loss_on_one_side_decides(infinite):
    before, after = np.full(50, 0.7), np.full(50, 0.6)
    after[::2] = 0.75
    if infinite in ("before", "both", "the same row"):
        before[3] = np.inf
    if infinite in ("after", "both"):
        after[4] = np.inf
    if infinite == "the same row":
        after[3] = np.inf
    change = paired_difference(after, before, 0.95)
    assert change.decided == (infinite in ("before", "after", "none", "the same row") and change.mean != 0)
    expected = {"before": -np.inf, "after": np.inf}.get(infinite)
    assert expected is None or change.mean == change.low == change.high == expected
    assert change.rows_to_settle is None


@pytest.mark.parametrize("off", [0.0, 0.05, -0.05, 0.25, -0.25])
@pytest.mark.parametrize("n_groups", [1, 3])
@pytest.mark.parametrize(
    ("m", "over", "under"), [(2, "too high", "too low"), (3, "over-confident", "under-confident")]
)
def test_the_verdict_on_groups_counts_those_that_are_flagged(off, n_groups, m, over, under):
    rng = np.random.default_rng(3)
    top = rng.uniform(0.55, 0.95, 1500)
    group = np.arange(1500) % n_groups
    right = rng.random(1500) < np.clip(top - off * (group == 0), 0, 1)
    probs = np.column_stack([(1 - top) / (m - 1)] * (m - 1) + [top])
    result = mc.evaluate(probs, np.where(right, m - 1, 0), metrics="ece", groups=group).groups
    said, flagged = result.verdict, int(result.off.sum())
    assert "off beyond chance" in said
    assert ("not off" in said or "None of" in said) == (flagged == 0)
    if flagged:
        worst = result.worst
        assert worst.off
        assert (over in said) == (worst.low > 0)
        assert (under in said) == (worst.high < 0)


def test_a_share_that_rounds_to_one_is_not_two_numbers():
    assert units.from_to(0.99999, 0.99998, units.percent) == "100.00 %"
    assert units.number(-0.0) == "0.0000"
    assert units.probability(2e-4) == "p < 0.001"
