"""What the tests of several callbacks share."""

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor


@pytest.fixture
def host_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a tensor's value was read by Python, by the module that asked."""
    reads: Counter[str] = Counter()

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def read(self: Tensor, *args: Any) -> Any:
            reads[inspect.currentframe().f_back.f_globals.get("__name__", "")] += 1  # type: ignore[union-attr]
            return method(self, *args)

        return read

    for name in ("item", "tolist", "numpy", "cpu", "__int__", "__float__", "__bool__", "__index__"):
        monkeypatch.setattr(Tensor, name, counted(getattr(Tensor, name)))
    return reads
