"""A CSV as people have it, from the first command to the report: what was taken for what, what looks wrong, what is kept."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from cli_helpers import Run, result_of

import monocal as mc
from monocal import data
from monocal.report.collect import collect

NAMES = ["cat", "dog", "owl"]
RNG = np.random.default_rng(4)


def probabilities(n: int) -> tuple[np.ndarray, np.ndarray]:
    z = RNG.normal(size=(n, 3)) * 2
    truth = np.exp(z / 1.5) / np.exp(z / 1.5).sum(axis=1, keepdims=True)
    said = np.round(np.exp(z) / np.exp(z).sum(axis=1, keepdims=True), 6)
    said[:, 2] = 1 - said[:, 0] - said[:, 1]
    return said, np.array([RNG.choice(3, p=row) for row in truth])


PROBS, LABELS = probabilities(200)
PETS = pd.DataFrame(PROBS, columns=NAMES)
PETS.insert(0, "id", [f"{i:04}" for i in range(200)])
PETS["label"] = [NAMES[j] for j in LABELS]
PROB = {name: f"prob_{name}" for name in NAMES}


@pytest.fixture
def pets(folder: Path) -> Path:
    """pets.csv and other.csv, which has no labels and its columns in another order."""
    PETS.to_csv(folder / "pets.csv", index=False)
    PETS[["id", "owl", "cat", "dog"]].rename(columns=PROB).to_csv(folder / "other.csv", index=False)
    return folder


def test_from_a_csv_to_a_report(run: Run, pets: Path) -> None:
    said = run("fit", "pets.csv", "--kind", "probabilities", "-m", "ts", "-o", "cal.json")
    assert said.stdout.splitlines()[0] == (
        "pets.csv: 200 rows, probabilities of 3 classes in the columns 'cat', 'dog', 'owl', labels in 'label'; other columns: "
        "'id'."
    )
    assert "labels are names of classes, matched with the columns" in said.stderr
    assert said.stdout.splitlines()[-1] == "Next: monocal apply cal.json TEST -o probs.csv"
    assert list(mc.load("cal.json").feature_names_in_) == NAMES
    run("report", "pets.csv", "--kind", "probabilities", "--no-compare", "-o", "report.html")
    assert (pets / "report.html").read_text().rstrip().endswith("</html>")
    page = collect(data.read("pets.csv", kind="probabilities"), methods=False, n_boot=5)
    (pets / "shipped.json").write_text(page.saved)  # what the page hands out
    assert list(mc.load("shipped.json").feature_names_in_) == NAMES


def test_names_and_ids_are_carried_through(run: Run, pets: Path) -> None:
    run("fit", "pets.csv", "--kind", "probabilities", "-m", "ts", "-o", "cal.json")
    expected = mc.load("cal.json")
    del expected.feature_names_in_
    expected = expected.predict_proba(PROBS)
    for out in ("p.csv", "p.csv.gz", "p.parquet", "p.feather", "p.xlsx", "p.npz"):
        result = run("apply", "cal.json", "other.csv", "-o", out)
        assert "put in the order 'cat', 'dog', 'owl'" in result.stderr
        actual = data.read(out)
        assert (actual.kind, actual.class_names) == ("probabilities", ("owl", "cat", "dog"))
        np.testing.assert_allclose(actual.values, expected[:, [2, 0, 1]], atol=1e-6)
    order = ("owl", "cat", "dog")
    columns = ["id", *(f"prob_{n}" for n in order), *(f"prob_{n}_calibrated" for n in order)]
    assert list(pd.read_csv("p.csv", dtype=str).columns) == columns
    assert (
        pd.read_csv("p.csv", dtype=str)["id"].tolist() == PETS["id"].tolist()
    )  # zeros before a number are kept
    run("apply", "cal.json", "pets.csv", "--kind", "probabilities", "-o", "q.csv")
    assert list(pd.read_csv("q.csv").columns) == [*PETS.columns, *(f"{n}_calibrated" for n in NAMES)]
    assert pd.read_csv("q.csv")["label"].tolist() == PETS["label"].tolist()
    figures = json.loads(run("evaluate", "q.csv", "--metrics", "nll", "--json").stdout)["value"]
    assert figures["metrics"]["nll"]["value"] == pytest.approx(mc.metrics.nll(expected, LABELS), abs=1e-6)


def test_apply_does_not_mind_the_labels(run: Run, pets: Path) -> None:
    run("fit", "pets.csv", "--kind", "probabilities", "-m", "ts", "-o", "cal.json")
    PETS.assign(label=["fish", *PETS["label"][1:]]).to_csv("odd.csv", index=False)
    assert "none of the classes" in run("evaluate", "odd.csv", "-c", "cal.json", code=1).stderr
    run("apply", "cal.json", "odd.csv", "-o", "p.csv")
    assert pd.read_csv("p.csv")["label"][0] == "fish"
    np.savez("odd.npz", probabilities=PROBS, labels=LABELS + 7, ids=np.arange(5))
    result = run("apply", "cal.json", "odd.npz", "-o", "p.npz")
    assert "'ids' has another number of rows and is left out" in result.stderr
    with np.load("p.npz") as actual:
        assert set(actual.files) == {"probabilities", "labels", "classes"}
        np.testing.assert_array_equal(actual["labels"], LABELS + 7)
    run("audit", "pets.csv", "p.csv", "--kind", "probabilities")


def test_weights_count_in_a_fit_and_an_evaluation(run: Run, folder: Path) -> None:
    plain, weights, kind = data.read(PETS, kind="probabilities"), RNG.random(200), "--kind probabilities"
    PETS.assign(w=weights).to_csv("w.csv", index=False)
    run(f"fit w.csv {kind} --weights-name w -m ts -o cal.json")
    weighted = mc.TemperatureScaling(input="probabilities").fit(
        plain.values, plain.labels, sample_weight=weights
    )
    assert mc.load("cal.json").temperature_ == pytest.approx(weighted.temperature_)
    figures = result_of(run, f"evaluate w.csv {kind} --weights-name w --metrics nll")["value"]["metrics"]
    expected = mc.metrics.nll(plain.values, plain.labels, sample_weight=weights)
    assert figures["nll"]["value"] == pytest.approx(expected)
    refused = run(f"compare w.csv {kind} --weights-name w", code=1)
    assert "--weights-name is for fit and evaluate" in refused.stderr


ROOT = Path(__file__).resolve().parents[2]


def test_every_command_for_a_file_runs_as_pasted(run: Run, folder: Path) -> None:
    probs = PETS.rename(columns=PROB)
    pets = PETS.assign(age=RNG.integers(20, 80, 200))
    pets.to_csv("pets.csv", index=False)
    pets.to_csv("semicolons.csv", index=False, sep=";", decimal=",")
    pets.to_excel("pets.xlsx", index=False)
    PETS.assign(**100 * PETS[NAMES]).to_csv("percent.csv", index=False)
    gap = PETS[:3].assign(dog=None)
    pd.concat([gap, PETS]).to_csv("gaps.csv", index=False)
    probs.to_json("records.json", orient="records")
    margins = np.log(PROBS[:, 0] / (1 - PROBS[:, 0]))
    pd.DataFrame({"margin": margins, "label": np.where(LABELS == 0, "yes", "no")}).to_csv(
        "margins.csv", index=False
    )
    for name in ("probs.csv", "probs.csv.gz"):
        probs.to_csv(name, index=False)
    probs.to_parquet("probs.parquet")
    both = PETS.rename(columns={name: f"m1_prob_{name}" for name in NAMES})
    both.join(PETS[NAMES].add_prefix("m2_prob_")).to_csv("two.csv", index=False)
    probs.rename(columns={"label": "fine"}).assign(coarse="pet").to_csv("levels.csv", index=False)
    probs.assign(w=1.0).to_csv("weighted.csv", index=False)
    PETS[NAMES].to_csv("scores.csv", index=False)
    (folder / "truth.txt").write_text("\n".join(PETS["label"]))
    np.savez("from_one.npz", probs=PROBS, labels=LABELS + 1)
    hot = pd.get_dummies(PETS["label"], prefix="is", dtype=int)
    probs.drop(columns="label").join(hot).to_csv("one_hot.csv", index=False)
    spam = pd.DataFrame({"y_pred_proba": PROBS[:, 0], "y_true": (LABELS == 0).astype(int)})
    spam.to_csv("two_classes.csv", index=False)
    words = np.where(LABELS == 0, "spam", "ham")
    pd.DataFrame({"prob_spam": PROBS[:, 0], "label": words}).to_csv("spam.csv", index=False)
    np.savez("outputs.npz", logits=np.log(PROBS), labels=LABELS)
    torch.save({"logits": torch.tensor(np.log(PROBS)), "labels": torch.tensor(LABELS)}, "outputs.pt")
    z = np.log(PROBS).tolist()
    samples = [
        {"target": str(y), "filtered_resps": [[str(v), "False"] for v in row]}
        for y, row in zip(LABELS, z, strict=True)
    ]
    plain = [{"logits": row, "label": int(y)} for y, row in zip(LABELS, z, strict=True)]
    for name, lines in (("samples_arc.jsonl", samples), ("rows.jsonl", plain)):
        Path(name).write_text("\n".join(map(json.dumps, lines)))
    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    commands = re.findall(r"\| `monocal (fit .*?)` \|", page)
    assert len(commands) == len(re.findall(r"^\| .* \| `monocal", page, re.MULTILINE)) >= 16
    result = {}
    for command in commands:
        run(*shlex.split(command), "-m", "ts", "--force")
        result[command.split()[1]] = mc.load("cal.json").temperature_
    of_two = ("both.npz", "spam.csv", "two_classes.csv", "margins.csv")
    alike = {name: value for name, value in result.items() if name not in of_two}
    assert list(alike.values()) == pytest.approx([result["pets.csv"]] * len(alike), rel=1e-4)
    assert [result[name] for name in ("spam.csv", "margins.csv")] == pytest.approx(
        [result["two_classes.csv"]] * 2, rel=1e-4
    )


LARGEST = PROBS.argmax(axis=1)


@pytest.mark.parametrize(
    ("labels", "rows", "message"),
    [
        (
            (LARGEST + 1) % 3,
            200,
            "in 0.0% of the rows, less than guessing would (33.3%): check that rows and columns",
        ),
        (np.zeros(200, int), 200, "All 200 labels of a.npz are 0: with one class there is little to learn"),
        (LARGEST, 200, "names the label in all 200 rows: were these rows seen in training?"),
        (LABELS, 30, "a.npz has 30 rows, few to learn from"),
        (LABELS, 200, None),
    ],
    ids=["below chance", "one class", "all right", "few", "fine"],
)
def test_what_looks_wrong_is_warned_of(run: Run, labels: np.ndarray, rows: int, message: str | None) -> None:
    np.savez("a.npz", probabilities=PROBS[:rows], labels=labels[:rows])
    said = run("fit", "a.npz", "-m", "ts", "-o", "cal.json").stderr
    warned = [line for line in said.splitlines() if line.startswith("warning: ")]
    assert len(warned) == (message is not None)
    assert message is None or message in warned[0]


def test_labels_shifted_by_one_are_warned_of(run: Run) -> None:
    few = LARGEST < 2  # the last class does not occur, so that no label is out of range
    np.savez("a.npz", probabilities=PROBS[few], labels=LARGEST[few] + 1)
    said = run("fit", "a.npz", "-m", "ts", "-o", "cal.json").stderr
    assert (
        "names the label in 0% of the rows, and in 100% if labels count from 1: if they do, say --first-label 1"
        in said
    )


@pytest.mark.parametrize(
    ("arrays", "arguments"),
    [
        ({"logits": np.where(np.eye(3)[LABELS] > 0, -np.inf, PROBS), "labels": LABELS}, "-m ts"),
        ({"logits": PROBS * 1e200, "labels": LABELS}, "-m mcct"),
        ({"logits": np.where(PROBS < 0.1, -np.inf, PROBS), "labels": LARGEST}, "-m mcct-published"),
        ({"logits": np.full((3, 3), -np.inf), "labels": LABELS[:3]}, "-m ts"),
    ],
)
def test_messages_name_the_file(run: Run, arrays: dict[str, Any], arguments: str) -> None:
    np.savez("a.npz", **arrays)
    result = run("fit", "a.npz", "-o", "cal.json", *arguments.split(), code=1)
    error = next(line for line in result.stderr.splitlines() if line.startswith("error: "))
    assert "a.npz" in error
