"""What reading changes or leaves out: every reader notes it here, and the summary says it once."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

# Lightning's own, which it re-exports, without loading torch.
from lightning_utilities.core.rank_zero import rank_zero_only

log = logging.getLogger(__name__)

SAID_FROM = 0.01  # the share from which the summary says it
NAMED = 5  # names that a message lists; it counts the others


@dataclass(frozen=True)
class Reading:
    """What was done to ``count`` of ``total``, the setting that changes it, and one of them."""

    what: str
    count: int
    total: int
    example: str = ""
    split: str = ""


_MESSAGES: list[list[str]] = []  # a list for each open block of `collected_messages`
_READINGS: list[list[Reading]] = []  # a list for each open block of `collected_readings`


@contextmanager
def _collected(stack: list[list[Any]]) -> Iterator[list[Any]]:
    stack.append([])
    try:
        yield stack[-1]
    finally:
        stack.pop()


collected_messages = partial(_collected, _MESSAGES)
collected_readings = partial(_collected, _READINGS)


@rank_zero_only
def say(message: str) -> None:
    """Log a message about the data, or add it to those of `collected_messages`."""
    if _MESSAGES:
        _MESSAGES[-1].append(message)
    else:
        log.info(message)


def note(what: str, changed: Sequence[str], total: int, split: str = "") -> None:
    """Collect what a reader changed or left out, of a split or of all."""
    if changed and _READINGS:
        _READINGS[-1].append(Reading(what, len(changed), total, changed[0][:60], split))


def note_repeats(
    samples: Mapping[str, Sequence[Hashable]], names: Mapping[str, Sequence[str]]
) -> None:
    """Note the samples of validation and test that stand in a split before them, by content."""
    earlier = set(samples["train"])
    for split in ("validation", "test"):
        pairs = zip(samples[split], names[split], strict=True)
        repeated = [name for sample, name in pairs if sample in earlier]
        what = "the same samples stand in train or validation too"
        note(what, repeated, len(samples[split]), split)
        earlier |= set(samples[split])


def said_of(readings: Iterable[Reading]) -> list[str]:
    """Return a sentence for each change that concerns at least 1% of a split.

    >>> said_of([Reading("texts are cut at data.max_length=8", 3, 40, "a long text", "test")])
    ['texts are cut at data.max_length=8: 3 of 40 in test, e.g. a long text']
    """
    by_change = defaultdict(list)
    for reading in readings:
        by_change[reading.what].append(reading)
    said = []
    for what, group in by_change.items():
        if all(reading.count < SAID_FROM * reading.total for reading in group):
            continue
        counts = []
        for reading in group:
            where = f" in {reading.split}" if reading.split else ""
            counts.append(f"{reading.count:,} of {reading.total:,}{where}")
        example = f", e.g. {group[0].example}" if group[0].example else ""
        said.append(f"{what}: {', '.join(counts)}{example}")
    return said


def shortened(names: Sequence[str]) -> str:
    """Return the first five names, and how many more there are."""
    more = f"; and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return "; ".join(names[:NAMED]) + more
