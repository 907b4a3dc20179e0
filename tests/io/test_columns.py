"""What else a file knows of its samples: found by name and part, numbers and text, gaps kept."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest

from monocal.data import find_columns, read, read_columns
from monocal.errors import FileError

N = 6
LOGITS = np.random.default_rng(0).normal(size=(N, 3))
LABELS = np.arange(N) % 3
SUBJECT = np.array(["law", "art", "law", "Ärzte", "art", "law"])
YEAR = np.array([2020, 2021, 2020, 2020, 2021, 2021])
DOSE = np.array([0.5, np.nan, 1.0, 0.5, 0.5, 2.0])


def table(**more: object) -> pd.DataFrame:
    outputs = {f"logit_{j}": LOGITS[:, j] for j in range(3)}
    return pd.DataFrame({**outputs, "label": LABELS, "subject": SUBJECT, "year": YEAR, "dose": DOSE, **more})


def written(folder: Path, suffix: str) -> Path:
    path = folder / f"a{suffix}"
    if suffix in (".csv", ".tsv"):
        table().to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    elif suffix == ".parquet":
        table().astype({"subject": "category"}).to_parquet(path)
    elif suffix == ".npz":
        np.savez(path, logits=LOGITS, y=LABELS, subject=SUBJECT, year=YEAR, dose=DOSE)
    else:
        with h5py.File(path, "w") as file:
            text = h5py.string_dtype()
            for name, array in {"logits": LOGITS, "y": LABELS, "year": YEAR, "dose": DOSE}.items():
                file[name] = array
            file.create_dataset("subject", data=SUBJECT.astype(object), dtype=text)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".npz", ".h5"])
def test_every_format_hands_out_numbers_and_text(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path, suffix)
    result = read_columns(path)
    assert list(result) == (["subject", "year", "dose"] if suffix != ".h5" else ["dose", "subject", "year"])
    assert result["subject"].tolist() == SUBJECT.tolist()
    np.testing.assert_array_equal(result["year"], YEAR)
    np.testing.assert_array_equal(result["dose"], DOSE)
    assert result["year"].dtype.kind == "i"
    assert read(path).n_samples == N  # and they do no harm to reading the outputs
    assert list(read_columns(path, "dose")) == ["dose"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_gaps_in_text_are_none(tmp_path: Path, suffix: str) -> None:
    frame = table(subject=["law", None, "NA", "art", "nan", None])
    path = tmp_path / f"a{suffix}"
    (frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path))
    assert read_columns(path, "subject")["subject"].tolist() == ["law", None, "NA", "art", "nan", None]


@pytest.mark.parametrize("style", ["{}_{}", "{1}_{0}"])
def test_a_name_means_its_part(tmp_path: Path, style: str) -> None:
    path = tmp_path / "a.npz"
    parts = {"val": slice(0, 2), "test": slice(2, N)}
    arrays = {"logits": LOGITS, "y": LABELS, "context": YEAR}
    np.savez(
        path,
        **{style.format(name, part): a[rows] for name, a in arrays.items() for part, rows in parts.items()},
    )
    np.testing.assert_array_equal(read_columns(path, "context", part="test")["context"], YEAR[2:])
    np.testing.assert_array_equal(read_columns(path, part="cal")["context"], YEAR[:2])
    whole = style.format("context", "test")
    np.testing.assert_array_equal(read_columns(path, whole)[whole], YEAR[2:])
    with pytest.raises(FileError, match="several parts"):
        read_columns(path, "context")


def test_what_a_person_writes(tmp_path: Path) -> None:
    path = written(tmp_path, ".csv")
    other = tmp_path / "groups.csv"
    table()[["subject", "year"]].to_csv(other, index=False)
    assert list(find_columns("subject", path)) == ["subject"]
    assert list(find_columns("year, subject", path)) == ["year", "subject"]
    assert list(find_columns(str(other), path)) == ["subject", "year"]
    assert list(find_columns(f"{other}:year", path)) == ["year"]

    np.save(tmp_path / "alone.npy", YEAR)
    assert list(find_columns(str(tmp_path / "alone.npy"), path)) == ["alone"]


def test_refusals_name_what_there_is(tmp_path: Path) -> None:
    path = written(tmp_path, ".csv")
    with pytest.raises(FileError, match=r"has no 'sbject'.*'subject'"):
        read_columns(path, "sbject")
    with pytest.raises(FileError, match=r"neither a file nor a column.*'subject', 'year', 'dose'"):
        find_columns("sbject", path)
    np.savez(tmp_path / "cube.npz", logits=LOGITS, y=LABELS, cube=np.zeros((N, 2, 2)))
    with pytest.raises(FileError, match=r"'cube' of shape \(6, 2, 2\)"):
        read_columns(tmp_path / "cube.npz")
