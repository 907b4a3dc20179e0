"""Calibrators by name and with parameters from the command line."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ..calibration import Calibrator

DEFAULT = "conditional-mcct"


def methods() -> dict[str, Calibrator]:
    """Every method by its name here, not fitted: ``temperature-scaling`` is `TemperatureScaling()`.

    Classes under their own names, then the names of `monocal.calibrators`: ``ts-mse``, ``isotonic-ovr``, ...
    """
    from ..registry import calibrators

    listed = calibrators()
    own = {_hyphenated(info.cls.__name__): info.cls() for info in listed if not info.published}
    return own | {info.name.lower().replace(" ", "-"): info.make() for info in listed}


def _hyphenated(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def find_method(name: str) -> tuple[str, Calibrator]:
    """The name as listed and a new calibrator, for a name whole or begun, with or without hyphens and capitals."""
    known = methods()
    plain = letters(name)
    same = [spelt for spelt in known if letters(spelt) == plain]
    begun = [spelt for spelt in known if plain and letters(spelt).startswith(plain)]
    if same or len({repr(known[spelt]) for spelt in begun}) == 1:
        spelt = (same or begun)[0]
        return spelt, known[spelt]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    perhaps = f" (perhaps {near[0]})" if near else ""
    raise InputError(f"There is no method {name!r}{perhaps}: choose one of {', '.join(known)}.")


def letters(name: str) -> str:
    """A name without hyphens, underscores, spaces and capitals."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def make(name: str, kind: str, parameters: dict[str, Any] | None = None) -> Calibrator:
    """A calibrator of logits or probabilities that is not fitted yet."""
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
