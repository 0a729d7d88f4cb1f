"""With ``items=`` every accumulated window steps as one large batch of its items, to 1e-12 in
float64.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.own_modules import HuggingFace, Sentences
from harness.scripted_masking import (
    KeepsRows,
    SavesEveryBatch,
    loader_of,
    quiet_trainer,
    with_a_scaler,
)
from harness.stateful_loader import StatefulLoader
from harness.token_batches import (
    MaskedTagger,
    SkipsBatches,
    SumTagger,
    Tagger,
    token_batches,
    tokens_in,
)
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.strategies import (
    DDPStrategy,
    FSDPStrategy,
    ModelParallelStrategy,
    SingleDeviceStrategy,
)
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from oracles.large_batch import train_on_large_batches
from torch import Tensor

from as_lightning import (
    AccumulationSchedule,
    AccumulationWindow,
    AdaptiveGradientAccumulation,
    MaskingMonitor,
    TokenBudget,
)
from as_lightning.callbacks.accumulation_policy import MaskingPolicy
from as_lightning.callbacks.item_weights import ItemWeights

pytestmark = pytest.mark.usefixtures("one_thread")

COUNTS = (3, 17, 1, 24, 8, 24, 2, 5, 24, 1)  # ten batches: the last window of four is shorter
EPOCHS = 3
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda groups, lr: torch.optim.SGD(groups, lr=lr, momentum=0.9),
    "adamw": torch.optim.AdamW,
}


def by_items(policy: Any = None, **arguments: Any) -> AdaptiveGradientAccumulation:
    policy = AccumulationSchedule({0: 4}) if policy is None else policy
    defaults = {"items": tokens_in, "lr_scale": "none"}
    return AdaptiveGradientAccumulation(policy, **(defaults | arguments))


def fit(
    module: Tagger, callback: pl.Callback, batches: Any, *, callbacks: Any = (), **arguments: Any
) -> AdaptiveGradientAccumulation:
    fit_arguments = {"ckpt_path": arguments.pop("ckpt_path", None)}
    length_known = arguments.pop("length_known", True)
    loader = loader_of(batches, length_known=length_known) if isinstance(batches, list) else batches
    trainer = quiet_trainer(
        **{"max_epochs": EPOCHS, "callbacks": [*callbacks, callback], **arguments}
    )
    trainer.fit(module, loader, **fit_arguments)
    return callback


def on_large_batches(
    module: Tagger, batches: list[Any], speed: AdaptiveGradientAccumulation, **options: Any
) -> Tagger:
    """Train ``module`` on the windows that the callback has taken, each as one large batch."""
    taken = speed.history[: options.pop("steps", None)]
    windows = [(window.epoch * len(batches) + window.batch, window.length) for window in taken]
    train_on_large_batches(
        module,
        module.configure_optimizers(),
        batches * (1 + speed.history[-1].epoch),
        windows,
        loss_of_items=module.losses,
        **options,
    )
    return module


def distance(module: torch.nn.Module, other: torch.nn.Module) -> float:
    pairs = zip(module.parameters(), other.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize(
    "policy",
    [AccumulationSchedule({0: 4}), AccumulationSchedule({0: 1, 3: 3, 5: 2}), lambda window: 5],
)
@pytest.mark.parametrize("length_known", [True, False], ids=["sized", "stream"])
@pytest.mark.bug_report(
    "ml-explore/mlx-lm#1413",
    "Accumulated means over batches of unequal length favour the short ones.",
)
@pytest.mark.bug_report(
    "karpathy/nanochat#59",
    "Gradients are divided by the number of batches, whatever number of tokens these have.",
)
def test_a_window_steps_as_one_large_batch_of_its_items(
    optimizer: str, clip: float | None, policy: Any, length_known: bool
) -> None:
    batches = token_batches(COUNTS)
    module = Tagger(OPTIMIZERS[optimizer])
    speed = fit(
        module, by_items(policy), batches, gradient_clip_val=clip, length_known=length_known
    )
    reference = on_large_batches(Tagger(OPTIMIZERS[optimizer]), batches, speed, clip_norm=clip)
    assert max(window.length for window in speed.history) > 1
    assert distance(module, reference) < 1e-12
    if clip is not None:  # the bound was reached
        unclipped = on_large_batches(Tagger(OPTIMIZERS[optimizer]), batches, speed)
        assert distance(reference, unclipped) > 1e-4


@pytest.mark.parametrize(
    ("counts", "step"),
    [
        ((3, 0, 5, 24, 0, 0, 7, 1), 4),  # beside others, and first in a window
        ((0, 0, 0, 0, 3, 9, 24, 1), 4),  # a whole window
        ((5, 0, 0, 8), 1),
    ],
)
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.bug_report(
    "pytorch/pytorch#70348", "Where all targets are ignored the mean loss is NaN."
)
def test_a_batch_without_items_adds_nothing_although_its_loss_is_not_a_number(
    counts: tuple[int, ...], step: int, clip: float | None
) -> None:
    batches = token_batches(counts)
    module = Tagger()
    losses: list[float] = []

    class Keeps(pl.Callback):
        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, *args: Any
        ) -> None:
            losses.append(float(outputs["loss"]))

    speed = fit(
        module,
        by_items(AccumulationSchedule({0: step})),
        batches,
        callbacks=[Keeps()],
        gradient_clip_val=clip,
    )
    assert math.isnan(losses[counts.index(0)])
    assert distance(module, on_large_batches(Tagger(), batches, speed, clip_norm=clip)) < 1e-12


@pytest.mark.filterwarnings("ignore:.training_step. returned .None.")
def test_a_training_step_that_returns_none_adds_neither_gradient_nor_items() -> None:
    batches, module = token_batches(COUNTS), SkipsBatches()
    speed = fit(module, by_items(), batches)
    ignored = [(inputs, torch.full_like(target, -100)) for inputs, target in batches]
    left = [
        (ignored if index in module.skipped else batches)[index] for index in range(len(batches))
    ]
    assert speed.history[0].items == 17 + 1
    assert distance(module, on_large_batches(Tagger(), left, speed)) < 1e-12


@pytest.mark.parametrize("beside", [[], [MaskingMonitor()]], ids=["alone", "with monitor"])
@pytest.mark.parametrize("policy", [AccumulationSchedule({0: 4}), MaskingPolicy(max_steps=3)])
def test_the_items_of_a_mixin_module_come_from_its_masking_counter(
    policy: Any, beside: list[pl.Callback]
) -> None:
    batches = token_batches((3, 0, 17, 1, 24, 8, 24, 2))
    module = MaskedTagger()
    speed = fit(module, by_items(policy, items="module"), batches, callbacks=beside, max_epochs=8)
    assert [window.items for window in speed.history] == [
        window.samples for window in speed.history
    ]
    assert any(window.masked_samples for window in speed.history)
    assert distance(module, on_large_batches(MaskedTagger(), batches, speed)) < 1e-12


class CountsItself(Tagger):
    def items_in_batch(self, batch: Any) -> Tensor:
        return (batch[1] != -100).sum()


class Autocast(Tagger):
    """The weights are float64 and what autocast rounds is each row's own: the sum over the window
    is as exact.
    """

    def __init__(self, half: torch.dtype) -> None:
        super().__init__()
        self.half_type = half

    def losses(self, window: list[Any]) -> Tensor:
        with torch.autocast("cpu", dtype=self.half_type):
            return super().losses(window)


class Weighted(Tagger):
    """A mean that class weights weigh: its items are their sum, which is no whole number."""

    weight = torch.linspace(0.2, 3.0, 5, dtype=torch.float64)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        logits = self.net(batch[0]).flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits, batch[1].flatten(), weight=self.weight)

    def items_in_batch(self, batch: Any) -> Tensor:
        return self.weight[batch[1][batch[1] != -100]].sum()

    def losses(self, window: list[Any]) -> Tensor:
        return self.training_step(tuple(map(torch.cat, zip(*window, strict=True))), 0)


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize(
    ("make", "arguments", "plugins"),
    [
        (SumTagger, {"loss_is": "sum"}, list),
        (CountsItself, {"items": "module"}, list),
        (Weighted, {"items": "module"}, list),
        (lambda: Autocast(torch.bfloat16), {}, list),
        (lambda: Autocast(torch.float16), {}, list),
        (Tagger, {}, lambda: [with_a_scaler(init_scale=2.0**8, growth_interval=3)]),
    ],
    ids=["sums", "the module's items", "weights", "bfloat16", "float16", "scaled gradients"],
)
def test_other_losses_items_and_precisions_step_as_one_large_batch(
    make: Any, arguments: dict[str, Any], plugins: Any, clip: float | None
) -> None:
    batches = token_batches((*COUNTS[:3], 0, *COUNTS[3:]))
    module = make()
    speed = fit(module, by_items(**arguments), batches, gradient_clip_val=clip, plugins=plugins())
    assert distance(module, on_large_batches(make(), batches, speed, clip_norm=clip)) < 1e-12


def test_16_mixed_with_its_scaler_is_near_one_large_batch_and_stays_in_range() -> None:
    batches = token_batches((200, 12, 240, 90) * 3, length=128, dtype=torch.float32)
    module = Tagger(dtype=torch.float32)
    scaler = torch.amp.GradScaler("cpu")
    speed = fit(module, by_items(), batches, plugins=[MixedPrecision("16-mixed", "cpu", scaler)])
    assert (
        scaler.get_scale() == 2.0**16
    )  # no step was left out: the weights of 12 to 240 items are near 1
    reference = on_large_batches(
        Tagger(dtype=torch.float32),
        batches,
        speed,
        autocast=lambda: torch.autocast("cpu", dtype=torch.float16),
    )
    assert distance(module, reference) < 5e-3


@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#18464",
    "Hooks see the loss divided by the accumulated batches: it seems to fall where the window "
    "grows.",
)
@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#15315",
    "The loss that callbacks get is not the one that `training_step` has returned.",
)
def test_logged_losses_are_those_of_training_step() -> None:
    class Logs(Tagger):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss

    batches, module = token_batches(COUNTS[:4]), Logs()
    fit(module, by_items(), batches, max_epochs=1)
    assert (
        module.trainer.callback_metrics["loss"].item()
        == Tagger().training_step(batches[-1], 0).item()
    )


def test_batches_of_equal_size_cost_no_pass_over_the_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    multiplied: list[Any] = []
    monkeypatch.setattr(torch, "_foreach_mul_", lambda *arguments: multiplied.append(arguments))
    fit(Tagger(OPTIMIZERS["sgd"]), by_items(), token_batches((7,) * 8), max_epochs=1)
    assert not multiplied
    fit(Tagger(OPTIMIZERS["sgd"]), by_items(), token_batches((7, 7, 7, 8)), max_epochs=1)
    assert len(multiplied) == 1


class EachItem(Tagger):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.losses([batch])


@pytest.mark.parametrize(
    ("make", "items", "message"),
    [
        (
            Tagger,
            lambda batch: -1,
            "items of batch 0 must be a finite number of at least 0, got -1",
        ),
        (Tagger, lambda batch: float("nan"), "got nan"),
        (Tagger, lambda batch: torch.tensor(float("inf")), "got inf"),
        (Tagger, lambda batch: None, "got None"),
        (Tagger, lambda batch: batch[1] != -100, "got tensor"),
        (Tagger, "module", r"Say it with items=lambda batch"),
        (EachItem, tokens_in, r"shape \(3,\), which is neither"),
    ],
)
def test_items_that_are_no_number_and_a_loss_that_is_neither_mean_nor_sum_are_refused_before_the_step(
    make: Any, items: Any, message: str
) -> None:
    module = make()
    with pytest.raises((TypeError, ValueError, MisconfigurationException), match=message):
        fit(module, by_items(items=items), token_batches(COUNTS))
    assert distance(module, Tagger()) == 0


class TwoTasks(MaskedTagger):
    """Every second batch is of a task with a loss of its own."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
        return (
            Tagger.training_step(self, batch, batch_idx)
            if batch_idx % 2
            else super().training_step(batch, batch_idx)
        )


def test_a_batch_whose_loss_is_not_counted_is_refused_where_its_items_come_from_the_counter() -> (
    None
):
    batches = token_batches(COUNTS)
    with pytest.raises(
        MisconfigurationException, match=r"a loss in which it counted none: .* items=lambda batch"
    ):
        fit(TwoTasks(), by_items(items="module"), batches)
    module = TwoTasks()
    speed = fit(module, by_items(), batches, max_epochs=1)
    assert sum(window.items for window in speed.history) == sum(COUNTS)


@pytest.mark.parametrize(
    "changed",
    [{"items": None}, {"loss_is": "sum"}, {"items": "module"}],
    ids=["batches", "sum", "counter"],
)
def test_a_window_that_was_weighed_in_another_way_is_refused_on_resume(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    batches = token_batches(COUNTS)
    fit(
        MaskedTagger(),
        by_items(),
        StatefulLoader(batches),
        callbacks=[SavesEveryBatch(tmp_path)],
        max_epochs=1,
    )
    with pytest.raises(MisconfigurationException, match="do not add to those of"):
        fit(
            MaskedTagger(),
            by_items(**changed),
            StatefulLoader(batches),
            ckpt_path=tmp_path / "0-05.ckpt",
        )
    between = fit(
        MaskedTagger(),
        by_items(**changed),
        StatefulLoader(batches),
        ckpt_path=tmp_path / "0-07.ckpt",
    )
    assert between.history  # between two windows there is nothing to add to


def test_one_host_read_a_window_and_none_a_batch(host_reads: Counter[str]) -> None:
    sizes = iter(itertools.cycle(COUNTS))
    speed = fit(Tagger(), by_items(items=lambda batch: next(sizes)), token_batches(COUNTS))
    ours = sum(count for name, count in host_reads.items() if name.startswith("as_lightning"))
    assert (
        ours <= len(speed.history) + 2 < len(COUNTS) * EPOCHS
    )  # the first and the last step write their loss


class ReducesInItsOwnWay(SingleDeviceStrategy): ...


def test_a_strategy_that_is_not_known_to_be_exact_is_refused_for_items_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = "as_lightning.callbacks.adaptive_gradient_accumulation.SingleDeviceStrategy"
    monkeypatch.setattr(engine, DDPStrategy)  # as FSDP, it is none of those that are known
    strategy = ReducesInItsOwnWay(torch.device("cpu"))
    with pytest.raises(MisconfigurationException, match=r"not known to be exact with Reduces"):
        fit(Tagger(), by_items(), token_batches(COUNTS), strategy=strategy)
    assert not issubclass(FSDPStrategy, (SingleDeviceStrategy, DDPStrategy, ModelParallelStrategy))


class ComputesTwice(torch.optim.AdamW):
    """As optimizers do that compute the loss again at other weights (LBFGS, SAM); here they are the
    same.
    """

    def step(self, closure: Any = None) -> Any:
        closure()
        return super().step(closure)


@pytest.mark.parametrize(
    ("make", "on_device"), [(Tagger, False), (MaskedTagger, False), (MaskedTagger, True)]
)
def test_an_optimizer_that_computes_a_batch_again_counts_its_items_once(
    make: Any, on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if on_device:  # from which the host does not read them before the step, which closes the window
        monkeypatch.setattr(
            ItemWeights, "counted", lambda self, counter: counter.batch_samples.double()
        )
    batches = token_batches((3, 17, 1, 24))
    module, callbacks = (
        make(optimizer=ComputesTwice),
        [MaskingMonitor()] if make is MaskedTagger else [],
    )
    source = {"items": "module"} if make is MaskedTagger else {}
    speed = fit(
        module, by_items(AccumulationSchedule({0: 1}), **source), batches, callbacks=callbacks
    )
    assert [window.items for window in speed.history] == [3, 17, 1, 24] * EPOCHS
    assert distance(module, on_large_batches(make(), batches, speed)) < 1e-12


@pytest.mark.parametrize("items", [None, "module"])
def test_an_optimizer_that_computes_the_last_of_several_batches_again_is_refused(
    items: Any,
) -> None:
    module = MaskedTagger(optimizer=ComputesTwice)
    with pytest.raises(
        MisconfigurationException,
        match=r"ComputesTwice computes the loss several times .* once, or",
    ):
        fit(module, by_items(items=items), token_batches(COUNTS))


@pytest.mark.parametrize(
    "plugins", [list, lambda: [with_a_scaler()]], ids=["plain", "scaled gradients"]
)
def test_the_logged_loss_is_the_mean_over_the_windows_items(plugins: Any) -> None:
    batches, module, logger = token_batches(COUNTS), Tagger(), KeepsRows()
    settings: dict[str, Any] = {"logger": logger, "log_every_n_steps": 1, "plugins": plugins()}
    speed = fit(module, by_items(), batches, max_epochs=1, **settings)
    for row, window in zip(logger.rows, speed.history, strict=True):
        before = on_large_batches(Tagger(), batches, speed, steps=row["step"])
        of_window = batches[window.batch : window.batch + window.length]
        assert row["accumulation/loss"] == pytest.approx(
            before.losses(of_window).mean().item(), rel=1e-9
        )


def test_the_logged_loss_of_a_long_window_is_no_sum_in_half_precision() -> None:
    speed, logger = AdaptiveGradientAccumulation(AccumulationSchedule({0: 600})), KeepsRows()
    module = Tagger(torch.optim.SGD, torch.bfloat16)
    module.net[2].requires_grad_(False).apply(
        lambda layer: [part.zero_() for part in layer.parameters()]
    )  # all alike
    fit(module, speed, token_batches([8], dtype=torch.bfloat16) * 600, max_epochs=1, logger=logger)
    assert logger.rows[-1]["accumulation/loss"] == pytest.approx(math.log(5), rel=1e-2)


class TwoLosses(MaskedTagger):
    """The second is of the first ``second`` tokens, of all if it is None."""

    second: int | None = None

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
        logits, target = self.net(batch[0]).flatten(0, 1), batch[1].flatten()
        rows = slice(self.second)
        return self.as_softmax_loss(logits, target) + self.as_softmax_loss(
            logits[rows], target[rows]
        )


def test_two_losses_of_a_step_are_weighed_together_unless_their_numbers_of_samples_differ() -> None:
    batches, module = token_batches((3, 17, 1, 24)), TwoLosses()
    speed = fit(module, by_items(items="module"), batches, max_epochs=1)
    assert [window.items for window in speed.history] == [2 * 45]
    reference = TwoLosses()
    optimizer = reference.configure_optimizers()
    reference.training_step(
        [torch.cat(parts) for parts in zip(*batches, strict=True)], 0
    ).backward()  # type: ignore[union-attr]
    optimizer.step()
    assert distance(module, reference) < 1e-12
    uneven = TwoLosses()
    uneven.second = 8
    with pytest.raises(
        MisconfigurationException, match=r"two losses of different numbers of samples.*items=lambda"
    ):
        fit(uneven, by_items(items="module"), batches)


def test_a_budget_of_items_closes_windows_of_about_so_many() -> None:
    even = fit(Tagger(), by_items(TokenBudget(30)), token_batches((10,) * 12), max_epochs=1)
    assert [window.items for window in even.history] == [
        10,
        10,
        20,
        20,
        30,
        30,
    ]  # windows of 3 start at multiples of 3
    budget = TokenBudget(1000)
    for items, length, wanted in ((500, 2, 4), (0, 2, 7), (5000, 1, 1)):
        assert budget(AccumulationWindow(0, 0, length, 0, 0, items, wanted=7)) == wanted


@pytest.mark.bug_report(
    "unslothai/unsloth-zoo#1023",
    "The loss is divided twice, by the window's items and by its batches.",
)
def test_a_hugging_face_model_that_divides_by_the_items_itself_is_refused() -> None:
    pytest.importorskip("transformers")

    class DividesItself(HuggingFace):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self(**batch, num_items_in_batch=20).loss

    by_rows = AdaptiveGradientAccumulation(
        AccumulationSchedule({0: 2}), items=lambda batch: len(batch["labels"])
    )
    trainer = quiet_trainer(max_epochs=1, callbacks=[by_rows])
    with pytest.raises(
        MisconfigurationException, match="is given num_items_in_batch, by which it divides the loss"
    ):
        trainer.fit(module := DividesItself(), Sentences().train_dataloader())
    assert not module.model._forward_pre_hooks
