"""A head with very many classes in the app: dense or fused, it is the same model at other costs."""

import asyncio
import math
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from as_lightning.bench.run.train import train
from as_lightning.bench.tasks.classifier import ASSoftmaxClassifier, Classifier
from as_lightning.functional.kernels import head_loss

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def fused_heads(monkeypatch) -> Any:
    """The module of the fused classifiers."""
    monkeypatch.syspath_prepend(str(RESULTS / "python_code"))
    return import_module("fused_heads")


def test_the_next_token_is_learned_and_a_fused_head_learns_it_as_a_dense_one_does(
    composed, monkeypatch, fused_heads
):
    monkeypatch.setattr(head_loss, "FEW_LOGITS", 0)  # the path of wide heads
    short = [
        f"hydra.searchpath=[file://{RESULTS / 'conf'}]",
        "experiment=python_code",
        f"data.root={asyncio.__path__[0]}",
        "data.batch_tokens=256",
    ]
    short += ["data.max_tokens={train: 4_100, validation: 1_025, test: 1_025}"]
    short += ["model.width=16", "model.layers=1", "optimizer.lr=2e-2"]
    for name in ("softmax", "as_softmax"):
        dense = train(composed(*short, f"method={name}", output=name))
        fused = train(composed(*short, f"method=fused_{name}", output=f"fused_{name}"))
        assert math.exp(dense.metrics["loss"]) < 300  # of a guess it is the classes, 2,377
        assert dense.optimizer_steps == fused.optimizer_steps == 32
        assert fused.metrics["loss"] == pytest.approx(dense.metrics["loss"], rel=1e-3)
        assert fused.metrics["accuracy"] == pytest.approx(dense.metrics["accuracy"], abs=2 / 1024)
        for of_fused, epoch in zip(fused.masking, dense.masking, strict=True):
            assert of_fused["samples"] == epoch["samples"] == 4 * 1024
            assert of_fused["masked_classes"] == pytest.approx(epoch["masked_classes"], rel=1e-3)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("Softmax", {"criterion": nn.MultiMarginLoss()}, "criterion"),
        ("Softmax", {"targets": "multi_hot"}, "fused head"),
        ("ASSoftmax", {"head": lambda *sizes: nn.Sequential(nn.Linear(*sizes))}, "fused head"),
    ],
)
def test_a_fused_head_refuses_what_it_would_not_compute(fused_heads, method, settings, message):
    encoder = nn.Identity()
    encoder.out_features = 4
    arguments = {"criterion": nn.CrossEntropyLoss(), "optimizer": torch.optim.SGD, **settings}
    with pytest.raises(ValueError, match=message):
        getattr(fused_heads, f"Fused{method}Classifier")(encoder, ["a", "b"], **arguments)


@pytest.mark.parametrize("margin", [None, 0.3])
@pytest.mark.parametrize(
    "criterion", [{"ignore_index": 0}, {"reduction": "sum"}, {"weight": torch.tensor([9.0, 1, 1])}]
)
def test_a_fused_head_trains_by_the_settings_of_its_criterion(fused_heads, margin, criterion):
    pair: tuple[Any, Any] = (Classifier, fused_heads.FusedSoftmaxClassifier)
    if margin is not None:
        pair = (ASSoftmaxClassifier, fused_heads.FusedASSoftmaxClassifier)
    encoder, optimizer = nn.Linear(4, 5), partial(torch.optim.SGD, lr=0.1)
    batch, losses = (torch.randn(20, 4), torch.randint(3, (20,))), []
    settings = {} if margin is None else {"delta": margin}
    for made in pair:
        torch.manual_seed(0)
        loss = nn.CrossEntropyLoss(**criterion)
        module = made(encoder, ["a", "b", "c"], loss, optimizer, **settings)
        losses.append(module.training_loss(*batch))
    torch.testing.assert_close(*losses)
