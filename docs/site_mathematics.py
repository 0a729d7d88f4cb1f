"""A hook of MkDocs: formulas become MathML when the site is built, and what a reader would see raw ends the build."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

MARKED = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
DOLLARS = re.compile(r"(\$\$?)([^\s$](?:[^$]*[^\s$])?)\1")
AS_IT_IS = re.compile(r"<(pre|code|script|style|svg|math)\b.*?</\1>|<[^>]*>", re.DOTALL)
LEAKS = {
    "a role or directive of reStructuredText": re.compile(r":(?:class|func|meth|attr|mod|exc|data|math):|\.\. \w+::"),
    "a doctest as quotes in quotes, outside a section Examples": re.compile(r"(?:<blockquote>\s*){3}|(?:&gt;){3} "),
    "a formula that is not rendered": re.compile(rf"{DOLLARS.pattern}|\\[(\[]"),
}


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Render the formulas that ``pymdownx.arithmatex`` has marked, and those between dollar signs in notebooks.

    Raises:
        PluginError: if the page shows markup that no part of the site's generator has read.
    """
    content = MARKED.sub(lambda match: _mathml(match[2], match[1] == "div"), content)
    if page.file.src_uri.endswith(".ipynb"):
        content = _outside_of_code(content, lambda text: DOLLARS.sub(lambda m: _mathml(m[2], m[1] == "$$"), text))
    for line in leaks(content):
        raise PluginError(f"{page.file.src_uri} shows {line}")
    return content


def leaks(content: str) -> list[str]:
    """What a reader of a page would see of its source, one line for each place."""
    found = []
    text = AS_IT_IS.sub(lambda match: match[0] if match[0] == "<blockquote>" else "\n", content)
    for what, pattern in LEAKS.items():
        found += [f"{what}: {text[match.start() :][:60]!r}" for match in pattern.finditer(text)]
    return found


def _mathml(latex: str, block: bool) -> str:
    tag = "div" if block else "span"
    formula = convert(html.unescape(latex), display="block" if block else "inline")
    return f'<{tag} class="formula">{formula}</{tag}>'


def _outside_of_code(content: str, change: Any) -> str:
    """Change the text between the tags, except in code, scripts, styles and drawings."""
    pieces, end = [], 0
    for match in AS_IT_IS.finditer(content):
        pieces += [change(content[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*pieces, change(content[end:])])
