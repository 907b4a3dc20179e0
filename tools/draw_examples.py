"""Draw the pictures of docs/examples from the code of their pages:  python tools/draw_examples.py [groups context ...]

A page with a picture of its own name makes a ``display``; that is what is drawn.
"""

from __future__ import annotations

import re
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

PAGES = Path(__file__).resolve().parents[1] / "docs" / "examples"


def main() -> None:
    """Run the pages and save what they display."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "examples"
    matplotlib.rcParams["svg.fonttype"] = "none"
    for page in sorted(PAGES.glob("*.md")):
        text, picture = page.read_text(encoding="utf-8"), page.with_suffix(".svg")
        if f"({picture.name})" not in text or (sys.argv[1:] and page.stem not in sys.argv[1:]):
            continue
        names: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
                exec(code, names)
        names["display"].plot().figure_.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main()
