"""The mixin in a new module, and in one that exists; in Python and on Lightning's command line."""

import copy
import pickle
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness.own_modules import WithCriterion
from harness.scripted_masking import quiet_trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from as_lightning import (
    AdaptiveGradientAccumulation,
    ASSoftmaxMixin,
    LinearCrossEntropyLoss,
    MaskingCounter,
    MaskingMonitor,
)
from as_lightning.functional import as_cross_entropy, multilabel_as_cross_entropy
from as_lightning.mixin import RefusesSilence


class New(ASSoftmaxMixin, pl.LightningModule):
    """The first way: a module that calls the loss."""

    def __init__(self, delta=0.1):
        super().__init__(delta=delta)
        self.net = nn.Linear(4, 3)

    def training_step(self, batch, batch_idx):
        inputs, target = batch
        return self.as_softmax_loss(self.net(inputs), target)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Existing(pl.LightningModule):
    """Somebody's module, with arguments, hyperparameters and a weighted loss of its own."""

    def __init__(self, features, classes=3, *, lr=0.5, class_weights=None):
        super().__init__()
        self.save_hyperparameters(ignore=["class_weights"])
        self.net = nn.Linear(features, classes)
        self.criterion = nn.CrossEntropyLoss(weight=class_weights, ignore_index=-1, reduction="sum")

    def training_step(self, batch, batch_idx):
        inputs, target = batch
        return self.criterion(self.net(inputs), target)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


class WithAS(ASSoftmaxMixin, Existing):
    """The second way: the existing module, untouched."""

    as_softmax_replaces = "criterion"


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(24, 4, generator=generator)
    target = torch.randint(0, 3, (24,), generator=generator)
    return DataLoader(TensorDataset(inputs, target), batch_size=4)


def fit(module, batches, *, validation=None, **arguments):
    trainer = quiet_trainer(**({"max_epochs": 2} | arguments))
    trainer.fit(module, batches, validation)
    return trainer


def test_training_with_delta_one_is_training_with_cross_entropy(batches):
    weights = []
    for make in (Existing, partial(WithAS, delta=1.0)):
        pl.seed_everything(0)
        module = make(4)
        fit(module, batches)
        weights.append(module.net.weight.detach())
    torch.testing.assert_close(*weights)


def test_the_losss_margin_is_the_modules_margin_and_both_can_be_set():
    module = WithAS(4, delta=0.3)
    assert isinstance(module.criterion, nn.CrossEntropyLoss)
    module.criterion.delta = 0.5
    assert module.as_softmax_delta == 0.5
    module.as_softmax_delta = 1.0
    assert module.criterion.delta == 1.0
    with pytest.raises(ValueError, match="delta"):
        module.as_softmax_delta = 1.5


def test_a_network_that_an_earlier_module_has_wrapped_is_wrapped_again():
    net = nn.Sequential()
    net.criterion = nn.CrossEntropyLoss(ignore_index=-1)

    class Theirs(pl.LightningModule):
        def __init__(self, net):
            super().__init__()
            self.net = net

    class WithNet(ASSoftmaxMixin, Theirs):
        as_softmax_replaces = "net.criterion"

    WithNet(net, delta=0.3)
    again = WithNet(net, delta=0.6)
    assert (again.as_softmax_delta, again.net.criterion.ignore_index) == (0.6, -1)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("make", [New, partial(WithAS, 4)])
def test_a_copy_has_a_margin_of_its_own(duplicate, make):
    module = make(delta=0.3)
    other = duplicate(module)
    other.as_softmax_delta = 0.6
    assert (module.as_softmax_delta, other.as_softmax_delta) == (0.3, 0.6)


class NamesItsHyperparameters(Existing):
    def __init__(self, features, lr=0.5):
        super(Existing, self).__init__()
        self.save_hyperparameters("features", "lr")
        self.net, self.criterion = nn.Linear(features, 3), nn.CrossEntropyLoss()


class HasOneConfiguration(Existing):
    def __init__(self, config, classes=3):
        super(Existing, self).__init__()
        self.save_hyperparameters(config)
        self.net, self.criterion = nn.Linear(config["features"], classes), nn.CrossEntropyLoss()


class HasHyperparametersOfItsBase(Existing):
    def __init__(self, width):
        super().__init__(features=width, lr=0.25)
        self.hparams.commit = "abc"


@pytest.mark.parametrize(
    ("plain", "arguments"),
    [
        (Existing, {"features": 4, "lr": 0.25}),
        (HasHyperparametersOfItsBase, {"width": 4}),
        (NamesItsHyperparameters, {"features": 4, "lr": 0.25}),
        (HasOneConfiguration, {"config": {"features": 4, "lr": 0.25}}),
    ],
)
def test_a_checkpoint_has_the_margin_also_where_the_module_saves_its_hyperparameters_without(
    plain, arguments, batches, tmp_path
):
    class Mixed(ASSoftmaxMixin, plain):
        as_softmax_replaces = "criterion"

    module, path = Mixed(**arguments, delta=0.3), tmp_path / "model.ckpt"
    fit(module, batches).save_checkpoint(path)
    loaded = Mixed.load_from_checkpoint(path, weights_only=True)
    assert torch.equal(loaded.net.weight, module.net.weight)
    assert (loaded.hparams.lr, loaded.as_softmax_delta) == (0.25, 0.3)
    if plain in (Existing, HasHyperparametersOfItsBase):
        assert loaded.hparams.delta == 0.3
    else:
        assert plain.load_from_checkpoint(path, weights_only=True).hparams == module.hparams
    again = Mixed.load_from_checkpoint(path, weights_only=True, delta=0.7)
    assert again.as_softmax_delta == 0.7


def test_a_checkpoint_of_0_4_holds_no_temperature_and_trains_on(batches, tmp_path):
    accumulation = AdaptiveGradientAccumulation(max_steps=2)
    trainer = fit(New(), batches, callbacks=[accumulation])
    trainer.save_checkpoint(path := tmp_path / "now.ckpt")
    content = torch.load(path, weights_only=True)
    content["as_softmax_temperature"] = {"temperature": None, "multilabel": False}
    content["callbacks"]["AdaptiveGradientAccumulation"] = {"next_length": 2, "lr_scale": "none"}
    torch.save(content, path)
    module = New.load_from_checkpoint(path, weights_only=True)
    assert module.as_softmax_temperature is None
    quiet_trainer(max_epochs=3, callbacks=[accumulation]).fit(module, batches, ckpt_path=path)
    assert len(accumulation.history) > 0


def test_the_head_loss_is_the_loss_of_the_heads_logits_and_counts_the_same():
    module = New(delta=0.2)
    module.as_softmax_module.masking_counter = counter = MaskingCounter()
    hidden, target = torch.randn(7, 4), torch.tensor([0, 1, 2, -100, 1, 0, 2])
    fused = module.as_softmax_head_loss(hidden, module.net, target)
    fused_counts = counter.counts
    counter.begin_batch()
    dense = module.as_softmax_loss(module.net(hidden), target)
    torch.testing.assert_close(fused, dense)
    assert fused_counts.tolist() == counter.counts.tolist()
    fused.backward()
    assert all(weight.grad.any() for weight in module.net.parameters())


def test_each_loss_of_the_mixin_takes_its_settings_by_name():
    module, logits = New(delta=0.3), torch.randn(6, 3)
    target = torch.tensor([0, 1, 2, -1, 1, 0])
    settings = {"weight": torch.tensor([1.0, 2.0, 0.5]), "ignore_index": -1, "reduction": "sum"}
    loss = module.as_softmax_loss(logits, target, **settings)
    assert loss == as_cross_entropy(logits, target, 0.3, **settings)
    labels = torch.ones(6, 3, 2).tril()
    several = module.multilabel_as_softmax_loss(logits[..., None].expand(6, 3, 2), labels)
    expected = multilabel_as_cross_entropy(logits[..., None].expand(6, 3, 2), labels, 0.3)
    assert several == expected
    with pytest.raises(TypeError, match="MultiLabelASSoftmaxLoss"):
        module.as_softmax_loss(logits, torch.ones(6, 3))


@pytest.mark.parametrize("make", [New, partial(WithAS, 4)])
def test_training_is_counted_and_validation_is_not(make, batches):
    module, monitor = make(delta=0.3), MaskingMonitor()

    class AlsoValidates(pl.Callback):
        def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx):
            pl_module.training_step(batch, batch_idx)

    module.validation_step = lambda batch, batch_idx: None
    module.eval()  # parts in eval mode are trained too
    fit(module, batches, validation=batches, callbacks=[monitor, AlsoValidates()])
    assert [epoch.samples for epoch in monitor.history] == [24, 24]
    assert module.as_softmax_module.masking_counter is None


def test_the_graph_of_a_mixed_module_is_traced_and_logged(batches, tmp_path):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )

    class Predicts(WithAS):
        def forward(self, inputs):
            return self.predict_proba(self.net(inputs))

    module, inputs = Predicts(4), torch.randn(2, 4)
    module.example_input_array = inputs
    logger = TensorBoardLogger(tmp_path, log_graph=True)
    fit(module, batches, logger=logger)
    assert torch.equal(torch.jit.trace(module, inputs)(inputs), module(inputs))
    events = event_accumulator.EventAccumulator(logger.log_dir).Reload()
    assert "Linear[net]" in str(events.Graph())


@pytest.mark.parametrize(
    "bases", [(pl.LightningModule, ASSoftmaxMixin), (Existing, ASSoftmaxMixin)]
)
def test_the_mixin_after_the_module_is_refused(bases):
    with pytest.raises(TypeError, match="ASSoftmaxMixin after"):
        type("Wrong", bases, {})


def test_a_next_class_with_a_delta_of_its_own_is_refused_with_the_way_out():
    class Huber(Existing):
        def __init__(self, *args, delta=5.0, **kwargs):
            super().__init__(*args, **kwargs)

    with pytest.raises(TypeError, match=r"ASSoftmaxLoss\.like"):
        type("Unclear", (ASSoftmaxMixin, type("PassesOn", (Huber,), {})), {})


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        ({"delta": 1.5}, ValueError, "delta"),
        ({"delta": torch.tensor(0.1)}, TypeError, "delta"),
        ({"delta_warmup": None}, TypeError, "delta_warmup"),
    ],
)
def test_bad_arguments_are_refused_when_the_module_is_made(arguments, error, name):
    for make in (partial(WithAS, 4), type("Bare", (ASSoftmaxMixin, pl.LightningModule), {})):
        with pytest.raises(error, match=name):
            make(**arguments)
    unknown = type("Unknown", (WithAS,), {"as_softmax_validation": "cross_entropy"})
    with pytest.raises(ValueError, match="as_softmax_validation"):
        unknown(4).configure_callbacks()


def test_a_margin_of_numpy_is_a_number():
    module = WithAS(4, delta=np.float32(0.25))
    assert type(module.as_softmax_delta) is type(module.hparams.delta) is float


class Around(nn.Module):
    """Somebody's loss that calls one of PyTorch's."""

    def __init__(self):
        super().__init__()
        self.part = nn.CrossEntropyLoss(ignore_index=-1)

    def forward(self, input, target):
        return 2 * self.part(input, target)


class Module(pl.LightningModule):
    """Somebody's module: the loss is an argument."""

    on_the_class = staticmethod(F.cross_entropy)
    a_property = property(lambda self: F.cross_entropy)

    def __init__(self, loss):
        super().__init__()
        self.criterion = loss


def replacing(name):
    return type("Replacing", (ASSoftmaxMixin, Module), {"as_softmax_replaces": name})


@pytest.mark.parametrize(
    ("name", "loss", "factor"),
    [
        ("criterion", nn.CrossEntropyLoss(ignore_index=-1), 1),
        ("criterion", partial(F.cross_entropy, ignore_index=-1), 1),
        ("criterion.part", Around(), 2),
    ],
)
def test_the_attribute_is_replaced_where_it_is(name, loss, factor):
    logits, target = torch.randn(6, 3), torch.tensor([0, 1, 2, -1, 1, 0])
    module = replacing(name)(loss, delta=0.3)
    expected = factor * as_cross_entropy(logits, target, 0.3, ignore_index=-1)
    torch.testing.assert_close(module.criterion(logits, target), expected)
    assert module.as_softmax_module.called
    assert not module.state_dict()


@pytest.mark.parametrize("name", ["on_the_class", "a_property", "missing"])
def test_an_attribute_that_the_instance_does_not_hold_is_refused(name):
    with pytest.raises(AttributeError, match=name):
        replacing(name)(nn.CrossEntropyLoss())


def test_a_loss_that_another_attribute_holds_too_is_refused():
    class Shared(Module):
        def __init__(self, loss):
            super().__init__(loss)
            self.validation_loss = self.criterion

    mixed = type("Mixed", (ASSoftmaxMixin, Shared), {"as_softmax_replaces": "criterion"})
    with pytest.raises(TypeError, match="validation_loss"):
        mixed(nn.CrossEntropyLoss())
    assert mixed(F.cross_entropy).validation_loss is F.cross_entropy


@pytest.mark.parametrize("name", ["forward", "training_step", "criterion"])
def test_what_is_no_loss_of_pytorchs_is_refused(name):
    with pytest.raises(TypeError, match=r"self\.as_softmax_loss"):
        replacing(name)(Around())


class Manual(New):
    """Steps by itself and returns nothing, as manual training steps do."""

    automatic_optimization = False

    def training_step(self, batch, batch_idx):
        self.manual_backward(super().training_step(batch, batch_idx))
        self.optimizers().step()


class SkipsTheFirst(New):
    def training_step(self, batch, batch_idx):
        return None if batch_idx == 0 else super().training_step(batch, batch_idx)


class Silent(New):
    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.net(batch[0]), batch[1])


@pytest.mark.parametrize("callbacks", [[], [MaskingMonitor], [AdaptiveGradientAccumulation]])
def test_a_module_that_never_calls_the_masked_loss_is_refused_after_its_first_batch(
    callbacks, batches
):
    with pytest.raises(MisconfigurationException, match="training_step"):
        fit(Silent(), batches, callbacks=[callback() for callback in callbacks])
    trainer = fit(SkipsTheFirst(), batches, callbacks=[callback() for callback in callbacks])
    assert trainer.fit_loop.total_batch_idx == 2 * len(batches) - 1


@pytest.mark.parametrize("make", [New, Manual, SkipsTheFirst])
def test_the_check_ends_with_the_first_batch_that_calls_the_masked_loss(make, batches):
    trainer = fit(make(), batches)
    assert trainer.fit_loop.total_batch_idx == 2 * len(batches) - 1
    assert not [c for c in trainer.callbacks if isinstance(c, RefusesSilence)]


def test_the_check_adds_to_the_modules_own_callbacks_and_skips_none(batches):
    class Counts(pl.Callback):
        calls = 0

        def on_train_batch_end(self, *args):
            self.calls += 1

    own, after = Counts(), type("After", (Counts,), {})()

    class Theirs(Existing):
        def configure_callbacks(self):
            return own

    class Mixed(ASSoftmaxMixin, Theirs):
        as_softmax_replaces = "criterion"

        def configure_callbacks(self):
            return [*super().configure_callbacks(), after]

    fit(Mixed(4), batches)
    assert own.calls == after.calls == 2 * len(batches)


class Validates(WithAS):
    def training_step(self, batch, batch_idx):
        self.training_loss = super().training_step(batch, batch_idx)
        return self.training_loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.criterion(self.net(batch[0]), batch[1]))

    test_step = validation_step


class ValidatesWithSoftmax(Validates):
    as_softmax_validation = "softmax"


@pytest.mark.parametrize(("cls", "delta"), [(Validates, 0.3), (ValidatesWithSoftmax, 1.0)])
def test_val_loss_is_the_masked_loss_or_plain_softmax_as_the_class_says(cls, delta, batches):
    module = cls(4, lr=0.0, delta=0.3)  # a rate of 0 keeps the weights
    nn.init.normal_(module.net.weight, std=4.0)  # confident enough that the margin masks
    whole = DataLoader(batches.dataset, batch_size=24)
    trainer = fit(module, batches, validation=whole)
    inputs, target = batches.dataset.tensors
    settings = {"ignore_index": -1, "reduction": "sum"}
    expected = as_cross_entropy(module.net(inputs), target, delta, **settings).detach()
    torch.testing.assert_close(trainer.callback_metrics["val_loss"], expected)
    masked = as_cross_entropy(module.net(inputs), target, 0.3, **settings)
    assert (masked == expected) == (delta == 0.3)
    last = as_cross_entropy(module.net(inputs[-4:]), target[-4:], 0.3, **settings)
    torch.testing.assert_close(module.training_loss, last)  # training stays masked
    for evaluate in (trainer.test, trainer.validate):
        evaluate(module, whole, verbose=False)
        torch.testing.assert_close(trainer.callback_metrics["val_loss"], expected)
    assert module.as_softmax_delta == 0.3
    assert module.as_softmax_module.masks


class Scaled(nn.Linear):
    def forward(self, hidden):
        return 2 * super().forward(hidden)


patched, pruned, normalised = (nn.Linear(4, 3) for _ in range(3))
patched.forward = lambda hidden: 2 * hidden
nn.utils.prune.l1_unstructured(pruned, "weight", 0.5)
nn.utils.spectral_norm(normalised)
parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))


@pytest.mark.parametrize(
    "head", [patched, Scaled(4, 3), nn.Sequential(), pruned, normalised, parametrized]
)
def test_the_losses_of_heads_refuse_what_they_would_go_around_and_name_the_way_out(head):
    hidden, target = torch.randn(2, 4), torch.tensor([0, 1])
    with pytest.raises(TypeError, match=r"self\.as_softmax_loss\(head\(hidden\), target\)"):
        New().as_softmax_head_loss(hidden, head, target)
    loss = LinearCrossEntropyLoss(4, 3)
    loss.linear = head
    with pytest.raises(TypeError, match=r"ASSoftmaxLoss\(1\.0\)"):
        loss(hidden, target)


def test_the_head_loss_trains_under_a_profiler_that_hooks_every_module(batches):
    class Wide(New):
        def training_step(self, batch, batch_idx):
            return self.as_softmax_head_loss(batch[0], self.net, batch[1])

    assert fit(Wide(), batches, profiler="pytorch", max_steps=1).global_step == 1


class OnCommandLine(WithCriterion):
    def train_dataloader(self):
        target = torch.zeros(4, dtype=torch.int64)
        return DataLoader(TensorDataset(torch.ones(4, 8), target), batch_size=2)


class OnCommandLineAS(ASSoftmaxMixin, OnCommandLine):
    as_softmax_replaces = "criterion"


def test_the_command_line_sets_each_argument_and_its_configuration_and_checkpoint_load_back(
    monkeypatch, tmp_path
):
    pytest.importorskip("jsonargparse")
    from lightning.pytorch.cli import LightningCLI

    monkeypatch.setattr("sys.argv", ["train.py"])
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 1}

    def made(*args):
        folder = f"--trainer.default_root_dir={tmp_path}"
        arguments = {"args": ["fit", *args, folder], "trainer_defaults": quiet}
        return LightningCLI(OnCommandLineAS, **arguments, seed_everything_default=1)

    assert made().model.as_softmax_delta == 0.5
    cli = made("--model.delta=0.2", "--model.lr=1")
    path = cli.trainer.checkpoint_callback.best_model_path
    loaded = OnCommandLineAS.load_from_checkpoint(path, weights_only=False)
    config = sorted(tmp_path.rglob("config.yaml"))[-1]
    for module in (cli.model, loaded, made(f"--config={config}").model):
        assert (module.as_softmax_delta, module.hparams.lr) == (0.2, 1.0)
