import pytest
import torch

from as_lightning.functional import multilabel_as_cross_entropy


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_nan_logits_give_a_nan_loss(reduction: str) -> None:
    for position in range(3):
        logits = torch.tensor([[9.0, 0.0, -9.0]])
        logits[0, position] = torch.nan
        assert multilabel_as_cross_entropy(logits, torch.tensor([[1, 0, 0]]), 0.1, reduction=reduction).isnan().all()


@pytest.mark.parametrize(("delta", "classes", "message"), [(2, 3, r"delta .* got 2"), (0.1, 0, "at least one label")])
def test_a_margin_out_of_range_and_no_label_are_refused(delta: float, classes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        multilabel_as_cross_entropy(torch.zeros(2, classes), torch.zeros(2, classes), delta)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gpu_is_never_waited_for() -> None:
    logits, target = torch.randn(3, 4).cuda().requires_grad_(), torch.randint(2, (3, 4)).cuda()
    multilabel_as_cross_entropy(logits, target, 0.1).backward()  # start up CUDA's libraries
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss, _ = multilabel_as_cross_entropy(logits, target, 0.1, return_counts=True)
        loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(loss.cpu(), multilabel_as_cross_entropy(logits.cpu(), target.cpu(), 0.1))
