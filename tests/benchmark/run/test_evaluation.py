"""What a trained module is measured by: the test of its best checkpoint, and the wrong labels that it has learned."""

from __future__ import annotations

import pytest
import torch
from harness.data_on_two_ranks import SaysTheLabelOfEvenSamples
from harness.scripted_masking import quiet_trainer

from as_lightning.benchmark.data.digits import Digits
from as_lightning.benchmark.run.train import made_module, memorisation, read_data, train

DIGITS = ("experiment=digits", "trainer.max_epochs=3", "optimizer.lr=1e-2")


def test_a_run_with_wrong_labels_tells_how_many_were_memorised_and_how_many_recovered(composed):
    metrics = train(composed(*DIGITS, "data.label_noise=0.4")).metrics
    assert 0 < metrics["memorised"] < metrics["recovered"] < 1  # three epochs: the digits are learnt first
    assert metrics["memorised"] + metrics["recovered"] <= 1
    assert metrics["accuracy"] > 0.5  # of the test split, whose labels are right


def test_the_shares_are_of_the_samples_with_wrong_labels():
    data = Digits(label_noise=0.4)
    data.setup()
    count = round(0.4 * 1257)
    found = memorisation(quiet_trainer(), SaysTheLabelOfEvenSamples(data.corrupted_dataloader()), data)
    assert found == {
        "memorised": pytest.approx(len(range(0, count, 2)) / count),
        "recovered": pytest.approx(len(range(3, count, 6)) / count),
    }


def test_noise_too_little_for_a_single_wrong_label_tells_nothing(composed):
    few = ("trainer.limit_train_batches=12", "trainer.limit_val_batches=1", "trainer.limit_test_batches=1")
    result = train(composed("experiment=digits", "trainer.max_epochs=1", "data.label_noise=1e-4", *few))
    assert "memorised" not in result.metrics


def test_the_shares_of_a_part_of_the_samples_are_of_these(composed):
    few = ("+trainer.limit_predict_batches=1", "trainer.max_epochs=1", "trainer.limit_train_batches=3")
    metrics = train(composed("experiment=digits", "data.label_noise=0.4", *few)).metrics
    for name in ("memorised", "recovered"):
        assert 32 * metrics[name] == pytest.approx(round(32 * metrics[name]))  # of the 32 of one batch


def test_a_run_with_wrong_labels_and_no_test_ends_without_metrics_and_is_read_again(composed):
    few = ("trainer.max_epochs=1", "trainer.limit_train_batches=3", "trainer.limit_test_batches=0")
    config = composed("experiment=digits", "data.label_noise=0.4", *few)
    assert train(config).metrics == train(config).metrics == {}


AVERAGING = {
    "EMA": ["+callbacks.averaging={_target_: lightning.pytorch.callbacks.EMAWeightAveraging, decay: 0.9}"],
    "SWA": ["+callbacks.averaging={_target_: lightning.pytorch.callbacks.StochasticWeightAveraging, swa_lrs: 0.05}"],
    "neither": [],
}


@pytest.mark.parametrize("averaging", AVERAGING)
def test_the_test_score_is_that_of_the_best_checkpoint_whatever_callbacks_swap_the_weights(
    composed, tmp_path, averaging
):
    settings = ("experiment=digits", "method=softmax", "callbacks=plain", "trainer.max_epochs=3", "optimizer.lr=0.05")
    settings += ("trainer.limit_train_batches=10",)
    config = composed(*settings, *AVERAGING[averaging])
    result = train(config)
    data = read_data(config)
    module = made_module(config, data)
    module.load_state_dict(torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"])
    (expected,) = quiet_trainer().test(module, data, verbose=False)
    assert {f"test/{name}": value for name, value in result.metrics.items()} == pytest.approx(expected)
