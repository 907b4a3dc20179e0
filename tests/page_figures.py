"""Figures that pages show, and the same figures computed again from the real sets of logits."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

import monocal as mc
from experiments.methods import METHODS
from real_logits import load_shared_logits

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("mmlu16_llama-13b", "nncal_cifar10_densenet40", "netcal_cifar10_lenet-5")


@cache
def tables(page: str) -> list[dict[str, dict[str, str]]]:
    """Tables of a page: by the first cell of a row, then by column."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\_", "_")
    result = []
    for block in re.findall(r"(?:^\|.*\|$\n?){3,}", text, re.MULTILINE):
        head, _, *rows = (
            [cell.strip() for cell in line.strip("|\n").split(" | ")] for line in block.splitlines()
        )
        head = [cell.strip("| ") for cell in head]
        result.append({row[0].strip("| "): dict(zip(head, row, strict=False)) for row in rows})
    return result


def shown(page: str, row: str, column: str, number: int | None = None) -> str:
    """A cell, of the table that has this row and column (the ``number``-th of them)."""
    cells = [table[row][column] for table in tables(page) if row in table and column in table[row]]
    assert cells, f"{page} has no cell {row!r}, {column!r}"
    return cells[number or 0].strip("* |")


def assert_current(cell: str, value: float, command: str) -> None:
    """Equal to the digit shown, give or take one for another machine's rounding."""
    written = cell.split(" ")[0]
    tolerance = 10.0 ** -len(written.partition(".")[2])
    assert abs(float(written) - value) <= 1.01 * tolerance, (
        f"shows {cell}, and it is {value:.6f} now: run  {command}"
    )


@cache
def probabilities(name: str, make: Callable[[], Any] | str) -> tuple[np.ndarray, np.ndarray]:
    """What a calibrator that was fitted on the calibration part makes of the test part, and its labels."""
    data = load_shared_logits(name)
    calibrator = METHODS[make].make(0, None) if isinstance(make, str) else make()
    if calibrator is None:
        return softmax(data.logits_test.astype(np.float64), axis=1), data.y_test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mc.OrderWarning)
        warnings.simplefilter(
            "ignore", mc.CalibrationWarning
        )  # where the order is the obstacle, figures show it
        return calibrator.fit(data.logits_val, data.y_val).predict_proba(data.logits_test), data.y_test
