"""The parts of a page that a script writes: from ``<!-- written by SCRIPT -->`` to ``<!-- end
-->``.
"""

import re
from pathlib import Path


def written(page: Path, script: str, *parts: str) -> str:
    """The text of a page with these parts in the places that a script has there, in their order."""
    waiting = list(parts)
    mark = re.compile(rf"(<!-- written by {re.escape(script)} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    text = page.read_text(encoding="utf-8")
    if (places := len(mark.findall(text))) != len(parts):
        raise ValueError(
            f"{page} has {places} places that {script} writes, and {len(parts)} are written."
        )
    return mark.sub(lambda found: found[1] + waiting.pop(0) + found[2], text)
