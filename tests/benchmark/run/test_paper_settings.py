"""``paper=table``: the paper's settings, on every experiment of text and with every method, in a real run."""

import pytest
from harness.tiny_encoder import save_encoder
from omegaconf import OmegaConf

from as_lightning.benchmark.run.settings import checked_settings
from as_lightning.benchmark.run.train import train

TEXT = ("clinc150", "conll", "docstrings", "goemotions", "sst5", "text_file", "wnut17")


@pytest.mark.parametrize(
    ("experiment", "method"),
    [*((experiment, "as_speed") for experiment in TEXT), ("sst5", "softmax"), ("clinc150", "as_softmax")],
)
def test_every_experiment_of_text_takes_the_settings(composed, experiment, method):
    plain = composed(f"experiment={experiment}", f"method={method}")
    config, _ = checked_settings(composed(f"experiment={experiment}", f"method={method}", "paper=table"))
    assert config.model.name == config.data.tokenizer == "bert-base-cased"
    freezing = ["trainable_layers", "feature_cache", "allow_pickle"]
    assert {*config.model} == {"_target_", "_partial_", "name", "pooling", *freezing}
    assert config.data.batch_size == 16
    assert config.optimizer == {**plain.optimizer, "_target_": "torch.optim.AdamW", "lr": 2e-5}
    assert config.lr_scheduler.max_lr == 2e-5
    assert config.trainer == plain.trainer
    assert config.method.keys() == plain.method.keys()
    assert config.method.get("delta", 0.1) == 0.1
    assert config.method.get("max_steps", 2) == 2
    assert plain.method.get("max_steps", 4) == 4
    assert (config.method.get("lr_scale", "none"), plain.method.get("lr_scale", "auto")) == ("none", "auto")


AUTHORS_RUN = {
    "data.name": "sst5",
    "model.name": "bert-base-cased",
    "data.tokenizer": "bert-base-cased",
    "model.trainable_layers": None,
    "trainer.max_epochs": 7,
    "data.batch_size": 16,
    "lr_scheduler.max_lr": 2e-5,
    "data.max_length": 128,
    "lr_scheduler.pct_start": 0.1,
    "lr_scheduler.anneal_strategy": "linear",
    "trainer.precision": "16-mixed",
    "trainer.val_check_interval": 200,
    "trainer.check_val_every_n_epoch": None,
    "callbacks.model_checkpoint.monitor": "val/accuracy",
    "callbacks.model_checkpoint.mode": "max",
    "seed": 42,
    "method.delta": 0.1,
    "method.delta_warmup": None,
    "method.callbacks.adaptive_gradient_accumulation.max_steps": 2,
    "method.callbacks.adaptive_gradient_accumulation.scale": 1.0,
    "method.callbacks.adaptive_gradient_accumulation.lr_scale": "none",
}


def test_paper_sst5_is_the_authors_run_number_by_number(composed):
    config, _ = checked_settings(composed("paper=sst5", "method=as_speed"))
    assert {path: OmegaConf.select(config, path) for path in AUTHORS_RUN} == AUTHORS_RUN


def test_the_authors_run_works_with_a_local_encoder_of_any_size(composed, tmp_path, real_data):
    encoder = save_encoder(tmp_path / "bert", ["a good film", "a bad film"])
    few = "precision=32-true max_epochs=1 val_check_interval=10 limit_train_batches=25 limit_val_batches=3"
    trainer = [f"trainer.{setting}" for setting in (*few.split(), "limit_test_batches=3")]
    model = (f"model.name={encoder}", f"data_dir={real_data}")
    result = train(composed("paper=sst5", "method=as_speed", *model, *trainer))
    assert len(result.evaluations) == 3  # after 10 and 20 batches, and at the end
    assert 0 <= result.metrics["accuracy"] <= 1
