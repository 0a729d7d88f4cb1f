r"""How many batches to accumulate, from the share of masked samples (paper: AS-Speed)."""

from __future__ import annotations

from as_lightning.functional.argument_checks import check_count, check_number


def accumulation_steps(
    samples: int,
    masked_samples: int,
    *,
    scale: float = 1.0,
    max_steps: int = 4,
    previous: int = 1,
    monotone: bool = True,
) -> int:
    r"""Accumulation steps that bring a batch back to its full number of samples with a gradient.

    $$
    k = \operatorname{clip}\left(\operatorname{round}\left(s \frac{N}{N - N_\text{masked}}\right),
    1, k_\text{max}\right)
    $$

    The result is at most ``previous + 1`` and, with ``monotone``, at least ``previous``. Halves
    round up. If all samples are masked, $k$ aims at ``max_steps``; without samples it stays.

    Args:
        samples: the number of samples $N$ since the last decision, without ignored rows.
        masked_samples: the number of them whose competitors are all masked.
        scale: the factor $s$.
        max_steps: the largest $k$.
        previous: the steps decided before.
        monotone: never go below ``previous`` (the paper's choice).

    Raises:
        ValueError, TypeError: if an argument is out of its range, or of a wrong type.

    Source: paper, section on AS-Speed (adaptive gradient accumulation).

    Examples:
        >>> cases = (16, 1), (32, 1), (0, 3)
        >>> [accumulation_steps(32, masked, previous=before) for masked, before in cases]
        [2, 2, 3]
    """
    if not 0 <= masked_samples <= samples:
        raise ValueError(
            f"expected 0 <= masked_samples <= samples, got {masked_samples=}, {samples=}"
        )
    scale = check_number("scale", scale, lambda number: number > 0, "a positive number")
    max_steps = check_count("max_steps", max_steps, least=1)
    previous = min(check_count("previous", previous, least=1), max_steps)
    if samples == 0:
        return previous
    steps = max_steps
    if masked_samples < samples:
        steps = int(min(scale * samples / (samples - masked_samples), max_steps) + 0.5)
    steps = min(max(steps, 1), previous + 1)
    if monotone:
        return max(steps, previous)
    return steps
