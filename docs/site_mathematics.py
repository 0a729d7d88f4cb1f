"""A hook of MkDocs: formulas become MathML when the site is built, so that a page needs no script to show them."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Replace the formulas that ``pymdownx.arithmatex`` has marked."""

    def mathml(match: re.Match[str]) -> str:
        display = "block" if match[1] == "div" else "inline"
        return f'<{match[1]} class="formula">{convert(html.unescape(match[2]), display=display)}</{match[1]}>'

    return FORMULA.sub(mathml, content)
