"""The second stage of a conditional map in torch: ``f' = W f + A 1[top]``; see `calibration.adjustment`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..calibration.statistics import log_odds
from ..errors import InputError
from ..kernel import triton_map
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
        by_column, numbers = self._of_context(context, f)
        if by_column is not None:
            scale = scale * by_column
        depth = torch.where(masked, 0.0, (top - x) * scale[..., None])
        odds = log_odds(TorchDepths(depth, at_top, masked))[..., 0]
        weight, lift = self._mixed([odds, *numbers])
        lift = torch.where(n_top > 1, 0.0, lift + 0 * scale)
        lifted = torch.where(at_top, lift[..., None], 0.0)
        return torch.where(masked, -torch.inf, x * (weight * scale)[..., None] + lifted)

    def for_kernels(self, logits: torch.Tensor, context: torch.Tensor | None) -> triton_map.SecondStage:
        """The same for the kernels of a CUDA device."""
        terms = None
        if self.n_columns:
            wide = logits.new_empty((*logits.shape[:-1], 1), dtype=torch.float32)
            scale, numbers = self._of_context(context, wide)
            one = torch.ones_like(wide[..., 0])
            weight, lift = self._mixed([0 * one, *numbers], without_odds=True)
            terms = torch.stack([one if scale is None else scale, weight * one, lift * one], dim=-1)
            terms = terms.reshape(-1, 3).contiguous()
        n_ramps = 0 if self.ramp_zero is None else len(self.ramp_zero)
        return triton_map.SecondStage(
            self.class_scales,
            self.ramp_statistic,
            self.ramp_zero,
            self.ramp_width,
            self.steps,
            n_ramps,
            terms,
        )

    def _of_context(
        self, context: torch.Tensor | None, f: torch.Tensor
    ) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
        """The scale that the categories of each row (...) have together, None where there are none; and its numbers."""
        scale: torch.Tensor | None = None
        numbers: list[torch.Tensor] = []
        if not self.n_columns:
            return scale, numbers
        given = self._checked(context, f)
        for i, count in enumerate(self.categories):
            if count is None:
                assert self.typical is not None
                # In double precision: a time, say, is large beside its differences.
                away = given[..., i].double() - self.typical[i].double()
                numbers.append(torch.where(torch.isnan(away), 0.0, away).to(f.dtype))
                continue
            codes = given[..., i].to(f.dtype)
            known = (codes >= 0) & (codes < count)
            index = torch.where(known, codes, float(count)).long()
            found = getattr(self, f"column_{i}").to(f.dtype)[index]
            scale = found if scale is None else scale * found
        return scale, numbers

    def _mixed(self, values: list[torch.Tensor], without_odds: bool = False) -> tuple[Any, Any]:
        """Weight and lift (...) from the log-odds and the numbers of each row; or the numbers' parts of them."""
        dtype = values[0].dtype
        weight, lift = self.steps.to(dtype)[:, 0]
        if self.ramp_zero is not None:
            assert self.ramp_statistic is not None
            assert self.ramp_width is not None
            q = torch.stack(values, dim=-1)[..., self.ramp_statistic]
            psi = ((q - self.ramp_zero.to(dtype)) / self.ramp_width.to(dtype)).clamp(0.0, 1.0)
            if without_odds:
                psi = torch.where(self.ramp_statistic > 0, psi, 0.0)
            # Not a matrix product: autocast and reduced-precision modes would round it.
            weight, lift = ((psi * s[1:]).sum(-1) + s[0] for s in self.steps.to(dtype))
        return weight, lift

    def _checked(self, context: torch.Tensor | None, f: torch.Tensor) -> torch.Tensor:
        if context is None or tuple(context.shape) != (*f.shape[:-1], self.n_columns):
            shape = None if context is None else tuple(context.shape)
            raise InputError(
                f"context must have shape {(*f.shape[:-1], self.n_columns)}, what calibrator.context_.codes() gives, but "
                + ("is missing." if shape is None else f"has shape {shape}.")
            )
        return context


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
