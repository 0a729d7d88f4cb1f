"""The words by which modules name the metrics of a split."""

from __future__ import annotations

import re

VALIDATION = "validation|valid|val"
_VALIDATION_WORD = re.compile(rf"(?<![A-Za-z0-9])({VALIDATION})(?![a-z])")


def name_in_test(metric: str) -> str:
    """The test metric's name: that of a validation metric with ``test`` for the first word ``val`` (or alike).

    >>> [name_in_test(name) for name in ("val/acc", "valid_acc", "acc/validation", "val/eval_f1", "interval")]
    ['test/acc', 'test_acc', 'acc/test', 'test/eval_f1', 'interval']
    """
    return _VALIDATION_WORD.sub("test", metric, count=1)
