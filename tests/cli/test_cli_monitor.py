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
    result = json.loads(off.stdout)
    assert result["alarms"][0]["since"] == 3000
    assert "over-confident" in result["verdict"]
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
    restarted = run("monitor", "day2.npz", "-c", "new.json", "--state", "watch.json", "--restart")
    assert "Nothing has changed" in restarted.output
    run("monitor", "day2.npz", "-c", "new.json", "--state", "watch.json")
    assert "--state" in run("monitor", "day1.npz", "--restart", code=1).output


def test_rows_without_labels_are_watched(days, run):
    result = run("monitor", "day3.npz", "-c", "cal.json", "--reference", "ref.npz")
    assert "Calibration cannot be judged without labels" in " ".join(result.output.split())


def test_wrong_files_are_refused(days, run):
    (days / "bad.json").write_text("{}")
    for arguments in (["missing.npz"], ["day1.npz", "--state", "bad.json"], ["day1.npz", "--plot", "x.txt"]):
        result = run("monitor", *arguments, code=1)
        assert "error:" in result.output


def test_labels_that_are_not_known(days, run):
    """-1, or what --ignore-index says: the rows still count for the frequencies."""
    data = mc.data.synthetic(3000, 4, seed=2)
    labelled = np.arange(3000) % 3 > 0
    for name, mark in (("minus", -1), ("void", 255)):
        labels = np.where(labelled, data.labels, mark)
        np.savez(days / f"{name}.npz", logits=data.values, labels=labels)
    expected = mc.monitor(
        [(data.values, np.where(labelled, data.labels, -1))],
        calibrator=mc.load(days / "cal.json"),
        window=600,
    )
    for name, options in (
        ("minus", ()),
        ("void", ("--ignore-index", "255")),
        ("minus", ("--ignore-index", "255")),
    ):
        result = run("monitor", f"{name}.npz", "-c", "cal.json", "--window", "600", "--json", *options)
        windows = json.loads(result.stdout)["windows"]
        assert [(w["rows"], w["labelled"]) for w in windows] == [(600, 400)] * 5
        assert windows[-1]["nll"] == pytest.approx(expected.windows[-1].nll, rel=1e-5)
        assert "1,000 rows have a label that is not known" in result.stderr
    assert (
        "expected a whole number from 0 to 3" in run("monitor", "void.npz", "-c", "cal.json", code=1).output
    )


@pytest.mark.parametrize(("calibrator", "code"), [(("-c", "named.json"), 0), ((), 3)])
def test_every_file_has_its_classes_matched_by_name(days, run, calibrator, code):
    pandas = pytest.importorskip("pandas")
    data = mc.data.synthetic(2000, 3, seed=2)
    frame = pandas.DataFrame(data.values, columns=["logit_cat", "logit_dog", "logit_owl"])
    frame = frame.assign(label=np.array(["cat", "dog", "owl"])[data.labels])
    frame.to_csv(days / "fit.csv", index=False)
    run("fit", "fit.csv", "-o", "named.json", "--method", "structured-scaling")
    turned = frame.iloc[:, [2, 0, 1, 3]]
    for name, rows in (("first", frame[:1000]), ("same", frame[1000:]), ("other", turned[1000:])):
        rows.to_csv(days / f"{name}.csv", index=False)
    same, other = (
        json.loads(run("monitor", "first.csv", f"{name}.csv", *calibrator, "--json", code=code).stdout)
        for name in ("same", "other")
    )
    assert same["windows"] == other["windows"]
    result = run("monitor", "other.csv", *calibrator, "--reference", "fit.csv", "--json", code=code).stdout
    assert "frequencies" not in {alarm["kind"] for alarm in json.loads(result)["alarms"]}


def test_every_file_is_read_as_in_the_fit(days, run):
    data = mc.data.synthetic(2000, 3, seed=2)
    for name, rows in (("one", slice(0, 1000)), ("two", slice(1000, 2000))):
        images = np.moveaxis(data.values[rows].reshape(10, 20, 5, 3), -1, 1)
        np.savez(days / f"{name}.npz", logits=images, labels=data.labels[rows].reshape(10, 20, 5))
    run("fit", "one.npz", "-o", "dense.json", "--class-axis", "1")
    both = run("monitor", "one.npz", "two.npz", "-c", "dense.json", "--json")
    assert json.loads(both.stdout)["rows"] == 2000
