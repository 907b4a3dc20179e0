"""What `make bare` is for: hard dependencies alone, at the versions that are promised."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
BARE = re.search(r"^BARE := (.+)$", MAKEFILE, re.MULTILINE)[1].split()
IN_BARE = {
    "numpy",
    "scipy",
    "sklearn",
    "hypothesis",
    "pytest",
    "monocal",
    "hostile",
    "prepared",
    "real_logits",
}


def test_lowest_versions_are_those_of_the_package():
    hard = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    promised = dict(requirement.split(">=") for requirement in hard)
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    tried = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {name: version.removesuffix(".0") for name, version in tried.items()} == promised


@pytest.mark.parametrize("path", [path for path in BARE if path.endswith(".py")])
def test_main_properties_need_no_extra(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module])
    }
    assert names - set(sys.stdlib_module_names) <= IN_BARE
    assert "importorskip" not in ast.unparse(tree)  # what is skipped there would hold nothing
