"""The recipe in docs/faq.md trains the live rows alone, and its step is that of AS-Softmax."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from as_lightning.functional import as_cross_entropy

PAGE = (Path(__file__).parents[2] / "docs" / "faq.md").read_text(encoding="utf-8")
DELTA = float(re.findall(r"delta=([\d.]+)", PAGE)[0])


@pytest.fixture
def module() -> Any:
    """A module with the ``training_step`` of the page."""
    namespace: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], namespace)
    torch.manual_seed(0)
    module = namespace["TrainsLiveRows"]()
    module.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5)).double()
    return module


@pytest.mark.parametrize(
    "scale", [3.0, 20.0, 1000.0], ids=["few masked", "many masked", "all masked"]
)
def test_the_loss_and_the_gradients_of_the_live_rows_are_those_of_as_softmax(
    module: Any, scale: float
) -> None:
    inputs = torch.randn(40, 6, dtype=torch.float64)
    module.net[2].weight.data *= scale
    target = module.net(inputs).argmax(1)
    losses = as_cross_entropy(module.net(inputs), target, delta=DELTA, reduction="none")
    live = losses.count_nonzero()
    assert live <= 1 if scale == 1000.0 else 0 < live < 40
    parameters = list(module.net.parameters())
    loss = module.training_step((inputs, target), 0)
    gradients = torch.autograd.grad(loss, parameters)
    expected = as_cross_entropy(module.net(inputs), target, delta=DELTA)
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)
    for gradient, wanted in zip(gradients, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-12)
