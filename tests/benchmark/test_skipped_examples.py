"""Examples in docs that are too long to run call what exists, with arguments that it takes."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from typing import Any

from harness.documented_commands import PAGES

SKIPPED = re.compile(r"<!-- skip: next[^\n]*-->\s*```python\n(.*?)```", re.DOTALL)


def skipped_calls() -> list[tuple[Any, ast.Call]]:
    """The calls of the package's own names in the examples that sybil skips."""
    calls = []
    for page in PAGES:
        for example in SKIPPED.findall(page.read_text(encoding="utf-8")):
            tree = ast.parse(example)
            names = {
                alias.name: getattr(importlib.import_module(node.module), alias.name)
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("as_lightning")
                for alias in node.names
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                    calls.append((names[node.func.id], node))
    return calls


def test_a_skipped_example_passes_arguments_that_exist() -> None:
    calls = skipped_calls()
    assert "compare" in [function.__name__ for function, _ in calls]
    for function, call in calls:
        inspect.signature(function).bind(*call.args, **{keyword.arg: keyword.value for keyword in call.keywords})
