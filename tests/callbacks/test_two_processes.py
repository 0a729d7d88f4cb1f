"""Two processes (gloo on the CPU): one decision, one small collective a window, the weights of the joint batch.

The other callbacks see the data of both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from harness import two_ranks
from harness.rank_processes import Seen, run_two_ranks
from harness.scripted_masking import OPTIMIZERS, SAMPLES, ScriptedMasking
from harness.torch_limits import FSDP2_ON_A_CPU, skipped_by
from oracles.accumulation_loop import WantedSteps, train_by_hand, windows_of_training

from as_lightning.callbacks.adaptive_gradient_accumulation import GRADIENTS
from as_lightning.callbacks.window import COUNTS
from as_lightning.functional import accumulation_steps

BATCHES, EPOCHS = two_ranks.BATCHES, two_ranks.EPOCHS


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return run_two_ranks(
        two_ranks.__file__, tmp_path_factory.mktemp("two-ranks"), [*two_ranks.SCENARIOS], CUDA_VISIBLE_DEVICES=""
    )


def joint_batches(ranks: tuple[int, ...] = (0, 1)) -> list[Any]:
    parts_of_batches = zip(*map(two_ranks.data_of, ranks), strict=True)
    return [tuple(map(torch.cat, zip(*parts, strict=True))) for parts in parts_of_batches]


def trained_on_joint_batches(windows: list[tuple[int, int, int, int]], ranks: tuple[int, ...] = (0, 1)) -> Any:
    module = ScriptedMasking(dtype=torch.float64)
    epochs = [joint_batches(ranks)] * EPOCHS
    train_by_hand(module, OPTIMIZERS["sgd"](module), epochs, windows, loss_of=module.loss_of)
    return module.state_dict()


def assert_same_weights(weights: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-12, atol=1e-14)


def expected_windows(masked: int, samples: int, max_steps: int) -> list[tuple[int, int, int, int]]:
    """Windows when every batch reports these counts, summed over the ranks."""
    steps = [1]

    def wanted() -> int:
        steps.append(accumulation_steps(samples, masked, max_steps=max_steps, previous=steps[-1]))
        return steps[-2]

    return windows_of_training([BATCHES] * EPOCHS, wanted)


@pytest.mark.parametrize(
    ("scenario", "masked", "samples", "max_steps"),
    [
        ("different_masking", SAMPLES - SAMPLES // 8, 2 * SAMPLES, 6),
        ("with_the_monitor", SAMPLES - SAMPLES // 8, 2 * SAMPLES, 6),
        ("one_rank_all_ignored", SAMPLES - SAMPLES // 3, SAMPLES, 6),
        ("nothing_but_ignored", 0, 0, 6),
        pytest.param("fully_sharded", SAMPLES - SAMPLES // 8, 2 * SAMPLES, 6, marks=skipped_by(FSDP2_ON_A_CPU)),
    ],
)
def test_both_ranks_take_the_windows_of_the_joint_counts_and_end_with_the_joint_weights(
    scenario: str, masked: int, samples: int, max_steps: int, seen: Seen
) -> None:
    windows = expected_windows(masked, samples, max_steps)
    expected = trained_on_joint_batches(windows)
    for rank in seen(scenario):
        assert [window[:5] for window in rank["history"]] == [
            (e, b, n, n * masked, n * samples) for e, b, n, _ in windows
        ]
        assert_same_weights(rank["weights"], expected)


def test_ranks_that_share_their_batches_are_counted_once(seen: Seen) -> None:
    windows = windows_of_training([BATCHES] * EPOCHS, WantedSteps((8,), 6))
    expected = trained_on_joint_batches(windows, ranks=(0,))
    for rank in seen("tensor_parallel"):
        assert [window[:3] for window in rank["history"]] == [window[:3] for window in windows]
        assert rank["history"][0][4] == SAMPLES
        assert_same_weights(rank["weights"], expected)


@pytest.mark.parametrize(
    "scenario",
    ["a_stream_of_unknown_length", pytest.param("fully_sharded_stream", marks=skipped_by(FSDP2_ON_A_CPU))],
)
def test_the_last_window_of_a_stream_keeps_its_scale(scenario: str, seen: Seen) -> None:
    windows = windows_of_training([BATCHES] * EPOCHS, WantedSteps((8,), 4), length_known=False)
    assert windows[-1] == (1, 24, 2, 4)
    expected = trained_on_joint_batches(windows)
    for rank in seen(scenario):
        assert [window[:3] for window in rank["history"]] == [window[:3] for window in windows]
        assert_same_weights(rank["weights"], expected)


@pytest.mark.parametrize("scenario", ["different_masking", "with_the_monitor", "one_rank_all_ignored"])
def test_gradients_are_reduced_on_stepping_batches_only(scenario: str, seen: Seen) -> None:
    for rank in seen(scenario):
        stepping = [(epoch, batch + length - 1) for epoch, batch, length, *_ in rank["history"]]
        assert rank["bucket_batches"] == rank["stepping_batches"] == stepping
        assert len(stepping) < BATCHES * EPOCHS
    for rank in seen("without_accumulation"):
        assert len(rank["bucket_batches"]) == BATCHES * EPOCHS


GRADIENT_BUCKET = ("all_reduce", 36)  # the net has 36 parameters


@pytest.mark.parametrize("scenario", ["different_masking", "with_the_monitor", "one_rank_all_ignored"])
def test_a_window_costs_one_collective_of_four_integers(scenario: str, seen: Seen) -> None:
    for rank, plain in zip(seen(scenario), seen("without_accumulation"), strict=True):
        windows = len(rank["history"])
        of_lightning = {key: count for key, count in plain["collectives"].items() if key != GRADIENT_BUCKET}
        assert rank["collectives"] == of_lightning | {GRADIENT_BUCKET: windows, ("all_reduce", 4): windows}


@pytest.mark.parametrize(
    ("resumed", "uninterrupted"),
    [
        ("resumed_inside_a_window", "uninterrupted"),
        pytest.param("sharded_resumed_between_windows", "sharded_uninterrupted", marks=skipped_by(FSDP2_ON_A_CPU)),
    ],
)
def test_a_resumed_run_ends_as_if_it_had_not_stopped(resumed: str, uninterrupted: str, seen: Seen) -> None:
    for rest, whole in zip(seen(resumed), seen(uninterrupted), strict=True):
        assert 0 < len(rest["history"]) < len(whole["history"])
        assert rest["history"] == whole["history"][-len(rest["history"]) :]
        assert_same_weights(rest["weights"], whole["weights"])


def test_a_checkpoint_that_slurm_may_have_asked_for_starts_no_collective_of_its_own(seen: Seen) -> None:
    for rank in seen("preempted_by_slurm"):  # a signal may find the ranks at different batches
        ours = {key for key in rank["collectives"] if key[0] == "all_reduce"} - {GRADIENT_BUCKET}
        assert ours == {("all_reduce", 4)}
        assert rank["collectives"]["all_reduce", 4] == len(rank["history"])


SHARDED = "sharded_resumed_inside_a_window", "sharded_uninterrupted", 7
INSIDE_A_WINDOW = [("requeued_by_slurm", "uninterrupted", 3), pytest.param(*SHARDED, marks=skipped_by(FSDP2_ON_A_CPU))]


@pytest.mark.parametrize(("resumed", "uninterrupted", "known"), INSIDE_A_WINDOW)  # known without a collective: 3 fields
def test_a_run_resumed_without_its_gradients_takes_its_windows_and_says_what_is_lost(
    resumed: str, uninterrupted: str, known: int, seen: Seen
) -> None:
    rest, whole = ([window[:known] for window in seen(name)[0]["history"]] for name in (resumed, uninterrupted))
    assert rest == whole[-len(rest) :]
    assert any("after 2 of its 4 batches" in message for message in seen(resumed)[0]["warnings"])


def test_ranks_that_fail_save_nothing_that_takes_all_of_them(seen: Seen) -> None:
    for rank in seen("failing_validation"):
        assert rank == {"window is open": True, COUNTS: False, GRADIENTS: False}


@pytest.mark.parametrize(("scenario", "samples"), [("validated_parts", 4 * 8), ("validated_shared", 4 * 2)])
def test_the_histogram_counts_each_validation_sample_once(scenario: str, samples: int, seen: Seen) -> None:
    assert [rank["samples"] for rank in seen(scenario)] == [samples] * 2


def test_the_temperature_and_the_masking_rate_of_two_processes_are_those_of_the_whole(seen: Seen) -> None:
    for rank in seen("validated_parts"):
        assert rank["temperature"] == pytest.approx(rank["of the whole"], rel=1e-4)
        assert rank["temperature"] != pytest.approx(rank["of its own"], rel=0.01)
        assert rank["masking rate"] == pytest.approx(3 / 40)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="FSDPStrategy needs a GPU for each of two processes")
def test_fsdp_on_two_gpus_ends_with_the_joint_weights(tmp_path: Path) -> None:
    first, second = run_two_ranks(two_ranks.__file__, tmp_path, ["fsdp"])("fsdp")
    windows = expected_windows(SAMPLES - SAMPLES // 8, 2 * SAMPLES, 6)
    assert first["history"] == second["history"]
    assert [window[:3] for window in first["history"]] == [window[:3] for window in windows]
    weights = first["weights"] or second["weights"]  # the full ones are on the first rank
    assert_same_weights(weights, trained_on_joint_batches(windows))
