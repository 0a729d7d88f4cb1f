import inspect

import pytest
import torch
from torch.nn import functional as F

from as_lightning.compat import AS_Softmax, Multi_label_AS_Softmax, compute_accumulation_step
from as_lightning.functional import as_cross_entropy, multilabel_as_cross_entropy

LOGITS = torch.tensor([[1.2, 1.5, 1.0, -0.35], [2.5, 3.5, 0.4, 0.3], [2.5, 3.5, 0.4, 0.3]])
LABELS = torch.tensor([1, 2, -100])
MULTI_LABELS = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 0, 1]])


def test_multi_label_prints_what_the_authors_print_is_the_function_and_overflows_nowhere():
    module = Multi_label_AS_Softmax(delta=0.10)
    for logits, printed in ((LOGITS, "tensor(2.0778)"), (LOGITS * 1e4, None)):
        masks = module(logits, MULTI_LABELS)
        assert [(mask.shape, mask.dtype) for mask in masks] == [(LOGITS.shape, torch.bool)] * 2
        loss = module.as_multilabel_categorical_crossentropy(logits, MULTI_LABELS, *masks)
        torch.testing.assert_close(loss, multilabel_as_cross_entropy(logits, MULTI_LABELS, 0.1))
        assert loss.isfinite()
        assert printed in (None, str(loss))


def test_accumulation_steps_of_the_authors_example():
    as_logits, _ = AS_Softmax(delta=0.10)(LOGITS, LABELS)
    assert compute_accumulation_step(as_logits, 1, True) == (1, 5, 1)
    assert compute_accumulation_step(as_logits, 2) == (1, 5, 3)
    assert compute_accumulation_step(as_logits, 2, speedup=False) == (1, 5, 1)


SIGNATURES = {
    AS_Softmax: "delta",
    AS_Softmax.forward: "self logits labels",
    Multi_label_AS_Softmax: "delta",
    Multi_label_AS_Softmax.forward: "self logits labels",
    Multi_label_AS_Softmax.as_multilabel_categorical_crossentropy: "self y_pred y_true mask_neg "
    "mask_pos",
    compute_accumulation_step: "logits lamb speedup",
}


def test_signatures_are_the_authors():
    assert {name: " ".join(inspect.signature(name).parameters) for name in SIGNATURES} == SIGNATURES


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6)], ids=str)
def test_cross_entropy_of_the_masked_logits_is_the_loss(shape):
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(shape, generator=generator) * 2).requires_grad_()
    labels = torch.randint(6, shape[:-1], generator=generator)
    labels.view(-1)[0] = -100
    as_logits, flat = AS_Softmax(0.1)(logits, labels)
    assert as_logits.shape == (labels.numel(), 6)
    theirs = F.cross_entropy(as_logits, flat)
    ours = as_cross_entropy(logits.reshape(-1, 6), labels.reshape(-1), 0.1)
    torch.testing.assert_close(theirs, ours)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (theirs, ours)))
