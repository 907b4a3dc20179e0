"""Tokens by name and by number:  ``"token_id:15"`` and 15 are the number 15, any other text is looked up.

A vocabulary that the caller gives must know every token. One that is made here grows: a token that it has not met gets the
next number. Tokens may look alike, since those that are parts of characters all print as one sign: where a server tells their
bytes, and these are not those of the text, a token is ``(text, bytes)``. Else the second of a text in a row is another class, and
gets a number of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from ..errors import InputError

_NUMBERED = "token_id:"
# Arrays hold numbers below this, so every number of so many digits.
_MOST, _DIGITS = 2**63, 18


class Vocabulary(dict[Any, int]):
    """Numbers of tokens by their text, ``("text", b"...")`` where the bytes are others, ``("text", 2)`` for the second in a row.

    ``free`` is the first number that no token has.
    """

    grows, free = True, 0

    @classmethod
    def of(cls, given: Any) -> Vocabulary:
        """A vocabulary of its own from what a caller gives: None, a mapping, or the tokens in the order of their numbers."""
        if given is None:
            return cls()
        if isinstance(given, Mapping):
            made = cls(given)
            if not isinstance(given, Vocabulary):
                _check_numbers(made)
        elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
            twice = next((token for token, n in Counter(map(str, given)).items() if n > 1), None)
            if twice is not None:
                raise InputError(f"vocabulary has the token {twice!r:.40} twice: its number is not known.")
            made = cls({token: i for i, token in enumerate(given)})
        else:
            raise InputError(
                "vocabulary must be a mapping of tokens to numbers, or a list of tokens, but is "
                f"{type(given).__name__}."
            )
        made.grows = isinstance(given, Vocabulary) and given.grows
        made.free = 1 + max(made.values(), default=-1)
        return made

    def numbers(self, names: Sequence[Any], where: str) -> list[int]:
        """Numbers of the tokens of one row."""
        found: list[int] = []
        met: dict[Any, int] = {}
        for name in names:
            number = number_of(name)
            if number is None:
                if isinstance(name, tuple) and name not in self and not self.grows:
                    name = name[0]  # the caller's vocabulary has texts alone
                met[name] = met.get(name, 0) + 1
                number = self._look_up(name if met[name] == 1 else (name, met[name]), where)
            found.append(number)
        return found

    def _look_up(self, name: Any, where: str) -> int:
        if name in self:
            return self[name]
        if not self.grows:
            twice = isinstance(name, tuple)
            raise InputError(
                f"vocabulary: {where} has the token {name[0] if twice else name!r} "
                + ("twice, " if twice else "which it lacks, ")
                + "so texts do not tell tokens apart. Ask the server for numbers (vLLM: return_tokens_as_token_ids=true), or "
                "leave vocabulary= out: then every token gets a number here."
            )
        self[name] = self.free
        self.free += 1
        return self[name]

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


def _check_numbers(vocabulary: Mapping[Any, Any]) -> None:
    met: dict[int, Any] = {}
    for token, number in vocabulary.items():
        if isinstance(number, bool) or not isinstance(number, Integral) or number_of(int(number)) is None:
            raise InputError(
                f"vocabulary has {number!r:.40} for the token {token!r:.40}: expected a whole number from 0 on."
            )
        if met.setdefault(int(number), token) != token:
            raise InputError(
                f"vocabulary has the number {number} for {met[int(number)]!r:.40} and for {token!r:.40}: every token has one of "
                "its own."
            )


def number_of(name: Any) -> int | None:
    """The number that a name is by itself; None for text, and for what no array can hold."""
    if isinstance(name, int):
        return name if 0 <= name < _MOST else None
    return number_in(name) if isinstance(name, str) and name.startswith(_NUMBERED) else None


def number_in(text: str) -> int | None:
    """The number that text such as ``"15"`` or ``"token_id:15"`` stands for."""
    digits = text.removeprefix(_NUMBERED)
    return int(digits) if digits.isdecimal() and len(digits) <= _DIGITS else None
