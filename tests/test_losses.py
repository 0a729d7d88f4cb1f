"""The losses as PyTorch losses: they are their functions, and take over PyTorch's settings."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import as_lightning
from as_lightning import functional
from as_lightning.functional import as_cross_entropy, multilabel_as_cross_entropy
from as_lightning.losses import (
    ASSoftmaxLoss,
    LinearCrossEntropyLoss,
    MultiLabelASSoftmaxLoss,
    masked_loss_like,
)

LOGITS = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)) * 3
TARGET = torch.tensor([0, 1, -1, 3, 4, 0])
LABELS = (LOGITS > 0.5).float()
WEIGHT = torch.linspace(0.5, 1.5, 5)
ALL = {"weight": WEIGHT, "ignore_index": -1, "reduction": "sum"}
COUNTS = torch.tensor([50, 20, 10, 5, 1])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_module_is_its_function(reduction):
    settings = {"ignore_index": -1, "reduction": reduction}
    expected = as_cross_entropy(LOGITS, TARGET, 0.2, weight=WEIGHT, **settings)
    assert torch.equal(ASSoftmaxLoss(0.2, weight=WEIGHT, **settings)(LOGITS, TARGET), expected)
    of_labels = multilabel_as_cross_entropy(LOGITS, LABELS, 0.2, **settings)
    assert torch.equal(MultiLabelASSoftmaxLoss(0.2, **settings)(LOGITS, LABELS), of_labels)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("logit_adjusted", {"class_counts": COUNTS, "tau": 0.5}),
        ("generalised_cross_entropy", {"q": 0.3}),
        ("focal", {"gamma": 1.5}),
        ("encouraging", {"log_end": 0.5}),
        ("asymmetric", {"gamma_negative": 2.0, "gamma_positive": 1.0, "clip": 0.1}),
    ],
)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_loss_for_a_condition_is_its_function_and_a_loss_of_pytorchs(name, arguments, reduction):
    settings = {"ignore_index": -1, "reduction": reduction}
    target = LABELS if name == "asymmetric" else TARGET
    class_name = "".join(part.capitalize() for part in name.split("_")) + "Loss"
    loss = getattr(as_lightning, class_name)(**arguments, **settings)
    expected = getattr(functional, f"{name}_loss")(LOGITS, target, **arguments, **settings)
    torch.testing.assert_close(loss(LOGITS, target), expected)
    kind = nn.BCEWithLogitsLoss if name == "asymmetric" else nn.CrossEntropyLoss
    assert isinstance(loss, kind)
    assert loss.state_dict().keys() <= {"weight"}
    if kind is nn.CrossEntropyLoss:
        loss.label_smoothing = 0.1
        with pytest.raises(ValueError, match="label_smoothing"):
            loss(LOGITS, target)


def test_a_masked_loss_is_a_loss_of_pytorchs_and_loads_its_state():
    plain = nn.CrossEntropyLoss(weight=WEIGHT)
    loss = ASSoftmaxLoss(weight=torch.ones(5)).double()
    assert isinstance(loss, nn.CrossEntropyLoss)
    assert isinstance(MultiLabelASSoftmaxLoss(), nn.BCEWithLogitsLoss)
    loss.load_state_dict(plain.state_dict())
    assert loss.weight is not None
    torch.testing.assert_close(loss.weight, WEIGHT.double())
    assert loss(LOGITS.double(), TARGET.clamp(min=0)).dtype == torch.float64


@pytest.mark.parametrize("loss", [ASSoftmaxLoss, MultiLabelASSoftmaxLoss])
@pytest.mark.parametrize("argument", [{"reduction": "max"}, {"delta": 1.5}])
def test_an_argument_out_of_range_is_refused_when_the_module_is_made(loss, argument):
    with pytest.raises(ValueError, match=next(iter(argument))):
        loss(**argument)


def test_several_labels_are_refused_by_the_loss_of_one_class_with_the_loss_to_use():
    for target in (LABELS, LABELS.long()):
        with pytest.raises(TypeError, match="MultiLabelASSoftmaxLoss"):
            ASSoftmaxLoss()(LOGITS, target)
    with pytest.raises(ValueError, match=r"must have shape \(6,\)"):
        ASSoftmaxLoss()(LOGITS, TARGET[:, None])


@pytest.mark.parametrize("shape", [(6,), (6, 1), (2, 3, 4)])
def test_labels_are_not_guessed_where_there_is_no_label_dimension(shape):
    with pytest.raises(ValueError, match="multilabel_as_softmax_loss"):
        MultiLabelASSoftmaxLoss()(torch.zeros(shape), torch.ones(shape))


@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        (nn.CrossEntropyLoss(**ALL), ALL),
        (F.cross_entropy, {}),
        (partial(F.cross_entropy, **ALL, label_smoothing=0.0), ALL),
        (partial(nn.CrossEntropyLoss(**ALL)), ALL),
        (nn.BCEWithLogitsLoss(reduction="sum"), {"reduction": "sum"}),
        (partial(F.binary_cross_entropy_with_logits, reduction="sum"), {"reduction": "sum"}),
    ],
)
def test_the_settings_of_pytorchs_loss_are_taken_over(loss, settings):
    masked = masked_loss_like(loss, 0.3)
    several = isinstance(masked, MultiLabelASSoftmaxLoss)
    target = LABELS if several else TARGET.clamp(min=settings.get("ignore_index", 0))
    function = multilabel_as_cross_entropy if several else as_cross_entropy
    assert masked(input=LOGITS, target=target) == function(LOGITS, target, 0.3, **settings)
    named = loss.state_dict() if isinstance(loss, nn.Module) else {}
    assert masked.state_dict().keys() == named.keys()


class Sharpened(nn.CrossEntropyLoss):
    def forward(self, input, target):
        return super().forward(input / 0.1, target)


@pytest.mark.parametrize(
    "loss",
    [
        nn.MSELoss(),
        nn.NLLLoss(),
        F.l1_loss,
        as_cross_entropy,
        Sharpened(),
        ASSoftmaxLoss(),
        LinearCrossEntropyLoss(4, 3),
        nn.Linear(4, 3),
        None,
        "cross_entropy",
        partial(F.cross_entropy, LOGITS),
        partial(F.cross_entropy, label_smoothing=0.1),
        partial(F.cross_entropy, size_average=False),
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.BCEWithLogitsLoss(pos_weight=torch.ones(5)),
        nn.BCEWithLogitsLoss(weight=torch.ones(5)),
    ],
)
def test_what_is_not_pytorchs_cross_entropy_or_would_lose_a_setting_is_refused(loss):
    with pytest.raises(TypeError, match=r"self\.as_softmax_loss"):
        masked_loss_like(loss)


class Noted:
    """A counter that keeps what it is given."""

    def update(self, counts, denominator):
        self.samples, self.denominator = int(counts.samples), denominator


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_a_loss_says_what_it_divides_by(weight):
    sums = {"ignore_index": -1, "reduction": "sum"}
    losses = [
        (ASSoftmaxLoss(0.3, weight=weight, ignore_index=-1), TARGET),
        (ASSoftmaxLoss(0.3, weight=weight, ignore_index=255), TARGET.to(torch.uint8)),
        (MultiLabelASSoftmaxLoss(0.3), LABELS),
    ]
    total = as_cross_entropy(LOGITS, TARGET, 0.3, weight=weight, **sums)
    totals = [total, total, multilabel_as_cross_entropy(LOGITS, LABELS, 0.3, reduction="sum")]
    for (loss, target), summed in zip(losses, totals, strict=True):
        loss.masking_counter = counter = Noted()
        torch.testing.assert_close(loss(LOGITS, target) * counter.denominator, summed)
        loss.reduction = "sum"
        loss(LOGITS, target)
        assert counter.denominator == 1.0
        loss.reduction = "none"
        loss(LOGITS, target)
        assert counter.denominator.isnan()
        assert counter.samples == (6 if target is LABELS else 5)


def test_a_watched_head_has_the_loss_of_its_logits():
    loss = LinearCrossEntropyLoss(5, 7)
    loss.linear.register_forward_pre_hook(lambda *args: None)  # as profilers watch every module
    target = TARGET.clamp(min=0)
    torch.testing.assert_close(loss(LOGITS, target), F.cross_entropy(loss.linear(LOGITS), target))
