"""What vLLM's engine asks of a logits processor: names and signatures of its v1 interface, and a sampler's step in small."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import torch


@dataclass
class SamplingParams:
    temperature: float = 1.0
    extra_args: dict[str, Any] | None = None


class MoveDirectionality(Enum):
    UNIDIRECTIONAL = auto()
    SWAP = auto()


@dataclass(frozen=True)
class BatchUpdate:
    batch_size: int
    removed: Sequence[int] = ()
    added: Sequence[tuple[int, SamplingParams, list[int] | None, list[int]]] = ()
    moved: Sequence[tuple[int, int, MoveDirectionality]] = ()


class LogitsProcessor(ABC):
    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        return None

    @abstractmethod
    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None: ...

    @abstractmethod
    def apply(self, logits: torch.Tensor) -> torch.Tensor: ...

    @abstractmethod
    def is_argmax_invariant(self) -> bool: ...

    @abstractmethod
    def update_state(self, batch_update: BatchUpdate | None) -> None: ...


@dataclass
class Engine:
    """Loads a processor as vLLM does, keeps a batch, and gives the distribution that tokens are sampled from."""

    processor: type[LogitsProcessor] | str
    config: Any = None
    batch: dict[int, SamplingParams] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.processor, str):
            module, _, name = self.processor.partition(":")
            self.processor = getattr(importlib.import_module(module), name)
        if not issubclass(self.processor, LogitsProcessor):
            raise ValueError(f"{self.processor.__name__} must be a subclass of LogitsProcessor")
        self.made = self.processor(self.config, torch.device("cpu"), False)

    def update(self, **changes: Any) -> None:
        for index in changes.get("removed", ()):
            del self.batch[index]
        for index, params, *_ in changes.get("added", ()):
            self.processor.validate_params(params)
            self.batch[index] = params
        for start, end, how in changes.get("moved", ()):
            if how is MoveDirectionality.SWAP:
                self.batch[start], self.batch[end] = self.batch[end], self.batch[start]
            else:
                self.batch[end] = self.batch.pop(start)
        self.made.update_state(BatchUpdate(len(self.batch), **changes) if changes else None)

    def step(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Greedy tokens, and the probabilities that others are sampled from."""
        if not self.made.is_argmax_invariant():
            logits = self.made.apply(logits)
        greedy = logits.argmax(-1)
        temperature = torch.tensor([self.batch[i].temperature for i in range(len(logits))])
        logits = logits / torch.where(temperature < 1e-5, 1.0, temperature)[:, None]
        if self.made.is_argmax_invariant():
            logits = self.made.apply(logits)
        return greedy, logits.softmax(-1)
