"""Calibrated logits in vLLM: the interface of its logits processors (``vllm.v1.sample.logits_processor``), without needing vLLM.

    apply(x) = f(T x) / T,      x = z / T

vLLM applies processors that do not change the argmax after it has divided the model's logits ``z`` by the temperature ``T`` that
a request asks for, and skips them where a request is greedy. Calibration ``f`` is of the model's own logits, so they are
multiplied by ``T`` first, and the result is divided by it again: ``T`` means what it means without. Both round monotonically,
and the order of the tokens is kept.

A server loads the class by its name and finds the calibrator in its configuration or in the environment:

    MONOCAL_CALIBRATOR=cal.json vllm serve MODEL --logits-processors monocal.export.vllm_logits:CalibratedLogits
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from typing import Any

import torch

from ..arrays import keep_argmax
from ..errors import InputError
from ..persistence import load
from .hooks import LogitsProcessor

# Where a server's configuration (``--additional-config``) and the environment name the calibrator's file.
_OPTION, _VARIABLE = "monocal_calibrator", "MONOCAL_CALIBRATOR"
# What a request may say in ``extra_args`` (``vllm_xargs`` of the server): false leaves its logits as they are.
_REQUEST = "monocal"
# vLLM's own limit below which a temperature means greedy search.
_GREEDY = 1e-5


def _base() -> type:
    """vLLM's class where it is installed, for it takes subclasses only."""
    if importlib.util.find_spec("vllm") is None:
        return object
    base: type = importlib.import_module("vllm.v1.sample.logits_processor").LogitsProcessor
    return base


def _calibrates(params: Any) -> Any:
    """What a request says of its calibration."""
    return (getattr(params, "extra_args", None) or {}).get(_REQUEST, True)


class CalibratedLogits(_base()):  # type: ignore[misc]  # known only where vLLM is installed
    """A logits processor of vLLM that calibrates every request.

    Parameters
    ----------
    vllm_config : VllmConfig
        Its ``additional_config["monocal_calibrator"]`` may name the calibrator's file.
    device : torch.device
    is_pin_memory : bool

    Examples
    --------
    >>> import torch
    >>> import monocal as mc
    >>> from monocal.export.vllm_logits import vllm_processor
    >>> data = mc.data.synthetic(500, 5)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> processor = vllm_processor(cal)(None, torch.device("cpu"), False)  # as vLLM makes it
    >>> processor.apply(torch.tensor(data.values[:2])).shape
    torch.Size([2, 5])
    """

    calibrator: Any = None  # set by `vllm_processor`
    pad = True

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        calibrator = self.calibrator
        if calibrator is None:
            options = getattr(vllm_config, "additional_config", None)
            path = (options.get(_OPTION) if isinstance(options, dict) else None) or os.environ.get(_VARIABLE)
            if not path:
                raise InputError(
                    f"There is no calibrator: name the file that cal.save() wrote in the environment ({_VARIABLE}=cal.json) or "
                    f'in --additional-config \'{{"{_OPTION}": "cal.json"}}\', or make the class with vllm_processor(cal).'
                )
            calibrator = load(path)
        self._process = LogitsProcessor(calibrator, pad=self.pad, normalize=False)
        self._process.module.to(device)
        # By the place of a request in the batch: its temperature, None where it is to be left as it is.
        self._requests: dict[int, float | None] = {}

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse a request that says of calibration something else than true or false, or has no finite temperature."""
        if not isinstance(_calibrates(sampling_params), bool):
            raise InputError(
                f"extra_args: {_REQUEST!r} must be true or false, but is {_calibrates(sampling_params)!r}."
            )
        temperature = getattr(sampling_params, "temperature", None)
        if temperature is not None and not math.isfinite(temperature):
            raise InputError(f"temperature must be a finite number, but is {temperature!r}.")

    def is_argmax_invariant(self) -> bool:
        """True for every calibrator that keeps the order of the classes."""
        return bool(self._process.module.keeps_order)

    def update_state(self, batch_update: Any) -> None:
        """Follow requests as they come, go and move within the batch; None: nothing has changed."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._requests.pop(index, None)
        for index, params, *_ in batch_update.added:
            temperature = float(getattr(params, "temperature", None) or 0.0)
            usual = _GREEDY <= temperature <= torch.finfo(torch.float32).max
            self._requests[index] = (temperature if usual else 1.0) if _calibrates(params) else None
        for start, end, how in batch_update.moved:
            one, other = self._requests.pop(start, 1.0), self._requests.pop(end, 1.0)
            self._requests[end] = one
            if how.name == "SWAP":
                self._requests[start] = other

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Calibrated logits (requests, vocabulary)."""
        requests = [self._requests.get(i, 1.0) for i in range(len(logits))]
        if all(t is None for t in requests):
            return logits
        if self.is_argmax_invariant() and any(t not in (None, 1.0) for t in requests):
            temperature = torch.tensor([t or 1.0 for t in requests], dtype=logits.dtype)[:, None]
            temperature = temperature.to(logits.device)
            result = keep_argmax(self._process(None, logits * temperature) / temperature, logits)
        else:
            result = self._process(None, logits)
        if None in requests:
            kept = torch.tensor([t is None for t in requests], device=logits.device)
            result = torch.where(kept[:, None], logits, result)
        return result


def vllm_processor(calibrator: Any, *, pad: bool = True) -> type[CalibratedLogits]:
    """A subclass of `CalibratedLogits` for ``vllm.LLM(..., logits_processors=[...])`` that calibrates with this calibrator.

    Where vLLM runs its engine in a process of its own, name `CalibratedLogits` itself and the calibrator's file instead.

    Parameters
    ----------
    calibrator : Calibrator or the module that `to_torch` makes of it
    pad : bool
        As of `LogitsProcessor`.

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.export import vllm_processor
    >>> data = mc.data.synthetic(500, 5)
    >>> vllm_processor(mc.MCCT().fit(data.values, data.labels)).__name__
    'CalibratedLogits'
    """
    LogitsProcessor(calibrator, pad=pad)  # says now what it cannot take
    return type("CalibratedLogits", (CalibratedLogits,), {"calibrator": calibrator, "pad": pad})
