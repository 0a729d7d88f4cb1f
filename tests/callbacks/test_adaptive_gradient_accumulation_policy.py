"""The policy's arguments, what a run costs, and that precision and compilation change nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import (
    SAMPLES,
    ScriptedMasking,
    batches_of,
    loader_of,
    masking_that_asks_for,
    quiet_trainer,
    same_weights,
)
from oracles.accumulation_loop import train_by_hand
from torch import Tensor
from torch._dynamo.utils import counters as dynamo

from as_lightning import ASSoftmaxLoss, ASSoftmaxMixin
from as_lightning.callbacks import AccumulationWindow, AdaptiveGradientAccumulation, MaskingMonitor, MaskingPolicy
from as_lightning.functional import MaskingCounts, accumulation_steps

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in another order are other bits


def test_the_papers_formula_is_the_default() -> None:
    policy = AdaptiveGradientAccumulation().policy
    assert policy == MaskingPolicy(max_steps=4, scale=1.0, monotone=True, warmup_windows=0, update_every=1)


def wanted_after(counts: list[tuple[int, int]], **arguments: Any) -> list[int]:
    """The ``k`` before every window, window ``i`` reporting ``(masked_samples, samples)``."""
    policy, wanted = MaskingPolicy(**arguments), []
    for i, (masked, samples) in enumerate(counts):
        wanted.append(policy.steps)
        assert policy.next_length(AccumulationWindow(0, i, 1, masked, samples)) == policy.steps
    return wanted


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("monotone", [True, False])
@pytest.mark.parametrize("max_steps", [1, 3, 8])
def test_every_window_decides_by_the_formula(scale: float, monotone: bool, max_steps: int) -> None:
    counts = [(0, 8), (4, 8), (8, 8), (7, 8), (0, 8), (0, 0), (6, 8), (7, 8), (1, 8)]
    options: dict[str, Any] = {"scale": scale, "monotone": monotone, "max_steps": max_steps}
    expected = [1]
    for masked, samples in counts[:-1]:
        expected.append(accumulation_steps(samples, masked, previous=expected[-1], **options))
    assert wanted_after(counts, **options) == expected


def test_a_decision_for_several_windows_is_taken_on_all_their_samples() -> None:
    counts = [(8, 8), (0, 24), (30, 32), (31, 32), (0, 1), (0, 1)]
    wanted = wanted_after(counts, update_every=2, monotone=False)
    # 8 of 32 masked: 32 / 24 rounds to 1; 61 of 64 masked: as many as allowed, one more
    assert wanted == [1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("update_every", [1, 2])
def test_nothing_changes_before_the_warm_up_windows(update_every: int) -> None:
    wanted = wanted_after([(8, 8)] * 9, warmup_windows=4, update_every=update_every)
    assert wanted == {1: [1, 1, 1, 1, 2, 3, 4, 4, 4], 2: [1, 1, 1, 1, 2, 2, 3, 3, 4]}[update_every]


def test_the_first_decision_after_the_warm_up_looks_at_its_last_windows_only() -> None:
    counts = [(0, 1000)] * 3 + [(7, 8)] * 2
    assert wanted_after(counts, warmup_windows=4)[-1] == 2


def test_history_holds_the_counts_of_every_window() -> None:
    speed = AdaptiveGradientAccumulation(max_steps=3)
    quiet_trainer(max_epochs=2, callbacks=[speed]).fit(ScriptedMasking((2,)), loader_of(batches_of(8)))
    assert all(isinstance(window, AccumulationWindow) for window in speed.history)
    half = SAMPLES // 2
    assert speed.history[:3] == [
        (0, 0, 1, half, SAMPLES, SAMPLES, 1),
        (0, 1, 1, half, SAMPLES, SAMPLES, 2),
        (0, 2, 2, SAMPLES, 2 * SAMPLES, 2 * SAMPLES, 3),
    ]
    assert [window.epoch for window in speed.history] == sorted(window.epoch for window in speed.history)
    assert sum(window.length for window in speed.history) == 16


class WithLossModule(ScriptedMasking):
    """Reports no counts itself."""

    def __init__(self) -> None:
        super().__init__()
        del self.masking_counter
        self.criterion = ASSoftmaxLoss()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return self.criterion(self.net(batch[0]), batch[1])


@pytest.mark.parametrize("make", [lambda: ScriptedMasking((4,)), WithLossModule], ids=["own counts", "loss module"])
@pytest.mark.parametrize("beside", [[], [MaskingMonitor()]], ids=["alone", "with monitor"])
def test_one_host_read_a_window_and_none_a_batch(
    beside: list[pl.Callback], make: Callable[[], ScriptedMasking], host_reads: Counter[str]
) -> None:
    speed = AdaptiveGradientAccumulation(max_steps=4)
    trainer = quiet_trainer(max_epochs=2, callbacks=[speed, *beside])
    trainer.fit(make(), loader_of(batches_of(24)))
    ours = {name: count for name, count in host_reads.items() if name.startswith("as_lightning.callbacks")}
    # the monitor reads at the end of each epoch, and where it writes a step: here the first and the last
    written = {"as_lightning.callbacks.masking_monitor": 2 + 2} if beside else {}
    assert ours == {"as_lightning.callbacks.adaptive_gradient_accumulation": len(speed.history)} | written
    assert len(speed.history) < 48 or make is WithLossModule


class Classifier(ASSoftmaxMixin, pl.LightningModule):
    """Learns an easy task, so that real masking sets in."""

    def __init__(self, classes: int = 8) -> None:
        super().__init__(delta=0.1)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = torch.nn.Sequential(torch.nn.Linear(classes, 16), torch.nn.ReLU(), torch.nn.Linear(16, classes))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        inputs, target = batch
        return self.as_softmax_loss(self.net(inputs), target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)


def easy_batches(count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    targets = [torch.randint(8, (16,), generator=generator) for _ in range(count)]
    return [(torch.eye(8)[target] + 0.1 * torch.randn(16, 8, generator=generator), target) for target in targets]


def test_bf16_mixed_equals_the_hand_written_loop() -> None:
    data, speed, module = easy_batches(24), AdaptiveGradientAccumulation(max_steps=4), Classifier()
    quiet_trainer(max_epochs=3, callbacks=[speed], precision="bf16-mixed").fit(module, loader_of(data))
    reference = Classifier()

    def loss_of(batch: Any) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return reference.training_step(batch, 0)

    windows = [(window.epoch, window.batch, window.length, window.length) for window in speed.history]
    train_by_hand(reference, reference.configure_optimizers(), [data] * 3, windows, loss_of=loss_of)
    assert max(window.length for window in speed.history) == 4
    assert same_weights(module, reference)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="16-mixed needs a CUDA device")
def test_16_mixed_takes_the_windows_and_the_weights_of_the_hand_written_loop() -> None:
    data, speed, module = easy_batches(24), AdaptiveGradientAccumulation(max_steps=4), Classifier()
    trainer = quiet_trainer(
        max_epochs=3, callbacks=[speed], precision="16-mixed", accelerator="gpu", gradient_clip_val=1.0
    )
    trainer.fit(module, loader_of(data))

    reference = Classifier().cuda()
    optimizer, scaler = reference.configure_optimizers(), torch.amp.GradScaler("cuda")
    for window in speed.history:
        optimizer.zero_grad()
        for inputs, target in data[window.batch : window.batch + window.length]:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = reference.training_step((inputs.cuda(), target.cuda()), 0)
            scaler.scale(loss / window.length).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert max(window.length for window in speed.history) == 4
    for trained, expected in zip(module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(trained.cuda(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="counts device synchronisations of a CUDA device")
def test_no_device_synchronisation_inside_a_window() -> None:
    class Strict(pl.Callback):
        """Inside a window, waiting for the device is an error."""

        def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
            torch.cuda.set_sync_debug_mode("error")

        def on_before_optimizer_step(self, trainer: pl.Trainer, *args: Any) -> None:
            torch.cuda.set_sync_debug_mode("default")

    module = ScriptedMasking((8,)).cuda()
    counts = MaskingCounts(*(count.cuda() for count in masking_that_asks_for(8)))
    module.training_step = lambda batch, _: (  # type: ignore[method-assign]
        module.masking_counter.update(counts),
        module.loss_of(batch),
    )[1]
    data = [(inputs.cuda(), target.cuda()) for inputs, target in batches_of(48)]
    speed = AdaptiveGradientAccumulation(max_steps=8)
    trainer = quiet_trainer(max_epochs=2, callbacks=[speed, MaskingMonitor(), Strict()], accelerator="gpu")
    try:
        trainer.fit(module, loader_of(data))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert max(window.length for window in speed.history) == 8


GPU_ONLY = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="minutes of C++ on a CPU")]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=GPU_ONLY)])
def test_a_compiled_module_takes_the_same_windows(backend: str) -> None:
    torch._dynamo.reset()
    dynamo.clear()
    data = easy_batches(24)
    device = "gpu" if backend == "inductor" else "cpu"
    plain, compiled = AdaptiveGradientAccumulation(max_steps=4), AdaptiveGradientAccumulation(max_steps=4)
    module = Classifier()
    quiet_trainer(max_epochs=3, callbacks=[plain], accelerator=device).fit(module, loader_of(data))
    fast = Classifier()
    quiet_trainer(max_epochs=3, callbacks=[compiled], accelerator=device).fit(
        torch.compile(fast, backend=backend), loader_of(data)
    )
    assert compiled.history == plain.history
    # A window's first batch and the others, and maybe a break in the loss: no graph for every batch that is counted.
    assert dynamo["stats"]["unique_graphs"] <= 6
    for trained, expected in zip(fast.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(trained, expected)
