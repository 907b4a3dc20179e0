"""Pairs of calibration and test sets: in one file, in a folder, in two files."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest

from monocal.data import LogitsSet, Splits, find, read_splits, write
from monocal.errors import FileError

RNG = np.random.default_rng(3)


def one(m: int = 3) -> LogitsSet:
    return LogitsSet(RNG.normal(size=(9, m)), np.arange(9) % m)


def test_every_layout_in_one_folder(tmp_path: Path) -> None:
    write(tmp_path / "net.npz", Splits(one(), one()))
    content = ((one().values, np.arange(9) % 3), (one().values, np.arange(9) % 3))
    (tmp_path / "nncal.p").write_bytes(pickle.dumps(content))
    with h5py.File(tmp_path / "arena.h5", "w") as file:
        for group in ("a/x", "a/y", "b/x"):
            for part in ("cal", "test"):
                file[f"{group}/probas_{part}"] = np.full((4, 2), 0.5)
                file[f"{group}/labels_{part}"] = np.zeros(4, int)
    folder = tmp_path / "sub" / "arrays.v2"
    folder.mkdir(parents=True)
    for name in ("logits_val", "logits_test"):
        np.save(folder / f"{name}.npy", one().values)
    for name in ("y_val", "y_test"):
        np.save(folder / f"{name}.npy", np.arange(9) % 3)
    for part in ("val", "test"):
        write(tmp_path / f"table_{part}.csv", one())
    (tmp_path / "README.md").write_text("not data")
    (tmp_path / ".hidden.npz").write_text("not data")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        places = find(tmp_path)
    assert [place.name for place in places] == ["a/x", "a/y", "b/x", "net", "nncal", "arrays.v2", "table"]
    for place in places:
        assert pickle.loads(pickle.dumps(place)) == place
        splits = place.read()
        assert splits.name == splits.cal.name == splits.test.name == place.name
        assert splits.cal.labels is not None
        assert splits.test.labels is not None
    assert [place.name for place in find(tmp_path / "net.npz")] == ["net"]


def test_equal_names_are_distinguished(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "net.npz", Splits(one(), one()))
    assert [place.name for place in find(tmp_path)] == ["a/net.npz", "b/net.npz"]


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    write(tmp_path / "good.npz", Splits(one(), one()))
    left_out = {"broken.npz": "damaged", "lonely_test.npz": "nor is a pair", "single.npz": "no calibration"}
    for name, match in left_out.items():
        path = tmp_path / name
        if name == "broken.npz":
            path.write_bytes(b"PK\x03\x04 cut")
        else:
            write(path, one())
        with pytest.warns(UserWarning, match=match):
            assert [place.name for place in find(tmp_path)] == ["good"]
        path.unlink()


def test_nothing_found(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no pair"):
        find(tmp_path)
    with pytest.raises(FileError, match="There is no folder"):
        find(tmp_path / "no")


def test_two_files(tmp_path: Path) -> None:
    cal = write(tmp_path / "net_cal.parquet", one())
    test = write(tmp_path / "net_test.npz", one())
    splits = read_splits(cal, test)
    assert (splits.name, splits.cal.path, splits.test.path) == ("net", cal, test)
    both = write(tmp_path / "both.npz", Splits(one(), one()))
    assert read_splits(cal, both).test.part == "test"
    other = write(tmp_path / "other.npz", one(4))
    with pytest.raises(FileError, match=r"3 classes as logits .* 4 classes as logits"):
        read_splits(cal, other)
    with pytest.raises(FileError, match="give the test set as a second file"):
        read_splits(cal)
    bare = write(tmp_path / "bare.npz", {"logits": one().values})
    with pytest.raises(FileError, match="has no labels"):
        read_splits(cal, bare)
