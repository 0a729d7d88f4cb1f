"""A head with very many classes in the app: dense or fused, it is the same model at other costs."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from as_lightning.benchmark.data.text.standard_library import library_folder
from as_lightning.benchmark.run.train import train
from as_lightning.benchmark.tasks.classifier import ASSoftmaxClassifier, Classifier, FusedSoftmaxClassifier
from as_lightning.functional.kernels import head_loss


@pytest.fixture
def next_token_run(composed, monkeypatch):
    """A short run on the code of one package, on the path of wide heads."""
    monkeypatch.setattr(head_loss, "FEW_LOGITS", 0)

    def run(method: str, *overrides: str):
        tokens = ("data.max_tokens={train: 4_100, validation: 1_025, test: 1_025}", "data.batch_tokens=256")
        sizes = ("model.width=16", "model.layers=1", "optimizer.lr=2e-2")
        data = ("experiment=python_code", f"data.root={library_folder() / 'asyncio'}", *tokens)
        return train(composed(*data, *sizes, f"method={method}", *overrides, output=method))

    return run


def test_the_next_token_is_learned_and_a_fused_head_learns_it_as_a_dense_one_does(next_token_run):
    dense = next_token_run("softmax")
    fused = next_token_run("fused_softmax")
    margin_one = next_token_run("as_softmax", "method.fused_head=true", "method.delta=1.0")
    assert dense.metrics["perplexity"] < 300  # that of a guess is the number of classes, 2,377
    assert dense.optimizer_steps == 32
    for run in (fused, margin_one):
        assert run.metrics["perplexity"] == pytest.approx(dense.metrics["perplexity"], rel=1e-3)
        assert run.metrics["accuracy"] == pytest.approx(dense.metrics["accuracy"], abs=2 / 1024)
        assert run.optimizer_steps == dense.optimizer_steps
    assert margin_one.masking[-1]["samples"] == 4 * 1024
    assert margin_one.masking[-1]["masked_classes"] == 0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method.criterion._target_=torch.nn.MultiMarginLoss", "this method computes plain cross-entropy, .* got M"),
        ("+method.criterion.label_smoothing=0.1", "label_smoothing must be 0"),
        ("method.targets=multi_hot", "a fused head needs a head that is nn.Linear, and data and a method of one class"),
    ],
)
def test_a_fused_head_refuses_what_it_would_not_compute(composed, override, message):
    with pytest.raises(ValueError, match=message):
        train(composed("experiment=digits", "method=fused_softmax", override))


@pytest.mark.parametrize(("kind", "settings"), [(FusedSoftmaxClassifier, {}), (ASSoftmaxClassifier, {"delta": 0.3})])
@pytest.mark.parametrize(
    "criterion", [{"ignore_index": 0}, {"reduction": "sum"}, {"weight": torch.tensor([9.0, 1, 1])}]
)
def test_a_fused_head_trains_by_the_settings_of_its_criterion(kind, settings, criterion):
    encoder = nn.Linear(4, 5)
    encoder.out_features = 5
    names, optimizer = ["a", "b", "c"], partial(torch.optim.SGD, lr=0.1)
    batch = torch.randn(20, 4), torch.randint(3, (20,))

    def loss(made, **more):
        torch.manual_seed(0)
        module = made(encoder, names, nn.CrossEntropyLoss(**criterion), optimizer, **more)
        return module.training_loss(*batch)

    dense = loss(Classifier) if kind is FusedSoftmaxClassifier else loss(kind, **settings)
    fused = loss(kind, **settings, **({} if kind is FusedSoftmaxClassifier else {"fused_head": True}))
    torch.testing.assert_close(fused, dense)
