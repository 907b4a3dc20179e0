"""Real logits next to the checkout, for the tests that need them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

LOGITS = Path(__file__).resolve().parents[2] / "shared" / "logits"


@dataclass(frozen=True)
class LogitsSet:
    """Outputs of a real classifier: fit on ``val``, judge on ``test``."""

    logits_val: np.ndarray
    y_val: np.ndarray
    logits_test: np.ndarray
    y_test: np.ndarray
    context_val: np.ndarray | None = None
    context_test: np.ndarray | None = None


def load_shared_logits(name: str) -> LogitsSet:
    """One of the real sets next to the checkout; skips the test where they are not there."""
    path = LOGITS / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"needs the real logits ../shared/logits/{name}.npz next to the checkout")
    with np.load(path) as arrays:
        return LogitsSet(**{key: arrays[key] for key in arrays.files})
