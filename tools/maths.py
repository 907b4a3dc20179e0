"""Maths in pages as MathML, which browsers show without a script: offline, in any size, readable aloud.

    ```math             a formula of its own, in LaTeX
    $`x_i`$             one within a sentence

Both are what GitHub shows as maths too.
"""

from __future__ import annotations

import re

_BLOCK = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"\$`([^`]+)`\$")
_CODE = re.compile(r"^( *```).*?^\1$|(?<!`)``[^`].*?``", re.DOTALL | re.MULTILINE)


def with_mathml(markdown: str) -> str:
    """The page with its formulas as MathML; other blocks of code stay as they are."""
    markdown = _BLOCK.sub(lambda found: _mathml(found[1], "block"), markdown)
    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [_inline(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _inline(markdown[end:])])


def _inline(text: str) -> str:
    return _INLINE.sub(lambda found: _mathml(found[1], "inline"), text)


def _mathml(latex: str, display: str) -> str:
    from latex2mathml.converter import convert

    made = convert(latex.strip(), display=display)
    return f'<div class="formula">{made}</div>' if display == "block" else made
