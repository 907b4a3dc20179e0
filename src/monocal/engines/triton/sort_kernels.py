"""What several kernels share: exponentials, ramps, and a row sorted in the registers of its threads.

A bitonic network: for k = 1, 2, ..., runs of 2^k numbers are made monotone, up and down by turns, by comparing each number with
the one 2^(k-1), ..., 2, 1 places away. A run that goes down is one of the negative numbers that goes up, so after a change of
signs every comparison is a minimum and a maximum. A thread holds ``each`` neighbours: within it a comparison is two operations
for two numbers. Across threads, the upper of the two holds its number with the other sign, and both take the minimum.
"""

# mypy: disable-error-code="no-untyped-def"
# Triton reads bare signatures.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def compared_within(x, size: tl.constexpr, distance: tl.constexpr):
    lower, upper = tl.split(tl.permute(tl.reshape(x, [size // (2 * distance), 2, distance]), (0, 2, 1)))
    y = tl.join(tl.minimum(lower, upper), tl.maximum(lower, upper))
    return tl.reshape(tl.permute(y, (0, 2, 1)), [size])


@triton.jit
def compared_across(x, size: tl.constexpr, distance: tl.constexpr):
    bits = tl.reshape(x, [size // (2 * distance), 2, distance]).to(tl.int32, bitcast=True)
    other = (bits ^ tl.xor_sum(bits, 1, keep_dims=True)).to(tl.float32, bitcast=True)
    return tl.minimum(x, -tl.reshape(other, [size]))


@triton.jit
def sign_of(place, bit: tl.constexpr):
    return 1.0 - 2.0 * ((place >> bit) & 1).to(tl.float32)


@triton.jit
def sorted_row(z, m, log: tl.constexpr, each: tl.constexpr):
    # The numbers at ``z`` in rising order, in single precision; infinity follows them.
    size: tl.constexpr = 2**log
    # Neighbours in memory go to different threads: any order will do that is read fast.
    column = tl.arange(0, size // each)[:, None] + tl.arange(0, each)[None, :] * (size // each)
    x = tl.load(z + column, mask=column < m, other=float("inf")).to(tl.float32)
    x = tl.reshape(x, [size])
    place = tl.arange(0, size)
    sign = sign_of(place, log)  # of none
    for k in tl.static_range(1, log + 1):
        turn = sign_of(place, k)
        for j in tl.static_range(k):
            # From the signs of the last comparison to those of this one.
            if 2 ** (k - 1 - j) < each:
                if j == 0 or 2 ** (k - j) >= each:
                    x *= sign * turn
                    sign = turn
                x = compared_within(x, size, 2 ** (k - 1 - j))
            else:
                wanted = turn * sign_of(place, k - 1 - j)
                x = compared_across(x * (sign * wanted), size, 2 ** (k - 1 - j))
                sign = wanted
    return x * sign


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
