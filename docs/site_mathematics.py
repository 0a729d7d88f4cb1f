"""A hook of MkDocs: formulas become MathML when the site is built, and what a reader would see raw ends the build."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

MARKED = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
DOLLARS = re.compile(r"(?P<dollars>\$\$?)(?P<formula>[^\s$<](?:[^$<]*[^\s$<])?)(?P=dollars)")
AS_IT_IS = re.compile(r"<(?P<tag>pre|code|script|style|svg|math)\b.*?</(?P=tag)>|<[^>]*>", re.DOTALL)
IN_NOTEBOOK = re.compile(rf"{AS_IT_IS.pattern}|{DOLLARS.pattern}", re.DOTALL)
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
        content = IN_NOTEBOOK.sub(
            lambda m: _mathml(m["formula"], m["dollars"] == "$$") if m["formula"] else m[0], content
        )
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
