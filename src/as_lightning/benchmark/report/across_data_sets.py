"""Several data sets: the mean difference of a method with its interval, and on how many data sets which word fell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from as_lightning.benchmark.report.verdicts import WORDS

MIN_DATA_SETS = 3
RESAMPLES = 10_000


@dataclass(frozen=True)
class AcrossDataSets:
    """A method over several data sets.

    Attributes:
        difference: the mean over the data sets of the mean difference over the seeds, in points.
        low, high: its 95% interval.
        words: on how many data sets each word fell.
    """

    difference: float
    low: float
    high: float
    words: Mapping[str, int]

    @property
    def in_words(self) -> str:
        """One line for a report.

        Examples:
            >>> AcrossDataSets(-0.42, -1.04, 0.1, {"equal": 2, "worse": 1}).in_words
            '3 data sets: -0.4 points on average (-1.0 to +0.1); worse on 1, equal on 2'
        """
        count = ", ".join(f"{word} on {self.words[word]}" for word in WORDS if self.words.get(word))
        interval = f"{self.low:+.1f} to {self.high:+.1f}"
        return f"{sum(self.words.values())} data sets: {self.difference:+.1f} points on average ({interval}); {count}"


def across_data_sets(
    differences: Mapping[str, Sequence[float]], words: Mapping[str, str], *, random_state: int = 0
) -> AcrossDataSets:
    """The mean difference over data sets, with a stratified bootstrap over data sets and seeds.

    Each resample draws data sets with replacement, and for each of them its seeds with replacement.

    Args:
        differences: per data set the differences of its seeds, a method's score minus the baseline's, in points.
        words: per data set the word of the method's verdict.
        random_state: of the bootstrap.

    Raises:
        ValueError: if there are fewer than 3 data sets, the names differ, or a difference is missing or not finite.

    Source: Agarwal, Schwarzer, Castro, Courville, Bellemare, "Deep Reinforcement Learning at the Edge of the
    Statistical Precipice", NeurIPS 2021 (rliable).

    Examples:
        >>> across_data_sets({"a": [1.0, 1.0], "b": [1.0], "c": [1.0]}, dict.fromkeys("abc", "better")).low
        1.0
    """
    if len(differences) < MIN_DATA_SETS:
        raise ValueError(f"expected at least {MIN_DATA_SETS} data sets, got {len(differences)}")
    if differences.keys() != words.keys():
        raise ValueError(f"expected a word for each of {sorted(differences)}, got words for {sorted(words)}")
    values = {name: np.asarray(of_seeds, dtype=np.float64) for name, of_seeds in differences.items()}
    for name, of_seeds in values.items():
        if not len(of_seeds) or not np.isfinite(of_seeds).all():
            raise ValueError(f"expected finite differences of at least one seed of {name}, got {of_seeds.tolist()}")
    generator = np.random.default_rng(random_state)
    # of each data set as many draws of its seeds' mean as it can be drawn itself
    means = np.stack(
        [generator.choice(of_seeds, (RESAMPLES, len(values), len(of_seeds))).mean(-1) for of_seeds in values.values()]
    )
    chosen = generator.integers(len(values), size=(RESAMPLES, len(values)))
    draws = means[chosen, np.arange(RESAMPLES)[:, None], np.arange(len(values))].mean(-1)
    low, high = np.percentile(draws, (2.5, 97.5))
    mean = float(np.mean([of_seeds.mean() for of_seeds in values.values()]))
    return AcrossDataSets(mean, float(low), float(high), Counter(words.values()))
