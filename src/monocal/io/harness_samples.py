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
# In which share of the records the accuracy may contradict the label: options can tie, and lengths are not known exactly.
_FEW = 0.1

Record = dict[str, Any]


def arrays_of(path: Path, records: list[Record]) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Logits, ids and labels of the samples that ``--log_samples`` writes, and what was done to read them."""
    notes = ["samples of lm-evaluation-harness: the log-likelihoods of the options were read as logits"]
    bare = next((i for i, one in enumerate(records) if one.keys().isdisjoint(_RESPONSES)), None)
    if bare is not None:
        raise FileError(
            f"{path}, record {bare}, has no {_RESPONSES[0]!r}, others have: drop it, or evaluate it again."
        )
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
    stray = next((i for i, one in enumerate(ids) if not isinstance(one, str | int | float)), None)
    if stray is not None:
        raise FileError(
            f"{path}, record {stray}, has the doc_id {str(ids[stray])[:60]!r}: expected a number or a word."
        )
    words = any(isinstance(one, str) for one in ids)
    arrays = {"logits": values, "id": np.array([str(one) for one in ids] if words else ids)}
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
    texts = [_texts(record, len(of_row)) for record, of_row in zip(records, options, strict=True)]
    targets = [str(record["target"]).strip() for record in records]
    by_number = [
        int(target) if target.isdecimal() and len(target) < 10 and int(target) < len(of_row) else None
        for target, of_row in zip(targets, options, strict=True)
    ]
    by_text = [
        of_row.index(target) if of_row.count(target) == 1 else None
        for target, of_row in zip(targets, texts, strict=True)
    ]
    possible = [np.array(way) for way in (by_number, by_text) if None not in way]
    if not possible:
        row = max(by_number.index(None), by_text.index(None))
        raise FileError(
            f"{path}, record {row}, has the target {targets[row][:60]!r}: expected the number or the text of one of its "
            f"{len(options[row])} options. Tasks with several right options cannot be calibrated."
        )
    answers = _answers(records, options, texts)
    wrong = [sum((labels[i] == best) != right for i, best, right in answers) for labels in possible]
    if len(possible) == 2 and wrong[0] == wrong[1] and (possible[0] != possible[1]).any():
        row = int(np.argmax(possible[0] != possible[1]))
        raise FileError(
            f"{path}, record {row}, has the target {targets[row][:60]!r}, which is the number of one option and the text of "
            "another, and no accuracy tells which is meant. Keep 'acc' in the records, or write the number of the right option, "
            "counted from 0, as 'target' and leave 'arguments' out."
        )
    if min(wrong) > _FEW * len(answers):
        warn(
            f"{path}: the accuracies in the records contradict the labels read from 'target' in {min(wrong)} of {len(answers)} "
            "cases. Do the targets count from 0, and are the options in their order?"
        )
    return possible[wrong.index(min(wrong))]


def _texts(record: Record, n_options: int) -> list[str]:
    """Options are the last arguments of the requests: ``{"gen_args_0": {"arg_0": question, "arg_1": option}}``, or lists."""
    arguments = record.get("arguments")
    requests = list(arguments.values()) if isinstance(arguments, dict) else arguments
    parts = [list(r.values()) if isinstance(r, dict) else r for r in (requests or [])[:n_options]]
    return [str(part[-1]).strip() for part in parts if isinstance(part, list) and part]


def _answers(
    records: list[Record], options: list[list[float]], texts: list[list[str]]
) -> list[tuple[int, int, bool]]:
    """Record, option that the model chose, whether that was right: by every accuracy of the record that can be computed here.

    ``acc`` goes by the log-likelihoods, ``acc_norm`` by those per character and ``acc_bytes`` by those per byte.
    """
    answers = []
    for i, (record, values, of_record) in enumerate(zip(records, options, texts, strict=True)):
        lengths = {"acc": [1] * len(values)}
        if len(of_record) == len(values) and all(of_record):
            lengths["acc_norm"] = [len(text) for text in of_record]
            lengths["acc_bytes"] = [len(text.encode(errors="replace")) for text in of_record]
        for name, length in lengths.items():
            if isinstance(record.get(name), int | float):
                answers.append((i, int(np.argmax(np.divide(values, length))), record[name] == 1))
    return answers
