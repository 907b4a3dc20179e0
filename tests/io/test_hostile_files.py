"""Whatever the bytes, a reader answers with a set or with one sentence in a FileError, and runs nothing."""

from __future__ import annotations

import io
import math
import os
import pickle
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monocal.data import LogitsSet, Splits, read, write
from monocal.errors import FileError, InputError, MissingExtraError

LOGITS = np.random.default_rng(2).normal(size=(20, 3))
LABELS = np.arange(20) % 3


def refused(path: Path | str, match: str, **options: object) -> str:
    with pytest.raises(FileError, match=match) as caught:
        read(path, **options)
    message = str(caught.value)
    assert Path(path).name in message
    assert "\n" not in message
    assert message.endswith((".", "...")), message
    return message


def test_missing_empty_directory_and_unknown(tmp_path: Path) -> None:
    refused(tmp_path / "no" / "deeper.csv", "There is no file")
    refused(tmp_path, "folder without .npy files")
    for suffix in (*STARTS, ".tsv"):
        path = tmp_path / f"empty{suffix}"
        path.touch()
        refused(path, "empty|has dtype|has no labels", need_labels=True)
    for name in ("a.docx", "plain"):
        (tmp_path / name).write_text("x")
        refused(tmp_path / name, r"no file that monocal reads: expected one of \.npy, \.npz")
    os.mkfifo(tmp_path / "pipe.npz")  # is not waited for
    refused(tmp_path / "pipe.npz", "no file that monocal reads")
    for nonsense in (None, 3, "", "a\0b", b"a.npz"):
        with pytest.raises(InputError, match="path must be a file name"):
            read(nonsense)


def test_another_format_than_the_name_says(tmp_path: Path) -> None:
    write(tmp_path / "a.npy", {"x": LOGITS}).rename(tmp_path / "b.npz")
    write(tmp_path / "a.h5", {"x": LOGITS}).rename(tmp_path / "a.parquet")
    (tmp_path / "c.h5").write_text("logits")
    (tmp_path / "d.csv.gz").write_text("logits")
    for name in ("b.npz", "a.parquet", "c.h5", "d.csv.gz"):
        refused(tmp_path / name, "not what its name says")


def test_objects_are_never_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", logits=np.array([[1, None]], dtype=object))
    np.save(tmp_path / "a.npy", np.array([[1, None]], dtype=object))
    refused(tmp_path / "a.npz", "Object arrays cannot be loaded")
    for mmap in (False, True):
        refused(tmp_path / "a.npy", "Object|Python objects", mmap=mmap)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("logits", "hello")
    refused(tmp_path / "a.npz", "'logits' in .* has shape")


def test_a_header_that_claims_more_than_there_is(tmp_path: Path) -> None:
    stream = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**7)}
    np.lib.format.write_array_header_2_0(stream, header)
    (tmp_path / "a.npy").write_bytes(stream.getvalue() + b"\0" * 80)
    for mmap in (False, True):
        refused(tmp_path / "a.npy", "damaged", mmap=mmap)


def test_what_torch_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.pt"
    tensors = {"logits": torch.tensor(LOGITS).requires_grad_(), "labels": torch.tensor(LABELS), "epoch": 3}
    torch.save(tensors, path)
    np.testing.assert_array_equal(read(path).values, LOGITS)
    half = torch.tensor(LOGITS).to(torch.bfloat16)
    torch.save((half, torch.tensor(LABELS)), tmp_path / "pair.pth")
    np.testing.assert_array_equal(read(tmp_path / "pair.pth").values, half.float().numpy())
    torch.save({"epoch": 3}, path)
    refused(path, "holds no tensors by name")
    for hostile in (torch.nn.Linear(2, 2), math.sqrt):
        torch.save(hostile, path)
        refused(path, "cannot be read")
    path.write_bytes(pickle.dumps("no tensors"))
    refused(path, "out")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    refused(path, r"torch 2\.6 or later only, and this is 2\.5\.1")


def with_cell(row: int, column: int, value: float) -> np.ndarray:
    array = LOGITS.copy()
    array[row, column] = value
    return array


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.array([["a", "b"]]), "dtype <U1"),
        (LOGITS.astype(complex), "dtype complex128"),
        (LOGITS > 0, "dtype bool"),
        (LOGITS.astype("f4").view("V4"), r"dtype \|V4"),
        (LOGITS[None], r"shape \(1, 20, 3\).*class_axis=-1 for sequences \(n, t, m\)"),
        (np.zeros((2, 5, 4, 4)), "say which axis .*class_axis=1 for images"),
        (LOGITS[:0], r"shape \(0, 3\)"),
        (LABELS, r"shape \(20,\) and dtype int64"),
        (np.float64(3), r"shape \(\)"),
        (with_cell(4, 1, np.nan), "missing values in 1 of 20 rows .*'logits'.* in row 4"),
        (with_cell(7, 2, np.inf), "infinity: first in row 7"),
        (np.full((2, 3), -np.inf), "has -inf for every class: first in row 0"),
    ],
)
def test_values_that_are_none(tmp_path: Path, array: np.ndarray, match: str) -> None:
    np.savez(tmp_path / "a.npz", logits=array)
    refused(tmp_path / "a.npz", match)


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (np.where(LABELS == 2, np.nan, LABELS), "missing values in 6 of 20 rows .* in row 2"),
        (np.where(np.arange(20) == 5, -1, LABELS), "-1 in row 5"),
        (LABELS + 0.5, "0.5 in row 0"),
        (LABELS + 1, "seem to count from 1: if so, say first_label=1"),
        (np.where(np.arange(20) == 5, np.inf, LABELS), "inf in row 5"),
        (LABELS[:19], "19 rows, .* and the values have 20"),
        (np.full((20, 3), 1 / 3), "must be one-hot, but row 0"),
        (np.zeros((20, 2)), r"shape \(20, 2\) .* expected \(20,\)"),
        (np.array(3), r"shape \(\)"),
        (np.array(["cat", "dog"] * 10), "holds names, 'cat', 'dog', but no column is called so: .* classes="),
    ],
)
def test_labels_that_are_none(tmp_path: Path, labels: np.ndarray, match: str) -> None:
    np.savez(tmp_path / "a.npz", logits=LOGITS, labels=labels)
    refused(tmp_path / "a.npz", match)


def test_missing_and_ambiguous_names(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path)
    refused(path, "cannot be read|holds no arrays")
    np.savez(path, LOGITS, LABELS)
    refused(path, r"it holds 'arr_0', 'arr_1'\. Say which one with values=")
    assert read(path, values="arr_0", labels="arr_1").n_samples == 20
    refused(path, "has no 'zlogits'", values="zlogits")
    np.savez(path, logits=LOGITS, log_probs=LOGITS)
    refused(path, "expected one array")
    np.savez(path, logits=LOGITS)
    refused(path, "has no labels", need_labels=True)
    refused(path, "has no test part", part="test")
    refused(path, "holds the sets '': say which with group=", group="x")
    with pytest.raises(InputError, match="part must be"):
        read(path, part="train")
    with pytest.raises(InputError, match="at least one"):
        read(path, values=[])


CSV = {
    "word": ("logit_0,logit_1\n1,2\n3,abc\n", "abc"),
    "short row": ("logit_0,logit_1\n1,2\n3\n", "Expected 2 columns, got 1"),
    "empty cell": ("logit_0,logit_1\n1,2\n3,\n", "in 1 of 2 rows .* row 1"),
    "nan": ("logit_0,logit_1,label\n1,2,0\n3,4,nan\n", r"\(1 in 'label'\), first in row 1"),
    "twice": ("logit_0,logit_0\n1,2\n", "two columns called 'logit_0'"),
    "only a header": ("logit_0,logit_1\n", "there are no rows"),
    "blank first line": ("\nlogit_0,logit_1\n1,2\n", "begins with an empty line"),
    "unclosed quote": ('logit_0,logit_1\n1,"2\n3,4\n', "cannot be read"),
    "only labels": ("label\n1\n", "a file of labels is given with labels_file="),
    "words as labels": ("logit_0,logit_1,label\n1,2,cat\n", "holds names, 'cat', but no column is called so"),
}


@pytest.mark.parametrize("case", CSV)
def test_bad_csv(tmp_path: Path, case: str) -> None:
    text, match = CSV[case]
    (tmp_path / "a.csv").write_text(text)
    refused(tmp_path / "a.csv", match)


def test_csv_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("größe,b\n1,2\n".encode("latin1"))
    refused(tmp_path / "a.csv", "cannot be read")
    (tmp_path / "a.csv").write_bytes("\ufefflogit_0,logit_1\n1,2\n".encode())
    assert read(tmp_path / "a.csv").values.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(("suffix", "package"), [(".h5", "h5py"), (".csv", "pyarrow")])
def test_missing_package_names_the_command(
    tmp_path: Path, suffix: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / f"a{suffix}", {"logits": LOGITS})
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package} is needed .* pip install 'monocal\[data\]'"):
        read(path)


def test_hdf5_does_not_lead_out_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(np.ones(6).tobytes())
    write(tmp_path / "other.h5", {"logits": LOGITS})
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("logits", (3, 2), "f8", external=[(str(tmp_path / "secret"), 0, 48)])
        file["probs"] = h5py.ExternalLink("other.h5", "logits")
    refused(tmp_path / "a.h5", "in another file")
    refused(tmp_path / "a.h5", "has no 'probs'", values="probs")


FILES: dict[str, bytes] = {}
STARTS = {
    ".npz": b"PK\x03\x04",
    ".npy": b"\x93NUMPY\x01\x00",
    ".parquet": b"PAR1",
    ".h5": b"\x89HDF\r\n\x1a\n",
    ".csv": b"logit_0,logit_1\n",
    ".safetensors": b"\x08\x00\x00\x00\x00\x00\x00\x00",
    ".pkl": b"\x80\x04",
    ".feather": b"ARROW1\x00\x00",
    ".csv.gz": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    ".txt": b"0.5 0.5\n",
    ".pt": b"PK\x03\x04",
}


def whole(suffix: str) -> bytes:
    if suffix not in FILES:
        with tempfile.TemporaryDirectory() as folder:
            one, two = LogitsSet(LOGITS, LABELS), Splits(LogitsSet(LOGITS, LABELS), LogitsSet(LOGITS, LABELS))
            of_table = suffix in (".csv", ".csv.gz", ".parquet", ".feather")
            FILES[suffix] = write(Path(folder) / f"a{suffix}", one if of_table else two).read_bytes()
    return FILES[suffix]


def survives(content: bytes, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a flipped bit may make odd values, which are rightly warned of
        path = Path(folder) / f"a{suffix}"
        path.write_bytes(content)
        for part in (None, "cal"):
            try:
                outcome = str(read(path, part=part).path)
            except FileError as error:
                outcome = str(error)
            assert path.name in outcome


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_files(data: st.DataObject) -> None:
    suffix = data.draw(
        st.sampled_from([".npz", ".csv", ".csv.gz", ".parquet", ".feather", ".safetensors", ".h5"])
    )
    content = bytearray(whole(suffix))
    if suffix in (".npz", ".csv", ".safetensors"):
        for _ in range(data.draw(st.integers(0, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(content[: int(data.draw(st.floats(0.1, 1)) * len(content))]), suffix)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(STARTS)), st.binary(max_size=200))
def test_any_bytes(suffix: str, content: bytes) -> None:
    survives(content, suffix)
    survives(STARTS[suffix] + content, suffix)
