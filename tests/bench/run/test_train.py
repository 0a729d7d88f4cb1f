"""One run of the app, for real: its result, its logs, the options of its trainer, and runs from a
checkpoint.
"""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from harness.made_files import write_table
from harness.scripted_masking import quiet_trainer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch._dynamo.utils import counters
from torch.optim.lr_scheduler import OneCycleLR

from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import Result
from as_lightning.bench.run.summary import class_table, print_summary, summary
from as_lightning.bench.run.train import OneCycle, made_module, read_data, train

DIGITS = ("experiment=digits", "optimizer.lr=1e-2")
BRIEF = (
    *DIGITS,
    "trainer.max_epochs=3",
    *(f"trainer.limit_{part}_batches=5" for part in ("train", "val", "test")),
)
ONE = (*DIGITS, "trainer.max_epochs=1", "trainer.limit_train_batches=6")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Of the best checkpoint."""
    return torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]


def losses(result: Result) -> list[float]:
    return [evaluation["loss"] for evaluation in result.evaluations]


def test_a_result_holds_every_epoch_also_where_the_tested_weights_are_early_ones(composed):
    # the worst checkpoint in place of the best: that of an early epoch, whose callback states the
    # test puts back
    few = ("trainer.max_epochs=5", "trainer.limit_train_batches=10", "logger=none")
    settings = ("method=as_speed", "callbacks.model_checkpoint.mode=min")
    result = train(composed("experiment=digits", *settings, *few))
    assert min(result.evaluations, key=lambda evaluation: evaluation["score"])["epoch"] < 4
    assert [evaluation["epoch"] for evaluation in result.evaluations] == [0, 1, 2, 3, 4]
    assert [epoch["epoch"] for epoch in result.masking] == [0, 1, 2, 3, 4]
    assert len(result.epoch_seconds) == 5
    assert sum(result.epoch_seconds) == pytest.approx(result.train_seconds)
    # at the temperature of these weights
    assert result.metrics["nll_scaled"] < result.metrics["nll_unscaled"]


def test_the_result_on_disk_is_the_one_returned_and_names_no_path(composed, tmp_path):
    result = train(composed(*BRIEF, "name=2024"))
    assert result.name == "2024"  # which YAML reads as a number
    written = (tmp_path / "run" / "result.json").read_text()
    assert asdict(Result.read(tmp_path / "run" / "result.json")) == asdict(result)
    assert str(tmp_path) not in written
    assert json.loads(written)["config"]["method"]["delta"] == 0.5


def test_a_run_with_wrong_labels_and_no_test_ends_without_metrics_and_is_read_again(composed):
    config = composed(*ONE, "data.label_noise=0.4", "trainer.limit_test_batches=0")
    assert train(config).metrics == train(config).metrics == {}


EMA = "_target_: lightning.pytorch.callbacks.EMAWeightAveraging, decay: 0.9"


@pytest.mark.parametrize("averaging", [[f"+callbacks.averaging={{{EMA}}}"], []])
def test_the_test_score_is_that_of_the_best_checkpoint_whatever_callbacks_swap_the_weights(
    composed, tmp_path, averaging
):
    few = ("trainer.max_epochs=3", "trainer.limit_train_batches=10")
    settings = ("optimizer.lr=0.05", "method=softmax", "callbacks=plain")
    config = composed("experiment=digits", *settings, *few, *averaging)
    result = train(config)
    data = read_data(config)
    module = made_module(config, data)
    module.load_state_dict(weights(tmp_path / "run"))
    (expected,) = quiet_trainer().test(module, data, verbose=False)
    found = {f"test/{name}": value for name, value in result.metrics.items()}
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("experiment", "method", "score", "least"),
    [
        pytest.param("goemotions", "multilabel_as_speed", "f1_micro", 0.1, marks=pytest.mark.slow),
        ("wnut17", "as_speed", "span_f1", 0.0),
    ],
)
def test_several_labels_and_tags_train_on_the_real_files(
    composed, real_data, experiment, method, score, least
):
    limits = "max_epochs=1 limit_train_batches=30 limit_val_batches=5 limit_test_batches=5"
    few = [f"trainer.{limit}" for limit in limits.split()]
    settings = (f"experiment={experiment}", f"method={method}", f"data_dir={real_data}")
    result = train(composed(*settings, *few))
    assert result.score == score
    measured = {"loss", "accuracy", score, "f1_macro"}
    for name in ("nll", "calibration_error"):
        measured |= {f"{name}_unscaled", f"{name}_scaled"}
    assert set(result.metrics) == measured
    assert result.evaluations[0]["score"] >= least
    if experiment == "goemotions":
        assert result.masking[0]["classes"] == 30 * 128 * 28
    else:
        assert result.metrics["accuracy"] > 0.8  # most words are no part of an entity
        # words, and neither padding nor other pieces
        assert 30 * 32 < result.masking[0]["samples"] < 62_730


def test_logits_adjusted_after_training_are_softmaxs_less_the_prior_at_the_tau_of_validation(
    composed, tmp_path
):
    settings = ("experiment=digits", "data.imbalance=40", "trainer.max_epochs=2", "logger=none")
    softmax = composed(*settings, "method=softmax", output="softmax")
    plain, adjusted = train(softmax), train(composed(*settings, "method=adjusted_after"))
    last = [tmp_path / name / "checkpoints" / "last.ckpt" for name in ("softmax", "run")]
    trained, same = (torch.load(path, weights_only=True)["state_dict"] for path in last)
    assert all(torch.equal(weight, same[name]) for name, weight in trained.items())

    data = read_data(softmax)
    module, state = made_module(softmax, data), weights(tmp_path / "run")
    tau = state.pop("tau").item()
    module.load_state_dict(state)
    counts = np.bincount(data.splits["train"].targets, minlength=10)
    prior = np.log(counts / counts.sum())

    def classes(split: str, tau: float) -> tuple[np.ndarray, np.ndarray]:
        inputs, target = zip(*data.splits[split], strict=True)
        with torch.no_grad():
            logits = module.eval()(torch.stack(inputs)).double().numpy()
        return (logits - tau * prior).argmax(-1), np.array(target)

    def balanced(split: str, tau: float) -> float:
        predicted, target = classes(split, tau)
        return float(np.mean([(predicted[target == c] == c).mean() for c in range(10)]))

    scores = {step / 20: balanced("validation", step / 20) for step in range(61)}
    best = max(scores.values())
    assert tau == min(each for each, score in scores.items() if score > best - 1e-9) > 0
    assert max(evaluation["score"] for evaluation in adjusted.evaluations) == pytest.approx(best)
    assert adjusted.metrics["balanced_accuracy"] == pytest.approx(balanced("test", tau))
    assert adjusted.metrics["balanced_accuracy"] > plain.metrics["balanced_accuracy"]
    predicted = Predictions.read(tmp_path / "run").predicted
    assert predicted.tolist() == [str(number) for number in classes("test", tau)[0]]


@pytest.mark.parametrize("classes", [2, 4, 14])
def test_a_run_on_own_data_with_a_tail_ends_with_the_recall_of_groups_and_classes_in_80_columns(
    composed, tmp_path, capsys, classes
):
    sizes = {f"class_{number}": 12 * (classes - number) ** 2 for number in range(classes)}
    sizes["class_0"] = 12 * max(9, classes**2)
    write_table(tmp_path / "own.csv", sizes)
    few = ("trainer.max_epochs=1", "logger=none", "trainer.limit_train_batches=10")
    result = train(composed("experiment=text_file", f"data.path={tmp_path}/own.csv", *few))
    capsys.readouterr()
    print_summary(result, tmp_path / "run")
    printed, _ = capsys.readouterr().out.strip().split("\n\n")
    assert max(map(len, printed.splitlines())) <= 80
    table = class_table(result, tmp_path / "run")
    tested = Predictions.read(tmp_path / "run")
    right = tested.predicted == tested.target
    recalls = {name: right[tested.target == name].mean() for name in sizes}
    shown = [name for name in table.index if name in sizes]
    assert len(shown) == (5 if classes > 12 else classes)
    for name in shown:
        assert tuple(table.loc[name]) == (result.class_rows[name], recalls[name])
    if classes > 3:
        fewest = list(sizes)[-(classes // 3) :]
        assert table.loc["few", "recall"] == pytest.approx(np.mean([recalls[c] for c in fewest]))
    tries = [value for name, value in summary(result, tmp_path / "run") if name == "try"]
    assert tries[0] == "method=adjusted_after data.score=balanced_accuracy"


def test_the_tab_has_method_margin_rate_and_score_of_a_run_and_its_summary_the_score(
    composed, tmp_path
):
    result = train(composed(*ONE, "method=as_speed"))
    folder = tmp_path / "run"
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    content = accumulator.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
    values = HParamsPluginData.FromString(content).session_start_info.hparams
    shown = {name: getattr(value, value.WhichOneof("kind")) for name, value in values.items()}
    assert shown == {"method": "as_speed", "delta": 0.5, "lr": 0.01, "seed": 0.0}
    (score,) = accumulator.Scalars("hparams/test_accuracy")
    assert score.value == pytest.approx(result.metrics["accuracy"])
    curves = {f"masking/{of}_ratio{when}" for of in ("sample", "class") for when in ("", "_epoch")}
    curves |= {"masking/delta", "accumulation/steps", "masking/samples_seen"}
    assert {*accumulator.scalars.Keys()} >= curves
    masked = accumulator.Scalars("masking/sample_ratio")
    assert masked[0].step == 0
    lines = dict(summary(result, folder))
    assert "try" not in lines
    assert class_table(result, folder) is None
    for name in ("accuracy", "balanced_accuracy", "f1_macro"):
        assert f"{name} {result.metrics[name]:.4f}" in lines["test"]
    assert lines["masked"].endswith("% of the samples in the last epoch")
    assert lines["folder"] == str(folder)
    assert lines["curves"] == f"tensorboard --logdir {tmp_path}"


def test_a_compiled_encoder_trains_as_the_same_one_does_uncompiled(composed, tmp_path):
    whole_batches = (*BRIEF, "trainer.max_epochs=1")  # of another size it would be compiled anew
    plain = train(composed(*whole_batches, output="plain"))
    counters.clear()
    compiled = train(composed(*whole_batches, "compile={backend: aot_eager}", output="compiled"))
    assert counters["stats"]["unique_graphs"] > 0
    assert not counters["inductor"]  # the default, which would take half a minute here
    assert weights(tmp_path / "compiled").keys() == weights(tmp_path / "plain").keys()
    assert losses(compiled) == pytest.approx(losses(plain), rel=1e-4)
    assert compiled.metrics["accuracy"] == pytest.approx(plain.metrics["accuracy"], abs=0.01)


FILES = [("none", set()), ("csv", {"csv"}), ("tensorboard", {"events", "hparams.yaml"})]


@pytest.mark.parametrize(("logger", "files"), FILES)
def test_a_run_writes_the_logs_that_it_is_asked_for_and_no_others_and_goes_without_a_callback_of_null(
    composed, tmp_path, logger, files
):
    result = train(composed(*ONE, f"logger={logger}", "callbacks.temperature_scaling=null"))
    names = [path.name for path in (tmp_path / "run").iterdir()]
    written = {name.partition(".out.")[0] for name in names}
    assert written - {"checkpoints", "predictions.csv", "result.json", "run.lock"} == files
    assert "nll_scaled" not in result.metrics


@pytest.mark.parametrize(("debug", "batches"), [("fast_dev_run", 1), ("overfit", 6)])
def test_a_debug_setting_runs_the_batches_that_it_says(composed, debug, batches):
    settings = (f"debug={debug}", "trainer.max_epochs=2", "logger=none")
    assert train(composed("experiment=digits", *settings)).optimizer_steps == batches


def rates(schedule: type[OneCycleLR], steps: float) -> list[float]:
    cycle = {"max_lr": 1.0, "pct_start": 0.1, "anneal_strategy": "linear", "cycle_momentum": False}
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = schedule(optimizer, total_steps=steps, **cycle)
    taken = []
    for _ in range(int(steps)):
        taken.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return taken


@pytest.mark.parametrize("steps", [*range(1, 21), 100])
def test_a_training_of_few_steps_reaches_the_full_rate_and_a_longer_one_has_torchs_rates(steps):
    taken = rates(OneCycle, steps)
    assert max(taken) == pytest.approx(1.0, abs=1e-5) or steps > 10
    assert max(taken) > 0.9
    assert taken[-1] < 1e-4 or steps == 1
    assert steps <= 10 or taken == rates(OneCycleLR, steps)  # where there are steps to rise in
