"""Many blocks that lie one after another, in one call: threads that call Python for every block wait for one another.

    a run:   blocks as one block, the ends of each in it (B,), and the threads that share them

All threads call one loop, which takes block after block (`loops.next_of`) until none is left. What it adds up it adds for each
block alone, and these sums are added in the order of the blocks: they are the same to the last bit, however many threads there
are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any, Protocol, TypeVar

import numpy as np

from ..parallel import available_threads, parallel_sum, run_parallel
from .block import Block

T = TypeVar("T")


class Threads(Protocol):
    """How work is shared: `Alone`, or `SHARED`."""

    def share(self, work: Callable[[], object], pieces: int) -> None:
        """``work()`` on as many threads as there are pieces for, at once: each call takes pieces until none is left."""

    def sum(self, function: Callable[[Any], T], items: Sequence[Any]) -> T:
        """``function(x)`` added up over all items, from first to last."""

    def count(self) -> int:
        """How many there are."""


class Alone:
    """No threads but the caller's."""

    def share(self, work: Callable[[], object], pieces: int) -> None:
        work()

    def sum(self, function: Callable[[Any], T], items: Sequence[Any]) -> T:
        return reduce(add, map(function, items))

    def count(self) -> int:
        return 1


class Shared:
    """All threads there are."""

    def share(self, work: Callable[[], object], pieces: int) -> None:
        run_parallel(work, min(available_threads(), pieces))

    def sum(self, function: Callable[[Any], T], items: Sequence[Any]) -> T:
        return parallel_sum(function, items)

    def count(self) -> int:
        return available_threads()


SHARED = Shared()


def added(parts: np.ndarray) -> np.ndarray:
    """Sums of blocks, which lie along the first axis, added from first to last."""
    # A sum over what has one number in each would be taken pair by pair.
    total: np.ndarray = parts.sum(axis=0) if parts[0].size > 1 else parts.cumsum(axis=0)[-1]
    return total


@dataclass(frozen=True)
class Run:
    """Blocks that lie one after another, as one."""

    block: Block
    ends: np.ndarray  # (B,), behind the last row of each
    threads: Threads

    @classmethod
    def of(cls, block: Block) -> Run:
        """One block alone."""
        return cls(block, np.array([block.n_rows]), Alone())

    def blocks(self) -> list[Block]:
        return self.block.split(self.ends)

    def slices(self) -> list[slice]:
        """The rows of each block."""
        return [slice(i, j) for i, j in pairwise([0, *self.ends.tolist()])]

    def weight(self) -> float:
        """Of all rows, block by block."""
        weight: Any = self.block.weight
        return sum(float(weight[rows].sum(dtype=np.float64)) for rows in self.slices())

    def sum(self, function: Callable[[Block], T]) -> T:
        """A function of a block, added up."""
        return self.threads.sum(function, self.blocks())

    def sum_of_parts(self, function: Callable[[Block, np.ndarray], T]) -> T:
        """A function of neighbours as one block and of the ends of each in it, added up; a few parts for every thread."""
        threads = self.threads.count()
        count = min(len(self.ends), 1 if threads == 1 else 3 * threads)
        cuts = [len(self.ends) * i // count for i in range(count + 1)]
        begins = np.append(0, self.ends)
        parts = [
            (self.block[slice(begins[i], begins[j])], self.ends[i:j] - begins[i]) for i, j in pairwise(cuts)
        ]
        return self.threads.sum(lambda part: function(*part), parts)
