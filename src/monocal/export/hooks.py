"""Calibrated scores where a model gives logits: a hook behind any torch module, and a logits processor of language models.

    attach(model, cal)         model(x) gives calibrated logits
    LogitsProcessor(cal)       (input_ids, scores) -> log p,   p = calibrated probabilities of ``scores``

The latter is the interface of the logits processors of the transformers package, which need not be installed. The scores given
back are log-probabilities, so greedy and beam search, sampling and scoring can all go on from them. Tokens masked with
``-inf`` by an earlier processor stay masked.

A model calls its processors once a token, with scores of one shape. On a CUDA device the kernels take less time than their
launches take the host, so after a few calls with one shape they are launched at once, as a CUDA graph. Within a graph that
somebody else captures, they join that one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from ..errors import InputError, warn
from .torch import to_torch

# Calls before a graph is made, kinds of calls that are counted, and scores beyond which a launch does not matter.
_CALLS, _SHAPES, _LARGEST = 3, 16, 2**25


def _module_for_logits(calibrator: Any) -> Any:
    """The module of a calibrator, or the one given, for a place where there are logits and nothing else."""
    module = calibrator if isinstance(calibrator, torch.nn.Module) else to_torch(calibrator)
    if module.smallest_probability is not None:
        raise InputError(
            "The calibrator was fitted on probabilities, but models give logits. Fit it with input='logits'."
        )
    if module.n_context:
        raise InputError(
            "The calibrator was fitted with context, which a model does not give. Fit it without, or call to_torch() and give "
            "its module both."
        )
    return module


class LogitsProcessor:
    """Calibrate the scores of a language model as it generates: ``model.generate(..., logits_processor=[LogitsProcessor(cal)])``.

    Parameters
    ----------
    calibrator : Calibrator or the module that `to_torch` makes of it
        Fitted on next-token logits of the same vocabulary; ``top_k`` keeps it fast on a large one.
    pad : bool
        Whether the model may emit more columns than the calibrator was fitted with, as models do whose vocabulary is filled up
        to a round number. The further columns are tokens like others: the order over all columns is kept.
    normalize : bool
        Whether scores come back as log-probabilities, which beam search and scoring need. Without it they are calibrated logits
        with the same softmax, enough for sampling, at less cost.

    Examples
    --------
    >>> import torch
    >>> import monocal as mc
    >>> from monocal.export import LogitsProcessor
    >>> cal = mc.TemperatureScaling().fit([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]], [0, 1, 1])
    >>> LogitsProcessor(cal)(torch.tensor([[0]]), torch.tensor([[2.0, 0.0]])).exp().sum()
    tensor(1.)
    """

    def __init__(self, calibrator: Any, *, pad: bool = False, normalize: bool = True):
        self.module = _module_for_logits(calibrator)
        self._fitted = self.module  # ``module`` may come to be one for more columns
        self.pad, self.normalize = pad, normalize
        # What stands for a kind of call: how often it has come, then its graph.
        self._graphs: dict[Any, int | _Graph] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_graphs": {}}

    @torch.no_grad()
    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        """Calibrated log-probabilities (..., vocabulary), in the type and on the device of ``scores``."""
        if scores.shape[-1] != self.module.n_classes:
            self.module = self._for_columns(scores.shape[-1])
            self._graphs.clear()
        if next(self.module.buffers()).device != scores.device:
            self.module.to(scores.device)
            self._graphs.clear()
        function = self.module.log_probabilities if self.normalize else self.module.transform
        if not scores.is_cuda or torch.cuda.is_current_stream_capturing():
            return function(scores)
        stream = torch.cuda.current_stream(scores.device).cuda_stream
        numbers = next(self.module.buffers()).data_ptr()
        key = scores.shape, scores.dtype, scores.device, stream, numbers
        graph = self._graphs.get(key, 0)
        if isinstance(graph, int) and scores.numel() <= _LARGEST and self.module.has_kernels(scores):
            if graph >= _CALLS:
                graph = self._graphs[key] = _Graph(function, scores)
            elif graph or len(self._graphs) < _SHAPES:
                self._graphs[key] = graph + 1
        return graph(scores) if isinstance(graph, _Graph) else function(scores)

    def _for_columns(self, m: int) -> torch.nn.Module:
        """The module for rows of ``m`` columns, more than it was fitted with: its ranks are counted from the top, as before."""
        fitted = self._fitted
        if not self.pad or m < fitted.n_classes:
            more = " Give pad=True if the model fills its vocabulary up." if m > fitted.n_classes else ""
            raise InputError(
                f"scores have {m} columns, but the calibrator was fitted on {fitted.n_classes} classes.{more}"
            )
        if not fitted.keeps_order:
            raise InputError(
                "pad=True needs a calibrator by rank: this one has parameters for each class. Use MCCT, ConditionalMCCT or "
                "TemperatureScaling, or fit it on all columns."
            )
        module = copy.deepcopy(fitted)
        module.n_classes = m
        for name, scales in module.named_buffers():
            if name.endswith("class_scales"):
                setattr(module, name, torch.cat([scales, scales.new_ones(m - len(scales))]))
        module.refresh()
        return module


class _Graph:
    """A function of scores as one launch."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], scores: torch.Tensor):
        self._input = scores.clone()
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may go on allocating memory meanwhile.
        with (
            torch.cuda.device(scores.device),
            torch.cuda.graph(self._graph, capture_error_mode="thread_local"),
        ):
            self._result = function(self._input)

    def __call__(self, scores: torch.Tensor) -> torch.Tensor:
        self._input.copy_(scores)
        self._graph.replay()
        return self._result.clone()  # the next call writes there


class _Calibrate:
    """The hook behind a model."""

    def __init__(self, module: torch.nn.Module):
        self.module = module

    def __call__(self, model: torch.nn.Module, inputs: Any, outputs: Any) -> Any:
        logits = outputs if isinstance(outputs, torch.Tensor) else getattr(outputs, "logits", None)
        if not isinstance(logits, torch.Tensor):
            raise InputError(
                f"attach: the model returned {type(outputs).__name__}, expected a tensor of logits or an object with logits. "
                "Call it with return_dict=True."
            )
        if next(self.module.buffers()).device != logits.device:
            self.module.to(logits.device)
        calibrated = self.module.transform(logits)
        if isinstance(outputs, torch.Tensor):
            return calibrated
        outputs.logits = calibrated
        return outputs


def _is_calibrated(model: torch.nn.Module) -> bool:
    return any(isinstance(hook, _Calibrate) for hook in model._forward_hooks.values())


def _warn_of_saving(model: torch.nn.Module, prefix: str, keep_vars: bool) -> None:
    """Before weights are collected, as ``save_pretrained`` and ``torch.save(model.state_dict())`` do."""
    if _is_calibrated(model):
        warn(
            "The weights of a model do not hold the calibrator that attach() has put behind it: save that with "
            "calibrator.save(path), and attach(model, monocal.load(path)) after loading the weights."
        )


def attach(model: torch.nn.Module, calibrator: Any) -> Any:
    """Let a classifier of torch give calibrated logits, until ``remove()`` of the handle is called.

    Parameters
    ----------
    model : torch.nn.Module
        It returns logits (..., m), or an object that has them as ``logits``, as models of transformers do.
    calibrator : Calibrator or the module that `to_torch` makes of it
        Fitted on logits of this model.

    Examples
    --------
    >>> import torch
    >>> import monocal as mc
    >>> from monocal.export import attach
    >>> data = mc.data.synthetic(500, 5)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> network, x = torch.nn.Identity(), torch.tensor(data.values[:2])
    >>> with attach(network, cal):
    ...     bool(torch.allclose(network(x).softmax(-1), torch.tensor(cal.predict_proba(x.numpy()))))
    True
    """
    module = _module_for_logits(calibrator)
    if _is_calibrated(model):
        raise InputError("attach: the model has a calibrator already. Call remove() of its handle first.")
    if _warn_of_saving not in model._state_dict_pre_hooks.values():
        model.register_state_dict_pre_hook(_warn_of_saving)
    return model.register_forward_hook(_Calibrate(module))
