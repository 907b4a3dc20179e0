"""Tables as people have them: a column for each class by its name, labels as words, from 1, one-hot or elsewhere."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

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
    np.testing.assert_array_equal(got.labels, LABELS)
    assert got.class_names == names


TABLES: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    ".csv": lambda f, p: f.to_csv(p, index=False),
    ".tsv.gz": lambda f, p: f.to_csv(p, index=False, sep="\t"),
    ".parquet": lambda f, p: f.to_parquet(p),
    ".feather": lambda f, p: f.to_feather(p),
    ".xlsx": lambda f, p: f.to_excel(p, index=False),
    ".json": lambda f, p: f.to_json(p, orient="records"),
}


@pytest.mark.parametrize("suffix", TABLES)
def test_a_column_for_each_class_and_words_as_labels(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"pets{suffix}"
    words = pd.Categorical(WORDS) if suffix == ".parquet" else WORDS
    TABLES[suffix](frame(id=[f"{i:04}" for i in range(30)], label=words), path)
    got = read(path)
    check(got)
    assert (got.kind, got.name, got.aside) == ("probabilities", "pets", ("id",))
    assert "labels are names of classes, matched with the columns" in got.notes
    assert got.taken == (
        f"{path}: 30 rows, probabilities of 3 classes in the columns 'prob_cat', 'prob_dog', 'prob_owl', labels in 'label'; "
        "other columns: 'id'."
    )


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
    check(read_splits(make(frame(label=WORDS)), make(shuffled)).test)
    codes = pa.array(LABELS, pa.uint32())
    words = pa.DictionaryArray.from_arrays(codes, pa.array(NAMES, pa.string_view()))  # categories of polars
    polars = pa.Table.from_pandas(frame()).append_column("label", words)
    check(read(polars))
    assert read_columns(polars, "label")["label"].tolist() == WORDS


@pytest.mark.parametrize(
    "names", [["Cat", "DOG", "owl"], [f"{n}_prob" for n in NAMES], ["P(cat)", "P(dog)", "P(owl)"]]
)
def test_names_of_columns(names: list[str]) -> None:
    check(read(frame(names, true_label=WORDS), kind="probabilities"), names=classes_of(names))


@pytest.mark.parametrize(
    "word", ["label", "true_label", "class", "gt", "target", "y_true", "Ground Truth", "outcome"]
)
def test_names_of_labels(word: str) -> None:
    check(read(frame(**{word: WORDS})))


def test_what_a_name_says() -> None:
    said = {
        "probabilities": ("y_pred_proba", "prob_class_0", "probabilities_cat", "predProba", "test_probs"),
        "logits": ("logit_3", "log_prob_cat", "logprobs", "resnet_logits", "log_softmax_out"),
        None: ("problem", "improbable_cause", "logistics", "catalogue", "cat"),
    }
    for role, names in said.items():
        assert {meaning(name).role for name in names} == {role}


def test_numbered_columns() -> None:
    check(read(frame([f"prob_class_{j}" for j in range(3)], label=LABELS)), names=None)
    got = read(frame([f"prob_{j}" for j in (1, 2, 3)], label=LABELS + 1))
    check(got, names=("1", "2", "3"))
    assert "labels are the numbers by which the columns are called" in got.notes
    got = read(frame(["200", "404", "500"], label=np.array([200, 404, 500])[LABELS]), kind="probabilities")
    check(got, names=("200", "404", "500"))
    got = read(frame(["prob_2", "prob_0", "prob_1"], label=LABELS))
    np.testing.assert_array_equal(got.values, PROBS[:, [1, 2, 0]])  # in the order of the numbers


def test_columns_by_pattern() -> None:
    two = frame([f"m1_{n}" for n in NAMES], m2_cat=0.5, m2_dog=0.5, m2_owl=0.0, label=WORDS)
    check(read(two, values="m1_*", kind="probabilities", classes=NAMES))
    check(read(frame([f"p_{n}" for n in NAMES], other=1.5, label=WORDS), values="p_*"))
    with pytest.raises(FileError, match=r"has no 'q_\*' \(asked for by values=\)"):
        read(two, values="q_*")


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("0,1,2,label\n.1,.2,.7,2\n", None),  # a frame saved with numbers for names
        ("id,1,2,3\na.png,.1,.2,.7\n", None),
        ("y\n0\n1\n", "it holds 'y'.* a file of labels is given with labels_file="),
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


@pytest.mark.parametrize("suffix", [".txt", ".npy", ".npz", ".csv.gz"])
@pytest.mark.parametrize("labels", [WORDS, LABELS.tolist()], ids=["words", "numbers"])
def test_labels_in_a_file_of_their_own(tmp_path: Path, suffix: str, labels: list[Any]) -> None:
    path = tmp_path / f"truth{suffix}"
    if suffix == ".npz":
        np.savez(path, anything=labels)
    elif suffix == ".npy":
        np.save(path, labels)
    else:
        text = "".join(f"{label}\n" for label in labels).encode()
        path.write_bytes(gzip.compress(text) if suffix == ".csv.gz" else text)
    check(read(frame(), labels_file=path))


def test_what_a_file_of_labels_may_hold(tmp_path: Path) -> None:
    named = pd.DataFrame({"id": range(30), "wahr": LABELS})
    check(read(frame(), labels_file=named, labels="wahr"))
    with pytest.raises(FileError, match="no array of labels: it holds 'id', 'wahr'"):
        read(frame(), labels_file=named)
    (tmp_path / "few.txt").write_text("0\n2\n1\n")
    with pytest.raises(FileError, match=r"has 3 rows, .* and the values have 30"):
        read(frame(), labels_file=tmp_path / "few.txt")


def test_labels_that_count_from_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", probs=PROBS, y=LABELS + 1)
    check(read(tmp_path / "a.npz", first_label=1), names=None)
    with pytest.raises(FileError, match="seem to count from 1: if so, say first_label=1"):
        read(tmp_path / "a.npz")
    with pytest.raises(FileError, match=r"has 0 in row 0 .*: expected a whole number from 1 to 3"):
        read(frame(label=LABELS), first_label=1)
    with pytest.raises(InputError, match="first_label= must be 0 or 1, got 2"):
        read(frame(label=WORDS), first_label=2)


def test_one_hot_labels() -> None:
    hot = np.eye(3, dtype=int)[LABELS]
    for columns in (["label_cat", "label_dog", "label_owl"], ["is cat", "is dog", "is owl"]):
        data = frame(**{name: hot[:, j] for j, name in enumerate(columns)})
        got = read(data, labels=columns if columns[0] == "is cat" else None)
        check(got)
        assert "one-hot labels of shape (30, 3) were read as class numbers" in got.notes
    check(read(data, labels="is *"))
    with pytest.raises(FileError, match="row 0 is not: expected a single 1 among zeros"):
        read(data * 0 + 1 / 3, labels="is *")


def test_names_of_classes_in_archives(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", probs=PROBS, y=WORDS, class_names=NAMES)
    check(read(tmp_path / "a.npz"))
    np.savez(tmp_path / "a.npz", probs=PROBS, y=WORDS)
    check(read(tmp_path / "a.npz", classes=NAMES))
    with pytest.raises(
        FileError, match=r"holds names, 'cat', 'dog', 'owl', but no column is called so: say classes="
    ):
        read(tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"classes= gives 2 names, 'cat', 'dog', and .* has 3 classes"):
        read(tmp_path / "a.npz", classes=["cat", "dog"])


def test_one_column_for_two_classes() -> None:
    got = read(pd.DataFrame({"prob_spam": PROBS[:, 0], "label": np.array(["ham", "spam"])[LABELS % 2]}))
    assert got.class_names == ("ham", "spam")
    np.testing.assert_array_equal(got.values, np.stack([1 - PROBS[:, 0], PROBS[:, 0]], axis=1))
    np.testing.assert_array_equal(got.labels, LABELS % 2)
    logit = read(pd.DataFrame({"logit": np.log(PROBS[:, 0]), "label": LABELS > 1}))
    np.testing.assert_array_equal(logit.values, np.stack([np.zeros(30), np.log(PROBS[:, 0])], axis=1))
    np.testing.assert_array_equal(logit.labels, LABELS > 1)


@pytest.mark.parametrize("names", [["logit_a", "logit_b"], ["a", "b"]])
def test_two_scores_are_not_two_classes(names: list[str]) -> None:
    scores = pd.DataFrame(np.log(PROBS[:, :2]), columns=names)
    for data in (scores, scores.round({names[0]: 0}) if names[0] != "a" else scores):
        with pytest.raises(FileError, match="neither names nor labels say whether each is of a class"):
            read(data.assign(label=LABELS > 1))
    assert read(scores.assign(label=np.array(["a", "b"])[LABELS % 2])).n_classes == 2
    assert read(scores.assign(label=LABELS > 1), values=names[1]).class_names in (None, ("False", "True"))


def test_weights_and_labels_by_name(tmp_path: Path) -> None:
    weights = RNG.random(30)
    data = frame(sample_weight=weights, coarse=["pet"] * 30, fine=WORDS)
    got = read(data, weights="sample_weight", labels="fine")
    check(got)
    np.testing.assert_array_equal(got.weights, weights)
    assert got.aside == ("coarse",)
    assert read(data, labels="fine").weights is None
    np.testing.assert_array_equal(
        read(write(tmp_path / "a.parquet", got), weights="weights").weights, weights
    )
    for wrong, result in (
        (-1.0, "entry 3 is negative"),
        (np.nan, "missing values in 1 of 30 rows .* in row 3"),
    ):
        with pytest.raises(FileError, match=result):
            read(frame(sample_weight=np.where(np.arange(30) == 3, wrong, weights)), weights="sample_weight")
    with pytest.raises(
        FileError, match="has several arrays of labels, 'label', 'gt': say which with labels="
    ):
        read(frame(label=WORDS, gt=WORDS))


def test_labels_that_are_not_needed_are_not_read() -> None:
    for labels in (["fish"] * 30, [None] * 30, LABELS + 7):
        got = read(frame(label=labels, id=range(30)), with_labels=False)
        assert (got.labels, got.aside) == (None, ("label", "id"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            frame(label=[*WORDS[:-1], "fish"]).to_csv(),
            r"has 'fish' in row 29 .*none of the classes 'cat', 'dog', 'owl'",
        ),
        (frame(label=[*WORDS[:-1], ""]).to_csv(), r"in 1 of 30 rows \(1 in 'label'\), first in row 29"),
        (
            "cat,dog,label\n" + "1,2,cat\n" * 200 + "1,x,cat\n",
            r"column 'dog' has 'x' in row 200 .*: expected numbers",
        ),
        ('logits,label\n"[1, 2]",0\n', r"'logits' in .* has '\[1, 2\]' in row 0"),
        ("logit_a,logit_b,logit_c,label\n" + "1,2,3,0\n" * 9 + "1,2,3,b\n", "has '0' in row 0"),
    ],
)
def test_messages_name_the_cell(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(FileError, match=message):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".parquet", ".npz", ".h5"])
def test_what_is_written_keeps_the_names(tmp_path: Path, suffix: str) -> None:
    made = LogitsSet(PROBS, LABELS, "probabilities", class_names=tuple(NAMES))
    check(read(write(tmp_path / f"a{suffix}", made)))


def in_excel(path: Path, **how: Any) -> None:
    with pd.ExcelWriter(path) as sheets:
        if "sheet_name" in how:
            pd.DataFrame({"note": ["see the other sheet"]}).to_excel(sheets, sheet_name="info", index=False)
        pd.DataFrame([["Run 7"]]).to_excel(
            sheets, index=False, header=False, sheet_name=how.get("sheet_name", "Sheet1")
        )
        frame(label=WORDS).to_excel(sheets, index=False, **{"startrow": 2, **how})


LINES = frame(label=WORDS).to_csv(index=False)
ROWS = [
    {"probs": dict(zip(NAMES, row, strict=True)), "label": w}
    for row, w in zip(PROBS.tolist(), WORDS, strict=True)
]
UNUSUAL: dict[str, Callable[[Path], Any]] = {
    "comment.csv": lambda p: p.write_text("# model A, seed 3, b, 1\n" * 300 + LINES),
    "total.csv": lambda p: p.write_text(LINES + "Total,,,\n"),
    "lower.xlsx": lambda p: in_excel(p, startrow=3, startcol=1),
    "second.xlsx": lambda p: in_excel(p, sheet_name="data"),
    "nested.json": lambda p: p.write_text(json.dumps(ROWS)),
    "nested.jsonl": lambda p: p.write_text("\n".join(map(json.dumps, ROWS))),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_stands_around_the_numbers(tmp_path: Path, name: str) -> None:
    UNUSUAL[name](tmp_path / name)
    if name == "total.csv":
        with pytest.raises(FileError, match="missing values in 1 of 31 rows"):
            read(tmp_path / name)
    check(read(tmp_path / name, drop_missing=name == "total.csv"))


def test_numbers_are_read_however_they_are_spelt(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("logit_0;logit_1;label\n 0,5 ;-1e3;1\n1;-inf;0\n")
    assert read(tmp_path / "a.csv").values.tolist() == [[0.5, -1000], [1, -np.inf]]
    rows = ["1,2"] * 300_000 + ["1.5,-inf"]  # types are not inferred from the first rows
    (tmp_path / "a.csv").write_text("logit_0,logit_1\n" + "\n".join(rows))
    assert read(tmp_path / "a.csv").values[-1].tolist() == [1.5, -np.inf]
