"""Responses of language-model servers as rows of top-k log-probabilities, and calibrated ones back into their places.

    chat          choices[].logprobs.content[] = {token, logprob, top_logprobs: [{token, logprob}, ...]}
    completions   choices[].logprobs = {tokens, token_logprobs, top_logprobs: [{token: logprob, ...}, ...]}
    vLLM          prompt_logprobs[] and outputs[].logprobs[] = {id: {logprob, rank, decoded_token}, ...}

A *position* is one token of a text with the tokens that the model held for likely there. Servers name the token that really
stands there even where it is not among the k largest: such an entry is no part of the row. It is known by its rank, where the
server tells ranks; else by rows that have it being longer than others; else it stands first though it is the lowest.

Responses may be parsed JSON or objects with attributes of these names (the clients' and vLLM's own).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..data.json_lines import read_json
from ..errors import InputError
from .vocabulary import Vocabulary, number_of

# What servers write for "very unlikely", and for -inf: no logarithm of anything.
SENTINEL = -9999.0


def _get(holder: Any, key: Any) -> Any:
    """What a holder has under a name, or at a place; None where it has nothing."""
    if isinstance(holder, Mapping):
        return holder.get(key)
    return holder[key] if isinstance(key, int) else getattr(holder, key, None)


def _set(holder: Any, key: Any, value: float) -> None:
    if isinstance(holder, dict | list):
        holder[key] = value
    else:
        setattr(holder, key, value)


@dataclass(frozen=True)
class Entry:
    """A number in a response: ``holder[key]``."""

    holder: Any
    key: Any
    name: Any = None  # of its token: text, or a number
    rank: int | None = None

    @property
    def value(self) -> float:
        """The log-probability, -inf for a sentinel."""
        found = _get(self.holder, self.key)
        if found is not None and (isinstance(found, bool) or not isinstance(found, int | float)):
            raise InputError(
                f"responses: {found!r} stands for the log-probability of {self.name!r}: expected a number."
            )
        return -np.inf if found is None or found <= SENTINEL else float(found)


@dataclass(frozen=True)
class Position:
    """One token of a text."""

    place: tuple[int, int, int]  # response, choice, position in the text
    entries: list[Entry]
    actual: Any = None  # the token that stands here: its text or number
    own: Entry | None = None  # where its log-probability stands by itself
    by_order: bool = False  # whether it is known by standing first alone

    @property
    def where(self) -> str:
        response, choice, index = self.place
        return f"response {response}, choice {choice}, position {index}"


def _body(i: int, response: Any) -> Any:
    """The response itself, where it is wrapped as in the output of a batch."""
    if not isinstance(response, Mapping) or "response" not in response:
        return response
    body = _get(response["response"], "body") if response["response"] else None
    if body is None or response.get("error"):
        raise InputError(
            f"responses: response {i} of the batch is an error ({str(response.get('error'))[:80]}). Leave it out, and its "
            "label with it."
        )
    return body


def positions(responses: Sequence[Any], part: str | None, at: int | None) -> list[Position]:
    """All positions, or of each text the one ``at`` a place; ``part`` is "prompt", "generated" or None for the one there is."""
    bodies = [_body(i, response) for i, response in enumerate(responses)]
    found = {
        name: [read(i, body) for i, body in enumerate(bodies)]
        for name, read in (("generated", _generated), ("prompt", _prompts))
        if part in (None, name)
    }
    there = [name for name, texts in found.items() if any(texts)]
    if len(there) > 1:
        raise InputError(
            "responses: there are log-probabilities of prompts and of what was generated. Say which: part='prompt' or "
            "part='generated'."
        )
    if not there:
        what = f"of the {part} part " if part else ""
        raise InputError(
            f"responses: there are no log-probabilities {what}in them. Ask the server for some: logprobs=true and "
            "top_logprobs=20 (chat), logprobs=20 (completions), prompt_logprobs=20 (vLLM)."
        )
    texts = found[there[0]]
    lacking = next((i for i, of_response in enumerate(texts) if not of_response), None)
    if lacking is not None:
        raise InputError(
            f"responses: response {lacking} has no log-probabilities, others have. Leave it out, and its label with it."
        )
    rows = [p for of_response in texts for text in of_response for p in _chosen(text, at)]
    for row in rows:
        if not row.entries:
            raise InputError(
                f"responses: {row.where} names no likely tokens. Ask the server for them: top_logprobs=20 (chat), logprobs=20 "
                "(completions)."
            )
    return rows


def _chosen(text: list[Position], at: int | None) -> list[Position]:
    if at is None:
        return text
    if not -len(text) <= at < len(text):
        response, choice, _ = text[0].place
        raise InputError(
            f"position: response {response}, choice {choice} has {len(text)} positions with log-probabilities, and "
            f"{at} is asked for."
        )
    return [text[at]]


def _generated(i: int, response: Any) -> list[list[Position]]:
    texts = []
    for c, choice in enumerate(_get(response, "choices") or _get(response, "outputs") or ()):
        found = _get(choice, "logprobs")
        if found is None:
            continue
        if _get_content(found) is not None:
            text = [_chat(found_at, (i, c, j)) for j, found_at in enumerate(_get_content(found))]
        elif not isinstance(found, Mapping) and isinstance(found, Sequence):
            text = list(_by_number(found, _get(choice, "token_ids"), i, c))
        else:
            text = list(_completion(found, i, c))
        texts.append(text)
    return [text for text in texts if text]


def _prompts(i: int, response: Any) -> list[list[Position]]:
    """Of a response (chat, and vLLM's own objects) or of its choices (completions)."""
    holders = [response, *(_get(response, "choices") or ())]
    texts = []
    for c, holder in enumerate(holders):
        found = _get(holder, "prompt_logprobs")
        if found:
            texts.append(list(_by_number(found, _get(holder, "prompt_token_ids"), i, max(c - 1, 0))))
    return [text for text in texts if text]


def _get_content(logprobs: Any) -> Any:
    return None if isinstance(logprobs, list) else _get(logprobs, "content")


def _chat(item: Any, place: tuple[int, int, int]) -> Position:
    entries = [Entry(e, "logprob", _get(e, "token")) for e in _get(item, "top_logprobs") or ()]
    return Position(place, entries, _get(item, "token"), Entry(item, "logprob", _get(item, "token")))


def _completion(logprobs: Any, i: int, c: int) -> Iterator[Position]:
    """The first token of an echoed prompt has no log-probability: null."""
    tokens, own = _get(logprobs, "tokens") or (), _get(logprobs, "token_logprobs")
    for j, found in enumerate(_get(logprobs, "top_logprobs") or ()):
        if found is not None:
            name = tokens[j] if j < len(tokens) else None
            entries = [Entry(found, token, token) for token in found]
            yield Position((i, c, j), entries, name, Entry(own, j, name) if own else None)


def _by_number(found: Sequence[Any], token_ids: Any, i: int, c: int) -> Iterator[Position]:
    """vLLM's own form. The actual token is the first of its row; the first token of a prompt has no row."""
    for j, row in enumerate(found):
        if not row:
            continue
        entries = []
        for key, entry in row.items():
            number = int(key) if isinstance(key, int) or str(key).isdecimal() else number_of(key)
            if number is None:
                raise InputError(
                    f"responses: response {i}, choice {c}, position {j} has the key {key!r}: expected a token's number."
                )
            plain = isinstance(entry, int | float)
            entries.append(
                Entry(row, key, number)
                if plain
                else Entry(entry, "logprob", number, rank=_get(entry, "rank"))
            )
        actual = entries[0].name if token_ids is None else int(token_ids[j])
        yield Position((i, c, j), entries, actual, by_order=token_ids is None)


def _added(rows: Sequence[Position], k: int | None) -> list[set[int]]:
    """Which entries of each row, by their places, are not among its k largest: at most the actual token, where k is not given."""
    if all(entry.rank is not None for row in rows for entry in row.entries):
        k = _asked(rows) if k is None else k
        return [{i for i, e in enumerate(row.entries) if e.rank > k} for row in rows]  # type: ignore[operator]
    values = [[entry.value for entry in row.entries] for row in rows]
    if k is not None:
        return [set(np.argsort(-np.array(of_row), kind="stable")[k:].tolist()) for of_row in values]
    lowest = [int(np.argmin(of_row)) for of_row in values]
    is_actual = [row.entries[i].name == row.actual for row, i in zip(rows, lowest, strict=True)]
    lengths = [len(row.entries) for row in rows]
    longer = [n == max(lengths) for n in lengths]
    if min(lengths) == max(lengths) - 1 and all(
        actual for actual, more in zip(is_actual, longer, strict=True) if more
    ):
        return [{i} if more else set() for i, more in zip(lowest, longer, strict=True)]
    # The lowest by itself would stand last. As the k-th largest it would stand first as well: then it is not missed much.
    return [
        {0} if actual and i == 0 and n > 1 else set()
        for actual, i, n in zip(is_actual, lowest, lengths, strict=True)
    ]


def _asked(rows: Sequence[Position]) -> int:
    """How many the server was asked for: ranks run from 1 to k, and at most one more is above."""
    in_order = [sum(entry.rank <= len(row.entries) for entry in row.entries) for row in rows]  # type: ignore[operator]
    return min(in_order) if max(in_order) == min(in_order) + 1 else max(in_order)


@dataclass(frozen=True)
class Origin:
    """Where rows came from: responses, which positions of them, and what their tokens are called."""

    responses: Any
    single: bool  # whether one response was given, and neither a list nor a file
    part: str | None
    position: int | None
    vocabulary: Vocabulary
    rows: np.ndarray  # (n,), which of the positions
    places: np.ndarray  # (n, 3)
    tokens: np.ndarray | None  # (n,)

    def __getitem__(self, index: np.ndarray) -> Origin:
        tokens = None if self.tokens is None else self.tokens[index]
        return replace(self, rows=self.rows[index], places=self.places[index], tokens=tokens)

    def written(self, ids: np.ndarray, values: np.ndarray, others: np.ndarray) -> Any:
        """The responses with log-probabilities (n, k) of these tokens, ``others`` (n,) for any other; all else as it was."""
        responses = copy.deepcopy(self.responses)
        found = positions(responses, self.part, self.position)
        vocabulary = Vocabulary.of(self.vocabulary)
        for row, numbers, new, other in zip(self.rows, ids, values, others, strict=True):
            at = found[row]
            known = dict(zip(numbers.tolist(), new.tolist(), strict=True))
            names = vocabulary.numbers([entry.name for entry in at.entries], at.where)
            for entry, number in zip(at.entries, names, strict=True):
                if np.isfinite(entry.value):
                    _set(entry.holder, entry.key, _plain(known.get(number, float(other))))
            if at.own is not None and np.isfinite(at.own.value):
                number = vocabulary.labels([at.actual])[0]
                _set(at.own.holder, at.own.key, _plain(known.get(number, float(other))))
        return responses[0] if self.single else responses


def _plain(value: float) -> float:
    """As JSON and the servers have it."""
    return max(value, SENTINEL)


def read_top(
    given: Any, part: str | None, position: int | None, vocabulary: Any, k: int | None
) -> tuple[np.ndarray, np.ndarray, Origin]:
    """Log-probabilities (n, k), largest first, -inf in filled places; numbers of their tokens (n, k); where they came from."""
    if isinstance(given, str | os.PathLike):
        given = read_json(given)
    single = not isinstance(given, Sequence)
    responses = [given] if single else list(given)
    if not responses:
        raise InputError("responses: there are none.")
    rows = positions(responses, part, position)
    known = Vocabulary.of(vocabulary)
    numbers = {id(e): n for row in rows for e, n in zip(row.entries, _numbers(known, row), strict=True)}
    added = _added(rows, k)
    kept = [
        [entry for i, entry in enumerate(row.entries) if i not in beyond]
        for row, beyond in zip(rows, added, strict=True)
    ]
    width = max(map(len, kept))
    values, ids = np.full((len(rows), width), -np.inf), np.zeros((len(rows), width), dtype=np.int64)
    for i, of_row in enumerate(kept):
        entries = sorted(of_row, key=lambda entry: -entry.value)
        values[i, : len(entries)] = [entry.value for entry in entries]
        ids[i, : len(entries)] = [numbers[id(entry)] for entry in entries]
    actual = [row.actual for row in rows]
    if any(row.by_order and beyond - {0} for row, beyond in zip(rows, added, strict=True)):
        actual = []  # the order of the keys, which tells the actual token, is not the server's
    tokens = np.array(known.labels(actual), dtype=np.int64) if actual and None not in actual else None
    places = np.array([row.place for row in rows])
    return values, ids, Origin(responses, single, part, position, known, np.arange(len(rows)), places, tokens)


def _numbers(vocabulary: Vocabulary, row: Position) -> list[int]:
    return vocabulary.numbers([entry.name for entry in row.entries], row.where)
