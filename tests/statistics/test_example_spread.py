"""What predictions say of the spread of a difference: flips of right and wrong, and other test
examples.
"""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score

from as_lightning.bench.run.example_scores import class_score, ratio_score
from as_lightning.statistics.example_spread import ScoredExamples, example_spread

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
    true = generator.random((EXAMPLES, 6)) < 0.3

    def parts(rate: float) -> np.ndarray:
        if not of_labels:
            return np.stack([generator.random(EXAMPLES) > rate, np.ones(EXAMPLES)], -1)
        guessed = true ^ (generator.random(true.shape) < rate)
        counts = [2 * (guessed & true).sum(-1), guessed.sum(-1) + true.sum(-1)]
        return np.stack(counts, -1).astype(float)

    of_pair = [parts(rate).astype(float) for rate in (0.15, 0.25)]
    pair = tuple(ScoredExamples(IDS, *ratio_score(each)) for each in of_pair)
    weights = generator.multinomial(EXAMPLES, np.full(EXAMPLES, 1 / EXAMPLES), 4000)
    above, below = np.moveaxis(np.einsum("be,mek->bmk", weights, np.array(of_pair)), -1, 0)
    drawn = 100 * np.diff(above / below, axis=-1)
    assert example_spread([pair]).error == pytest.approx(drawn.std(), rel=0.05)


def test_the_luck_of_the_seeds_is_no_error_of_the_examples():
    generator = np.random.default_rng(0)
    right_with = generator.random((2, EXAMPLES))  # the probability of each candidate and example
    runs = generator.random((6, 2, EXAMPLES)) < right_with
    pairs = [(classes(~own), classes(~other)) for own, other in runs]
    apart = np.diff(right_with, axis=0).std(ddof=1)
    assert example_spread(pairs).error == pytest.approx(100 * apart / EXAMPLES**0.5, rel=0.1)
    no_difference = [(classes(~own), classes(~other)) for own, other in runs[:, [0, 0]]]
    assert example_spread(no_difference).error == 0.0


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
    runs = [guessed(3, 0.8, 1), guessed(4, 0.6, 1)]
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
    # to first order, and with n - 1 in the place of n: the class of three has half more
    assert np.std(differences) == pytest.approx(example_spread(pairs).error, rel=0.2)
    same = [(own, own) for own, _ in pairs]
    assert example_spread(same) == (0.0, 0.0)
