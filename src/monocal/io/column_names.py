"""What the name of an array or a column says:  ``y_pred_proba_test`` -> probabilities, of the test part."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from monocal.errors import FileError, InputError, wording
from monocal.inputs.names import PARTS, VALUE_WORDS, Part, listing
from monocal.io.named_arrays import NamedArrays

Kind = Literal["logits", "probabilities"]
Names = str | Sequence[str]

ROLES = {
    "logits": (*VALUE_WORDS["logits"], "log_odds", "logodds"),
    "probabilities": (*VALUE_WORDS["probabilities"], "p", "pr"),
    "values": (*VALUE_WORDS["values"], "score", "output", "margin", "decision", "decision_function"),
    "labels": (
        *("labels", "label", "y", "y_true", "targets", "target"),
        *("true_labels", "true_label", "true_class", "class", "class_label", "gt", "ground_truth"),
        *("label_id", "label_ids", "class_id", "true_y", "ytrue"),
    ),
    # Labels where nothing has a name of the line above.
    "outcomes": (
        *("outcome", "outcomes", "actual", "actuals", "y_actual", "truth", "true", "observed"),
        *("correct", "is_correct", "correctness", "answer_correct", "gold", "gold_label"),
        *("actual_label", "actual_outcome", "actual_class", "true_outcome"),
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
CALIBRATED = "_calibrated"
VALUES = ("logits", "probabilities", "values")
_ROLE_OF = {word: role for role, words in ROLES.items() for word in words}
PART_OF = {word: part for part, words in PARTS.items() for word in words}


def _either(words: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


_NAME = re.compile(
    rf"(?:(?P<before>{_either(PART_OF)})_)?(?P<role>{_either(_ROLE_OF)})"
    rf"(?:_(?P<after>{_either(PART_OF)}))?(?:_?(?P<index>\d{{1,9}}))?"
)
_GROUPED = re.compile(rf"(?P<group>.+?)_(?P<name>{_NAME.pattern})")
_STEM = re.compile(rf"(?:(?P<set>.*?)_)?(?P<part>{_either(PART_OF)})")
# The word for logits or probabilities anywhere in a name.
_HELD = re.compile(
    r"(?:^|_)(?P<word>log_?prob[a-z]*|log_softmax|[^_\d]*logits?|[^_\d]*prob(?:s|as?|ability|abilities)?|softmax"
    rf"|(?<!.)pr?(?=[_(](?!value)))(?:_(?P<after>{_either(PART_OF)}))?(?=[_(]|\d|$)"
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
        return self.role in VALUES


def meaning(name: str) -> Meaning:
    """Read a name, ``[part_] role [_part] [_class]``; a leading path (``dataset/model/``) is left aside."""
    plain = plain_name(name.rpartition("/")[2])
    if plain.endswith(CALIBRATED):
        return Meaning("probabilities", plain=False)
    match = _NAME.fullmatch(plain)
    if match is not None:
        if match["before"] and match["after"]:
            return Meaning()
        part, role = match["before"] or match["after"], _ROLE_OF[match["role"]]
        index = int(match["index"]) if match["index"] else None
        if index is not None and (role not in (*VALUES, "labels") or match["role"] == "class"):
            return Meaning()  # class_3 may well be a column of class 3
        return Meaning(role, PART_OF[part] if part else None, index)
    held = _HELD.search(plain)
    if held is None:
        return Meaning("aside") if plain.endswith("_id") else Meaning()
    words = plain.split("_")
    part = held["after"] or next((word for word in (words[0], words[-1]) if word in PART_OF), None)
    kind = "logits" if "log" in held["word"] else "probabilities"
    return Meaning(kind, PART_OF[part] if part else None, plain=False)


def plain_name(name: str) -> str:
    return re.sub(r"[-. ]", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def split_group(stem: str) -> str:
    """``resnet_logits_val`` -> ``resnet/logits_val``; a name without a set before it stays as it is."""
    plain = plain_name(stem)
    match = None if _NAME.fullmatch(plain) else _GROUPED.fullmatch(plain)
    if match is None or len(plain) != len(stem):
        return stem
    return f"{stem[: match.end('group')]}/{stem[match.start('name') :]}"


def split_part(stem: str) -> tuple[str, Part | None]:
    """``resnet_test`` -> ``("resnet", "test")``; ``resnet`` -> ``("resnet", None)``."""
    match = _STEM.fullmatch(re.sub(r"[-. ]", "_", stem.lower()))
    if match is None:
        return stem, None
    return stem[: match.end("set")] if match["set"] else "", PART_OF[match["part"]]


def without_part(name: str) -> tuple[str, Part | None]:
    """``context_test`` and ``test_context`` -> ``("context", "test")``; ``context`` -> ``("context", None)``."""
    part = f"(?P<part>{_either(PART_OF)})"
    for pattern in (rf"{part}[-. _](?P<base>.+)", rf"(?P<base>.+)[-. _]{part}"):
        match = re.fullmatch(pattern, name, re.IGNORECASE)
        if match is not None:
            return match["base"], PART_OF[match["part"].lower()]
    return name, None


def as_part(part: str | None) -> Part | None:
    """Check a caller's ``part``; ``"val"`` is another word for ``"cal"``."""
    if part is not None and part not in PART_OF:
        raise InputError(f"part must be 'cal' (or 'val') or 'test', got {part!r}.")
    return None if part is None else PART_OF[part]


def choose_group(source: NamedArrays, group: str | None) -> tuple[str, tuple[str, ...]]:
    """The group asked for, or the only one that holds values: ``(group, names)``."""
    groups = source.groups()
    if not groups:
        raise FileError(f"{source.title} holds no arrays: write logits and labels into it.")
    if group is not None:
        if group.strip("/") not in groups:
            raise FileError(f"{source.title} has no group {group!r}: it holds {listing(groups)}.")
        return group.strip("/"), groups[group.strip("/")]
    with_values = {g: names for g, names in groups.items() if any(meaning(n).holds_values for n in names)}
    groups = with_values or groups
    chosen = "" if "" in groups else next(iter(groups))
    if chosen and len(groups) > 1:
        raise FileError(
            f"{source.title} holds {len(groups)} sets, {listing(groups)}: say which with {wording('group=')}."
        )
    return chosen, groups[chosen]


def find_names(
    source: NamedArrays, names: Sequence[str], request: Names, argument: str, where: str
) -> tuple[str, ...]:
    """The names that a caller means by names, places and patterns."""
    if not request:
        raise InputError(f"{argument} must name at least one array or column, got none.")
    present = set(names)
    chosen: dict[str, None] = {}
    for one in (request,) if isinstance(request, str) else request:
        chosen |= dict.fromkeys([one] if one in present else _meant(source, names, str(one), argument, where))
    return tuple(chosen)


def _meant(source: NamedArrays, names: Sequence[str], name: str, argument: str, where: str) -> list[str]:
    name = name.strip()
    tails = [n for n in names if n.rpartition("/")[2] == name]
    if len(tails) == 1:
        return tails
    if source.table and re.fullmatch(r"-?\d{1,9}", name) and -len(names) <= int(name) < len(names):
        return [names[int(name)]]
    matched = fnmatch.filter(names, name) if re.search(r"[*?\[]", name) else []
    if matched:
        return matched
    if argument == "columns":
        raise FileError(f"{where} has no column {name!r}: it holds {listing(names)}.")
    more = f"; labels in another file are given by {wording('labels_file=')}" if argument == "labels" else ""
    raise FileError(
        f"{where} has no {name!r} (asked for by {wording(f'{argument}=')}): it holds {listing(names)}{more}."
    )
