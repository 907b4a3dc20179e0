"""Columns whose names are whole numbers: labels are these names, in Python, in files and on the command line."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

import monocal as mc
from monocal.metrics import Evaluator, compare, nll

RNG = np.random.default_rng(0)
Z = np.round(RNG.normal(size=(300, 3)) * 2 + [1, 0, -1], 4)
Y = np.array([RNG.choice(3, p=np.exp(z - np.logaddexp.reduce(z))) for z in Z / 2 + [0, 1, 0]])
WHOLE = mc.VectorScaling().fit(Z, Y)
P = WHOLE.predict_proba(Z)
# The number of each class, and the order of the columns.
NAMED: dict[str, tuple[list[Any], list[int]]] = {
    "another order": ([0, 1, 2], [2, 0, 1]),
    "from 1": ([1, 2, 3], [0, 1, 2]),
    "codes": ([200, 404, 500], [2, 0, 1]),
    "signs": ([-1, 0, 1], [0, 1, 2]),
}
every = pytest.mark.parametrize(("numbers", "order"), NAMED.values(), ids=NAMED)


def frame(values: np.ndarray, numbers: list[Any], order: list[int], form: Any = int) -> pd.DataFrame:
    return pd.DataFrame(values[:, order], columns=[form(numbers[j]) for j in order])


@every
@pytest.mark.parametrize("form", [int, str, float, "prob_{}".format], ids=["int", "text", "float", "prefix"])
def test_labels_name_the_columns_of_a_frame(numbers: list[Any], order: list[int], form: Any) -> None:
    if form == "prob_{}".format and numbers[0] < 0:
        pytest.skip("a sign in the middle of a name is a hyphen")
    X, p, y = frame(Z, numbers, order, form), frame(P, numbers, order, form), np.array(numbers)[Y]
    cal = mc.VectorScaling().fit(X, y)
    result = cal.predict_proba(X)
    assert list(result.columns) == list(X.columns)
    np.testing.assert_allclose(result, P[:, order], atol=1e-6)
    for labels in (y, y.tolist(), pd.Series(y), pd.Series(y, dtype="Int64"), y.astype(str)):
        assert cal.score(X, labels) == pytest.approx(WHOLE.score(Z, Y), abs=1e-9)
        assert nll(p, labels) == pytest.approx(nll(P, Y))
    assert mc.evaluate(p, y)["nll"].value == pytest.approx(nll(P, Y))
    assert Evaluator().update(p, y).result()["nll"].value == pytest.approx(nll(P, Y))
    assert compare(p, p, y, metric="nll", n_boot=10).difference == 0
    assert mc.price_of_order(p, p, y).costs is False
    if -1 not in numbers:  # which tells a monitor that a label is not known
        windows = [mc.Monitor(window=100).update(*rows).windows[0] for rows in ((p, y), (P, Y))]
        assert windows[0].accuracy == windows[1].accuracy
    mc.ece_floor(p, n_draws=10)
    blocks = mc.TemperatureScaling().fit(lambda: [(X[:150], y[:150]), (X[150:], y[150:])])
    assert blocks.temperature_ == pytest.approx(mc.TemperatureScaling().fit(Z, Y).temperature_, abs=1e-6)


@every
def test_the_command_line_and_python_agree(
    run: Any, tmp_path: Any, numbers: list[Any], order: list[int]
) -> None:
    X, y = frame(Z, numbers, order), np.array(numbers)[Y]
    X.assign(label=y).to_csv(tmp_path / "z.csv", index=False)
    run("fit", tmp_path / "z.csv", "-m", "vector", "-o", tmp_path / "c.json")
    mc.VectorScaling().fit(X, y).save(tmp_path / "p.json")
    for saved in ("c.json", "p.json"):
        result = run("evaluate", tmp_path / "z.csv", "-c", tmp_path / saved, "--n-boot", 0, "--json")
        assert json.loads(result.stdout)["after"]["metrics"]["nll"]["value"] == pytest.approx(
            nll(P, Y), abs=1e-6
        )
        # The same columns in the order of their numbers, without labels.
        frame(Z, numbers, [0, 1, 2]).to_csv(tmp_path / "sorted.csv", index=False)
        run("apply", tmp_path / saved, tmp_path / "sorted.csv", "-o", tmp_path / "out.npz", "--force")
        np.testing.assert_allclose(mc.read(tmp_path / "out.npz").values, P, atol=1e-6)


def test_a_label_that_is_no_column_is_refused(run: Any, tmp_path: Any) -> None:
    X = frame(Z, [1, 2, 3], [0, 1, 2])
    with pytest.raises(mc.InputError, match=r"label 0 in row \d+ is none of the columns '1', '2', '3'"):
        mc.MCCT().fit(X, Y)
    with pytest.raises(mc.InputError, match="none of the columns"):
        nll(frame(P, [1, 2, 3], [0, 1, 2]), Y)
    X.assign(label=Y).to_csv(tmp_path / "z.csv", index=False)
    message = run("fit", tmp_path / "z.csv", "-o", tmp_path / "c.json", code=1).stderr
    assert "labels are the names of the columns, '1', '2', '3'" in message
    assert "--first-label 0 if labels count the columns from 0" in message
    run("fit", tmp_path / "z.csv", "-o", tmp_path / "c.json", "--first-label", 0)


def test_a_label_that_does_not_count_needs_no_column() -> None:
    X, y = frame(Z, [1, 2, 3], [0, 1, 2]), np.where(np.arange(300) < 10, -100, Y + 1)
    expected = mc.VectorScaling().fit(Z[10:], Y[10:]).predict_proba(Z)
    cal = mc.VectorScaling(ignore_index=-100).fit(X, y)
    np.testing.assert_allclose(cal.predict_proba(X), expected, atol=1e-6)
    with pytest.raises(mc.InputError, match="none of the columns"):  # 0 would also be the place of class 1
        mc.VectorScaling(ignore_index=0).fit(X, np.where(y < 0, 0, y))


def test_coordinates_of_a_labelled_array() -> None:
    xarray = pytest.importorskip("xarray")
    order = [2, 0, 1]
    X, p = (xarray.DataArray(v[:, order], dims=("row", "class"), coords={"class": order}) for v in (Z, P))
    cal = mc.VectorScaling().fit(X, Y)
    np.testing.assert_allclose(cal.predict_proba(X), P[:, order], atol=1e-6)
    assert mc.evaluate(p, Y)["nll"].value == pytest.approx(nll(P, Y))


def test_dask_labels_of_columns_out_of_order_are_refused() -> None:
    dd = pytest.importorskip("dask.dataframe")
    lazy = dd.from_pandas(frame(Z, [0, 1, 2], [2, 0, 1]).assign(label=Y), npartitions=2)
    with pytest.raises(mc.InputError, match="labels are names of columns, and y is a Dask collection"):
        mc.MCCT().fit(lazy[[2, 0, 1]], lazy["label"])
