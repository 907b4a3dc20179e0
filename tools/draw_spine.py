"""Draw docs/architecture.svg from the package itself: the parts of the spine, their modules, and who imports whom.

python tools/draw_spine.py           writes the picture
python tools/draw_spine.py --check   says whether it is up to date (a test does this)
"""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "monocal"
PICTURE = ROOT / "docs" / "architecture.svg"

# The way of the data, in a fit. Each part is a folder.
SPINE = ("rows", "ranks", "kernel", "objective", "solver")
ABOVE = ("calibration", "baselines")
WIDTH, GAP, LINE, TOP = 190, 34, 17, 175


def modules(part: str) -> list[str]:
    return sorted(p.stem for p in (SOURCE / part).glob("*.py") if p.stem != "__init__")


def imported_parts(part: str) -> set[str]:
    """Parts of the package that a part imports, inside functions too."""
    found = set()
    for path in (SOURCE / part).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 2 and node.module:
                found.add(node.module.split(".")[0])
    return found - {part}


def box(x: float, y: float, width: float, height: float, part: str, names: list[str]) -> list[str]:
    lines = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" class="part"/>',
        f'<text x="{x + 12}" y="{y + 24}" class="name">{part}/</text>',
    ]
    lines += [
        f'<text x="{x + 12}" y="{y + 46 + i * LINE}" class="module">{name}</text>'
        for i, name in enumerate(names)
    ]
    return lines


def picture() -> str:
    tallest = max(len(modules(part)) for part in SPINE)
    height = 40 + tallest * LINE + 16
    total = len(SPINE) * WIDTH + (len(SPINE) - 1) * GAP + 2
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {TOP + height + 46}" role="img" '
        'aria-label="The parts of monocal along the way of the data">',
        "<style>.part{fill:#eef2fb;stroke:#3f51b5}.name{font:600 15px sans-serif;fill:#1a237e}"
        ".module{font:13px monospace;fill:#222}.say{font:13px sans-serif;fill:#666}"
        ".arrow{stroke:#3f51b5;stroke-width:2;fill:none;marker-end:url(#tip)}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#3f51b5"/></marker></defs>',
    ]
    wide = (total - GAP) / 2
    for i, part in enumerate(ABOVE):
        rows = textwrap.wrap(", ".join(modules(part)), int(wide / 8.3))
        out += box(1 + i * (wide + GAP), 1, wide, TOP - 50, part, rows)
    for i, part in enumerate(SPINE):
        x = 1 + i * (WIDTH + GAP)
        out += box(x, TOP, WIDTH, height, part, modules(part))
        if i:
            out.append(f'<path class="arrow" d="M{x - GAP + 3} {TOP + 30}H{x - 4}"/>')
        uses = [other for other in SPINE if other in imported_parts(part)]
        say = "imports " + ", ".join(uses) if uses else "imports none of these"
        out.append(f'<text x="{x + 4}" y="{TOP + height + 20}" class="say">{say}</text>')
    middle = total / 2
    out.append(f'<path class="arrow" d="M{middle} {TOP - 44}V{TOP - 6}"/>')
    return "\n".join([*out, "</svg>", ""])


def main() -> int:
    new = picture()
    if "--check" in sys.argv:
        return int(not PICTURE.exists() or PICTURE.read_text() != new)
    PICTURE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
