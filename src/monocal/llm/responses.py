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
from operator import index
from typing import Any

import numpy as np

from ..errors import InputError
from ..io.named_arrays import read_json

# What servers write for "very unlikely", and for -inf: no logarithm of anything.
SENTINEL = -9999.0
# Log-probabilities are below it; NaN, infinity and whole numbers that no float can hold are not.
_LARGEST = 1e300
_NO_NUMBERS = (
    "Ask the server for some: logprobs=true and top_logprobs=20 (chat), include=['message.output_text.logprobs'] and "
    "top_logprobs=20 (Responses API), logprobs=20 (completions), prompt_logprobs=20 (vLLM)."
)


def _get(holder: Any, key: Any) -> Any:
    """What a holder has under a name, or at a place; None where it has nothing."""
    if isinstance(holder, Mapping):
        return holder.get(key)
    return holder[key] if isinstance(key, int) else getattr(holder, key, None)


class Entry:
    """A log-probability in a response, ``holder[key]``, with the name of its token: text, text with bytes, or a number."""

    def __init__(self, holder: Any, key: Any, name: Any, rank: Any = None):
        self.holder, self.key, self.name = holder, key, name
        self.rank = None if rank is None else index(rank)
        logprob = _get(holder, key)
        number = isinstance(logprob, int | float) and not isinstance(logprob, bool)
        if logprob is not None and not (number and logprob < _LARGEST):
            raise TypeError(f"{logprob!r:.40} is given as the log-probability of {name!r}, expected a number")
        self.value = -np.inf if logprob is None or logprob <= SENTINEL else float(logprob)

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
        return "response {}, choice {}, position {}".format(*self.place)

    @property
    def own_place(self) -> int | None:
        """Where the actual token stands among the entries."""
        return next((i for i, entry in enumerate(self.entries) if entry.name == self.actual), None)

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


def positions(responses: Sequence[Any], part: str | None, at: int | None) -> list[Position]:
    """All positions, or of each text the one ``at`` a place; ``part`` is "prompt", "generated" or None for the one there is."""
    read = []
    for i, response in enumerate(responses):
        try:
            read.append([(kind, text) for kind, text in _texts(i, _body(i, response)) if text])
        except InputError:
            raise
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            raise InputError(f"responses: response {i} is not what servers write ({error}).") from error
    parts = {kind for texts in read for kind, _ in texts if part in (None, kind)}
    if len(parts) > 1:
        raise InputError(
            "responses: there are log-probabilities of prompts and of what was generated. Say which: part='prompt' or "
            "part='generated'."
        )
    if not parts:
        what = f" of the {part} part" if part else ""
        raise InputError(f"responses: there are no log-probabilities{what} in them. {_NO_NUMBERS}")
    rows: list[Position] = []
    for i, texts in enumerate(read):
        own = [text for kind, text in texts if kind in parts]
        if not own:
            raise InputError(
                f"responses: response {i} has no log-probabilities, others have. Leave it out, and its label with it."
            )
        for text in own:
            if at is not None and not -len(text) <= at < len(text):
                raise InputError(
                    f"position: a text of response {i} has {len(text)} positions with log-probabilities, and {at} is asked for."
                )
            rows += text if at is None else [text[at]]
    for row in rows:
        if not row.entries:
            raise InputError(f"responses: {row.where} names no likely tokens. {_NO_NUMBERS}")
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


def _texts(i: int, body: Any) -> Iterator[tuple[str, list[Position]]]:
    """Part and positions of every text in a response."""
    c = 0
    for item in _get(body, "output") or ():  # also reasoning and calls of tools, which have no texts
        for piece in _get(item, "content") or ():
            tokens = _get(piece, "logprobs")
            if tokens:
                yield "generated", [_chat(token, (i, c, j)) for j, token in enumerate(tokens)]
                c += 1
    choices = _get(body, "choices") or ()
    for c, choice in enumerate(choices or _get(body, "outputs") or ()):
        logprobs = _get(choice, "logprobs")
        if isinstance(logprobs, Sequence):
            yield "generated", list(_by_number(logprobs, _get(choice, "token_ids"), i, c))
        elif _get(logprobs, "content") is not None:
            yield "generated", [_chat(token, (i, c, j)) for j, token in enumerate(_get(logprobs, "content"))]
        elif logprobs is not None:
            yield "generated", list(_completion(logprobs, i, c))
    # Of a response (chat, and vLLM's own objects) or of its choices (completions).
    for c, holder in enumerate([body, *choices]):
        rows, ids = _get(holder, "prompt_logprobs"), _get(holder, "prompt_token_ids")
        yield "prompt", list(_by_number(rows or (), ids, i, max(c - 1, 0)))


def _chat(item: Any, place: tuple[int, int, int]) -> Position:
    entries = [Entry(e, "logprob", _name(e)) for e in _get(item, "top_logprobs") or ()]
    name = _name(item) if entries else None
    return Position(place, entries, name, Entry(item, "logprob", name), falling=True)


def _name(holder: Any) -> Any:
    """A token's text; with its bytes, where these are not those of the text."""
    text, raw = _text(_get(holder, "token")), list(_get(holder, "bytes") or ())
    if not raw or number_of(text) is not None or list(text.encode(errors="replace")) == raw:
        return text
    return (text, bytes(raw))


def _text(token: Any) -> Any:
    if not isinstance(token, str) and number_of(token) is None:
        raise TypeError(f"{token!r:.40} is given as a token, expected text")
    return token


def _completion(logprobs: Any, i: int, c: int) -> Iterator[Position]:
    """The first token of an echoed prompt has no log-probability: null."""
    tokens, own = (_get(logprobs, name) or () for name in ("tokens", "token_logprobs"))
    for j, likely in enumerate(_get(logprobs, "top_logprobs") or ()):
        if likely is not None:
            name = _text(tokens[j]) if j < len(tokens) else None
            entries = [Entry(likely, token, _text(token)) for token in likely.keys()]  # noqa: SIM118  a list has none
            yield Position((i, c, j), entries, name, Entry(own, j, name) if j < len(own) else None)


def _by_number(rows: Any, token_ids: Any, i: int, c: int) -> Iterator[Position]:
    """vLLM's own form. The actual token is the first of its row; the first token of a prompt has no row."""
    for j, row in enumerate(rows):
        if not row:
            continue
        entries = []
        for key, entry in row.items():
            number = number_of(key) if isinstance(key, int) else number_in(str(key))
            if number is None:
                raise TypeError(f"{str(key)[:40]!r} is given as a token's number")
            plain = isinstance(entry, int | float)
            entries.append(
                Entry(row, key, number) if plain else Entry(entry, "logprob", number, _get(entry, "rank"))
            )
        actual = entries[0].name if token_ids is None else index(token_ids[j])
        yield Position((i, c, j), entries, actual, by_order=token_ids is None)


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
            logs = [new_logs.get(number) for number in vocabulary.numbers_of(at)]
            # A token that is not in the row gets the number of those with its value, so that ties stay ties.
            pairs = zip(at.entries, logs, strict=True)
            tied = {entry.value: log for entry, log in pairs if log is not None}
            if at.own is not None and np.isfinite(at.own.value):
                log = None if at.own_place is None else logs[at.own_place]
                at.own.write(tied.get(at.own.value, float(other)) if log is None else log)
            for entry, log in zip(at.entries, logs, strict=True):
                if np.isfinite(entry.value):
                    entry.write(tied.get(entry.value, float(other)) if log is None else log)
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
    places = np.array([row.place for row in rows])
    origin = Origin(responses, single, part, position, numbering, np.arange(len(rows)), places, tokens)
    return values, ids, origin


_NUMBERED = "token_id:"
# Arrays hold numbers below this, so every number of so many digits.
_MOST, _DIGITS = 2**63, 18


class Vocabulary(dict[Any, int]):
    """Numbers of tokens by their text, or by ``("text", b"...")`` where the bytes are others.

    ``free`` is the first number that no token has. A vocabulary that ``grows`` gives every new token a number.
    """

    grows, free = True, 0

    @classmethod
    def of(cls, tokens: Any) -> Vocabulary:
        """A vocabulary of its own from what a caller gives: None, a mapping, or the tokens in the order of their numbers."""
        if tokens is None:
            return cls()
        if isinstance(tokens, Vocabulary):
            return copy.copy(tokens)
        if isinstance(tokens, Mapping):
            made = cls(tokens)
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
        wrong = [n for n in made.values() if not isinstance(n, int | np.integer) or not 0 <= n < _MOST]
        if wrong or len(set(made.values())) < len(made):
            raise InputError(
                "vocabulary: every token must have a whole number of its own, from 0 on"
                + (f", but one has {wrong[0]!r:.40}." if wrong else ", but two have the same.")
            )
        made.grows, made.free = False, 1 + max(made.values(), default=-1)
        return made

    def numbers_of(self, row: Position) -> list[int]:
        """Numbers of the tokens of a row."""
        result = []
        for entry in row.entries:
            name, number = entry.name, number_of(entry.name)
            if number is None and isinstance(name, tuple) and name not in self and not self.grows:
                name = name[0]  # the caller's vocabulary has texts alone
            if number is None and name not in self:
                if not self.grows:
                    raise InputError(
                        f"vocabulary: {row.where} has the token {name!r} which it lacks. Ask the server for numbers (vLLM: "
                        "return_tokens_as_token_ids=true), or leave vocabulary= out: then every token gets a number here."
                    )
                self[name] = self.free
                self.free += 1
            result.append(self[name] if number is None else number)
        if len(set(result)) < len(result):
            raise InputError(
                f"responses: {row.where} has a token twice, so texts do not tell tokens apart. Ask the server for bytes or for "
                "numbers (vLLM: return_tokens_as_token_ids=true)."
            )
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
