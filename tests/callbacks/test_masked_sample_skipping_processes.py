"""Two processes share one plan in equal parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harness import skipping_on_two_ranks
from harness.rank_processes import Seen, run_two_ranks
from harness.sleeping_samples import SAMPLES
from oracles.sleep_plan import LIVE, MASKED, NOT_VISITED, awake_after

SHARED = ("random_order", "by_length", "weighted")
RESUMED = ("saved_inside", "resumed_inside", "resumed_at_the_last_batch", "stopped", "resumed_after_a_stop")
OTHERS = ("without_sleep", "without_the_callback", *RESUMED, "own_order_on_each_rank")
NARROWED = ("narrowed", "not_narrowed")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("skipping")
    return run_two_ranks(skipping_on_two_ranks.__file__, folder, [*SHARED, *OTHERS, *NARROWED])


def visited(seen: list[dict[str, Any]], epoch: int) -> list[int]:
    return sorted(number for rank in seen for batch in rank["epochs"][epoch] for number in batch)


@pytest.mark.parametrize("scenario", SHARED)
def test_ranks_take_equally_many_batches_and_none_takes_a_sample_twice(ranks: Seen, scenario: str) -> None:
    seen = ranks(scenario)
    assert seen[0]["lengths"] == seen[1]["lengths"]
    for epoch, length in enumerate(seen[0]["lengths"]):
        assert [len(rank["epochs"][epoch]) for rank in seen] == [length, length]
        assert len(visited(seen, epoch)) == len(set(visited(seen, epoch)))
    assert min(seen[0]["lengths"]) < seen[0]["lengths"][0]


@pytest.mark.parametrize("scenario", ["random_order", "by_length"])
def test_the_union_of_the_ranks_is_the_plan(ranks: Seen, scenario: str) -> None:
    seen, outcomes = ranks(scenario), []
    for epoch in range(skipping_on_two_ranks.EPOCHS):
        if epoch:
            awake = {number for number, takes_part in enumerate(awake_after(outcomes, 4)) if takes_part}
        else:
            awake = set(range(SAMPLES))
        taken = set(visited(seen, epoch))
        of_each = max(len(awake) // 2, 4)  # of an odd number one is left out; no batch has a single sample
        assert len(taken) == 2 * (of_each + (of_each % 4 == 1))
        assert taken <= awake or awake <= taken
        live = seen[0]["live"][epoch] | seen[1]["live"][epoch]
        outcomes.append([NOT_VISITED if n not in live else LIVE if live[n] else MASKED for n in range(SAMPLES)])
        assert seen[0]["history"][epoch][2:5] == (len(awake), len(taken), outcomes[-1].count(MASKED))


@pytest.mark.parametrize("scenario", SHARED)
def test_ranks_agree_on_history_validation_and_weights(ranks: Seen, scenario: str) -> None:
    seen = ranks(scenario)
    assert seen[0]["history"] == seen[1]["history"]
    assert seen[0]["validated"] == seen[1]["validated"]
    assert len(seen[0]["validated"]) == 1 + skipping_on_two_ranks.EPOCHS  # and the sanity check
    for name, weight in seen[0]["weights"].items():
        assert torch.equal(weight, seen[1]["weights"][name])


def test_without_sleep_each_rank_has_the_batches_and_weights_of_a_training_without_the_callback(ranks: Seen) -> None:
    for with_callback, without in zip(ranks("without_sleep"), ranks("without_the_callback"), strict=True):
        assert with_callback["epochs"] == without["epochs"]
        for name, weight in without["weights"].items():
            assert torch.equal(weight, with_callback["weights"][name])


def test_a_training_resumed_inside_an_epoch_goes_on_with_the_same_plan(ranks: Seen) -> None:
    for whole, resumed in zip(ranks("saved_inside"), ranks("resumed_inside"), strict=True):
        assert resumed["epochs"][0] == whole["epochs"][2][1:]
        assert resumed["epochs"][1:] == whole["epochs"][3:]
        assert resumed["history"] == whole["history"]
        for name, weight in whole["weights"].items():
            assert torch.equal(weight, resumed["weights"][name])


def test_a_training_resumed_at_the_last_batch_of_an_epoch_goes_on_with_the_plan_of_the_next(ranks: Seen) -> None:
    for whole, resumed in zip(ranks("saved_inside"), ranks("resumed_at_the_last_batch"), strict=True):
        batches = [batch for epoch in resumed["epochs"] for batch in epoch]  # Lightning begins no epoch 3
        assert batches == [batch for epoch in whole["epochs"][3:] for batch in epoch]
        assert resumed["history"] == whole["history"]
        for name, weight in whole["weights"].items():
            assert torch.equal(weight, resumed["weights"][name])


def test_processes_that_an_exception_has_stopped_take_as_many_batches_as_were_left(ranks: Seen) -> None:
    assert ranks("stopped")[0]["inside_epoch"] == ["length", "followed"]  # nothing that they must gather
    whole, resumed = ranks("saved_inside"), ranks("resumed_after_a_stop")
    for rank in range(2):
        assert len(resumed[rank]["epochs"][0]) == len(whole[rank]["epochs"][2]) - 1
        assert {number for batch in resumed[rank]["epochs"][0] for number in batch} <= set(visited(whole, 2))
        assert resumed[rank]["history"][:2] == whole[rank]["history"][:2]
        assert resumed[rank]["history"][2:] == resumed[0]["history"][2:]
        assert len(resumed[rank]["history"]) == skipping_on_two_ranks.EPOCHS
    for name, weight in resumed[0]["weights"].items():
        assert torch.equal(weight, resumed[1]["weights"][name])


def test_a_sampler_of_each_ranks_own_is_refused(ranks: Seen) -> None:
    with pytest.raises(AssertionError, match="leave Trainer\\(use_distributed_sampler=True\\)"):
        ranks("own_order_on_each_rank")


def test_narrowed_batches_change_no_step_though_a_rank_has_no_live_sample(ranks: Seen) -> None:
    for narrowed, whole in zip(ranks("narrowed"), ranks("not_narrowed"), strict=True):
        torch.testing.assert_close(narrowed["weights"], whole["weights"], rtol=0.0, atol=1e-12)
        assert narrowed["counts"] == whole["counts"]
        assert [epoch[:-1] for epoch in narrowed["history"]] == [epoch[:-1] for epoch in whole["history"]]
    sizes = [rank["sizes"] for rank in ranks("narrowed")]
    assert set(sizes[1][:8]) == {1}
    assert max(sizes[0][:8]) > 1
    assert sum(epoch[-1] for epoch in ranks("narrowed")[0]["history"]) == sum(map(sum, sizes))
