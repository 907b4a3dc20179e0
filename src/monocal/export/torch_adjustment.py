"""The second stage of a conditional map in torch: ``f' = W f + A 1[top]``; see `calibration.adjustment`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..calibration.statistics import log_odds
from ..errors import InputError
from .exact import ExactModule
from .plan import AdjustmentPlan
from .torch_depths import TorchDepths


class AdjustmentModule(ExactModule):
    """Adjusted logits of calibrated logits (..., m) and context (..., C)."""

    class_scales: torch.Tensor | None
    typical: torch.Tensor | None
    ramp_statistic: torch.Tensor | None
    ramp_zero: torch.Tensor | None
    ramp_width: torch.Tensor | None
    steps: torch.Tensor

    def __init__(self, plan: AdjustmentPlan, dtype: torch.dtype):
        super().__init__()
        self.n_columns = len(plan.column_scales)
        self.categories = [None if scales is None else len(scales) - 1 for scales in plan.column_scales]
        tables = {f"column_{i}": scales for i, scales in enumerate(plan.column_scales)}
        for name, values in {
            "class_scales": plan.class_scales,
            "typical": plan.typical,
            "ramp_statistic": plan.ramp_statistic,
            "ramp_zero": plan.ramp_zero,
            "ramp_width": plan.ramp_width,
            "steps": plan.steps,
            **tables,
        }.items():
            if values is None or not len(values):
                self.register_buffer(name, None)
                continue
            tensor = torch.from_numpy(np.array(values, order="C"))
            kept = name == "typical" or not tensor.is_floating_point()
            self.register_buffer(name, tensor if kept else tensor.to(dtype))

    def meaning(self) -> dict[str, Any]:
        """What its numbers mean, as plain data."""
        return {
            "by_class": self.class_scales is not None,
            "categories": self.categories,
            "n_ramps": 0 if self.ramp_zero is None else len(self.ramp_zero),
        }

    def forward(self, f: torch.Tensor, at_top: torch.Tensor, context: torch.Tensor | None) -> torch.Tensor:
        masked = torch.isinf(f)
        x = torch.where(masked, 0.0, f)
        top = torch.where(masked, -torch.inf, f).amax(-1, keepdim=True)
        n_top = at_top.sum(-1)
        scale = torch.ones_like(top[..., 0])
        if self.class_scales is not None:
            found = self.class_scales.to(f.dtype)[at_top.to(torch.int8).argmax(-1)]
            scale = torch.where(n_top > 1, scale, found)
        numbers = []
        for i, count in enumerate(self.categories):
            codes = self._column(context, i, f)
            if count is None:
                assert self.typical is not None
                # In double precision: a time, say, is large beside its differences.
                away = context[..., i].double() - self.typical[i].double()  # type: ignore[index]
                numbers.append(torch.where(torch.isnan(away), 0.0, away).to(f.dtype))
                continue
            known = (codes >= 0) & (codes < count)
            index = torch.where(known, codes, float(count)).long()
            scale = scale * getattr(self, f"column_{i}").to(f.dtype)[index]
        depth = torch.where(masked, 0.0, (top - x) * scale[..., None])
        odds = log_odds(TorchDepths(depth, at_top, masked))[..., 0]
        weight, lift = self.steps.to(f.dtype)[:, 0]
        if self.ramp_zero is not None:
            assert self.ramp_statistic is not None
            assert self.ramp_width is not None
            q = torch.stack([odds, *numbers], dim=-1)[..., self.ramp_statistic]
            psi = ((q - self.ramp_zero.to(f.dtype)) / self.ramp_width.to(f.dtype)).clamp(0.0, 1.0)
            # Not a matrix product: autocast and reduced-precision modes would round it.
            weight, lift = ((psi * s[1:]).sum(-1) + s[0] for s in self.steps.to(f.dtype))
        lift = torch.where(n_top > 1, 0.0, lift + 0 * scale)
        lifted = torch.where(at_top, lift[..., None], 0.0)
        return torch.where(masked, -torch.inf, x * (weight * scale)[..., None] + lifted)

    def _column(self, context: torch.Tensor | None, i: int, f: torch.Tensor) -> torch.Tensor:
        if context is None or tuple(context.shape) != (*f.shape[:-1], self.n_columns):
            shape = None if context is None else tuple(context.shape)
            raise InputError(
                f"context must have shape {(*f.shape[:-1], self.n_columns)}, what calibrator.context_.codes() gives, but "
                + ("is missing." if shape is None else f"has shape {shape}.")
            )
        return context[..., i].to(f.dtype)


def blank_adjustment(n_classes: int, meaning: dict[str, Any] | None) -> AdjustmentPlan | None:
    """A plan of the shape that `AdjustmentModule.meaning` tells, to be filled with numbers."""
    if meaning is None:
        return None
    ramps = np.zeros(meaning["n_ramps"])
    return AdjustmentPlan(
        class_scales=np.ones(n_classes) if meaning["by_class"] else None,
        column_scales=tuple(None if count is None else np.ones(count + 1) for count in meaning["categories"]),
        typical=np.zeros(len(meaning["categories"])),
        ramp_statistic=ramps.astype(np.int64),
        ramp_zero=ramps,
        ramp_width=ramps + 1.0,
        steps=np.zeros((2, len(ramps) + 1)),
    )
