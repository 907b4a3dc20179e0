"""The reference is complete: every public name is on one page of docs/api, says what it takes, and shows an example.

`tests/test_docs.py` runs the examples and compares what they print.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import runpy
from collections import Counter
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import monocal as mc

ROOT = Path(__file__).resolve().parents[1]
# What a hook of mkdocs adds to the page of other methods.
ADDED = runpy.run_path(str(ROOT / "tools" / "dynamic_names.py"))["other_calibrators"]()
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
MODULES = (
    "calibrators",
    "metrics",
    "plots",
    "data",
    "report",
    "solver",
    "monitoring",
)
MORE = {
    "persistence": ("save", "load", "describe", "fingerprint"),
    "registry": ("all_calibrators", "CalibratorInfo"),
}
# They are imported from their own files, which need torch or onnx.
EXPORT = ("onnx.to_onnx", "torch.to_torch", "torch.from_state_dict", "hooks.LogitsProcessor")


def public() -> dict[str, tuple[str, str]]:
    """Place in the package (as the pages write it) -> module and name."""
    places = [(mc._PUBLIC[name], name) for name in mc._PUBLIC]
    for short in MODULES:
        module = importlib.import_module(f"monocal.{short}")
        places += [(module.__name__, name) for name in module.__all__]
    places += [(f"monocal.{module}", name) for module, names in MORE.items() for name in names]
    for place in EXPORT:
        module, _, name = place.rpartition(".")
        places.append((f"monocal.export.{module}", name))
    return {f"{module}.{name}": (module, name) for module, name in places}


def described() -> Counter[str]:
    return Counter(
        place
        for text in [*(page.read_text(encoding="utf-8") for page in PAGES), ADDED]
        for place in re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    )


def test_every_public_name_is_on_one_page() -> None:
    on_pages = described()
    assert sorted(set(public()) - set(on_pages)) == []  # add them to the page of docs/api that they belong to
    assert [place for place, times in on_pages.items() if times > 1] == []


def test_every_page_is_in_the_menu_and_in_the_list_of_pages() -> None:
    menu = (PAGES[0].parents[2] / "mkdocs.yml").read_text(encoding="utf-8")
    overview = next(page for page in PAGES if page.name == "index.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert f"api/{page.name}\n" in menu
        assert page.name == "index.md" or f"]({page.name})" in overview


def thing_at(place: str) -> Any:
    module, _, name = place.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except mc.MissingExtraError as error:
        pytest.skip(str(error))


def takes_something(thing: Any) -> bool:
    if inspect.isclass(thing) and issubclass(thing, BaseException | Enum):
        return False
    return bool(inspect.signature(thing).parameters)


@pytest.mark.parametrize("place", sorted(described()))
def test_it_says_what_it_takes_and_shows_an_example(place: str) -> None:
    thing = thing_at(place)
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return  # a value: its page says what it is
    own = (vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__) or ""
    assert own
    # What one is given rather than makes (a frozen dataclass) lists its attributes.
    sections = ("Parameters", "Attributes") if dataclasses.is_dataclass(thing) else ("Parameters",)
    if takes_something(thing):
        assert any(re.search(rf"^\s*{section}\n\s*-+$", own, re.MULTILINE) for section in sections)
    assert re.search(r"^\s*Examples\n\s*-+$", own, re.MULTILINE)
    examples = re.findall(r"^\s*>>> (.*)$", own, re.MULTILINE)
    assert examples
    assert not any("+SKIP" in line for line in examples)
