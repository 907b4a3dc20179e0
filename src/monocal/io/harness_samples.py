"""Samples of lm-evaluation-harness:  a log-likelihood for each option of a question  ->  logits.

    samples_*.jsonl     {"doc_id": 7, "target": "2", "filtered_resps": [["-3.1", "False"], ["-1.9", "False"], ...]}

Questions may have different numbers of options: those that a question lacks are classes that are not available there (-inf), as
the last columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from monocal.errors import FileError, warn
from monocal.inputs.names import listing

_RESPONSES = ("filtered_resps", "resps")
_ROUNDING = 1e-3  # how far above 0 a log-likelihood may be
# In which share of the records the accuracy may contradict the label: options can tie.
_FEW = 0.1

Record = dict[str, Any]


def arrays_of(path: Path, records: list[Record]) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Logits, ids and labels of the samples that ``--log_samples`` writes, and what was done to read them."""
    notes = ["samples of lm-evaluation-harness: the log-likelihoods of the options were read as logits"]
    bare = next((i for i, one in enumerate(records) if one.keys().isdisjoint(_RESPONSES)), None)
    if bare is not None:
        raise FileError(f"{path}, record {bare}, has no 'filtered_resps', others have: drop it.")
    filters = list(dict.fromkeys(str(record.get("filter")) for record in records))
    if len(filters) > 1:  # the same questions once more, answered otherwise
        records = [record for record in records if str(record.get("filter")) == filters[0]]
        notes.append(f"of the filters {listing(filters)} the first was taken")
    options = [_log_likelihoods(record, f"{path}, record {i}") for i, record in enumerate(records)]
    counts = sorted(set(map(len, options)))
    values = np.full((len(options), counts[-1]), -np.inf)
    for row, of_row in zip(values, options, strict=True):
        row[: len(of_row)] = of_row
    if len(counts) > 1:
        notes.append(
            f"questions have {counts[0]} to {counts[-1]} options; options that one lacks count as not available"
        )
    ids = [record.get("doc_id", i) for i, record in enumerate(records)]
    if not all(isinstance(one, int) for one in ids):
        ids = list(map(str, ids))
    arrays = {"logits": values, "id": np.array(ids)}
    if all("target" in record for record in records):
        arrays["labels"] = _labels(path, records, options)
    return arrays, tuple(notes)


def _log_likelihoods(record: Record, where: str) -> list[float]:
    """One for each option, written as a number, as text, or as the first of a list: ``[["-3.1", "False"]]``."""
    name = next(name for name in _RESPONSES if name in record)
    values: list[float] = []
    try:
        for one in record[name]:
            while isinstance(one, list):
                one = one[0]
            values.append(float(one))
    except (TypeError, ValueError, IndexError):
        values = []
    if len(values) < 2 or any(
        not value <= _ROUNDING for value in values
    ):  # generated numbers are mostly above 0
        raise FileError(
            f"{where} has {str(record[name])[:60]!r} in {name!r}: expected a log-likelihood for each of two options or more. "
            "Evaluate a task with output_type: multiple_choice."
        )
    # The log-likelihoods without the question stand behind those with it.
    return values[: len(values) // 2] if "acc_mutual_info" in record else values


def _labels(path: Path, records: list[Record], options: list[list[float]]) -> np.ndarray:
    """The right options by their numbers, or by their texts; where both can be, by what agrees with the accuracies there."""
    targets = [str(record["target"]).strip() for record in records]
    by_number, by_text = [], []
    for record, target, values in zip(records, targets, options, strict=True):
        texts = _texts(record, len(values))
        numbered = target.isdecimal() and len(target) < 10 and int(target) < len(values)
        by_number.append(int(target) if numbered else None)
        by_text.append(texts.index(target) if texts.count(target) == 1 else None)
    possible = [np.array(way) for way in (by_number, by_text) if None not in way]
    if not possible:
        row = max(by_number.index(None), by_text.index(None))
        raise FileError(
            f"{path}, record {row}, has the target {targets[row][:60]!r}: expected the number or the text of one of its "
            f"{len(options[row])} options. Tasks with several right options cannot be calibrated."
        )
    judged = [i for i, record in enumerate(records) if isinstance(record.get("acc"), int | float)]
    right = np.array([records[i]["acc"] == 1 for i in judged], dtype=bool)
    chosen = np.array([np.argmax(options[i]) for i in judged], dtype=int)
    wrong = [int(((labels[judged] == chosen) != right).sum()) for labels in possible]
    if len(possible) == 2 and wrong[0] == wrong[1] and (possible[0] != possible[1]).any():
        row = int(np.argmax(possible[0] != possible[1]))
        raise FileError(
            f"{path}, record {row}, has the target {targets[row][:60]!r}, which is the number of one option and the text of "
            "another, and no 'acc' tells which is meant. Keep 'acc' in the records, or write the number of the right option, "
            "counted from 0, as 'target' and leave 'arguments' out."
        )
    if min(wrong) > _FEW * len(judged):
        warn(
            f"{path}: 'acc' in the records contradicts the labels read from 'target' in {min(wrong)} of {len(judged)} records. "
            "Do the targets count from 0, and are the options in their order?"
        )
    return possible[wrong.index(min(wrong))]


def _texts(record: Record, n_options: int) -> list[str]:
    """Options are the last arguments of the requests: ``{"gen_args_0": {"arg_0": question, "arg_1": option}}``, or lists."""
    arguments = record.get("arguments")
    requests = list(arguments.values()) if isinstance(arguments, dict) else arguments
    parts = [list(r.values()) if isinstance(r, dict) else r for r in (requests or [])[:n_options]]
    return [str(part[-1]).strip() for part in parts if isinstance(part, list) and part]
