"""A hook of MkDocs: pages of the site that lie outside ``docs/``, and links to them.

Results, notebooks, the changelog and the pages for contributors stay where a reader of the repository looks for them.
The site shows them under the same names, so a link such as ``../results/README.md`` of a page in ``docs/`` loses the
``../`` that leaves the folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")
FOLDERS = {"results": (".md", ".png", ".svg", ".html"), "notebooks": (".ipynb",)}
OUTSIDE = "|".join([*map(re.escape, PAGES), *(f"{folder}/" for folder in FOLDERS)])


@event_priority(100)  # before mkdocs-jupyter, which makes pages of the notebooks that it finds
def on_files(files: Files, config: Any) -> Files:
    """Add the pages, figures, reports and notebooks outside ``docs/``."""
    paths = [ROOT / page for page in PAGES]
    for folder, endings in FOLDERS.items():
        paths += [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in endings]
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".ipynb":  # mkdocs-jupyter cannot wrap a generated file
            files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
        else:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links out of ``docs/`` (and from those pages into it) become links inside the site."""
    depth = page.file.src_uri.count("/")
    if (ROOT / page.file.src_uri).exists():  # a page from outside: docs/ is the site's root
        return re.sub(r"(\]\((?:\.\./)*)docs/", r"\1", markdown)
    climb = "../" * (depth + 1)
    return re.sub(rf"\]\({re.escape(climb)}(?=(?:{OUTSIDE}))", f"]({'../' * depth}", markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Links of a notebook become links inside the site: its page is a folder deeper, and MkDocs resolves none."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    html = re.sub(r'href="(?:\.\./)docs/([^"]*)"', r'href="../\1"', html)
    html = re.sub(r'href="([^"/:]*\.ipynb|\.\./[^":]*)"', r'href="../\1"', html)
    html = re.sub(r'(href="[^":]*?/)README\.md"', r'\1"', html)
    return re.sub(r'(href="[^":]*?)\.(?:md|ipynb)"', r'\1/"', html)
