"""Calibrators by name (`registry.find_method`) and with parameters from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ..calibrators import Calibrator
    from ..io import LogitsSet


def make(
    name: str | None, data: LogitsSet, parameters: dict[str, Any] | None = None, *, context: bool = False
) -> Calibrator:
    """A calibrator for these logits or probabilities that is not fitted yet; None: the one recommended for them."""
    from ..registry import find_method
    from ..selection import recommend

    kind = data.kind
    if name is None:
        weights = data.weights
        name = recommend(data.values, data.labels, kind=kind, keep_order=context, sample_weight=weights).name
    calibrator = find_method(name)[1]
    known = calibrator.get_params()
    for parameter in parameters or {}:
        if parameter not in known:
            title = type(calibrator).__name__
            raise InputError(f"{title} has no parameter {parameter!r}: it has {', '.join(known)}.")
    if "input" in known:
        parameters = {"input": kind, **(parameters or {})}
    elif kind != calibrator.input:
        raise InputError(f"{name} works on {calibrator.input} only: give it a file of {calibrator.input}.")
    return calibrator.set_params(**(parameters or {}))


def parse_settings(settings: list[str]) -> dict[str, Any]:
    """``["tol=1e-8", "shrinkage=cv"]`` as parameters: JSON where it is JSON, else text; none is None."""
    found = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set takes NAME=VALUE, such as --set tol=1e-8, got {setting!r}.")
        found[name.strip().replace("-", "_")] = parse(text.strip())
    return found


def parse(text: str) -> Any:
    """A value as it would be written in JSON, or text."""
    if text.lower() == "none":
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
