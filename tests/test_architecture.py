"""The shape of the package: what may import what, light import, complete public names, honest documentation."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import monocal as mc
from monocal.errors import require

SOURCE = Path(mc.__file__).parent

# Each part may import the parts named (and itself). What is not listed here may import anything below it.
ALLOWED = {
    "errors": set(),
    "stopping": set(),
    "workers": {"stopping"},
    "arrays": {"errors"},
    "validation": {"errors", "arrays"},
    "solver": {"errors", "arrays", "validation"},
    "objective": {"errors", "arrays", "validation", "solver"},
    "metrics": {"errors", "arrays", "validation"},
    "data": {"errors", "stopping", "arrays", "validation"},
    "maps": {"errors", "arrays", "validation", "solver", "objective"},
}


def imports_of(path):
    """Parts of monocal that a file imports when it is imported (not inside functions)."""
    inside = path.relative_to(SOURCE).parts
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = inside[: len(inside) - node.level]
                names = [node.module] if node.module else [a.name for a in node.names]
                found |= {(*base, *name.split("."))[0] for name in names}
            elif node.module and node.module.startswith("monocal."):
                found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("monocal.")}
    return found


@pytest.mark.parametrize("part", ALLOWED)
def test_imports_go_one_way(part):
    files = (
        [SOURCE / f"{part}.py"] if (SOURCE / f"{part}.py").exists() else list((SOURCE / part).rglob("*.py"))
    )
    assert files
    for path in files:
        extra = imports_of(path) - ALLOWED[part] - {part}
        assert not extra, f"{path.relative_to(SOURCE)} imports {extra}"


def test_import_is_light():
    # pandas is not in the list: scikit-learn itself loads it where it is installed.
    heavy = [
        "torch",
        "dask",
        "matplotlib",
        "onnx",
        "onnxruntime",
        "h5py",
        "typer",
        "rich",
        "safetensors",
        "zarr",
    ]
    code = (
        f"import monocal, sys; monocal.MCCT; monocal.metrics; print([m for m in {heavy} if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_public_names_exist_and_are_documented():
    for name in mc.__all__:
        assert getattr(mc, name) is not None
        if callable(getattr(mc, name)):
            assert getattr(mc, name).__doc__, name
    assert set(dir(mc)) == set(mc.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mc.nothing  # noqa: B018


def test_missing_extra_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(mc.MissingExtraError, match=r"pip install 'monocal\[plots\]'"):
        require("matplotlib", "plots")
