"""A report, and a headless browser that opens a page at a given width and tells what a visitor would see."""

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
from monocal.report.deadline import TimedTrial

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

# The page runs in a frame as wide as the screen asked for, and sends what it found to the page around it.
WATCH = """<script>
window.failures = [];
addEventListener("error", (e) => failures.push(String(e.message || e.target)), true);
addEventListener("securitypolicyviolation", (e) => failures.push("blocked " + e.blockedURI));
</script>"""
PROBE = """<script>
addEventListener("load", () => {
  const tip = document.getElementById("tip");
  const box = (e) => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; };
  const told = () => tip.hidden ? null : tip.textContent;
  const charts = [...document.querySelectorAll("svg.chart")];
  const found = {
    failures, width: innerWidth, scroll_width: document.documentElement.scrollWidth,
    headings: [...document.querySelectorAll("h1, h2")].map((h) => h.textContent),
    text: document.body.innerText,
    verdict: (() => { const e = document.querySelector(".verdict"), b = e && e.querySelector("a.button");
      return e && { text: e.innerText, box: box(e), edge: getComputedStyle(e).borderLeftColor,
        button: b && b.getClientRects().length > 0, download: b && b.download }; })(),
    tables: [...document.querySelectorAll(".scroll")].filter((t) => t.clientWidth).map((t) => ({
      name: t.getAttribute("aria-label"), cut: t.scrollWidth > t.clientWidth + 1 && getComputedStyle(t).overflowX === "auto",
      hint: getComputedStyle(t, "::before").content, right: t.querySelector("table").getBoundingClientRect().right })),
    charts: charts.map((c) => ({ name: c.getAttribute("aria-label"), box: box(c), hits: c.querySelectorAll(".hit").length,
      stops: c.querySelectorAll('[tabindex="0"]').length })),
    colours: [["body"], ["figcaption"], ["summary"], [".good", "body"], ["h1", "body"]].map(([s, on]) => {
      const e = document.querySelector(s);
      return e && [s, getComputedStyle(e).color, getComputedStyle(document.body).backgroundColor];
    }).filter(Boolean),
  };
  const hits = charts[0].querySelectorAll(".hit");
  hits[1].scrollIntoView({ block: "center" });
  hits[1].dispatchEvent(new PointerEvent("pointerenter", { pointerType: "mouse" }));
  found.hover = told(); found.tip = box(tip);
  hits[1].dispatchEvent(new PointerEvent("pointerleave", { pointerType: "mouse" }));
  found.left = told();
  hits[0].focus();
  hits[0].dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true }));
  found.end = told();
  hits[hits.length - 1].dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true }));
  found.before_end = told();
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  found.escaped = told();
  parent.postMessage(JSON.stringify(found), "*");
});
</script>"""
FRAME = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0"><pre id="found"></pre><script>
addEventListener("message", (e) => { document.getElementById("found").textContent = e.data; });
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
    return mc.report.collect(*sets, calibrator=mc.ConditionalMCCT(n_knots=3), n_boot=20)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium binary."""
    found = next(filter(None, map(shutil.which, BINARIES)), None)
    if found is None:
        pytest.skip("no Chromium here: apt-get install chromium lets the report be opened in a browser")
    return found


@pytest.fixture
def in_this_process(monkeypatch):
    """Methods are judged here, where nothing stops them: starting a process takes longer than most of them."""
    monkeypatch.setattr(TimedTrial, "judge", lambda self, method, seconds: self._trial.judge(method))


@pytest.fixture(scope="session")
def visit(chromium, tmp_path_factory):
    """``visit(html, width, dark)`` opens a page and returns what its probe saw, with the console's lines."""

    @cache
    def open_page(html: str, width: int, dark: bool) -> dict:
        folder = Path(tmp_path_factory.mktemp("visit"))
        watched = html.replace("<head>", "<head>" + WATCH, 1).replace("</body>", PROBE + "</body>", 1)
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
        answer = re.search(r'<pre id="found">(.*?)</pre>', run.stdout, re.DOTALL)
        assert answer is not None, run.stdout[:2000]
        assert answer[1], f"the page did not answer: {run.stderr[-2000:]}"
        found = json.loads(unescape(answer[1]))
        found["console"] = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
        return found

    return open_page
