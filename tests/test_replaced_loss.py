"""The loss that takes the place of a module's own: its margin, its settings, how it is called."""

import copy
import inspect
import pickle
from functools import partial, wraps

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from as_lightning import (
    ASSoftmaxLoss,
    ASSoftmaxMixin,
    LinearCrossEntropyLoss,
    MultiLabelASSoftmaxLoss,
)
from as_lightning.functional import as_cross_entropy, multilabel_as_cross_entropy

LOGITS, TARGET = (
    2 * torch.randn(6, 3, generator=torch.Generator().manual_seed(0)),
    torch.tensor([0, 1, 2, -1, 1, 0]),
)
LABELS = torch.tensor([[1.0, 0.0, 1.0]] * 6)


class Module(pl.LightningModule):
    """Somebody's module: the loss is an argument."""

    def __init__(self, loss) -> None:
        super().__init__()
        self.criterion = loss


class WithAS(ASSoftmaxMixin, Module):
    as_softmax_replaces = "criterion"


def test_the_losss_margin_is_the_modules_margin_and_both_can_be_set():
    module = WithAS(nn.CrossEntropyLoss(ignore_index=-1), delta=0.3)
    assert module.criterion.delta == module.as_softmax_delta == 0.3
    module.criterion.delta = 0.5
    assert module.criterion.delta == module.as_softmax_delta == 0.5
    assert module.criterion(LOGITS, TARGET) == as_cross_entropy(
        LOGITS, TARGET, 0.5, ignore_index=-1
    )
    module.as_softmax_delta = 1.0
    assert module.criterion.delta == 1.0
    torch.testing.assert_close(
        module.criterion(LOGITS, TARGET), F.cross_entropy(LOGITS, TARGET, ignore_index=-1)
    )


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))]
)
def test_a_copys_loss_has_the_copys_margin(duplicate):
    module = WithAS(nn.CrossEntropyLoss(ignore_index=-1), delta=0.3)
    module.criterion.compile(backend="eager")
    (other := duplicate(module)).criterion.delta = 0.6
    assert (module.as_softmax_delta, other.as_softmax_delta, other.criterion.delta) == (
        0.3,
        0.6,
        0.6,
    )
    assert other.criterion(LOGITS, TARGET) == as_cross_entropy(LOGITS, TARGET, 0.6, ignore_index=-1)


ALL = {"weight": torch.tensor([1.0, 2.0, 0.5]), "ignore_index": -1, "reduction": "sum"}


@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        (nn.CrossEntropyLoss(**ALL), ALL),
        (partial(F.cross_entropy, **ALL, label_smoothing=0.0), ALL),
        (
            partial(partial(F.cross_entropy, ignore_index=-1), reduction="sum"),
            {"ignore_index": -1, "reduction": "sum"},
        ),
        (partial(partial(nn.CrossEntropyLoss(**ALL))), ALL),
        (nn.BCEWithLogitsLoss(), {}),
        (partial(nn.BCEWithLogitsLoss(reduction="sum")), {"reduction": "sum"}),
        (partial(F.binary_cross_entropy_with_logits, reduction="sum"), {"reduction": "sum"}),
    ],
)
def test_settings_stay_in_force_and_the_arguments_keep_their_names(loss, settings):
    module = WithAS(loss, delta=0.3)
    several = module.criterion.multilabel
    function, target = (
        (multilabel_as_cross_entropy, LABELS) if several else (as_cross_entropy, TARGET)
    )
    expected = function(LOGITS, target, 0.3, **settings)
    assert (
        module.criterion(input=LOGITS, target=target)
        == module.criterion(LOGITS, target)
        == expected
    )
    assert isinstance(loss, nn.Module) or not module.state_dict()
    assert module.masking_counter.counted


@pytest.mark.parametrize("shape", [(6,), (6, 1), (2, 3, 4)])
def test_labels_are_not_guessed_where_binary_cross_entropy_has_no_label_dimension(shape):
    module = WithAS(nn.BCEWithLogitsLoss())
    with pytest.raises(
        ValueError, match=r"expects logits of shape \(N, C\).*got \(\d.*\): of one label no margin"
    ):
        module.criterion(torch.zeros(shape), torch.ones(shape))


@pytest.mark.parametrize("setting", ["label_smoothing", "pos_weight", "weight"])
def test_what_is_set_later_or_given_in_a_call_counts_or_is_refused_and_the_loss_keeps_its_kind(
    setting,
):
    assert WithAS(F.cross_entropy).criterion(LOGITS, TARGET, **ALL) == as_cross_entropy(
        LOGITS, TARGET, **ALL
    )
    module = WithAS(
        loss := nn.CrossEntropyLoss() if setting == "label_smoothing" else nn.BCEWithLogitsLoss()
    )
    assert isinstance(module.criterion, type(loss))
    with pytest.raises(TypeError, match="got also Tensor: give it by name"):
        module.criterion(LOGITS, TARGET, torch.ones(3))
    with pytest.raises(
        ValueError, match=rf"is given {setting}=.*cannot carry on: they know .*reduction"
    ):
        module.criterion(LOGITS, TARGET, **{setting: torch.ones(3)})
    setattr(loss if setting == "weight" else module.criterion, setting, torch.ones(3))
    with pytest.raises(ValueError, match=rf"is given {setting}=.*cannot carry on"):
        module.criterion(LOGITS, TARGET)


def test_a_partials_weight_moves_with_the_module_and_adds_nothing_to_its_state():
    module = WithAS(partial(F.cross_entropy, weight=torch.ones(3)))
    assert module.double().criterion.weight.dtype == torch.float64
    assert module.state_dict() == {}


def focal(logits, target, gamma=2.0):
    raise NotImplementedError


class Around(nn.Module):
    """Somebody's loss that calls one of PyTorch's."""

    def __init__(self, weight=1.0, **settings) -> None:
        super().__init__()
        self.weight, self.part = weight, nn.CrossEntropyLoss(**settings)

    def forward(self, input, target):
        return self.weight * self.part(input, target)


Sharpened = type(
    "Sharpened", (nn.CrossEntropyLoss,), {"forward": lambda self, x, y: F.cross_entropy(x / 0.1, y)}
)
Doubled = type(
    "Doubled", (nn.CrossEntropyLoss,), {"__call__": lambda self, x, y: 2 * F.cross_entropy(x, y)}
)
OF_OTHER_KINDS = (
    nn.MSELoss(),
    nn.MultiMarginLoss(),
    F.l1_loss,
    F.multi_margin_loss,
    as_cross_entropy,
)


def test_a_setting_of_none_or_zero_changes_nothing():
    for nothing in (None, 0, 0.0, torch.tensor(0.0)):
        module = WithAS(
            partial(F.cross_entropy, ignore_index=-1, label_smoothing=nothing, extra=nothing),
            delta=0.3,
        )
        assert module.criterion(LOGITS, TARGET) == as_cross_entropy(
            LOGITS, TARGET, 0.3, ignore_index=-1
        )


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (partial(F.cross_entropy, label_smoothing=0.1), r"label_smoothing=0\.1"),
        (
            partial(F.cross_entropy, reduce=True),
            "given reduce=True, which the losses in its place cannot carry on:",
        ),
        (
            partial(F.binary_cross_entropy_with_logits, size_average=False),
            "given size_average=False",
        ),
        (partial(nn.CrossEntropyLoss(label_smoothing=0.1)), r"label_smoothing=0\.1"),
        (partial(nn.BCEWithLogitsLoss(pos_weight=torch.ones(3))), "pos_weight"),
        (nn.BCEWithLogitsLoss(weight=torch.ones(3)), "given weight=tensor.*they know reduction"),
        (
            partial(F.cross_entropy, label_smoothing=torch.tensor([0.1, 0.2])),
            "label_smoothing=tensor",
        ),
        (partial(F.cross_entropy, LOGITS), "1 positional arguments"),
    ],
)
def test_settings_that_cannot_be_carried_on_are_refused_and_not_dropped(loss, message):
    with pytest.raises(ValueError, match=message):
        WithAS(loss)


def test_an_attribute_of_the_class_is_replaced_for_the_instance():
    class OnTheClass(pl.LightningModule):
        loss_fn = staticmethod(F.cross_entropy)

    module = type("OnTheClassAS", (ASSoftmaxMixin, OnTheClass), {"as_softmax_replaces": "loss_fn"})(
        delta=0.3
    )
    target = TARGET.clamp(min=0)
    assert module.loss_fn(LOGITS, target) == as_cross_entropy(LOGITS, target, 0.3)
    assert OnTheClass.loss_fn is F.cross_entropy
    assert OnTheClass().loss_fn is F.cross_entropy


def test_a_property_is_refused_with_the_way_out():
    class PropertyAS(ASSoftmaxMixin, pl.LightningModule):
        loss_fn, as_softmax_replaces = property(lambda self: F.cross_entropy), "loss_fn"

    with pytest.raises(
        AttributeError, match=r"loss_fn.* is a property of .* call self\.as_softmax_loss"
    ):
        PropertyAS()


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        (
            nn.Linear(4, 3),
            "names torch.nn's Linear, which is no loss: name the attribute that training_step call",
        ),
        ("cross_entropy", "names 'cross_entropy', which is no loss"),
        (None, "names None, which is no loss"),
        (
            Sharpened(),
            "place of Sharpened, which may do more than cross-entropy: let it be CrossEntropyLoss, "
            "NLLLoss",
        ),
        (
            Doubled(),
            "place of this Doubled, whose __call__ would be lost: call self.as_softmax_loss",
        ),
        (Around(), "place of Around, which may do more"),
        (partial(focal, gamma=0.0), "place of focal, which may do more"),
        (
            wraps(F.cross_entropy)(lambda *rows: F.cross_entropy(*rows)),
            "place of cross_entropy, which may do more",
        ),
        *(
            (loss, f"place of {getattr(loss, '__name__', 'M')}.*, or call self.as_softmax")
            for loss in OF_OTHER_KINDS
        ),
    ],
)
def test_what_is_not_pytorchs_cross_entropy_is_refused_and_the_ways_out_are_named(
    attribute, message
):
    with pytest.raises(TypeError, match=message):
        WithAS(attribute)


@pytest.mark.parametrize(
    "loss",
    [
        type("Own", (ASSoftmaxLoss,), {})(0.3),
        LinearCrossEntropyLoss(4, 3),
        MultiLabelASSoftmaxLoss(),
    ],
)
def test_a_loss_with_a_margin_of_its_own_is_refused_and_the_ways_out_are_named(loss):
    with pytest.raises(
        TypeError,
        match=f"names {type(loss).__name__}, which has a margin .*leave ASSoftmaxMixin out",
    ):
        WithAS(loss)


@pytest.mark.parametrize("name", ["forward", "training_step", "criterion.forward"])
def test_a_method_that_every_module_has_is_refused(name):
    class Replacing(WithAS):
        as_softmax_replaces = name

    method = name.rpartition(".")[2]
    with pytest.raises(
        TypeError, match=rf"names the method {method} that every module has, which is no loss"
    ):
        Replacing(nn.CrossEntropyLoss())


@pytest.mark.parametrize(
    "loss", [nn.NLLLoss(**ALL), F.nll_loss, type("Weighted", (nn.CrossEntropyLoss,), {})(**ALL)]
)
def test_cross_entropy_by_another_name_is_replaced_with_its_settings(loss):
    settings = ALL if isinstance(loss, nn.Module) else {}
    module, target = WithAS(loss, delta=0.3), TARGET if settings else TARGET.clamp(min=0)
    assert isinstance(module.criterion, type(loss) if settings else nn.Module)
    assert module.criterion(LOGITS, target) == as_cross_entropy(LOGITS, target, 0.3, **settings)


def test_a_part_of_a_loss_of_ones_own_is_replaced():
    inside = type("Inside", (WithAS,), {"as_softmax_replaces": "criterion.part"})
    module = inside(Around(weight=2.0, ignore_index=-1), delta=0.3)
    expected = 2 * as_cross_entropy(LOGITS, TARGET, 0.3, ignore_index=-1)
    torch.testing.assert_close(module.criterion(LOGITS, TARGET), expected)


# --- a Hugging Face classifier, whose loss is its own

TINY = {
    "vocab_size": 9,
    "n_embd": 4,
    "n_layer": 1,
    "n_head": 1,
    "n_positions": 4,
    "num_labels": 3,
    "pad_token_id": 0,
}
TOKENS = torch.randint(1, 9, (6, 4), generator=torch.Generator().manual_seed(0))
TARGETS = {
    "single_label_classification": torch.tensor([0, 1, 2, 2, 1, 0]),
    "multi_label_classification": LABELS,
    "tokens": torch.randint(3, (6, 4), generator=torch.Generator().manual_seed(1)).where(
        TOKENS > 2, -100
    ),
}


class HuggingFace(pl.LightningModule):
    """Somebody's module: the model computes the loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch, batch_idx):
        return self.model(**batch).loss


class MaskedHuggingFace(ASSoftmaxMixin, HuggingFace):
    as_softmax_replaces = "model"


def gpt2(kind: str, **settings) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    model = getattr(transformers, f"GPT2{kind}")(transformers.GPT2Config(**(TINY | settings)))
    return model.eval()  # no dropout: the loss is that of the logits that come with it


def loss_of(module: MaskedHuggingFace, batch: dict) -> torch.Tensor:
    logits, target = module.model(**batch).logits, batch["labels"]
    if target.is_floating_point():
        return multilabel_as_cross_entropy(logits, target, module.as_softmax_delta)
    return as_cross_entropy(logits.flatten(0, -2), target.flatten(), module.as_softmax_delta)


@pytest.mark.parametrize("task", TARGETS)
@pytest.mark.parametrize(
    "duplicate", [lambda module: module, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_a_classifiers_loss_is_the_masked_one_of_its_logits_and_counted_also_of_a_copy(
    task, duplicate
):
    model = (
        gpt2("ForTokenClassification")
        if task == "tokens"
        else gpt2("ForSequenceClassification", problem_type=task)
    )
    original = MaskedHuggingFace(model, delta=0.3)
    module, batch = duplicate(original), {"input_ids": TOKENS, "labels": TARGETS[task]}
    module.as_softmax_delta = 0.1
    loss = module.training_step(batch, 0)
    torch.testing.assert_close(loss, loss_of(module, batch))
    assert loss.requires_grad
    assert module.masking_counter.counted
    assert module is original or not original.masking_counter.counted
    assert module.model(input_ids=TOKENS).loss is None


@pytest.mark.parametrize(
    "problem_type", [None, "single_label_classification", "multi_label_classification"]
)
@pytest.mark.parametrize(
    "labels", [TARGETS["single_label_classification"], LABELS], ids=["one label", "several"]
)
def test_a_classifiers_probabilities_are_those_of_its_kind_of_labels(problem_type, labels):
    several = labels.is_floating_point()
    if problem_type is not None and several != problem_type.startswith("multi"):
        return
    model = gpt2("ForSequenceClassification", problem_type=problem_type)
    module = MaskedHuggingFace(model)
    assert module.as_softmax_multilabel is (problem_type == "multi_label_classification")
    module.training_step({"input_ids": TOKENS, "labels": labels}, 0)
    assert module.as_softmax_multilabel is several
    logits = torch.tensor([[2.0, 0.0, 0.0]])
    with pytest.warns(UserWarning, match="no temperature"):
        torch.testing.assert_close(
            module.predict_proba(logits), logits.sigmoid() if several else logits.softmax(-1)
        )


def test_several_labels_may_be_of_the_models_own_half_precision():
    model = gpt2("ForSequenceClassification", problem_type="multi_label_classification").bfloat16()
    module = MaskedHuggingFace(model)
    loss = module.training_step({"input_ids": TOKENS, "labels": LABELS.bfloat16()}, 0)
    assert loss.isfinite()
    loss.backward()


def test_a_classifier_may_be_of_a_subclass_or_compiled():
    model = gpt2("ForSequenceClassification")
    own = type("Own", (type(model),), {})(model.config).eval()
    for taken in (own, torch.compile(model, backend="eager")):
        module, batch = (
            MaskedHuggingFace(taken, delta=0.3),
            {"input_ids": TOKENS, "labels": TARGET.clamp(min=0)},
        )
        torch.testing.assert_close(module.training_step(batch, 0), loss_of(module, batch))
        assert module.masking_counter.counted


@pytest.mark.parametrize(
    "kind", ["ForQuestionAnswering", "LMHeadModel", "Model", "ForSequenceClassification"]
)
def test_a_huggingface_model_that_classifies_nothing_is_refused(kind):
    with pytest.raises(
        TypeError, match=r"is no classification .*two labels or more.*call self\.as_softmax_loss"
    ):
        MaskedHuggingFace(gpt2(kind, num_labels=1 if kind.endswith("Classification") else 3))


def test_labels_may_be_given_by_position():
    module = MaskedHuggingFace(gpt2("ForSequenceClassification"), delta=0.3)
    places = list(inspect.signature(module.model.forward).parameters).index("labels")
    arguments = [TOKENS, *[None] * (places - 1), TARGETS["single_label_classification"]]
    expected = loss_of(module, {"input_ids": TOKENS, "labels": arguments[-1]})
    torch.testing.assert_close(module.model(*arguments).loss, expected)


def test_a_model_whose_loss_is_not_plain_cross_entropy_is_refused_at_its_first_loss():
    model = gpt2("ForSequenceClassification", problem_type="single_label_classification")

    class Weighted(type(model)):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output["loss"] = F.cross_entropy(
                output.logits, kwargs["labels"], weight=torch.tensor([9.0, 1.0, 0.1])
            )
            return output

    module = MaskedHuggingFace(Weighted(model.config).eval())
    module.model.score.weight.data *= 50
    module.training_step(
        {"input_ids": TOKENS, "labels": torch.full((6,), -100)}, 0
    )  # NaN says nothing of the loss
    with pytest.raises(
        TypeError, match=r"is not the mean cross-entropy of its logits .*self\.as_softmax_loss"
    ):
        module.training_step(
            {"input_ids": TOKENS, "labels": TARGETS["single_label_classification"]}, 0
        )


def test_a_model_that_returns_a_tuple_or_is_replaced_already_is_refused_in_words():
    model = gpt2("ForSequenceClassification")
    module = MaskedHuggingFace(model)
    batch = {
        "input_ids": TOKENS,
        "labels": TARGETS["single_label_classification"],
        "return_dict": False,
    }
    with pytest.raises(
        TypeError, match="must return an output with logits, got tuple: use return_dict=True"
    ):
        module.model(**batch)
    with pytest.raises(ValueError, match="is replaced already: make a new model"):
        MaskedHuggingFace(model)


def test_the_loss_of_labels_moves_with_the_module_and_adds_nothing_to_its_state():
    model = gpt2("ForSequenceClassification")
    keys = HuggingFace(model).state_dict().keys()
    module = MaskedHuggingFace(model).double()
    assert module.state_dict().keys() == keys
    loss = module.training_step(
        {"input_ids": TOKENS, "labels": TARGETS["single_label_classification"]}, 0
    )
    assert loss.dtype == torch.float64
