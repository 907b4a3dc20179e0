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

# Numbers that are handled together: as many as stay in the cache while they are looked at several times.
_BLOCK = 1 << 16


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
    result = torch.empty_like(z)
    scale = float(module.scale_steps[0, 0])
    step = max(1, _BLOCK // max(1, z.shape[1]))
    usual = [_scale(z[i : i + step], scale, normalize, result[i : i + step]) for i in range(0, len(z), step)]
    unusual = ~np.concatenate([np.ones(0, dtype=bool), *usual])
    if unusual.any():
        rest = torch.from_numpy(unusual)
        result[rest] = exactly(z[rest])
    return result.reshape(scores.shape)


def _scale(z: torch.Tensor, scale: float, normalize: bool, result: torch.Tensor) -> np.ndarray:
    """Write a block of rows; which of them are right (n,)."""
    wide = z if z.dtype == torch.float64 else z.float()
    values = wide.numpy()
    at = values.argmax(axis=1)
    top = values[np.arange(len(values)), at][:, None]
    with np.errstate(invalid="ignore"):
        usual = np.isfinite(top[:, 0]) & (values.min(axis=1) >= top[:, 0] - LARGEST)
        for row in np.flatnonzero(~usual & np.isfinite(top[:, 0])):
            below = values[row] < top[row] - LARGEST
            # masked, all of them
            usual[row] = np.count_nonzero(below) == np.count_nonzero(np.isneginf(values[row]))
        own = result.dtype == wide.dtype
        f = np.subtract(values, top, out=result.numpy() if own else None)
    f *= f.dtype.type(scale)
    logs = torch.log_softmax(torch.from_numpy(f), -1) if normalize else torch.from_numpy(f)
    if normalize or not own:
        result.copy_(logs)
    found: np.ndarray = usual & (_largest(result) == at)
    return found


def _largest(values: torch.Tensor) -> np.ndarray:
    """Places (n,) of the largest of numbers that are not above 0; of half precision, which numpy does not know, by their bits."""
    if values.element_size() > 2:
        return values.numpy().argmax(axis=1)
    return values.abs().view(torch.int16).numpy().argmin(axis=1)
