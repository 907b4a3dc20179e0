"""Temperature scaling of many scores on the CPU: where all classes have one weight, a row needs its largest logit and no rank.

    f = s (z - max z),      log p = log_softmax(f)

Both lose nothing of the order, since subtracting a number and multiplying by a positive one round monotonically. Two things
may still happen, both rare: rounding makes the top equal to a class before it, so that ``argmax`` changes, or a row holds
finite numbers so far below its top that they are cut (see `ranks.ranked`). Such rows are computed as every other calibrator's.

numpy looks for the places of the largest in a tenth of the time that torch takes; a tensor of the CPU is an array as it is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ..ranks.ranked import LARGEST
from .torch import CalibratorModule


def is_plain(module: torch.nn.Module) -> bool:
    """Whether a module scales all classes of every row alike."""
    return (
        isinstance(module, CalibratorModule)
        and not module.n_jumps
        and module.ramp_zero is None
        and module.adjustment is None
        and module.smallest_probability is None
    )


def scaled(
    module: CalibratorModule,
    scores: torch.Tensor,
    normalize: bool,
    exactly: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Calibrated logits below 0, or log-probabilities, of scores (..., m) on the CPU; ``exactly`` computes what is rare."""
    z = scores.reshape(-1, scores.shape[-1])
    wide = z if z.dtype == torch.float64 else z.float()
    values = wide.numpy()
    if not values.size:
        return exactly(scores)
    at = values.argmax(axis=1)
    top = values[np.arange(len(values)), at]
    with np.errstate(invalid="ignore"):
        usual = np.isfinite(top) & (values.min(axis=1) >= top - LARGEST)
    for row in np.flatnonzero(~usual & np.isfinite(top)):
        below = values[row] < top[row] - LARGEST
        usual[row] = np.count_nonzero(below) == np.count_nonzero(
            np.isneginf(values[row])
        )  # masked, all of them
    f = wide - torch.from_numpy(top[:, None])
    f *= module.scale_steps[0, 0]
    result = (torch.log_softmax(f, -1) if normalize else f).to(z.dtype)
    usual &= _smallest(result) == at
    if not usual.all():
        rest = torch.from_numpy(~usual)
        result[rest] = exactly(z[rest])
    return result.reshape(scores.shape)


def _smallest(values: torch.Tensor) -> np.ndarray:
    """Places (n,) of the largest of numbers that are not above 0: as bits, which numpy compares in any floating type."""
    width = {2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    found: np.ndarray = values.abs().view(width).numpy().argmin(axis=1)
    return found
