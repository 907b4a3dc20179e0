"""Modules of torch whose numbers keep their precision, and which work along any axis."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

# Integers of as many bytes as a floating-point type.
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class ExactModule(torch.nn.Module):
    """A module whose numbers keep their precision, whatever the model around it is cast to."""

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> ExactModule:
        # A model cast to half precision must not round the calibrator with it: integers are moved, never cast.
        bits = {name: t for name, t in self._buffers.items() if t is not None and t.is_floating_point()}
        for name, t in bits.items():
            self._buffers[name] = t.view(BITS[t.element_size()])
        super()._apply(fn, recurse)
        for name, t in bits.items():
            moved = self._buffers[name]
            assert moved is not None
            self._buffers[name] = moved.view(t.dtype)
        return self


def along_classes(method: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A method of logits (..., m) as one of logits whose classes are in ``self.class_axis``."""

    @wraps(method)
    def along(self: Any, logits: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        if self.class_axis == -1:
            return method(self, logits, *rest, **more)
        return method(self, logits.movedim(self.class_axis, -1), *rest, **more).movedim(-1, self.class_axis)

    return along
