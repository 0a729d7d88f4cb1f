"""InfoBatch and random skipping: the controls that share the mechanism of plans and samplers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import quiet_trainer
from harness.sleeping_samples import SAMPLES, SleepingClassifier, numbered_loader
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.nn import functional as F

from as_lightning.callbacks import InfoBatch, RandomSkipping

EPOCHS = 8


class OnCrossEntropy(SleepingClassifier):
    """Notes each sample's loss, and the loss that the criterion returned."""

    def __init__(self, criterion: nn.Module | None = None) -> None:
        super().__init__()
        self.criterion = nn.CrossEntropyLoss() if criterion is None else criterion
        self.losses: list[dict[int, float]] = []
        self.returned: list[Tensor] = []
        self.validation_losses: list[Tensor] = []

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        self.losses.append({})

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        inputs, target, numbers = batch
        logits = self(inputs)
        if not self.epochs:  # resumed inside an epoch
            self.on_train_epoch_start()
        self.epochs[-1].append(numbers.tolist())
        losses = F.cross_entropy(logits, target, reduction="none").tolist()
        self.losses[-1] |= dict(zip(numbers.tolist(), losses, strict=True))
        loss = self.criterion(logits, target)
        self.returned.append(loss.detach())
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        inputs, target, _ = batch
        self.validation_losses.append(self.criterion(self(inputs), target) - F.cross_entropy(self(inputs), target))


def fit(module: pl.LightningModule, callbacks: list[pl.Callback], **settings: Any) -> pl.Trainer:
    torch.manual_seed(0)
    ckpt_path = settings.pop("ckpt_path", None)
    trainer = quiet_trainer(**({"max_epochs": EPOCHS, "callbacks": callbacks} | settings))
    trainer.fit(module, numbered_loader(), numbered_loader(shuffle=False), ckpt_path=ckpt_path)
    return trainer


def below_the_mean(module: OnCrossEntropy, epoch: int) -> set[int]:
    """By each sample's last loss before ``epoch``."""
    last: dict[int, float] = {}
    for losses in module.losses[:epoch]:
        last |= losses
    mean = sum(last.values()) / len(last)
    return {number for number, loss in last.items() if loss < mean}


def test_infobatch_leaves_out_half_of_the_samples_below_the_mean_loss_and_none_above() -> None:
    module, pruning = OnCrossEntropy(), InfoBatch()
    fit(module, [pruning])
    for epoch in range(1, EPOCHS - 1):
        below = below_the_mean(module, epoch)
        left_out = set(range(SAMPLES)) - set(module.visited(epoch))
        joining = SAMPLES - len(below) // 2 - pruning.history[epoch].awake
        assert joining == 0
        assert len(left_out) == len(below) // 2 - ((SAMPLES - len(below) // 2) % 8 == 1)
        assert left_out <= below


def test_infobatch_takes_all_data_first_and_in_the_last_eighth_of_the_epochs() -> None:
    pruning = InfoBatch()
    fit(OnCrossEntropy(), [pruning], max_epochs=16)
    full = [epoch.epoch for epoch in pruning.history if epoch.awake == SAMPLES]
    assert full == [0, 14, 15]


@pytest.mark.parametrize("prune_ratio", [0.5, 0.25])
def test_infobatch_weighs_what_is_left_below_the_mean_so_that_the_expected_loss_stays(prune_ratio: float) -> None:
    module = OnCrossEntropy()
    fit(module, [InfoBatch(prune_ratio)])
    returned = iter(module.returned)
    for epoch in range(EPOCHS):
        below = below_the_mean(module, epoch) if 0 < epoch < EPOCHS - 1 else set()
        for batch in module.epochs[epoch]:
            weighted = [
                module.losses[epoch][number] / (1 - prune_ratio if number in below else 1.0) for number in batch
            ]
            assert float(next(returned)) == pytest.approx(sum(weighted) / len(batch), rel=1e-6)


def test_infobatch_takes_ignored_samples_for_samples_without_a_loss() -> None:
    class Ignores(OnCrossEntropy):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            inputs, target, numbers = batch
            return super().training_step((inputs, target.where(numbers % 4 > 0, -100), numbers), batch_idx)

    module, pruning = Ignores(), InfoBatch(prune_ratio=0.0)  # which weighs no sample
    fit(module, [pruning], max_epochs=3)
    plain = Ignores()
    fit(plain, [], max_epochs=3, reload_dataloaders_every_n_epochs=1)  # which draws as often
    torch.testing.assert_close(module.returned, plain.returned)
    known = torch.arange(SAMPLES) % 4 > 0
    assert torch.equal(pruning.plan_state()["losses"].isnan(), ~known)


def test_infobatch_leaves_validation_and_the_criterion_as_they_are() -> None:
    module = OnCrossEntropy()
    fit(module, [InfoBatch()])
    assert all(abs(float(difference)) < 1e-14 for difference in module.validation_losses)  # means of one order each
    assert module.criterion.reduction == "mean"
    assert not module.criterion._forward_hooks


@pytest.mark.parametrize("criterion", [nn.CrossEntropyLoss(reduction="sum"), nn.Identity()])
def test_infobatch_refuses_a_criterion_that_is_no_mean_of_losses(criterion: nn.Module) -> None:
    with pytest.raises(MisconfigurationException, match=r"must name an nn.Module .* with reduction=\"mean\""):
        fit(OnCrossEntropy(criterion), [InfoBatch()])


def test_infobatch_refuses_class_weights() -> None:
    with pytest.raises(MisconfigurationException, match="drop the criterion's weight"):
        fit(OnCrossEntropy(nn.CrossEntropyLoss(weight=torch.ones(3))), [InfoBatch()])


@pytest.mark.parametrize("prune_ratio", [1.0, -0.5])
def test_infobatch_refuses_a_share_that_leaves_nothing(prune_ratio: float) -> None:
    with pytest.raises(ValueError, match="prune_ratio"):
        InfoBatch(prune_ratio)


def test_random_skipping_takes_as_many_samples_as_given_and_others_in_each_epoch() -> None:
    module, control = OnCrossEntropy(), RandomSkipping([0.3, 0.75, 0.5])
    fit(module, [control], max_epochs=5)
    assert [epoch.awake for epoch in control.history] == [SAMPLES, *(round(r * SAMPLES) for r in (0.75, 0.5, 0.5, 0.5))]
    assert module.visited(3) != module.visited(4)
    assert control.history[-1].visits == len(module.visited(4))


@pytest.mark.parametrize("ratios", [[], [0.0], [1.0, 1.5]])
def test_random_skipping_refuses_shares_that_leave_nothing(ratios: list[float]) -> None:
    with pytest.raises(ValueError, match="awake_ratios"):
        RandomSkipping(ratios)


class SavesInside(pl.Callback):
    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if (trainer.current_epoch, batch_idx) == (3, 1):
            trainer.save_checkpoint(self.path)


@pytest.mark.parametrize("control", [InfoBatch, lambda: RandomSkipping([1.0, 0.5])], ids=["infobatch", "random"])
def test_a_control_resumed_inside_an_epoch_goes_on_with_the_same_plan(control: Any, tmp_path: Path) -> None:
    whole, first, resumed, second = OnCrossEntropy(), control(), OnCrossEntropy(), control()
    fit(whole, [first, SavesInside(tmp_path / "inside.ckpt")], max_epochs=4)
    fit(resumed, [second], ckpt_path=tmp_path / "inside.ckpt", max_epochs=4)
    assert resumed.epochs[0] == whole.epochs[3][2:]
    assert second.history == first.history
    for name, weight in whole.weights().items():
        assert torch.equal(weight, resumed.weights()[name])


@pytest.mark.parametrize(
    ("control", "settings", "message"),
    [
        (RandomSkipping, {"awake_ratios": 0.5}, r"awake_ratios must be a list of shares in \(0, 1\], .*, got 0.5"),
        (RandomSkipping, {"awake_ratios": "0.5"}, r"awake_ratios must be a list of shares in \(0, 1\], .*, got '0.5'"),
        (RandomSkipping, {"awake_ratios": [0.5], "seed": 1.5}, "seed must be an integer, got 1.5"),
        (InfoBatch, {"seed": None}, "seed must be an integer, got None"),
        (InfoBatch, {"criterion": nn.CrossEntropyLoss()}, "criterion must be the name of an attribute of the module"),
    ],
)
def test_controls_refuse_arguments_of_another_type_by_name(
    control: type[pl.Callback], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        control(**settings)
