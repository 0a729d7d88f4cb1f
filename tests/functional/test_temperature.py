"""Fitting a temperature, and reliability diagrams."""

import math

import pytest
import torch
import torch.nn.functional as F
from torchmetrics.functional.classification import (
    binary_calibration_error,
    multiclass_calibration_error,
)

from as_lightning.functional import fit_temperature, reliability
from as_lightning.functional.calibration import weights_digest


def drawn(temperature, rows=20_000, classes=5):
    """Logits, and targets that follow ``softmax(logits / temperature)``."""
    logits = 3 * torch.randn(rows, classes)
    return logits, torch.multinomial((logits / temperature).softmax(-1), 1).squeeze(-1)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_the_temperature_that_made_the_targets_or_the_labels_is_found(temperature):
    logits, target = drawn(temperature)
    assert fit_temperature(logits, target) == pytest.approx(temperature, rel=0.05)
    labels = torch.bernoulli((logits / temperature).sigmoid())
    assert fit_temperature(logits, labels) == pytest.approx(temperature, rel=0.05)


def test_the_temperature_minimises_the_formula():
    logits, target = drawn(0.5, rows=60)
    fitted = fit_temperature(logits, target, prior_samples=2.0)

    def objective(temperature):  # the docstring's, row by row
        log_p = torch.log_softmax(logits.double() / temperature, -1)
        total = 0.0
        for row in range(60):
            total += (
                -float(log_p[row, target[row]])
                - 2.0 / 60 * sum(float(value) for value in log_p[row]) / 5
            )
        return total

    assert objective(fitted) < min(objective(fitted * 0.999), objective(fitted * 1.001))


@pytest.mark.parametrize("logit", [-1e4, -1e9, torch.finfo(torch.float32).min, -torch.inf])
@pytest.mark.parametrize("prior_samples", [0.0, 1.0])
def test_classes_that_the_model_rules_out_do_not_change_the_temperature(logit, prior_samples):
    logits, target = drawn(0.5, rows=60)
    more = torch.cat([logits, torch.full((60, 2), logit)], 1)
    assert fit_temperature(more, target, prior_samples=prior_samples) == pytest.approx(
        fit_temperature(logits, target, prior_samples=prior_samples), rel=1e-4
    )
    labels = torch.bernoulli((logits / 0.5).sigmoid())
    unused = torch.cat([labels, torch.zeros(60, 2)], 1)
    assert fit_temperature(more, unused, prior_samples=prior_samples) == pytest.approx(
        fit_temperature(logits, labels, prior_samples=prior_samples), rel=1e-2
    )


def test_a_row_whose_own_class_is_ruled_out_takes_no_part():
    logits, target = drawn(0.5, rows=60)
    one_more = (
        torch.cat([logits, torch.tensor([[0.0, -torch.inf, 1.0, 2.0, 3.0]])]),
        torch.cat([target, torch.ones(1).long()]),
    )
    assert fit_temperature(*one_more) == fit_temperature(logits, target)


def test_a_logit_of_nan_makes_the_temperature_nan():
    logits, target = drawn(0.5, rows=60)
    logits[3, 2] = torch.nan
    assert math.isnan(fit_temperature(logits, target))
    assert math.isnan(fit_temperature(logits, torch.zeros_like(logits)))


def test_ignored_tokens_take_no_part():
    logits, target = drawn(0.5, rows=200)
    padded = torch.cat([logits, 9 * torch.randn(200, 5)]).reshape(4, 100, 5)
    with_ignored = torch.cat([target, torch.full((200,), -100)]).reshape(4, 100)
    assert fit_temperature(padded, with_ignored) == fit_temperature(logits, target)


def test_predictions_that_are_all_right_give_a_finite_temperature():
    target = torch.arange(5).repeat(20)
    logits = F.one_hot(target, 5).float()
    fitted = fit_temperature(logits, target)
    confidence = float((logits[0] / fitted).softmax(-1)[0])
    assert 0.98 < confidence < 0.9999  # 100 right of 100 and one unknown
    assert fit_temperature(logits, target, prior_samples=0.0) < fitted


def test_no_row_leaves_the_logits_unscaled():
    assert fit_temperature(torch.zeros(2, 3), torch.full((2,), -100)) == 1.0


@pytest.mark.parametrize(
    "target", [torch.arange(5) % 3, torch.ones(5, 3)], ids=["classes", "labels"]
)
@pytest.mark.bug_report(
    "gpleiss/temperature_scaling#31",
    "Nothing keeps a fitted temperature positive: a negative one inverts the predictions.",
)
@pytest.mark.bug_report(
    "gpleiss/temperature_scaling#23", "A fitted temperature grows without bound, into the millions."
)
@pytest.mark.bug_report(
    "autogluon/autogluon#4397", "Logits worse than a constant get a temperature of 0 or less."
)
def test_logits_of_which_no_temperature_is_likelier_are_left_unscaled(target):
    assert fit_temperature(torch.zeros(5, 3), target) == 1.0


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="movedim"):
        fit_temperature(torch.zeros(4, 3, 7), torch.zeros(4, 7, dtype=torch.long))
    with pytest.raises(ValueError, match="prior_samples"):
        fit_temperature(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), prior_samples=-1)
    for function in (fit_temperature, reliability):
        with pytest.raises(ValueError, match=r"must hold 0 and 1 for several labels.*got 0\.25"):
            function(torch.zeros(2, 4), torch.full((2, 4), 0.25))
    with pytest.raises(ValueError, match="bins must be an integer of at least 1, got 0"):
        reliability(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), bins=0)
    with pytest.raises(IndexError, match="class indices from 0 to 2 or ignore_index, got 1 to 3"):
        reliability(torch.zeros(4, 3), torch.tensor([1, 3, 2, -100]))
    with pytest.raises(IndexError, match="class indices from 0 to 2 or ignore_index, got -1 to 2"):
        fit_temperature(torch.zeros(4, 3), torch.tensor([1, -1, 2, -100]))


def test_unknown_labels_take_no_part():
    logits = 2 * torch.randn(200, 4)
    known = (torch.arange(800) % 3 > 0).reshape(200, 4)
    target = torch.bernoulli(logits.sigmoid() ** 2).masked_fill(~known, -100.0)
    assert fit_temperature(logits, target) == fit_temperature(logits[known], target[known])
    assert fit_temperature(logits, target.long()) == fit_temperature(logits[known], target[known])
    for of_all, of_known in zip(
        reliability(logits, target), reliability(logits[known], target[known]), strict=True
    ):
        assert torch.equal(of_all, of_known)


def test_the_calibration_error_is_torchmetrics():
    settings = {"n_bins": 15, "norm": "l1"}
    logits, target = drawn(0.5, rows=500)
    expected = multiclass_calibration_error(logits.softmax(-1), target, num_classes=5, **settings)
    assert float(reliability(logits, target).calibration_error) == pytest.approx(
        float(expected), abs=1e-5
    )
    labels = torch.bernoulli(logits.sigmoid() ** 2)
    expected = binary_calibration_error(
        logits.sigmoid().flatten(), labels.flatten().int(), **settings
    )
    assert float(reliability(logits, labels).calibration_error) == pytest.approx(
        float(expected), abs=1e-5
    )


@pytest.mark.bug_report(
    "Lightning-AI/torchmetrics#1646",
    "A confidence of 0 has no bin: the calibration error ends in an index error.",
)
@pytest.mark.bug_report(
    "Lightning-AI/torchmetrics#3510", "A confidence of exactly 1 is counted in a bin of its own."
)
def test_bins_add_up_over_batches_and_extreme_logits_have_theirs():
    logits, target = drawn(1.0, rows=200)
    halves = [reliability(logits[half], target[half]) for half in (slice(0, 70), slice(70, 200))]
    for total, first, second in zip(reliability(logits, target), *halves, strict=True):
        torch.testing.assert_close(total, first + second)
    bins = reliability(torch.tensor([[1e4, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]))
    assert (bins.predictions.sum(), bins.predictions[-1]) == (2, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int32])
def test_a_digest_is_the_sum_and_the_sum_of_squares_to_six_digits(dtype):
    weight = (100 * torch.randn(3, 50_000)).to(dtype)
    numbers = torch.view_as_real(weight) if weight.is_complex() else weight
    total, squares = (float(numbers.double().pow(power).sum()) for power in (1, 2))
    (digest,) = weights_digest({"net._orig_mod.weight": weight}).items()
    assert digest == ("net.weight", f"{total:.6g} {squares:.6g}")
    for changed in (-weight, 2 * weight, weight + 1, weight.roll(1, 0) * weight):
        assert weights_digest({"net.weight": changed}) != dict([digest])


def test_a_buffer_of_one_number_has_no_digest_and_a_parameter_of_one_has():
    weights = {"best": torch.ones(1), "scale": torch.nn.Parameter(torch.ones(1)), "name": "text"}
    assert weights_digest(weights) == {"scale": "1 1"}
    assert weights_digest({}) == {}
