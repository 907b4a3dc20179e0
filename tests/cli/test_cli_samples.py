"""Samples of lm-evaluation-harness on the command line: fit, evaluate, compare, report, apply."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

Run = Callable[..., Any]


def write(path: Path, n: int, seed: int, most: int) -> list[list[float]]:
    """Questions with three to ``most`` options, log-likelihoods twice as steep as they should be."""
    rng = np.random.default_rng(seed)
    values = [(-20 + 2 * rng.standard_normal(rng.integers(3, most + 1))).tolist() for _ in range(n)]
    lines = [
        {
            "doc_id": i,
            "target": str(rng.choice(len(v), p=softmax(np.array(v) / 2))),
            "filtered_resps": [[str(x), "False"] for x in v],
        }
        for i, v in enumerate(values)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return values


def test_from_samples_to_a_report(run: Run, folder: Path) -> None:
    write(folder / "samples.jsonl", 300, 0, 5)
    values = write(folder / "other.jsonl", 50, 1, 4)
    said = run("fit", "samples.jsonl", "-o", "cal.json")
    assert "300 rows, logits of 5 classes" in said.stdout
    assert "the log-likelihoods of the options were read as logits" in said.stderr
    assert "questions have 3 to 5 options" in said.stderr
    judged = json.loads(run("evaluate", "other.jsonl", "-c", "cal.json", "--json", "--n-boot", "0").stdout)
    before, after = (judged[side]["metrics"]["nll"]["value"] for side in ("before", "after"))
    assert after < before
    compared = run(
        "compare", "samples.jsonl", "--methods", "ts,mcct,conditional", "--test", "other.jsonl"
    ).stdout
    assert "conditional" in compared
    run("report", "samples.jsonl", "--no-compare", "-o", "report.html")
    assert (folder / "report.html").read_text().rstrip().endswith("</html>")
    run("apply", "cal.json", "other.jsonl", "-o", "out.csv")  # its longest question has four options
    out = pd.read_csv(folder / "out.csv")
    probabilities = out.filter(like="probabilities").to_numpy()
    assert out["id"].tolist() == list(range(50))
    for row, sample in zip(probabilities, values, strict=True):
        assert (row[len(sample) :] == 0).all()
        assert (np.argsort(row[: len(sample)]) == np.argsort(sample)).all()
        assert abs(row.sum() - 1) < 1e-6
    run("fit", "other.jsonl", "-m", "ts", "-o", "four.json")
    refused = run("apply", "four.json", "samples.jsonl", "-o", "no.csv", code=1)
    assert "samples.jsonl has 5 classes, but the calibrator was fitted on 4" in refused.stderr
