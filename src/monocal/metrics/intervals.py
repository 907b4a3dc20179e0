"""Intervals of metrics: of means over rows by their standard error, of calibration errors by `inversion`.

A weighted mean ``v`` of ``x_i`` lies within ``z s`` of its expectation, ``s^2 = sum w_i^2 (x_i - v)^2 / (sum
w_i)^2``. A share ``p`` of zeros and ones can be 0 or 1, where ``s`` is 0; its interval (Wilson's) holds every
share ``q`` with ``|p - q| <= z sqrt(q (1 - q) / n)``, where ``n = (sum w_i)^2 / sum w_i^2``.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from .inversion import error_intervals
from .outcomes import Floats, Outcomes
from .registry import METRICS, Options
from .scores import score_terms


def intervals(
    rows: Outcomes,
    options: Options,
    names: list[str],
    n_boot: int,
    level: float,
    generator: np.random.Generator,
) -> dict[str, tuple[float, float]]:
    """Ends of the intervals of those of ``names`` that have one."""
    z = float(ndtri((1 + level) / 2))
    terms = score_terms(rows, options.top_k)
    ends = {}
    for name in names:
        if (
            METRICS[name].mean
            and np.isfinite(terms[name]).all()
            and (METRICS[name].share or len(terms[name]) > 1)
        ):
            of_mean = _share if METRICS[name].share else _mean
            ends[name] = of_mean(terms[name], rows.weight, z)
    errors = [name for name in names if METRICS[name].error is not None]
    return ends | (error_intervals(rows, options, errors, n_boot, level, generator) if errors else {})


def _mean(terms: Floats, weight: Floats, z: float) -> tuple[float, float]:
    total = weight.sum()
    mean = weight @ terms / total
    half = z * np.sqrt(weight**2 @ (terms - mean) ** 2) / total
    return max(0.0, float(mean - half)), float(mean + half)


def _share(terms: Floats, weight: Floats, z: float) -> tuple[float, float]:
    total = weight.sum()
    share, pull = weight @ terms / total, z**2 * (weight @ weight) / total**2
    centre = (share + pull / 2) / (1 + pull)
    half = np.sqrt(pull * (share * (1 - share) + pull / 4)) / (1 + pull)
    # Rounding must not put the share itself outside.
    return float(min(share, max(0.0, centre - half))), float(max(share, min(1.0, centre + half)))
