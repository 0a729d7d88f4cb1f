"""What is measured of each task, how its loss is called, and the head of cosines."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from harness.scripted_masking import quiet_trainer
from scipy.spatial.distance import cdist
from seqeval.metrics import f1_score as span_f1_score
from sklearn.metrics import accuracy_score, f1_score, recall_score
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from as_lightning.bench.tasks.classifier import Classifier, CosineHead
from as_lightning.bench.tasks.tasks import IGNORED, TaskForm
from as_lightning.losses_for_conditions import ClassWeightedLoss, FocalLoss

NAMES = ["B-x", "B-y", "I-x", "I-y", "O"]


def measured(form: TaskForm, batches: list[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """The metrics of batches that two ranks have seen in turns."""
    ranks = [form.metrics(), form.metrics()]
    for number, (logits, target) in enumerate(batches):
        ranks[number % 2].update(form.predicted(logits), target)
    for name, metric in ranks[0].items():
        metric.merge_state(ranks[1][name])
    return {name: float(value) for name, value in ranks[0].compute().items()}


def scikit_learns_of_classes(logits: Tensor, target: Tensor) -> dict[str, float]:
    predicted = logits.argmax(-1)
    return {
        "accuracy": accuracy_score(target, predicted),
        "f1_macro": f1_score(target, predicted, average="macro"),
    }


@pytest.mark.bug_report(
    "Lightning-AI/torchmetrics#1664",
    "Macro F1 of the same predictions falls with the declared number of classes.",
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_metrics_of_one_class_a_sample_are_scikit_learns(dtype):
    target = torch.randint(3, (300,))  # the last class is predicted, but never true
    logits = 2 * torch.randn(300, 5, dtype=dtype)
    logits[:99] /= 2000  # whose probabilities are equal in 16 bits
    logits[:, 3] = -9.0  # this one is neither
    batches = [(logits[:100], target[:100]), (logits[100:], target[100:])]
    found = measured(TaskForm("multiclass", NAMES), batches)
    recall = recall_score(target, logits.argmax(-1), average="macro", labels=range(3))
    expected = scikit_learns_of_classes(logits, target) | {"balanced_accuracy": recall}
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.bug_report(
    "Lightning-AI/torchmetrics#1494",
    "Macro F1 counts a class that never occurs as 0, also where all predictions are right.",
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_metrics_of_several_labels_are_scikit_learns(dtype):
    target = (torch.rand(300, 5) < 0.3).long()
    logits = (3 * (target - 0.5) + 2 * torch.randn(300, 5)).to(dtype)
    logits[1:99] /= 2000  # whose probabilities are 0.5 in 16 bits
    target[:, 4], logits[:, 4] = 0, -1.0  # a label that never occurs takes no part in the macro F1
    batches = [(logits[:7], target[:7]), (logits[7:], target[7:])]
    found = measured(TaskForm("multilabel", NAMES, "multi_hot"), batches)
    predicted = (logits > 0).long()
    expected = {
        "accuracy": accuracy_score(target, predicted),
        "f1_micro": f1_score(target, predicted, average="micro"),
        "f1_macro": f1_score(target, predicted, average="macro", labels=range(4)),
    }
    assert found == pytest.approx(expected, abs=1e-6)


def test_metrics_of_tags_are_scikit_learns_of_the_words_and_seqevals_of_the_entities():
    target = torch.randint(5, (40, 12))
    logits = 2 * F.one_hot(target, 5) + torch.randn(40, 12, 5)
    target[torch.rand(40, 12) < 0.3] = IGNORED
    target[:, -2:] = IGNORED
    batches = [(logits[:9], target[:9]), (logits[9:], target[9:])]
    found = measured(TaskForm("token", NAMES), batches)
    words, predicted = target != IGNORED, logits.argmax(-1)
    tags: list[list[list[str]]] = [[], []]
    for number, kept in enumerate(words):
        for rows, names in zip((target, predicted), tags, strict=True):
            names.append([NAMES[tag] for tag in rows[number, kept]])
    expected = scikit_learns_of_classes(logits[words], target[words])
    expected["span_f1"] = span_f1_score(*tags)
    assert found == pytest.approx(expected, abs=1e-6)
    assert 0.2 < found["span_f1"] < found["accuracy"] < 1


def test_metrics_of_very_many_classes_take_memory_in_proportion_to_them():
    # a matrix of classes by classes, as torchmetrics' macro F1 has it, would be 20 GB
    logits, target = torch.randn(8, 50_000), torch.randint(50_000, (8,))
    logits[:4] += 10 * F.one_hot(target[:4], 50_000)
    form = TaskForm("multiclass", list(map(str, range(50_000))))
    torch.use_deterministic_algorithms(True)  # as the app's trainer has it
    try:
        found = measured(form, [(logits, target)])
    finally:
        torch.use_deterministic_algorithms(False)
    assert found["f1_macro"] == pytest.approx(f1_score(target, logits.argmax(-1), average="macro"))


def test_a_loss_of_tags_or_tokens_is_the_mean_over_all_and_one_of_several_labels_takes_a_class_as_one_label():
    logits, tags = torch.randn(2, 3, 5), torch.tensor([[0, IGNORED, 4], [2, IGNORED, IGNORED]])
    words, tokens = tags != IGNORED, tags.clamp(min=1)
    mean = F.cross_entropy(*TaskForm("token", NAMES).loss_arguments(logits, tags))
    torch.testing.assert_close(mean, F.cross_entropy(logits[words], tags[words]))
    several = TaskForm("multiclass", NAMES, "multi_hot")
    _, labels = several.loss_arguments(logits[:, 0], tokens[:, 2])
    assert torch.equal(labels, torch.eye(5)[tokens[:, 2]])


@pytest.mark.parametrize(
    ("task", "targets", "message"),
    [("multilabel", "class_index", "multilabel_as_softmax"), ("token", "multi_hot", "one class")],
)
def test_a_task_and_a_loss_that_do_not_fit_are_refused(task, targets, message):
    with pytest.raises(ValueError, match=message):
        TaskForm(task, NAMES, targets)


def test_of_nothing_the_score_is_zero():
    nothing = (torch.randn(2, 3, 5), torch.full((2, 3), IGNORED))
    found = measured(TaskForm("token", NAMES), [nothing])
    assert found == dict.fromkeys(["accuracy", "f1_macro", "span_f1"], 0.0)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_logits_are_cosines_whatever_the_length_of_the_features_and_zero_where_they_have_none(
    scale,
):
    head = CosineHead(5, 3).double()
    features = torch.randn(4, 5, dtype=torch.float64)
    expected = 1 - torch.tensor(cdist(features, head.weight.detach(), "cosine"))
    torch.testing.assert_close(head(features * scale), expected, atol=1e-12, rtol=0)
    logits = head(0 * features)
    logits.sum().backward()
    assert not logits.any()
    assert head.weight.grad.isfinite().all()


def classifier(encoder: torch.nn.Module, width: int, names: list[str], **options) -> Classifier:
    encoder.out_features = width
    options = {"criterion": F.cross_entropy, "optimizer": torch.optim.SGD} | options
    return Classifier(encoder, names, **options)


def test_the_loss_of_tagged_words_is_the_mean_over_words_whatever_the_batches():
    target = torch.randint(5, (8, 6))
    target[:4, 1:] = IGNORED  # sentences of one word, and of six
    inputs = torch.randn(8, 6, 4)
    module = classifier(torch.nn.Identity(), 4, NAMES, task="token")
    for size in (2, 4, 8):
        loader = DataLoader(TensorDataset(inputs, target), batch_size=size)
        (logged,) = quiet_trainer().validate(module, loader, verbose=False)
        expected = F.cross_entropy(module(inputs).flatten(0, 1), target.flatten())
        assert logged["val/loss"] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#2924",
    "The epoch's mean of a loss with class weights is weighed by rows.",
)
@pytest.mark.parametrize(
    "criterion",
    [
        torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9.0, 3.0, 0.0, 2.0])),
        partial(ClassWeightedLoss, power=1.5),
        FocalLoss(weight=torch.tensor([1.0, 9.0, 3.0, 1.0, 2.0])),
    ],
)
def test_a_loss_with_class_weights_is_the_weighted_mean_over_the_split_whatever_the_batches(
    criterion,
):
    target = torch.tensor([0] * 40 + [1] * 15 + [2] * 5)
    inputs, counts = torch.randn(60, 4), torch.tensor([900, 90, 10, 1, 1])
    module = classifier(torch.nn.Identity(), 4, NAMES, criterion=criterion, class_counts=counts)
    for size in (7, 20):
        loader = DataLoader(TensorDataset(inputs, target), batch_size=size)
        (logged,) = quiet_trainer().validate(module, loader, verbose=False)
        expected = module.criterion(module(inputs), target)
        assert logged["val/loss"] == pytest.approx(float(expected), rel=1e-5)
    inputs[3] = torch.nan
    (logged,) = quiet_trainer().validate(module, loader, verbose=False)
    assert math.isnan(logged["val/loss"])
