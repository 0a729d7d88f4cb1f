"""A metadata hook of Hatchling: what a package index shows, README with absolute links and the
project's addresses.

The links of README are relative, so that they are right in every copy of the repository. On a
package index they lead nowhere. Where the package is built by GitHub Actions, ``GITHUB_SERVER_URL``
and ``GITHUB_REPOSITORY`` name the repository: then the links become absolute, and the repository's
pages are among the project's addresses.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parents[1]
PAPER = {"Paper": "https://arxiv.org/abs/2508.03175"}
PAGES = {
    "Repository": "",
    "Documentation": "/blob/main/docs/index.md",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}
OF_REPOSITORY = "../../"  # from a file that GitHub shows, the repository's own pages


def with_absolute_links(text: str, address: str) -> str:
    """Markdown whose links to files of the repository lead to its address."""

    def absolute(link: re.Match[str]) -> str:
        path = link.group(1)
        if path.startswith(OF_REPOSITORY):
            return f"]({address}/{path.removeprefix(OF_REPOSITORY)})"
        if not (ROOT / path.partition("#")[0]).exists() or path.startswith("#"):
            return link.group(0)
        return f"]({address}/{'raw' if path.endswith(('.png', '.svg')) else 'blob'}/main/{path})"

    return re.sub(r"\]\(([^)\s]+)\)", absolute, text)


class PackagePage(MetadataHookInterface):
    """Fills in the dynamic fields ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
        address = f"{server}/{name}" if server and name else None
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        text = text if address is None else with_absolute_links(text, address)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = (
            PAPER
            if address is None
            else {n: f"{address}{page}" for n, page in PAGES.items()} | PAPER
        )
