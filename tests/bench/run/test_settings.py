"""A setting that nothing reads is an error, a default has one place, and ``paper=table`` has the
paper's settings.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from harness.tiny_encoder import save_encoder
from hydra.errors import ConfigCompositionException
from hydra.utils import get_object
from omegaconf import OmegaConf

import as_lightning
from as_lightning import functional
from as_lightning.bench.commands.mistakes import is_mistake
from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.settings import (
    all_knobs,
    check_files,
    checked_settings,
    folder_name,
    names,
    shared_settings,
)
from as_lightning.bench.run.train import train

REFUSED = [
    ("+data.batchsize=3", "batchsize"),
    ("+model.chanels=[3]", "chanels"),
    ("+trainer.max_epoch=1", "max_epoch"),
    ("+optimizer.learning_rate=1", "learning_rate"),
    ("+method.criterion.weigth=[1]", "weigth"),
    ("+trainer.logger=false", "trainer.logger is given by the app"),
    ("seed=1.5", "seed must be an integer"),
    ("trainer.max_epochs=-1", "trainer.max_epochs must be an integer"),
    ("trainer.max_epochs=two", "trainer.max_epochs must be an integer"),
    ("data.score=span_f1", "data.score=span_f1: there are: accuracy, balanced_accuracy, f1_macro"),
    ("model=text_transformer", "TextTransformer.*in_channels"),
    ("model.dropout=2", "dropout"),
    ("method.delta=2", "delta"),
    ("+callbacks.model_checkpoint.save_top_k=2", "save_top_k"),
    ("optimizer._target_=torch.optim.Adamm", "_target_=torch.optim.Adamm cannot be loaded"),
    ("optimizer.lr=-1", "optimizer or lr_scheduler are refused: Invalid learning rate: -1"),
    ("lr_scheduler.pct_start=7", "optimizer or lr_scheduler are refused: .*pct_start"),
]


@pytest.mark.parametrize(("override", "message"), REFUSED)
def test_a_setting_that_nothing_reads_or_takes_is_a_mistake_that_names_it(
    composed, override, message
):
    with pytest.raises(Exception, match=message) as raised:
        train(composed("experiment=digits", override))
    assert is_mistake(raised.value)


FILES = sorted(config_dir().rglob("*.yaml"))
GROUPS = ("experiment", "method", "debug", "logger")
CHOICES = [
    [f"{path.parent.name}={path.stem}"]
    for path in FILES
    if path.parent.name in GROUPS and path.stem != "base"
]
CHOICES += [["experiment=sst5", "paper=table", "method=as_speed"]]
CHOICES += [["experiment=clinc150", "finetuning=last_layers", "model.name=encoder"]]


@pytest.mark.parametrize("choices", CHOICES, ids="-".join)
def test_every_setting_of_our_configurations_is_read(composed, choices):
    assert checked_settings(composed(*choices))[1] == []


@pytest.mark.parametrize("experiment", names("experiment"))
def test_every_experiment_takes_another_optimizer_and_another_model_as_they_are(
    composed, experiment
):
    # a key that an experiment changes would reach every other that is put in its place
    for optimizer, target in (("adamw", "torch.optim.AdamW"), ("sgd", "torch.optim.SGD")):
        group = OmegaConf.load(config_dir() / "optimizer" / f"{optimizer}.yaml")
        chosen = composed(f"experiment={experiment}", f"optimizer={optimizer}").optimizer
        assert (chosen._target_, chosen.keys()) == (target, group.keys())
    model = composed(f"experiment={experiment}", "model=torchvision").model
    assert model.keys() == OmegaConf.load(config_dir() / "model" / "torchvision.yaml").keys()


def test_a_knob_of_another_method_is_taken_away_and_one_of_none_is_no_setting(composed):
    config, foreign = checked_settings(
        composed("method=softmax", "method.delta=0.3", "method.tau=2")
    )
    assert foreign == ["delta", "tau"]
    assert config == checked_settings(composed("method=softmax"))[0]
    assert all_knobs().isdisjoint(config.method)
    kept, foreign = checked_settings(composed("method=as_speed", "method.delta=0.3"))
    assert (kept.method.delta, kept.method.max_steps, foreign) == (0.3, 4, [])
    with pytest.raises(ConfigCompositionException):
        composed("method=softmax", "method.dleta=0.3")


def test_a_run_s_folder_has_the_settings_that_its_method_reads_and_the_sweep_s_those_all_runs_share(
    composed,
):
    command = ["seed=1,2", "+data.split_seed=3", "method=softmax,as_softmax", "method.delta=0.1"]
    command += ["data.path=/a/x.csv", "experiment=digits", "trainer.max_epochs=choice(1,2)"]
    shared = shared_settings(command)
    assert shared == [*command[1:2], *command[3:6]]
    assert (
        folder_name(shared, [], "digits") == "data.path=-a-x.csv,data.split_seed=3,method.delta=0.1"
    )
    job = [*shared, "seed=1", "method=softmax", "trainer.max_epochs=2"]
    softmax = composed("method=softmax").method
    found = folder_name(job, ["seed"], "digits", softmax, shared)
    assert found == "method=softmax,trainer.max_epochs=2"
    alone = folder_name(job, ["seed", "data.path"], "other", softmax)
    assert alone == "data.split_seed=3,experiment=digits,method=softmax,trainer.max_epochs=2"


def parts_of(content: Any) -> Iterator[dict[str, Any]]:
    """The parts of a file that name a class or function of ours."""
    for value in content.values() if isinstance(content, dict) else ():
        yield from parts_of(value)
    if isinstance(content, dict) and str(content.get("_target_")).startswith("as_lightning."):
        yield content


def defaults_of(target: Any) -> dict[str, Any]:
    """The defaults of a function or class, also those of bases of ours, to which a class hands its
    arguments on.
    """
    bases = [base for base in getattr(target, "__mro__", ()) if "as_lightning" in base.__module__]
    calls = [vars(base)["__init__"] for base in reversed(bases) if "__init__" in vars(base)]
    if target is as_lightning.AdaptiveGradientAccumulation:  # None there: that of its policy
        calls.append(as_lightning.callbacks.accumulation_policy.MaskingPolicy)
    found = {}
    for call in calls or [target]:
        for name, argument in inspect.signature(call).parameters.items():
            if argument.default is not inspect.Parameter.empty:
                found[name] = argument.default
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_default_has_one_place(path, composed):
    # the public functions, which are called without configurations too, have the same one
    knobs = composed(f"method={path.stem}").method if path.parent.name == "method" else {}
    for part in parts_of(OmegaConf.to_container(OmegaConf.load(path))):
        if part["_target_"].endswith("BestWeights") or isinstance(part.get("path"), dict):
            continue  # the arguments of Lightning's class, and the files of published data
        defaults = defaults_of(get_object(part["_target_"]))
        for name in defaults.keys() & part.keys() - {"stem"}:  # a file for each choice of a stem
            value = part[name]
            if str(value).startswith("${method."):
                value = knobs[value.removeprefix("${method.").removesuffix("}")]
            elif knobs or str(value).startswith("${"):
                continue  # what makes a method, or another setting's value
            default = list(defaults[name]) if isinstance(defaults[name], tuple) else defaults[name]
            assert value == default, f"{part['_target_']}: {name} is {default} in Python"


def test_the_margin_has_the_default_of_the_configuration_wherever_a_public_name_has_one(composed):
    defaults = {}
    for package in (as_lightning, functional):
        for name in package.__all__:
            if callable(getattr(package, name)):
                parameters = inspect.signature(getattr(package, name)).parameters
                defaults[name] = getattr(parameters.get("delta"), "default", None)
    margins = {name: margin for name, margin in defaults.items() if isinstance(margin, float)}
    assert margins.pop("LinearCrossEntropyLoss") == 1.0  # PyTorch's own loss
    assert {"ASSoftmaxLoss", "ASSoftmaxMixin", "as_cross_entropy"} <= margins.keys()
    assert set(margins.values()) == {composed("method=as_softmax").method.delta}


@pytest.mark.parametrize(("experiment", "method"), [("clinc150", "as_speed"), ("conll", "softmax")])
def test_an_experiment_of_text_takes_the_settings_of_the_papers_tables(
    composed, experiment, method
):
    choices = (f"experiment={experiment}", f"method={method}")
    plain = checked_settings(composed(*choices))[0]
    config = checked_settings(composed(*choices, "paper=table"))[0]
    assert config.model.name == config.data.tokenizer == "bert-base-cased"
    assert config.data.batch_size == 16
    assert config.optimizer == {**plain.optimizer, "lr": 2e-5}
    assert config.lr_scheduler.max_lr == 2e-5
    assert config.trainer == plain.trainer
    assert config.method.keys() == plain.method.keys()
    if method == "as_speed":
        knobs = (config.method.delta, config.method.max_steps, config.method.lr_scale)
        assert knobs == (0.1, 2, "none")


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
    "method.callbacks.adaptive_gradient_accumulation.max_steps": 2,
    "method.callbacks.adaptive_gradient_accumulation.scale": 1.0,
    "method.callbacks.adaptive_gradient_accumulation.lr_scale": "none",
}


@pytest.mark.parametrize("data", ["sst5", "banking77", "reuters8", "wnut17", "clinc150"])
def test_a_published_file_is_not_looked_for_before_it_is_downloaded(composed, data, tmp_path):
    check_files(composed(f"experiment={data}", f"data_dir={tmp_path}"))


def test_paper_sst5_is_the_authors_run_number_by_number(composed):
    config, _ = checked_settings(composed("paper=sst5", "method=as_speed"))
    assert {path: OmegaConf.select(config, path) for path in AUTHORS_RUN} == AUTHORS_RUN


def test_the_authors_run_works_with_a_local_encoder_of_any_size(composed, tmp_path, real_data):
    encoder = save_encoder(tmp_path / "bert", ["a good film", "a bad film"])
    few = "precision=32-true max_epochs=1 val_check_interval=10 limit_train_batches=25 limit_val_batches=3"
    trainer = [f"trainer.{setting}" for setting in (*few.split(), "limit_test_batches=3")]
    model = (f"model.name={encoder}", f"data_dir={real_data}")
    result = train(composed("paper=sst5", "method=as_speed", *model, *trainer))
    assert len(result.evaluations) == 2  # after 10 and 20 batches
    assert 0 <= result.metrics["accuracy"] <= 1
