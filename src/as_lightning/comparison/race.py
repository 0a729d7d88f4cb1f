"""Which candidates need the seeds of the next look, and which of them race on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from as_lightning.statistics.verdicts import NOT_WORSE, UNDECIDED, WORDS, WORSE, Arm, Verdict

RACERS, LEAD_SEEDS = 3, 10  # how many go on until which seeds; then the best one does


def still_open(found: Sequence[Verdict], *, cheaper: Collection[Arm] = ()) -> list[Arm]:
    """Return the arms that `needs_more_seeds` names; one that cannot be tested needs none."""
    arms = []
    for verdict in found:
        reach = verdict.in_reach, verdict.sure_in_reach
        word = WORDS.index(verdict.word)
        more = needs_more_seeds(word, verdict.sure, *reach, verdict.arm in cheaper)
        if more and not verdict.reason:
            arms.append(verdict.arm)
    return arms


def racing(found: Sequence[Verdict], open_arms: Collection[Arm], seeds: int) -> list[Arm]:
    """Return those of the open arms that race on: the best `RACERS` until `LEAD_SEEDS`, then one.

    An arm that is better keeps its place, and needs no more seeds.

    >>> found = [Verdict(str(arm), "base", 5, 1, difference=arm) for arm in range(5)]
    >>> racing(found, "01234", seeds=5), racing(found, "234", seeds=10)
    (['4', '3', '2'], ['4'])
    """
    places = RACERS if seeds < LEAD_SEEDS else 1
    running = [verdict for verdict in found if verdict.word == "better" or verdict.arm in open_arms]
    running.sort(key=lambda verdict: -verdict.difference)
    return [verdict.arm for verdict in running[:places] if verdict.arm in open_arms]


def needs_more_seeds(word: Any, sure: Any, in_reach: Any, sure_in_reach: Any, cheaper: Any) -> Any:
    """Return whether arms need more seeds, as booleans of the arguments' shape.

    An arm goes on until it is shown to gain or not to, a ``cheaper`` one until it is worse or
    surely not worse, as long as more seeds may show that.
    """
    unsettled = np.isin(word, (UNDECIDED, NOT_WORSE)) & in_reach
    unsure = np.not_equal(word, WORSE) & np.logical_not(sure) & sure_in_reach
    return np.where(cheaper, unsure, unsettled)
