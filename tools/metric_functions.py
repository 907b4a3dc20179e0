"""The functions of `monocal.metrics` that are made from the table of metrics, for the API pages, which read the source without
running it."""

from typing import Any

import griffe


class MetricFunctions(griffe.Extension):
    """Adds them to the package that has been read."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        if pkg.name != "monocal":
            return
        from monocal.metrics.functions import FUNCTIONS

        home = pkg["metrics.functions"]
        made = griffe.inspect(
            "functions", filepath=home.filepath, parent=pkg["metrics"], docstring_parser="numpy"
        )
        for name in FUNCTIONS:
            home.set_member(name, made.members[name])
            pkg["metrics"].set_member(name, griffe.Alias(name, f"monocal.metrics.functions.{name}"))
