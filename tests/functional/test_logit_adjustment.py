"""Logit adjustment after training, against loops in plain Python."""

import math
from collections import defaultdict

import pytest
import torch

from as_lightning.functional import adjust_logits, fit_tau, logit_adjusted_loss

COUNTS = torch.tensor([400, 60, 9, 1, 0])
TAUS = [step / 20 for step in range(61)]


def prior():
    counts = [max(count, 1) for count in COUNTS.tolist()]
    return [count / sum(counts) for count in counts]


def balanced_accuracy(logits, target, tau):
    """The mean recall of the classes that occur, row by row."""
    hits: dict[int, list[bool]] = defaultdict(list)
    for row, label in zip(logits.tolist(), target, strict=True):
        scores = [score - tau * math.log(p) for score, p in zip(row, prior(), strict=True)]
        hits[label].append(scores.index(max(scores)) == label)
    return math.fsum(sum(of) / len(of) for of in hits.values()) / len(hits)


@pytest.mark.parametrize("shape", [(5,), (6, 5), (6, 5, 2, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.filterwarnings("ignore:class_counts is 0")
def test_the_log_of_the_prior_is_subtracted_tau_times(shape, dtype):
    logits = torch.randn(shape).to(dtype)
    adjusted = adjust_logits(logits, COUNTS, tau=0.7)
    expected = logits.double().movedim(min(len(shape) - 1, 1), -1).clone()
    for label, p in enumerate(prior()):
        expected[..., label] -= 0.7 * math.log(p)
    assert adjusted.dtype == dtype
    torch.testing.assert_close(
        adjusted, expected.movedim(-1, min(len(shape) - 1, 1)).to(dtype), rtol=1e-6, atol=1e-6
    )
    assert torch.equal(adjust_logits(logits, COUNTS, tau=0), logits)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.filterwarnings("ignore:class_counts is 0")
def test_the_fitted_tau_is_the_smallest_of_those_with_the_largest_balanced_accuracy(seed):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(4, (40,), generator=generator)  # the last class does not occur
    logits = 2 * torch.randn(40, 5, generator=generator) + torch.tensor(prior()).log()
    logits[torch.arange(40), target] += 2
    accuracies = [balanced_accuracy(logits.double(), target.tolist(), tau) for tau in TAUS]
    best = max(accuracies)
    expected = next(t for t, a in zip(TAUS, accuracies, strict=True) if a >= best - 1e-9)
    assert fit_tau(logits, target, COUNTS) == expected
    padded = torch.cat([logits, torch.full((3, 5), torch.nan)])
    assert fit_tau(padded, torch.cat([target, torch.full((3,), -7)]), COUNTS, ignore_index=-7) == (
        expected
    )


@pytest.mark.filterwarnings("ignore:class_counts is 0")
def test_tau_is_0_without_rows_or_without_a_gain_and_adjusted_logits_undo_the_loss():
    logits = torch.eye(5)
    assert fit_tau(logits, torch.arange(5), COUNTS) == 0.0  # all are right already
    assert fit_tau(logits, torch.full((5,), -100), COUNTS) == 0.0
    trained_with = logit_adjusted_loss(
        adjust_logits(logits, COUNTS), torch.arange(5), class_counts=COUNTS
    )
    torch.testing.assert_close(
        trained_with, torch.nn.functional.cross_entropy(logits, torch.arange(5))
    )


def test_a_target_out_of_range_is_refused():
    with pytest.raises(IndexError, match="target"):
        fit_tau(torch.zeros(1, 5), torch.tensor([5]), COUNTS)
