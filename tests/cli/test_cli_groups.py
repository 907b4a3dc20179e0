"""``monocal evaluate --groups``: by a column, by another file, by the predicted class; as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_helpers import CAL, TEST

import monocal as mc

Run = Callable[..., Any]
SUBJECT = np.array(["law", "art", "maths"])[np.arange(400) % 3]


@pytest.fixture
def files(run: Run) -> Run:
    """A file with parts, one with columns, and groups in files of their own, next to what `run` has made."""
    np.savez(
        "both.npz",
        logits_val=CAL.values,
        y_val=CAL.labels,
        logits_test=TEST.values,
        y_test=TEST.labels,
        subject_val=np.zeros(500, dtype=int),
        subject_test=SUBJECT,
    )
    table = {f"logit_{j}": TEST.values[:, j] for j in range(5)}
    year = np.arange(400) % 2
    pd.DataFrame({**table, "label": TEST.labels, "subject": SUBJECT, "year": year}).to_csv(
        "t.csv", index=False
    )
    pd.DataFrame({"subject": SUBJECT}).to_csv("subject.csv", index=False)
    np.save("subject.npy", SUBJECT)
    pd.DataFrame({"subject": SUBJECT, "year": year}).to_parquet("two.parquet")
    return run


@pytest.mark.parametrize(
    ("path", "groups"),
    [
        ("both.npz", "subject"),
        ("t.csv", "subject.csv"),
        ("test.npz", "subject.npy"),
        ("test.npz", "two.parquet:subject"),
    ],
)
def test_groups_are_found_wherever_they_are(files: Run, path: str, groups: str) -> None:
    result = json.loads(files("evaluate", path, "--groups", groups, "--json", "--n-boot", 0).stdout)
    probs = np.exp(TEST.values) / np.exp(TEST.values).sum(axis=1, keepdims=True)
    expected = mc.evaluate(probs, TEST.labels, groups=SUBJECT).groups
    actual = result["value"]["groups"]
    assert [one["name"] for one in actual["groups"]] == list(expected.names)
    assert actual["groups"][0]["ece"] == pytest.approx(expected.worst.ece)


def test_several_columns_and_the_predicted_class(files: Run) -> None:
    result = json.loads(
        files("evaluate", "t.csv", "--groups", "subject,year", "--json", "--n-boot", 0).stdout
    )
    assert result["value"]["groups"]["n_groups"] == 6
    result = json.loads(files("evaluate", "t.csv", "--groups", "predicted", "--json", "--n-boot", 0).stdout)
    assert result["value"]["groups"]["kind"] == "predicted class"
    assert result["value"]["groups"]["n_groups"] == 5


def test_before_and_after_at_eighty_columns(files: Run) -> None:
    files("fit", "cal.npz", "-o", "cal.json", "-m", "temperature-scaling")
    shown = files(
        "evaluate",
        "both.npz",
        "-c",
        "cal.json",
        "--groups",
        "subject",
        "--metrics",
        "top_label_ece",
        "--n-boot",
        0,
    ).stdout
    before, after = (
        next(line for line in shown.splitlines() if line.startswith(side)) for side in ("Before:", "After:")
    )
    assert "of 3 groups" in before
    assert "of 3 groups" in after
    lines = shown[shown.index("\ngroup ") + 1 :].splitlines()
    assert {line.split()[0] for line in lines[1:4]} == {"law", "art", "maths"}
    assert max(map(len, lines)) <= 79


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("sbject", ["--groups", "'sbject'", "'subject', 'year'"]),
        ("nothing.csv", ["--groups", "'nothing.csv'"]),
        ("two.parquet:week", ["week", "'subject', 'year'"]),
        ("short.npy", ["400 rows", "(3,)"]),
    ],
)
def test_refusals(files: Run, groups: str, words: list[str]) -> None:
    np.save("short.npy", np.arange(3))
    failed = files("evaluate", "t.csv", "--groups", groups, code=1)
    for word in words:
        assert word in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1
    assert Path("t.csv").exists()
