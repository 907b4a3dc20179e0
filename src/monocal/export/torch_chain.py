"""Rank maps and affine maps one after another as a ``torch.nn.Module``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..errors import InputError
from ..ranks.ranked import LARGEST
from .chain import AffinePlan, Chain
from .exact import ExactModule, along_classes
from .torch import CalibratorModule, from_state_dict, read_meaning, written_meaning
from .torch_order import as_logits, narrow, ordered_softmax


class AffineModule(ExactModule):
    """Calibrated logits of logits (..., m) by an affine map of log-probabilities; see `AffinePlan`."""

    coef: torch.Tensor
    intercept: torch.Tensor
    centre: torch.Tensor

    def __init__(self, plan: AffinePlan, dtype: torch.dtype):
        super().__init__()
        self.scale, self.floor = plan.scale, plan.floor
        for name in ("coef", "intercept", "centre"):
            self.register_buffer(name, torch.from_numpy(np.array(getattr(plan, name), order="C")).to(dtype))

    def get_extra_state(self) -> torch.Tensor:
        """What is no tensor: JSON, as bytes."""
        return written_meaning({"scale": self.scale, "floor": self.floor, "matrix": self.coef.ndim == 2})

    def set_extra_state(self, state: torch.Tensor) -> None:
        told = read_meaning(state)
        self.scale, self.floor = told["scale"], told["floor"]

    def transform(self, logits: torch.Tensor) -> torch.Tensor:
        z = logits if logits.dtype == torch.float64 else logits.float()
        masked = torch.isinf(z)
        # A masked class takes part in nothing; -inf itself would make gradients nan.
        top = torch.where(masked, -torch.inf, z).amax(-1, keepdim=True)
        x = torch.where(masked, 0.0, (torch.where(masked, top, z) - top) * self.scale)
        if self.floor:
            e = torch.where(masked, 0.0, torch.exp(x))
            p = e * ((1.0 - self.floor) / e.sum(-1, keepdim=True)) + self.floor / x.shape[-1]
            x = torch.log(p)
        else:
            x = x.clamp(min=-LARGEST)
        x = torch.where(masked, self.centre.to(x.dtype), x)
        coef = self.coef.to(x.dtype)
        # Not a matrix product on the caller's terms: autocast would round it.
        with torch.autocast(x.device.type, enabled=False):
            f = x @ coef.T if coef.ndim == 2 else x * coef
        return torch.where(masked, -torch.inf, f + self.intercept.to(x.dtype))


class ChainModule(torch.nn.Module):
    """Calibrated probabilities of logits (..., m), or of probabilities where the calibrator was fitted on those.

    Attributes
    ----------
    n_classes, class_axis : int
    steps : ModuleList of CalibratorModule and AffineModule
    """

    def __init__(self, chain: Chain, dtype: torch.dtype = torch.float32):
        super().__init__()
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"dtype must be torch.float32 or torch.float64, but is {dtype}.")
        self.name, self.n_classes, self.class_axis = chain.name, chain.n_classes, chain.class_axis
        self.smallest_probability = chain.smallest_probability
        self.steps = torch.nn.ModuleList(
            AffineModule(step, dtype) if isinstance(step, AffinePlan) else CalibratorModule(step, dtype)
            for step in chain.steps
        )

    def get_extra_state(self) -> torch.Tensor:
        """What the steps are: JSON, as bytes."""
        steps = ["affine" if isinstance(step, AffineModule) else "ranks" for step in self.steps]
        told = {"name": self.name, "n_classes": self.n_classes, "steps": steps, "class_axis": self.class_axis}
        return written_meaning({**told, "smallest_probability": self.smallest_probability})

    def set_extra_state(self, state: torch.Tensor) -> None:
        told = read_meaning(state)
        self.name, self.class_axis = told["name"], told["class_axis"]
        self.smallest_probability = told["smallest_probability"]

    @along_classes
    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """Calibrated probabilities, of the shape and type of ``logits``."""
        last = self.steps[-1]
        z = self._before_last(logits)
        p = last(z) if isinstance(last, CalibratorModule) else ordered_softmax(last.transform(z))
        return p.to(logits.dtype)

    @along_classes
    def transform(self, logits: torch.Tensor) -> torch.Tensor:
        """Calibrated logits, -inf where a class is masked; their softmax is the result of a call."""
        return narrow(self.steps[-1].transform(self._before_last(logits)), logits.dtype)

    @along_classes
    def log_probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Logarithms of the calibrated probabilities, -inf where a class is masked."""
        f = self.steps[-1].transform(self._before_last(logits))
        f = f - f.amax(-1, keepdim=True)
        return narrow(f - f.logsumexp(-1, keepdim=True), logits.dtype)

    def _before_last(self, logits: torch.Tensor) -> torch.Tensor:
        z = as_logits(logits, self.n_classes, self.smallest_probability)
        for step in self.steps[:-1]:
            z = step.transform(z)
        return z


def chain_of_state(state: dict[str, Any], told: dict[str, Any]) -> ChainModule:
    """The module of a state that `ChainModule` has told the meaning of."""
    m, made = told["n_classes"], []
    for i, kind in enumerate(told["steps"]):
        prefix = f"steps.{i}."
        if kind == "ranks":
            made.append(from_state_dict(state, prefix))
            continue
        own = read_meaning(state[prefix + "_extra_state"])
        shape = (m, m) if own["matrix"] else (m,)
        plan = AffinePlan(own["scale"], own["floor"], np.zeros(shape), np.zeros(m), np.zeros(m))
        made.append(AffineModule(plan, state[prefix + "coef"].dtype))
    chain = ChainModule(Chain(told["name"], m, (), told["smallest_probability"]))
    chain.steps.extend(made)
    chain.load_state_dict(state)
    return chain
