"""A head with very many classes in the app: dense or fused, it is the same model at other costs."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from as_lightning.bench.data.text.standard_library import library_folder
from as_lightning.bench.run.train import train
from as_lightning.bench.tasks.classifier import (
    ASSoftmaxClassifier,
    Classifier,
    FusedSoftmaxClassifier,
)
from as_lightning.functional.kernels import head_loss


def test_the_next_token_is_learned_and_a_fused_head_learns_it_as_a_dense_one_does(
    composed, monkeypatch
):
    monkeypatch.setattr(head_loss, "FEW_LOGITS", 0)  # the path of wide heads
    results = Path(__file__).parents[2] / "results"
    monkeypatch.syspath_prepend(str(results / "python_code"))
    short = [
        f"hydra.searchpath=[file://{results / 'conf'}]",
        "experiment=python_code",
        f"data.root={library_folder() / 'asyncio'}",
        "data.batch_tokens=256",
    ]
    short += ["data.max_tokens={train: 4_100, validation: 1_025, test: 1_025}"]
    short += ["model.width=16", "model.layers=1", "optimizer.lr=2e-2"]
    for name, fused_head in (
        ("softmax", ["method=fused_softmax"]),
        ("as_softmax", ["method.fused_head=true"]),
    ):
        dense = train(composed(*short, f"method={name}", output=name))
        fused = train(composed(*short, f"method={name}", *fused_head, output=f"fused_{name}"))
        assert dense.metrics["perplexity"] < 300  # that of a guess is the number of classes, 2,377
        assert dense.optimizer_steps == fused.optimizer_steps == 32
        assert fused.metrics["perplexity"] == pytest.approx(dense.metrics["perplexity"], rel=1e-3)
        assert fused.metrics["accuracy"] == pytest.approx(dense.metrics["accuracy"], abs=2 / 1024)
        for of_fused, epoch in zip(fused.masking, dense.masking, strict=True):
            assert of_fused["samples"] == epoch["samples"] == 4 * 1024
            assert of_fused["masked_classes"] == pytest.approx(epoch["masked_classes"], rel=1e-3)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "method.criterion._target_=torch.nn.MultiMarginLoss",
            "this method computes plain cross-entropy, .* got M",
        ),
        ("+method.criterion.label_smoothing=0.1", "label_smoothing"),
        (
            "method.targets=multi_hot",
            "a fused head needs a head that is nn.Linear, and data and a method of one class",
        ),
    ],
)
def test_a_fused_head_refuses_what_it_would_not_compute(composed, override, message):
    with pytest.raises(ValueError, match=message):
        train(composed("experiment=digits", "method=fused_softmax", override))


@pytest.mark.parametrize(
    ("dense", "fused"),
    [
        (Classifier, FusedSoftmaxClassifier),
        (
            partial(ASSoftmaxClassifier, delta=0.3),
            partial(ASSoftmaxClassifier, delta=0.3, fused_head=True),
        ),
    ],
)
@pytest.mark.parametrize(
    "criterion", [{"ignore_index": 0}, {"reduction": "sum"}, {"weight": torch.tensor([9.0, 1, 1])}]
)
def test_a_fused_head_trains_by_the_settings_of_its_criterion(dense, fused, criterion):
    encoder, optimizer = nn.Linear(4, 5), partial(torch.optim.SGD, lr=0.1)
    batch, losses = (torch.randn(20, 4), torch.randint(3, (20,))), []
    for made in (dense, fused):
        torch.manual_seed(0)
        module = made(encoder, ["a", "b", "c"], nn.CrossEntropyLoss(**criterion), optimizer)
        losses.append(module.training_loss(*batch))
    torch.testing.assert_close(*losses)
