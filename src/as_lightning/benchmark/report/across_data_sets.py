"""Several data sets: the mean difference of a method with its interval, and on how many data sets which word fell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from as_lightning.benchmark.report.verdicts import WORDS

MIN_DATA_SETS = 3
RESAMPLES = 10_000


class AcrossDataSets(NamedTuple):
    """The mean over the data sets of a method's difference, its 95% interval, and on how many each word fell.

    Examples:
        >>> print(AcrossDataSets(-0.42, -1.04, 0.1, {"equal": 2, "worse": 1}))
        3 data sets: -0.4 points on average (-1.0 to +0.1); worse on 1, equal on 2
    """

    difference: float
    low: float
    high: float
    words: Mapping[str, int]

    def __str__(self) -> str:
        count = ", ".join(f"{word} on {self.words[word]}" for word in WORDS if self.words.get(word))
        interval = f"{self.low:+.1f} to {self.high:+.1f}"
        return f"{sum(self.words.values())} data sets: {self.difference:+.1f} points on average ({interval}); {count}"


def across_data_sets(
    differences: Mapping[str, Sequence[float]], words: Mapping[str, str], *, random_state: int = 0
) -> AcrossDataSets:
    """The mean difference over data sets, with a stratified bootstrap over data sets and seeds.

    Each resample draws data sets with replacement, and for each of them its seeds with replacement. ``differences`` are
    per data set those of its seeds, a method's score minus the baseline's, in points; ``words`` its verdicts.

    Raises:
        ValueError: if there are fewer than 3 data sets, the names differ, or a difference is missing or not finite.

    Source: Agarwal, Schwarzer, Castro, Courville, Bellemare, "Deep Reinforcement Learning at the Edge of the
    Statistical Precipice", NeurIPS 2021 (rliable).

    Examples:
        >>> across_data_sets({"a": [1.0, 1.0], "b": [1.0], "c": [1.0]}, dict.fromkeys("abc", "better")).low
        1.0
    """
    if len(differences) < MIN_DATA_SETS or differences.keys() != words.keys():
        raise ValueError(
            f"expected a word for each of at least {MIN_DATA_SETS} data sets, got differences of "
            f"{', '.join(differences)} and words for {', '.join(words)}"
        )
    for name, seeds in differences.items():
        if not len(seeds) or not np.isfinite(seeds).all():
            raise ValueError(f"expected finite differences of at least one seed of {name}, got {list(seeds)}")
    generator, count = np.random.default_rng(random_state), len(differences)
    # of each data set as many draws of its seeds' mean as it can be drawn itself
    draws = [generator.choice(seeds, (RESAMPLES, count, len(seeds))).mean(-1) for seeds in differences.values()]
    chosen = generator.integers(count, size=(RESAMPLES, count))
    means = np.stack(draws)[chosen, np.arange(RESAMPLES)[:, None], np.arange(count)].mean(-1)
    low, high = np.percentile(means, (2.5, 97.5))
    mean = np.mean([np.mean(seeds) for seeds in differences.values()])
    return AcrossDataSets(float(mean), float(low), float(high), Counter(words.values()))
