"""Both sides of the numbers of logits that are few."""

import pytest

from as_lightning.functional import cross_entropy
from as_lightning.functional.kernels import head_loss


@pytest.fixture
def as_many(monkeypatch):
    def set_limits(function):
        if function.many:
            monkeypatch.setattr(cross_entropy, "FEW_LOGITS", 0)
            monkeypatch.setattr(head_loss, "FEW_LOGITS", 0)

    return set_limits
