"""Two processes (gloo on the CPU): one decision, one small collective a window, the weights of the
joint batch.
"""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import two_ranks
from harness.rank_processes import Seen, run_two_ranks
from harness.scripted_masking import OPTIMIZERS, SAMPLES, ScriptedMasking
from harness.token_batches import MaskedTagger, Tagger
from harness.torch_limits import FSDP2_ON_A_CPU, TENSOR_PARALLEL_CLIPPED, skipped_by
from oracles.accumulation_loop import train_by_hand, windows_of_training
from oracles.large_batch import train_on_large_batches

from as_lightning.functional import accumulation_steps

BATCHES, EPOCHS = two_ranks.BATCHES, two_ranks.EPOCHS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two-ranks")


@pytest.fixture(scope="module")
def seen(folder: Path) -> Seen:
    return run_two_ranks(
        two_ranks.__file__, folder, [*two_ranks.SCENARIOS], CUDA_VISIBLE_DEVICES=""
    )


def joint_batches(ranks=(0, 1), data_of=two_ranks.data_of):
    parts_of_batches = zip(*map(data_of, ranks), strict=True)
    return [tuple(map(torch.cat, zip(*parts, strict=True))) for parts in parts_of_batches]


def trained_on_joint_batches(windows, ranks=(0, 1)):
    module = ScriptedMasking(dtype=torch.float64)
    epochs = [joint_batches(ranks)] * EPOCHS
    train_by_hand(
        module,
        OPTIMIZERS["sgd"](module),
        epochs,
        windows,
        loss_of=module.loss_of,
        rate_scale=math.sqrt,
    )
    return module.state_dict()


def assert_same_weights(weights, expected, rtol=1e-12):
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, rtol=rtol, atol=1e-14 if rtol else 1e-12)


def expected_windows(masked: int, samples: int, max_steps: int) -> list[tuple[int, int, int]]:
    """Windows when every batch reports these counts, summed over the ranks."""
    steps = [1]

    def wanted(batch: int) -> int:
        steps.append(accumulation_steps(samples, masked, max_steps=max_steps, previous=steps[-1]))
        return steps[-2]

    return windows_of_training(BATCHES, EPOCHS, wanted)


OF_EIGHT = SAMPLES - SAMPLES // 8  # masked samples that ask for eight batches


@pytest.mark.parametrize(
    ("scenario", "masked", "samples", "max_steps", "ranks"),
    [
        ("different_masking", OF_EIGHT, 2 * SAMPLES, 6, (0, 1)),
        ("with_the_monitor", OF_EIGHT, 2 * SAMPLES, 6, (0, 1)),
        ("one_rank_all_ignored", SAMPLES - SAMPLES // 3, SAMPLES, 6, (0, 1)),
        pytest.param(
            "fully_sharded", OF_EIGHT, 2 * SAMPLES, 6, (0, 1), marks=skipped_by(FSDP2_ON_A_CPU)
        ),
        ("tensor_parallel", OF_EIGHT, SAMPLES, 6, (0,)),  # the ranks share their batches
        ("a_stream_of_unknown_length", 2 * OF_EIGHT, 2 * SAMPLES, 4, (0, 1)),
    ],
)
def test_both_ranks_take_the_windows_of_the_joint_counts_and_end_with_the_joint_weights(
    scenario, masked, samples, max_steps, ranks, seen
):
    windows = expected_windows(masked, samples, max_steps)
    expected = trained_on_joint_batches(windows, ranks)
    for rank in seen(scenario):
        assert [window[:5] for window in rank["history"]] == [
            (e, b, n, n * masked, n * samples) for e, b, n in windows
        ]
        assert_same_weights(rank["weights"], expected)


def test_a_schedule_without_a_counter_ends_with_the_joint_weights(seen: Seen) -> None:
    windows = windows_of_training(BATCHES, EPOCHS, lambda batch: 4)
    expected = trained_on_joint_batches(windows)
    for rank in seen("without_a_counter"):
        assert [window[:5] for window in rank["history"]] == [
            (e, b, n, 0, 0) for e, b, n in windows
        ]
        assert_same_weights(rank["weights"], expected)


@pytest.mark.parametrize(
    "scenario", ["different_masking", "with_the_monitor", "one_rank_all_ignored"]
)
def test_gradients_are_reduced_on_stepping_batches_only(scenario: str, seen: Seen) -> None:
    for rank in seen(scenario):
        stepping = [(epoch, batch + length - 1) for epoch, batch, length, *_ in rank["history"]]
        assert rank["bucket_batches"] == rank["stepping_batches"] == stepping
        assert len(stepping) < BATCHES * EPOCHS
    for rank in seen("without_accumulation"):
        assert len(rank["bucket_batches"]) == BATCHES * EPOCHS


GRADIENT_BUCKET = ("all_reduce", 36)  # the net has 36 parameters


@pytest.mark.parametrize(
    "scenario", ["different_masking", "with_the_monitor", "one_rank_all_ignored"]
)
def test_a_window_costs_one_collective_of_four_numbers_and_the_monitor_one_of_its_own(
    scenario, seen
):
    for rank, plain in zip(seen(scenario), seen("without_accumulation"), strict=True):
        windows = len(rank["history"])
        of_lightning = {
            key: count for key, count in plain["collectives"].items() if key != GRADIENT_BUCKET
        }
        beside = 2 if scenario == "with_the_monitor" else 1
        assert rank["collectives"] == of_lightning | {
            GRADIENT_BUCKET: windows,
            ("all_reduce", 4): beside * windows,
        }


@pytest.mark.parametrize(
    ("resumed", "uninterrupted"),
    [
        ("resumed_between_windows", "uninterrupted"),
        pytest.param(
            "sharded_resumed_between_windows",
            "sharded_uninterrupted",
            marks=skipped_by(FSDP2_ON_A_CPU),
        ),
    ],
)
def test_a_resumed_run_ends_as_if_it_had_not_stopped(resumed, uninterrupted, seen):
    for rest, whole in zip(seen(resumed), seen(uninterrupted), strict=True):
        assert 0 < len(rest["history"]) < len(whole["history"])
        assert rest["history"] == whole["history"][-len(rest["history"]) :]
        assert_same_weights(rest["weights"], whole["weights"])


def test_a_run_resumed_inside_a_window_takes_its_windows_and_says_what_is_lost(seen: Seen) -> None:
    resumed, _ = seen("resumed_inside_a_window")
    rest, whole = resumed["history"], seen("uninterrupted")[0]["history"]
    assert [window[:3] for window in rest] == [window[:3] for window in whole[-len(rest) :]]
    assert any("after 2 of its batches" in message for message in resumed["warnings"])


@pytest.mark.parametrize(
    ("scenario", "samples"), [("validated_parts", 4 * 8), ("validated_shared", 4 * 2)]
)
def test_the_histogram_counts_each_validation_sample_once(scenario, samples, seen):
    assert [rank["samples"] for rank in seen(scenario)] == [samples] * 2


def test_the_temperature_and_the_masking_rate_of_two_processes_are_those_of_the_whole(seen):
    for rank in seen("validated_parts"):
        assert rank["temperature"] == pytest.approx(rank["of the whole"], rel=1e-4)
        assert rank["temperature"] != pytest.approx(rank["of its own"], rel=0.01)
        assert rank["masking rate"] == pytest.approx(3 / 40)


def test_a_rank_without_batches_of_an_evaluation_keeps_nobody_waiting(seen: Seen) -> None:
    first, second = seen("evaluated_on_one_rank")
    assert first == second
    assert first == first | {"samples": 24, "tested": 24.0, "labels": False}
    assert first["temperature"] not in (None, 1.0)


# Batches of different items: two processes step as one large batch of the items of both, to 1e-12

joint_tokens = partial(joint_batches, data_of=two_ranks.tokens_of)
exactly = partial(assert_same_weights, rtol=0.0)


def on_large_batches(module, batches, windows):
    options: Any = {"loss_of_items": module.losses, "clip_norm": two_ranks.CLIP}
    train_on_large_batches(module, module.configure_optimizers(), batches, windows, **options)
    return module.state_dict()


def windows_of(history: list[Any]) -> list[tuple[int, int]]:
    return [(window[0] * len(two_ranks.ITEMS[0]) + window[1], window[2]) for window in history]


@pytest.mark.parametrize(
    "scenario",
    [
        *["items", "a_budget_of_items", "items_of_the_mixin"],
        pytest.param("items_fully_sharded", marks=skipped_by(FSDP2_ON_A_CPU)),
        pytest.param("items_tensor_parallel", marks=skipped_by(TENSOR_PARALLEL_CLIPPED)),
    ],
)
@pytest.mark.bug_report(
    "huggingface/transformers#34242",
    "Tokens are averaged in each process first: two processes train otherwise than one.",
)
def test_both_ranks_step_as_one_large_batch_of_the_items_of_both(scenario: str, seen: Seen) -> None:
    first, second = seen(scenario)
    module = MaskedTagger() if scenario == "items_of_the_mixin" else Tagger()
    assert first["history"] == second["history"]
    ranks = (0,) if scenario == "items_tensor_parallel" else (0, 1)  # which share their batches
    length = first["history"][0][2]
    assert first["history"][0][5] == sum(sum(two_ranks.ITEMS[rank][:length]) for rank in ranks)
    expected = on_large_batches(module, joint_tokens(ranks) * 2, windows_of(first["history"]))
    for rank in (first, second):
        exactly(rank["weights"], expected)


def test_a_budget_closes_with_the_batch_that_fills_it_on_both_ranks(seen: Seen) -> None:
    of_batches = [sum(items) for items in zip(*two_ranks.ITEMS, strict=True)]
    for rank in seen("a_budget_of_items"):
        for _, first, length, _, _, items in rank["history"]:
            assert items == sum(of_batches[first : first + length])
            assert items - of_batches[first + length - 1] < 60
            assert items >= 60 or first + length == len(of_batches)
        batches, windows = EPOCHS * len(of_batches), len(rank["history"])
        reduced = {key: n for key, n in rank["collectives"].items() if key[0] == "all_reduce"}
        bucket = ("all_reduce", sum(parameter.numel() for parameter in Tagger().parameters()))
        assert reduced == {bucket: windows, ("all_reduce", 4): windows, ("all_reduce", 1): batches}


@pytest.mark.gpu
@pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason="FSDPStrategy needs a GPU for each of two processes"
)
def test_fsdp_on_two_gpus_ends_with_the_joint_weights(tmp_path: Path) -> None:
    first, second = run_two_ranks(two_ranks.__file__, tmp_path, ["fsdp"])("fsdp")
    windows = expected_windows(OF_EIGHT, 2 * SAMPLES, 6)
    assert first["history"] == second["history"]
    assert [window[:3] for window in first["history"]] == [window[:3] for window in windows]
    weights = first["weights"] or second["weights"]  # the full ones are on the first rank
    assert_same_weights(weights, trained_on_joint_batches(windows))
