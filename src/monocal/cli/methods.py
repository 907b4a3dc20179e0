"""Calibrators by name and with parameters from the command line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ..maps import Calibrator

DEFAULT = "conditional-mcct"


def methods() -> dict[str, type[Calibrator]]:
    """Every method by its name here: ``temperature-scaling`` is `TemperatureScaling`."""
    from .. import maps

    kinds = [getattr(maps, name) for name in maps.__all__]
    return {
        re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", kind.__name__).lower(): kind
        for kind in kinds
        if isinstance(kind, type)
        and issubclass(kind, maps.Calibrator)
        and kind not in (maps.Calibrator, maps.Published)
    }


def find_method(name: str) -> type[Calibrator]:
    """The class of a name, whole or begun, with or without hyphens and capitals."""
    known = {_letters(spelt): kind for spelt, kind in methods().items()}
    plain = _letters(name)
    if plain in known:
        return known[plain]
    begun = [kind for spelt, kind in known.items() if plain and spelt.startswith(plain)]
    if len(begun) == 1:
        return begun[0]
    raise InputError(f"There is no method {name!r}: choose one of {', '.join(methods())}.")


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def make(name: str, parameters: dict[str, Any]) -> Calibrator:
    """A calibrator that is not fitted yet."""
    kind = find_method(name)
    known = kind().get_params()
    for parameter in parameters:
        if parameter not in known:
            raise InputError(f"{kind.__name__} has no parameter {parameter!r}: it has {', '.join(known)}.")
    return kind(**parameters)


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
