"""Samples of lm-evaluation-harness, as its versions have written them, from the first command to the report."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import monocal as mc

OPTIONS = ["Paris", "Rome", "3", "0", "1"]


def sample(i: int, values: np.ndarray, target: object, **more: object) -> dict[str, Any]:
    """As ``--log_samples`` writes it: everything as text, requests under names."""
    pairs = [[f"{value}", "False"] for value in values]
    acc = float(np.argmax(values) == more.pop("gold", target))
    return {
        "doc_id": i,
        "doc": {"question": "...", "choices": OPTIONS[: len(values)]},
        "target": str(target),
        "arguments": {
            f"gen_args_{j}": {"arg_0": "Question", "arg_1": f" {OPTIONS[j]}"} for j in range(len(values))
        },
        "resps": [[pair] for pair in pairs],
        "filtered_resps": pairs,
        "filter": "none",
        "metrics": ["acc"],
        "acc": acc,
        **more,
    }


def questions(n: int, seed: int, most: int = 5) -> tuple[list[np.ndarray], np.ndarray]:
    """Log-likelihoods of three to five options that are twice as steep as they should be."""
    rng = np.random.default_rng(seed)
    values = [-20 + 2 * rng.standard_normal(rng.integers(3, most + 1)) for _ in range(n)]
    return values, np.array([rng.choice(len(v), p=softmax(v / 2)) for v in values])


def written(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return path


def test_options_are_classes_and_missing_ones_are_not_available(tmp_path: Path) -> None:
    values, labels = questions(200, 0)
    records = [sample(i, v, y) for i, (v, y) in enumerate(zip(values, labels, strict=True))]
    result = mc.read(written(tmp_path / "samples_arc.jsonl", records), need_labels=True)
    assert result.kind == "logits"
    assert result.values.shape == (200, 5)
    for row, options in zip(result.values, values, strict=True):
        np.testing.assert_array_equal(row[: len(options)], options)
        assert np.isneginf(row[len(options) :]).all()
    np.testing.assert_array_equal(result.labels, labels)
    assert any("questions have 3 to 5 options" in note for note in result.notes)
    older = [
        {
            **{k: r[k] for k in ("doc_id", "doc", "acc")},
            "target": int(r["target"]),
            "arguments": [["Question", a["arg_1"]] for a in r["arguments"].values()],
            "resps": [[[float(p[0]), False]] for p in r["filtered_resps"]],
        }
        for r in records
    ]
    packed = tmp_path / "older.jsonl.gz"
    packed.write_bytes(gzip.compress(written(tmp_path / "older.jsonl", older).read_bytes()))
    again = mc.read(packed, need_labels=True)
    np.testing.assert_array_equal(again.values, result.values)
    np.testing.assert_array_equal(again.labels, result.labels)
    # Temperature scaling, which has one meaning whatever the number of options.
    assert mc.TemperatureScaling().fit(result.values, result.labels).temperature_ == pytest.approx(2, abs=0.4)


def test_targets_as_text(tmp_path: Path) -> None:
    """Options may be called 0, 1, 3: then the accuracy next to them says whether targets are numbers or texts."""
    values, labels = questions(40, 1)
    labels[:3] = [0, 1, 2]
    as_text = [sample(i, v, OPTIONS[y], gold=y) for i, (v, y) in enumerate(zip(values, labels, strict=True))]
    np.testing.assert_array_equal(mc.read(written(tmp_path / "a.jsonl", as_text)).labels, labels)
    longer = [(np.r_[v, [-30.0] * (5 - len(v))], 2 + i % 3) for i, v in enumerate(values)]
    numbered = [sample(i, v, OPTIONS[y], gold=y) for i, (v, y) in enumerate(longer)]  # '3', '0' and '1'
    np.testing.assert_array_equal(
        mc.read(written(tmp_path / "b.jsonl", numbered)).labels, [y for _, y in longer]
    )


def test_options_that_are_numbers_of_options(tmp_path: Path) -> None:
    """The accuracy next to the target "2" tells whether it is the option 2 or the option called 2."""
    rng = np.random.default_rng(4)
    names = ["1", "2", "3"]
    records, labels = [], rng.integers(2, size=30)
    for i, gold in enumerate(labels):
        values = -5 - 3 * rng.random(3)
        records.append({
            "doc_id": i, "target": names[gold], "acc": float(np.argmax(values) == gold),
            "arguments": [["Question", f" {name}"] for name in names],
            "filtered_resps": [[str(v), "False"] for v in values],
        })  # fmt: skip
    np.testing.assert_array_equal(mc.read(written(tmp_path / "a.jsonl", records)).labels, labels)
    bare = [{k: v for k, v in record.items() if k != "acc"} for record in records]
    with pytest.raises(mc.FileError, match=r"no 'acc' tells which is meant\. Keep 'acc' in the records"):
        mc.read(written(tmp_path / "b.jsonl", bare))
    for record, label in zip(bare, labels, strict=True):
        del record["arguments"]
        record["target"] = str(label)
    np.testing.assert_array_equal(mc.read(written(tmp_path / "c.jsonl", bare)).labels, labels)


def test_accuracies_that_contradict_the_labels(tmp_path: Path) -> None:
    values, labels = questions(60, 5)
    records = [sample(i, v, y) for i, (v, y) in enumerate(zip(values, labels, strict=True))]
    records[0]["acc"] = 1 - records[0]["acc"]  # a tie that was broken otherwise
    np.testing.assert_array_equal(mc.read(written(tmp_path / "a.jsonl", records)).labels, labels)
    for record, y, v in zip(records, labels, values, strict=True):
        record["target"] = str((y + 1) % len(v))
    with pytest.warns(
        UserWarning, match=r"contradicts the labels .* of 60 records\. Do the targets count from 0"
    ):
        mc.read(written(tmp_path / "b.jsonl", records))


def test_mutual_information_and_filters(tmp_path: Path) -> None:
    values, labels = questions(30, 2)
    records = []
    for i, (v, y) in enumerate(zip(values, labels, strict=True)):
        one = sample(i, v, y, acc_mutual_info=1.0)
        one["filtered_resps"] = one["filtered_resps"] + [["-5.0", "False"]] * len(v)
        records += [one, {**one, "filter": "other"}]
    result = mc.read(written(tmp_path / "samples.jsonl", records))
    assert result.values.shape[0] == 30
    np.testing.assert_array_equal(result.values[0, : len(values[0])], values[0])
    assert any("of the filters 'none', 'other' the first was taken" in note for note in result.notes)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([sample(0, np.array([-1.0, -2.0]), "[0, 1]")], "Tasks with several right options cannot be"),
        ([sample(0, np.array([-1.0, -2.0]), 2)], "expected the number or the text of one of its 2 options"),
        ([sample(0, np.array([-1.0, -2.0]), "7" * 5000)], "expected the number or the text of one of its 2"),
        (
            [{"target": "4", "filtered_resps": ["The answer is 4"]}],
            "expected a log-likelihood for each of two",
        ),
        ([{"target": "word", "resps": [[["-3.2", "True"]]]}], "output_type: multiple_choice"),
        ([{"target": "0", "filtered_resps": [["nan", "False"], ["-1.0", "False"]]}], "a log-likelihood"),
        ([{"target": "0", "filtered_resps": ["18", "17"]}], "expected a log-likelihood for each of two"),
        (
            [sample(0, np.array([-1.0, -2.0]), 0), {"doc_id": 1, "target": "0"}],
            "record 1, has no 'filtered_resps', others have",
        ),
        ([{"logits": [1.0, 2.0], "label": 0}, {"logits": [1.0], "label": 0}], "lists of different lengths"),
        (
            [{"logits": [1.0, 2.0], "y": 0}, {"logits": [1.0, 0.0]}],
            "missing values in 1 of 2 rows (1 in 'y')",
        ),
        ([[1, 2]], "record 0, is no row"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, records: list[Any], message: str) -> None:
    with pytest.raises(mc.FileError, match=re.escape(message)):
        mc.read(written(tmp_path / "samples.jsonl", records), need_labels=True)
