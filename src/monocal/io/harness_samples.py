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
from monocal.io.named_arrays import NamedArrays

_RESPONSES = ("filtered_resps", "resps")
# How far above 0 a log-likelihood may be.
_ROUNDING = 1e-3
# In which share of the records the accuracy may contradict the label: options can tie, and lengths are not known exactly.
_FEW = 0.1


def open_samples(path: Path, records: list[dict[str, Any]]) -> NamedArrays:
    """Samples of a task of lm-evaluation-harness, as ``--log_samples`` writes them."""
    notes = ["samples of lm-evaluation-harness: the log-likelihoods of the options were read as logits"]
    bare = next(
        (i for i, record in enumerate(records) if not any(name in record for name in _RESPONSES)), None
    )
    if bare is not None:
        raise FileError(
            f"{path}, record {bare}, has no {_RESPONSES[0]!r}, others have: drop it, or evaluate it again."
        )
    filters = list(dict.fromkeys(str(record.get("filter")) for record in records))
    if len(filters) > 1:  # the same questions once more, answered otherwise
        records = [record for record in records if str(record.get("filter")) == filters[0]]
        notes.append(f"of the filters {listing(filters)} the first was taken")
    options = [_log_likelihoods(record, f"{path}, record {i}") for i, record in enumerate(records)]
    counts = sorted({len(found) for found in options})
    values = np.full((len(options), counts[-1]), -np.inf)
    for row, found in zip(values, options, strict=True):
        row[: len(found)] = found
    if len(counts) > 1:
        notes.append(
            f"questions have {counts[0]} to {counts[-1]} options; options that one lacks count as not available"
        )
    arrays = {"logits": values, "id": _ids(path, records)}
    if all("target" in record for record in records):
        arrays["labels"] = _targets(path, records, options)
    return NamedArrays(
        path, tuple(arrays), lambda wanted: [arrays[name] for name in wanted], notes=tuple(notes), ragged=True
    )


def _ids(path: Path, records: list[dict[str, Any]]) -> np.ndarray:
    found = [record.get("doc_id", i) for i, record in enumerate(records)]
    stray = next((i for i, one in enumerate(found) if not isinstance(one, str | int | float)), None)
    if stray is not None:
        raise FileError(
            f"{path}, record {stray}, has the doc_id {str(found[stray])[:60]!r}: expected a number or a word."
        )
    made = np.array(found)
    return made.astype(str) if made.dtype == object else made


def _log_likelihoods(record: dict[str, Any], where: str) -> list[float]:
    name = next(name for name in _RESPONSES if name in record)
    given = record[name]
    try:
        found = [_number(one) for one in given]
    except (TypeError, ValueError, IndexError):
        found = []
    if len(found) < 2 or any(
        not value <= _ROUNDING for value in found
    ):  # generated numbers are mostly above 0
        raise FileError(
            f"{where} has {str(given)[:60]!r} in {name!r}: expected a log-likelihood for each of two options or more. Evaluate a "
            "task with output_type: multiple_choice."
        )
    # The log-likelihoods without the question stand behind those with it.
    return found[: len(found) // 2] if "acc_mutual_info" in record else found


def _number(value: Any) -> float:
    """A log-likelihood, as a number, as text, or as the first of a list: ``[["-3.1", "False"]]``."""
    while isinstance(value, list):
        value = value[0]
    return float(value)


def _targets(path: Path, records: list[dict[str, Any]], options: list[list[float]]) -> np.ndarray:
    """The right options by their numbers, or by their texts; where both can be, by what agrees with the accuracies there."""
    texts = [_texts(record, len(of_row)) for record, of_row in zip(records, options, strict=True)]
    found: list[np.ndarray] = []
    lacking = []
    for way in (
        [_by_number(record, len(of_row)) for record, of_row in zip(records, options, strict=True)],
        [_by_text(record, of_record) for record, of_record in zip(records, texts, strict=True)],
    ):
        missing = next((i for i, target in enumerate(way) if target is None), None)
        if missing is None:
            found.append(np.array(way, dtype=np.int64))
        else:
            lacking.append(missing)
    if not found:
        row = max(lacking)
        raise FileError(
            f"{path}, record {row}, has the target {str(records[row]['target'])[:60]!r}: expected the number or the text of one "
            f"of its {len(options[row])} options. Tasks with several right options cannot be calibrated."
        )
    judged = _judged(records, options, texts)
    wrong = [sum((labels[i] == best) != right for i, best, right in judged) for labels in found]
    if len(found) == 2 and wrong[0] == wrong[1] and (found[0] != found[1]).any():
        row = int(np.argmax(found[0] != found[1]))
        raise FileError(
            f"{path}, record {row}, has the target {str(records[row]['target'])[:60]!r}, which is the number of one option and "
            "the text of another, and no accuracy tells which is meant. Keep 'acc' in the records, or write the number of the "
            "right option, counted from 0, as 'target' and leave 'arguments' out."
        )
    least = min(wrong)
    if least > _FEW * len(judged):
        warn(
            f"{path}: the accuracies in the records contradict the labels read from 'target' in {least} of {len(judged)} cases. "
            "Do the targets count from 0, and are the options in their order?"
        )
    return found[wrong.index(least)]


def _by_number(record: dict[str, Any], n_options: int) -> int | None:
    text = str(record["target"]).strip()
    return int(text) if text.isdecimal() and len(text) < 10 and int(text) < n_options else None


def _by_text(record: dict[str, Any], texts: list[str]) -> int | None:
    target = str(record["target"]).strip()
    return texts.index(target) if texts.count(target) == 1 else None


def _texts(record: dict[str, Any], n_options: int) -> list[str]:
    """Options are the last arguments of the requests: ``{"gen_args_0": {"arg_0": question, "arg_1": option}}``, or lists."""
    given = record.get("arguments")
    requests = list(given.values()) if isinstance(given, dict) else given if isinstance(given, list) else []
    parts = [list(r.values()) if isinstance(r, dict) else r for r in requests[:n_options]]
    return [str(part[-1]).strip() for part in parts if isinstance(part, list) and part]


def _judged(
    records: list[dict[str, Any]], options: list[list[float]], texts: list[list[str]]
) -> list[tuple[int, int, bool]]:
    """Record, option that the model chose, whether that was right: by every accuracy of the record that can be computed here.

    ``acc`` looks at the log-likelihoods, ``acc_norm`` at those per character and ``acc_bytes`` at those per byte.
    """
    found = []
    for i, (record, values, of_record) in enumerate(zip(records, options, texts, strict=True)):
        lengths = {"acc": [1] * len(values)}
        if len(of_record) == len(values) and all(of_record):
            lengths["acc_norm"] = [len(text) for text in of_record]
            lengths["acc_bytes"] = [len(text.encode(errors="replace")) for text in of_record]
        for name, length in lengths.items():
            if isinstance(record.get(name), int | float):
                found.append((i, int(np.argmax(np.divide(values, length))), record[name] == 1))
    return found
