"""Functions that several kernels call. Importing this module needs Triton."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads bare signatures.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def exponential(x):
    # exp(x) for x <= 0 to two units in the last place: 2^k exp(rest), the power in two steps so that none underflows.
    x = tl.maximum(x, -1000.0)
    k = tl.floor(x * 1.4426950408889634 + 0.5)
    rest = (x - k * 0.693359375) + k * 2.12194440054690583e-4
    half = tl.floor(k * 0.5)
    return tl.exp2(rest * 1.4426950408889634) * tl.exp2(half) * tl.exp2(k - half)


@triton.jit
def ramp(q, zero, width):
    # `calibration.ramps`
    return tl.minimum(tl.maximum((q - zero) / width, 0.0), 1.0)
