"""A dataclass whose state is its fields: what it works out from them on first use is neither pickled nor saved."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


class FieldsOnly:
    """Mixin for dataclasses with cached properties. The caches depend on what was predicted so far, the object does not."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # every class it joins is a dataclass
