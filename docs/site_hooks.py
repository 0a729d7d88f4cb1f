"""Hooks of MkDocs: pages from outside ``docs/``, links to them, and formulas as MathML.

Results, notebooks, the changelog and the pages for contributors stay where a reader of the
repository looks for them. The site shows them under the same names, so a link such as
``../results/README.md`` of a page in ``docs/`` loses the ``../`` that leaves the folder. What a
reader would see raw ends the build.
"""

import html
import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
FOLDERS = {"results": (".csv", ".md", ".png", ".svg", ".html"), "notebooks": (".ipynb",)}
PIECES = ("introduction.md", "cause.md")  # of results/learning_rate/README.md
OUTSIDE = "|".join([*map(re.escape, PAGES), *(f"{folder}/" for folder in FOLDERS)])
MARKED = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
DOLLARS = re.compile(r"(?P<dollars>\$\$?)(?P<formula>[^\s$<](?:[^$<]*[^\s$<])?)(?P=dollars)")
AS_IT_IS = re.compile(
    r"<(?P<tag>pre|code|script|style|svg|math)\b.*?</(?P=tag)>|<[^>]*>", re.DOTALL
)
IN_NOTEBOOK = re.compile(rf"{AS_IT_IS.pattern}|{DOLLARS.pattern}", re.DOTALL)
TABLE = re.compile(r"<table\b.*?</table>", re.DOTALL)
LONG_CODE = re.compile(r"<code>[^<]{17,}</code>")
JOINT = re.compile(r"(?<=\w)[_./:=]+(?=\w)")  # a place where a long name may be broken
LEAKS = {
    "a role or directive of reStructuredText": re.compile(
        r":(?:class|func|meth|attr|mod|exc|data|math):|\.\. \w+::"
    ),
    "a doctest as quotes in quotes, outside a section Examples": re.compile(
        r"(?:<blockquote>\s*){3}|(?:&gt;){3} "
    ),
    "a formula that is not rendered": re.compile(rf"{DOLLARS.pattern}|\\[(\[]"),
}
# The search weighs what is found on a page by this. Guides come first; lists of tests and of names,
# which hold every word, come last.
BOOST = {
    "accumulation.md": 4,
    "api": 0.01,
    "bug_museum.md": 0.1,
    "calibration.md": 3,
    "choosing_the_margin.md": 4,
    "claims.md": 0.1,
    "compare.md": 8,
    "compatibility.md": 0.5,
    "data.md": 5,
    "faq.md": 5,
    "from_0_4.md": 0.5,
    "hugging_face.md": 4,
    "methods": 2,
    "methods/class_weighted.md": 8,
    "notebooks": 0.2,
    "performance.md": 0.5,
    "running.md": 4,
    "trust.md": 0.1,
    "which_loss.md": 5,
    "wide_output_layers.md": 2,
}
# what users type, and the page that comes first
QUERIES = {
    "multi-label": "faq",
    "how to pick delta": "faq",
    "class weights": "methods/class_weighted",
    "label smoothing": "methods/label_smoothing",
    "my own loss": "which_loss",
    "resume": "faq",
    "W&B": "faq",
    "wandb": "faq",
    "imbalanced": "faq",
    "early stopping": "faq",
    "plot": "faq",
    "huggingface": "hugging_face",
    "my own data": "data",
    "token budget": "accumulation",
    "verdict": "compare",
    "noisy labels": "which_loss",
    "wrong labels": "which_loss",
    "large vocabulary": "wide_output_layers",
    "multi gpu": "running",
    "sweep": "running",
    "DDP": "running",
    "transformers": "hugging_face",
    "token classification": "data",
    "NER": "data",
    "own data": "data",
    "csv": "data",
    "temperature scaling": "calibration",
    "learning rate": "faq",
    "gradient clipping": "accumulation",
    "p-value": "compare",
    "significance": "compare",
    "delta": "choosing_the_margin",
    "seed": "faq",
    "progress bar": "running",
    "Windows": "faq",
    "Docker": "faq",
    "Jupyter": "faq",
    "Colab": "faq",
    "LLM": "wide_output_layers",
}


class ValuesOfConstants(griffe.Extension):
    """Signatures show the value of a constant of the package (0.1), not its name."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Replace the defaults that are names, in every function below ``pkg``."""
        waiting: list[griffe.Object] = [pkg]
        while waiting:
            parent = waiting.pop()
            waiting += [
                child for child in parent.members.values() if isinstance(child, griffe.Object)
            ]
            for parameter in getattr(parent, "parameters", ()):
                if (
                    isinstance(parameter.default, griffe.ExprName)
                    and parameter.default.name.isupper()
                ):
                    parameter.default = loader.modules_collection[
                        parameter.default.canonical_path
                    ].value


@event_priority(100)  # before mkdocs-jupyter, which makes pages of the notebooks that it finds
def on_files(files: Files, config: Any) -> Files:
    """Add the pages, figures, reports and notebooks outside ``docs/``; the bug museum must be as
    its marks say.
    """
    museum = runpy.run_path(str(ROOT / "docs" / "bug_museum.py"))
    if museum["PAGE"].read_text(encoding="utf-8") != museum["page"]():
        raise PluginError(
            "docs/bug_museum.md is not as the tests' marks say: run python docs/bug_museum.py"
        )
    paths = [ROOT / page for page in PAGES]
    for folder, endings in FOLDERS.items():
        paths += [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in endings]
    paths = [path for path in paths if path.name not in PIECES]
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".ipynb":  # mkdocs-jupyter cannot wrap a generated file
            files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
        else:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links out of ``docs/`` (and from those pages into it) become links inside the site."""
    if page.file.src_uri.startswith("results/") or page.file.src_uri == "CHANGELOG.md":
        page.meta["search"] = {"exclude": True}  # tables of numbers, and of what was
    else:
        folder = page.file.src_uri.partition("/")[0]
        page.meta["search"] = {"boost": BOOST.get(page.file.src_uri, BOOST.get(folder, 1))}
    depth = page.file.src_uri.count("/")
    if (ROOT / page.file.src_uri).exists():  # a page from outside: docs/ is the site's root
        return re.sub(r"(\]\((?:\.\./)*)docs/", r"\1", markdown)
    climb = "../" * (depth + 1)
    return re.sub(rf"\]\({re.escape(climb)}(?=(?:{OUTSIDE}))", f"]({'../' * depth}", markdown)


def on_page_content(content: str, page: Any, config: Any, files: Files) -> str:
    """Render the formulas, let long names in tables break, and make links of a notebook, a folder
    deeper, right.

    Formulas are those that ``pymdownx.arithmatex`` has marked, and those between dollar signs in
    notebooks.

    Raises:
        PluginError: if the page shows markup that no part of the site's generator has read.
    """
    content = MARKED.sub(lambda match: _mathml(match[2], match[1] == "div"), content)
    content = TABLE.sub(
        lambda table: LONG_CODE.sub(lambda code: JOINT.sub(r"\g<0><wbr>", code[0]), table[0]),
        content,
    )
    if page.file.src_uri.endswith(".ipynb"):
        content = IN_NOTEBOOK.sub(
            lambda m: _mathml(m["formula"], m["dollars"] == "$$") if m["formula"] else m[0], content
        )
        content = re.sub(r'href="(?:\.\./)docs/([^"]*)"', r'href="../\1"', content)
        content = re.sub(r'href="([^"/:]*\.ipynb|\.\./[^":]*)"', r'href="../\1"', content)
        content = re.sub(r'(href="[^":]*?/)README\.md"', r'\1"', content)
        content = re.sub(r'(href="[^":]*?)\.(?:md|ipynb)"', r'\1/"', content)
    for line in leaks(content):
        raise PluginError(f"{page.file.src_uri} shows {line}")
    return content


@event_priority(-100)  # when the search plugin has written its index
def on_post_build(config: Any) -> None:
    """Let the search find W&B, which the index has as HTML; where node is installed, ask the search
    what users ask.

    Raises:
        PluginError: if a page is not the first one.
    """
    index = Path(config.site_dir) / "search" / "search_index.json"
    text = re.sub(r"(?<=\b\w)&amp;(?=\w\b)", "&", index.read_text(encoding="utf-8"))
    index.write_text(text, encoding="utf-8")
    if (node := shutil.which("node")) is None:
        return
    command = [node, str(ROOT / "docs" / "search_queries.js"), config.site_dir, *QUERIES]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for query, page in QUERIES.items():
        first = next(iter(found[query]), None)
        if first != f"{page}/":
            raise PluginError(f"the search for {query!r} finds {first}, and not {page}")


def leaks(content: str) -> list[str]:
    """What a reader of a page would see of its source, one line for each place."""
    found = []
    text = AS_IT_IS.sub(lambda match: match[0] if match[0] == "<blockquote>" else "\n", content)
    for what, pattern in LEAKS.items():
        found += [f"{what}: {text[match.start() :][:60]!r}" for match in pattern.finditer(text)]
    return found


def _mathml(latex: str, block: bool) -> str:
    if "$" in latex:  # two blocks without a blank line between them
        raise PluginError(f"a formula holds a dollar sign: {latex}")
    tag = "div" if block else "span"
    formula = convert(html.unescape(latex), display="block" if block else "inline")
    return f'<{tag} class="formula">{formula}</{tag}>'
