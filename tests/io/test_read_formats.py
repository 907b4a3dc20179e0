"""Every format gives back what was put into it, and arrays are found by their names."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch

from monocal.data import LogitsSet, Splits, read, read_splits, write
from monocal.errors import FileError, InputError

RNG = np.random.default_rng(5)
LOGITS = RNG.normal(0, 3, (40, 4))
LABELS = RNG.integers(0, 4, 40)
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)


def same(got: LogitsSet, values: np.ndarray = LOGITS, labels: np.ndarray | None = LABELS) -> None:
    np.testing.assert_array_equal(got.values, values)
    if labels is None:
        assert got.labels is None
    else:
        assert got.labels is not None
        assert got.labels.dtype == np.int64
        np.testing.assert_array_equal(got.labels, labels)


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".tsv", ".parquet", ".safetensors", ".h5", ".hdf5"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_written_sets_come_back_bit_for_bit(tmp_path: Path, suffix: str, dtype: str) -> None:
    kind = "logits" if dtype == "float32" else "probabilities"
    values = (LOGITS if kind == "logits" else PROBS).astype(dtype)
    path = write(tmp_path / f"net{suffix}", LogitsSet(values, LABELS, kind))
    got = read(path)
    assert (got.kind, got.name, got.path, got.part) == (kind, "net", path, None)
    assert got.values.dtype == ("float64" if suffix in (".csv", ".tsv") else dtype)
    same(LogitsSet(got.values.astype(dtype), got.labels), values)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".h5"])
def test_written_splits_come_back(tmp_path: Path, suffix: str) -> None:
    splits = Splits(LogitsSet(LOGITS, LABELS), LogitsSet(-LOGITS, LABELS[::-1].copy()))
    path = write(tmp_path / f"net{suffix}", splits)
    got = read_splits(path)
    same(got.cal)
    same(got.test, -LOGITS, LABELS[::-1])
    assert (got.name, got.cal.part, got.test.part) == ("net", "cal", "test")
    same(read(path, part="val"))
    same(read(path, part="test"), -LOGITS, LABELS[::-1])
    with pytest.raises(FileError, match="say part='cal' or part='test'"):
        read(path)


def test_npy_can_stay_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "logits.npy", LOGITS)
    np.save(tmp_path / "y.npy", LABELS)
    got = read(tmp_path / "logits.npy", labels_file=tmp_path / "y.npy", mmap=True)
    assert isinstance(got.values, np.memmap)
    same(got)
    np.savez(tmp_path / "a.npz", logits=LOGITS)
    with pytest.raises(InputError, match=r"mmap=True works for \.npy files only"):
        read(tmp_path / "a.npz", mmap=True)


def test_folder_of_npy_files(tmp_path: Path) -> None:
    arrays = {"logits_val": LOGITS, "y_val": LABELS, "logits_test": -LOGITS, "y_test": LABELS}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    got = read_splits(tmp_path, mmap=True)
    same(got.cal)
    same(got.test, -LOGITS)
    assert got.name == tmp_path.name


def test_bfloat16_is_widened_without_loss(tmp_path: Path) -> None:
    tensor = torch.tensor(LOGITS).to(torch.bfloat16)
    path = tmp_path / "head.safetensors"
    safetensors.torch.save_file({"logits": tensor, "labels": torch.tensor(LABELS)}, path)
    got = read(path)
    assert got.values.dtype == np.float32
    same(got, tensor.float().numpy())


def test_calarena_layout_multiclass_and_binary(tmp_path: Path) -> None:
    path = tmp_path / "cv.h5"
    with h5py.File(path, "w") as file:
        for group, probs in (("cifar10/resnet", PROBS), ("breast/vit", PROBS[:, 0])):
            for part in ("cal", "test"):
                file[f"{group}/probas_{part}"] = probs
                file[f"{group}/labels_{part}"] = LABELS if probs.ndim == 2 else LABELS % 2
    got = read_splits(path, group="cifar10/resnet")
    assert (got.cal.kind, got.name) == ("probabilities", "cifar10/resnet")
    same(got.test, PROBS)
    same(read(path, values="cifar10/resnet/probas_cal"), PROBS)  # a full name needs no group
    binary = read(path, group="breast/vit", part="test")
    same(binary, np.stack([1 - PROBS[:, 0], PROBS[:, 0]], axis=1), LABELS % 2)
    assert any("one column" in note for note in binary.notes)


def test_parquet_column_of_lists(tmp_path: Path) -> None:
    path = tmp_path / "hub.parquet"
    pq.write_table(pa.table({"logits": LOGITS.tolist(), "label": LABELS, "text": ["x"] * 40}), path)
    same(read(path))
    pq.write_table(pa.table({"logits": [[1.0, 2.0], [1.0]]}), path)
    with pytest.raises(FileError, match="2 in row 0 and 1 in row 1"):
        read(path)


def test_the_row_index_of_pandas_is_left_out(tmp_path: Path) -> None:
    frame = pd.DataFrame(LOGITS, columns=["cat", "dog", "owl", "bat"]).assign(label=LABELS)
    frame.to_csv(tmp_path / "index.csv")
    got = read(tmp_path / "index.csv")
    same(got)
    assert any("row index" in note for note in got.notes)


def test_csv_columns_in_class_order_not_in_file_order(tmp_path: Path) -> None:
    wide = RNG.normal(size=(30, 12))
    frame = pd.DataFrame(wide, columns=[f"logit_{j}" for j in range(12)])
    frame[sorted(frame.columns)].to_csv(tmp_path / "a.csv", index=False)  # logit_0, logit_1, logit_10, ...
    same(read(tmp_path / "a.csv"), wide, None)
    frame.drop(columns="logit_3").to_csv(tmp_path / "gap.csv", index=False)
    with pytest.raises(FileError, match="without gaps"):
        read(tmp_path / "gap.csv")


def test_kind_is_stated_never_guessed(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, out=PROBS)
    with pytest.warns(UserWarning, match="taken as logits, but all values lie between 0 and 1"):
        assert read(path).kind == "logits"
    assert read(path, kind="probabilities").kind == "probabilities"
    np.savez(path, probs=PROBS)
    with pytest.raises(FileError, match="it holds 'probs'"):
        read(path, kind="logits")
    np.savez(path, probs=PROBS, logits=LOGITS)
    same(read(path), LOGITS, None)
    same(read(path, kind="probabilities"), PROBS, None)
    np.savez(path, probs=LOGITS)
    with pytest.raises(FileError, match=r"row 0 contains the negative value .* If these are logits, say"):
        read(path)
    with pytest.raises(InputError, match="kind must be 'logits', 'probabilities' or 'percent', got 'odds'"):
        read(path, kind="odds")


def test_masked_classes_stay(tmp_path: Path) -> None:
    masked = LOGITS.copy()
    masked[::3, 1] = -np.inf
    for suffix in (".npz", ".csv", ".parquet"):
        same(read(write(tmp_path / f"a{suffix}", {"logits": masked, "labels": LABELS})), masked)


def test_types_that_are_converted(tmp_path: Path) -> None:
    quantised = np.round(LOGITS * 4).astype(np.int8)
    np.savez(tmp_path / "a.npz", logits=quantised)
    got = read(tmp_path / "a.npz")
    assert got.values.dtype == np.float32
    assert any("int8" in note for note in got.notes)
    same(got, quantised.astype(np.float32), None)
    np.savez(tmp_path / "a.npz", logits=LOGITS.astype(">f4"), y=LABELS.astype(">i2"))
    got = read(tmp_path / "a.npz")
    assert got.values.dtype.isnative
    same(got, LOGITS.astype(np.float32))


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (LABELS[:, None], "flattened"),
        (np.eye(4)[LABELS], "one-hot"),
        (np.eye(4, dtype=bool)[LABELS], "one-hot"),
        (LABELS.astype(float), ""),
        (LABELS.astype(np.uint8), ""),
    ],
)
def test_other_forms_of_labels(tmp_path: Path, labels: np.ndarray, said: str) -> None:
    np.savez(tmp_path / "a.npz", logits=LOGITS, labels=labels)
    got = read(tmp_path / "a.npz")
    same(got)
    assert said in " ".join(got.notes)
