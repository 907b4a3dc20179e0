"""A calibrator as a ``torch.nn.Module`` around the portable map (`core.map`): its numbers are buffers.

Logits may have any leading shape, any floating type and lie on any device; half precision is computed in float32. On the CPU,
where no gradient is asked for and nothing is traced, the map runs on numpy views of the tensors, whose calls cost less; on a
CUDA device in the kernels of `engines.triton_map`; everywhere else, and under ``torch.compile``, ``torch.export`` and
``torch.jit.trace``, in tensor operations without a branch on values.

A ``state_dict`` holds the numbers and, as bytes of JSON in a tensor, what they mean: logits or probabilities in, how many
classes and ranks, which statistics. So it fits into any file of tensors, is refused by a module that means something else, and
is enough to make the module again (`from_state_dict`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch

from ..core.libraries import torch_functions
from ..core.map import IN_DOUBLE, LOGITS, LOGS, PROBABILITIES, FittedMap, MapStep, Step, apply, map_of
from ..core.numpy_map import NumpyMap
from ..core.statistics import statistic_name
from ..engines import triton_map
from ..errors import InputError

xp = torch_functions()
# Logits that are worked on together on the host: about what stays in the cache.
_BLOCK = 2**16
# Where torch keeps the state that is no parameter and no buffer.
_MEANING = "_extra_state"
_MODES = {
    PROBABILITIES: triton_map.PROBABILITIES,
    LOGITS: triton_map.LOGITS,
    LOGS: triton_map.LOGS,
}
_BY_RANK = ("scale", "ranks")
# Numbers of a step that a state brings along: two modules need not agree in them.
_FITTED = ("scale", "floor", "scale_jumps")


def to_torch(calibrator: Any, *, dtype: torch.dtype = torch.float32) -> CalibratorModule:
    """The fitted calibrator as a module.

    Parameters
    ----------
    calibrator : Calibrator
        Fitted; a rank map, `StructuredScaling`, or a sequence of these (`Stacked`, `StructuredMCCT`, `LabelShift`).
    dtype : torch.dtype
        In which its numbers are kept, float32 or float64. ``module.half()`` and the like do not change it.

    Examples
    --------
    >>> import torch
    >>> import monocal as mc
    >>> data = mc.data.synthetic(500, 5)
    >>> module = mc.MCCT().fit(data.values, data.labels).to_torch()
    >>> module(torch.tensor(data.values[:2])).shape  # probabilities; module.transform(...) gives calibrated logits
    torch.Size([2, 5])
    """
    return CalibratorModule(map_of(calibrator), dtype)


def from_state_dict(state: Mapping[str, Any], prefix: str = "") -> CalibratorModule:
    """The module that a ``state_dict`` was taken of, from the state alone.

    Parameters
    ----------
    state : mapping
        ``module.state_dict()``, as `torch.load` or safetensors give it back.
    prefix : str
        The prefix of the module's own names, such as ``"1."`` for the second module of a ``Sequential``.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.export import from_state_dict
    >>> data = mc.data.synthetic(500, 5)
    >>> module = mc.MCCT().fit(data.values, data.labels).to_torch()
    >>> from_state_dict(module.state_dict()).n_classes
    5
    """
    if prefix + _MEANING not in state:
        raise InputError(
            f"state: there is no {prefix + _MEANING!r}, which says what the numbers mean. Take the state_dict of a module that "
            "to_torch() made, and give the names that lead to it as prefix="
        )
    meaning = _read_meaning(state[prefix + _MEANING])
    steps = []
    for i, step in enumerate(meaning.pop("steps")):
        if not all(isinstance(q, str) for q in step["static"].get("statistics", ())):
            raise InputError(
                "state: the calibrator uses a statistic that is a Python function, which a state cannot hold. Make the module "
                "with to_torch(), and load the state into it."
            )
        arrays = {name: state[prefix + _buffer(i, name)].numpy(force=True) for name in step["arrays"]}
        steps.append(MapStep(step["kind"], arrays, step["static"]))
    dtype = getattr(torch, meaning.pop("dtype"))
    meaning.pop("input")
    return CalibratorModule(FittedMap(steps=tuple(steps), **meaning), dtype)


def _buffer(i: int, name: str) -> str:
    return f"step{i}_{name}"


def _read_meaning(tensor: Any) -> dict[str, Any]:
    try:
        meaning: dict[str, Any] = json.loads(bytes(tensor.tolist()))
    except (ValueError, AttributeError, TypeError) as error:
        raise InputError(f"state: {_MEANING!r} is not what to_torch() wrote ({error}).") from error
    return meaning


def _own_code(function: Any) -> Any:
    """The same function with a code object of its own: ``torch.compile`` counts recompilations by code object."""
    copy = FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__
    )
    copy.__doc__, copy.__annotations__ = function.__doc__, function.__annotations__
    return copy


class CalibratorModule(torch.nn.Module):
    """Calibrated probabilities of logits (..., m), or of probabilities where the calibrator was fitted on those.

    Of `BinaryMCCT`: P(class 1) of scores (n,), and probabilities of both classes (n, 2) of scores (n, 1) or of two columns.

    ``n_classes``, ``class_axis`` and ``classes`` (names of the columns) are those of the calibrator; ``keeps_order`` says whether
    the order of the classes within every row stays.
    """

    _host: NumpyMap | None
    _tables: triton_map.Tables | None

    def __init__(self, fitted: FittedMap, dtype: torch.dtype = torch.float32):
        super().__init__()
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"dtype must be torch.float32 or torch.float64, but is {dtype}.")
        self.name, self.classes, self._dtype = fitted.name, fitted.classes, dtype
        self.n_classes, self.class_axis = fitted.n_classes, fitted.class_axis
        self.smallest_probability, self.n_context = fitted.smallest_probability, fitted.n_context
        self._kinds = [step.kind for step in fitted.steps]
        self._static = [dict(step.static) for step in fitted.steps]
        self._names: list[list[str]] = []
        for i, step in enumerate(fitted.steps):
            # torch cannot save a program with an empty buffer, or with one in another order than C.
            arrays = {name: np.array(x, order="C") for name, x in step.arrays.items() if np.size(x)}
            self._names.append(list(arrays))
            for name, values in arrays.items():
                tensor = torch.from_numpy(values)
                cast = tensor.is_floating_point() and not name.startswith(IN_DOUBLE)
                self.register_buffer(_buffer(i, name), tensor.to(dtype) if cast else tensor)
        self.keeps_order = all(
            kind in _BY_RANK or static.get("keeps_order")
            for kind, static in zip(self._kinds, self._static, strict=True)
        )
        self._own_functions = bool(fitted.functions)
        self._widths = {output: fitted.width(output) for output in _MODES}
        self._takes_one_score = fitted.of_one_score() is not None
        self.refresh()
        self.__dict__["forward"] = MethodType(_own_code(CalibratorModule.forward), self)

    def forward(self, logits: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """Calibrated probabilities, of the type of ``logits``.

        A calibrator that was fitted with context takes it as a tensor (..., C): what ``calibrator.context_.codes(context)``
        gives.
        """
        return self._run(logits, context, PROBABILITIES)

    def transform(self, logits: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """Calibrated logits, 0 at the top and -inf where a class is masked; their softmax is the result of a call."""
        return self._run(logits, context, LOGITS)

    def log_probabilities(self, logits: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """Logarithms of the calibrated probabilities, -inf where a class is masked."""
        return self._run(logits, context, LOGS)

    def _run(self, logits: torch.Tensor, context: torch.Tensor | None, output: str) -> torch.Tensor:
        if logits.ndim == 1 and self._takes_one_score:
            column = logits[:, None]
            if self.n_classes == 1:
                return self._run(column, context, output)[:, -1]
            # Of two columns the map takes the difference, or the second where they are probabilities.
            both = torch.cat([torch.zeros_like(column), column], dim=1)
            both = self._run(both, context, output)
            return both[:, 1] - both[:, 0] if output == LOGITS else both[:, 1]
        if self.class_axis != -1:
            logits = logits.movedim(self.class_axis, -1)
        shape, dtype = logits.shape, logits.dtype
        m = shape[-1]
        if m != self.n_classes:
            raise InputError(
                f"logits have {m} columns, but the calibrator was fitted on {self.n_classes} classes."
            )
        if self.n_context or context is not None:
            context = self._checked(context, logits)
        if self.has_kernels(logits):
            assert self._tables is not None
            rows = logits.reshape(-1, m)
            result = triton_map.apply(rows, self._tables, _MODES[output], context).reshape(shape)
        else:
            narrow = None
            if dtype == torch.float16 or dtype == torch.bfloat16:
                kind = torch.finfo(dtype)
                narrow = (kind.eps, kind.smallest_normal)
            on_host = self._takes_numpy(logits)
            z = logits.float() if narrow else logits
            z = z if z.ndim == 2 else z.reshape(-1, m)
            result = (self._on_host if on_host else self._by_torch)(z, context, output, narrow)
            if dtype == torch.float16 and output != PROBABILITIES:
                result = torch.where(torch.isinf(result), result, result.clamp(-65472.0, 65472.0))
            result = result.to(dtype) if narrow else result
            if len(shape) != 2:
                result = result.reshape(*shape[:-1], self._widths[output])
        return result if self.class_axis == -1 else result.movedim(-1, self.class_axis)

    def _checked(self, context: torch.Tensor | None, logits: torch.Tensor) -> torch.Tensor:
        if not self.n_context:
            raise InputError("context: the calibrator was fitted without one. Leave it out.")
        expected = (*logits.shape[:-1], self.n_context)
        if context is None or tuple(context.shape) != expected:
            raise InputError(
                f"context must have shape {expected}, what calibrator.context_.codes() gives, but is "
                f"{'missing' if context is None else tuple(context.shape)}."
            )
        return context.reshape(-1, self.n_context)

    def has_kernels(self, logits: torch.Tensor) -> bool:
        """Whether two kernels do it all: on a CUDA device, where no gradient is asked for and nothing is traced."""
        if not logits.is_cuda or torch.compiler.is_compiling() or torch.jit.is_tracing():
            return False
        if len(self._kinds) > 1 or self._tables is None or self._tables.scale_steps.device != logits.device:
            return False
        gradient = logits.requires_grad and torch.is_grad_enabled()
        usual = self.smallest_probability is None and logits.shape[-1] == self.n_classes
        s = self._static[0]
        return usual and not gradient and triton_map.suits(logits, s["n_jumps"], tuple(s["statistics"]))

    def _takes_numpy(self, logits: torch.Tensor) -> bool:
        """Whether nothing is lost by leaving torch: on the CPU, without gradients, and nothing is traced."""
        return (
            type(logits) is torch.Tensor
            and logits.is_cpu
            and not (logits.requires_grad and torch.is_grad_enabled())
            and not torch.compiler.is_compiling()
            and not torch.jit.is_tracing()
            and torch._C._functorch.peek_interpreter_stack() is None
            and not self._own_functions
        )

    def _on_host(
        self, z: torch.Tensor, context: torch.Tensor | None, output: str, narrow: tuple[float, float] | None
    ) -> torch.Tensor:
        if self._host is None:
            steps = [
                MapStep(kind, {name: t.cpu().numpy() for name, t in own.items()}, static)
                for kind, own, static in self._arrays(lambda t: t)
            ]
            self._host = NumpyMap(steps, self.smallest_probability)
        x = (z.detach() if z.requires_grad else z).numpy()
        codes = None if context is None else context.detach().double().numpy()
        size = max(1, _BLOCK // self.n_classes)
        if len(x) <= size:
            return torch.from_numpy(self._host(x, output, codes, narrow))
        out = np.empty((len(x), self._widths[output]), dtype=x.dtype)
        for begin in range(0, len(x), size):
            rows = slice(begin, begin + size)
            out[rows] = self._host(x[rows], output, None if codes is None else codes[rows], narrow)
        return torch.from_numpy(out)

    def _by_torch(
        self, z: torch.Tensor, context: torch.Tensor | None, output: str, narrow: tuple[float, float] | None
    ) -> torch.Tensor:
        steps = self._arrays(lambda t: t.to(z.dtype))
        # Autocast would round a matrix product.
        exact = any(static.get("matrix") for static in self._static)
        with torch.autocast(z.device.type, enabled=False) if exact else nullcontext():
            smallest = self.smallest_probability
            result: torch.Tensor = apply(
                z, steps, xp, output, smallest_probability=smallest, context=context, narrow=narrow
            )
        return result

    def _arrays(self, cast: Callable[[torch.Tensor], torch.Tensor]) -> list[Step]:
        """Kind, numbers and static data of each step; ``cast`` brings floating-point numbers into a type."""
        steps = []
        for i, (kind, names, static) in enumerate(zip(self._kinds, self._names, self._static, strict=True)):
            arrays = {}
            for name in names:
                t = getattr(self, _buffer(i, name))
                arrays[name] = cast(t) if t.is_floating_point() and not name.startswith(IN_DOUBLE) else t
            steps.append((kind, arrays, static))
        return steps

    def refresh(self) -> None:
        """Forget what was derived from the buffers."""
        self._host = None
        self._tables = None
        if self._kinds[0] in _BY_RANK and self.step0_steps.is_cuda:
            self._tables = triton_map.Tables.of(*self._arrays(lambda t: t)[0][1:])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_host": None}

    def __prepare_scriptable__(self) -> Any:
        raise InputError(
            "torch.jit.script cannot compile a calibrator. Use torch.jit.trace(module, rows), torch.export.export or "
            "torch.compile."
        )

    def extra_repr(self) -> str:
        ranks = [f"n_ranks={s['n_ranks']}, jumps={s['n_jumps']}" for s in self._static if "n_ranks" in s]
        return ", ".join([f"n_classes={self.n_classes}", *ranks])

    # State

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> CalibratorModule:
        def without_cast(t: torch.Tensor) -> torch.Tensor:
            moved: torch.Tensor = fn(t)
            return moved if moved.dtype == t.dtype else t.to(moved.device)

        # A model cast to half precision must not round the calibrator with it.
        super()._apply(without_cast, recurse)
        self.refresh()
        return self

    def get_extra_state(self) -> torch.Tensor:
        """What the numbers of the state mean: JSON, as bytes."""
        steps = [
            {"kind": kind, "arrays": names, "static": static}
            for kind, names, static in zip(self._kinds, self._names, self._static, strict=True)
        ]
        meaning = {
            "name": self.name,
            "input": "logits" if self.smallest_probability is None else "probabilities",
            "n_classes": self.n_classes,
            "dtype": str(self._dtype).rpartition(".")[2],
            "smallest_probability": self.smallest_probability,
            "classes": self.classes,
            "class_axis": self.class_axis,
            "steps": steps,
        }
        text = json.dumps(meaning, default=lambda function: {"function": statistic_name(function)})
        return torch.tensor(list(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        meaning = _read_meaning(state)
        self.name, self.classes = meaning["name"], meaning["classes"]
        self.smallest_probability, self.class_axis = meaning["smallest_probability"], meaning["class_axis"]
        for mine, step in zip(self._static, meaning["steps"], strict=True):
            mine.update({name: step["static"][name] for name in _FITTED if name in step["static"]})
        self.refresh()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        if prefix + _MEANING in state_dict:
            # Before anything is copied, so that a refused state leaves the module as it was.
            mine, theirs = (_read_meaning(s) for s in (self.get_extra_state(), state_dict[prefix + _MEANING]))
            own, other = _structure(mine), _structure(theirs)
            for what, value in own.items():
                if value != other.get(what):
                    raise InputError(
                        f"state_dict: its calibrator ({theirs['name']}) has {what} = {other.get(what)}, this module "
                        f"({self.name}) has {value}. Make the module of the state itself: from_state_dict(state)."
                    )
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _structure(meaning: dict[str, Any]) -> dict[str, Any]:
    """In what two modules must agree for one to load the state of the other."""
    steps = meaning["steps"]
    own = {"input": meaning["input"], "n_classes": meaning["n_classes"], "kinds": [s["kind"] for s in steps]}
    for i, step in enumerate(steps):
        for name, value in step["static"].items():
            if name not in _FITTED:
                own[f"{name} of step {i}" if i else name] = value
    return own
