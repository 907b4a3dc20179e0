"""``monocal monitor``: files in the order of time, a state that goes on, an exit code that says alarm."""

from __future__ import annotations

import json

import numpy as np
import pytest

import monocal as mc


@pytest.fixture
def days(folder):
    """ref.npz, day1.npz, day2.npz (too sure), day3.npz (no labels), and cal.json."""
    data = mc.data.synthetic(9000, 4, seed=1)
    mc.MCCT().fit(data.values[:3000], data.labels[:3000]).save(folder / "cal.json")
    np.savez(folder / "ref.npz", logits=data.values[:3000], labels=data.labels[:3000])
    np.savez(folder / "day1.npz", logits=data.values[3000:6000], labels=data.labels[3000:6000])
    np.savez(folder / "day2.npz", logits=2 * data.values[6000:], labels=data.labels[6000:])
    np.savez(folder / "day3.npz", logits=data.values[6000:])
    return folder


def test_an_alarm_is_exit_code_3(days, run):
    calm = run("monitor", "day1.npz", "-c", "cal.json", "--reference", "ref.npz")
    assert "Nothing has changed as far as 3,000 rows tell" in calm.output
    off = run("monitor", "day1.npz", "day2.npz", "-c", "cal.json", "--plot", "watch.png", "--json", code=3)
    told = json.loads(off.stdout)
    assert told["alarms"][0]["since"] == 3000
    assert "over-confident" in told["verdict"]
    assert (days / "watch.png").read_bytes().startswith(b"\x89PNG")


def test_a_state_goes_on(days, run):
    run("monitor", "day1.npz", "-c", "cal.json", "--state", "watch.json")
    on = run("monitor", "day2.npz", "-c", "cal.json", "--state", "watch.json", code=3)
    assert "since row 3,000" in on.output
    refused = run("monitor", "day2.npz", "-c", "cal.json", "--state", "watch.json", "--window", "100", code=1)
    assert "leave out --window" in refused.output


def test_after_a_refit_the_tests_begin_anew(days, run):
    run("monitor", "day1.npz", "day2.npz", "-c", "cal.json", "--state", "watch.json", code=3)
    run("fit", "day2.npz", "-o", "new.json")
    refused = run("monitor", "day2.npz", "-c", "new.json", "--state", "watch.json", code=1)
    assert "another calibrator" in " ".join(refused.output.split())
    anew = run("monitor", "day2.npz", "-c", "new.json", "--state", "watch.json", "--restart")
    assert "Nothing has changed" in anew.output
    run("monitor", "day2.npz", "-c", "new.json", "--state", "watch.json")
    assert "--state" in run("monitor", "day1.npz", "--restart", code=1).output


def test_rows_without_labels_are_watched(days, run):
    found = run("monitor", "day3.npz", "-c", "cal.json", "--reference", "ref.npz")
    assert "Calibration cannot be judged without labels" in " ".join(found.output.split())


def test_wrong_files_are_refused(days, run):
    (days / "bad.json").write_text("{}")
    for arguments in (["missing.npz"], ["day1.npz", "--state", "bad.json"], ["day1.npz", "--plot", "x.txt"]):
        found = run("monitor", *arguments, code=1)
        assert "error:" in found.output
