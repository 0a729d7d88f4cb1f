"""The Python examples of README and docs are run as tests, block after block of a page in one namespace."""

from __future__ import annotations

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["README.md", "docs/*.md", "docs/methods/*.md"]
).pytest()
