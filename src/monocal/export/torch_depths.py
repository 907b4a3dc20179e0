"""The words of statistics (`calibration.depths`) in torch: any leading shape, gradients, no branches on values."""

from __future__ import annotations

import torch


class TorchDepths:
    """Depths (..., m), 0 where a class is ``masked``, with flags of the classes on top."""

    def __init__(self, depth: torch.Tensor, at_top: torch.Tensor, masked: torch.Tensor):
        self.depth = depth
        self._available = ~masked
        self._lower = self._available & ~at_top
        self._n_top = at_top.sum(-1, keepdim=True)

    @property
    def count(self) -> torch.Tensor:
        return self._available.sum(-1, keepdim=True)

    @property
    def second(self) -> torch.Tensor:
        least = torch.where(self._lower, self.depth, torch.inf).amin(-1, keepdim=True)
        return torch.where(torch.isinf(least) | (self._n_top > 1), 0.0, least)

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(self._available, x, 0.0).sum(-1, keepdim=True)

    def largest(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(self._available, x.abs(), 0.0).amax(-1, keepdim=True)

    def sum_but_one(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(self._lower, x, 0.0).sum(-1, keepdim=True) + (self._n_top - 1)

    def exp(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    def log(self, x: torch.Tensor) -> torch.Tensor:
        return x.log()

    def log1p(self, x: torch.Tensor) -> torch.Tensor:
        return x.log1p()

    def sqrt(self, x: torch.Tensor) -> torch.Tensor:
        """Its gradient at 0 is 0."""
        positive = x > 0
        return torch.where(positive, torch.where(positive, x, 1.0).sqrt(), 0.0)

    def at_least(self, x: torch.Tensor, low: float) -> torch.Tensor:
        return x.clamp(min=low)

    def or_one(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x == 0, 1.0, x)
