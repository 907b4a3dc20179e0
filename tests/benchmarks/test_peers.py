"""The benchmark against other libraries: what it asks, how it judges and what it writes. Nothing is installed here."""

from __future__ import annotations

import math
from datetime import date

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

import monocal as mc
from monocal.data import synthetic
from peers import cell, environment, optimum, tables
from peers.methods import METHODS, RIVALS
from peers.runner import Runner

MEASURED = {"unit_ms": 1.0, "fit_memory": 1.25, "predict_memory": 1.0, "nll": 0.5, "inverted": 0.0}


def row(name: str, n: int = 100, m: int = 10, **rest: object) -> dict:
    library, method = name.split("/", 1)
    return {"library": library, "method": method, "rows": n, "classes": m, **rest}


def measured(name: str, fit: float, predict: float, n: int = 100, m: int = 10, **rest: object) -> dict:
    times = {"fit": fit, "predict": predict, "fit_ms": fit, "predict_ms": predict}
    return row(name, n, m, **MEASURED | times | rest)


def test_every_library_is_installed_and_every_rival_is_measured():
    libraries = {name.split("/")[0] for name in METHODS}
    assert libraries - {"monocal", "scipy"} == set(environment.PEERS)
    for own, rivals in RIVALS.items():
        assert {own, *rivals} <= set(METHODS)
        assert own.startswith("monocal/")
        assert not any(rival.startswith("monocal/") for rival in rivals)


def test_page_and_files(tmp_path):
    rows = [
        measured("monocal/TemperatureScaling", 5, 1),
        row("scikit-learn/temperature", failed="IndexError: 3"),
    ]
    machine = {"date": "2026-11-15", "cpu": "a processor", "cores": 2, "python": "3.11"}
    page = tables.page(rows, machine, {"monocal": "0.1.0", "netcal": "1.4.0", "unnamed": "1"}, limit=300)
    assert (
        "Measured 2026-11-15 by `benchmarks/peers.py` with monocal 0.1.0. a processor, 2 cores, one thread"
        in page
    )
    assert "was stopped and names it" in page
    assert "netcal 1.4.0" in page
    assert "unnamed" not in page
    assert "None of monocal's methods is the slower one." in page
    assert page.index("## At a glance") < page.index("## Instead of") < page.index("## All tables")
    assert (
        "| monocal `TemperatureScaling` | yes |  | 5.00 |\n| scikit-learn, temperature |  |  | error |"
        in page
    )
    tables.write_csv(tmp_path / "rows.csv", rows)
    assert (tmp_path / "rows.csv").read_text().splitlines()[0].endswith(",failed")


def test_a_glance_says_the_worst_of_each_method():
    rows = [
        measured("monocal/MCCT", 10, 2, certified=True, violation=1e-7),
        measured("monocal/MCCT", 10, 2, m=1000, certified=True, violation=1e-7),
        measured("probmetrics/TS", 20, 1, excess=1e-9),
        measured("probmetrics/TS", 20, 1, m=1000, excess=0.25, inverted=0.5),
        row("probmetrics/SMS", failed="over 40 s"),
        row("probmetrics/SMS", m=1000, failed="left out: a weight for every pair"),
    ]
    assert tables.glance(rows).splitlines()[2:] == [
        "| monocal `MCCT` | yes | certified | 10.0 | 10.0 |",
        "| probmetrics, TS | no: up to 50 % of rows | no: 25 % above | 20.0 | 20.0 |",
        "| probmetrics, SMS |  |  | over 40 s | – |",
    ]
    assert tables.sentences(rows).splitlines() == [
        "- Of 2 pairs of fits, monocal's is the faster one in 2.",
        "- Of 2 pairs of predictions, monocal's is the faster one in 0.",
        "- Of 2 fits of `MCCT` and `ConditionalMCCT`, 2 carry a certificate of optimality, and none swapped two classes in any "
        "row.",
    ]


@pytest.fixture(scope="module")
def data():
    return synthetic(400, 6, seed=0, keep_truth=False)


def test_excess_of_a_temperature_is_measured_from_the_exact_minimum(data):
    z, y = data.values.astype(np.float64), data.labels

    def nll(c: float) -> float:
        return float(-log_softmax(c * z, axis=1)[np.arange(len(y)), y].mean())

    least = minimize_scalar(nll, bounds=(0.01, 10), method="bounded", options={"xatol": 1e-9}).fun
    for scale in (0.05, 1.0, 7.0):
        expected = nll(scale) / least - 1.0
        assert optimum.temperature_excess(data.values, y, scale) == pytest.approx(expected, rel=1e-6)
    best = mc.TemperatureScaling(prior_rows=0).fit(data.values, y)
    assert optimum.temperature_excess(data.values, y, 1.0 / best.temperature_) < 1e-9
    assert optimum.temperature_excess(data.values, y, -1.0) == math.inf


def test_excess_of_an_affine_map(data):
    pytest.importorskip("torch")
    model = mc.VectorScaling.as_published().fit(data.values, data.labels)
    x = data.values.astype(np.float64)
    x -= x.mean(axis=1, keepdims=True)
    for factor, reached in ((1.0, True), (1.1, False)):
        problem = optimum.Affine(x, factor * model.coef_, model.intercept_)
        assert (optimum.affine_excess(problem, data.labels) < optimum.ENOUGH) == reached


@pytest.mark.parametrize("name", ["MCCT", "VectorScaling"])
def test_certificates(data, name):
    method = METHODS[f"monocal/{name}"]
    model = getattr(mc, name)().fit(data.values, data.labels)
    verdict = cell.judge(method, (model, data.values, data.values, data.labels))
    assert verdict["certified"] is True
    assert 0 < verdict["violation"] == model.solution_.kkt <= model.tol
    assert "excess" not in verdict


def test_a_cell_measures_and_judges():
    method = METHODS["monocal/TemperatureScaling"]
    times, fitted = cell.measure(method, 200, 5)
    assert times["fit"] == pytest.approx(times["fit_ms"] / times["unit_ms"])
    assert all(value >= 0 for value in times.values())
    verdict = cell.judge(method, fitted)
    assert verdict["inverted"] == 0
    assert verdict["excess"] < optimum.ENOUGH
    assert 0.3 < verdict["nll"] < 1.2
    assert cell.why(MemoryError("128 GB")) == "out of memory"
    assert cell.why(ValueError("a\n  b")) == "ValueError: a b"


def test_cells_run_in_a_process_of_their_own_and_are_kept(tmp_path):
    run, before = Runner(tmp_path, limit=600, memory_gb=8, missing={"netcal": "no wheel"}), date.today()
    name = "scipy/softmax, uncalibrated"
    first = run.cell(name, 50, 4)
    assert first["predict_ms"] > 0
    assert first["inverted"] == 0
    assert str(before) <= first["date"] <= str(date.today())
    assert first["version"] == mc.__version__
    assert run.cell(name, 50, 4) == first
    assert not list(tmp_path.rglob("*.part"))
    assert run.cell("netcal/BBQ", 50, 4)["failed"] == "not installable: no wheel"
    assert run.cell("monocal/MatrixScaling", 50, 10_000)["failed"].startswith("left out: a weight")
    hasty = Runner(tmp_path / "hasty", limit=0.01, memory_gb=0, missing={})
    assert hasty.cell(name, 50, 4)["failed"] == "over 0.01 s"


def test_real_sets_are_judged_and_counted(tmp_path, monkeypatch):
    from peers import real

    for name, seed in (("even", 0), ("uneven", 1)):
        cal, test = (synthetic(300, 4, seed=seed + 10 * k) for k in range(2))
        keep = slice(None) if name == "even" else test.labels < 2
        np.savez(
            tmp_path / f"{name}.npz",
            logits_val=cal.values,
            y_val=cal.labels,
            logits_test=test.values[keep],
            y_test=test.labels[keep],
        )
    monkeypatch.setattr(real, "COMPARED", ("monocal/TemperatureScaling", "monocal/StructuredScaling"))
    monkeypatch.setattr(real, "OWN", "monocal/StructuredScaling")
    monkeypatch.setattr(real, "RIVAL", "monocal/TemperatureScaling")
    rows = real.judge(tmp_path)
    assert [row["label_shift"] for row in rows] == [False, False, True, True]
    first = mc.TemperatureScaling(prior_rows=0)
    cal, test = (synthetic(300, 4, seed=10 * k) for k in range(2))
    p = first.fit(cal.values.astype(np.float32), cal.labels).predict_proba(test.values.astype(np.float32))
    assert rows[0]["nll"] == pytest.approx(mc.metrics.nll(p, test.labels), abs=1e-5)
    result = real.table(rows)
    assert "uneven (label shift)" in result
    assert "| mean NLL of 1 |" in result
    assert "of 1 sets without label shift" in result
