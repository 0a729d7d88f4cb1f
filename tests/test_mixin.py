"""The mixin in a new module, and in one that exists."""

import copy
import functools

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness.searches import FindsInTheSecondEpoch
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder, OnExceptionCheckpoint
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from as_lightning import (
    AdaptiveGradientAccumulation,
    ASSoftmaxMixin,
    DeltaWarmup,
    LinearCrossEntropyLoss,
    MaskingMonitor,
)
from as_lightning.functional import as_cross_entropy
from as_lightning.mixin import HOOKS


class New(ASSoftmaxMixin, pl.LightningModule):
    """The first way: a module that calls the loss."""

    def __init__(self, delta: float = 0.1, delta_warmup: DeltaWarmup | None = None) -> None:
        super().__init__(delta=delta, delta_warmup=delta_warmup)
        self.net = nn.Linear(4, 3)
        self.deltas: list[float] = []

    def training_step(self, batch, batch_idx):
        self.deltas.append(self.current_delta)
        inputs, target = batch
        return self.as_softmax_loss(self.net(inputs), target)

    def validation_step(self, batch, batch_idx):
        self.validation_delta = self.current_delta
        self.as_softmax_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Existing(pl.LightningModule):
    """Somebody's module, with arguments, hyperparameters and a weighted loss of its own."""

    def __init__(
        self, features: int, classes: int = 3, *, lr: float = 0.5, class_weights=None
    ) -> None:
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


def fit(module, batches, tmp_path, *, validation=None, ckpt_path=None, **arguments) -> pl.Trainer:
    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    settings = {"max_epochs": 2, "accelerator": "cpu", "default_root_dir": tmp_path}
    trainer = pl.Trainer(**(settings | quiet | arguments))
    trainer.fit(module, batches, validation, ckpt_path=ckpt_path)
    return trainer


def test_training_with_delta_one_is_training_with_cross_entropy(batches, tmp_path):
    weights = []
    for cls in (Existing, WithAS):
        pl.seed_everything(0)
        module = cls(4) if cls is Existing else cls(4, delta=1.0)
        fit(module, batches, tmp_path)
        weights.append(module.net.weight.detach())
    torch.testing.assert_close(*weights)


class NamesItsHyperparameters(Existing):
    def __init__(self, features: int, lr: float = 0.5) -> None:
        super(Existing, self).__init__()
        self.save_hyperparameters("features", "lr")
        self.net, self.criterion = nn.Linear(features, 3), nn.CrossEntropyLoss()


class HasOneConfiguration(Existing):
    def __init__(self, config: dict[str, float], classes: int = 3) -> None:
        super(Existing, self).__init__()
        self.save_hyperparameters(config)
        self.net, self.criterion = nn.Linear(config["features"], classes), nn.CrossEntropyLoss()


@pytest.mark.parametrize(
    ("plain", "arguments"),
    [
        (Existing, {"features": 4, "lr": 0.25}),
        (NamesItsHyperparameters, {"features": 4, "lr": 0.25}),
        (HasOneConfiguration, {"config": {"features": 4, "lr": 0.25}}),
    ],
)
def test_a_checkpoint_has_the_margin_also_where_the_module_saves_its_hyperparameters_without(
    plain, arguments, batches, tmp_path
):
    class Mixed(ASSoftmaxMixin, plain):
        as_softmax_replaces = "criterion"

    module = Mixed(**arguments, delta=0.3, delta_warmup=DeltaWarmup(batches=2))
    fit(module, batches, tmp_path).save_checkpoint(tmp_path / "model.ckpt")
    loaded = Mixed.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    assert torch.equal(loaded.net.weight, module.net.weight)
    assert (loaded.hparams.lr, loaded.as_softmax_delta) == (0.25, 0.3)
    assert loaded._as_softmax_warmup.warmup == DeltaWarmup(batches=2)
    if plain is Existing:
        assert loaded.hparams.delta_warmup == DeltaWarmup(batches=2)
    else:
        assert (
            plain.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True).hparams
            == module.hparams
        )
    assert (
        Mixed.load_from_checkpoint(
            tmp_path / "model.ckpt", weights_only=True, delta=0.7
        ).as_softmax_delta
        == 0.7
    )


def test_the_head_loss_looks_at_a_parametrized_weight_once():
    module, as_called = New(delta=0.2), nn.utils.parametrizations.spectral_norm(nn.Linear(64, 64))
    head, hidden = copy.deepcopy(as_called), torch.randn(7, 64)
    as_called(hidden)  # a step of the power iteration
    module.as_softmax_head_loss(hidden, head, torch.arange(7))
    torch.testing.assert_close(head.state_dict(), as_called.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("parametrized", [False, True])
def test_the_head_loss_is_the_loss_of_the_heads_logits_and_counts_the_same(parametrized):
    module = New(delta=0.2)
    if parametrized:
        nn.utils.parametrizations.weight_norm(
            module.net
        ).parametrizations.weight.original0.data.mul_(3.0)
    hidden, target = torch.randn(7, 4), torch.tensor([0, 1, 2, -100, 1, 0, 2])
    fused = module.as_softmax_head_loss(hidden, module.net, target)
    fused_counts = module.masking_counter.close_window().counts
    dense = module.as_softmax_loss(module.net(hidden), target)
    torch.testing.assert_close(fused, dense)
    assert fused_counts.tolist() == module.masking_counter.close_window().counts.tolist()
    fused.backward()
    assert all(weight.grad.any() for weight in module.net.parameters())


def test_evaluation_computes_the_loss_but_counts_nothing(batches, tmp_path):
    module = New()
    module.eval()
    module.as_softmax_loss(torch.randn(2, 3), torch.tensor([0, 1]))
    assert not module.masking_counter.counted
    fit(module.train(), batches, tmp_path, max_epochs=1, validation=batches)
    assert module.masking_counter.open_sums.counts[1] == sum(len(batch[1]) for batch in batches)


def test_the_warmup_counts_batches_and_not_optimizer_steps_and_validation_uses_the_final_margin(
    batches, tmp_path
):
    module = New(
        delta=0.2, delta_warmup=DeltaWarmup(ratio=0.5)
    ).eval()  # parts in eval mode are trained too
    fit(
        module,
        batches,
        tmp_path,
        accumulate_grad_batches=3,
        validation=batches,
        callbacks=[monitor := MaskingMonitor()],
    )
    assert module.deltas == [1.0] * 6 + [0.2] * 6
    assert module.validation_delta == 0.2
    assert [epoch.samples for epoch in monitor.history] == [24, 24]


class ChangesLength(New):
    """Each epoch has a length of its own; notes each batch's delta and saves every epoch."""

    lengths = (8, 2, 6)

    def train_dataloader(self):
        length = self.lengths[self.trainer.current_epoch]
        return DataLoader(
            TensorDataset(torch.ones(length, 4), torch.zeros(length, dtype=torch.long))
        )

    def on_train_epoch_end(self):
        self.trainer.save_checkpoint(
            f"{self.trainer.default_root_dir}/{self.trainer.current_epoch}.ckpt"
        )


def test_the_length_of_the_warmup_is_fixed_at_the_first_batch_of_training(tmp_path):
    settings = {
        "batches": None,
        "tmp_path": tmp_path,
        "max_epochs": 3,
        "reload_dataloaders_every_n_epochs": 1,
    }
    warmup = DeltaWarmup(ratio=0.5)
    whole, resumed = (ChangesLength(delta=0.2, delta_warmup=warmup) for _ in range(2))
    fit(whole, **settings)
    assert whole.deltas == [1.0] * 12 + [0.2] * 4  # half of three epochs of eight batches
    fit(resumed, **settings, ckpt_path=tmp_path / "1.ckpt")
    assert resumed.deltas == whole.deltas[10:]
    resumed.deltas.clear()
    fit(resumed, **settings)  # another training
    assert resumed.deltas == whole.deltas


@pytest.mark.parametrize("max_epochs", [-1, 2])
def test_a_warmup_ratio_beside_max_steps_is_refused_and_names_batches(
    max_epochs, batches, tmp_path
):
    module = New(delta_warmup=DeltaWarmup(ratio=0.1))
    with pytest.raises(ValueError, match=r"DeltaWarmup\(ratio=\.\.\.\) needs .* give batches"):
        fit(module, batches, tmp_path, max_steps=5, max_epochs=max_epochs)
    assert module.deltas == []


@pytest.mark.parametrize(
    "finder",
    [
        LearningRateFinder(num_training_steps=4, early_stop_threshold=None, update_attr=False),
        FindsInTheSecondEpoch(),
    ],
)
def test_a_search_of_the_learning_rate_leaves_a_warmup_ratio_as_it_is(finder, batches, tmp_path):
    plain, searched = (
        New(delta=0.2, delta_warmup=DeltaWarmup(ratio=0.5, shape="linear")) for _ in range(2)
    )
    fit(plain, batches, tmp_path, max_epochs=4)
    fit(searched, batches, tmp_path, max_epochs=4, callbacks=[finder])
    search = slice(6, 10) if isinstance(finder, FindsInTheSecondEpoch) else slice(0, 4)
    assert searched.deltas[search] == plain.deltas[search]  # those of the batches that come next
    del searched.deltas[search]
    assert searched.deltas == plain.deltas


def test_a_search_of_the_batch_size_leaves_a_warmup_ratio_and_the_counts_as_they_are(
    batches, tmp_path
):
    class Sized(pl.LightningDataModule):
        batch_size = 2

        def train_dataloader(self):
            return DataLoader(batches.dataset, batch_size=self.batch_size)

        val_dataloader = train_dataloader

    module = New(delta=0.2, delta_warmup=DeltaWarmup(ratio=0.5))
    finder = BatchSizeFinder(max_trials=2, steps_per_trial=2)
    callbacks = [finder, monitor := MaskingMonitor(), speed := AdaptiveGradientAccumulation()]
    fit(module, Sized(), tmp_path, callbacks=callbacks)
    training = [1.0] * 6 + [0.2] * 6  # of 4 samples each
    assert module.deltas[-12:] == training
    assert [epoch.samples for epoch in monitor.history] == [24, 24]
    assert sum(window.samples for window in speed.history) == 48


def test_a_warmup_ratio_passes_a_fast_dev_run(batches, tmp_path):
    module = New(delta_warmup=DeltaWarmup(ratio=0.5))
    fit(module, batches, tmp_path, fast_dev_run=4)
    assert module.deltas == [1.0, 1.0, 0.1, 0.1]


class FailsAt(New):
    """Fails inside the training step of one batch."""

    fails_at: int | None = None

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        if len(self.deltas) - 1 == self.fails_at:
            raise RuntimeError("out of memory")
        return loss


def test_a_warmup_repeats_the_margin_of_a_batch_that_an_exception_has_ended(batches, tmp_path):
    whole, failing, resumed = (
        FailsAt(delta_warmup=DeltaWarmup(batches=10, shape="linear")) for _ in range(3)
    )
    fit(whole, batches, tmp_path)
    failing.fails_at = 4
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(
            failing,
            batches,
            tmp_path,
            callbacks=[OnExceptionCheckpoint(tmp_path)],
            enable_checkpointing=True,
        )
    fit(resumed, batches, tmp_path, ckpt_path=tmp_path / "on_exception.ckpt")
    assert failing.deltas == whole.deltas[:5]
    assert resumed.deltas[:6] == whole.deltas[4:10]


@pytest.mark.parametrize(
    "bases", [(pl.LightningModule, ASSoftmaxMixin), (Existing, ASSoftmaxMixin)]
)
def test_the_mixin_after_the_module_is_refused_with_the_order_that_works(bases):
    with pytest.raises(
        TypeError,
        match=rf"Name the mixin first: class Wrong\(ASSoftmaxMixin, {bases[0].__name__}\)",
    ):
        type("Wrong", bases, {})


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_hides_the_mixins_is_refused_where_the_class_is_made(hook):
    def hides(self, *args):
        return None

    with pytest.raises(
        TypeError, match=rf"Hides.{hook} hides that of ASSoftmaxMixin.* call super\(\).{hook}"
    ):
        type("Hides", (ASSoftmaxMixin, Existing), {hook: hides})
    with pytest.raises(TypeError, match=rf"Other.{hook} hides that of ASSoftmaxMixin"):
        type("Inherits", (type("Other", (), {hook: functools.partialmethod(hides)}), WithAS), {})
    type("AfterIt", (ASSoftmaxMixin, type("Theirs", (Existing,), {hook: hides})), {})


@pytest.mark.parametrize(("name", "value"), [("predict_proba", print), ("as_softmax_delta", 0.5)])
def test_what_the_mixin_hides_of_the_next_class_has_to_be_chosen(name, value):
    theirs = type("Theirs", (Existing,), {name: value})
    with pytest.raises(
        TypeError, match=rf"hides Theirs.{name}: .*in class Mixed .*`{name} = Theirs.{name}`"
    ):
        type("Mixed", (ASSoftmaxMixin, theirs), {})
    type("Mixed", (ASSoftmaxMixin, theirs), {name: value})


def test_a_module_that_skips_the_mixins_init_is_told_to_call_it():
    wrong = type(
        "Wrong", (ASSoftmaxMixin, pl.LightningModule), {"__init__": pl.LightningModule.__init__}
    )
    with pytest.raises(RuntimeError, match=r"call `super\(\).__init__\(delta=...\)` first"):
        wrong().as_softmax_loss(torch.randn(2, 3), torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"delta": 1.5}, ValueError, r"delta .* \[0, 1\], got"),
        ({"delta": torch.tensor(0.1)}, TypeError, r"delta must be a number in \[0, 1\], got"),
        (
            {"delta_warmup": 0.1},
            TypeError,
            r"a DeltaWarmup, such as DeltaWarmup\(ratio=0.1\), got 0.1",
        ),
    ],
)
def test_bad_arguments_are_refused_when_the_module_is_made(arguments, error, message):
    with pytest.raises(error, match=message):
        WithAS(4, **arguments)


def test_a_margin_of_numpy_is_a_number():
    margin = WithAS(4, delta=np.float32(0.25)).as_softmax_delta
    assert (type(margin), margin) == (float, 0.25)


class Manual(New):
    """Steps by itself and returns nothing, as manual training steps do; ``counts`` says on which
    batches it counts.
    """

    def __init__(self, counts, steps=lambda batch_idx: True):
        super().__init__()
        self.automatic_optimization = False
        self.counts, self.steps = counts, steps

    def training_step(self, batch, batch_idx):
        logits = self.net(batch[0])
        loss = (
            self.as_softmax_loss(logits, batch[1])
            if self.counts(batch_idx)
            else F.cross_entropy(logits, batch[1])
        )
        self.manual_backward(loss)
        if self.steps(batch_idx):
            self.optimizers().step()


class Silent(New):
    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.net(batch[0]), batch[1])


@pytest.mark.parametrize("make", [Silent, lambda: Manual(counts=lambda batch_idx: False)])
def test_a_module_that_never_calls_the_masked_loss_is_refused(make, batches, tmp_path):
    with pytest.raises(
        MisconfigurationException, match=r"no masking counts.*self\.as_softmax_loss.*_replaces"
    ):
        fit(make(), batches, tmp_path)


def test_a_manual_batch_that_neither_steps_nor_counts_is_no_silence(batches, tmp_path):
    module = Manual(counts=lambda batch_idx: batch_idx >= 2, steps=lambda batch_idx: batch_idx >= 2)
    fit(module, batches, tmp_path)
    assert module.masking_counter.counted


@pytest.mark.parametrize("callbacks", [[], [MaskingMonitor], [AdaptiveGradientAccumulation]])
def test_a_first_batch_that_returns_none_is_no_silence(callbacks, batches, tmp_path):
    class SkipsTheFirst(New):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == 0 else super().training_step(batch, batch_idx)

    module = SkipsTheFirst()
    trainer = fit(
        module, batches, tmp_path, max_epochs=1, callbacks=[callback() for callback in callbacks]
    )
    assert module.masking_counter.counted
    assert trainer.fit_loop.total_batch_idx == len(batches) - 1


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
def test_val_loss_is_the_masked_loss_or_plain_softmax_as_the_class_says(
    cls, delta, batches, tmp_path
):
    module = cls(
        4, lr=0.0, delta=0.3
    )  # a rate of 0: the weights that are validated are those at the end
    nn.init.normal_(module.net.weight, std=4.0)  # confident enough that the margin masks
    whole = DataLoader(batches.dataset, batch_size=24)
    trainer = fit(module, batches, tmp_path, max_epochs=1, validation=whole)
    inputs, target = batches.dataset.tensors
    expected = as_cross_entropy(
        module.net(inputs), target, delta, ignore_index=-1, reduction="sum"
    ).detach()
    torch.testing.assert_close(trainer.callback_metrics["val_loss"], expected)
    masked = as_cross_entropy(module.net(inputs), target, 0.3, ignore_index=-1, reduction="sum")
    assert (masked == expected) == (delta == 0.3)
    inputs, target = inputs[-4:], target[-4:]  # training stays masked
    last = as_cross_entropy(module.net(inputs), target, 0.3, ignore_index=-1, reduction="sum")
    torch.testing.assert_close(module.training_loss, last)
    trainer.test(module, whole, verbose=False)
    torch.testing.assert_close(trainer.callback_metrics["val_loss"], expected)


def test_softmax_validation_by_hand_follows_eval_mode():
    module = ValidatesWithSoftmax(4, delta=0.3)
    logits, target = 3 * torch.randn(6, 3), torch.tensor([0, 1, 2, -1, 1, 0])
    assert (module.current_delta, module.eval().current_delta) == (0.3, 1.0)
    assert module.criterion.delta == module.as_softmax_delta == 0.3
    expected = F.cross_entropy(logits, target, ignore_index=-1, reduction="sum")
    torch.testing.assert_close(module.criterion(logits, target), expected)


def test_an_unknown_loss_for_validation_is_refused():
    with pytest.raises(
        ValueError, match="must be one of 'as_softmax', 'softmax', got 'cross_entropy'"
    ):
        type("Unknown", (WithAS,), {"as_softmax_validation": "cross_entropy"})(4)


class Scaled(nn.Linear):
    def forward(self, hidden):
        return 2 * super().forward(hidden)


hooked, patched, pruned, normalised = (nn.Linear(4, 3) for _ in range(4))
hooked.register_forward_hook(lambda *args: None)
patched.forward = lambda hidden: 2 * hidden
nn.utils.prune.l1_unstructured(pruned, "weight", 0.5)
nn.utils.spectral_norm(normalised)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (patched, "the forward of this Linear has been replaced"),
        (Scaled(4, 3), "it is Scaled, whose forward may compute something else"),
        (nn.Sequential(nn.Linear(4, 3)), "it is Sequential"),
        (hooked, "it has hooks"),
        (pruned, "a hook makes its weight"),
        (normalised, "a hook makes its weight"),
    ],
)
def test_the_losses_of_heads_refuse_what_they_would_go_around_and_name_the_way_out(head, message):
    hidden, target = torch.randn(2, 4), torch.tensor([0, 1])
    with pytest.raises(
        TypeError, match=rf"{message}.*use self\.as_softmax_loss\(head\(hidden\), target\)"
    ):
        New().as_softmax_head_loss(hidden, head, target)
    if head is hooked:  # in a module that holds the head, profilers may watch it
        return
    loss = LinearCrossEntropyLoss(4, 3)
    loss.linear = head
    with pytest.raises(
        TypeError, match=rf"LinearCrossEntropyLoss reads .*{message}.*ASSoftmaxLoss\(1\.0\)"
    ):
        loss(hidden, target)


def test_the_head_loss_trains_under_a_profiler_that_hooks_every_module(batches, tmp_path):
    class Wide(New):
        def training_step(self, batch, batch_idx):
            return self.as_softmax_head_loss(batch[0], self.net, batch[1])

    trainer = fit(Wide(), batches, tmp_path, profiler="pytorch", max_steps=1)
    assert trainer.global_step == 1
