"""Disks that are full, destinations that are no files, inputs that shrink: one sentence, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from monocal.data import LogitsSet, atomic_path, read, write
from monocal.errors import FileError
from monocal.io.columns import Choice
from monocal.io.named_arrays import NamedArrays
from monocal.io.write import put_npy

SET = LogitsSet(np.arange(12.0).reshape(4, 3), np.array([0, 1, 2, 0]))
FORMATS = [".npz", ".npy", ".csv", ".tsv", ".parquet", ".safetensors", ".h5", ".NPZ", ".NPY", ".CSV"]
posix = pytest.mark.skipif(os.name == "nt", reason="files of POSIX")

# A process that may write files of at most 1000 bytes: Python turns the system's refusal into an OSError.
LIMITED = """
import resource, signal, sys
import numpy as np
from monocal.data import write
from monocal.errors import FileError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for name in sys.argv[1:]:
    try:
        write(name, {"logits": np.random.default_rng(0).normal(size=(500, 20))})
    except FileError as error:
        print(error)
"""


@posix
def test_a_file_that_cannot_grow_is_one_sentence_in_every_format(tmp_path: Path) -> None:
    names = [f"a{suffix}" for suffix in FORMATS]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *names], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(names)
    for name, line in zip(names, lines, strict=True):
        assert line.startswith(f"{tmp_path / name} could not be written: ")
        assert "/." not in line  # the hidden folder is an internal
    assert os.listdir(tmp_path) == []


def test_blocks_of_rows_are_one_array(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a.npy") as temporary:
        put_npy(temporary, np.dtype("f4"), (4, 3), [SET.values[:1], SET.values[1:]])
    assert np.load(tmp_path / "a.npy").dtype == np.float32
    assert np.array_equal(np.load(tmp_path / "a.npy"), SET.values)


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.npz"
    path.touch()
    path.chmod(mode)
    write(path, SET, force=True)
    assert path.stat().st_mode & 0o777 == mode
    assert np.array_equal(read(path).values, SET.values)


@posix
@pytest.mark.parametrize("force", [False, True])
def test_a_pipe_stays_a_pipe(tmp_path: Path, force: bool) -> None:
    path, got = tmp_path / "a.npz", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    write(path, SET, force=force)
    reader.join()
    assert path.is_fifo()
    write(tmp_path / "b.npz", SET)
    assert len(got[0]) == (tmp_path / "b.npz").stat().st_size
    assert sorted(os.listdir(tmp_path)) == ["a.npz", "b.npz"]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_cannot_be_read_is_not_written(tmp_path: Path, bad: float) -> None:
    values = SET.values.copy()
    values[2, 1] = bad
    with pytest.raises(FileError, match="first in row 2"):
        write(tmp_path / "a.npz", LogitsSet(values, SET.labels))
    with pytest.raises(FileError, match="sums to 2"):
        write(tmp_path / "a.npz", LogitsSet(np.full((2, 4), 0.5), None, "probabilities"))
    assert os.listdir(tmp_path) == []


@posix
@pytest.mark.parametrize("suffix", FORMATS)
def test_names_that_are_not_text(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / os.fsdecode(b"a\xff" + suffix.encode())
    write(path, {"logits": SET.values})
    result = read(path)
    assert np.array_equal(result.values, SET.values)
    assert result.name == r"a\xff"


def test_the_time_for_a_wide_table_grows_with_its_width(tmp_path: Path) -> None:
    m = 4_000
    wide = LogitsSet(np.random.default_rng(0).normal(size=(2, m)), np.array([3, m - 1]))
    path = write(tmp_path / "a.csv", wide)
    searched = 0

    class Name(str):
        def __eq__(self, other: object) -> bool:
            nonlocal searched
            searched += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [*(Name(f"logits_{j}") for j in range(m)), Name("labels")]
    source = NamedArrays(
        path,
        tuple(names),
        lambda columns: [np.zeros(2)] * len(columns),
        columns=lambda columns, as_text: None,
    )
    choice = Choice(source, names, "here")
    assert (len(choice.values), choice.labels) == (m, ("labels",))
    assert Choice(source, names, "here", values=names[:-1]).values == tuple(names[:-1])
    assert searched < 10 * m  # comparing every name with every other would be m * m
    result = read(path)
    assert np.array_equal(result.values, wide.values)
    assert np.array_equal(result.labels, wide.labels)
