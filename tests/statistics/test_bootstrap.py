"""The error of new examples: against closed forms, loops and scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score

from as_lightning.statistics.bootstrap import bootstrap_error, class_scores

SIZES = (200, 60, 15, 3, 1)


def predictions(seed: int, share: float, runs: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Made-up classes with a tail, and predictions that are right on a share of them."""
    generator = np.random.default_rng(seed)
    target = np.repeat(np.arange(len(SIZES)), SIZES)
    guesses = generator.integers(0, len(SIZES), (runs, len(target)))
    return np.where(generator.random(guesses.shape) < share, target, guesses), target


@pytest.mark.parametrize("score", ["balanced_accuracy", "f1_macro"])
def test_scores_from_counts_equal_those_of_scikit_learn(score: str) -> None:
    predicted, target = predictions(0, 0.7, runs=1)
    right = np.bincount(target[predicted[0] == target], minlength=len(SIZES))
    counts = right, np.bincount(predicted[0], minlength=len(SIZES)), np.bincount(target)
    expected = {
        "balanced_accuracy": balanced_accuracy_score(target, predicted[0]),
        "f1_macro": f1_score(target, predicted[0], average="macro"),
    }
    assert class_scores(*counts, score) == pytest.approx(100 * expected[score], abs=1e-12)


def test_error_of_balanced_accuracy_is_the_closed_form_of_a_stratified_mean() -> None:
    (own, target), (other, _) = predictions(1, 0.8), predictions(2, 0.6)
    gain = ((own == target) * 1.0 - (other == target) * 1.0).mean(0)
    variance = sum(gain[target == c].var() / size for c, size in enumerate(SIZES)) / len(SIZES) ** 2
    error = bootstrap_error(own, other, target, "balanced_accuracy", draws=4000)
    assert error == pytest.approx(100 * np.sqrt(variance), rel=0.05)


def test_error_of_macro_f1_is_that_of_a_loop_over_drawn_examples() -> None:
    (own, target), (other, _) = predictions(3, 0.8, runs=2), predictions(4, 0.6, runs=2)
    generator = np.random.default_rng(5)
    differences = []
    for _ in range(1000):
        drawn = [
            generator.choice(np.flatnonzero(target == c), size) for c, size in enumerate(SIZES)
        ]
        rows = np.concatenate(drawn)
        scores = [
            [f1_score(target[rows], run[rows], average="macro", labels=range(5)) for run in runs]
            for runs in (own, other)
        ]
        differences.append(100 * (np.mean(scores[0]) - np.mean(scores[1])))
    assert bootstrap_error(own, other, target, "f1_macro") == pytest.approx(
        np.std(differences), rel=0.08
    )


def test_error_of_two_candidates_that_predict_the_same_is_zero() -> None:
    own, target = predictions(6, 0.8)
    assert bootstrap_error(own, own, target, "f1_macro") == pytest.approx(0, abs=1e-9)
