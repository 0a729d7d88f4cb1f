"""Both sides of the numbers of logits that are few."""

from collections.abc import Callable

import pytest
from harness.function_table import Function

from as_lightning.functional import cross_entropy
from as_lightning.functional.kernels import head_loss


@pytest.fixture
def as_many(monkeypatch: pytest.MonkeyPatch) -> Callable[[Function], None]:
    def set_limits(function: Function) -> None:
        if function.many:
            monkeypatch.setattr(cross_entropy, "FEW_LOGITS", 0)
            monkeypatch.setattr(head_loss, "FEW_LOGITS", 0)

    return set_limits
