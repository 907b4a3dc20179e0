"""The page opened from disk in headless Chromium: a silent console, and every figure there to be seen."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

from experiments.reproduce import reproduce

# Added to a copy of the page: what went wrong, and how large every figure is.
WATCH = '<script>var failures = []; addEventListener("error", e => failures.push(String(e.message || e.target)), true);</script>'
TELL = """<script>addEventListener("load", () => {
  const found = { failures, scripts: document.scripts.length, wide: document.documentElement.scrollWidth > innerWidth,
    paper: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color,
    filters: [...document.images].map(i => getComputedStyle(i).filter),
    tables: document.querySelectorAll("table").length, text: document.body.innerText.length,
    figures: [...document.images].map(i => [i.alt, i.complete, i.naturalWidth, i.clientWidth, i.clientHeight,
      getComputedStyle(i).visibility]) };
  const pre = document.createElement("pre"); pre.id = "found"; pre.textContent = JSON.stringify(found); document.body.append(pre);
});</script>"""


@pytest.fixture(scope="module")
def page(small_sets, tiny, tmp_path_factory):
    methods = ("uncalibrated", "ts", "mcct_published", "mcct_i_published", "mcct")
    out = tmp_path_factory.mktemp("page") / "out"
    reproduce(small_sets, out, settings=tiny, methods=methods, jobs=1)
    return out / "index.html"


def test_the_page_needs_nothing_else(page):
    text = page.read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert "<script" not in text
    assert text.count('src="data:image/svg+xml;base64,') == 5


def brightness(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (420, True)])
def test_in_chromium(page, tmp_path, width, dark):
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no Chromium here: apt-get install chromium lets the page be opened in a browser")
    text = page.read_text(encoding="utf-8")
    copy = tmp_path / "index.html"
    copy.write_text(
        text.replace("<head>", "<head>" + WATCH, 1).replace("</body>", TELL + "</body>", 1), encoding="utf-8"
    )
    run = subprocess.run(
        [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            "--virtual-time-budget=4000", "--dump-dom", copy.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    answer = re.search(r'<pre id="found">(.*?)</pre>', run.stdout, re.DOTALL)
    assert answer, run.stderr[-2000:]
    found = json.loads(unescape(answer[1]))
    assert [line for line in run.stderr.splitlines() if "CONSOLE" in line] == []
    assert found["failures"] == []
    assert found["tables"] > 7
    assert not found["wide"]  # tables scroll by themselves
    assert (brightness(found["paper"]) < 60) == (brightness(found["ink"]) > 180) == dark
    assert {text.startswith("invert") for text in found["filters"]} == {dark}  # no white boxes in the dark
    assert len(found["figures"]) == 5
    for name, complete, natural, shown_width, shown_height, visibility in found["figures"]:
        assert name.startswith("Figure")
        assert complete
        assert natural > 100
        assert shown_width > 100
        assert shown_height > 50
        assert visibility == "visible"
