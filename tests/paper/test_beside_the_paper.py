"""The paper's printed numbers beside ours: which set is the paper's, what agrees, and what a reader sees of it."""

import json
import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.special import softmax

import monocal as mc
from monocal import metrics
from monocal.data import read_splits
from monocal.paper import Settings, beside, published, reproduce
from monocal.paper.beside import Pair
from monocal.paper.figures import _legend
from monocal.paper.published import COLUMNS, PRINTED, Printed, recognised

ONLY_TABLES = Settings(seeds=1, draws=1, fractions=(), counts=(), curve_sets=0, rank_sets=0)


def figures(probs, labels):
    return [
        100 * metrics.ece(probs, labels),
        100 * metrics.kde_ece(probs, labels),
        10 * metrics.eq_bin_ece(probs, labels),
    ]


@pytest.fixture(scope="module")
def printed(small_sets):
    """A row that was "printed" of a small set: TS the same, near and different."""
    both = read_splits(small_sets / "few_classes.npz")
    plain = figures(softmax(both.test.values.astype(float), axis=1), both.test.labels)
    ts = mc.TemperatureScaling(prior_rows=0).fit(both.cal.values, both.cal.labels)
    ours = np.add(figures(ts.predict_proba(both.test.values), both.test.labels), [0.0, 0.02, 0.5])
    rows = [[round(a, 2), round(b, 2), *[1.0] * (len(COLUMNS) - 2)] for a, b in zip(plain, ours, strict=True)]
    return Printed("made-up data", "Tiny-1", 4, *map(tuple, rows))


@pytest.fixture(scope="module")
def outcome(small_sets, printed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("beside")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "PRINTED", (*PRINTED, printed))
        methods = ("uncalibrated", "ts", "mcct")
        return reproduce(
            small_sets,
            folder / "out",
            settings=ONLY_TABLES,
            methods=methods,
            jobs=1,
            markdown=folder / "page.md",
        )


def test_a_set_is_known_by_its_uncalibrated_values(outcome):
    (found,) = outcome.published
    assert (found.set_name, found.row.model) == ("few_classes", "Tiny-1")
    assert list(found.pairs) == ["uncalibrated", "ts"]  # of the paper's columns those that ran
    assert [pair.match for pair in found.pairs["ts"].values()] == ["same", "near", "different"]
    assert (found.count("same"), found.count("near"), found.count("different")) == (4, 1, 1)
    densenet = {m: PRINTED[1].value(m, "uncalibrated") for m in published.MEASURES}
    assert recognised(10, densenet) is PRINTED[1]
    assert recognised(100, densenet) is None
    assert recognised(10, densenet | {"ece": 5.49}) is None


def test_the_page_shows_it_by_colour_and_by_sign(outcome):
    page = outcome.page.read_text(encoding="utf-8")
    assert '<a href="#published">' in page
    cells = re.findall(r'<td class="pair (\w+)">(.*?)</td>', page)
    assert [match for match, _ in cells] == ["same"] * 4 + ["near", "different"]
    for match, text in cells:
        assert beside.SIGNS[match] in text
    markdown = (outcome.page.parents[1] / "page.md").read_text(encoding="utf-8")
    assert "Of 6 printed values 4 come out to the digit (=), 1 within 0.02" in markdown
    assert all(text in markdown for _, text in cells)


def test_a_page_without_such_a_set_says_nothing(small_sets, tmp_path):
    outcome = reproduce(small_sets, tmp_path / "out", settings=ONLY_TABLES, methods=("uncalibrated",), jobs=1)
    assert outcome.published == ()
    assert "published" not in re.sub(r"<style>.*?</style>", "", outcome.page.read_text(encoding="utf-8"))


def test_on_a_terminal(outcome, capsys):
    from monocal.cli.reproduce import _show_beside

    _show_beside(outcome.published[0])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines()[1:])) <= 80
    assert len(re.findall(r"\d [=≈≠] \d", shown)) == 6
    assert json.dumps(outcome.published[0].to_dict())  # plain values only


@pytest.mark.parametrize(
    ("ours", "spread", "match"),
    [
        (1.064, np.nan, "same"),
        (1.055, np.nan, "near"),
        (1.08, np.nan, "near"),
        (1.084, np.nan, "near"),
        (1.09, np.nan, "different"),
        (3.0, 1.0, "near"),
        (3.2, 1.0, "different"),
    ],
)
def test_matches_are_of_the_values_as_shown(ours, spread, match):
    assert Pair(1.06, ours, spread).match == match


def test_ties_explain_histogram_binning(shared_logits):
    """What the page gives as the reason for EQ-BIN ECE: which of equal rows falls into which bin."""
    data = shared_logits("nncal_cifar10_densenet40")
    probs = mc.HistogramBinning().fit(data.logits_val, data.y_val).predict_proba(data.logits_test)
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == data.y_test
    assert len(np.unique(confidence)) < len(confidence) / 2
    generator = np.random.default_rng(0)
    orders = (np.lexsort((generator.random(len(right)), confidence)) for _ in range(50))
    found = [
        10 * np.abs((confidence - right)[order].reshape(10, 1000).mean(axis=1)).sum() for order in orders
    ]
    assert min(found) < PRINTED[1].value("eq_bin_ece", "hb") < max(found)
    assert min(found) < 2.67 < 2.75 < max(found) < 3.1  # as the page says


@pytest.mark.parametrize("wide", [2.5, 4.1, 10.3])
def test_legends_are_not_cut(wide):
    figure = Figure(figsize=(wide, 3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    names = [f"Conditional MCCT {i}" for i in range(8)]
    _legend(figure, {name: axes.plot([0, 1])[0] for name in names})
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    assert [text.get_text() for text in figure.legends[0].get_texts()] == names


@pytest.mark.parametrize("variant", ["ETS", "ETS MSE"])
def test_slsqp_ends_where_the_exact_weights_of_an_ensemble_are(shared_logits, variant):
    """What the page says of ETS: another optimiser from the published start, temperature scaling alone, ends there too."""
    data = shared_logits("nncal_cifar10_densenet40")
    cal = mc.EnsembleTemperatureScaling.as_published(variant).fit(data.logits_val, data.y_val)
    logits = data.logits_val.astype(float)
    parts = [softmax(logits / cal.temperature_, axis=1), softmax(logits, axis=1), np.full_like(logits, 0.1)]
    truth = np.eye(10)[data.y_val]
    found = minimize(
        lambda w: np.mean((np.tensordot(w, parts, 1) - truth) ** 2),
        (1.0, 0.0, 0.0),
        method="SLSQP",
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        tol=1e-12,
    )
    np.testing.assert_allclose(found.x, cal.weights_, atol=1e-3)
