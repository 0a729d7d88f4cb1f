"""TemperatureScaling in trainings: with and without the mixin, one class, several labels, tokens,
checkpoints.
"""

import copy
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from harness.own_modules import HuggingFace, Sentences
from harness.scripted_masking import SavesEveryBatch, quiet_trainer
from lightning.pytorch.callbacks import (
    EMAWeightAveraging,
    ModelCheckpoint,
    ModelPruning,
    StochasticWeightAveraging,
)
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader, TensorDataset

from as_lightning import ASSoftmaxMixin, MarginHistogram, TemperatureScaling, fitted_temperature
from as_lightning.functional import fit_temperature
from as_lightning.mixin import TEMPERATURE_KEY


class Plain(pl.LightningModule):
    """A classifier of anybody's: one class per sample or token, or several labels."""

    def __init__(self, labels: bool = False) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Linear(4, 3)
        self.labels = labels

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.net(inputs)

    def loss(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if self.labels:
            return F.binary_cross_entropy_with_logits(logits, target)
        return F.cross_entropy(logits.movedim(-1, 1), target)

    def training_step(self, batch, batch_idx):
        return self.loss(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.loss(self(batch[0]), batch[1]))

    def test_step(self, batch, batch_idx):
        self(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


class Masked(ASSoftmaxMixin, Plain):
    def __init__(self, labels: bool = False) -> None:
        super().__init__(labels=labels, delta=0.1)

    def loss(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if self.labels:
            return self.multilabel_as_softmax_loss(logits, target)
        return self.as_softmax_loss(logits.movedim(-1, 1), target)


def loader(kind: str = "class", rows: int = 64) -> DataLoader:
    generator = torch.Generator().manual_seed(0)
    shape = (rows, 5, 4) if kind == "token" else (rows, 4)
    inputs = torch.randn(*shape, generator=generator)
    scores = inputs[..., :3] + 0.5 * torch.randn(*shape[:-1], 3, generator=generator)
    target = (scores > 0.5).float() if kind == "labels" else scores.argmax(-1)
    if kind == "token":
        target[:, -2:] = -100
    return DataLoader(TensorDataset(inputs, target), batch_size=16)


def fitted(module, callback, folder, save_weights_only=False, steps=-1, **loaders):
    kept = {
        "filename": "{epoch}",
        "save_last": True,
        "save_top_k": -1,
        "save_weights_only": save_weights_only,
    }
    callbacks = [callback, ModelCheckpoint(folder, **kept)]
    trainer = quiet_trainer(
        max_epochs=2, max_steps=steps, callbacks=callbacks, enable_checkpointing=True
    )
    trainer.fit(module, **({"train_dataloaders": loader(), "val_dataloaders": loader()} | loaders))
    return trainer


def validated(trainer: pl.Trainer, module: Any, data: DataLoader) -> None:
    """Validate where training ended with other weights than the last validation saw."""
    (scaling,) = (each for each in trainer.callbacks if isinstance(each, TemperatureScaling))
    if scaling.temperature is None:
        trainer.validate(module, data, verbose=False)


def all_of(data: DataLoader) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(data.dataset.tensors)


@pytest.mark.parametrize("kind", ["class", "labels", "token"])
@pytest.mark.parametrize("module_class", [Plain, Masked])
def test_the_temperature_is_that_of_the_last_validation(kind, module_class, tmp_path):
    data, callback = loader(kind), TemperatureScaling()
    module = module_class(labels=kind == "labels")
    loaders = {"train_dataloaders": data, "val_dataloaders": data}
    with pytest.warns(UserWarning, match="Run trainer.validate with the validation data"):
        trainer = fitted(module, callback, tmp_path, steps=6, **loaders)  # in mid-epoch
    assert callback.temperature is None
    trainer.validate(module, data, verbose=False)
    inputs, target = all_of(data)
    expected = fit_temperature(module(inputs).detach(), target)
    assert callback.temperature == pytest.approx(expected, rel=1e-4) != 1.0


def test_unknown_labels_take_no_part_in_fit_and_test(tmp_path: Path) -> None:
    inputs, target = all_of(loader("labels"))
    known = (torch.arange(target.numel()) % 3 > 0).reshape(target.shape)
    data = DataLoader(TensorDataset(inputs, target.masked_fill(~known, -1.0)), batch_size=16)

    class Known(Plain):
        def loss(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return F.binary_cross_entropy_with_logits(
                logits, target.clamp(min=0), weight=(target >= 0).float()
            )

    callback, module = TemperatureScaling(ignore_index=-1), Known()
    trainer = fitted(module, callback, tmp_path, train_dataloaders=data, val_dataloaders=data)
    logits = module(inputs).detach()
    assert callback.temperature == pytest.approx(
        fit_temperature(logits[known], target[known]), rel=1e-4
    )
    (metrics,) = trainer.test(module, data, verbose=False)
    expected = float(F.binary_cross_entropy_with_logits(logits[known], target[known]))
    assert metrics["test/nll_unscaled"] == pytest.approx(expected, rel=1e-5)
    assert float(callback.diagrams["scaled"].predictions.sum()) == int(known.sum())


@pytest.mark.parametrize("save_weights_only", [False, True])
@pytest.mark.parametrize(
    "averaging",
    [
        None,
        lambda: StochasticWeightAveraging(swa_lrs=0.3, swa_epoch_start=1),
        lambda: EMAWeightAveraging(decay=0.7),
    ],
    ids=["plain", "SWA", "EMA"],
)
@pytest.mark.parametrize("normalised", [False, True])
def test_each_checkpoint_and_the_trained_module_hold_the_temperature_of_their_own_weights_or_none(
    normalised, averaging, save_weights_only, tmp_path
):
    module = Masked()
    if normalised:
        module.net = torch.nn.Sequential(torch.nn.BatchNorm1d(4), module.net)
    kept = {"save_top_k": -1, "save_weights_only": save_weights_only}
    callbacks = [
        TemperatureScaling(),
        *([] if averaging is None else [averaging()]),
        ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=2, **kept),
        ModelCheckpoint(tmp_path, "val-{step}", **kept),
    ]
    trainer = quiet_trainer(
        callbacks=callbacks, enable_checkpointing=True, max_epochs=3, val_check_interval=3
    )
    trainer.fit(module, loader(), loader())
    validated(trainer, module, loader())
    trainer.save_checkpoint(tmp_path / "end.ckpt", save_weights_only)
    inputs, target = all_of(loader())

    def of_its_weights(loaded: Masked) -> float:
        return fit_temperature(loaded.eval()(inputs).detach(), target)

    held = {}
    for path in tmp_path.glob("*.ckpt"):
        loaded = Masked()
        loaded.net = copy.deepcopy(module.net)
        saved = torch.load(path, weights_only=False)
        loaded.on_load_checkpoint(saved)
        loaded.load_state_dict(saved["state_dict"])
        held[path.stem] = loaded.as_softmax_temperature
        if held[path.stem] is not None:
            assert held[path.stem] == pytest.approx(of_its_weights(loaded), rel=1e-3), path.stem
    assert held["step=4"] is None  # between two validations
    assert len(set(held.values()) - {None}) > 1 or (averaging is not None and save_weights_only)
    assert (
        held["end"]
        == module.as_softmax_temperature
        == pytest.approx(of_its_weights(module), rel=1e-3)
    )


@pytest.mark.parametrize("permanent", [False, True])
def test_weights_that_are_pruned_after_their_validation_get_a_temperature_of_their_own(permanent):
    # a number that a validation changes is no weight, nor is what it sets back, as a metric
    class Remembers(Masked):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("validations", torch.zeros(()))
            self.register_buffer("seen", torch.zeros(2))

        def on_validation_batch_end(self, *args: Any) -> None:
            self.seen += 1

        def on_validation_epoch_end(self) -> None:
            self.validations += 1
            self.seen.zero_()

    pruning = ModelPruning("l1_unstructured", amount=0.4, make_pruning_permanent=permanent)
    module, (inputs, target) = Remembers(), all_of(loader())
    scaling = TemperatureScaling()
    quiet_trainer(max_epochs=2, callbacks=[scaling, pruning]).fit(module, loader(), loader())
    validated(quiet_trainer(callbacks=[scaling]), module, loader())
    expected = fit_temperature(module(inputs).detach(), target)
    assert module.as_softmax_temperature == pytest.approx(expected, rel=1e-3)


def test_a_checkpoint_that_leaves_frozen_weights_out_keeps_the_temperature(tmp_path: Path) -> None:
    class Lean(Masked):
        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            name = next(iter(checkpoint["state_dict"]))
            checkpoint["state_dict"] = {name: checkpoint["state_dict"][name]}
            super().on_save_checkpoint(checkpoint)

    trainer = fitted(module := Lean(), TemperatureScaling(), tmp_path)
    trainer.save_checkpoint(tmp_path / "lean.ckpt")
    saved = torch.load(tmp_path / "lean.ckpt", weights_only=False)
    assert len(saved["state_dict"]) == 1
    assert saved[TEMPERATURE_KEY]["temperature"] == module.as_softmax_temperature is not None
    loaded = Lean()
    loaded.on_load_checkpoint(saved)
    loaded.load_state_dict(saved["state_dict"], strict=False)
    assert loaded.as_softmax_temperature is None  # the weights that were left out are others
    loaded.load_state_dict(module.state_dict())
    assert loaded.as_softmax_temperature == module.as_softmax_temperature


@pytest.mark.parametrize("save_weights_only", [False, True])
@pytest.mark.parametrize("with_the_callback_of_the_fit", [False, True])
@pytest.mark.parametrize("by_trainer", [False, True])
def test_a_test_measures_at_the_temperature_of_the_checkpoint(
    by_trainer, with_the_callback_of_the_fit, save_weights_only, tmp_path
):
    callback, module = TemperatureScaling(), Masked()
    trainer = fitted(module, callback, tmp_path, save_weights_only)
    first = Masked.load_from_checkpoint(tmp_path / "epoch=0.ckpt")
    assert first.as_softmax_temperature != pytest.approx(module.as_softmax_temperature, rel=0.02)
    if not with_the_callback_of_the_fit:
        trainer = quiet_trainer(callbacks=[TemperatureScaling()])
    chosen = (
        {"ckpt_path": str(tmp_path / "epoch=0.ckpt"), "weights_only": True} if by_trainer else {}
    )
    (metrics,) = trainer.test(module if by_trainer else first, loader(), verbose=False, **chosen)
    inputs, target = all_of(loader())
    logits = first(inputs).detach()
    expected = F.cross_entropy(logits / fit_temperature(logits, target), target)
    assert metrics["test/nll_scaled"] == pytest.approx(float(expected), rel=1e-5)
    assert metrics["test/nll_unscaled"] == pytest.approx(
        float(F.cross_entropy(logits, target)), rel=1e-5
    )
    assert metrics["test/nll_scaled"] < metrics["test/nll_unscaled"]
    assert metrics["test/calibration_error_scaled"] < metrics["test/calibration_error_unscaled"]
    diagram = next(c for c in trainer.callbacks if isinstance(c, TemperatureScaling)).diagrams[
        "scaled"
    ]
    assert float(diagram.predictions.sum()) == len(target)
    assert not module._forward_hooks
    assert not first._forward_hooks


@pytest.mark.parametrize(("kind", "same_module"), [(Plain, True), (Masked, True), (Plain, False)])
def test_other_weights_are_not_measured_at_the_temperature_of_the_trained_ones(
    kind, same_module, tmp_path
):
    trained = kind()
    trainer = fitted(trained, TemperatureScaling(), tmp_path)
    module = other = kind.load_from_checkpoint(tmp_path / "epoch=0.ckpt")
    if same_module:
        (module := trained).load_state_dict(other.state_dict())
    with pytest.warns(
        UserWarning, match=f"no temperature is fitted for the weights of {kind.__name__}"
    ):
        (metrics,) = trainer.test(module, loader(), verbose=False)
    assert metrics["test/nll_scaled"] == metrics["test/nll_unscaled"]


class Scale(torch.nn.Parameter):
    """A weight of a class of its own."""


def test_a_temperature_goes_with_its_weights_and_stays_with_copies_of_them(tmp_path: Path) -> None:
    class Normalised(Masked):
        def __init__(self) -> None:
            super().__init__()
            # whose buffers `double` makes anew
            self.net = torch.nn.Sequential(torch.nn.BatchNorm1d(4), self.net)
            self.scale = Scale(torch.tensor(1.0), requires_grad=False)  # of the logits, as CLIP's
            self.strict_loading = False
            self.register_buffer("graph", torch.eye(2).to_sparse(), persistent=False)
            self.register_buffer("rotation", torch.tensor([1j]), persistent=False)

        # as one that knows no arguments, and leaves a part out
        def state_dict(self) -> dict[str, Any]:
            return {name: part for name, part in super().state_dict().items() if name != "scale"}

    def trained_by_hand(module: Masked, optimizer: type = torch.optim.SGD, **settings) -> None:
        module.loss(module(all_of(loader())[0]), all_of(loader())[1]).backward()
        optimizer(module.parameters(), lr=0.5, **settings).step()

    changes = {
        "load_state_dict": lambda module: module.load_state_dict(
            Normalised().state_dict(), strict=False
        ),
        "in another's place": lambda module: module.net.load_state_dict(
            Normalised().net.state_dict(), assign=True
        ),
        "training by hand": trained_by_hand,
        "a fused optimizer": lambda module: trained_by_hand(module, torch.optim.AdamW, fused=True),
        "data": lambda module: module.net[1].weight.data.mul_(2),
        "one number": lambda module: module.scale.data.mul_(2),
        "statistics": lambda module: module.net[0].train()(torch.ones(2, 4)),
    }
    trained = Normalised()
    fitted(trained, TemperatureScaling(), tmp_path)
    assert trained.as_softmax_temperature is not None
    for name, change in changes.items():
        for module in (
            copy.deepcopy(trained),
            Normalised.load_from_checkpoint(tmp_path / "last.ckpt"),
        ):
            assert (
                copy.deepcopy(module.double()).as_softmax_temperature
                == trained.as_softmax_temperature
            )
            change(module.float())
            assert (
                copy.deepcopy(module).as_softmax_temperature
                is module.as_softmax_temperature
                is None
            ), name
            module.load_state_dict(torch.nn.Module.state_dict(trained))
            assert module.as_softmax_temperature == trained.as_softmax_temperature
    trained.net[0] = torch.nn.Identity()
    assert trained.as_softmax_temperature is None


def test_logits_that_are_nan_leave_no_temperature(tmp_path: Path) -> None:
    data, module, callback = loader(), Masked(), TemperatureScaling()
    data.dataset.tensors[0][3] = torch.nan
    with pytest.warns(UserWarning, match="logits are NaN"):
        fitted(module, callback, tmp_path, val_dataloaders=data)
    assert module.as_softmax_temperature is callback.temperature is None
    assert callback.predict_proba(torch.randn(2, 3)).isfinite().all()


@pytest.mark.parametrize("same_module", [False, True])
def test_a_second_training_starts_without_the_temperature_of_the_first(same_module, tmp_path):
    callback, module = TemperatureScaling(), Masked()
    first = fitted(module, callback, tmp_path / "first")
    temperature = callback.temperature
    first.test(first.lightning_module, loader(), verbose=False)
    assert callback.temperature == temperature is not None  # a test changes nothing
    fitted(module if same_module else Masked(), callback, tmp_path / "second", val_dataloaders=None)
    saved = torch.load(tmp_path / "second" / "last.ckpt", weights_only=True)
    assert saved["as_softmax_temperature"]["temperature"] is None
    assert callback.temperature is None
    assert not callback.diagrams


@pytest.mark.parametrize(
    "callbacks", [[], [TemperatureScaling()]], ids=["without the callback", "with it"]
)
def test_a_resumed_training_keeps_the_temperature_until_its_next_validation(callbacks, tmp_path):
    callback, resumed = TemperatureScaling(), Masked()
    first = fitted(Masked(), callback, tmp_path)
    trainer = quiet_trainer(max_epochs=2, callbacks=callbacks)
    trainer.fit(resumed, loader(), ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    assert resumed.as_softmax_temperature == callback.temperature is not None
    assert all(callback.temperature == other.temperature for other in callbacks)
    assert trainer.global_step == first.global_step


def test_a_run_resumed_before_the_last_validation_or_inside_it_takes_all_of_it(tmp_path):
    saves, callback = SavesEveryBatch(tmp_path), TemperatureScaling()
    saves.on_validation_batch_end = lambda trainer, *args: saves._save(trainer, f"-{args[3]}")  # type: ignore[method-assign]
    quiet_trainer(max_epochs=2, callbacks=[callback, saves]).fit(Masked(), loader(), loader())
    for checkpoint in saves.checkpoints()[-5:]:
        resumed, seen = TemperatureScaling(), MarginHistogram()
        trainer, module = quiet_trainer(max_epochs=2, callbacks=[resumed, seen]), Masked()
        trainer.fit(module, loader(), loader(), ckpt_path=checkpoint)
        validated(trainer, module, loader())  # Lightning skips one that was due at the checkpoint
        assert (resumed.temperature, int(seen.counts.sum())) == (callback.temperature, 64)


class TwoTasks(Plain):
    """Its second validation loader has five classes, a head and targets of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.other = torch.nn.Linear(4, 5)

    def forward(self, inputs: torch.Tensor, head: int = 0) -> torch.Tensor:
        return (self.net, self.other)[head](inputs)

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self(batch[0], dataloader_idx)

    test_step = validation_step


def test_of_several_loaders_the_first_one_is_fitted_and_measured(tmp_path: Path) -> None:
    inputs, target = all_of(loader())
    other = DataLoader(TensorDataset(inputs[:32], torch.arange(32) % 5), batch_size=16)
    callback, module = TemperatureScaling(), TwoTasks()
    trainer = fitted(module, callback, tmp_path, val_dataloaders=[loader(), other])
    expected = fit_temperature(module(inputs).detach(), target)
    assert callback.temperature == pytest.approx(expected, rel=1e-4)
    trainer.test(module, [loader(), other], verbose=False)
    assert float(callback.diagrams["scaled"].predictions.sum()) == len(target)


def test_predict_proba_divides_by_the_temperature_and_warns_where_there_is_none(tmp_path):
    module, callback, logits = Masked(), TemperatureScaling(), torch.randn(3, 3)
    with pytest.warns(UserWarning, match="no temperature is fitted for the weights of Masked"):
        assert torch.equal(module.predict_proba(logits), logits.softmax(-1))
    fitted(module, callback, tmp_path)
    expected = (logits / callback.temperature).softmax(-1)
    torch.testing.assert_close(module.predict_proba(logits), expected)
    torch.testing.assert_close(callback.predict_proba(logits), expected)


def test_probabilities_in_a_loop_read_the_weights_once(tmp_path, monkeypatch):
    fitted(module := Masked(), TemperatureScaling(), tmp_path)
    reads: list[Any] = []
    digest = fitted_temperature.weights_digest
    monkeypatch.setattr(
        fitted_temperature, "weights_digest", lambda weights: reads.append(0) or digest(weights)
    )
    before = module.as_softmax_temperature
    for _ in range(3):
        module.predict_proba(torch.randn(2, 3))
    assert len(reads) <= 1
    with torch.no_grad():
        module.net.weight += 1
    assert module.as_softmax_temperature is None is not before


class HasCriterion(Plain):
    def __init__(self) -> None:
        super().__init__(labels=True)
        self.criterion = torch.nn.BCEWithLogitsLoss()

    def loss(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.criterion(logits, target)


class Replaced(ASSoftmaxMixin, HasCriterion):
    as_softmax_replaces = "criterion"


class Told(Masked):
    as_softmax_multilabel = True


@pytest.mark.parametrize(
    "made",
    [Replaced, lambda: Told(labels=True), lambda: Masked(labels=True)],
    ids=["replaced", "told", "called"],
)
def test_predict_proba_of_several_labels_is_the_sigmoid_also_without_a_temperature(made, tmp_path):
    module, logits, data = made(), torch.randn(3, 3), loader("labels")
    fitted(module, TemperatureScaling(), tmp_path, train_dataloaders=data, val_dataloaders=None)
    quiet_trainer(max_epochs=1).fit(module, data)
    with pytest.warns(UserWarning, match="no temperature is fitted"):
        torch.testing.assert_close(module.predict_proba(logits), logits.sigmoid())
    fitted(
        module,
        TemperatureScaling(),
        tmp_path / "validated",
        train_dataloaders=data,
        val_dataloaders=data,
    )
    (again := made()).load_state_dict(module.state_dict())
    again.on_load_checkpoint(torch.load(tmp_path / "validated" / "last.ckpt", weights_only=True))
    for each in (module, again):
        torch.testing.assert_close(
            each.predict_proba(logits), (logits / module.as_softmax_temperature).sigmoid()
        )


class WithoutForward(Plain):
    """Its steps call a part, not the module."""

    def training_step(self, batch, batch_idx):
        return self.loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.loss(self.net(batch[0]), batch[1]))


class WithHook(WithoutForward):
    def validation_logits(self, batch):
        return self.net(batch[0]), batch[1]


class Output(dict):
    @property
    def logits(self):
        return self["logits"]


class Mapped(Plain):
    """Takes batches that are mappings; its output has the logits."""

    def forward(self, inputs):
        return Output(logits=self.net(inputs))

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self(batch["inputs"]).logits, batch["labels"])

    def validation_step(self, batch, batch_idx):
        self(batch["inputs"])


@pytest.mark.parametrize("make", [Plain, WithHook, WithoutForward, Mapped])
def test_logits_may_come_from_a_function_a_method_of_the_module_or_an_output(make, tmp_path):
    module, data = make(), loader()
    callback = TemperatureScaling()
    if make is WithoutForward:
        callback = TemperatureScaling(logits=lambda module, batch: (module.net(batch[0]), batch[1]))
    elif make is Mapped:
        data = DataLoader(
            [dict(zip(("inputs", "labels"), row, strict=True)) for row in data.dataset],
            batch_size=16,
        )
    fitted(module, callback, tmp_path, train_dataloaders=data, val_dataloaders=data)
    inputs, target = all_of(loader())
    assert callback.temperature == pytest.approx(
        fit_temperature(module.net(inputs).detach(), target), rel=1e-4
    )


class Transformer(HuggingFace):
    """The model inside is called, not the module."""

    def training_step(self, batch, batch_idx):
        return self.model(**batch).loss

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.model(**batch).loss)

    test_step = validation_step


@pytest.mark.parametrize("calls", ["model", "forward"])
def test_the_logits_of_a_model_are_found_whose_layers_hold_its_configuration(calls):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 50}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=2, num_labels=3, pad_token_id=0)

    class Llama(Transformer):
        def __init__(self):
            super().__init__()
            self.model = transformers.LlamaForSequenceClassification(config)

        def forward(self, **batch):
            return self.model(**batch).logits.float()

        def validation_step(self, batch, batch_idx):
            if calls == "forward":
                self(**batch)
            else:
                self.model(**batch)

    rows = Sentences().rows
    data = DataLoader(rows, batch_size=20)
    module, scaling = Llama(), TemperatureScaling()
    quiet_trainer(max_epochs=1, callbacks=[scaling]).fit(module, data, data)
    (batch,) = DataLoader(rows, len(rows))
    logits = module.eval()(**batch).detach()
    assert scaling.temperature == pytest.approx(fit_temperature(logits, batch["labels"]), rel=1e-3)


def test_the_logits_of_a_hugging_face_model_are_found_whose_loss_is_replaced(tmp_path):
    pytest.importorskip("transformers")

    class Replaced(ASSoftmaxMixin, Transformer):
        as_softmax_replaces = "model"

    rows = Sentences().rows
    data = DataLoader(rows, batch_size=20)
    module, scaling, histogram = Replaced(), TemperatureScaling(), MarginHistogram()
    quiet_trainer(max_epochs=2, callbacks=[scaling, histogram]).fit(module, data, data)
    (batch,) = DataLoader(rows, len(rows))
    logits = module.eval().model(input_ids=batch["input_ids"]).logits.detach()
    assert scaling.temperature == pytest.approx(fit_temperature(logits, batch["labels"]), rel=1e-4)
    assert int(histogram.counts.sum()) == len(rows)
    assert not {type(hook).__name__ for hook in module.model._forward_hooks.values()} - {
        "LossOfLabels"
    }


class CallsTwice(Plain):
    """Validates on clean and on noisy inputs."""

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        self.log("val/noisy", self.loss(self(batch[0] + 5), batch[1]))


class OfProbabilities(Plain):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.net(inputs).softmax(-1)


@pytest.mark.parametrize(
    ("make", "callback", "data", "message"),
    [
        (WithoutForward, TemperatureScaling(), loader(), "logits="),
        (
            Plain,
            TemperatureScaling(lambda module, batch: (module.net(batch[0]).mT, batch[1])),
            loader("token"),
            "classes last",
        ),
        (CallsTwice, TemperatureScaling(), loader(), r"2 outputs were seen.*logits="),
        (CallsTwice, MarginHistogram(), loader(), r"2 outputs were seen.*logits="),
        (OfProbabilities, TemperatureScaling(), loader(), "sum to 1.*logits="),
        (OfProbabilities, MarginHistogram(), loader(), "sum to 1.*logits="),
    ],
)
def test_what_has_no_logits_that_fit_a_target_is_refused_with_the_ways_out(
    make, callback, data, message, tmp_path
):
    with pytest.raises(MisconfigurationException, match=message):
        fitted(make(), callback, tmp_path, val_dataloaders=data)


def test_a_training_without_validation_data_warns_that_no_temperature_was_fitted(tmp_path):
    with pytest.warns(UserWarning, match="TemperatureScaling has fitted no temperature"):
        fitted(Plain(), TemperatureScaling(), tmp_path, val_dataloaders=None)
