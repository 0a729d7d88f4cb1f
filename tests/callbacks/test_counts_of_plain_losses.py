"""A loss module in a LightningModule without the mixin is counted by the callbacks, in training
alone.
"""

import re
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import loader_of, quiet_trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn

from as_lightning import (
    AdaptiveGradientAccumulation,
    ASSoftmaxLoss,
    ASSoftmaxMixin,
    LinearCrossEntropyLoss,
    MaskingMonitor,
    MultiLabelASSoftmaxLoss,
)
from as_lightning.functional import (
    as_cross_entropy,
    as_linear_cross_entropy,
    multilabel_as_cross_entropy,
)

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in another order are other bits

Batch = tuple[Tensor, Tensor]


class Plain(pl.LightningModule):
    """A module as users have it, with a loss of this package in the place of
    ``nn.CrossEntropyLoss``.
    """

    def __init__(self, criterion: nn.Module, net: nn.Module | None = None) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = nn.Linear(6, 4) if net is None else net
        self.criterion = criterion

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self.criterion(self.net(batch[0]), batch[1])

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val_loss", self.criterion(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


class Mixed(ASSoftmaxMixin, Plain):
    as_softmax_replaces = "criterion"


def batches(number=7, *, rows=lambda batch: 5 + batch):
    """Batches of different sizes whose classes can be learnt in a few steps."""
    inputs = [torch.randn(rows(batch), 6) for batch in range(number)]
    return [(x, x[:, :4].argmax(1)) for x in inputs]


class CountsByHand(pl.Callback):
    """The oracle: the counts of each batch from the functions, before the step changes
    the weights.
    """

    def __init__(self, counts_of: Callable[[Any, Batch], Any]) -> None:
        self.counts_of = counts_of
        self.epochs: list[list[int]] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.epochs.append([0, 0, 0, 0])

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        counts = self.counts_of(pl_module, batch).stacked().tolist()
        self.epochs[-1] = [sum(pair) for pair in zip(self.epochs[-1], counts, strict=True)]


def of_logits(module: Any, batch: Batch) -> Any:
    return as_cross_entropy(module.net(batch[0]), batch[1], 0.2, return_counts=True)[1]


def of_labels(module: Any, batch: Batch) -> Any:
    return multilabel_as_cross_entropy(module.net(batch[0]), batch[1], 0.2, return_counts=True)[1]


def of_head(module: Any, batch: Batch) -> Any:
    head = module.criterion.linear
    return as_linear_cross_entropy(
        batch[0], head.weight, batch[1], 0.2, bias=head.bias, return_counts=True
    )[1]


CASES = {
    "single label": (lambda: Plain(ASSoftmaxLoss(0.2)), of_logits),
    "several labels": (lambda: Plain(MultiLabelASSoftmaxLoss(0.2)), of_labels),
    "wide head": (
        lambda: Plain(LinearCrossEntropyLoss(6, 4, bias=True, delta=0.2), nn.Identity()),
        of_head,
    ),
}


@pytest.mark.parametrize("accumulated", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_the_counts_are_those_of_the_trainings_batches_and_of_no_validation(case, accumulated):
    make, counts_of = CASES[case]
    data = batches()
    if case == "several labels":
        data = [(x, (x[:, :4] > 0).long()) for x, _ in data]
    monitor, by_hand = MaskingMonitor(), CountsByHand(counts_of)
    settings: dict[str, Any] = {
        "accumulate_grad_batches": accumulated,
        "val_check_interval": 2,
        "max_epochs": 3,
    }
    quiet_trainer(callbacks=[by_hand, monitor], **settings).fit(
        make(), loader_of(data), loader_of(data[:3])
    )
    assert [list(epoch[1:]) for epoch in monitor.history] == by_hand.epochs
    assert 0 < by_hand.epochs[-1][2] < by_hand.epochs[-1][3]


@pytest.mark.parametrize("in_eval_mode", [False, True])
def test_windows_weights_and_counts_are_those_of_the_mixin_bit_for_bit(in_eval_mode: bool) -> None:
    data, ends = batches(24), []
    for module in (Plain(ASSoftmaxLoss(0.1)), Mixed(nn.CrossEntropyLoss(), delta=0.1)):
        # As parts that are fine-tuned with their dropout off: they are trained all the same.
        if in_eval_mode:
            module.eval()
        monitor, speed = MaskingMonitor(), AdaptiveGradientAccumulation(max_steps=4)
        callbacks = [monitor, speed]
        trainer = quiet_trainer(max_epochs=4, callbacks=callbacks, log_every_n_steps=1)
        trainer.fit(module, loader_of(data))
        ends.append(
            (monitor.history, speed.history, [p.tolist() for p in module.parameters()], trainer)
        )
    (*plain, ours), (*mixed, theirs) = ends
    assert plain == mixed
    assert {window.length for window in plain[1]} > {1, 2}
    assert ours.logged_metrics == theirs.logged_metrics
    assert ours.logged_metrics["masking/delta"] == 0.1


class Exchanges(pl.Callback):
    """Another loss from the second epoch on, as one with other class weights."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.current_epoch == 1:
            pl_module.criterion = ASSoftmaxLoss(weight=torch.arange(1.0, 5.0))


def test_a_loss_that_is_exchanged_is_counted_and_one_without_a_margin_is_refused() -> None:
    module, monitor, data = Plain(ASSoftmaxLoss(0.1)), MaskingMonitor(), loader_of(batches())
    quiet_trainer(max_epochs=2, callbacks=[monitor, Exchanges()]).fit(module, data)
    assert monitor.history[0].samples == monitor.history[1].samples > 0
    module.criterion = ASSoftmaxLoss(0.3)
    trainer = quiet_trainer(max_epochs=1, callbacks=[MaskingMonitor()])
    trainer.fit(module, data)
    assert trainer.logged_metrics["masking/delta"] == 0.3
    module.criterion = nn.CrossEntropyLoss()
    with pytest.raises(MisconfigurationException, match=r"MaskingMonitor"):
        quiet_trainer(max_epochs=1, callbacks=[MaskingMonitor()]).fit(module, data)


def test_the_progress_bar_shows_the_share_of_masked_samples(capsys: Any) -> None:
    monitor = MaskingMonitor()
    trainer = quiet_trainer(max_epochs=6, callbacks=[monitor], enable_progress_bar=True)
    trainer.fit(Plain(ASSoftmaxLoss(0.2)), loader_of(batches()))
    bar = trainer.progress_bar_callback
    assert bar is not None
    last = monitor.history[-1]
    shown = bar.get_metrics(trainer, trainer.lightning_module)["masked"]
    assert float(shown) == pytest.approx(last.masked_samples / last.samples, abs=1e-3)  # type: ignore[arg-type]
    assert re.search(r"masked[=:] ?0\.", capsys.readouterr().out)  # tqdm or rich


def in_a_comparison() -> Plain:
    app = pytest.importorskip("as_lightning.comparison.methods", exc_type=ImportError)
    config = {**app.method_config("as_softmax"), "callbacks": {}}
    make = lambda: Plain(nn.CrossEntropyLoss())  # noqa: E731
    made: Plain = app.module_by_method(make, "as_softmax", "criterion", config, delta=0.1)
    return made


BOTH = [lambda: Plain(ASSoftmaxLoss(0.1)), lambda: Mixed(nn.CrossEntropyLoss(), delta=0.1)]


@pytest.mark.parametrize("make", [*BOTH, in_a_comparison])
def test_a_loss_after_the_batch_is_in_no_window(make: Callable[[], Plain]) -> None:
    class Again(pl.Callback):
        def on_after_backward(self, trainer: pl.Trainer, pl_module: Any) -> None:
            pl_module.training_step(*self.latest)

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            self.latest = batch, batch_idx

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            pl_module.training_step(batch, batch_idx)

    data, ends = batches(6), []
    for others in ([], [Again()]):
        monitor, speed = MaskingMonitor(), AdaptiveGradientAccumulation(max_steps=4)
        trainer = quiet_trainer(max_epochs=2, callbacks=[monitor, speed, *others])
        trainer.fit(make(), loader_of(data))
        ends.append((monitor.history, speed.history))
    assert ends[0] == ends[1]
