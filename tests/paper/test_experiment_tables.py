"""Ranks, ties, bold, means and their printed forms, on numbers known beforehand."""

import numpy as np
import pytest

from monocal.paper.formats import escape_latex, escape_markdown, number, to_html, to_latex, to_markdown
from monocal.paper.tables import Table, mean_and_spread

# Table 1 of Zhang, Batista, Kanhere (2025): ECE of ten methods on eleven networks, and the average rank printed below it.
PUBLISHED = """
5.18  1.67 1.28  4.67 1.61 1.49 11.48 1.42 1.19 1.19
5.50  0.95 0.98  1.61 1.17 1.09 3.96  1.05 1.06 1.06
4.51  0.78 0.85  0.73 0.68 0.69 3.49  0.73 0.54 0.54
4.75  1.13 1.30  1.13 0.82 0.58 4.26  0.79 0.76 0.76
18.78 1.47 1.58  8.43 1.32 1.25 5.82  2.00 1.06 1.11
18.48 2.38 2.54  8.53 1.48 1.68 7.15  1.50 1.28 1.32
3.66  2.25 1.77  7.32 1.39 1.35 1.09  1.81 0.99 0.95
4.78  2.02 1.86  7.73 1.10 1.07 1.22  1.69 1.28 1.18
5.86  3.72 4.23  7.04 3.36 3.10 2.50  0.67 1.79 1.79
18.27 5.41 27.93 7.61 2.94 2.52 1.62  0.98 0.72 0.61
5.43  2.95 3.11  7.70 1.77 1.56 1.16  1.14 1.13 1.08
"""
PUBLISHED_RANKS = [9.45, 6.32, 6.64, 8.55, 4.82, 4.00, 6.55, 4.32, 2.32, 2.05]


def table(mean, **rest):
    mean = np.array(mean, dtype=float)
    rows, columns = (tuple(f"{kind}{i}" for i in range(n)) for kind, n in zip("rc", mean.shape, strict=True))
    rest.setdefault("spread", np.full(mean.shape, np.nan))
    return Table("Title", "Caption.", rows, columns, mean, **rest)


def test_average_ranks_of_the_paper():
    published = table([line.split() for line in PUBLISHED.split("\n") if line])
    np.testing.assert_array_equal(np.round(published.average_rank(), 2), PUBLISHED_RANKS)
    # In bold there: 7 rows won by one of the last two columns.
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
