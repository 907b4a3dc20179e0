"""The shape of the package: what may import what, light import, complete public names, honest documentation."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import monocal as mc
from monocal.errors import require

SOURCE = Path(mc.__file__).parent


def test_no_module_reaches_into_the_underscore_names_of_another():
    """Names that begin with an underscore are not imported; methods with one are called on ``self`` or within a file."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("monocal")):
                private = [
                    a.name for a in node.names if a.name.startswith("_") and not a.name.startswith("__")
                ]
                assert not private, f"{path.relative_to(SOURCE)} imports {private}"


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
        mc.nothing  # noqa: B018  to look is what fails


def test_missing_extra_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(mc.MissingExtraError, match=r"pip install 'monocal\[plots\]'"):
        require("matplotlib", "plots")
