"""Properties that every loss with class-index targets has, against its reference and against
``F.cross_entropy``.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness.variant_methods import METHODS, random_logits
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.variants import by_rows

from as_lightning.functional import entmax_loss

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())


@every_method
@pytest.mark.parametrize("num_classes", [3, 9])
@pytest.mark.parametrize("scale", [0.3, 3.0, 12.0])
def test_loss_equals_reference(method, num_classes, scale):
    logits = random_logits(5, num_classes, scale=scale)
    target = torch.tensor([0, 1, 2, 2, 0])
    loss = method.loss(logits, target, reduction="none", **method.all_loss_arguments)
    expected = by_rows(
        method.reference_loss, logits.numpy(), target.numpy(), **method.all_loss_arguments
    )
    np.testing.assert_allclose(loss.numpy(), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.gradient_is_p_minus_onehot])
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 5),
    classes=st.integers(1, 300),
    scale=st.sampled_from([0.1, 1.0, 5.0, 50.0]),
)
def test_gradient_is_p_minus_onehot(name, seed, rows, classes, scale):
    method = METHODS[name]
    assert method.transform is not None
    logits = random_logits(rows, classes, scale=scale, seed=seed).requires_grad_()
    target = torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(seed))
    method.loss(logits, target, reduction="sum", **method.all_loss_arguments).backward()
    expected = method.transform(logits.detach(), **method.arguments) - F.one_hot(target, classes)
    torch.testing.assert_close(logits.grad, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("alpha", "lead"), [(2.0, 1.0), (1.5, 2.0), (1.25, 4.0)])
def test_entmax_loss_vanishes_past_its_margin(alpha, lead):
    logits = random_logits(5, 8, scale=1.0)
    target = logits.argmax(-1)
    best_other = logits.scatter(1, target.unsqueeze(1), -torch.inf).amax(1, keepdim=True)
    ahead = logits.scatter(1, target.unsqueeze(1), best_other + lead + 1e-9).requires_grad_()
    short = logits.scatter(1, target.unsqueeze(1), best_other + lead - 0.05)
    loss = entmax_loss(ahead, target, alpha=alpha, reduction="none")
    loss.sum().backward()
    exact = 0.0 if alpha == 2.0 else 1e-14
    torch.testing.assert_close(
        loss.detach(), torch.zeros(5, dtype=torch.float64), rtol=0, atol=exact
    )
    torch.testing.assert_close(ahead.grad, torch.zeros_like(ahead), rtol=0, atol=exact)
    assert (entmax_loss(short, target, alpha=alpha, reduction="none") > 0).all()


def test_entmax_loss_at_alpha_1_is_cross_entropy():
    logits = random_logits(5, 8).requires_grad_()
    target = logits.detach().argmin(-1)
    losses = entmax_loss(logits, target, alpha=1.0), F.cross_entropy(logits, target)
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in losses]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients)


def test_entmax_losses_of_many_equal_classes_keep_their_digits():
    # running sums over 30,000 logits of -1e4 lose all digits in float32
    logits = torch.full((2, 30_000), -1e4)
    logits[:, 7], logits[:, 9] = 0.0, -0.4
    target = torch.tensor([9, 20])
    for alpha in (1.5, 2.0, 1.3):
        expected = entmax_loss(logits.double(), target, alpha=alpha, reduction="none")
        torch.testing.assert_close(
            entmax_loss(logits, target, alpha=alpha, reduction="none").double(), expected
        )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_method
def test_cuda_agrees_with_cpu(method):
    logits, target = random_logits(8, 300, dtype=torch.float32).requires_grad_(), torch.arange(8)
    on_device = logits.detach().cuda().requires_grad_()
    loss = method.loss(logits, target, **method.all_loss_arguments)
    device_loss = method.loss(on_device, target.cuda(), **method.all_loss_arguments)
    loss.backward()
    device_loss.backward()
    torch.testing.assert_close(device_loss.cpu(), loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(on_device.grad.cpu(), logits.grad, rtol=1e-3, atol=1e-5)
