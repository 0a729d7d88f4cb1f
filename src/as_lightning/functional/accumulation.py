r"""How many batches to accumulate, from the share of masked samples (paper: AS-Speed)."""

from __future__ import annotations

import math


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

    .. math:: k = \operatorname{clip}\!\left(\operatorname{round}\!\left(s\,\frac{N}{N - N_\text{masked}}\right),
              1, k_\text{max}\right)

    and then at most one above ``previous``, and with ``monotone`` never below it. Halves round up.

    Args:
        samples: samples :math:`N` seen since the last decision, ignored rows not counted.
        masked_samples: how many of them had every competitor masked.
        scale: the factor :math:`s`.
        max_steps: the largest :math:`k`.
        previous: the steps decided before.
        monotone: never go below ``previous`` (the paper's choice).

    Returns:
        The steps, from 1 to ``max_steps``. All samples masked asks for ``max_steps`` (no division by zero); no
        samples at all keep ``previous``.

    Raises:
        ValueError: if a count is negative, ``masked_samples > samples``, ``scale <= 0``, ``max_steps < 1`` or
            ``previous < 1``.

    Source: paper, section on AS-Speed (adaptive gradient accumulation).

    Example:
        >>> accumulation_steps(32, 16, previous=1)
        2
        >>> accumulation_steps(32, 32, previous=1)  # at most one above the steps before
        2
        >>> accumulation_steps(32, 0, previous=3)  # never below them
        3
    """
    if samples < 0 or masked_samples < 0 or masked_samples > samples:
        raise ValueError(f"expected 0 <= masked_samples <= samples, got masked_samples={masked_samples}, {samples=}")
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    if previous < 1:
        raise ValueError(f"previous must be at least 1, got {previous}")
    previous = min(previous, max_steps)
    if samples == 0:
        return previous
    unmasked = samples - masked_samples
    wanted = max_steps if unmasked == 0 else int(min(scale * samples / unmasked, max_steps) + 0.5)
    wanted = min(max(wanted, 1), max_steps, previous + 1)
    return max(wanted, previous) if monotone else wanted


def aligned_window(batch: int, wanted: int, remaining: float = math.inf) -> int:
    r"""The longest accumulation window of at most ``wanted`` batches that may start at ``batch`` of an epoch.

    Lightning zeroes gradients before batch :math:`b` iff :math:`b \bmod A = 0` and steps after it iff
    :math:`(b + 1) \bmod A = 0`. A window of :math:`A` batches is thus exactly the batches from ``batch`` to its end
    only where :math:`A` divides ``batch``:

    .. math:: A = \max \{ d \le k : d \mid b \}, \qquad A = \gcd(b, r) \text{ if } r < A

    with :math:`r` batches remaining in the epoch, so that no window is cut short by the epoch's end and divided by
    the wrong count. At :math:`b = 0` every :math:`d` divides, and :math:`\gcd(0, r) = r`.

    Args:
        batch: 0-based index in the epoch of the window's first batch.
        wanted: the batches to accumulate if there were no alignment.
        remaining: batches left in the epoch, ``batch`` included; infinite where the end cannot be foreseen.

    Returns:
        The window's length, from 1 to ``wanted``.

    Raises:
        ValueError: if ``batch < 0``, ``wanted < 1`` or ``remaining < 1``.

    Example:
        >>> [aligned_window(batch, wanted=4) for batch in (0, 1, 6, 8, 9)]
        [4, 1, 3, 4, 3]
        >>> aligned_window(8, wanted=4, remaining=2)
        2
        >>> aligned_window(9, wanted=4, remaining=2)  # two windows of one batch
        1
    """
    if batch < 0:
        raise ValueError(f"batch must be at least 0, got {batch}")
    if wanted < 1:
        raise ValueError(f"wanted must be at least 1, got {wanted}")
    if remaining < 1:
        raise ValueError(f"remaining must be at least 1 (the window's first batch), got {remaining}")
    length = wanted if batch % wanted == 0 else next(d for d in range(min(wanted, batch), 0, -1) if batch % d == 0)
    return math.gcd(batch, int(remaining)) if remaining < length else length
