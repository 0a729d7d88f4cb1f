"""The losses where they are recorded, by ``torch.export`` and ONNX with any batch; tensors without
values.
"""

import io
from collections.abc import Callable

import lightning.pytorch as pl
import pytest
import torch
from harness.torch_limits import ONE_SIDE_OF_A_CONDITION, skipped_by
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from as_lightning import ASSoftmaxMixin
from as_lightning.functional import (
    as_cross_entropy,
    as_linear_cross_entropy,
    multilabel_as_cross_entropy,
)

# a loss, and its inputs for so many rows and classes
Loss = Callable[..., Tensor]
Inputs = Callable[[int, int], tuple[Tensor, ...]]


def logits_and_classes(rows, classes):
    return 3 * torch.randn(rows, classes), torch.randint(classes, (rows,))


def logits_and_labels(rows, classes):
    return 3 * torch.randn(rows, classes), torch.randint(2, (rows, classes))


def hidden_and_head(rows, classes):
    return torch.randn(rows, 4), torch.randint(classes, (rows,)), torch.randn(classes, 4)


LOSSES: dict[str, tuple[Loss, Inputs]] = {
    "classes": (as_cross_entropy, logits_and_classes),
    "labels": (multilabel_as_cross_entropy, logits_and_labels),
    "head": (
        lambda hidden, target, weight, **options: as_linear_cross_entropy(
            hidden, weight, target, **options
        ),
        hidden_and_head,
    ),
}
every_loss = pytest.mark.parametrize("loss", LOSSES)
# both sides of the number of logits that are few
every_size = pytest.mark.parametrize("classes", [5, 20_000])


class Of(torch.nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, *inputs):
        loss, counts = self.loss(*inputs, delta=0.1, return_counts=True)
        return torch.cat([loss.reshape(1), counts.stacked().to(loss.dtype)])


@skipped_by(ONE_SIDE_OF_A_CONDITION)
@every_loss
@every_size
def test_an_exported_loss_with_its_counts_takes_any_batch(loss, classes):
    function, inputs = LOSSES[loss]
    module, example = Of(function), inputs(6, classes)
    batch = torch.export.Dim("batch")
    rows = [{0: batch}, {0: batch}, {}][: len(example)]
    program = torch.export.export(module, example, dynamic_shapes={"inputs": tuple(rows)}).module()
    for size in (2, 7, 40, 20_000 if classes == 5 else 41):
        case = (*inputs(size, classes)[:2], *example[2:])
        torch.testing.assert_close(program(*case), module(*case))


@every_loss
@every_size
def test_a_traced_loss_with_its_counts_is_that_of_another_batch(loss, classes):
    function, inputs = LOSSES[loss]
    module, example = Of(function), inputs(6, classes)
    traced = torch.jit.trace(module, example)
    case = (*inputs(40, classes)[:2], *example[2:])
    torch.testing.assert_close(traced(*case), module(*case))


@every_loss
@every_size
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize(
    "without_values", [FakeTensorMode, lambda: torch.device("meta")], ids=["fake", "meta"]
)
def test_tensors_without_values_give_the_shapes_of_loss_counts_and_gradient(
    loss, classes, reduction, without_values
):
    function, inputs = LOSSES[loss]
    with without_values():  # meta tensors as for Lightning's measure_flops
        scores, *rest = inputs(6, classes)
        scores.requires_grad_()
        value, counts = function(scores, *rest, reduction=reduction, return_counts=True)
        value.sum().backward()
    assert value.shape == ((6,) if reduction == "none" else ())
    assert counts.stacked().shape == (4,)
    assert scores.grad is not None
    assert scores.grad.shape == scores.shape


class Classifier(ASSoftmaxMixin, pl.LightningModule):
    def __init__(self):
        super().__init__(delta=0.1)
        self.net = torch.nn.Linear(4, 3)

    def forward(self, inputs):
        return self.net(inputs)

    def training_step(self, batch, batch_idx):
        return self.as_softmax_loss(self(batch[0]), batch[1])


def test_a_module_whose_forward_holds_no_loss_is_exported():
    module, inputs = Classifier().eval(), torch.randn(2, 4)
    module.training_step((inputs, torch.tensor([0, 1])), 0)
    rows = {"inputs": {0: torch.export.Dim("batch")}}
    program = torch.export.export(module, (inputs,), dynamic_shapes=rows).module()
    for case in (inputs, torch.randn(9, 4)):
        torch.testing.assert_close(program(case), module(case))


@pytest.mark.parametrize("dynamo", [True, False])
def test_a_module_whose_forward_holds_no_loss_is_exported_to_onnx(dynamo):
    onnx = pytest.importorskip("onnx", reason="torch.onnx.export needs onnx")
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")
    from onnx.reference import ReferenceEvaluator

    module, inputs, file = Classifier().eval(), torch.randn(2, 4), io.BytesIO()
    torch.onnx.export(module, (inputs,), file, dynamo=dynamo, input_names=["inputs"])
    (found,) = ReferenceEvaluator(onnx.load_from_string(file.getvalue())).run(
        None, {"inputs": inputs.numpy()}
    )
    torch.testing.assert_close(torch.from_numpy(found), module(inputs).detach())
