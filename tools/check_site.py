"""Look at the built site as someone does who has no network:  python tools/check_site.py [site]

No page asks for anything from elsewhere, no formula was left as it was written, and (where there is a Chromium) the search finds
something on pages that are read from the disk, with a silent console.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FROM_ELSEWHERE = re.compile(
    r'<(?:script|img|iframe|source)[^>]+src="https?:|<link[^>]+(?:stylesheet|preload|preconnect)[^>]*href="https?:'
)
WORD = "temperature"  # some page will hold it


def complaints(site: Path) -> list[str]:
    """What is wrong with the pages as files."""
    pages = sorted(site.rglob("*.html"))
    found = [] if pages else [f"{site} holds no page: build it with  mkdocs build"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(site)
        found += [
            f"{name} asks for something from elsewhere: {what}" for what in FROM_ELSEWHERE.findall(text)
        ]
        if "arithmatex" in text:
            found.append(f"{name} holds a formula that was not drawn")
    return found


def complaints_of_a_browser(site: Path, chromium: str) -> list[str]:
    """What is wrong when a page is opened from the disk and searched."""
    with tempfile.TemporaryDirectory() as profile:
        run = subprocess.run(
            [
                chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                "--enable-logging=stderr", f"--user-data-dir={profile}", "--window-size=1300,900",
                "--virtual-time-budget=8000", "--dump-dom", f"{(site / 'index.html').resolve().as_uri()}?q={WORD}",
            ],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    found = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    if not re.search(r"\d+ matching documents", run.stdout):
        found.append(f"the search finds nothing for {WORD!r} on pages that are read from the disk")
    return found


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "site")
    found = complaints(site)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium and not found:
        found = complaints_of_a_browser(site, chromium)
    for complaint in found:
        sys.stderr.write(f"{complaint}\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
