"""What a checkpoint keeps; that a run goes on from any of them is in `tests/contracts`."""

import json
import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import (
    OPTIMIZERS,
    KeepsRows,
    SavesEveryBatch,
    ScriptedMasking,
    batches_of,
    loader_of,
    quiet_trainer,
    same_weights,
    with_a_scaler,
)
from harness.stateful_loader import StatefulLoader
from harness.token_batches import MaskedTagger, Tagger, token_batches, tokens_in
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from oracles.accumulation_loop import WantedSteps, train_by_hand, windows_of_training

from as_lightning.callbacks import (
    AccumulationSchedule,
    AdaptiveGradientAccumulation,
    MaskingMonitor,
)


class SavesInsideABatch(pl.Callback):
    def __init__(self, path: Path, batch: int) -> None:
        self.path, self.batch = path, batch

    def on_after_backward(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.fit_loop.total_batch_idx == self.batch:
            trainer.save_checkpoint(self.path)


def test_a_checkpoint_from_inside_a_batch_says_what_is_lost_and_keeps_the_scale(
    tmp_path: Path,
) -> None:
    data = batches_of(12, dtype=torch.float64)
    path = tmp_path / "inside.ckpt"

    def train(callbacks: list[pl.Callback], resume_from: Path | None = None) -> tuple[Any, Any]:
        module, speed = (
            ScriptedMasking((4,), dtype=torch.float64),
            AdaptiveGradientAccumulation(max_steps=4),
        )
        trainer = quiet_trainer(max_epochs=2, callbacks=[speed, *callbacks])
        trainer.fit(module, loader_of(data), ckpt_path=resume_from)
        return module, speed

    _, speed = train([SavesInsideABatch(path, 12 + 6)])  # the third batch of the window (1, 4, 4)
    saved = torch.load(path, weights_only=True)
    with pytest.warns(UserWarning, match="after 2 of its 4 batches"):
        resumed, speed_resumed = train([], path)
    windows = windows_of_training([12] * 2, WantedSteps((4,), 4))
    assert [window[:3] for window in speed.history] == [window[:3] for window in windows]
    assert [window[:3] for window in speed_resumed.history] == [
        window[:3] for window in windows[-2:]
    ]

    reference = ScriptedMasking((4,), dtype=torch.float64)
    reference.load_state_dict(saved["state_dict"])
    optimizer = OPTIMIZERS["sgd"](reference)
    optimizer.load_state_dict(saved["optimizer_states"][0])
    # Lightning runs the batch again; its loader starts over, as it is not stateful.
    assert windows[-2:] == [(1, 4, 4, 4), (1, 8, 4, 4)]
    rest = [(0, 0, 2, 2), (0, 2, 4, 4)]
    train_by_hand(
        reference, optimizer, [data], rest, loss_of=reference.loss_of, rate_scale=math.sqrt
    )
    for trained, expected in zip(resumed.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(trained, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("scales", [(2.0**16, None), (None, 2.0**10)])
@pytest.mark.parametrize("items", [None, tokens_in])
def test_an_open_window_goes_on_with_another_gradient_scale_or_none(
    scales: Any, items: Any, tmp_path: Path
) -> None:
    def train(scale: float | None, resume_from: Path | None = None) -> Tagger:
        speed = AdaptiveGradientAccumulation(AccumulationSchedule({0: 4}), items=items)
        plugins = [] if scale is None else [with_a_scaler(init_scale=scale)]
        callbacks = [speed, *([SavesEveryBatch(tmp_path)] if resume_from is None else [])]
        module, trainer = (
            Tagger(),
            quiet_trainer(max_epochs=1, callbacks=callbacks, plugins=plugins),
        )
        trainer.fit(
            module, StatefulLoader(token_batches((3, 17, 1, 24, 8, 2))), ckpt_path=resume_from
        )
        return module

    whole = train(scales[0])
    assert same_weights(train(scales[1], tmp_path / "0-01.ckpt"), whole)


def test_testing_the_best_checkpoint_does_not_rewind_the_history(tmp_path: Path) -> None:
    class Tests(ScriptedMasking):
        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.loss_of(batch)

    callbacks = speed, monitor = AdaptiveGradientAccumulation(max_steps=4), MaskingMonitor()
    trainer = quiet_trainer(max_epochs=2, callbacks=[*callbacks, SavesEveryBatch(tmp_path)])
    trainer.fit(Tests((4,)), loader_of(batches_of(8)))
    histories = [list(callback.history) for callback in callbacks]
    trainer.test(
        ckpt_path=tmp_path / "0-03.ckpt", dataloaders=loader_of(batches_of(1)), verbose=False
    )
    assert [callback.history for callback in callbacks] == histories
    assert len(speed.history) > 4
    assert len(monitor.history) == 2


def test_state_is_plain_data_of_a_size_that_does_not_grow() -> None:
    def state_after(epochs: int) -> dict[str, Any]:
        speed = AdaptiveGradientAccumulation(max_steps=4)
        quiet_trainer(max_epochs=epochs, callbacks=[speed]).fit(
            ScriptedMasking((4,)), loader_of(batches_of(9))
        )
        assert len(speed.history) >= 3 * epochs
        return speed.state_dict()

    short, long = state_after(1), state_after(20)
    other = AdaptiveGradientAccumulation(max_steps=4)
    other.load_state_dict(long)
    assert other.state_dict() == long
    assert len(json.dumps(long)) <= len(json.dumps(short)) + 4  # digits of a count


# Saved by version 0.3.0 in the second window of four, after two of its batches, of two epochs of
# `ITEMS`.
OF_0_3: dict[str, Any] = torch.load(
    Path(__file__).with_name("checkpoints_of_0_3.pt"), weights_only=True
)
ITEMS = token_batches((3, 0, 17, 1, 24, 8, 2, 24, 5))
# its module, what today's callback is told, how the schedule counts, the other callbacks
ROWS_OF_0_3: dict[str, tuple[Any, dict[str, Any], Any, Any]] = {
    "items": (Tagger, {"items": tokens_in}, "samples", list),
    "items of the counter, and the monitor": (
        MaskedTagger,
        {"items": "module"},
        "step",
        lambda: [MaskingMonitor()],
    ),
    "batches": (Tagger, {}, "step", list),
}


def train_tokens(
    name: str, resume_from: Path | None = None, **others: Any
) -> tuple[Any, Any, list[Any]]:
    make, settings, by, beside = ROWS_OF_0_3[name]
    speed = AdaptiveGradientAccumulation(AccumulationSchedule({0: 4}, by=by), **(settings | others))
    module, logger = make(), KeepsRows()
    trainer = quiet_trainer(
        max_epochs=2, callbacks=[speed, *beside()], logger=logger, log_every_n_steps=1
    )
    batches = ITEMS if settings else [batch for batch in ITEMS if tokens_in(batch)]
    trainer.fit(module, StatefulLoader(batches), ckpt_path=resume_from)
    return (
        module,
        speed,
        [row["accumulation/loss"] for row in logger.rows if "accumulation/loss" in row],
    )


@pytest.mark.parametrize("name", ROWS_OF_0_3)
def test_a_checkpoint_of_0_3_from_inside_a_window_goes_on_as_if_unbroken(
    name: str, tmp_path: Path
) -> None:
    assert OF_0_3[name]["callbacks"]["AdaptiveGradientAccumulation"]["window"]["accumulated"] == 2
    torch.save(OF_0_3[name], tmp_path / "0.3.ckpt")
    whole, speed, losses = train_tokens(name)
    resumed, speed_resumed, losses_resumed = train_tokens(name, tmp_path / "0.3.ckpt")
    torch.testing.assert_close(
        dict(resumed.named_parameters()), dict(whole.named_parameters())
    )  # another machine's
    without_items_seen = [
        [window[:-1] for window in callback.history] for callback in (speed, speed_resumed)
    ]
    assert (
        without_items_seen[1] == without_items_seen[0][1:]
    )  # those before were not counted, nor the losses summed
    assert math.isnan(losses_resumed[0])
    assert losses_resumed[1:] == pytest.approx(losses[2:])


def test_a_window_of_0_3_that_was_weighed_in_another_way_is_refused(tmp_path: Path) -> None:
    torch.save(OF_0_3["items"], tmp_path / "0.3.ckpt")
    with pytest.raises(
        MisconfigurationException,
        match=r"inside a window of .* do not add to those of .*: resume with",
    ):
        train_tokens("items", tmp_path / "0.3.ckpt", items=None)
