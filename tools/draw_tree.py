"""Draw docs/which-method.svg, the decision tree of docs/choosing.md:  python tools/draw_tree.py

A question has an answer to its right, the method, and leads on downwards where the answer is no.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

TREE = [
    ("Several labels per row?", "yes", "MultilabelMCCT"),
    ("Two classes, or one score per row?", "yes", "BinaryMCCT"),
    ("Some classes predicted too often, and order may change?", "yes", "StructuredMCCT"),
    ("Thousands of classes?", "yes", "ConditionalMCCT(top_k=400)"),
    ("Three classes or more", "", "ConditionalMCCT"),
]
EXTRAS = [
    "Groups that must each be calibrated: add  fit(..., context=groups)",
    "Other class frequencies later: LabelShift(calibrator)",
    "A scikit-learn estimator: CalibratedClassifier(estimator)",
]
STYLE = """
text{font:15px system-ui,sans-serif;fill:#1b1f24}.method{font-family:ui-monospace,monospace;font-weight:600;fill:#fff}
.small{font-size:13px;fill:#57606a}rect.q{fill:#eef1f6;stroke:#c4cbd6}rect.m{fill:#3f51b5}path{stroke:#8a94a3;fill:none}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9aa4af}rect.q{fill:#2a2f3a;stroke:#4a5160}}
"""


def draw() -> str:
    """The picture as SVG."""
    width, step = 860, 74
    parts = []
    for i, (question, answer, method) in enumerate(TREE):
        y = 12 + i * step
        parts.append(f'<rect class="q" x="10" y="{y}" width="500" height="44" rx="8"/>')
        parts.append(f'<text x="26" y="{y + 27}">{escape(question)}</text>')
        parts.append(f'<path d="M510 {y + 22}H580" marker-end="url(#end)"/>')
        parts.append(f'<text class="small" x="530" y="{y + 16}">{answer}</text>')
        parts.append(f'<rect class="m" x="586" y="{y}" width="264" height="44" rx="8"/>')
        parts.append(f'<text class="method" x="600" y="{y + 27}">{escape(method)}</text>')
        if i + 1 < len(TREE):
            parts.append(f'<path d="M40 {y + 44}V{y + step - 4}" marker-end="url(#end)"/>')
            parts.append(f'<text class="small" x="50" y="{y + 63}">no</text>')
    y = 12 + len(TREE) * step
    for i, line in enumerate(EXTRAS):
        parts.append(f'<text class="small" x="26" y="{y + 20 * i}">{escape(line)}</text>')
    height = y + 20 * len(EXTRAS)
    marker = (
        '<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>Which method</title><style>{STYLE}</style>",
            f'<defs>{marker}<path d="M0 0L8 4L0 8z" style="fill:#8a94a3"/></marker></defs>',
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    Path(__file__).parents[1].joinpath("docs", "which-method.svg").write_text(draw(), encoding="utf-8")
