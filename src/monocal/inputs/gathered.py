"""What blocks have to say, one after another, where `Rows.sum` adds what they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Gathered(Generic[T]):
    """Adds by putting parts side by side. Whoever asked joins them once: joined pair by pair, many blocks would be copied over
    and over."""

    parts: tuple[T, ...]

    def __add__(self, other: Gathered[T]) -> Gathered[T]:
        return Gathered(self.parts + other.parts)
