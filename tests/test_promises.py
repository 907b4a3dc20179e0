"""Every promise of the README and of docs/guarantees.md names the tests that hold it, and they are there.

In docs/guarantees.md every paragraph, list item and table row has a footnote with names of tests; in the README every item under
"What is guaranteed" has a mark whose link and title name one. What explains or limits a promise needs none.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
NOTE = re.compile(r"^\[\^([\w-]+)\]: (.+)$", re.MULTILINE)
NOTES = dict(NOTE.findall(GUARANTEES))
MARK = re.compile(r'\[✓\]\(([\w/.]+) "(\w+)"\)')
TEST = re.compile(r"`(tests/[\w/.]+)::(\w+)`")
EXPLAINS = ("*Why:*", "*Jumps at ties.*", "| field |", "|---", "| ---")
NAMED = sorted({test for note in NOTES.values() for test in TEST.findall(note)} | set(MARK.findall(README)))


def blocks(text):
    """Paragraphs, list items and rows of tables, each as one string; no headings, no code, no footnotes."""
    text = NOTE.sub("", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    text = re.sub(r"^<!-- .* -->$", "", text, flags=re.MULTILINE)  # where a benchmark writes its table
    text = re.sub(r"^(#|- |\|)", r"\n\1", text, flags=re.MULTILINE)
    parts = (part.strip() for part in re.split(r"\n\s*\n", text))
    parts = [part for part in parts if part and not part.startswith("#")]
    # A table of figures below a paragraph that ends with its note is held by that note.
    held, noted = [], False
    for part in parts:
        if not part.startswith("|"):
            noted = part.endswith("]") or part.endswith("]:")
        if not (part.startswith("|") and noted):
            held.append(part)
    return held


def short(block):
    return block[:40]


@cache
def functions_of(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_what_is_named_is_there(path, name):
    assert re.fullmatch(r"tests/([\w]+/)*test_\w+\.py", path)
    assert name.startswith("test_")
    assert name in functions_of(path)


@pytest.mark.parametrize("block", [b for b in blocks(GUARANTEES) if not b.startswith(EXPLAINS)], ids=short)
def test_every_guarantee_names_its_tests(block):
    notes = re.findall(r"\[\^([\w-]+)\]", block)
    assert notes
    assert all(TEST.search(NOTES[note]) for note in notes)


def test_every_note_is_used():
    assert set(re.findall(r"\[\^([\w-]+)\](?!:)", GUARANTEES)) == set(NOTES)


def test_every_promise_of_the_readme_names_its_test():
    section = README.split("\n## What is guaranteed\n")[1].split("\n## ")[0]
    promises = [block for block in blocks(section) if block.startswith("- ")]
    assert len(promises) >= 3
    assert [block for block in promises if not MARK.search(block)] == []
