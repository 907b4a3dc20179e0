"""The statistics of a row: as they are defined, finite for extreme rows, of one's own; their knots are quantiles."""

import numpy as np
import pytest
from scipy.special import softmax

import monocal as mc
from hostile import two_kinds
from monocal.core.ranked import rank_rows
from monocal.core.statistics import STATISTICS, _quantiles, compute


def test_statistics_by_their_definition():
    z = np.random.default_rng(0).normal(size=(50, 7)) * 3
    top = np.sort(z, axis=1)[:, ::-1]
    p = softmax(z, axis=1)
    expected = {
        "margin": top[:, 0] - top[:, 1],
        "mean_gap": top[:, 0] - z.mean(axis=1),
        "spread": z.std(axis=1),
        "entropy": -(p * np.log(p)).sum(axis=1),
        "log_odds": np.log(p.max(axis=1)) - np.log1p(-p.max(axis=1)),
    }
    assert expected.keys() == STATISTICS.keys()
    wide = np.insert(z, 3, -np.inf, axis=1)
    for name, values in expected.items():
        for rows in (rank_rows(z), rank_rows(z, 1), rank_rows(z, 3), rank_rows(wide), rank_rows(wide, 2)):
            np.testing.assert_allclose(compute([name], rows)[0], values, rtol=1e-9, err_msg=name)


def test_statistics_of_extreme_rows_are_finite():
    rows = np.array(
        [
            [0.0, -np.inf, -np.inf],
            [1e300, -1e300, 0.0],
            [5.0, 5.0, 5.0],
            [1e-300, 0.0, -1e-300],
            [800.0, 0.0, 0.0],
        ]
    )
    for name in STATISTICS:
        for top_k in (None, 1, 2):
            values = compute([name], rank_rows(rows, top_k))[0]
            assert np.isfinite(values).all(), name
            assert values[0] == 0, name


def test_a_statistic_of_ones_own():
    z, y = two_kinds()

    def own_margin(u):
        return u[:, -1] - u[:, -2]

    by_name = mc.ConditionalMCCT(statistics=("margin",)).fit(z, y)
    by_function = mc.ConditionalMCCT(statistics=own_margin).fit(z, y)
    np.testing.assert_allclose(by_function.predict_proba(z), by_name.predict_proba(z), atol=1e-9)
    assert "own_margin" in str(by_function.explain())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda u: u, "one number per row"),
        (lambda u: u[:, 0] * np.nan, "NaN"),
        (lambda u: ["a"] * len(u), "array of numbers"),
    ],
)
def test_a_wrong_statistic_is_refused(function, message):
    z, y = two_kinds(n=100)
    with pytest.raises(mc.InputError, match=message):
        mc.ConditionalMCCT(statistics=(function,)).fit(z, y)


def test_an_infinite_statistic_is_cut():
    z, y = two_kinds(n=300)

    def ratio(u):
        with np.errstate(divide="ignore"):
            return 1.0 / np.where(u[:, -2] > u[:, -1] - 1, u[:, -1], 0.0)

    cal = mc.ConditionalMCCT(statistics=(ratio,)).fit(z, y)
    assert np.isfinite(cal.predict_proba(z)).all()


@pytest.mark.parametrize("seed", range(6))
def test_knots_are_weighted_quantiles(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    values = rng.normal(size=n).round(seed % 3 + 1)
    weight = np.ones(n) if seed % 2 else rng.random(n) * (rng.random(n) < 0.7)
    weight[0] = 1.0
    levels = np.linspace(0.0, 1.0, 9)
    expected = np.quantile(values, levels, weights=weight, method="inverted_cdf")
    np.testing.assert_array_equal(_quantiles(values, weight, levels), expected)
