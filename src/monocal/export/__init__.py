"""Calibrators to ship: the fitted rank map as an ONNX graph, a torch module, or a logits processor.

    cal.to_onnx("calibrator.onnx")                      monocal.export.onnx
    cal.to_torch(), from_state_dict(state)              monocal.export.torch
    LogitsProcessor(cal)                                monocal.export.hooks
    attach(model, cal)                                  monocal.export.hooks
    vllm_processor(cal)                                 monocal.export.vllm_logits

All run the same function, `core.map.apply`, on the numbers of a fitted map, and give the
probabilities of ``predict_proba`` in the same order, ties and masked classes included.
"""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "to_onnx": "onnx",
    "to_torch": "torch",
    "from_state_dict": "torch",
    "LogitsProcessor": "hooks",
    "vllm_processor": "vllm_logits",
    "attach": "hooks",
}

__all__ = ["LogitsProcessor", "attach", "from_state_dict", "to_onnx", "to_torch", "vllm_processor"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
