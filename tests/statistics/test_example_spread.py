"""What predictions say of the spread of a difference: flips of right and wrong, and other test
examples.
"""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score

from as_lightning.statistics.example_spread import (
    ScoredExamples,
    class_score,
    example_spread,
    ratio_score,
)

EXAMPLES = 400
IDS = np.arange(EXAMPLES)


def classes(wrong: np.ndarray, ids: np.ndarray = IDS) -> ScoredExamples:
    """Predictions of classes that are wrong in some places."""
    right = wrong == 0
    parts = np.stack([right, np.ones_like(right)], -1).astype(float)
    return ScoredExamples(ids, *ratio_score(parts), right)


def labels(right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> ScoredExamples:
    """How many labels of each example are right, predicted and true: a micro F1."""
    parts = np.stack([2 * right, predicted + true], -1).astype(float)
    return ScoredExamples(IDS, *ratio_score(parts))


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
    # the influences are linear in the weights to first order
    moved = np.mean([own.influence - other.influence for own, other in pairs], 0)
    weights = generator.multinomial(EXAMPLES, np.full(EXAMPLES, 1 / EXAMPLES), 4000)
    drawn = 100 * (weights @ moved) / EXAMPLES
    assert example_spread(pairs).error == pytest.approx(drawn.std(), rel=0.05)


SIZES = (200, 60, 15, 3, 1)
TARGET = np.repeat(np.arange(len(SIZES)), SIZES)


def guessed(seed: int, share: float, runs: int) -> np.ndarray:
    """Predictions of classes with a tail that are right on a share of the examples."""
    generator = np.random.default_rng(seed)
    guesses = generator.integers(0, len(SIZES), (runs, len(TARGET)))
    return np.where(generator.random(guesses.shape) < share, TARGET, guesses)


SCORES = {
    "balanced_accuracy": balanced_accuracy_score,
    "f1_macro": lambda true, predicted: f1_score(true, predicted, average="macro"),
}


@pytest.mark.parametrize("score", SCORES)
def test_scores_by_class_equal_those_of_scikit_learn(score):
    (predicted,) = guessed(0, 0.7, 1)
    assert class_score(predicted, TARGET, score)[0] == pytest.approx(
        SCORES[score](TARGET, predicted)
    )


@pytest.mark.parametrize("score", SCORES)
def test_the_error_of_a_score_by_class_is_that_of_a_bootstrap_within_classes(score):
    runs = [guessed(3, 0.8, 3), guessed(4, 0.6, 3)]
    pairs = [
        tuple(
            ScoredExamples(IDS[: len(TARGET)], *class_score(run, TARGET, score), strata=TARGET)
            for run in pair
        )
        for pair in zip(*runs, strict=True)
    ]
    generator = np.random.default_rng(5)
    places = [np.flatnonzero(label == TARGET) for label in range(len(SIZES))]
    differences = []
    for _ in range(300):
        rows = np.concatenate([generator.choice(of, len(of)) for of in places])
        means = [np.mean([SCORES[score](TARGET[rows], run[rows]) for run in of]) for of in runs]
        differences.append(100 * (means[0] - means[1]))
    # the bootstrap divides by n, the closed form by n - 1: the class of three has half more
    assert np.std(differences) <= example_spread(pairs).error * 1.05
    assert np.std(differences) == pytest.approx(example_spread(pairs).error, rel=0.2)
    same = [(own, own) for own, _ in pairs]
    assert example_spread(same) == (0.0, 0.0)
