"""Names of others as text: no terminal obeys them, no page, formula or sheet executes them."""

from __future__ import annotations

import html
import re
from typing import Literal

Form = Literal["text", "html", "latex", "markdown", "csv"]
LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {"±": r"$\pm$", **{sign: rf"\{sign}" for sign in "&%$#_{}"}}
MARKDOWN = re.compile(r"([\\`*~|\[\]]|(?<!\w)_|_(?!\w))")
FORMULA = ("=", "+", "-", "@")  # the start of a formula in a sheet


def printable(text: object, form: Form = "text") -> str:
    r"""Return text that is shown as it is: control characters are written out.

    >>> printable("a\x1b[2Jb"), printable("<b>", "html"), printable("a_1 & b", "latex")
    ('a\\x1b[2Jb', '&lt;b&gt;', 'a\\_1 \\& b')
    >>> print(printable("a|b *c* _d_ as_softmax", "markdown"), printable("=1+1", "csv"))
    a\|b \*c\* \_d\_ as_softmax '=1+1
    """
    plain = ""
    for character in re.sub(r"\s", " ", str(text)):
        if not character.isprintable():
            character = character.encode("unicode_escape").decode()
        plain += character
    if form == "html":
        return html.escape(plain)
    if form == "latex":
        return "".join(LATEX.get(character, character) for character in plain)
    if form == "markdown":
        return MARKDOWN.sub(r"\\\1", html.escape(" ".join(plain.split()), quote=False))
    if form == "csv" and plain.lstrip().startswith(FORMULA):
        return f"'{plain}"
    return plain
