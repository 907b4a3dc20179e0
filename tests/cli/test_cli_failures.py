"""What goes wrong ends in one sentence that says what to do, a code that means something, and no half-written file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import CAL, TEST, monocal

import monocal as mc

Run = Callable[..., Any]


def write_bad_files(folder: Path) -> None:
    nan = CAL.values.copy()
    nan[3, 2] = np.nan
    np.savez(folder / "nan.npz", logits=nan, labels=CAL.labels)
    np.savez(folder / "from_one.npz", logits=CAL.values, labels=CAL.labels + 1)
    np.savez(folder / "other_classes.npz", logits=TEST.values[:, :4], labels=TEST.labels % 4)
    np.savez(folder / "probs.npz", probabilities=TEST.truth, labels=TEST.labels)
    (folder / "not.npz").write_text("no archive")
    (folder / "data.xyz").write_text("?")
    (folder / "other.json").write_text("{}")
    (folder / "there.html").touch()
    (folder / "there.onnx").touch()
    text = (folder / "cal.json").read_text()
    (folder / "cut.json").write_text(text[:300])
    (folder / "newer.json").write_text(text.replace('"format_version": 1', '"format_version": 2'))


CASES = {
    "fit no.npz -o x.json": "There is no file no.npz",
    "fit not.npz -o x.json": "cannot be read: it is empty, damaged or not what its name says",
    "fit data.xyz -o x.json": "no file that monocal reads",
    "fit unlabelled.npz -o x.json": "has no labels: give their file with --labels",
    "fit nan.npz -o x.json": "(1 in 'logits'), first in row 3 (counting from 0): fill them, or leave these rows out with --drop-",
    "fit from_one.npz -o x.json": "seem to count from 1: if so, say --first-label 1",
    "fit cal.npz --logits-name zzz -o x.json": "has no 'zzz' (asked for by --logits-name)",
    "fit cal.npz --kind probabilities -o x.json": "has no array of probabilities",
    "fit cal.npz --part test -o x.json": "has no test part",
    "fit cal.npz --method magic -o x.json": "There is no method 'magic'",
    "fit cal.npz --method conditonal -o x.json": "did you mean conditional-mcct? The methods are",
    "fit cal.npz --set colour=red -o x.json": "Invalid parameter 'colour' for estimator",
    "fit cal.npz --set tol -o x.json": "--set takes NAME=VALUE",
    "fit cal.npz --top-k 6 -o x.json": "cal.npz: top_k must be at most the number of classes, but is 6",
    "fit cal.npz -o other.json": "exists already and was left as it is: choose another name or use --force",
    "fit no.npz -o x.npz": "x.npz has another extension than what is written: give a name that ends in .json",
    "fit cal.npz -o nowhere/x.json": "there is no folder",
    "fit cal.npz -o .": "is a folder",
    "apply no.json test.npz -o x.npz": "There is no file no.json",
    "apply test.npz cal.json -o x.npz": "is no saved calibrator but something binary",
    "apply other.json test.npz -o x.npz": "give the .json that save() or `monocal fit` wrote",
    "apply cut.json test.npz -o x.npz": "cut short",
    "apply newer.json test.npz -o x.npz": "upgrade with pip install --upgrade monocal",
    "apply cal.json other_classes.npz -o x.npz": "has 4 classes, but the calibrator was fitted on 5",
    "apply cal.json probs.npz -o x.npz": "holds probabilities, but the calibrator was fitted on logits",
    "apply cal.json test.npz -o x.xyz": "an extension that monocal does not write",
    "evaluate unlabelled.npz": "has no labels",
    "evaluate test.npz --metrics nll,beauty": "beauty",
    "compare cal.npz --test other_classes.npz": "classes",
    "audit test.npz other_classes.npz": "expected the shape of before",
    "audit test.npz": "Give either AFTER, a second file, or --calibrator",
    "report cal.npz -o there.html": "exists already",
    "report no.npz -o x.pdf": "x.pdf has another extension than what is written: give a name that ends in .html",
    "report cal.npz -c cal.json -m mcct -o x.html": "not both",
    "export no.json --to torch -o x.onnx": "ends in .pt2",
    "export cal.json --to torch --append-to m.onnx -o x.pt2": "--to onnx only",
    "export cal.json --to onnx --append-to no.onnx -o x.onnx": "no.onnx",
    "demo -o cal.npz": "is a file",
    "demo -o .": "which no demo wrote",
    # Numbers have bounds.
    "fit cal.npz -o x.json --set n_knots=1000000000": "n_knots must be a whole number of at least 1",
    "fit cal.npz -o x.json --top-k 99999999999999999999": "top_k must be a whole number",
    "fit cal.npz -o x.json --set max_iter=1e999": "max_iter must be a whole number",
    "fit cal.npz -o x.json --set tol=1e999": "tol must be a number above 0",
    "fit cal.npz -o x.json -m hb --set bins=1000000000": "bins must be a whole number",
    "fit cal.npz -o x.json -m pts --set hidden=[1000000]": "hidden: a layer size must be",
}


@pytest.mark.parametrize("command", CASES)
def test_one_sentence_and_code_1(run: Run, folder: Path, command: str) -> None:
    mc.MCCT().fit(CAL.values, CAL.labels).save("cal.json")
    write_bad_files(folder)
    there = {path.name: path.read_bytes() if path.is_file() else b"" for path in folder.iterdir()}
    result = run(*command.split(), code=1)
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    assert CASES[command] in lines[0]
    assert {path.name: path.read_bytes() if path.is_file() else b"" for path in folder.iterdir()} == there


@pytest.mark.parametrize(
    ("command", "message"),
    {
        "fit": "Usage:",
        "fit cal.npz": "Usage:",
        "nonsense": "Usage:",
        "fit cal.npz -o x --top-k 0": "--top-k",
        "export cal.json --to onnx --ndim 0 -o x.onnx": "--ndim",
        "export cal.json --to pdf -o x": "'pdf' is not one of 'onnx', 'torch'",
        "apply cal.json test.npz -o p.npz --as percent": "'percent' is not one of 'logits', 'probabilities'",
        "evaluate test.npz --n-boot 99999999999999999999": "--n-boot",
        "evaluate test.npz --seed 99999999999999999999": "--seed",
        "compare cal.npz --time-limit nan": "is not above 0 (inf: no limit)",
        "report cal.npz -o r.html --time-limit 0": "is not above 0 (inf: no limit)",
    }.items(),
)
def test_wrong_usage_is_code_2(run: Run, command: str, message: str) -> None:
    assert message in " ".join(run(*command.split(), code=2).stderr.split())


def test_force_replaces_and_a_failed_run_keeps_the_old_file(run: Run, folder: Path) -> None:
    (folder / "cal.json").write_text("old")
    run("fit", "unlabelled.npz", "-o", "cal.json", "--force", code=1)
    assert (folder / "cal.json").read_text() == "old"
    run("fit", "cal.npz", "-o", "cal.json", "--force")
    assert mc.load("cal.json").n_features_in_ == 5
    (folder / "probs.npz").write_text("old")
    run("apply", "cal.json", "test.npz", "-o", "probs.npz", "--force")
    assert mc.read("probs.npz").kind == "probabilities"


def test_a_bug_is_one_sentence_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **rest: object) -> None:
        raise KeyError("inside")

    monkeypatch.setattr(sys.modules["monocal.io.read"], "read_source", broken)
    monkeypatch.delenv("MONOCAL_DEBUG", raising=False)
    result = run("fit", "cal.npz", "-o", "cal.json", code=1)
    assert result.stderr.startswith("error: monocal failed in a way it should not (KeyError: 'inside')")
    assert len(result.stderr.splitlines()) == 1


def test_a_missing_extra_names_its_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("fit", "cal.npz", "-o", "cal.json")
    monkeypatch.setitem(sys.modules, "onnx", None)
    result = run("export", "cal.json", "--to", "onnx", "-o", "x.onnx", code=1)
    assert "pip install 'monocal[onnx]'" in result.stderr


# In a process of its own.


def test_the_pieces_fit_together(folder: Path) -> None:
    done = monocal("fit", "cal.npz", "-o", "cal.json", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["n_samples"] == 500
    wrong = monocal("apply", "cal.json", "cal.json", "-o", "x.npz")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.count("\n") == 1


def big_job(folder: Path) -> tuple[list[str], Path]:
    """An apply that takes seconds, and the file it is to write."""
    cal = mc.MCCT().fit(CAL.values, CAL.labels)
    cal.save(folder / "cal.json")
    np.save(folder / "big.npy", np.tile(TEST.values, (30_000, 1)))
    command = [sys.executable, "-m", "monocal", "apply", "cal.json", "big.npy", "-o", "probs.npy"]
    return command, folder / "probs.npy"


def wait_for_temporary(folder: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while not list(folder.glob(".probs.*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(
    ("number", "code", "leftovers"), [(signal.SIGKILL, -9, 1), (signal.SIGINT, 130, 0)], ids=["kill", "int"]
)
def test_killed_half_way_leaves_no_output(folder: Path, number: int, code: int, leftovers: int) -> None:
    command, out = big_job(folder)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for_temporary(folder, process)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == code, (stdout, stderr)
    assert (stdout, stderr) == ("", "")
    assert not out.exists()
    # Nothing can clean up after SIGKILL; what stays is hidden and never takes the name of the output.
    assert len(list(folder.glob(".probs.*"))) == leftovers


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "command",
    [
        "--help | true",
        "evaluate test.npz --n-boot 0 --json | head -n 1",
        "fit cal.npz -m ts -o new.json | true",
    ],
)
def test_a_closed_pipe_is_quiet(command: str) -> None:
    done = subprocess.run(
        f"{sys.executable} -m monocal {command}", shell=True, capture_output=True, text=True
    )
    assert done.stderr == ""
