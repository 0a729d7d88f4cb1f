"""A setting that nothing reads is an error, a default has one place, and ``paper=table`` has the
paper's settings.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from harness.tiny_encoder import save_encoder
from hydra.utils import get_object
from omegaconf import OmegaConf

import as_lightning
from as_lightning import functional
from as_lightning.bench.commands.mistakes import in_words
from as_lightning.bench.commands.train import seed_by_seed
from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.settings import SettingError, checked_settings, run_folder
from as_lightning.bench.run.train import train

SCORES = "of which more is better, got data.score='{}': there are: accuracy, balanced_accuracy, f1_macro$"
REFUSED = [
    (
        "+method.dleta=0.2",
        r"method.dleta is read by nothing: ASSoftmaxClassifier .*did you mean delta\?",
    ),
    ("+data.batchsize=3", r"data.batchsize is read by nothing: Digits .*did you mean batch_size\?"),
    ("+model.chanels=[3]", r"model.chanels is read by nothing: SmallCNN .*did you mean channels"),
    (
        "+method.criterion.weigth=[1]",
        r"method.criterion.weigth is read by nothing: .*did you mean weight\?",
    ),
    (
        "+trainer.max_epoch=1",
        r"trainer.max_epoch is read by nothing: Trainer .*did you mean max_epochs",
    ),
    (
        "+trainer.logger=false",
        r"trainer.logger is given by the app and would be ignored: set logger=\.\.\. instead",
    ),
    (
        "+trainer.callbacks=[]",
        r"trainer.callbacks .* would be ignored: set \+callbacks.NAME._target_=\.\.\. instead",
    ),
    (
        "+trainer.default_root_dir=x",
        r"trainer.default_root_dir .* would be ignored: set output_dir=\.\.\. instead",
    ),
    (
        "+method.optimizer=x",
        r"method.optimizer is given by the app and would be ignored: set optimizer=\.\.\. instead",
    ),
    (
        "+optimizer.learning_rate=1",
        r"optimizer.learning_rate is read by nothing: AdamW .*here are: .*lr,",
    ),
    *(
        (f"seed={seed}", "seed must be an integer from 0 to 42949")
        for seed in ("null", "one", "1.5", "-1", "true")
    ),
    *((f"data.score={score}", SCORES.format(score)) for score in ("span_f1", "calibration_error")),
    (
        "+callbacks.model_checkpoint.save_top_k=2",
        r"save_top_k=2: all would be named best.ckpt, each written over",
    ),
]

BY_A_LIBRARY = [
    (
        "trainer.max_epochs=0",
        "trainer.max_epochs must be an integer of at least 1, or -1 for no limit, got 0",
    ),
    (
        "trainer.max_epochs=two",
        "trainer.max_epochs must be an integer of at least 1, or -1 .*, got 'two'",
    ),
    (
        "trainer.max_epochs=true",
        "trainer.max_epochs must be an integer of at least 1, or -1 .*, got True",
    ),
    (
        "model=text_transformer",
        "the model does not fit the data, .*in_channels.*: .*TextTransformer",
    ),
    (
        "model.dropout=2",
        "the settings of model are refused: dropout probability has to be between 0 and 1",
    ),
    (
        "method.delta=2",
        r"method.delta must be a number in \[0, 1\], got 2: leave it out for the default",
    ),
    ("data.score=null", "got data.score=None: there are: accuracy, balanced_accuracy, f1_macro"),
    ("optimizer._target_=torch.optim.Adamm", "_target_=torch.optim.Adamm cannot be loaded"),
    (
        "optimizer.lr=-1",
        "the settings of optimizer or lr_scheduler are refused: Invalid learning rate: -1",
    ),
    (
        "optimizer.weight_decay=abc",
        "the settings of optimizer or lr_scheduler are refused: .* 'float' and 'str'",
    ),
    (
        "lr_scheduler.pct_start=7",
        "the settings of optimizer or lr_scheduler are refused: .*pct_start",
    ),
]


@pytest.mark.parametrize(("override", "message"), [*REFUSED, *BY_A_LIBRARY])
def test_a_setting_that_nothing_reads_or_takes_is_refused_with_the_way_out(
    composed, tmp_path, override, message
):
    with pytest.raises(SettingError, match=message):
        train(composed("experiment=digits", override))
    written = "data.score" in override or (override, message) in BY_A_LIBRARY
    assert written or not (tmp_path / "run").exists()


FILES = sorted(config_dir().rglob("*.yaml"))
GROUPS = ("experiment", "method", "debug", "logger")
CHOICES = [[f"{path.parent.name}={path.stem}"] for path in FILES if path.parent.name in GROUPS]
CHOICES += [["experiment=sst5", "paper=table", "method=as_speed"]]
CHOICES += [["experiment=clinc150", "finetuning=last_layers", "model.name=encoder"]]


@pytest.mark.parametrize("choices", CHOICES, ids="-".join)
def test_every_setting_of_our_configurations_is_read(composed, choices):
    assert checked_settings(composed(*choices))[1] == []


@pytest.mark.parametrize(
    "experiment", [path.stem for path in FILES if path.parent.name == "experiment"]
)
def test_every_experiment_takes_another_optimizer_and_another_model_as_they_are(
    composed, experiment
):
    # a key of one of them that an experiment changes would reach every other that is put in its
    # place
    for optimizer, target in (("adamw", "torch.optim.AdamW"), ("sgd", "torch.optim.SGD")):
        group = OmegaConf.load(config_dir() / "optimizer" / f"{optimizer}.yaml")
        chosen = composed(f"experiment={experiment}", f"optimizer={optimizer}").optimizer
        assert (chosen._target_, chosen.keys()) == (target, group.keys())
    model = composed(f"experiment={experiment}", "model=torchvision").model
    assert model.keys() == {
        "_target_",
        "_partial_",
        "name",
        "weights",
        "trainable_layers",
        "feature_cache",
    }


def test_a_setting_of_another_method_is_taken_away(composed):
    config, foreign = checked_settings(
        composed("method=softmax", "+method.delta=0.3", "+method.tau=2")
    )
    assert foreign == ["delta", "tau"]
    assert config == composed("method=softmax")


@pytest.mark.parametrize(
    ("arguments", "opened"),
    [
        ("-m method=softmax,as_softmax method.delta=0.05,0.1 seed=0", "++method.delta=0.05,0.1"),
        ("method=softmax method.delta=0.05", "method.delta=0.05"),
        ("-m method=softmax,as_softmax +method.delta=0.05", "+method.delta=0.05"),
        (
            "-m method=softmax,as_softmax method.dleta=0.2,0.3",
            "method.dleta=0.2,0.3",
        ),  # for Hydra to refuse
    ],
)
def test_in_a_sweep_a_setting_of_some_methods_is_no_error_for_the_others(arguments, opened):
    words = arguments.split()
    expected = [opened if "method." in word else word for word in words]
    assert seed_by_seed(words) == expected


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["method.dleta=0.2"], r"there is no method.dleta: did you mean delta\?"),
        (["lr=0.1"], r"there is no lr: did you mean optimizer.lr\?"),
        (
            ["method=softmax,as_softmax", "method.dleta=0.2"],
            r"there is no method.dleta: did you mean delta or beta\?",
        ),
        (
            ["method=softmax", "method.delta=0.2"],
            r"method.delta is no setting of this method, but of another one",
        ),
        (["data.batchsize=1"], r"there is no data.batchsize: did you mean batch_size\?"),
        (
            ["data.data_dir=x"],
            r"data.data_dir is not in the configuration: set it with \+data.data_dir=",
        ),
        (["epochs=1"], r"there is no epochs: did you mean trainer.max_epochs\?"),
        (["sed=1"], r"there is no sed: did you mean seed\?"),
        (["trainer.max_epoch=1"], r"there is no trainer.max_epoch: did you mean max_epochs"),
        (["method=as_sofmax"], r"there is no method=as_sofmax: did you mean as_softmax"),
        (["experiment=digts"], r"there is no experiment=digts: did you mean digits\?"),
    ],
)
def test_what_hydra_does_not_know_is_told_with_the_nearest_name(composed, overrides, message):
    with pytest.raises(Exception, match=r"Could not") as raised:
        composed(*[override.replace("=softmax,as_softmax", "=softmax") for override in overrides])
    assert re.search(message, in_words(raised.value))


@pytest.mark.parametrize(
    ("overrides", "folder"),
    [
        ([], "data=digits"),
        (["experiment=digits"], ""),
        (["data=digits", "method=softmax", "++method.delta=0.1"], "data=digits,method=softmax"),
        (["seed=1", "method=softmax"], "data=digits,method=softmax,seed=1"),
        (["experiment=digits", "data.split_seed=3"], "data.split_seed=3"),
        (["experiment=digits", "data=digits"], "data=digits,experiment=digits"),
        (["experiment=digits", "name=both"], "experiment=digits,name=both"),
    ],
)
def test_a_folder_is_named_after_the_settings_that_the_method_reads(composed, overrides, folder):
    method = composed("method=softmax", "++method.delta=0.1").method
    assert run_folder(overrides, method, ["experiment"], "digits") == folder


def test_a_folder_name_is_one_that_file_systems_take_and_tells_two_values_apart(composed):
    method = composed().method
    names = [
        run_folder([f"data.path={path}"], method, [], "x")
        for path in ("/a/x.csv", "/b/x.csv", "x.csv")
    ]
    assert len(set(names)) == 3
    assert all(name.startswith("data.path=x.csv") and "/" not in name for name in names)
    long = [
        run_folder([f"name='{letter * 300}{end}'"], method, [], "x")
        for letter in "xé語"
        for end in "ab"
    ]
    assert len(set(long)) == 6
    assert max(len(name.encode()) for name in long) <= 200


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
    calls = [vars(base)["__init__"] for base in reversed(bases) if "__init__" in vars(base)] or [
        target
    ]
    if target is as_lightning.AdaptiveGradientAccumulation:  # None there: that of its policy
        calls.append(as_lightning.callbacks.accumulation_policy.MaskingPolicy)
    found = {
        name: argument.default
        for call in calls
        for name, argument in inspect.signature(call).parameters.items()
    }
    return {
        name: default for name, default in found.items() if default is not inspect.Parameter.empty
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_default_has_one_place(path, composed):
    # a setting of a file has no default in the benchmark's own Python; the public functions, which
    # are called without configurations too, have the same one
    knobs = composed(f"method={path.stem}").method if path.parent.name == "method" else {}
    for part in parts_of(OmegaConf.to_container(OmegaConf.load(path))):
        defaults = defaults_of(get_object(part["_target_"]))
        for name in defaults.keys() & part.keys():
            value, of_method = part[name], str(part[name]).startswith("${method.")
            if of_method:
                value = knobs[value.removeprefix("${method.").removesuffix("}")]
            elif str(value).startswith("${") or knobs or part["_target_"].endswith("BestWeights"):
                # another setting's value, what makes a method, a class of Lightning's with its
                # arguments
                continue
            default = list(defaults[name]) if isinstance(defaults[name], tuple) else defaults[name]
            is_choice = (path.name, name) == (
                "resnet18.yaml",
                "stem",
            )  # the file is the choice of another stem
            assert is_choice or value == default, (
                f"{part['_target_']}: {name} is {default}, but {value} in {path}"
            )


def test_the_margin_has_the_default_of_the_configuration_wherever_a_public_name_has_one(composed):
    names = {
        name: getattr(package, name)
        for package in (as_lightning, functional)
        for name in package.__all__
    }
    parameters = {
        name: inspect.signature(value).parameters
        for name, value in names.items()
        if callable(value)
    }
    margins = {
        name: of_name["delta"].default for name, of_name in parameters.items() if "delta" in of_name
    }
    defaults = {name: margin for name, margin in margins.items() if isinstance(margin, float)}
    assert (
        defaults.pop("LinearCrossEntropyLoss") == 1.0
    )  # PyTorch's own loss, unless a margin is given
    assert {
        "ASSoftmaxLoss",
        "ASSoftmaxMixin",
        "as_cross_entropy",
        "as_linear_cross_entropy",
    } <= defaults.keys()
    for method in ("as_softmax", "multilabel_as_softmax"):
        assert set(defaults.values()) == {composed(f"method={method}").method.delta}


TEXT = ("clinc150", "conll", "docstrings", "goemotions", "sst5", "text_file", "wnut17")


@pytest.mark.parametrize(
    ("experiment", "method"),
    [
        *((experiment, "as_speed") for experiment in TEXT),
        ("sst5", "softmax"),
        ("clinc150", "as_softmax"),
    ],
)
def test_every_experiment_of_text_takes_the_settings(composed, experiment, method):
    plain = composed(f"experiment={experiment}", f"method={method}")
    config, _ = checked_settings(
        composed(f"experiment={experiment}", f"method={method}", "paper=table")
    )
    assert config.model.name == config.data.tokenizer == "bert-base-cased"
    freezing = ["trainable_layers", "feature_cache", "allow_pickle"]
    assert {*config.model} == {"_target_", "_partial_", "name", "pooling", *freezing}
    assert config.data.batch_size == 16
    assert config.optimizer == {**plain.optimizer, "_target_": "torch.optim.AdamW", "lr": 2e-5}
    assert config.lr_scheduler.max_lr == 2e-5
    assert config.trainer == plain.trainer
    assert config.method.keys() == plain.method.keys()
    assert (config.method.get("delta", 0.1), config.method.get("max_steps", 2)) == (0.1, 2)
    assert (config.method.get("lr_scale", "none"), plain.method.get("lr_scale", "auto")) == (
        "none",
        "auto",
    )
    assert plain.method.get("max_steps", 4) == 4


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
