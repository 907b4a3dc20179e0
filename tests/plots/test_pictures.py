"""The pictures of the gallery are what the displays draw: a display that draws otherwise makes a test fail.

Pictures are compared in squares of eight by eight pixels, so that another version of matplotlib, which sets letters a little
differently, passes, and a line, a mark or a legend that is elsewhere does not.
"""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'monocal[plots]'")
Image = pytest.importorskip("PIL.Image")

ROOT = Path(__file__).resolve().parents[2]
STORED = {path.stem: path for path in sorted((ROOT / "docs" / "gallery").glob("*.png"))}
SQUARE, ROOM = 8, 0.2  # of the difference between black and white
AGAIN = "the picture has changed: look at it, then run  python tools/draw_gallery.py"


@pytest.fixture(scope="module")
def drawn():
    spec = importlib.util.spec_from_file_location("draw_gallery", ROOT / "tools" / "draw_gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.pictures())


def squares(png: bytes) -> np.ndarray:
    """Means of squares, (rows, columns, 3), from 0 to 1."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=float) / 255
    rows, columns = (size // SQUARE for size in pixels.shape[:2])
    cut = pixels[: rows * SQUARE, : columns * SQUARE]
    return cut.reshape(rows, SQUARE, columns, SQUARE, 3).mean(axis=(1, 3))


def changed(one: bytes, other: bytes) -> bool:
    a, b = squares(one), squares(other)
    return a.shape != b.shape or bool(np.abs(a - b).max() > ROOM)


def test_every_picture_is_stored(drawn):
    assert sorted(drawn) == sorted(STORED), AGAIN


@pytest.mark.parametrize("name", STORED)
def test_a_picture_is_as_stored(drawn, name):
    assert not changed(STORED[name].read_bytes(), drawn[name]), AGAIN


def test_every_display_is_in_the_gallery():
    from monocal import plots

    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    displays = [name for name in plots.__all__ if name.endswith("Display")]
    assert len(displays) >= 8
    assert [name for name in displays if f"mc.{name}" not in page] == []
