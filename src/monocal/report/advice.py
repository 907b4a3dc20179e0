"""Which method to ship, in words: why this one, what it gains, what the order costs, how many more rows would settle it.

Every sentence follows from a `MethodComparison`; none is made on noise, and none hides that the rows which choose also judge.
"""

from __future__ import annotations

import math

from ..metrics.units import about, count, in_words, with_interval
from .selection import UNCALIBRATED, MethodComparison

_MOST_ROWS_ASKED = 30  # times the rows there are; beyond, the methods are alike for all that matters


def recommendation(methods: MethodComparison) -> str:
    """Which method to use, why, what it gains, what the order costs, and what more rows would show."""
    told = [advice(methods), gain(methods), more_rows(methods), *price(methods), chosen_on(methods)]
    return " ".join(sentence for sentence in told if sentence)


def advice(methods: MethodComparison) -> str:
    """Ship temperature scaling: within noise of four others that keep the order, and the simplest."""
    name = methods.recommended
    if name is None:
        return "No method that keeps the order of the classes could be judged."
    best = methods.best(keeping=True)
    assert best is not None
    tried = len([one for one in methods.judged if one.keeps_order and one.name != UNCALIBRATED])
    if name == UNCALIBRATED:
        who = {1: "the one method tried makes", 2: "both methods tried make"}.get(tried)
        return (
            f"Ship the model as it is: {who or f'all {in_words(tried)} methods tried make'} it clearly worse."
        )
    if tried == 1:
        return f"Ship {name}: the only method judged that keeps the order."
    others = len(methods.alike(keeping=True)) - 1
    if others:
        why = "which keeps the ranking of the rows" if name == methods.default else "and the simplest"
        return f"Ship {name}: within noise of {in_words(others)} other{'s' if others > 1 else ''}, {why}."
    beaten = f"{in_words(tried - 1)} others that keep" if tried > 2 else "one other that keeps"
    return f"Ship {name}: clearly better than the {beaten} the order."


def as_asked(methods: MethodComparison) -> str:
    """How the method that was asked for compares with the one that would have been recommended."""
    asked, other = methods.asked, methods.recommended
    assert asked is not None
    if other is None or other == asked:
        return f"{_capital(asked)}, as asked for. {advice(methods)}"
    if not methods[asked].keeps_order and not methods.clearly_worse(asked, other):
        better = "clearly better than" if methods.clearly_worse(other, asked) else "within noise of"
        return f"{_capital(asked)}, as asked for: {better} {other}, which keeps the order; this one may change it."
    if methods.clearly_worse(asked, other):
        than = "without calibration" if other == UNCALIBRATED else f"with {other}, the one to ship"
        return f"{_capital(asked)}, as asked for: {_lower_or_higher(methods, asked, other)} than {than}."
    if other == UNCALIBRATED:
        return f"{_capital(asked)}, as asked for: within noise of no calibration at all."
    simpler = methods[other].complexity < methods[asked].complexity
    return (
        f"{_capital(asked)}, as asked for: within noise of {other}{', which is simpler' if simpler else ''}."
    )


def gain(methods: MethodComparison) -> str:
    """What the recommended method gains over none."""
    name = methods.recommended
    if name in (None, UNCALIBRATED) or UNCALIBRATED not in methods:
        return ""
    assert name is not None
    return f"Against no calibration {_lower_or_higher(methods, name, UNCALIBRATED)}."


def _lower_or_higher(methods: MethodComparison, a: str, b: str) -> str:
    """NLL of a against that of b: it is lower by 0.0123 (95 % interval ...); ... which may be chance."""
    d = methods.difference(a, b)
    if not math.isfinite(d.low):
        if math.isinf(methods[a].nll) and math.isinf(methods[b].nll):
            return "NLL says nothing: both give a label no probability at all"
        return f"its NLL is {'∞' if d.mean > 0 else 'finite'}: {b if d.mean < 0 else 'it'} gives a label no probability at all"
    if d.mean == 0 and not d.decided:
        return "its NLL is the same"
    low, high = (-d.high, -d.low) if d.mean < 0 else (d.low, d.high)
    by = with_interval(abs(d.mean), low, high, d.level)
    side = "lower" if d.mean < 0 else "higher"
    return f"its NLL is {side} by {by}{'' if d.decided else ', which may be chance'}"


def more_rows(methods: MethodComparison) -> str:
    """How many rows would settle what these cannot: whether calibration helps, else which of the best two is better."""
    name, best = methods.recommended, methods.best(keeping=True)
    if best is not None and name not in (None, UNCALIBRATED, best.name) and not _open(methods):
        assert name is not None
        return _settled(methods, name, best.name, f"would tell {name} from {best.name}")
    return rows_to_see_a_change(methods)


def rows_to_see_a_change(methods: MethodComparison) -> str:
    """How many rows would tell whether calibration changes anything, where these cannot."""
    name = methods.recommended
    if name is None or not _open(methods):
        return ""
    return _settled(methods, name, UNCALIBRATED, "would tell whether calibration changes anything")


def _open(methods: MethodComparison) -> bool:
    """Whether these rows leave it open that calibration changes anything."""
    name = methods.recommended
    if name in (None, UNCALIBRATED) or UNCALIBRATED not in methods:
        return False
    assert name is not None
    return not methods.difference(name, UNCALIBRATED).decided


def _settled(methods: MethodComparison, a: str, b: str, what: str) -> str:
    difference = methods.difference(a, b)
    needed = difference.rows_to_settle
    if needed is None:
        return ""
    if needed > _MOST_ROWS_ASKED * difference.n_rows:
        return ""
    return f"About {about(needed)} rows {what}."


def price(methods: MethodComparison) -> list[str]:
    """What keeping the order costs, and which method to take where it may go."""
    found = methods.price
    if found is None:
        return []
    told = [str(found[1])]
    if methods.recommended_free is not None:
        told.append(f"Where the order may change, use {methods.recommended_free}.")
    return told


def notes(methods: MethodComparison) -> list[str]:
    """Why methods have no figures, or what to know of those they have; said once for all that share it."""
    sharing: dict[str, list[str]] = {}
    for one in methods.results:
        if one.note:
            sharing.setdefault(one.note, []).append(one.name)
    return [f"{', '.join(names)}: {note}" for note, names in sharing.items()]


def chosen_on(methods: MethodComparison) -> str:
    """That the rows which chose are the rows which judge."""
    if methods.labels is None or methods.recommended is None or len(methods.judged) < 3:
        return ""
    return f"Chosen and judged by the same {count(len(methods.labels))} rows, so its figures may be a little too good."


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
