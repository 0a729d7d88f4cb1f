"""What predictions say of the spread of a difference: flips of right and wrong, and other test
examples.
"""

import numpy as np
import pytest

from as_lightning.bench.run.predictions import Predictions
from as_lightning.statistics.example_spread import example_spread

EXAMPLES = 400
IDS = np.arange(EXAMPLES)


def classes(wrong: np.ndarray, ids: np.ndarray = IDS) -> Predictions:
    """Predictions that are right but where they are said to be ``wrong``, by which class."""
    target = np.zeros(len(ids), dtype=int)
    return Predictions(ids, target + wrong, target)


def at(*places: int, answer: int = 1) -> np.ndarray:
    wrong = np.zeros(EXAMPLES, dtype=int)
    wrong[list(places)] = answer
    return wrong


def test_a_flip_between_two_wrong_classes_is_none_and_counts_of_labels_have_no_floor():
    pairs = [(classes(at(0, 1, 2)), classes(at(0, 1, 2, answer=2)))] * 3
    assert example_spread(pairs).floor == 0.0
    pairs = [(classes(at(0, 1, 2)), classes(at(0, 3)))] * 3  # 1, 2 and 3 flip
    assert example_spread(pairs).floor == pytest.approx(100 * np.sqrt(3) / EXAMPLES)
    counts = np.random.default_rng(0).integers(0, 2, (EXAMPLES, 3))
    labels = [(Predictions(IDS, counts, IDS[:0]), Predictions(IDS, counts[::-1], IDS[:0]))]
    assert example_spread(labels).floor == 0.0
    assert example_spread(labels).error > 0.0


def test_other_examples_in_each_seed_say_nothing_of_new_ones():
    pairs = [(classes(at(seed), IDS + seed), classes(at(5), IDS + seed)) for seed in range(3)]
    assert example_spread(pairs).error == 0.0


@pytest.mark.parametrize("of_labels", [False, True])
def test_the_error_is_that_of_a_bootstrap_of_the_examples(of_labels):
    generator = np.random.default_rng(0)

    def predictions(rate: float) -> Predictions:
        if not of_labels:
            return classes((generator.random(EXAMPLES) < rate).astype(int))
        true = TRUE.sum(-1)
        guessed = TRUE ^ (generator.random(TRUE.shape) < rate)
        return Predictions(
            IDS, np.stack([(guessed & TRUE).sum(-1), guessed.sum(-1), true], -1), IDS[:0]
        )

    TRUE = generator.random((EXAMPLES, 6)) < 0.3
    pairs = [(predictions(0.15), predictions(0.25)) for _ in range(5)]
    parts = np.array(
        [[each.score_parts for each in pair] for pair in pairs]
    )  # seeds, methods, examples, 2
    weights = generator.multinomial(EXAMPLES, np.full(EXAMPLES, 1 / EXAMPLES), 4000)
    above, below = np.moveaxis(np.einsum("be,smek->bsmk", weights, parts), -1, 0)
    drawn = 100 * np.diff(above / below, axis=-1)[..., 0].mean(-1)
    assert example_spread(pairs).error == pytest.approx(drawn.std(), rel=0.05)
