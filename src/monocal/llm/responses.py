"""Responses of language-model servers as rows of top-k log-probabilities, and calibrated ones back into their places.

    chat          choices[].logprobs.content[] = {token, logprob, top_logprobs: [{token, logprob}, ...]}
    responses     output[].content[].logprobs[] = {token, logprob, top_logprobs: [{token, logprob}, ...]}
    completions   choices[].logprobs = {tokens, token_logprobs, top_logprobs: [{token: logprob, ...}, ...]}
    vLLM          prompt_logprobs[] and outputs[].logprobs[] = {id: {logprob, rank, decoded_token}, ...}

A *position* is one token of a text with the tokens that the model held for likely there. Servers name the token that really
stands there even where it is not among the k largest: such an entry is no part of the row. Where ``k`` is given it is beyond
the k largest; else its rank is above the length of its row, or it is strictly the lowest of its row (in a chat it stands first,
too). Every row is judged by itself, so that it is the same alone as among others.

Responses may be parsed JSON or objects with attributes of these names (the clients' and vLLM's own).
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import InputError
from ..io.opening import read_json

# What servers write for "very unlikely", and for -inf: no logarithm of anything.
SENTINEL = -9999.0
# Log-probabilities are below it; NaN, infinity and whole numbers that no float can hold are not.
_LARGEST = 1e300


def _get(holder: Any, key: Any) -> Any:
    """What a holder has under a name, or at a place; None where it has nothing."""
    if isinstance(holder, Mapping):
        return holder.get(key)
    return holder[key] if isinstance(key, int) else getattr(holder, key, None)


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
        logprob = _get(self.holder, self.key)
        number = isinstance(logprob, int | float) and not isinstance(logprob, bool)
        if logprob is not None and not (number and logprob < _LARGEST):
            raise InputError(
                f"responses: {logprob!r} is given as the log-probability of {self.name!r}: expected a number."
            )
        return -np.inf if logprob is None or logprob <= SENTINEL else float(logprob)

    def write(self, value: float) -> None:
        value = max(value, SENTINEL)  # as JSON and the servers have it
        if isinstance(self.holder, dict | list):
            self.holder[self.key] = value
        else:
            setattr(self.holder, self.key, value)


@dataclass(frozen=True)
class Position:
    """One token of a text."""

    place: tuple[int, int, int]  # response, choice, position in the text
    entries: list[Entry]
    actual: Any = None  # the token at this position: its text or number
    own: Entry | None = None  # where its log-probability is given by itself
    by_order: bool = False  # whether it is known by standing first alone
    falling: bool = False  # whether entries fall, but for an actual token that is not among the largest

    @property
    def where(self) -> str:
        return _where(*self.place)

    @property
    def own_place(self) -> int | None:
        """Where the actual token stands among the entries: by its name, and its number where several have that name."""
        if self.by_order:
            return 0
        alike = [i for i, entry in enumerate(self.entries) if entry.name == self.actual]
        if len(alike) > 1 and self.own is not None:
            alike = [i for i in alike if self.entries[i].value == self.own.value] or alike
        return alike[0] if alike else None

    def added(self, k: int | None) -> set[int]:
        """Which entries are not among the k largest: at most the actual token, where k is not given."""
        ranks = [entry.rank for entry in self.entries if entry.rank is not None]
        if len(ranks) == len(self.entries):
            beyond = {i for i, rank in enumerate(ranks) if rank > (len(ranks) if k is None else k)}
            if beyond or k is not None:
                return beyond
        values = np.array([entry.value for entry in self.entries])
        if k is not None:
            return set(np.argsort(-values, kind="stable")[k:].tolist())
        own = self.own_place
        if own is None or len(values) == 1 or (self.falling and own != 0):
            return set()
        # The lowest entry is the k-th largest or below it. If it is the k-th, little is lost.
        return {own} if values[own] < np.delete(values, own).min() else set()


def _where(response: int, choice: int, index: int | None = None) -> str:
    return f"response {response}, choice {choice}" + ("" if index is None else f", position {index}")


def positions(responses: Sequence[Any], part: str | None, at: int | None) -> list[Position]:
    """All positions, or of each text the one ``at`` a place; ``part`` is "prompt", "generated" or None for the one there is."""
    bodies = [_body(i, response) for i, response in enumerate(responses)]
    by_part = {
        name: [list(filter(None, read(i, body))) for i, body in enumerate(bodies)]
        for name, read in (("generated", _generated), ("prompt", _prompts))
        if part in (None, name)
    }
    present = [texts for texts in by_part.values() if any(texts)]
    if len(present) > 1:
        raise InputError(
            "responses: there are log-probabilities of prompts and of what was generated. Say which: part='prompt' or "
            "part='generated'."
        )
    if not present:
        what = f"of the {part} part " if part else ""
        raise InputError(
            f"responses: there are no log-probabilities {what}in them. Ask the server for some: logprobs=true and "
            "top_logprobs=20 (chat), include=['message.output_text.logprobs'] and top_logprobs=20 (Responses API), logprobs=20 "
            "(completions), prompt_logprobs=20 (vLLM)."
        )
    rows: list[Position] = []
    for i, texts in enumerate(present[0]):
        if not texts:
            raise InputError(
                f"responses: response {i} has no log-probabilities, others have. Leave it out, and its label with it."
            )
        for text in texts:
            if at is not None and not -len(text) <= at < len(text):
                raise InputError(
                    f"position: {_where(*text[0].place[:2])} has {len(text)} positions with log-probabilities, and {at} is "
                    "asked for."
                )
            rows += text if at is None else [text[at]]
    for row in rows:
        if not row.entries:
            raise InputError(
                f"responses: {row.where} names no likely tokens. Ask the server for them: top_logprobs=20 (chat), logprobs=20 "
                "(completions)."
            )
    return rows


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


def _generated(i: int, response: Any) -> Iterator[list[Position]]:
    yield from _responses_api(i, response)
    name = "choices" if _get(response, "choices") else "outputs"
    for c, choice in enumerate(_listed(response, name, f"response {i}")):
        logprobs = _get(choice, "logprobs")
        if isinstance(logprobs, Sequence):
            yield list(_by_number(choice, "logprobs", "token_ids", i, c))
        elif _get(logprobs, "content") is not None:
            yield [
                _chat(token, (i, c, j)) for j, token in enumerate(_listed(logprobs, "content", _where(i, c)))
            ]
        elif logprobs is not None:
            yield list(_completion(logprobs, i, c))


def _responses_api(i: int, response: Any) -> Iterator[list[Position]]:
    """The texts of OpenAI's Responses API. Its output also holds reasoning and calls of tools, which have no texts."""
    c = 0
    for item in _listed(response, "output", f"response {i}"):
        for part in _listed(item, "content", _where(i, c)):
            tokens = _listed(part, "logprobs", _where(i, c))
            if tokens:
                yield [_chat(token, (i, c, j)) for j, token in enumerate(tokens)]
                c += 1


def _prompts(i: int, response: Any) -> Iterator[list[Position]]:
    """Of a response (chat, and vLLM's own objects) or of its choices (completions)."""
    for c, holder in enumerate([response, *_listed(response, "choices", f"response {i}")]):
        yield list(_by_number(holder, "prompt_logprobs", "prompt_token_ids", i, max(c - 1, 0)))


def _listed(holder: Any, key: str, where: str) -> Sequence[Any]:
    """A list under a name; an empty one where there is nothing."""
    items = _get(holder, key)
    if items is None:
        return ()
    if isinstance(items, str) or not isinstance(items, Sequence):
        raise InputError(f"responses: {where} has {items!r:.40} under {key!r}: expected a list.")
    return items


def _chat(item: Any, place: tuple[int, int, int]) -> Position:
    where = _where(*place)
    entries = [Entry(e, "logprob", _name(e, where)) for e in _listed(item, "top_logprobs", where)]
    name = _name(item, where) if entries else None
    return Position(place, entries, name, Entry(item, "logprob", name), falling=True)


def _name(holder: Any, where: str) -> Any:
    """A token's text; with its bytes, where these are not those of the text."""
    text = _text(_get(holder, "token"), where)
    raw = _listed(holder, "bytes", where)
    if not raw or number_of(text) is not None or list(text.encode(errors="replace")) == list(raw):
        return text
    if not all(isinstance(byte, int) and 0 <= byte < 256 for byte in raw):
        raise InputError(f"responses: {where} has {raw!r:.40} under 'bytes': expected numbers of 0 to 255.")
    return (text, bytes(raw))


def _text(token: Any, where: str) -> Any:
    if not isinstance(token, str) and number_of(token) is None:
        raise InputError(f"responses: {where} has the token {token!r:.40}: expected text.")
    return token


def _completion(logprobs: Any, i: int, c: int) -> Iterator[Position]:
    """The first token of an echoed prompt has no log-probability: null."""
    tokens, own = (_listed(logprobs, name, _where(i, c)) for name in ("tokens", "token_logprobs"))
    for j, likely in enumerate(_listed(logprobs, "top_logprobs", _where(i, c))):
        if likely is not None:
            where = _where(i, c, j)
            name = _text(tokens[j], where) if j < len(tokens) else None
            entries = [Entry(likely, token, _text(token, where)) for token in _mapping(likely, where)]
            yield Position((i, c, j), entries, name, Entry(own, j, name) if j < len(own) else None)


def _mapping(likely: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(likely, Mapping):
        raise InputError(
            f"responses: {where} has {likely!r:.40} for its likely tokens: expected log-probabilities by token."
        )
    return likely


def _by_number(holder: Any, name: str, ids_name: str, i: int, c: int) -> Iterator[Position]:
    """vLLM's own form. The actual token is the first of its row; the first token of a prompt has no row."""
    token_ids = _listed(holder, ids_name, _where(i, c))
    by_order = _get(holder, ids_name) is None
    for j, row in enumerate(_listed(holder, name, _where(i, c))):
        if not row:
            continue
        where = _where(i, c, j)
        entries = [_numbered(row, key, entry, where) for key, entry in _mapping(row, where).items()]
        if not by_order and (j >= len(token_ids) or not isinstance(token_ids[j], int)):
            raise InputError(
                f"responses: {where} has no number in {ids_name!r}: expected one for every token."
            )
        yield Position((i, c, j), entries, entries[0].name if by_order else token_ids[j], by_order=by_order)


def _numbered(row: Any, key: Any, entry: Any, where: str) -> Entry:
    number = number_of(key) if isinstance(key, int) else number_in(str(key))
    if number is None:
        raise InputError(f"responses: {where} has the key {str(key)[:40]!r}: expected a token's number.")
    if isinstance(entry, int | float):
        return Entry(row, key, number)
    rank = _get(entry, "rank")
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int)):
        raise InputError(f"responses: {where} has the rank {rank!r:.40}: expected a whole number.")
    return Entry(entry, "logprob", number, rank=rank)


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
        now = positions(responses, self.part, self.position)
        vocabulary = Vocabulary.of(self.vocabulary)
        for row, numbers, new, other in zip(self.rows, ids, values, others, strict=True):
            at = now[row]
            named = np.isfinite(new)  # filled places have numbers that mean nothing
            new_logs = dict(zip(numbers[named].tolist(), new[named].tolist(), strict=True))
            old = [entry.value for entry in at.entries]
            logs = [new_logs.get(number) for number in vocabulary.numbers_of(at)]
            # A token that is not in the row gets the number of those with its value, so that ties stay ties.
            tied = {value: log for value, log in zip(old, logs, strict=True) if log is not None}
            if at.own is not None and np.isfinite(at.own.value):
                log = None if at.own_place is None else logs[at.own_place]
                at.own.write(tied.get(at.own.value, float(other)) if log is None else log)
            for entry, value, log in zip(at.entries, old, logs, strict=True):
                if np.isfinite(value):
                    entry.write(tied.get(value, float(other)) if log is None else log)
        return responses[0] if self.single else responses


def read_top(
    raw: Any, part: str | None, position: int | None, vocabulary: Any, k: int | None
) -> tuple[np.ndarray, np.ndarray, Origin]:
    """Log-probabilities (n, k), largest first, -inf in filled places; numbers of their tokens (n, k); where they came from."""
    if isinstance(raw, str | os.PathLike):
        raw = read_json(raw)
    single = not isinstance(raw, Sequence | Iterator)
    responses = [raw] if single else list(raw)
    if not responses:
        raise InputError("responses: there are none.")
    rows = positions(responses, part, position)
    numbering = Vocabulary.of(vocabulary)
    of_rows = [numbering.numbers_of(row) for row in rows]
    added = [row.added(k) for row in rows]
    width = max(len(row.entries) - len(beyond) for row, beyond in zip(rows, added, strict=True))
    values, ids = np.full((len(rows), width), -np.inf), np.zeros((len(rows), width), dtype=np.int64)
    for i, (row, numbers, beyond) in enumerate(zip(rows, of_rows, added, strict=True)):
        logs = [entry.value for entry in row.entries]
        falling = sorted(set(range(len(logs))) - beyond, key=lambda j: (-logs[j], j))
        values[i, : len(falling)] = [logs[j] for j in falling]
        ids[i, : len(falling)] = [numbers[j] for j in falling]
    tokens = None
    # The order of the keys shows the actual token. If it is not the server's order, the token is not known.
    shuffled = any(row.by_order and beyond - {0} for row, beyond in zip(rows, added, strict=True))
    if not shuffled and all(row.actual is not None for row in rows):
        tokens = np.array(numbering.labels([row.actual for row in rows]), dtype=np.int64)
        for i, row in enumerate(rows):
            if row.own_place is not None:
                tokens[i] = of_rows[i][row.own_place]
    places = np.array([row.place for row in rows])
    origin = Origin(responses, single, part, position, numbering, np.arange(len(rows)), places, tokens)
    return values, ids, origin


_NUMBERED = "token_id:"
# Arrays hold numbers below this, so every number of so many digits.
_MOST, _DIGITS = 2**63, 18


class Vocabulary(dict[Any, int]):
    """Numbers of tokens by their text, ``("text", b"...")`` where the bytes are others, ``("text", 2)`` for the second in a row.

    ``free`` is the first number that no token has.
    """

    grows, free = True, 0

    @classmethod
    def of(cls, tokens: Any) -> Vocabulary:
        """A vocabulary of its own from what a caller gives: None, a mapping, or the tokens in the order of their numbers."""
        if tokens is None:
            return cls()
        if isinstance(tokens, Mapping):
            made = cls(tokens)
            if not isinstance(tokens, Vocabulary):
                made._check()
        elif isinstance(tokens, Sequence) and not isinstance(tokens, str | bytes):
            twice = next((token for token, n in Counter(map(str, tokens)).items() if n > 1), None)
            if twice is not None:
                raise InputError(f"vocabulary has the token {twice!r:.40} twice: its number is not known.")
            made = cls({token: i for i, token in enumerate(tokens)})
        else:
            raise InputError(
                "vocabulary must be a mapping of tokens to numbers, or a list of tokens, but is "
                f"{type(tokens).__name__}."
            )
        made.grows = isinstance(tokens, Vocabulary) and tokens.grows
        made.free = 1 + max(made.values(), default=-1)
        return made

    def _check(self) -> None:
        seen: dict[int, Any] = {}
        for token, number in self.items():
            if (
                not isinstance(number, int | np.integer)
                or isinstance(number, bool)
                or not 0 <= number < _MOST
            ):
                raise InputError(
                    f"vocabulary has {number!r:.40} for the token {token!r:.40}: expected a whole number from 0 on."
                )
            if seen.setdefault(int(number), token) != token:
                raise InputError(
                    f"vocabulary has the number {number} for {seen[int(number)]!r:.40} and for {token!r:.40}: every token has "
                    "one of its own."
                )

    def numbers_of(self, row: Position) -> list[int]:
        """Numbers of the tokens of a row; a vocabulary that grows has one for every token."""
        result: list[int] = []
        seen: Counter[Any] = Counter()
        for entry in row.entries:
            name, number = entry.name, number_of(entry.name)
            if number is None:
                if isinstance(name, tuple) and name not in self and not self.grows:
                    name = name[0]  # the caller's vocabulary has texts alone
                seen[name] += 1
                key = name if seen[name] == 1 else (name, seen[name])
                if key not in self and not self.grows:
                    lacks = (
                        "which it lacks" if seen[name] == 1 else "twice, so texts do not tell tokens apart"
                    )
                    raise InputError(
                        f"vocabulary: {row.where} has the token {name!r} {lacks}. Ask the server for numbers (vLLM: "
                        "return_tokens_as_token_ids=true), or leave vocabulary= out: then every token gets a number here."
                    )
                if key not in self:
                    self[key] = self.free
                    self.free += 1
                number = self[key]
            result.append(number)
        return result

    def labels(self, names: Sequence[Any]) -> list[int]:
        """Numbers of labels given as text; one that no row names gets a number that no token has."""
        return [self.free if number is None else number for number in self.find(names)]

    def find(self, names: Sequence[Any]) -> list[int | None]:
        """Numbers of tokens: by their text, too, where one token alone has it; None where there is none."""
        by_text: dict[Any, int | None] = {}
        for key, number in self.items():
            if isinstance(key, tuple):
                by_text[key[0]] = None if key[0] in by_text else number

        def one(name: Any) -> int | None:
            if name in self or number_of(name) is not None:
                return self.get(name, number_of(name))
            if isinstance(name, tuple):
                return None if self.grows else self.get(name[0])
            return by_text.get(name)

        return [one(name) for name in names]


def number_of(name: Any) -> int | None:
    """The number that a name is by itself; None for text, and for what no array can hold."""
    if isinstance(name, int):
        return name if 0 <= name < _MOST else None
    return number_in(name) if isinstance(name, str) and name.startswith(_NUMBERED) else None


def number_in(text: str) -> int | None:
    """The number that text such as ``"15"`` or ``"token_id:15"`` stands for."""
    digits = text.removeprefix(_NUMBERED)
    return int(digits) if digits.isdecimal() and len(digits) <= _DIGITS else None
