"""What data modules say while they read the data: the classes, the samples of each split, and what is left out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from lightning.pytorch.utilities import rank_zero_only

log = logging.getLogger(__name__)
_collected: list[list[str]] = []


@rank_zero_only
def say(message: str) -> None:
    """Log a message, and hand it to who collects messages. (Lightning's own log is silent in the commands.)"""
    log.info(message)
    for messages in _collected:
        messages.append(message)


@contextmanager
def collected_messages() -> Iterator[list[str]]:
    """The messages of data that are read in this block; for a command whose log is off.

    >>> with collected_messages() as messages:
    ...     say("3 classes")
    >>> messages
    ['3 classes']
    """
    messages: list[str] = []
    _collected.append(messages)
    try:
        yield messages
    finally:
        _collected.remove(messages)
