"""Two processes (gloo on the CPU) that share their data: each has a part of its own, and together they have all."""

from __future__ import annotations

import pytest
import torch
from harness import data_on_two_ranks
from harness.data_on_two_ranks import BATCH, EPOCHS, RESUMED_FROM, TRAIN, VALIDATION
from harness.rank_processes import Seen, run_two_ranks


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    scenarios = ["loaders_of_the_hooks", "loaders_handed_over", "resumed", "predictions"]
    folder = tmp_path_factory.mktemp("data-on-two-ranks")
    return run_two_ranks(data_on_two_ranks.__file__, folder, scenarios, CUDA_VISIBLE_DEVICES="")


@pytest.mark.parametrize("scenario", ["loaders_of_the_hooks", "loaders_handed_over"])
def test_each_of_two_ranks_trains_on_its_own_part_in_batches_of_similar_length(seen, scenario):
    ranks = seen(scenario)
    for epoch in range(EPOCHS):
        parts = [rank["trained"][epoch] for rank in ranks]
        assert [len(part) for part in parts] == [TRAIN // 2] * 2
        assert sorted(parts[0] + parts[1]) == list(range(TRAIN))
    assert ranks[0]["trained"][0] != ranks[0]["trained"][1]
    # an odd number: one sample is validated on both ranks
    assert sorted(set(ranks[0]["validated"] + ranks[1]["validated"])) == list(range(VALIDATION))
    assert len(ranks[0]["validated"]) == len(ranks[1]["validated"]) == VALIDATION // 2 + 1
    for rank in ranks:
        samples, longest, present = torch.tensor(rank["shapes"]).unbind(-1)
        assert int(samples.max()) == BATCH
        assert int(present.sum()) > 0.95 * int((samples * longest).sum())


def test_two_ranks_that_are_resumed_inside_an_epoch_see_the_batches_of_a_run_that_was_never_stopped(seen):
    for rank in seen("resumed"):
        assert rank["resumed"] == rank["undisturbed"][RESUMED_FROM:]
        assert len(rank["resumed"]) == 2 * 63 - RESUMED_FROM


def test_two_ranks_share_the_samples_of_a_prediction(seen):
    first, second = (rank["predicted"] for rank in seen("predictions"))
    assert sorted(first + second) == list(range(VALIDATION))
