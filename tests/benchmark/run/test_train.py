"""One run of the app, for real, on the embedded digits and on CLINC150."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict

import pytest

from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.settings import SettingError
from as_lightning.benchmark.run.train import train

SHORT = ("experiment=digits", "trainer.max_epochs=3", "optimizer.lr=1e-2")
BRIEF = (*SHORT, "trainer.limit_train_batches=5", "trainer.limit_val_batches=5", "trainer.limit_test_batches=5")


def test_a_result_holds_every_epoch_also_where_the_tested_weights_are_early_ones(composed):
    # the worst checkpoint in place of the best: that of an early epoch, whose callback states the test puts back
    worst = "callbacks.model_checkpoint.mode=min"
    few = "trainer.limit_train_batches=10"
    result = train(composed("experiment=digits", "method=as_speed", "trainer.max_epochs=5", few, worst))
    assert min(result.evaluations, key=lambda evaluation: evaluation["score"])["epoch"] < 4
    assert [evaluation["epoch"] for evaluation in result.evaluations] == [0, 1, 2, 3, 4]
    assert [epoch["epoch"] for epoch in result.masking] == [0, 1, 2, 3, 4]
    assert len(result.epoch_seconds) == 5
    assert sum(result.epoch_seconds) == pytest.approx(result.train_seconds)
    assert len(result.accumulation) == result.optimizer_steps
    assert sum(window[2] for window in result.accumulation) == 5 * 10
    assert result.metrics["nll_scaled"] < result.metrics["nll_unscaled"]  # at the temperature of these weights


def test_the_result_on_disk_is_the_one_returned_and_names_no_path(composed, tmp_path):
    result = train(composed(*BRIEF, "name=2024"))
    assert result.name == "2024"  # which YAML reads as a number
    assert result.test_samples == 5 * 32
    written = (tmp_path / "run" / "result.json").read_text()
    assert asdict(Result.read(tmp_path / "run" / "result.json")) == asdict(result)
    assert str(tmp_path) not in written
    assert json.loads(written)["config"]["method"]["delta"] == 0.1


FEW_BATCHES = ("trainer.max_epochs=1", "trainer.limit_train_batches=30", "trainer.limit_val_batches=5")
FEW_BATCHES += ("trainer.limit_test_batches=5",)


# what TemperatureScaling measures
SCALED = ("nll_unscaled", "nll_scaled", "calibration_error_unscaled", "calibration_error_scaled")


@pytest.mark.slow
def test_goemotions_trains_on_the_real_files(composed, real_data):
    settings = ("method=multilabel_as_speed", f"data_dir={real_data}")
    result = train(composed("experiment=goemotions", *settings, *FEW_BATCHES))
    assert result.score == "f1_micro"
    assert set(result.metrics) == {"loss", "accuracy", "f1_micro", "f1_macro", "calibration_error", *SCALED}
    assert result.evaluations[0]["score"] > 0.1
    assert result.masking[0]["classes"] == 30 * 128 * 28
    assert sum(window[2] for window in result.accumulation) == 30


def test_wnut17_trains_on_the_real_files(composed, real_data):
    result = train(composed("experiment=wnut17", "method=as_speed", f"data_dir={real_data}", *FEW_BATCHES))
    assert result.score == "span_f1"
    assert set(result.metrics) == {"loss", "accuracy", "span_f1", "f1_macro", "calibration_error", *SCALED}
    assert result.metrics["accuracy"] > 0.8  # most words are no part of an entity
    # words are counted, and neither padding nor other pieces
    assert 30 * 32 < result.masking[0]["samples"] < 62_730


def test_head_and_loss_in_one_give_the_same_run_as_one_after_the_other(composed):
    overrides = ("experiment=digits", "data.first=1000", "data.batch_size=125")
    apart, fused = (
        train(composed(*overrides, "trainer.max_epochs=1", f"method.fused_head={fused}", output=fused))
        for fused in ("false", "true")
    )
    assert apart.evaluations[0]["score"] > 0.05
    for key in ("loss", "score"):
        assert fused.evaluations[0][key] == pytest.approx(apart.evaluations[0][key], rel=1e-4)
    assert fused.metrics == pytest.approx(apart.metrics, rel=1e-4)
    assert fused.optimizer_steps == apart.optimizer_steps == 8
    for fused_epoch, epoch in zip(fused.masking, apart.masking, strict=True):
        assert fused_epoch["samples"] == epoch["samples"] == 1000
        assert fused_epoch["masked_classes"] == pytest.approx(epoch["masked_classes"], rel=1e-3)


@pytest.mark.parametrize("score", ["span_f1", "calibration_error"])
def test_a_score_that_the_task_does_not_have_or_that_is_better_small_is_refused_with_those_there_are(composed, score):
    with pytest.raises(
        SettingError,
        match=rf"of which more is better, got data.score='{score}': there are: accuracy, balanced_accuracy, f1_macro$",
    ):
        train(composed("experiment=digits", f"data.score={score}", *FEW_BATCHES))


@pytest.mark.parametrize("seed", ["null", "one", "1.5", "-1", "true"])
def test_a_seed_that_is_no_integer_is_refused_before_anything_is_written(composed, tmp_path, seed):
    with pytest.raises(SettingError, match=r"seed must be an integer from 0 to 4294967295, got"):
        train(composed("experiment=digits", f"seed={seed}"))
    assert not (tmp_path / "run").exists()


def test_several_best_checkpoints_of_one_name_are_refused_and_of_their_own_names_the_best_is_tested(composed, tmp_path):
    several = (*BRIEF, "trainer.max_epochs=3", "+callbacks.model_checkpoint.save_top_k=2", "optimizer.lr=1")
    with pytest.raises(SettingError, match=r"save_top_k=2: all would be named best.ckpt, each written over"):
        train(composed(*several))
    result = train(composed(*several, "callbacks.model_checkpoint.filename='{epoch}'"))
    best = max(result.evaluations, key=lambda evaluation: evaluation["score"])
    kept = {path.stem for path in (tmp_path / "run/checkpoints").glob("epoch=*.ckpt")}
    assert len(kept) == 2
    assert f"epoch={best['epoch']}" in kept


def test_a_run_from_a_checkpoint_trains_the_epochs_that_are_left(composed, tmp_path):
    constant = ("lr_scheduler=null",)
    first = train(composed(*BRIEF, *constant, "trainer.max_epochs=1", output="first"))
    assert "ckpt_path" not in first.config
    checkpoint = tmp_path / "first/checkpoints/last.ckpt"
    result = train(composed(*BRIEF, *constant, f"ckpt_path={checkpoint}", output="second"))
    assert result.resumed
    assert result.optimizer_steps == 15
    assert [evaluation["epoch"] for evaluation in result.evaluations] == [1, 2]  # the other run's are not this one's
    assert result.config["ckpt_path"] == "last.ckpt"


def test_the_weights_that_a_run_from_a_checkpoint_is_tested_with_are_never_the_other_runs(composed, tmp_path, caplog):
    train(composed(*BRIEF, "lr_scheduler=null", "trainer.max_epochs=1", output="first"))
    checkpoint = f"ckpt_path={tmp_path / 'first/checkpoints/last.ckpt'}"
    caplog.clear()
    train(composed(*BRIEF, "lr_scheduler=null", checkpoint, "trainer.limit_val_batches=0", output="second"))
    assert "first/checkpoints/best.ckpt" not in caplog.text


def test_a_run_from_another_checkpoint_of_the_same_name_is_made_anew(composed, tmp_path):
    constant = (*BRIEF, "lr_scheduler=null")
    for seed in (0, 1):
        train(composed(*constant, "trainer.max_epochs=1", f"seed={seed}", output=f"first{seed}"))
    (tmp_path / "start").mkdir()
    scores = []
    for seed in (0, 1, 1):
        shutil.copy(tmp_path / f"first{seed}/checkpoints/last.ckpt", tmp_path / "start")
        scores.append(train(composed(*constant, f"ckpt_path={tmp_path}/start/last.ckpt", output="second")).evaluations)
    assert scores[0] != scores[1] == scores[2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("optimizer.lr=1e-4",), "optimizer has lr=0.01 there and lr=0.0001 here; give both runs the same"),
        (("+optimizer.amsgrad=true",), "optimizer has no such settings there and amsgrad=True here"),
        (("trainer.max_epochs=1",), "last.ckpt has 1 epochs behind it: trainer.max_epochs=1 leaves none to train"),
        (("ckpt_path=result.json",), r"result.json is no checkpoint of a run of this app \("),
        (("ckpt_path=no.ckpt",), r"ckpt_path=no\.ckpt: there is no such file"),
    ],
)
def test_a_start_that_would_not_follow_the_settings_or_is_from_no_checkpoint_is_refused(
    composed, tmp_path, monkeypatch, settings, message
):
    train(composed(*BRIEF, "lr_scheduler=null", "trainer.max_epochs=1", output="first"))
    monkeypatch.chdir(tmp_path / "first")
    with pytest.raises(SettingError, match=message):
        train(composed(*BRIEF, "lr_scheduler=null", "ckpt_path=checkpoints/last.ckpt", *settings, output="second"))


def test_a_schedule_of_another_length_is_refused(composed, tmp_path):
    train(composed(*BRIEF, "trainer.max_epochs=1", output="first"))
    checkpoint = f"ckpt_path={tmp_path / 'first/checkpoints/last.ckpt'}"
    with pytest.raises(SettingError, match=r"schedule is of 5 steps, this training's of 15: .* lr_scheduler=null"):
        train(composed(*BRIEF, checkpoint, output="second"))
