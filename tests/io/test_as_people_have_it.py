"""Files as people have them: a column for each class by its name, labels as words, counted from 1, one-hot or elsewhere."""

from __future__ import annotations

import gzip
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from monocal.data import LogitsSet, read, read_columns, read_splits, write
from monocal.errors import FileError, InputError
from monocal.inputs.names import classes_of
from monocal.io.columns import meaning

RNG = np.random.default_rng(1)
NAMES = ["cat", "dog", "owl"]
PROBS = np.round(RNG.dirichlet([1, 1, 1], 30), 6)
PROBS[:, 2] = 1 - PROBS[:, 0] - PROBS[:, 1]
LABELS = np.arange(30) % 3
WORDS = [NAMES[j] for j in LABELS]


def frame(names: list[str] | None = None, **more: Any) -> pd.DataFrame:
    return pd.DataFrame(PROBS, columns=names or [f"prob_{name}" for name in NAMES]).assign(**more)


def check(got: LogitsSet, *, names: tuple[str, ...] | None = ("cat", "dog", "owl")) -> None:
    np.testing.assert_allclose(got.values, PROBS, atol=1e-12)
    assert got.labels is not None
    np.testing.assert_array_equal(got.labels, LABELS)
    assert got.class_names == names


TABLES: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    ".csv": lambda f, p: f.to_csv(p, index=False),
    ".tsv": lambda f, p: f.to_csv(p, index=False, sep="\t"),
    ".csv.gz": lambda f, p: f.to_csv(p, index=False),
    ".tsv.gz": lambda f, p: f.to_csv(p, index=False, sep="\t"),
    ".parquet": lambda f, p: f.to_parquet(p),
    ".feather": lambda f, p: f.to_feather(p),
}


@pytest.mark.parametrize("suffix", TABLES)
@pytest.mark.parametrize("words", [WORDS, pd.Categorical(WORDS)], ids=["words", "categories"])
def test_a_column_for_each_class_and_words_as_labels(tmp_path: Path, suffix: str, words: Any) -> None:
    path = tmp_path / f"pets{suffix}"
    TABLES[suffix](frame(id=[f"{i:04}" for i in range(30)], label=words), path)
    got = read(path)
    check(got)
    assert (got.kind, got.name, got.aside) == ("probabilities", "pets", ("id",))
    assert "labels are names of classes, matched with the columns" in got.notes
    assert got.taken == (
        f"{path}: 30 rows, probabilities of 3 classes in the columns 'prob_cat', 'prob_dog', 'prob_owl', labels in 'label'; "
        "other columns: 'id'."
    )
    assert list(read_columns(path, "id")) == ["id"]


@pytest.mark.parametrize(
    "make", [lambda f: f, pa.Table.from_pandas], ids=["pandas", "arrow, as polars gives it"]
)
def test_a_frame_in_memory(make: Callable[[pd.DataFrame], Any]) -> None:
    shuffled = frame(label=WORDS)[["label", "prob_dog", "prob_owl", "prob_cat"]]
    got = read(make(shuffled)).in_order_of(NAMES)
    check(got)
    assert got.path is None
    with pytest.raises(FileError, match=r"the (pandas|pyarrow) frame has no 'wahr'"):
        read(make(shuffled), labels="wahr")
    splits = read_splits(make(frame(label=WORDS)), make(shuffled))
    check(splits.test)
    codes = pa.array(LABELS, pa.uint32())
    words = pa.DictionaryArray.from_arrays(codes, pa.array(NAMES, pa.string_view()))  # categories of polars
    polars = pa.Table.from_pandas(frame()).append_column("label", words)
    check(read(polars))
    assert read_columns(polars, "label")["label"].tolist() == WORDS
    indexed = frame(label=WORDS).set_index(pd.Index(range(100, 130)))
    check(read(indexed))


@pytest.mark.parametrize(
    "names",
    [
        NAMES,
        ["Cat", "DOG", "owl"],
        [f"{n}_prob" for n in NAMES],
        [f"y_pred_proba_{n}" for n in NAMES],
        ["P(cat)", "P(dog)", "P(owl)"],
    ],
    ids=lambda names: names[0],
)
def test_names_of_columns(tmp_path: Path, names: list[str]) -> None:
    frame(names, true_label=WORDS).to_csv(tmp_path / "a.csv", index=False)
    got = read(tmp_path / "a.csv", kind="probabilities")
    check(got, names=classes_of(names))
    assert [name.lower() for name in got.class_names or ()] == NAMES


@pytest.mark.parametrize("word", ["label", "true_label", "class", "gt", "target", "y_true", "Ground Truth"])
def test_names_of_labels(tmp_path: Path, word: str) -> None:
    frame(**{word: WORDS}).to_csv(tmp_path / "a.csv", index=False)
    check(read(tmp_path / "a.csv"))


@pytest.mark.parametrize(
    ("name", "role"),
    [
        *[
            (n, "probabilities")
            for n in ("y_pred_proba", "prob_class_0", "probabilities_cat", "predProba", "test_probs")
        ],
        *[(n, "logits") for n in ("logit_3", "log_prob_cat", "logprobs", "resnet_logits", "log_softmax_out")],
        *[(n, None) for n in ("problem", "improbable_cause", "logistics", "catalogue", "cat")],
    ],
)
def test_what_a_name_says(name: str, role: str | None) -> None:
    assert meaning(name).role == role


def test_numbered_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    frame([f"prob_class_{j}" for j in range(3)], label=LABELS).to_csv(path, index=False)
    check(read(path), names=None)
    frame([f"prob_{j}" for j in (1, 2, 3)], label=LABELS + 1).to_csv(path, index=False)
    got = read(path)
    check(got, names=None)
    assert "labels are the numbers by which the columns are called" in got.notes
    frame(["200", "404", "500"], label=np.array([200, 404, 500])[LABELS]).to_csv(path, index=False)
    check(read(path, kind="probabilities"), names=("200", "404", "500"))
    frame(["prob_2", "prob_0", "prob_1"], label=np.array([2, 0, 1])[LABELS]).to_csv(path, index=False)
    got = read(path)  # in the order of the numbers
    np.testing.assert_array_equal(got.values, PROBS[:, [1, 2, 0]])


def test_columns_by_pattern_and_place(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    frame([f"m1_{n}" for n in NAMES], m2_cat=0.5, m2_dog=0.5, m2_owl=0.0, label=WORDS).to_csv(
        path, index=False
    )
    got = read(path, values="m1_*", kind="probabilities", classes=NAMES)
    check(got)
    frame([f"p_{n}" for n in NAMES], other=1.5, label=WORDS).to_csv(path, index=False)
    check(read(path, values="p_*", kind="probabilities"))
    check(read(path, values=["0", "1", "2"], labels="-1", kind="probabilities"))
    with pytest.raises(FileError, match=r"has no 'q_\*' \(asked for by values=\)"):
        read(path, values="q_*")


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("0,1,2,label\n.1,.2,.7,2\n", None),  # a frame saved with numbers for names
        ("id,1,2,3\na.png,.1,.2,.7\n", None),
        ("y\n0\n1\n", "nothing but labels"),
        (".1,.2,.7,cat\n.1,.2,.7,dog\n", r"no line of names: it begins with \.1"),
    ],
)
def test_the_first_line_names_the_columns(tmp_path: Path, text: str, refused: str | None) -> None:
    (tmp_path / "a.csv").write_text(text)
    if refused is None:
        assert read(tmp_path / "a.csv", kind="probabilities").n_classes == 3
    else:
        with pytest.raises(FileError, match=refused):
            read(tmp_path / "a.csv", kind="probabilities")


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".npy", ".npz", ".csv.gz"])
@pytest.mark.parametrize("labels", [WORDS, LABELS.tolist()], ids=["words", "numbers"])
def test_labels_in_a_file_of_their_own(tmp_path: Path, suffix: str, labels: list[Any]) -> None:
    frame().to_csv(tmp_path / "p.csv", index=False)
    path = tmp_path / f"truth{suffix}"
    if suffix == ".npz":
        np.savez(path, anything=labels)
    elif suffix == ".npy":
        np.save(path, labels)
    else:
        text = "".join(f"{label}\n" for label in labels).encode()
        path.write_bytes(gzip.compress(text) if suffix == ".csv.gz" else text)
    check(read(tmp_path / "p.csv", labels_file=path))


def test_what_a_file_of_labels_may_hold(tmp_path: Path) -> None:
    named = pd.DataFrame({"id": range(30), "wahr": LABELS})
    check(read(frame(), labels_file=named, labels="wahr"))
    with pytest.raises(FileError, match="no array of labels: it holds 'id', 'wahr'"):
        read(frame(), labels_file=named)
    (tmp_path / "gap.txt").write_text("0\n2\n1\n")
    with pytest.raises(FileError, match="has 3 rows and the values have 30"):
        read(frame(), labels_file=tmp_path / "gap.txt")
    (tmp_path / "odd.txt").write_text("0.5 0.5\n0.5\n")
    with pytest.raises(FileError, match="has dtype"):
        read(tmp_path / "odd.txt")


def test_labels_that_count_from_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", probs=PROBS, y=LABELS + 1)
    check(read(tmp_path / "a.npz", first_label=1), names=None)
    with pytest.raises(FileError, match="seem to count from 1: if so, say first_label=1"):
        read(tmp_path / "a.npz")
    with pytest.raises(FileError, match=r"has 0 in row 0: expected a whole number from 1 to 3"):
        read(frame(label=LABELS), first_label=1)
    with pytest.raises(FileError, match="holds names such as 'owl': leave first_label= out"):
        read(frame(label=WORDS), first_label=1)
    with pytest.raises(InputError, match="first_label= must be 0 or 1, got 2"):
        read(frame(label=WORDS), first_label=2)


def test_one_hot_labels(tmp_path: Path) -> None:
    hot = np.eye(3, dtype=int)[LABELS]
    message = "one-hot labels of shape (30, 3) were read as class numbers"
    for columns in (["label_cat", "label_dog", "label_owl"], ["is cat", "is dog", "is owl"]):
        data = frame(**{name: hot[:, j] for j, name in enumerate(columns)})
        got = read(data, labels=columns if columns[0] == "is cat" else None)
        check(got)
        assert message in got.notes
    check(read(data, labels="is *"))
    with pytest.raises(FileError, match="row 0 is not: expected a single 1 among zeros"):
        read(data * 0 + 1 / 3, labels="is *")


def test_what_torch_saves(tmp_path: Path) -> None:
    path = tmp_path / "out.pt"
    tensors = {
        "logits": torch.tensor(np.log(PROBS)).requires_grad_(),
        "labels": torch.tensor(LABELS),
        "classes": NAMES,
        "epoch": 3,
    }
    torch.save(tensors, path)
    got = read(path)
    np.testing.assert_array_equal(got.values, np.log(PROBS))
    assert (got.kind, got.class_names) == ("logits", ("cat", "dog", "owl"))
    half = torch.tensor(PROBS).to(torch.bfloat16)
    torch.save((half, torch.tensor(LABELS)), tmp_path / "pair.pth")
    np.testing.assert_array_equal(
        read(tmp_path / "pair.pth", kind="probabilities").values, half.float().numpy()
    )
    torch.save(torch.tensor(PROBS), tmp_path / "probs.pt")
    assert read(tmp_path / "probs.pt").kind == "probabilities"
    torch.save({"epoch": 3}, path)
    with pytest.raises(FileError, match="holds a dict without tensors by name"):
        read(path)
    for hostile in (torch.nn.Linear(2, 2), math.sqrt):
        torch.save(hostile, path)
        with pytest.raises(FileError, match="was refused and nothing in it was run"):
            read(path)
    path.write_bytes(pickle.dumps("no tensors"))
    with pytest.raises(FileError, match=r"out\.pt"):
        read(path)


def test_old_torch_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(torch.zeros(2, 2), tmp_path / "a.pt")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(FileError, match=r"torch 2\.6 or later only, and this is 2\.5\.1"):
        read(tmp_path / "a.pt")


def test_names_of_classes_in_archives(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", probs=PROBS, y=WORDS, class_names=NAMES)
    check(read(tmp_path / "a.npz"))
    np.savez(tmp_path / "a.npz", probs=PROBS, y=WORDS)
    check(read(tmp_path / "a.npz", classes=NAMES))
    with pytest.raises(
        FileError, match=r"holds names, 'cat', 'dog', 'owl', but no column is called so: .* with classes="
    ):
        read(tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"classes= gives 2 names, 'cat', 'dog', and .* has 3 classes"):
        read(tmp_path / "a.npz", classes=["cat", "dog"])
    np.savez(tmp_path / "a.npz", probs=PROBS, classes=np.arange(3))
    with pytest.raises(FileError, match=r"'classes' in .*: expected a name for each class"):
        read(tmp_path / "a.npz")


def test_one_column_for_two_classes() -> None:
    data = pd.DataFrame({"prob_spam": PROBS[:, 0], "label": np.array(["ham", "spam"])[LABELS % 2]})
    got = read(data)
    assert got.class_names == ("ham", "spam")
    np.testing.assert_array_equal(got.values, np.stack([1 - PROBS[:, 0], PROBS[:, 0]], axis=1))
    np.testing.assert_array_equal(got.labels, LABELS % 2)
    logit = read(pd.DataFrame({"logit": np.log(PROBS[:, 0]), "label": LABELS > 1}))
    np.testing.assert_array_equal(logit.values, np.stack([np.zeros(30), np.log(PROBS[:, 0])], axis=1))
    np.testing.assert_array_equal(logit.labels, LABELS > 1)
    numbers = read(pd.DataFrame({"y_pred_proba": PROBS[:, 0], "y_true": LABELS % 2}))
    assert (numbers.kind, numbers.class_names) == ("probabilities", None)


def test_weights_and_labels_by_name(tmp_path: Path) -> None:
    weights = RNG.random(30)
    data = frame(sample_weight=weights, coarse=["pet"] * 30, fine=WORDS)
    got = read(data, weights="sample_weight", labels="fine")
    check(got)
    np.testing.assert_array_equal(got.weights, weights)
    assert got.aside == ("coarse",)
    assert "weights in 'sample_weight'" in got.taken
    assert read(data, labels="fine").weights is None
    again = read(write(tmp_path / "a.parquet", got), weights="weights")
    np.testing.assert_array_equal(again.weights, weights)
    for wrong, result in (
        (-1.0, "entry 3 is negative"),
        (np.nan, "missing values in 1 of 30 rows .* in row 3"),
    ):
        bad = weights.copy()
        bad[3] = wrong
        with pytest.raises(FileError, match=result):
            read(frame(sample_weight=bad), weights="sample_weight")
    with pytest.raises(FileError, match=r"'fine' in the pandas frame: every entry must be a real number"):
        read(data, weights="fine", labels="coarse", with_labels=False)
    with pytest.raises(
        FileError, match="has several arrays of labels, 'label', 'gt': say which with labels="
    ):
        read(frame(label=WORDS, gt=WORDS))


def test_labels_that_are_not_needed_are_not_read() -> None:
    for labels in (["fish"] * 30, [None] * 30, LABELS + 7):
        data = frame(label=labels, id=range(30))
        got = read(data, with_labels=False)
        assert got.labels is None
        assert got.aside == ("label", "id")


def test_messages_name_the_cell(tmp_path: Path) -> None:
    words = [*WORDS[:-1], "fish"]
    frame(label=words).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(
        FileError, match=r"'label' in .*a\.csv has 'fish' in row 29 .*none of the classes 'cat', 'dog', 'owl'"
    ):
        read(tmp_path / "a.csv")
    frame(label=[*WORDS[:-1], ""]).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(FileError, match=r"in 1 of 30 rows \(1 in 'label'\), first in row 29"):
        read(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("cat,dog,label\n" + "1,2,cat\n" * 200 + "1,x,cat\n")
    with pytest.raises(FileError, match=r"column 'dog' has 'x' in row 200 .*: expected numbers"):
        read(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text('logits,label\n"[1, 2]",0\n')
    with pytest.raises(FileError, match=r"'logits' in .* has '\[1, 2\]' in row 0 .* from Parquet"):
        read(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text(
        "logit_cat,logit_dog,logit_owl,label\n" + "1,2,3,0\n" * 200 + "1,2,3,dog\n"
    )
    with pytest.raises(FileError, match="has '0' in row 0"):
        read(tmp_path / "a.csv")
    np.savez(tmp_path / "a.npz", logits=np.zeros((2, 5, 4, 4)))
    with pytest.raises(FileError, match=r"shape \(2, 5, 4, 4\): say which axis .*class_axis=1 for images"):
        read(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", logits=np.full((2, 3), -np.inf))
    with pytest.raises(FileError, match="has -inf for every class: first in row 0"):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv.gz", ".parquet", ".feather", ".npz", ".h5"])
def test_what_is_written_keeps_the_names(tmp_path: Path, suffix: str) -> None:
    made = LogitsSet(PROBS, LABELS, "probabilities", class_names=tuple(NAMES))
    path = write(tmp_path / f"a{suffix}", made)
    check(read(path))
    if suffix.startswith((".csv", ".parquet")):
        assert "probabilities_cat" in read_columns(path, "*")


def in_excel(path: Path, **how: Any) -> None:
    with pd.ExcelWriter(path) as sheets:
        if "sheet_name" in how:
            pd.DataFrame({"note": ["see the other sheet"]}).to_excel(sheets, sheet_name="info", index=False)
        frame(label=WORDS).to_excel(sheets, index=False, **how)


UNUSUAL: dict[str, Callable[[Path], Any]] = {
    "comment.csv": lambda p: p.write_text("# made by hand\n" + frame(label=WORDS).to_csv(index=False)),
    "seed.csv": lambda p: p.write_text("# model A, seed 3, b, 1\n" + frame(label=WORDS).to_csv(index=False)),
    "long.csv": lambda p: p.write_text("# a line\n" * 300 + frame(label=WORDS).to_csv(index=False)),
    "total.csv": lambda p: p.write_text(frame(label=WORDS).to_csv(index=False) + "Total,,,\n"),
    "lower.xlsx": lambda p: in_excel(p, startrow=3, startcol=1),
    "second.xlsx": lambda p: in_excel(p, sheet_name="data"),
    "nested.json": lambda p: p.write_text(
        json.dumps(
            [
                {"probs": dict(zip(NAMES, row, strict=True)), "label": word}
                for row, word in zip(PROBS.tolist(), WORDS, strict=True)
            ]
        )
    ),
    "arrays.json": lambda p: p.write_text(
        json.dumps({"probs": PROBS.tolist(), "label_ids": LABELS.tolist(), "classes": NAMES})
    ),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_stands_around_the_numbers(tmp_path: Path, name: str) -> None:
    UNUSUAL[name](tmp_path / name)
    if name == "total.csv":
        with pytest.raises(FileError, match="missing values in 1 of 31 rows"):
            read(tmp_path / name)
    check(read(tmp_path / name, drop_missing=name == "total.csv"))


@pytest.mark.parametrize(
    ("title", "columns"),
    [
        (["Run 7"], ["score", "label"]),
        (["Run 7"], ["id", "score", "label"]),
        (["Run", "of May"], ["id", "score", "label"]),
    ],
)
def test_a_title_is_no_header(tmp_path: Path, title: list[str], columns: list[str]) -> None:
    table = pd.DataFrame({"id": WORDS, "score": PROBS[:, 0], "label": LABELS == 0})[columns]
    with pd.ExcelWriter(tmp_path / "a.xlsx") as sheets:
        pd.DataFrame([title]).to_excel(sheets, index=False, header=False)
        table.to_excel(sheets, index=False, startrow=1)
    np.testing.assert_allclose(read(tmp_path / "a.xlsx", kind="probabilities").values[:, 1], PROBS[:, 0])
