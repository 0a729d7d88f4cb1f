"""What the losses of several labels have beside the table of functions and their formulas."""

import torch

from as_lightning.functional import asymmetric_loss, bce_loss


def test_asymmetric_is_bce_without_focus_and_clip_and_drops_the_negatives_below_its_clip():
    logits, target = 3 * torch.randn(20, 8, dtype=torch.float64), torch.randint(2, (20, 8))
    plain = {"gamma_negative": 0, "gamma_positive": 0, "clip": 0.0}
    torch.testing.assert_close(asymmetric_loss(logits, target, **plain), bce_loss(logits, target))
    easy = (logits.sigmoid() < 0.2) & (target == 0)
    leaf = logits.requires_grad_()
    loss = asymmetric_loss(leaf, target, clip=0.2, reduction="none")
    loss.sum().backward()
    assert torch.equal(loss == 0, easy)
    assert torch.equal(leaf.grad == 0, easy)
