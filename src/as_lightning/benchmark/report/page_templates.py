"""The templates of the pages, and how text from results is escaped in them."""

from __future__ import annotations

import html
import re

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from as_lightning.benchmark.report.table_cells import epochs_in_words


def page_templates() -> Environment:
    """The templates. HTML is escaped by itself, Markdown by the filter ``md``."""
    environment = Environment(
        loader=PackageLoader("as_lightning.benchmark.report"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"md": escape_markdown, "epochs": epochs_in_words}
    return environment


def escape_markdown(text: object) -> str:
    r"""Text that a Markdown page shows as it is, in a table too: no HTML, no links, no cell or line ends.

    >>> print(escape_markdown("a|b <img> *c*"))
    a\|b &lt;img&gt; \*c\*
    >>> print(escape_markdown("as_softmax\\|x"))
    as_softmax\\\|x
    """
    escaped = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*|\[\]])", r"\\\1", escaped)
