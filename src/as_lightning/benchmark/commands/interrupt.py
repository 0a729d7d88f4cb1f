"""Ctrl-C, also where Python drops it.

An exception that is raised in a finalizer or in a callback of the garbage collector is printed and ignored. So is the
``KeyboardInterrupt`` of a Ctrl-C that arrives there, and the program runs on. A sweep would go on with its next run.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_interrupted = False


@contextmanager
def interrupts_remembered() -> Iterator[None]:
    """Within, :func:`stop_if_interrupted` knows of each Ctrl-C.

    Another handler than Python's own stays: a command in the background ignores the signal.
    """
    global _interrupted
    _interrupted = False
    own = threading.current_thread() is threading.main_thread()
    if not own or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def stop_if_interrupted() -> None:
    """Raise ``KeyboardInterrupt`` if one has been dropped."""
    if _interrupted:
        raise KeyboardInterrupt


def is_interrupt(error: BaseException) -> bool:
    """Whether the user has stopped the command. Lightning leaves the program where it meets an interrupt."""
    return isinstance(error, KeyboardInterrupt) or isinstance(error.__context__, KeyboardInterrupt)


def _remember(number: int, frame: FrameType | None) -> None:
    global _interrupted
    _interrupted = True
    signal.default_int_handler(number, frame)
