"""Functions of torch that keep the order of classes while they round: softmax, logarithms, narrower types.

p = exp(round(f - max f)) / sum,      the rounding to a grid coarser than the error of any implementation of exp
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from ..arrays import EXP_GRID
from ..errors import InputError
from .exact import BITS

# exp(-1000) is zero in every precision.
_NOTHING = -1000.0


def ordered_softmax(f: torch.Tensor) -> torch.Tensor:
    """As `arrays.ordered_softmax`, with the gradient of softmax: the rounding is passed over."""
    grid = EXP_GRID[str(f.dtype).rpartition(".")[2]]
    d = (f - f.amax(-1, keepdim=True)).clamp(min=_NOTHING)
    d = d + (torch.round(d.detach() * grid) / grid - d.detach())
    e = torch.exp(d)
    return e * (1.0 / e.sum(-1, keepdim=True))


def as_logits(given: torch.Tensor, n_classes: int, smallest_probability: float | None) -> torch.Tensor:
    """What a module was given (..., m), as logits in single or double precision; their logarithms, if they are probabilities."""
    if given.shape[-1] != n_classes:
        raise InputError(
            f"logits have {given.shape[-1]} columns, but the calibrator was fitted on {n_classes} classes."
        )
    z = given if given.dtype == torch.float64 else given.float()
    return z if smallest_probability is None else log_of(z, smallest_probability)


def log_of(p: torch.Tensor, smallest: float) -> torch.Tensor:
    """Logarithms, in double precision so that they cannot change places; a zero stands for half the smallest positive.

    That may be smaller than any number of the type of ``p``, so it is halved by its logarithm.
    """
    positive = p > 0
    filled = torch.where(positive, p, 1.0)
    logs = torch.log(filled if p.device.type == "mps" else filled.double())
    least = torch.where(positive, logs, torch.inf).amin(-1, keepdim=True).clamp(max=math.log(smallest))
    return torch.where(positive, logs, least - math.log(2.0)).to(p.dtype)


def narrow(f: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Calibrated logits in the caller's type; what float16 cannot hold is cut, a step short of its largest number."""
    if dtype == torch.float16:
        f = torch.where(torch.isinf(f), f, f.clamp(-65472.0, 65472.0))
    return f.to(dtype)


def lift_top(values: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Lift the top of a row by one unit where rounding has made it equal to a lower class.

    The comparison is of bit patterns, which as integers are ordered like the numbers: compilers may keep a number that is to
    be rounded in higher precision, but not its bits. The two zeros are one number, the negative one's bits the integer -1.
    """
    if torch.onnx.is_in_onnx_export():
        return _lift_by_value(values, logits)
    with torch.no_grad():
        key = _ordered_bits(values.view(BITS[values.element_size()]))
        key = key + (key == -1)
        moved = key.argmax(-1, keepdim=True) != logits.argmax(-1, keepdim=True)
        at_top = logits == logits.amax(-1, keepdim=True)
        up = _ordered_bits(key.amax(-1, keepdim=True) + 1).view(values.dtype)
        lift = torch.where(moved & at_top, up - values, 0.0)
    return values + lift


def _lift_by_value(values: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """The same for ONNX, which has no bits: its runtimes compute in the type that the graph names."""
    kind = torch.finfo(values.dtype)
    moved = values.argmax(-1, keepdim=True) != logits.argmax(-1, keepdim=True)
    at_top = logits == logits.amax(-1, keepdim=True)
    top = values.amax(-1, keepdim=True)
    up = torch.where(top == 0, kind.tiny, top + top.abs() * kind.eps)
    return torch.where(moved & at_top, up, values)


def with_a_row_more(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A method of logits and context; in a graph of ONNX it is given one row more, which is left out again.

    onnxruntime forgets to reduce the shape of a tensor without rows, and the graph then fails on batches of none.
    """

    @functools.wraps(function)
    def method(self: Any, logits: torch.Tensor, context: torch.Tensor | None, *rest: Any) -> torch.Tensor:
        if not torch.onnx.is_in_onnx_export() or logits.ndim < 2:
            return function(self, logits, context, *rest)
        given = [
            None if t is None else torch.cat([t, t.new_zeros(1, *t.shape[1:])]) for t in (logits, context)
        ]
        return function(self, *given, *rest)[:-1]

    return method


def count_lower(ordered: torch.Tensor, values: torch.Tensor, or_equal: bool = False) -> torch.Tensor:
    """How many of ``ordered`` (..., r) are lower than each of ``values`` (..., k), or no higher."""
    if torch.onnx.is_in_onnx_export():  # which has no search: all are compared with all
        pairs = ordered[..., None, :], values[..., :, None]
        return (pairs[0] <= pairs[1] if or_equal else pairs[0] < pairs[1]).sum(-1)
    return torch.searchsorted(ordered, values, right=or_equal)


def summed(
    steps: torch.Tensor, thresholds: torch.Tensor, share: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """Steps (..., 1 + J) that each of ``values`` (..., m) has passed, and their share of those that it equals, added up.

    For ONNX, term by term: each term is no less for a larger value, and with all added in one order so is the sum. Running
    sums have one order; a runtime's plain sum takes another for some places than for others.
    """
    x, t = values[..., :, None], thresholds[..., None, :]
    passed = torch.where(t < x, 1.0, torch.where(t == x, share[..., None, :], 0.0))
    return (steps[..., None, 1:] * passed).cumsum(-1)[..., -1] + steps[..., :1]


def _ordered_bits(bits: torch.Tensor) -> torch.Tensor:
    """Bits of floating-point numbers as integers in their order; its own inverse. All but the sign of a negative is flipped."""
    width = 8 * bits.element_size()
    return bits ^ ((bits >> (width - 1)) & (2 ** (width - 1) - 1))
