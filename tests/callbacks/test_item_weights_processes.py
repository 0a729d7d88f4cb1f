"""Two processes with different items in their batches step as one large batch of the items of both, to 1e-12."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from harness import item_weights_on_two_ranks as ranks
from harness.rank_processes import Seen, run_two_ranks
from harness.scripted_masking import quiet_trainer
from harness.stateful_loader import StatefulLoader
from harness.token_batches import MaskedTagger, Tagger
from harness.torch_limits import FSDP2_ON_A_CPU, TENSOR_PARALLEL_CLIPPED, skipped_by
from oracles.large_batch import train_on_large_batches

BATCHES = len(ranks.COUNTS[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("item-weights")


@pytest.fixture(scope="module")
def seen(folder: Path) -> Seen:
    return run_two_ranks(ranks.__file__, folder, [*ranks.SCENARIOS], CUDA_VISIBLE_DEVICES="")


def joint(of_ranks: tuple[int, ...] = (0, 1)) -> list[Any]:
    parts_of_batches = zip(*map(ranks.data_of, of_ranks), strict=True)
    return [tuple(map(torch.cat, zip(*parts, strict=True))) for parts in parts_of_batches]


def on_large_batches(module: Tagger, batches: list[Any], history: list[Any]) -> dict[str, Any]:
    windows = [(window[0] * BATCHES + window[1], window[2]) for window in history]
    options: Any = {"loss_of_items": module.losses, "clip_norm": ranks.CLIP}
    train_on_large_batches(module, module.configure_optimizers(), batches * 2, windows, **options)
    return module.state_dict()


def assert_same_weights(weights: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "scenario",
    [
        "no_sync",
        "without_no_sync",
        "stream",
        "sums",
        "mixin",
        pytest.param("fully_sharded", marks=skipped_by(FSDP2_ON_A_CPU)),
    ],
)
def test_both_ranks_step_as_one_large_batch_of_the_items_of_both(scenario: str, seen: Seen) -> None:
    first, second = seen(scenario)
    module = MaskedTagger() if scenario == "mixin" else Tagger()
    assert first["history"] == second["history"]
    assert first["history"][0][:3] == (0, 0, 4)
    assert first["history"][0][5] == sum(sum(counts[:4]) for counts in ranks.COUNTS)
    expected = on_large_batches(module, joint(), first["history"])
    for rank in (first, second):
        assert_same_weights(rank["weights"], expected)


@skipped_by(TENSOR_PARALLEL_CLIPPED)
def test_ranks_that_share_their_batches_count_their_items_once(seen: Seen) -> None:
    first, second = seen("tensor_parallel")
    assert first["history"][0][5] == sum(ranks.COUNTS[0][:4])
    expected = on_large_batches(Tagger(), joint((0,)), first["history"])
    for rank in (first, second):
        assert_same_weights(rank["weights"], expected)


GRADIENT_BUCKET = ("all_reduce", sum(parameter.numel() for parameter in Tagger().parameters()))


@pytest.mark.parametrize("scenario", ["no_sync", "mixin"])
def test_a_window_costs_one_small_collective(scenario: str, seen: Seen) -> None:
    for rank in seen(scenario):
        windows = len(rank["history"])
        reduced = {key: count for key, count in rank["collectives"].items() if key[0] == "all_reduce"}
        first_unit = {("all_reduce", 1): 1}
        assert reduced == {GRADIENT_BUCKET: windows, ("all_reduce", 5): windows} | first_unit


def test_a_run_resumed_after_any_batch_ends_as_if_it_had_not_stopped(seen: Seen) -> None:
    for resumed, whole in zip(seen("resumed"), seen("whole"), strict=True):
        assert len(resumed["runs"]) == BATCHES
        for run in resumed["runs"]:
            assert run["history"] == whole["history"][-len(run["history"]) :]
            assert_same_weights(run["weights"], whole["weights"])


def test_a_window_of_two_processes_goes_on_in_one_with_the_weight_of_both(seen: Seen, folder: Path) -> None:
    seen("whole")  # has saved the checkpoints
    module, speed = Tagger(), ranks.speed()
    trainer = quiet_trainer(max_epochs=1, limit_train_batches=4, callbacks=[speed], gradient_clip_val=ranks.CLIP)
    loader = StatefulLoader(ranks.data_of(0))
    trainer.fit(module, loader, ckpt_path=folder / "0-01.ckpt")
    order = torch.randperm(BATCHES, generator=torch.Generator().manual_seed(0)).tolist()  # of the loader's first epoch
    of_both, of_one = joint(), ranks.data_of(0)
    window = [of_both[i] for i in order[:2]] + [of_one[i] for i in order[2:4]]
    reference = Tagger()
    options: Any = {"loss_of_items": reference.losses, "clip_norm": ranks.CLIP}
    train_on_large_batches(reference, reference.configure_optimizers(), window, [(0, 4)], **options)
    assert_same_weights(module.state_dict(), reference.state_dict())
