"""What a name says:  ``[part_] role [_part] [_class]``, from one table of words.

``logits_val`` is the logits of the calibration part, ``y_test`` the labels of the test part, ``prob_3`` and ``prob_cat`` the
probabilities of classes 3 and cat. A name that holds the word probability (``y_pred_proba``, ``cat_prob``) means probabilities.
The name decides between logits and probabilities, or the caller does; values never do. Of several columns, the class is that
in which their names differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from monocal.errors import InputError
from monocal.inputs.names import PARTS, VALUE_WORDS, Part

Kind = Literal["logits", "probabilities"]

ROLES = {
    **VALUE_WORDS,
    "labels": (
        *("labels", "label", "y", "y_true", "targets", "target"),
        *("true_labels", "true_label", "true_class", "class", "gt", "ground_truth"),
    ),
    "classes": ("classes", "class_names", "label_names"),
    "weights": ("weights", "weight", "sample_weights", "sample_weight"),
    # Columns that tables often carry and that are no class: taking one for a class would be silent and wrong.
    "aside": (
        *("id", "ids", "idx", "index", "row", "split", "fold", "part"),
        *("pred", "prediction", "predictions", "predicted", "y_pred", "predicted_label", "predicted_class"),
        *("max_prob", "max_proba", "max_probability", "prob_max", "top_prob", "confidence"),
    ),
}
_VALUES = ("logits", "probabilities", "values")

_ROLE_OF = {word: role for role, words in ROLES.items() for word in words}
_KIND_OF: dict[str, Kind] = {"logits": "logits", "probabilities": "probabilities"}
_PART_OF = {word: part for part, words in PARTS.items() for word in words}


def _either(words: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


_NAME = re.compile(
    rf"(?:(?P<before>{_either(_PART_OF)})_)?(?P<role>{_either(_ROLE_OF)})"
    rf"(?:_(?P<after>{_either(_PART_OF)}))?(?:_?(?P<index>\d{{1,9}}))?"
)
_GROUPED = re.compile(rf"(?P<group>.+?)_(?P<name>{_NAME.pattern})")
_STEM = re.compile(rf"(?:(?P<set>.*?)_)?(?P<part>{_either(_PART_OF)})")
# The word for logits or probabilities anywhere in a name.
_HELD = re.compile(
    r"(?:^|_)(?P<word>log_?prob[a-z]*|log_softmax|[^_\d]*logits?|[^_\d]*prob(?:s|as?|ability|abilities)?|softmax)"
    rf"(?:_(?P<after>{_either(_PART_OF)}))?(?=_|\d|$)"
)


@dataclass(frozen=True)
class Meaning:
    """Role, part and number that a name states; None where it is silent. ``plain``: it states nothing else."""

    role: str | None = None
    part: Part | None = None
    index: int | None = None
    plain: bool = True

    @property
    def holds_values(self) -> bool:
        return self.role in _VALUES


def _plain(name: str) -> str:
    return re.sub(r"[-. ]", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def meaning(name: str) -> Meaning:
    """Read a name; a leading path (``dataset/model/``) is left aside."""
    plain = _plain(name.rpartition("/")[2])
    match = _NAME.fullmatch(plain)
    if match is not None:
        if match["before"] and match["after"]:
            return Meaning()
        part, role = match["before"] or match["after"], _ROLE_OF[match["role"]]
        index = int(match["index"]) if match["index"] else None
        if index is not None and (role not in (*_VALUES, "labels") or match["role"] == "class"):
            return Meaning()  # class_3 may well be a column of class 3
        return Meaning(role, _PART_OF[part] if part else None, index)
    held = _HELD.search(plain)
    if held is None:
        return Meaning()
    words = plain.split("_")
    part = held["after"] or next((word for word in (words[0], words[-1]) if word in _PART_OF), None)
    kind = "logits" if "log" in held["word"] else "probabilities"
    return Meaning(kind, _PART_OF[part] if part else None, plain=False)


def split_group(stem: str) -> str:
    """``resnet_logits_val`` -> ``resnet/logits_val``; a name without a set before it stays as it is."""
    plain = _plain(stem)
    match = None if _NAME.fullmatch(plain) else _GROUPED.fullmatch(plain)
    if match is None or len(plain) != len(stem):
        return stem
    return f"{stem[: match.end('group')]}/{stem[match.start('name') :]}"


def split_part(stem: str) -> tuple[str, Part | None]:
    """``resnet_test`` -> ``("resnet", "test")``; ``resnet`` -> ``("resnet", None)``."""
    match = _STEM.fullmatch(re.sub(r"[-. ]", "_", stem.lower()))
    if match is None:
        return stem, None
    return stem[: match.end("set")] if match["set"] else "", _PART_OF[match["part"]]


def without_part(name: str) -> tuple[str, Part | None]:
    """``context_test`` and ``test_context`` -> ``("context", "test")``; ``context`` -> ``("context", None)``."""
    for pattern in (
        rf"(?P<part>{_either(_PART_OF)})[-. _](?P<base>.+)",
        rf"(?P<base>.+)[-. _](?P<part>{_either(_PART_OF)})",
    ):
        match = re.fullmatch(pattern, name, re.IGNORECASE)
        if match is not None:
            return match["base"], _PART_OF[match["part"].lower()]
    return name, None


def as_kind(kind: str | None) -> Kind | None:
    """Check a caller's ``kind``."""
    if kind is None:
        return None
    if kind not in _KIND_OF:
        raise InputError(f"kind must be 'logits' or 'probabilities', got {kind!r}.")
    return _KIND_OF[kind]


def as_part(part: str | None) -> Part | None:
    """Check a caller's ``part``; ``"val"`` is another word for ``"cal"``."""
    if part is None:
        return None
    if part not in _PART_OF:
        raise InputError(f"part must be 'cal' (or 'val') or 'test', got {part!r}.")
    return _PART_OF[part]


def kind_of(role: str | None) -> Kind:
    """What values of a role are: logits, unless their name says probabilities."""
    return _KIND_OF.get(str(role), "logits")
