"""Methods that may re-order, on the command line: what the order costs, and whether class frequencies differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import monocal as mc
from monocal.data import synthetic

Run = Callable[..., Any]


def write(path: Path, data: Any, rows: Any = slice(None)) -> None:
    biased = data.values + np.array([3.0, 0.0, -3.0, 0.0])
    np.savez(path, logits=biased[rows], labels=data.labels[rows])


def test_compare_says_what_the_order_costs_and_finds_a_shift(run: Run, folder: Path) -> None:
    cal, test = (synthetic(800, 4, seed=seed) for seed in (0, 1))
    write(folder / "biased.npz", cal)
    write(folder / "same.npz", test)
    write(folder / "other.npz", test, test.labels < 2)
    names = "temperature-scaling,structured-mcct"
    result = json.loads(
        run("compare", "biased.npz", "--test", "same.npz", "--methods", names, "--n-boot", 0, "--json").stdout
    )
    assert result["price_of_order"]["method"] == "structured MCCT"
    assert result["price_of_order"]["nll"]["low"] > 0
    assert not result["label_shift"]["shifted"]
    assert result["recommended"] == result["recommended_if_order_may_change"] == "structured MCCT"
    assert result["reason"].startswith("Use structured MCCT: the order of the classes is the obstacle")
    shown = run("compare", "biased.npz", "--test", "other.npz", "--methods", names, "--n-boot", 0).stdout
    flat = " ".join(shown.split())
    assert "Keeping the order gains" in flat  # of the rows of two classes alone
    assert "The class frequencies of calibration and test rows differ" in flat


def test_evaluate_finds_a_shift_since_the_fit(run: Run, folder: Path) -> None:
    cal, test = (synthetic(800, 4, seed=seed) for seed in (0, 1))
    write(folder / "biased.npz", cal)
    write(folder / "same.npz", test)
    write(folder / "other.npz", test, test.labels < 2)
    run("fit", "biased.npz", "-o", "ts.json", "-m", "temperature-scaling")
    few = ("-c", "ts.json", "--metrics", "nll", "--n-boot", 0)
    assert not json.loads(run("evaluate", "same.npz", *few, "--json").stdout)["label_shift"]["shifted"]
    message = " ".join(run("evaluate", "other.npz", *few).stdout.split())
    assert "The class frequencies of calibration and test rows differ" in message
    assert "LabelShift(calibrator, prior=...)" in message
    document = json.loads((folder / "ts.json").read_text())
    for forged in (5, [1, 2], [1, 2, 3, "4"], [0, 0, 0, 0], [-1, 2, 3, 4], [True] * 4):
        document["data"]["label_counts"] = forged
        document["checksum"] = mc.persistence._checksum(document)
        (folder / "ts.json").write_text(json.dumps(document))
        assert json.loads(run("evaluate", "other.npz", *few, "--json").stdout)["label_shift"] is None


def test_fit_and_apply_the_recommended_combination(run: Run) -> None:
    run("fit", "cal.npz", "-o", "cal.json", "-m", "structured", "--shrinkage", 1)
    assert type(mc.load("cal.json")) is mc.StructuredMCCT
    run("apply", "cal.json", "cal.npz", "-o", "p.npz")
    run("export", "cal.json", "--to", "onnx", "-o", "cal.onnx")
    run("export", "cal.json", "--to", "torch", "-o", "cal.pt2")
