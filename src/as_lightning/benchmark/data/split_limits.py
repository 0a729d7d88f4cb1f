"""How much of each split to use, for quick runs."""

from __future__ import annotations

from collections.abc import Mapping

SPLITS = ("train", "validation", "test")

Limit = int | Mapping[str, int | None] | None


def split_limits(name: str, limit: Limit) -> dict[str, int | None]:
    """The limit of each split.

    Args:
        name: of the argument, for messages.
        limit: a number for every split, or one for some of them; None is no limit.

    Raises:
        ValueError: if a number is below 1, or there is no such split.

    Example:
        >>> split_limits("max_tokens", {"train": 800})
        {'train': 800, 'validation': None, 'test': None}
    """
    limits = limit if isinstance(limit, Mapping) else dict.fromkeys(SPLITS, limit)
    unknown = sorted(set(limits) - set(SPLITS))
    if unknown:
        raise ValueError(f"{name} has the splits train, validation and test, got {unknown[0]!r}")
    for number in limits.values():
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    return {split: limits.get(split) for split in SPLITS}
