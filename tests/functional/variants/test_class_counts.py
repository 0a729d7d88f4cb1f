"""What the losses for a long tail make of class counts; `test_losses.py` compares them with their
formulas.
"""

import functools
import warnings

import pytest
import torch
import torch.nn.functional as F
from harness.variant_methods import random_logits
from oracles import variants

from as_lightning import class_weights
from as_lightning.functional import (
    class_counts_of,
    encouraging_loss,
    focal_loss,
    generalised_cross_entropy_loss,
    logit_adjusted_loss,
)
from as_lightning.losses_for_conditions import ClassWeightedLoss

COUNTS = torch.tensor([50, 20, 4, 1])
TARGET = torch.tensor([0, 1, -100, 3, 2])


def test_class_weights_are_those_of_the_oracle_and_their_loss_divides_by_them():
    logits, target = random_logits(6, 5), torch.tensor([0, 1, -100, 4, 1, 2])
    counts = torch.from_numpy(variants.class_counts(5))
    for power, beta in ((1.0, 1.0), (0.7, 0.99)):
        weight = torch.from_numpy(variants.class_weights(5, power, beta)).float()
        torch.testing.assert_close(class_weights(counts, beta, power), weight)
        loss = ClassWeightedLoss(counts, beta, power)
        expected = F.cross_entropy(logits, target, weight.double())
        torch.testing.assert_close(loss.double()(logits, target), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        functools.partial(logit_adjusted_loss, class_counts=COUNTS, tau=0),
        ClassWeightedLoss(COUNTS, power=0).double(),
        functools.partial(focal_loss, gamma=0),
        functools.partial(generalised_cross_entropy_loss, q=0),
        functools.partial(generalised_cross_entropy_loss, q=1e-9),
    ],
)
def test_at_its_neutral_value_a_loss_is_cross_entropy(loss):
    logits = random_logits(5, 4)
    torch.testing.assert_close(loss(logits, TARGET), F.cross_entropy(logits, TARGET))


def test_generalised_cross_entropy_is_bounded_and_encouraging_ends_at_its_tangent():
    behind, ahead = torch.tensor([[-50.0, 50.0]]), torch.tensor([[50.0, -50.0]])
    target = torch.tensor([0])
    torch.testing.assert_close(
        generalised_cross_entropy_loss(behind, target, q=0.5), torch.tensor(2.0)
    )
    torch.testing.assert_close(
        encouraging_loss(ahead, target, log_end=0.5), torch.tensor(0.5).log() - 1
    )


def test_counts_of_a_tensor_are_those_of_its_batches_without_ignored_targets():
    targets = torch.tensor([[3, 0, -1], [3, 3, 1]])
    assert class_counts_of(targets, 5, ignore_index=-1).tolist() == [1, 1, 0, 3, 0]
    assert torch.equal(
        class_counts_of(iter(targets), 5, ignore_index=-1),
        class_counts_of(targets, 5, ignore_index=-1),
    )
    with pytest.raises(IndexError, match=r"class indices from 0 to 2 .*got 3"):
        class_counts_of(targets, 3, ignore_index=-1)
    with pytest.raises(TypeError, match="class indices"):
        class_counts_of(targets.float(), 3)


@pytest.mark.bug_report(
    "jiawei-ren/BalancedMetaSoftmax-Classification#15",
    "A class without samples has the log frequency -inf.",
)
def test_the_logit_of_an_unseen_class_stays_finite_which_is_said_once():
    counts, logits = torch.tensor([7, 0, 3, 0]), random_logits(5, 4).requires_grad_()
    with pytest.warns(
        UserWarning, match=r"class_counts is 0 for class 1, 3 \(2 in all\): .* stays finite"
    ):
        loss = logit_adjusted_loss(logits, TARGET, class_counts=counts)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad[[0, 1, 3, 4]].abs().min() > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(logit_adjusted_loss(logits, TARGET, class_counts=counts), loss)
        class_weights(counts)
