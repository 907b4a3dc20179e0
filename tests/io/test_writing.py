"""Files appear whole or not at all, and never over another file unasked."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from monocal.data import LogitsSet, Splits, atomic_path, write
from monocal.errors import FileError, InputError

SET = LogitsSet(np.arange(12.0).reshape(4, 3), np.array([0, 1, 2, 0]))


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet", ".safetensors", ".h5"])
def test_existing_files_are_kept_unless_forced(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text("precious")
    with pytest.raises(FileError, match="exists already and was left as it is"):
        write(path, SET)
    assert path.read_text() == "precious"
    write(path, SET, force=True)
    assert path.read_bytes() != b"precious"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("failure", [RuntimeError("boom"), KeyboardInterrupt(), SystemExit(1)])
def test_a_failure_midway_leaves_nothing(tmp_path: Path, failure: BaseException, force: bool) -> None:
    path = tmp_path / "report.html"
    if force:
        path.write_text("old")
    with pytest.raises(type(failure)), atomic_path(path, force=force) as temporary:  # noqa: PT012  fails within, or at its end
        temporary.write_text("half")
        assert temporary.parent.parent == tmp_path
        assert temporary.parent.stat().st_mode & 0o777 == 0o700
        assert temporary.name == "report.html"
        raise failure
    assert os.listdir(tmp_path) == (["report.html"] if force else [])
    assert not force or path.read_text() == "old"


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileError, match="could not be written: No space left on device"):
        write(tmp_path / "a.npz", SET)
    assert os.listdir(tmp_path) == []


def test_somebody_else_was_faster(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(FileError, match="exists already"), atomic_path(path) as temporary:  # noqa: PT012  fails within, or at its end
        temporary.write_text("mine")
        path.write_text("theirs")
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["a.json"]


def test_impossible_places(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there is no folder"):
        write(tmp_path / "no" / "a.npz", SET)
    (tmp_path / "d.npz").mkdir()
    with pytest.raises(FileError, match="is a folder"):
        write(tmp_path / "d.npz", SET, force=True)
    with pytest.raises(FileError, match="could not be written: File name too long"):
        write(tmp_path / ("a" * 300 + ".npz"), SET)
    with pytest.raises(FileError, match="nothing was put"), atomic_path(tmp_path / "a.txt"):
        pass
    with pytest.raises(FileError, match=r"expected one of \.npz"):
        write(tmp_path / "a.xls", SET)


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real.npy").write_text("old")
    (tmp_path / "link.npy").symlink_to("real.npy")
    write(tmp_path / "link.npy", {"x": np.ones(3)}, force=True)
    assert (tmp_path / "link.npy").is_symlink()
    assert np.load(tmp_path / "real.npy").tolist() == [1, 1, 1]


def test_what_a_format_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds one array, got 2"):
        write(tmp_path / "a.npy", SET)
    with pytest.raises(InputError, match="same number of rows, got a"):
        write(tmp_path / "a.csv", {"a": np.ones(3), "b": np.ones(4)})
    with pytest.raises(InputError, match=r"data\['x'\] must hold numbers"):
        write(tmp_path / "a.npz", {"x": np.array(["a"])})
    with pytest.raises(InputError, match="at least one array"):
        write(tmp_path / "a.npz", {})
    with pytest.raises(InputError, match="same number of rows"):
        write(tmp_path / "a.csv", Splits(SET, LogitsSet(SET.values[:2], None)))
    assert os.listdir(tmp_path) == []
