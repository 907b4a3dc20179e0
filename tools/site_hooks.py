"""What `mkdocs build` does beside the pages: maths, the tutorials as notebooks, a sample report, and a look at the result.

The site must work from a disk without a network, so nothing in it may be fetched from elsewhere.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority

sys.path.insert(0, str(Path(__file__).resolve().parent))

from maths import with_mathml
from notebooks import TUTORIALS, write_notebook

REPORT = "sample-report.html"
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|audio|video|embed)\b[^>]*?\bsrc=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|modulepreload|preconnect))[^>]*?\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)",
    re.IGNORECASE,
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Formulas as MathML; a link to the notebook of a tutorial."""
    if page.file.src_uri in TUTORIALS:
        name = Path(page.file.src_uri).with_suffix(".ipynb").name
        link = f'<p class="notebook"><a href="{name}" download>Download this page as a notebook</a>, as it ran.</p>'
        title, _, rest = markdown.partition("\n")
        markdown = f"{title}\n\n{link}\n{rest}"
    return with_mathml(markdown)


@event_priority(-200)  # after the plugins
def on_post_build(config: Any, **_: Any) -> None:
    """Notebooks, the sample report, and whether the site needs a network."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    for tutorial in TUTORIALS:
        write_notebook(docs / tutorial, (site / tutorial).with_suffix(".ipynb"))
    write_sample_report(site / REPORT)
    fetched = what_is_fetched(site)
    if fetched:
        raise SystemExit("The site fetches from elsewhere:\n" + "\n".join(fetched))
    if not (site / "search" / "search_index.js").exists():
        raise SystemExit("Search does not work from a disk: the plugin 'offline' is missing.")


def write_sample_report(path: Path) -> None:
    """The report of ``monocal demo``: a network on images of digits."""
    import monocal as mc
    from monocal.data import digits_example

    digits = digits_example()
    mc.write_report(path, digits.cal, digits.test, title="A network that reads digits", force=True)


def what_is_fetched(site: Path) -> list[str]:
    """Scripts, styles and pictures of the pages that come from another place: 'PAGE: ADDRESS'."""
    found = []
    for page in sorted(site.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        found += [f"{page.relative_to(site)}: {a or b}" for a, b in _FETCHED.findall(text)]
    return found
