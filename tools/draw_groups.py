"""Draw the picture of docs/examples/groups.md from the code of that page:  python tools/draw_groups.py"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "examples" / "groups.md"
PICTURE = PAGE.with_suffix(".svg")


def main() -> None:
    """Run the page and save what it displays."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "groups"
    matplotlib.rcParams["svg.fonttype"] = "none"
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(code, names)
    names["display"].plot().figure_.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
