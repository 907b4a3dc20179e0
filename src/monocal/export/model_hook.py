"""A model that gives calibrated logits itself: a hook behind its forward pass, and no subclass of anything.

    outputs.logits  ->  module.transform(outputs.logits)

Whatever takes the model's logits then has calibrated ones: a pipeline of transformers, a trainer that predicts, a server. The
softmax of these logits are the calibrated probabilities, in the same order. Hooks are no part of a model's weights, so that
whatever saves these warns that the calibrator is not among them.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InputError, warn
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


def _warn_of_saving(model: torch.nn.Module, prefix: str, keep_vars: bool) -> None:
    """Before weights are collected, as ``save_pretrained`` and ``torch.save(model.state_dict())`` do."""
    warn(
        "The weights of a model do not hold the calibrator that attach() has put behind it: save that with "
        "calibrator.save(path), and attach(model, monocal.load(path)) after loading the weights."
    )


class AttachedCalibrator:
    """What `attach` returns.

    Examples
    --------
    >>> import torch
    >>> import monocal as mc
    >>> from monocal.export import attach
    >>> data = mc.data.synthetic(500, 5)
    >>> cal = mc.MCCT().fit(data.values, data.labels)
    >>> with attach(torch.nn.Identity(), cal) as attached:
    ...     type(attached).__name__
    'AttachedCalibrator'
    """

    def __init__(self, *handles: Any):
        self._handles = handles

    def remove(self) -> None:
        """Take the calibrator off again."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> AttachedCalibrator:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def attach(model: torch.nn.Module, calibrator: Any) -> AttachedCalibrator:
    """Let a classifier of torch give calibrated logits.

    Parameters
    ----------
    model : torch.nn.Module
        It returns logits (..., m), or an object that has them as ``logits``, as models of transformers do.
    calibrator : Calibrator or the module that `to_torch` makes of it
        Fitted on logits of this model.

    Returns
    -------
    AttachedCalibrator
        Its ``remove()`` takes the calibrator off again.

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
    return AttachedCalibrator(
        model.register_forward_hook(_Calibrate(module)), model.register_state_dict_pre_hook(_warn_of_saving)
    )
