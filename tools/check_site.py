"""Look at the built site as someone does who has no network:  python tools/check_site.py [site]

No page loads anything from another site, and no formula was left as it was written. Where there is a Chromium, each of the words
that a newcomer types is searched on pages that are read from the disk: the first result is the page on it, and the console is
silent.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

FROM_ANOTHER_SITE = re.compile(
    r'<(?:script|img|iframe|source)[^>]+src="https?:|<link[^>]+(?:stylesheet|preload|preconnect)[^>]*href="https?:'
)
# What a newcomer types, and the pages of which one has to come first.
WORDS = {
    "imbalanced": ["two-classes"],
    "class_weight": ["two-classes"],
    "binary": ["two-classes"],
    "AUC": ["two-classes", "order"],
    "SVC": ["two-classes", "scikit-learn"],
    "Platt": ["two-classes"],
    "resampling": ["two-classes"],
    "threshold": ["thresholds"],
    "F1": ["thresholds"],
    "overconfident": ["calibration"],
    "Brier": ["metrics", "calibration"],
    "CSV": ["files"],
    "Excel": ["files"],
    "multilabel": ["many-labels"],
    "LLM": ["confidence", "language-models"],
    "confidence": ["confidence"],
    "ONNX": ["serving"],
    "sklearn": ["scikit-learn"],
    "drift": ["monitoring"],
    "reliability diagram": ["reading-diagrams"],
}


def complaints(site: Path) -> list[str]:
    """What is wrong with the pages as files."""
    pages = sorted(site.rglob("*.html"))
    result = [] if pages else [f"{site} holds no page: build it with  mkdocs build"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(site)
        result += [
            f"{name} loads something from another site: {what}" for what in FROM_ANOTHER_SITE.findall(text)
        ]
        if "arithmatex" in text:
            result.append(f"{name} holds a formula that was not drawn")
    return result


def complaints_of_a_browser(site: Path, chromium: str) -> list[str]:
    """What is wrong when pages are opened from the disk and searched."""
    complaints = []
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda word: _search(site, chromium, word), WORDS)
        for (word, pages), (console, first) in zip(WORDS.items(), results, strict=True):
            complaints += console
            if first is None:
                complaints.append(
                    f"the search finds nothing for {word!r} on pages that are read from the disk"
                )
            elif first not in pages:
                complaints.append(f"the search for {word!r} finds {first} first, not {' or '.join(pages)}")
    return complaints


def _search(site: Path, chromium: str, word: str) -> tuple[list[str], str | None]:
    """Lines on the console, and the name of the page that is the first result."""
    with tempfile.TemporaryDirectory() as profile:
        run = subprocess.run(
            [
                chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                "--enable-logging=stderr", f"--user-data-dir={profile}", "--window-size=1300,900",
                "--virtual-time-budget=8000", "--dump-dom",
                f"{(site / 'index.html').resolve().as_uri()}?q={quote(word)}",
            ],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    console = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    first = re.search(r'<a href="[^"]*?([\w-]+)\.html[^"]*" class="md-search-result__link"', run.stdout)
    return console, first[1] if first else None


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "site")
    result = complaints(site)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium and not result:
        result = complaints_of_a_browser(site, chromium)
    for complaint in result:
        sys.stderr.write(f"{complaint}\n")
    return int(bool(result))


if __name__ == "__main__":
    sys.exit(main())
