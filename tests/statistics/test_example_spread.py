"""What predictions say of the spread of a difference: flips of right and wrong, and other test
examples.
"""

import numpy as np
import pytest

from as_lightning.statistics.example_spread import ScoredExamples, example_spread

EXAMPLES = 400
IDS = np.arange(EXAMPLES)


def classes(wrong: np.ndarray, ids: np.ndarray = IDS) -> ScoredExamples:
    """Predictions of classes that are wrong in some places."""
    right = wrong == 0
    return ScoredExamples(ids, np.stack([right, np.ones_like(right)], -1).astype(float), right)


def labels(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> ScoredExamples:
    """How many labels of each example are right, predicted and true: a micro F1."""
    return ScoredExamples(IDS, np.stack([2 * right, predicted + true], -1).astype(float))


def at(*places: int) -> np.ndarray:
    wrong = np.zeros(EXAMPLES, dtype=int)
    wrong[list(places)] = 1
    return wrong


def test_what_one_run_alone_has_right_is_the_floor_and_counts_of_labels_have_none():
    pairs = [(classes(at(0, 1, 2)), classes(at(0, 1, 2)))] * 3
    assert example_spread(pairs).floor == 0.0
    pairs = [(classes(at(0, 1, 2)), classes(at(0, 3)))] * 3  # 1, 2 and 3 flip
    assert example_spread(pairs).floor == pytest.approx(100 * np.sqrt(3) / EXAMPLES)
    counts = np.random.default_rng(0).integers(0, 2, (EXAMPLES, 3)).T
    pairs = [(labels(*counts), labels(*counts[:, ::-1]))]
    assert example_spread(pairs).floor == 0.0
    assert example_spread(pairs).error > 0.0


def test_other_examples_in_each_seed_say_nothing_of_new_ones():
    pairs = [(classes(at(seed), IDS + seed), classes(at(5), IDS + seed)) for seed in range(3)]
    assert example_spread(pairs).error == 0.0


@pytest.mark.parametrize("of_labels", [False, True])
def test_the_error_is_that_of_a_bootstrap_of_the_examples(of_labels):
    generator = np.random.default_rng(0)

    def predictions(rate: float) -> ScoredExamples:
        if not of_labels:
            return classes((generator.random(EXAMPLES) < rate).astype(int))
        guessed = TRUE ^ (generator.random(TRUE.shape) < rate)
        return labels((guessed & TRUE).sum(-1), guessed.sum(-1), TRUE.sum(-1))

    TRUE = generator.random((EXAMPLES, 6)) < 0.3
    pairs = [(predictions(0.15), predictions(0.25)) for _ in range(5)]
    parts = np.array(
        [[each.parts for each in pair] for pair in pairs]
    )  # (seed, method, example, 2)
    weights = generator.multinomial(EXAMPLES, np.full(EXAMPLES, 1 / EXAMPLES), 4000)
    above, below = np.moveaxis(np.einsum("be,smek->bsmk", weights, parts), -1, 0)
    drawn = 100 * np.diff(above / below, axis=-1)[..., 0].mean(-1)
    assert example_spread(pairs).error == pytest.approx(drawn.std(), rel=0.05)
