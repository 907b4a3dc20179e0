"""Calibrated next-token scores for language models: a callable ``(input_ids, scores) -> scores``.

    scores_out = log p,    p = calibrated probabilities of the logits (or log-probabilities) ``scores``

This is the interface of the logits processors of the transformers package, which need not be installed. The scores given
back are log-probabilities, so greedy and beam search, sampling and scoring can all go on from them. Tokens masked with
``-inf`` by an earlier processor stay masked.

A model calls its processors once a token, with scores of one shape. On a CUDA device the kernels take less time than their
launches take the host, so after a few calls with one shape they are launched at once, as a CUDA graph. Within a graph that
somebody else captures, they join that one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import InputError
from .torch import CalibratorModule, to_torch

# Calls before a graph is made, kinds of calls that are counted, and scores beyond which a launch does not matter.
_CALLS, _SHAPES, _LARGEST = 3, 16, 2**25


class LogitsProcessor:
    """Calibrate the scores of a language model as it generates.

    Parameters
    ----------
    calibrator : Calibrator or the module that `to_torch` makes of it
        Fitted on next-token logits of the same vocabulary; ``top_k`` keeps it fast on a large one.

    Examples
    --------
    >>> import numpy as np, torch
    >>> import monocal as mc
    >>> from monocal.export import LogitsProcessor
    >>> cal = mc.TemperatureScaling().fit([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]], [0, 1, 1])
    >>> process = LogitsProcessor(cal)
    >>> process(torch.tensor([[0]]), torch.tensor([[2.0, 0.0]])).exp().sum()
    tensor(1.)

    With transformers: ``model.generate(..., logits_processor=[LogitsProcessor(cal)])``.
    """

    def __init__(self, calibrator: Any):
        self.module = calibrator if isinstance(calibrator, torch.nn.Module) else to_torch(calibrator)
        if getattr(self.module, "n_context", 0):
            raise InputError(
                "The calibrator was fitted with context, but a logits processor is given scores alone. Fit it without, or call "
                "to_torch() and give the module both."
            )
        if self.module.smallest_probability is not None:
            raise InputError(
                "The calibrator was fitted on probabilities, but the scores of a language model are logits. Fit it with "
                "input='logits'."
            )
        # What stands for a kind of call: how often it has come, then its graph.
        self._graphs: dict[Any, int | _Graph] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_graphs": {}}

    @torch.no_grad()
    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        """Calibrated log-probabilities (..., vocabulary), in the type and on the device of ``scores``."""
        if next(self.module.buffers()).device != scores.device:
            self.module.to(scores.device)
            self._graphs.clear()
        if not self._in_graph(scores):
            return self.module.log_probabilities(scores)
        stream = torch.cuda.current_stream(scores.device).cuda_stream
        key = (scores.shape, scores.dtype, stream, self.module.scale_steps.data_ptr())
        graph = self._graphs.get(key, 0)
        if isinstance(graph, _Graph):
            return graph(scores)
        if len(self._graphs) < _SHAPES or graph:
            self._graphs[key] = graph + 1
        if graph < _CALLS:
            return self.module.log_probabilities(scores)
        made = self._graphs[key] = _Graph(self.module.log_probabilities, scores)
        return made(scores)

    def _in_graph(self, scores: torch.Tensor) -> bool:
        """Whether calls like this one are worth a graph of their own."""
        kernels = isinstance(self.module, CalibratorModule) and self.module.has_kernels(scores)
        return kernels and scores.numel() <= _LARGEST and not torch.cuda.is_current_stream_capturing()


class _Graph:
    """A function of scores as one launch."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], scores: torch.Tensor):
        self._given = scores.clone()
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may go on allocating memory meanwhile.
        with (
            torch.cuda.device(scores.device),
            torch.cuda.graph(self._graph, capture_error_mode="thread_local"),
        ):
            self._result = function(self._given)

    def __call__(self, scores: torch.Tensor) -> torch.Tensor:
        self._given.copy_(scores)
        self._graph.replay()
        return self._result.clone()  # the next call writes there
