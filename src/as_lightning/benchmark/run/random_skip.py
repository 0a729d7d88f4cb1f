"""Random skipping with the shares of a run that skips by a criterion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from as_lightning.benchmark.run.result import RESULT_FILE, Result
from as_lightning.callbacks import RandomSkipping


def random_skipping(awake_ratios: Sequence[float], like: str | None = None, seed: int = 0) -> RandomSkipping:
    """The callback that leaves out as many samples in each epoch as given, or as another run did.

    Args:
        awake_ratios: the share of the samples that each epoch takes; the last one holds for all later epochs.
        like: the folder of a finished run of a method that skips samples; it takes the place of ``awake_ratios``.
        seed: of the random choice.

    Raises:
        ValueError: if the run ``like`` has skipped nothing, or is not finished.
    """
    return RandomSkipping(awake_ratios if like is None else awake_ratios_of(like), seed=seed)


def awake_ratios_of(like: str) -> list[float]:
    """The share of the samples that each epoch of a run has taken.

    Args:
        like: the folder of the run.

    Raises:
        ValueError: if the run has skipped nothing, or is not finished.
    """
    file = Path(like) / RESULT_FILE
    if not file.exists():
        raise ValueError(f"method.like={like} holds no {RESULT_FILE}: give the folder of a finished run")
    epochs = Result.read(file).skipping
    if not epochs:
        raise ValueError(f"method.like={like} is a run that skips no samples: give one of as_skip or softmax_skip")
    return [epoch["awake"] / epoch["samples"] for epoch in epochs]
