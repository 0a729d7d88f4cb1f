"""What a trained module is measured by: the test of its best checkpoint."""

from __future__ import annotations

import pytest
import torch
from harness.scripted_masking import quiet_trainer

from as_lightning.benchmark.run.train import made_module, read_data, train


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
