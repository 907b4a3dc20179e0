"""Numbers as they are read: units and rounding of every sentence, in one place.

Shares are per cent with two decimals (5.50 %), their differences points (5.5 points), scores have four decimals (0.3456). A
difference has as many decimals as its interval can bear, so that it is never shown as 0.0000 or -0.0000.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def percent(value: float) -> str:
    """5.50 %"""
    return f"{100 * value:.2f} %".replace("-", "−") if math.isfinite(value) else number(value)


def number(value: float, decimals: int = 4) -> str:
    """0.3456, or the sign for infinity; never a zero with a minus."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")


def count(value: float) -> str:
    """12,345; weights that are not whole keep one decimal."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def counted(value: int, thing: str) -> str:
    """1 rank, 12 ranks."""
    return f"{count(value)} {thing}{'' if value == 1 else 's'}"


def small(value: float) -> str:
    """3.2e-07 as 3.2 × 10⁻⁷."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else number(value)
    mantissa, exponent = f"{value:.1e}".split("e")
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return f"{mantissa} × 10{str(int(exponent)).translate(digits)}"


def points(gap: float) -> str:
    """8.1 points; 12 points."""
    size = abs(100 * gap)
    text = f"{size:.0f}" if size >= 9.95 else f"{size:.1f}"
    return "1 point" if text == "1.0" else f"{text} points"


def with_interval(value: float, low: float, high: float, level: float, unit: str = "") -> str:
    """0.0123 NLL (95 % interval 0.0101 to 0.0145), with the decimals that tell the ends from the middle."""
    digits = decimals(max(high - value, value - low), value)
    ends = f"{number(low, digits)} to {number(high, digits)}"
    return f"{number(value, digits)}{unit and ' ' + unit} ({100 * level:.3g} % interval {ends})"


def from_to(before: float, after: float, show: Callable[[float], str]) -> str:
    """0.41 → 0.35; a value that stays the same as far as it is shown is shown once."""
    old, new = show(before), show(after)
    return new if old == new else f"{old} → {new}"


def decimals(width: float, value: float) -> int:
    """One digit of the interval, two where it is not small against the value, one of the value; three at least, six at most."""
    digits = [3]
    if 0 < width < math.inf:
        digits.append((abs(value) < 10 * width) - math.floor(math.log10(width)))
    if 0 < abs(value) < math.inf:
        digits.append(-math.floor(math.log10(abs(value))))
    return min(6, max(digits))


def one_line(name: str) -> str:
    """A name on one line, without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(name.split()))


def quoted(name: str) -> str:
    """A name in quotes, on one line and not too long for a sentence."""
    line = one_line(name)
    return f"'{line if len(line) <= 60 else line[:59] + '…'}'"
