"""A report, and a headless browser that opens a page at a given width and returns what a visitor would see."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from html import unescape
from pathlib import Path

import pytest

import monocal as mc
from monocal.data import LogitsSet
from monocal.report.trial import TimedTrial

BINARIES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=4000",
]

# The page runs in a frame as wide as the screen, and sends what it measures to the page around it.
WATCH = """<script>
window.failures = [];
addEventListener("error", (e) => failures.push(String(e.message || e.target)), true);
addEventListener("securitypolicyviolation", (e) => failures.push("blocked " + e.blockedURI));
</script>"""
PROBE = """<script>
addEventListener("load", () => {
  const box = (e) => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; };
  const seen = { failures, width: innerWidth, height: document.documentElement.scrollHeight,
    headings: [...document.querySelectorAll("h1, h2, summary")].map((h) => h.textContent) };
  const folded = [...document.querySelectorAll("details")];
  seen.folded = folded.every((d) => !d.open);
  folded.forEach((d) => { d.open = true; });
  seen.scroll_width = document.documentElement.scrollWidth;
  const verdict = document.querySelector(".verdict"), button = document.querySelector("a.button");
  seen.verdict = { text: verdict.innerText, box: box(verdict), edge: getComputedStyle(verdict).borderLeftColor };
  seen.button = button && { shown: button.getClientRects().length > 0, download: button.download };
  seen.tables = [...document.querySelectorAll(".scroll")].map((t) => ({
    name: t.getAttribute("aria-label"), box: box(t), scrolls: getComputedStyle(t).overflowX }));
  seen.charts = [...document.querySelectorAll("svg.chart")].map((c) => ({ name: c.getAttribute("aria-label"), box: box(c),
    titles: c.querySelectorAll("title").length, text: [...c.querySelectorAll("text")].map((t) => box(t)[3]),
    ink: getComputedStyle(c.querySelector("text")).fill }));
  seen.colours = [["body"], [".muted"], ["small"], ["caption"], ["h1"]].map(([s]) => {
    const e = document.querySelector(s);
    return e && [s, getComputedStyle(e).color, getComputedStyle(document.body).backgroundColor];
  }).filter(Boolean);
  parent.postMessage(JSON.stringify(seen), "*");
});
</script>"""
FRAME = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0"><pre id="result"></pre><script>
addEventListener("message", (e) => { document.getElementById("result").textContent = e.data; });
</script><iframe src="page.html" style="border:0;width:WIDTHpx;height:900px"></iframe>"""


@pytest.fixture(scope="session")
def sets():
    data = mc.data.synthetic(3000, 30, seed=5, overconfidence=2.5)
    cal = LogitsSet(
        data.values[:1500], data.labels[:1500], name="made-up data", notes=("labels were one-hot",)
    )
    return cal, LogitsSet(data.values[1500:], data.labels[1500:], name="made-up data")


@pytest.fixture(scope="session")
def report(sets):
    few = {"temperature scaling": mc.TemperatureScaling(), "vector scaling": mc.VectorScaling()}
    return mc.report.collect(*sets, calibrator=mc.ConditionalMCCT(n_knots=3), methods=few, n_boot=20)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium binary."""
    path = next(filter(None, map(shutil.which, BINARIES)), None)
    if path is None:
        pytest.skip("no Chromium here: apt-get install chromium lets the report be opened in a browser")
    return path


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch, request):
    """Methods are judged here, where nothing stops them: starting a process takes longer than most of them."""
    if "timed" not in request.keywords:
        monkeypatch.setattr(TimedTrial, "judge", lambda self, method, seconds: self._trial.judge(method))


@pytest.fixture(scope="session")
def visit(chromium, tmp_path_factory):
    """``visit(html, width, dark)`` opens a page and returns what its probe saw, with the console's lines."""

    @cache
    def open_page(html: str, width: int, dark: bool) -> dict:
        folder = Path(tmp_path_factory.mktemp("visit"))
        allowed = html.replace("style-src", "script-src 'unsafe-inline'; style-src")  # of the probe alone
        watched = allowed.replace("<head>", "<head>" + WATCH, 1).replace("</body>", PROBE + "</body>", 1)
        (folder / "page.html").write_text(watched, encoding="utf-8")
        (folder / "frame.html").write_text(FRAME.replace("WIDTH", str(width)), encoding="utf-8")
        run = subprocess.run(
            [
                chromium,
                *FLAGS,
                f"--user-data-dir={folder / 'profile'}",
                f"--window-size={max(width, 500)},900",
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                "--dump-dom",
                (folder / "frame.html").as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        answer = re.search(r'<pre id="result">(.*?)</pre>', run.stdout, re.DOTALL)
        assert answer is not None, run.stdout[:2000]
        assert answer[1], f"the page did not answer: {run.stderr[-2000:]}"
        seen = json.loads(unescape(answer[1]))
        seen["console"] = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
        return seen

    return open_page
