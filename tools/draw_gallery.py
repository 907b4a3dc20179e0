"""Draw the pictures of docs/gallery.md from the code of the page:  python tools/draw_gallery.py

Below each block of code that draws stands its picture, ``![words](gallery/NAME.png)``. The blocks run from top to bottom.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
_DRAWS = re.compile(
    r"```python\n(?P<code>.*?)```(?:\n\n!\[[^\]]*\]\(gallery/(?P<name>[\w-]+)\.png\))?", re.DOTALL
)
_COLOURS = 96  # of the palette: enough for bands over bands, and a quarter of the bytes


def pictures() -> Iterator[tuple[str, bytes]]:
    """Name and PNG of every picture of the page, as the code draws it now."""
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    names: dict[str, Any] = {}
    with plt.rc_context():
        plt.rcdefaults()  # whatever the reader's own settings are
        for block in _DRAWS.finditer((DOCS / "gallery.md").read_text(encoding="utf-8")):
            exec(block["code"], names)
            if block["name"]:
                yield block["name"], _png(plt.gcf())
            plt.close("all")


def _png(figure: Any) -> bytes:
    from PIL import Image

    drawn, out = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=100)
    image = Image.open(drawn).convert("RGB")
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(out, format="png", optimize=True)
    return out.getvalue()


def main() -> None:
    """Write them to the folder of the page."""
    folder = DOCS / "gallery"
    folder.mkdir(exist_ok=True)
    drawn = dict(pictures())
    for old in folder.glob("*.png"):
        if old.stem not in drawn:
            old.unlink()
    for name, png in drawn.items():
        (folder / f"{name}.png").write_bytes(png)


if __name__ == "__main__":
    sys.exit(main())
