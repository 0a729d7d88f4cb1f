"""A Hugging Face classifier, whose loss is its own."""

import copy
import pickle

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F

from as_lightning import ASSoftmaxMixin
from as_lightning.functional import as_cross_entropy, multilabel_as_cross_entropy

SIZES = {"vocab_size": 9, "n_embd": 4, "n_layer": 1, "n_head": 1, "n_positions": 4}
TINY = {**SIZES, "num_labels": 3, "pad_token_id": 0}
TOKENS = torch.randint(1, 9, (6, 4), generator=torch.Generator().manual_seed(0))
CLASSES = torch.tensor([0, 1, 2, 2, 1, 0])
LABELS = torch.tensor([[1.0, 0.0, 1.0]] * 6)
TAGS = torch.randint(3, (6, 4), generator=torch.Generator().manual_seed(1))
TARGETS = {
    "single_label_classification": CLASSES,
    "multi_label_classification": LABELS,
    "tokens": TAGS.where(TOKENS > 2, -100),
}


class HuggingFace(pl.LightningModule):
    """Somebody's module: the model computes the loss."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def training_step(self, batch, batch_idx):
        return self.model(**batch).loss


class MaskedHuggingFace(ASSoftmaxMixin, HuggingFace):
    as_softmax_replaces = "model"


def gpt2(kind="ForSequenceClassification", **settings):
    transformers = pytest.importorskip("transformers")
    model = getattr(transformers, f"GPT2{kind}")(transformers.GPT2Config(**(TINY | settings)))
    return model.eval()  # no dropout: the loss is that of the logits that come with it


def loss_of(module, batch):
    logits, target = module.model(**batch).logits, batch["labels"]
    if target.is_floating_point():
        return multilabel_as_cross_entropy(logits, target, module.as_softmax_delta)
    return as_cross_entropy(logits.flatten(0, -2), target.flatten(), module.as_softmax_delta)


@pytest.mark.parametrize("task", TARGETS)
@pytest.mark.parametrize(
    "duplicate", [lambda module: module, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_a_classifiers_loss_is_the_masked_one_of_its_logits_also_of_a_copy(task, duplicate):
    kind = "Token" if task == "tokens" else "Sequence"
    settings = {} if task == "tokens" else {"problem_type": task}
    original = MaskedHuggingFace(gpt2(f"For{kind}Classification", **settings), delta=0.3)
    module, batch = duplicate(original), {"input_ids": TOKENS, "labels": TARGETS[task]}
    module.as_softmax_delta = 0.1
    loss = module.training_step(batch, 0)
    torch.testing.assert_close(loss, loss_of(module, batch))
    assert loss.requires_grad
    assert module.as_softmax_module.called
    assert module is original or not original.as_softmax_module.called
    assert module.model(input_ids=TOKENS).loss is None
    assert module.state_dict().keys() == HuggingFace(original.model).state_dict().keys()


@pytest.mark.parametrize("labels", [CLASSES, LABELS], ids=["one label", "several"])
def test_a_classifiers_probabilities_are_those_of_its_first_labels(labels):
    module, several = MaskedHuggingFace(gpt2()), labels.is_floating_point()
    module.training_step({"input_ids": TOKENS, "labels": labels}, 0)
    assert module.as_softmax_multilabel is several
    logits = torch.tensor([[2.0, 0.0, 0.0]])
    with pytest.warns(UserWarning, match="no temperature"):
        torch.testing.assert_close(
            module.predict_proba(logits), logits.sigmoid() if several else logits.softmax(-1)
        )


def test_several_labels_may_be_of_the_models_own_half_precision():
    model = gpt2(problem_type="multi_label_classification").bfloat16()
    batch = {"input_ids": TOKENS, "labels": LABELS.bfloat16()}
    loss = MaskedHuggingFace(model).training_step(batch, 0)
    assert loss.isfinite()
    loss.backward()


def test_a_classifier_may_be_of_a_subclass_or_compiled():
    model = gpt2()
    own = type("Own", (type(model),), {})(model.config).eval()
    batch = {"input_ids": TOKENS, "labels": CLASSES}
    for taken in (own, torch.compile(model, backend="eager")):
        module = MaskedHuggingFace(taken, delta=0.3)
        torch.testing.assert_close(module.training_step(batch, 0), loss_of(module, batch))


@pytest.mark.parametrize(
    "kind", ["ForQuestionAnswering", "LMHeadModel", "Model", "ForSequenceClassification"]
)
def test_a_model_that_classifies_nothing_is_refused(kind):
    with pytest.raises(TypeError, match=r"self\.as_softmax_loss"):
        MaskedHuggingFace(gpt2(kind, num_labels=1 if kind.endswith("Classification") else 3))


def test_a_model_whose_loss_is_not_plain_cross_entropy_is_refused_at_its_first_loss():
    model = gpt2(problem_type="single_label_classification")

    class Weighted(type(model)):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            weight = torch.tensor([9.0, 1.0, 0.1])
            output["loss"] = F.cross_entropy(output.logits, kwargs["labels"], weight=weight)
            return output

    module = MaskedHuggingFace(Weighted(model.config).eval())
    module.model.score.weight.data *= 50
    ignored = torch.full((6,), -100)  # its NaN says nothing of the loss
    module.training_step({"input_ids": TOKENS, "labels": ignored}, 0)
    with pytest.raises(TypeError, match=r"self\.as_softmax_loss"):
        module.training_step({"input_ids": TOKENS, "labels": CLASSES}, 0)


def test_a_model_that_returns_a_tuple_is_refused():
    module = MaskedHuggingFace(gpt2())
    with pytest.raises(TypeError, match="return_dict"):
        module.model(input_ids=TOKENS, labels=CLASSES, return_dict=False)
