"""The rule of sleeping written out sample by sample: plain Python, no tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

NOT_VISITED, MASKED, LIVE = -1, 0, 1


def awake_after(
    epochs: Sequence[Sequence[int]],
    max_sleep: int,
    *,
    patience: int = 1,
    min_masked: float = 0.0,
    max_woken: float = 1.0,
    classes: Sequence[int] | None = None,
    class_floor: float = 0.0,
    full: Sequence[int] = (),
) -> list[bool]:
    """Who is awake in the epoch after ``epochs``, each the outcomes of all samples; ``full`` epochs take all."""
    samples = len(epochs[0])
    streak, slept, left, longest, sleeping = [0] * samples, [0] * samples, [0] * samples, max_sleep, False
    for epoch, outcomes in enumerate(epochs, start=1):
        revisited = [i for i in range(samples) if outcomes[i] != NOT_VISITED and slept[i] > 0]
        if revisited and sum(outcomes[i] == LIVE for i in revisited) / len(revisited) > max_woken:
            longest = max(longest // 2, 1)
        for i, outcome in enumerate(outcomes):
            left[i] = max(left[i] - 1, 0) if outcome == NOT_VISITED else 0
            streak[i] = {NOT_VISITED: streak[i], MASKED: streak[i] + 1, LIVE: 0}[outcome]
            slept[i] = 0 if outcome == LIVE else slept[i]
        masked_share = sum(visits > 0 for visits in streak) / samples
        sleeping = epoch not in full and max_sleep > 0 and masked_share >= min_masked
        for i, outcome in enumerate(outcomes):
            if sleeping and outcome == MASKED and streak[i] >= patience:
                slept[i] = left[i] = min(max(1, 2 * slept[i]), longest)
            left[i] = min(left[i], longest)
    awake = [not sleeping or epochs_left == 0 for epochs_left in left]
    for one_class in set(classes or ()) if sleeping else ():
        members = [i for i in range(samples) if classes[i] == one_class]
        missing = math.ceil(class_floor * len(members)) - sum(awake[i] for i in members)
        for i in sorted((i for i in members if not awake[i]), key=lambda i: (left[i], i))[: max(missing, 0)]:
            awake[i] = True
    return awake
