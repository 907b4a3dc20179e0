"""Classes are known by their names: a file with its columns in another order is put in order, or refused."""

import csv
import json

import numpy as np
import pytest

import monocal as mc
from monocal import data

NAMES = ("cat", "dog", "bird")


def write(path, names, values, labels=None):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, *(["label"] if labels is not None else [])])
        for i, row in enumerate(values):
            writer.writerow([*row, *([labels[i]] if labels is not None else [])])
    return path


@pytest.fixture
def files(tmp_path):
    """The same rows with columns in two orders; labels number the columns of their own file."""
    rng = np.random.default_rng(0)
    z = np.round(rng.normal(size=(300, 3)) * 3 + [2, 0, -1], 3)
    y = np.array([rng.choice(3, p=np.exp(r - np.logaddexp.reduce(r))) for r in z / 2 + [0, 1, 0]])
    there = [2, 0, 1]  # bird, cat, dog
    other = [NAMES[j] for j in there]
    a = write(tmp_path / "a.csv", NAMES, z, y)
    b = write(tmp_path / "b.csv", other, z[:, there], np.argsort(there)[y])
    return a, b, there


@pytest.mark.parametrize("method", ["vector", "mcct"])
def test_columns_in_another_order_give_the_same(run, files, tmp_path, method):
    a, b, there = files
    cal = tmp_path / "cal.json"
    run("fit", a, "-m", method, "-o", cal)
    assert list(mc.load(cal).feature_names_in_) == list(NAMES)
    for out in ("{}.npz", "{}.npy", "{}.csv"):
        results = []
        for path in (a, b):
            target = tmp_path / out.format(path.stem + "_p")
            result = run("apply", cal, path, "-o", target)
            results.append(data.read(target, kind="probabilities"))
        assert "put in the order 'cat', 'dog', 'bird'" in result.stderr
        np.testing.assert_array_equal(results[1].values, results[0].values[:, there])
        if results[0].labels is not None:
            np.testing.assert_array_equal(results[1].labels, np.argsort(there)[results[0].labels])
    figures = [json.loads(run("evaluate", p, "-c", cal, "--n-boot", 0, "--json").stdout) for p in (a, b)]
    assert figures[0]["after"] == figures[1]["after"]


def test_other_classes_are_refused(run, files, tmp_path):
    a, _, _ = files
    run("fit", a, "-m", "vector", "-o", tmp_path / "cal.json")
    other = write(tmp_path / "c.csv", ("cat", "dog", "fish"), [[1.0, 2.0, 3.0]])
    result = run("apply", tmp_path / "cal.json", other, "-o", tmp_path / "p.npz", code=1)
    assert "has the classes 'cat', 'dog', 'fish', expected 'cat', 'dog', 'bird'" in result.stderr
    assert not (tmp_path / "p.npz").exists()


def test_what_has_no_names_goes_by_position(run, files, tmp_path):
    a, _, _ = files
    values = data.read(a).values
    run("fit", a, "-m", "vector", "-o", tmp_path / "cal.json")
    np.savez(tmp_path / "x.npz", logits=values)
    numbered = write(tmp_path / "n.csv", ("logit_0", "logit_1", "logit_2"), values)
    actual = []
    for path in (a, tmp_path / "x.npz", numbered):
        result = run("apply", tmp_path / "cal.json", path, "-o", tmp_path / "p.npz", "--force")
        assert "order" not in result.stderr
        actual.append(data.read(tmp_path / "p.npz").values)
    np.testing.assert_allclose(actual[1], actual[0])
    np.testing.assert_allclose(actual[2], actual[0])
    run("fit", a, "-m", "vector", "-o", tmp_path / "n.json", "--logits-name", "bird,cat,dog")
    assert list(mc.load(tmp_path / "n.json").feature_names_in_) == ["bird", "cat", "dog"]


def test_a_test_file_is_put_in_the_order_of_the_calibration_file(run, files):
    a, b, _ = files
    result = [
        json.loads(run("compare", a, "--test", p, "--methods", "vector", "--n-boot", 0, "--json").stdout)
        for p in (a, b)
    ]
    assert result[0]["methods"][0]["evaluation"] == result[1]["methods"][0]["evaluation"]
    splits = data.read_splits(a, b)
    np.testing.assert_array_equal(splits.test.values, splits.cal.values)
    np.testing.assert_array_equal(splits.test.labels, splits.cal.labels)
