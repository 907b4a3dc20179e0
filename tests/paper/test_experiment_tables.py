"""Ranks, ties, bold, means and their printed forms, on numbers known beforehand."""

import numpy as np
import pytest

from monocal.paper.formats import escape_latex, escape_markdown, number, to_html, to_latex, to_markdown
from monocal.paper.published import PRINTED
from monocal.paper.tables import Table, mean_and_spread

# Printed below Tables 1 and 3. (Those below Table 2 do not follow from its values.)
PUBLISHED_RANKS = {
    "ece": [9.45, 6.32, 6.64, 8.55, 4.82, 4.00, 6.55, 4.32, 2.32, 2.05],
    "eq_bin_ece": [9.45, 6.00, 6.00, 8.91, 5.00, 5.09, 6.09, 4.36, 2.18, 1.91],
}


def table(mean, **rest):
    mean = np.array(mean, dtype=float)
    rows, columns = (tuple(f"{kind}{i}" for i in range(n)) for kind, n in zip("rc", mean.shape, strict=True))
    rest.setdefault("spread", np.full(mean.shape, np.nan))
    return Table("Title", "Caption.", rows, columns, mean, **rest)


@pytest.mark.parametrize("measure", PUBLISHED_RANKS)
def test_average_ranks_of_the_paper(measure):
    published = table([getattr(row, measure) for row in PRINTED])
    np.testing.assert_array_equal(np.round(published.average_rank(), 2), PUBLISHED_RANKS[measure])
    if measure == "ece":  # in bold there: 7 rows won by one of the last two columns
        assert published.best()[:, 8:].any(axis=1).sum() == 7


def test_ties_are_of_the_values_as_shown():
    t = table([[1.001, 1.004, 2.0], [3.0, 1.0, 2.0]])
    np.testing.assert_array_equal(t.ranks(), [[1.5, 1.5, 3.0], [3.0, 1.0, 2.0]])
    np.testing.assert_array_equal(t.best(), [[True, True, False], [False, True, False]])
    np.testing.assert_array_equal(t.average_rank(), [2.25, 1.25, 2.5])
    np.testing.assert_allclose(t.average(), [2.0005, 1.002, 2.0])
    finer = table([[1.001, 1.004, 2.0]], decimals=3)
    np.testing.assert_array_equal(finer.ranks(), [[1, 2, 3]])


def test_more_can_be_better():
    t = table([[-0.5, 0.25, 0.0]], higher_is_better=True)
    np.testing.assert_array_equal(t.ranks(), [[3, 1, 2]])
    np.testing.assert_array_equal(t.best(), [[False, True, False]])
    assert [line.best.tolist() for line in t.summary()] == [[False, True, False]] * 2


def test_missing_values_have_no_rank_and_make_no_average():
    t = table([[1.0, np.nan, 2.0], [2.0, 3.0, 1.0]])
    np.testing.assert_array_equal(t.ranks(), [[1, np.nan, 2], [2, 3, 1]])
    np.testing.assert_array_equal(t.average_rank(), [1.5, 3.0, 1.5])
    np.testing.assert_array_equal(t.average(), [1.5, np.nan, 1.5])
    assert not t.best()[0, 1]
    assert "| r0 | **1.00** | – | 2.00 |" in to_markdown(t)
    nothing = table([[np.nan, np.nan]])
    assert not nothing.best().any()
    assert "–" in to_markdown(nothing)


def test_infinite_values_are_last():
    t = table([[np.inf, 1.0, np.inf]])
    np.testing.assert_array_equal(t.ranks(), [[2.5, 1.0, 2.5]])
    assert "| r0 | ∞ | **1.00** | ∞ |" in to_markdown(t)


def test_rank_among_the_papers_columns_alone():
    t = table([[1.0, 2.0, 0.5]], paper=(0, 1))
    lines = {line.name: line.values for line in t.summary()}
    np.testing.assert_array_equal(lines["Average rank"], [2, 3, 1])
    np.testing.assert_array_equal(lines["Average rank, paper's columns"], [1, 2, np.nan])


def test_mean_and_spread():
    mean, spread = mean_and_spread([1.0, 2.0, 3.0])
    assert (mean, spread) == (2.0, 1.0)
    mean, spread = mean_and_spread([4.0])
    assert mean == 4.0
    assert np.isnan(spread)
    assert np.isnan(mean_and_spread([])).all()
    assert mean_and_spread([np.inf, 1.0])[0] == np.inf


def test_printed_forms_agree():
    t = table([[1.234, 0.5]], spread=np.array([[0.106, np.nan]]), marks={(0, 1): "†"})
    assert "| r0 | 1.23 ± 0.11 | **0.50†** |" in to_markdown(t)
    assert '<th scope="row">r0</th><td>1.23 ± 0.11</td><td><b>0.50†</b></td>' in to_html(t)
    latex = to_latex(t, "tab:x")
    assert r"r0 & 1.23 $\pm$ 0.11 & \textbf{0.50$\dagger$} \\" in latex
    assert latex.count(r"\begin{tabular}{lrr}") == 1
    assert latex.count("{") == latex.count("}")


@pytest.mark.parametrize(
    ("value", "text"), [(-0.001, "0.00"), (float("nan"), "–"), (float("-inf"), "−∞"), (2.345678, "2.35")]
)
def test_numbers_as_shown(value, text):
    assert number(value) == text


def test_names_of_sets_cannot_break_out():
    name = "a|b<script>_&%$#{}~^\\\nend"
    t = Table("T", "C", (name,), ("x",), np.ones((1, 1)), np.full((1, 1), np.nan))
    row = to_markdown(t).split("\n")[2]
    assert row.replace("\\|", "").count("|") == 3
    assert "<script>" not in to_html(t)
    assert escape_latex("a_b\\") == r"a\_b\textbackslash{}"
    assert escape_markdown("*x*") == r"\*x\*"
    assert "\n" not in escape_latex(name)
