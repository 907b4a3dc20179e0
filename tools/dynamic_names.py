"""Public names that are made by running the package, for the API pages, which read the source without running it.

They are the functions of the table of metrics, and the calibrators of all files in their folder. Calibrators that no page names
come on the page of other methods.
"""

import re
from pathlib import Path
from typing import Any

import griffe

PAGES = Path(__file__).resolve().parents[1] / "docs" / "api"


class DynamicNames(griffe.Extension):
    """Adds them to the package that has been read."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        if pkg.name != "monocal":
            return
        from monocal.calibrators import CALIBRATORS
        from monocal.metrics.functions import FUNCTIONS

        home = pkg["metrics.functions"]
        made = griffe.inspect(
            "functions", filepath=home.filepath, parent=pkg["metrics"], docstring_parser="numpy"
        )
        for name in FUNCTIONS:
            home.set_member(name, made.members[name])
            pkg["metrics"].set_member(name, griffe.Alias(name, f"monocal.metrics.functions.{name}"))
        for name, kind in CALIBRATORS.items():
            pkg["calibrators"].set_member(name, griffe.Alias(name, f"{kind.__module__}.{name}"))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A hook of mkdocs, called with the text of every page."""
    return markdown + other_calibrators() if page.file.src_uri == "api/baselines.md" else markdown


def other_calibrators() -> str:
    """The calibrators that no page names, as entries of a page."""
    from monocal.calibrators import CALIBRATORS

    text = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
    named = re.findall(r"^::: monocal\.calibrators\.(\w+)$", text, re.MULTILINE)
    return "".join(f"\n::: monocal.calibrators.{name}\n" for name in CALIBRATORS if name not in named)
