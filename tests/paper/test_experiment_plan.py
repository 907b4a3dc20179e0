"""Which cells there are, when two are the same, and what their files are called."""

import json

import numpy as np
import pytest

from monocal.data import Splits, find, synthetic, write
from monocal.paper.cells import Cell, Dataset, load, read_result, write_result
from monocal.paper.columns import BY_RANK, METHODS, ORDER_CURVES, RANK_CURVES, SIZE_CURVES
from monocal.paper.curves import constant_from
from monocal.paper.figures import _LOOK
from monocal.paper.plan import FULL, QUICK, make_plan
from monocal.paper.worker import calibration_rows


def datasets(folder):
    return tuple(Dataset.of(place) for place in find(folder))


def test_every_method_of_the_figures_exists():
    assert {*ORDER_CURVES, *SIZE_CURVES, *RANK_CURVES} <= set(METHODS)


@pytest.mark.parametrize("methods", [ORDER_CURVES, SIZE_CURVES, RANK_CURVES, BY_RANK])
def test_methods_in_one_figure_look_different(methods):
    assert len({_LOOK[method][0] for method in methods}) == len(methods)


def test_plan_is_the_same_every_time_and_has_each_cell_once(small_sets):
    sets = datasets(small_sets)
    plan, again = (make_plan(sets, FULL, seed=3) for _ in range(2))
    assert plan.cells == again.cells
    assert len({cell.file_name for cell in plan.cells}) == len(plan.cells)
    random = sum(method.random for method in METHODS.values())
    fixed = len(METHODS) - random
    assert len(plan.tables) == len(sets) * (fixed + 10 * random)


def test_whole_sets_are_shared_between_tables_and_curves(small_sets):
    plan = make_plan(datasets(small_sets), FULL, seed=0)
    whole = [cell for cell in (*plan.sizes, *plan.ranks) if cell.n_cal is None and cell.top_k is None]
    assert whole
    assert set(whole) <= set(plan.tables)
    quick = make_plan(datasets(small_sets), QUICK, seed=0)
    assert set(quick.tables) <= set(plan.tables)  # so that a full run after a quick one reuses them


def test_slow_methods_are_capped(small_sets, tiny):
    plan = make_plan(datasets(small_sets), tiny, seed=0)
    ranks = {(c.dataset.n_classes, c.top_k) for c in plan.tables if c.method == "mcct_published"}
    assert ranks == {(4, None), (12, 8)}
    assert max(c.top_k or 12 for c in plan.ranks if c.method == "mcct_published") == 8
    assert max(c.top_k or 12 for c in plan.ranks if c.method == "mcct") == 12
    assert {c.dataset.n_classes for c in plan.tables if c.method == "matrix"} == {4}


def test_parts_are_nested_and_decided_by_the_seed(small_sets):
    dataset = datasets(small_sets)[0]
    small, large = (calibration_rows(Cell(dataset, "ts", 5, n)) for n in (20, 50))
    np.testing.assert_array_equal(small, large[:20])
    assert len(set(large)) == 50
    assert list(small) != list(calibration_rows(Cell(dataset, "ts", 6, 20)))
    np.testing.assert_array_equal(calibration_rows(Cell(dataset, "ts")), np.arange(dataset.n_cal))


def test_file_names_follow_content_and_configuration(small_sets, tmp_path):
    first, second = datasets(small_sets)
    names = {
        Cell(first, "mcct").file_name,
        Cell(second, "mcct").file_name,
        Cell(first, "ts").file_name,
        Cell(first, "mcct", top_k=2).file_name,
        Cell(first, "mcct", n_cal=10).file_name,
        Cell(first, "mcct", seed=1).file_name,
    }
    assert len(names) == 6
    # The same name with other numbers in it is another set.
    write(
        tmp_path / "few_classes.npz",
        Splits(synthetic(200, 4, seed=7), synthetic(300, 4, seed=2), "few_classes"),
    )
    (other,) = datasets(tmp_path)
    assert other.name == first.name
    assert Cell(other, "mcct").file_name not in names


def test_results_come_back_as_written_and_damaged_ones_count_as_missing(small_sets, tmp_path):
    cell = Cell(datasets(small_sets)[0], "ts")
    assert read_result(tmp_path, cell) is None
    write_result(tmp_path, cell, {"status": "done", "metrics": {"nll": float("inf"), "ece": 0.1}})
    path = tmp_path / cell.file_name
    json.loads(path.read_text(), parse_constant=lambda text: 1 / 0)  # standard JSON: no bare Infinity
    result = read_result(tmp_path, cell)
    assert result is not None
    assert result["metrics"] == {"nll": float("inf"), "ece": 0.1}
    for damage in ("", "[]", "{}", path.read_text()[:40], path.read_text().replace('"seed": 0', '"seed": 1')):
        path.write_text(damage)
        assert read_result(tmp_path, cell) is None


def test_probabilities_are_taken_as_their_logarithms(tmp_path):
    truth = synthetic(50, 3, seed=0).truth
    probs = np.asarray(truth, dtype=np.float64)
    probs[0] = [1.0, 0.0, 0.0]
    labels = np.arange(50) % 3
    write(
        tmp_path / "p.npz",
        {
            "probabilities_cal": probs,
            "labels_cal": labels,
            "probabilities_test": probs,
            "labels_test": labels,
        },
    )
    (dataset,) = datasets(tmp_path)
    logits = load(dataset.location).cal.values
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(np.exp(logits[1:]), probs[1:])
    assert logits[0, 1] < np.log(probs[probs > 0].min())


def test_rank_from_which_parameters_stay_constant():
    weights = np.array([1.0, 1.0, 1.0, 1.5, 2.0])  # lowest rank first
    flat = np.zeros(5)
    assert constant_from(weights, flat) == 3
    assert constant_from(flat, np.array([0.0, 0.0, 0.0, 0.0, 1.0])) == 2
    assert constant_from(weights, np.arange(5.0)) == 5
    assert constant_from(flat, flat) == 1
    assert constant_from(np.array([1.0, 1.0001, 2.0]), np.zeros(3)) == 2
