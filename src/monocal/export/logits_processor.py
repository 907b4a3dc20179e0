"""Calibrated next-token scores for language models: a callable ``(input_ids, scores) -> scores``.

    scores_out = log p,    p = calibrated probabilities of the logits (or log-probabilities) ``scores``

This is the interface of the logits processors of the transformers package, which need not be installed. The scores given
back are log-probabilities, so greedy and beam search, sampling and scoring can all go on from them. Tokens masked with
``-inf`` by an earlier processor stay masked.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InputError
from .torch import to_torch


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
        if self.module.smallest_probability is not None:
            raise InputError(
                "The calibrator was fitted on probabilities, but the scores of a language model are logits. Fit it with "
                "input='logits'."
            )

    @torch.no_grad()
    def __call__(self, input_ids: Any, scores: torch.Tensor) -> torch.Tensor:
        """Calibrated log-probabilities (..., vocabulary), in the type and on the device of ``scores``."""
        if next(self.module.buffers()).device != scores.device:
            self.module.to(scores.device)
        return self.module.log_probabilities(scores)
