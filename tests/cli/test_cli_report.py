"""The report on the command line: the verdict it prints, the method it shows, the groups it speaks of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from monocal.data import synthetic

Run = Callable[..., Any]


def test_the_verdict_and_the_groups(run: Run, folder: Path) -> None:
    data = synthetic(600, 4, seed=3, overconfidence=2.5)
    subject = np.where(np.arange(600) % 2, "law", "art")
    np.savez(folder / "known.npz", logits=data.values, labels=data.labels, subject=subject)
    few = ("report", "known.npz", "-m", "temperature", "--no-compare", "--groups", "subject", "--force")
    result = json.loads(run(*few, "-o", "page.html", "--json").stdout)
    assert result["shown"] == "temperature scaling"
    assert result["verdict"]["state"] == "bad"
    assert result["verdict"]["headline"].startswith("Not trustworthy as it is: over-confident by")
    page = (folder / "page.html").read_text()
    assert "Over-confidence by group, before and after calibration" in page
    assert "law" in page
    assert result["verdict"]["headline"] in run(*few, "-o", "page.html").stdout
    wrong = run("report", "known.npz", "-o", "other.html", "--groups", "sex", code=1)
    assert "sex" in wrong.stderr
    assert not (folder / "other.html").exists()
