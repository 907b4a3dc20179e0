"""A calibrator as a ``torch.nn.Module``: no Python, no copies to the host and no branches on values inside.

    x = z - max z;   t = x_(s) at the jumps s;   L = #{t < x}, R = #{t <= x};   f = w u + b,   u = x - x_low,
    w = W_L + clip(P_R - P_L, 0, W_R - W_L).

``W`` are running sums of the weight's steps. A class strictly between two thresholds has ``L = R`` and ``w = W_L``.
Classes equal to a threshold are a group of ties that the jump splits or begins: ``P`` are running sums of ``step * share``,
with ``share`` the part of the group at or above the jump, so each gets the mean of its group. ``searchsorted`` finds L and R, so
nothing is scattered, and gradients reach the logits through ``x`` and ``x_low``.

Logits may have any leading shape, any floating type and lie on any device; half precision is computed in float32.

A ``state_dict`` holds the numbers and, as bytes of JSON in a tensor, what they mean: logits or probabilities in, how many
classes and ranks, which statistics. So it fits into any file of tensors, is refused by a module that means something else, and
is enough to make the module again (`from_state_dict`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ..calibration.statistics import STATISTICS, statistic_name
from ..errors import InputError, warn
from ..kernel import triton_map
from ..ranks.ranked import LARGEST
from .chain import chain_of
from .exact import ExactModule, along_classes
from .plan import Plan
from .torch_adjustment import AdjustmentModule, blank_adjustment
from .torch_depths import TorchDepths
from .torch_order import as_logits, count_lower, lift_top, narrow, ordered_softmax, summed, with_a_row_more


def to_torch(calibrator: Any, *, dtype: torch.dtype = torch.float32) -> Any:
    """The fitted calibrator as a module.

    Parameters
    ----------
    calibrator : Calibrator
        Fitted; a rank map, `StructuredScaling`, or a sequence of these (`Stacked`, `StructuredMCCT`, `LabelShift`).
    dtype : torch.dtype
        In which its numbers are kept, float32 or float64. ``module.half()`` and the like do not change it.

    Returns
    -------
    CalibratorModule or ChainModule
        ``module(logits)`` gives probabilities, ``module.transform(logits)`` calibrated logits.

    Examples
    --------
    >>> import torch
    >>> import monocal as mc
    >>> data = mc.data.synthetic(500, 5)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> module = cal.to_torch()
    >>> module(torch.tensor(data.values[:2])).shape
    torch.Size([2, 5])
    """
    plan = chain_of(calibrator)
    if isinstance(plan, Plan):
        return CalibratorModule(plan, dtype)
    from .torch_chain import ChainModule

    return ChainModule(plan, dtype)


def module_for_logits(calibrator: Any) -> Any:
    """The module of a calibrator, or the one given, for a place where there are logits and nothing else."""
    module = calibrator if isinstance(calibrator, torch.nn.Module) else to_torch(calibrator)
    if module.smallest_probability is not None:
        raise InputError(
            "The calibrator was fitted on probabilities, but models give logits. Fit it with input='logits'."
        )
    if getattr(module, "n_context", 0):
        raise InputError(
            "The calibrator was fitted with context, which a model does not give. Fit it without, or call to_torch() and give "
            "its module both."
        )
    return module


def from_state_dict(state: Mapping[str, Any], prefix: str = "") -> Any:
    """The module that a ``state_dict`` was taken of, from the state alone.

    Parameters
    ----------
    state : mapping
        ``module.state_dict()``, as `torch.load` or safetensors give it back.
    prefix : str
        What stands before the module's own names, such as ``"1."`` for the second module of a ``Sequential``.

    Returns
    -------
    CalibratorModule or ChainModule

    Examples
    --------
    >>> import torch
    >>> import monocal as mc
    >>> data = mc.data.synthetic(500, 5)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> from monocal.export import from_state_dict
    >>> module = cal.to_torch()
    >>> again = from_state_dict(module.state_dict())
    >>> x = torch.tensor(data.values[:2])
    >>> bool((again(x) == module(x)).all())
    True
    """
    own = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    if _MEANING not in own:
        raise InputError(
            f"state: there is no {prefix + _MEANING!r}, which says what the numbers mean. Take the state_dict of a module that "
            "to_torch() made, and give the names that lead to it as prefix="
        )
    told = read_meaning(own[_MEANING])
    if "steps" in told:
        from .torch_chain import chain_of_state

        return chain_of_state(own, told)
    functions = [s["function"] for s in told["statistics"] if not isinstance(s, str)]
    if functions:
        raise InputError(
            f"state: the calibrator uses the statistic {functions[0]!r}, a Python function, which a state cannot hold. Make the "
            "module with to_torch(), and load the state into it."
        )
    steps = np.zeros((told["n_factors"], told["n_jumps"] + 1))
    ramps = np.zeros(told["n_factors"] - 1)
    plan = Plan(
        name=told["name"],
        n_classes=told["n_classes"],
        n_ranks=told["n_ranks"],
        jumps=np.zeros(told["n_jumps"], dtype=np.int64),
        scale_steps=steps,
        bias_steps=steps,
        statistics=tuple(told["statistics"]),
        ramp_statistic=ramps.astype(np.int64),
        ramp_zero=ramps,
        ramp_width=ramps + 1.0,
        smallest_probability=told["smallest_probability"],
        classes=told["classes"],
        adjustment=blank_adjustment(told["n_classes"], told.get("adjustment")),
        class_axis=told.get("class_axis", -1),
    )
    module = CalibratorModule(plan, own["scale_steps"].dtype)
    module.load_state_dict(own)
    return module


# What two modules must agree in for one to load the state of the other.
_SHAPE = ("input", "n_classes", "n_ranks", "statistics", "n_jumps", "n_factors", "adjustment")
# Where torch keeps the state that is no parameter and no buffer.
_MEANING = "_extra_state"


def written_meaning(told: dict[str, Any]) -> torch.Tensor:
    """What numbers mean as a tensor, bytes of JSON, so that it fits into any file of tensors."""
    return torch.tensor(list(json.dumps(told).encode()), dtype=torch.uint8)


def read_meaning(tensor: Any) -> dict[str, Any]:
    """The inverse."""
    try:
        told: dict[str, Any] = json.loads(bytes(tensor.tolist()))
    except (ValueError, AttributeError, TypeError) as error:
        raise InputError(f"state: {_MEANING!r} is not what to_torch() wrote ({error}).") from error
    return told


class CalibratorModule(ExactModule):
    """Calibrated probabilities of logits (..., m), or of probabilities where the calibrator was fitted on those.

    Attributes
    ----------
    n_classes, n_ranks : int
    class_axis : int
        The axis of the classes, as of the calibrator; a context has its columns last.
    classes : list of str or None
        Names of the columns, where the calibrator was fitted on columns with names.
    jumps, scale_steps, bias_steps, ramp_statistic, ramp_zero, ramp_width : Tensor
        Buffers: see `Plan`.
    """

    jumps: torch.Tensor
    scale_steps: torch.Tensor
    bias_steps: torch.Tensor
    ramp_statistic: torch.Tensor
    ramp_zero: torch.Tensor
    ramp_width: torch.Tensor

    def __init__(self, plan: Plan, dtype: torch.dtype = torch.float32):
        super().__init__()
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"dtype must be torch.float32 or torch.float64, but is {dtype}.")
        self.name, self.classes = plan.name, plan.classes
        self.n_classes, self.class_axis = plan.n_classes, plan.class_axis
        self.n_ranks = plan.n_ranks
        self.statistics = plan.statistics
        self.smallest_probability = plan.smallest_probability
        self.n_jumps, self.n_factors = len(plan.jumps), len(plan.scale_steps)
        for name, values in (
            ("jumps", plan.jumps),
            ("scale_steps", plan.scale_steps),
            ("bias_steps", plan.bias_steps),
            ("ramp_statistic", plan.ramp_statistic),
            ("ramp_zero", plan.ramp_zero),
            ("ramp_width", plan.ramp_width),
        ):
            tensor = torch.from_numpy(np.array(values, order="C"))
            if tensor.is_floating_point():
                tensor = tensor.to(dtype)
            # torch cannot save a program with an empty buffer, or with one in another order than C.
            self.register_buffer(name, tensor if len(values) else None)
        self.n_context = plan.n_context
        self.adjustment = None if plan.adjustment is None else AdjustmentModule(plan.adjustment, dtype)

    @along_classes
    def forward(self, logits: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """Calibrated probabilities, of the shape and type of ``logits``.

        A calibrator that was fitted with context takes it as a tensor (..., C): what ``calibrator.context_.codes(context)``
        gives.
        """
        if self.has_kernels(logits):
            return self._by_kernels(logits, triton_map.PROBABILITIES, context)
        p = ordered_softmax(self._adjusted(logits, context, True)).to(logits.dtype)
        return lift_top(p, logits)

    @along_classes
    def transform(self, logits: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """Calibrated logits, -inf where a class is masked; their softmax is the result of a call."""
        if self.has_kernels(logits):
            return self._by_kernels(logits, triton_map.LOGITS, context)
        f = self._adjusted(logits, context)
        return lift_top(narrow(f, logits.dtype), logits)

    @along_classes
    def log_probabilities(self, logits: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """Logarithms of the calibrated probabilities, -inf where a class is masked."""
        if self.has_kernels(logits):
            return self._by_kernels(logits, triton_map.LOGS, context)
        f = self._adjusted(logits, context, True)
        f = f - f.amax(-1, keepdim=True)
        return lift_top(narrow(f - f.logsumexp(-1, keepdim=True), logits.dtype), logits)

    def has_kernels(self, logits: torch.Tensor) -> bool:
        """Whether two kernels do it all: on a CUDA device, where no gradient is asked for and nothing is traced."""
        if not logits.is_cuda or torch.compiler.is_compiling() or torch.jit.is_tracing():
            return False
        wanted = logits.requires_grad and torch.is_grad_enabled()
        own = self.smallest_probability is None and self.scale_steps.device == logits.device
        right = logits.shape[-1] == self.n_classes
        return own and right and not wanted and triton_map.suits(logits, self.n_jumps, self.statistics)

    def _by_kernels(self, logits: torch.Tensor, mode: int, context: torch.Tensor | None) -> torch.Tensor:
        self._check_context(context)
        none = self.scale_steps  # is not looked at
        buffers = (
            self.jumps,
            self.scale_steps,
            self.bias_steps,
            self.ramp_statistic,
            self.ramp_zero,
            self.ramp_width,
        )
        jumps, scales, biases, which, zero, width = (none if b is None else b for b in buffers)
        names = tuple(s for s in self.statistics if isinstance(s, str))
        table = triton_map.Tables(
            jumps, scales, biases, which, zero, width, self.n_jumps, self.n_factors, self.n_ranks, names
        )
        stage = None if self.adjustment is None else self.adjustment.for_kernels(logits, context)
        result: torch.Tensor = triton_map.apply(logits.reshape(-1, self.n_classes), table, mode, stage)
        return result.reshape(logits.shape)

    def get_extra_state(self) -> torch.Tensor:
        """What the numbers of the state mean: JSON, as bytes."""
        statistics = [s if isinstance(s, str) else {"function": statistic_name(s)} for s in self.statistics]
        told = {
            "name": self.name,
            "input": "logits" if self.smallest_probability is None else "probabilities",
            "n_classes": self.n_classes,
            "n_ranks": self.n_ranks,
            "statistics": statistics,
            "n_jumps": self.n_jumps,
            "n_factors": self.n_factors,
            "smallest_probability": self.smallest_probability,
            "classes": self.classes,
            "adjustment": None if self.adjustment is None else self.adjustment.meaning(),
            "class_axis": self.class_axis,
        }
        return written_meaning(told)

    def set_extra_state(self, state: torch.Tensor) -> None:
        told = read_meaning(state)
        self.name, self.classes = told["name"], told["classes"]
        self.smallest_probability = told["smallest_probability"]
        self.class_axis = told.get("class_axis", -1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        if prefix + _MEANING in state_dict:
            # Before anything is copied, so that a refused state leaves the module as it was.
            mine, theirs = (read_meaning(s) for s in (self.get_extra_state(), state_dict[prefix + _MEANING]))
            for what in _SHAPE:
                if mine[what] != theirs.get(what):
                    raise InputError(
                        f"state_dict: its calibrator ({theirs.get('name')}) has {what} = {theirs.get(what)}, this module "
                        f"({self.name}) has {mine[what]}. Make the module of the state itself: "
                        "monocal.export.from_state_dict(state)."
                    )
        elif prefix + "scale_steps" in state_dict:
            warn(
                "state_dict: it was saved by monocal 0.1 and does not say whether its calibrator takes logits or probabilities. "
                "It is loaded as what this module takes."
            )
            state_dict[prefix + _MEANING] = self.get_extra_state()
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        return f"n_classes={self.n_classes}, n_ranks={self.n_ranks}, jumps={self.n_jumps}"

    @with_a_row_more
    def _adjusted(
        self, logits: torch.Tensor, context: torch.Tensor | None, from_top: bool = False
    ) -> torch.Tensor:
        f = self._calibrate(logits, from_top)
        self._check_context(context)
        if self.adjustment is None:
            return f
        z = as_logits(logits, self.n_classes, self.smallest_probability)
        if from_top:
            f = f - f.amax(-1, keepdim=True)
        return self.adjustment(f, z == z.amax(-1, keepdim=True), context)

    def _check_context(self, context: torch.Tensor | None) -> None:
        if context is not None and not self.n_context:
            raise InputError("context: the calibrator was fitted without one. Leave it out.")

    def _calibrate(self, logits: torch.Tensor, from_top: bool = False) -> torch.Tensor:
        """Calibrated logits; ``from_top``, where all classes have one weight, less what they have in common.

        Measured from the lowest, a class that a large number hides (-1e9) would take the last digits of all others.
        """
        z = as_logits(logits, self.n_classes, self.smallest_probability)
        masked = torch.isinf(z)
        # A masked class lies below all others and takes part in nothing; -inf itself would make gradients nan.
        x = torch.where(masked, 0.0, z)
        x = (x - torch.where(masked, -torch.inf, z).amax(-1, keepdim=True)).clamp(min=-LARGEST)
        x = torch.where(masked, -2 * LARGEST, x)
        m, r = self.n_classes, self.n_ranks
        if r < m:
            ranked = x.topk(r, dim=-1).values.flip(-1)
        else:
            ranked = x.sort(dim=-1).values if self.n_jumps else x
        low = torch.where(ranked < -LARGEST, 0.0, ranked).amin(-1, keepdim=True)
        u = torch.where(masked, 0.0, x if from_top and not self.n_jumps else x - low)
        w, b = self._pieces(x, masked, ranked, low)
        if self.n_jumps:
            w, b = self._of_classes(x, ranked, low, w, b)
        return torch.where(masked, -torch.inf, w * u + b)

    def _pieces(
        self, x: torch.Tensor, masked: torch.Tensor, ranked: torch.Tensor, low: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Steps of weight and bias (..., J + 1) for each row."""
        steps = self.scale_steps.to(x.dtype), self.bias_steps.to(x.dtype)
        if self.ramp_zero is None:
            shape = (*x.shape[:-1], steps[0].shape[1])
            return steps[0][0].expand(shape), steps[1][0].expand(shape)
        v = TorchDepths(torch.where(masked, 0.0, -x), x == 0, masked)
        values = [
            STATISTICS[s](v) if isinstance(s, str) else self._own_statistic(s, x, ranked, low)
            for s in self.statistics
        ]
        q = torch.cat(values, dim=-1)[..., self.ramp_statistic]
        psi = ((q - self.ramp_zero.to(x.dtype)) / self.ramp_width.to(x.dtype)).clamp(0.0, 1.0)
        # Not a matrix product: autocast and reduced-precision modes would round it.
        w, b = ((psi[..., None] * s[1:]).sum(-2) + s[0] for s in steps)
        return w, b

    def _of_classes(
        self, x: torch.Tensor, ranked: torch.Tensor, low: torch.Tensor, w: torch.Tensor, b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight and bias of each class (..., m)."""
        with torch.no_grad():
            at_jump = ranked[..., self.jumps].contiguous()
            ranked = ranked.contiguous()
            below, above = count_lower(ranked, at_jump), count_lower(ranked, at_jump, or_equal=True)
            group = above - below
            if self.n_ranks < self.n_classes:
                beyond = (x == low).sum(-1, keepdim=True) - (ranked == low).sum(-1, keepdim=True)
                group = group + torch.where(at_jump == low, beyond, 0)
            share = (above - self.jumps).to(x.dtype) / group.to(x.dtype)
            if torch.onnx.is_in_onnx_export():
                return summed(w, at_jump, share, x), summed(b, at_jump, share, x)
            classes = x.contiguous()
            left, right = count_lower(at_jump, classes), count_lower(at_jump, classes, or_equal=True)
        return _look_up(w, share, left, right), _look_up(b, share, left, right)

    def _own_statistic(
        self, statistic: Callable[..., Any], x: torch.Tensor, ranked: torch.Tensor, low: torch.Tensor
    ) -> torch.Tensor:
        """A user's own statistic (..., 1) of each row."""
        in_order = ranked if self.n_jumps or self.n_ranks < self.n_classes else x.sort(dim=-1).values
        sorted_u = (in_order - low).clamp(min=0.0).reshape(-1, self.n_ranks)
        value = torch.as_tensor(statistic(sorted_u), device=x.device).to(x.dtype)
        return value.reshape(*x.shape[:-1], 1)


def _look_up(
    steps: torch.Tensor, share: torch.Tensor, left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    """Values of the classes: whole steps below ``left``, shares of those from there to ``right``."""
    # The running maximum takes back what a parallel sum may lose by rounding in another order.
    whole = steps.cumsum(-1).cummax(-1).values
    part = torch.nn.functional.pad((steps[..., 1:] * share).cumsum(-1), (1, 0))
    base = whole.gather(-1, left)
    value = base + (part.gather(-1, right) - part.gather(-1, left))
    return torch.minimum(torch.maximum(value, base), whole.gather(-1, right))
