"""Packages whose names are imported when they are first asked for, so that one modality needs no other's packages."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any


def attribute_of(package: str, modules: Mapping[str, Sequence[str]], name: str) -> Any:
    """The object ``name`` of a package, from the module that has it; for the package's ``__getattr__`` (PEP 562).

    Args:
        package: the package's name.
        modules: the names that each of its modules has.
        name: the name that is asked for.

    Raises:
        AttributeError: if no module has it.
    """
    for module, names in modules.items():
        if name in names:
            return getattr(importlib.import_module(f"{package}.{module}"), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
