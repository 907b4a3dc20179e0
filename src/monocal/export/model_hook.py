"""A model that gives calibrated logits itself: a hook behind its forward pass, and no subclass of anything.

    outputs.logits  ->  module.transform(outputs.logits)

Whatever takes the model's logits then has calibrated ones: a pipeline of transformers, a trainer that predicts, a server. The
softmax of these logits are the calibrated probabilities, in the same order.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InputError
from .torch import module_for_logits


class _Calibrate:
    """The hook."""

    def __init__(self, module: torch.nn.Module):
        self.module = module

    def __call__(self, model: torch.nn.Module, given: Any, outputs: Any) -> Any:
        logits = outputs if isinstance(outputs, torch.Tensor) else getattr(outputs, "logits", None)
        if not isinstance(logits, torch.Tensor):
            raise InputError(
                f"attach: the model returned {type(outputs).__name__}, expected a tensor of logits or an object with logits. "
                "Call it with return_dict=True."
            )
        buffer = next(self.module.buffers())
        if buffer.device != logits.device:
            self.module.to(logits.device)
        calibrated = self.module.transform(logits)
        if isinstance(outputs, torch.Tensor):
            return calibrated
        outputs.logits = calibrated
        return outputs


def attach(model: torch.nn.Module, calibrator: Any) -> Any:
    """Let a classifier of torch give calibrated logits.

    Parameters
    ----------
    model : torch.nn.Module
        It returns logits (..., m), or an object that has them as ``logits``, as models of transformers do.
    calibrator : Calibrator or the module that `to_torch` makes of it
        Fitted on logits of this model.

    Returns
    -------
    handle
        ``handle.remove()`` takes the calibrator off again.

    Examples
    --------
    >>> import torch
    >>> import monocal as mc
    >>> from monocal.export import attach
    >>> data = mc.data.synthetic(500, 5)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> network = torch.nn.Identity()
    >>> handle = attach(network, cal)
    >>> x = torch.tensor(data.values[:2])
    >>> bool(torch.allclose(network(x).softmax(-1), torch.tensor(cal.predict_proba(x.numpy()))))
    True
    """
    module = module_for_logits(calibrator)
    if any(isinstance(hook, _Calibrate) for hook in model._forward_hooks.values()):
        raise InputError("attach: the model has a calibrator already. Call remove() of its handle first.")
    return model.register_forward_hook(_Calibrate(module))
