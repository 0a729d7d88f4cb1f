"""Encoders of Hugging Face, tiny ones of random weights in folders: their tokens, and what of them
is frozen.
"""

import string
from pathlib import Path

import pytest
import torch
from harness.data_settings import TEXT, WNUT17
from harness.tiny_encoder import LAYERS, WIDE, model_of, save_encoder
from harness.tiny_encoder import VOCAB as TINY_VOCAB
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from as_lightning.bench.data.text.data_module import fit_tokenizer, pretrained_tokenizer
from as_lightning.bench.data.text.tagging import Conll
from as_lightning.bench.encoders.auto_model import AutoModelEncoder

VOCAB, POSITIONS = 1000, 40
SIZES = WIDE | {"num_hidden_layers": 1, "max_position_embeddings": POSITIONS}


TEXTS = ["a good film", "a bad film", "no film at all"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    """A checkpoint with a tokeniser that, as BERT's, begins and ends a text with tokens of its own
    and pads with 3.
    """
    folder = str(tmp_path_factory.mktemp("checkpoint"))
    tokenizer = fit_tokenizer([*TEXTS, string.printable], VOCAB - 3)
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", "[FILL]"])
    first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", first), ("[SEP]", last)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[FILL]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=VOCAB, **SIZES)).save_pretrained(folder)
    return folder


def test_the_data_have_the_tokenisers_vocabulary_and_padding_and_targets(checkpoint, real_data):
    data = Conll(*WNUT17, data_dir=real_data, tokenizer=checkpoint, **(TEXT | {"max_length": 1024}))
    data.setup()
    fill, size = data.tokenizer.token_to_id("[FILL]"), data.tokenizer.get_vocab_size()
    assert fill != 0
    assert data.input_spec == {"vocab_size": size, "max_length": 1024, "padding_id": fill}
    token_ids, _ = data.collate([data.splits["train"][index] for index in range(16)])
    assert (token_ids[:, 0] == data.tokenizer.token_to_id("[CLS]")).all()
    assert (token_ids == fill).any()
    assert (token_ids == data.tokenizer.token_to_id("[SEP]")).sum() == 16
    for split, rows in data.read_splits().items():
        for row, targets in zip(rows, data.splits[split].targets, strict=True):
            assert tuple(data.class_names[tag] for tag in targets.tolist() if tag >= 0) == row.tags
            # The tokens that begin and end a text are no words.
            assert targets[0] == targets[-1] == -100


def encoder(name: str | Path, **arguments) -> AutoModelEncoder:
    sizes = {"vocab_size": VOCAB, "max_length": 32, "padding_id": 3, "pooling": "mean"}
    return AutoModelEncoder(str(name), **(sizes | arguments))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": VOCAB + 1}, rf"have {VOCAB + 1} tokens .*data.tokenizer"),
        ({"max_length": POSITIONS + 1}, rf"texts of {POSITIONS + 1}, .*data.max_length"),
        ({"trainable_layers": 2}, "trainable_layers=2: .* fewer layers"),
        ({"trainable_layers": -1}, "trainable_layers must be"),
        ({"feature_cache": "disk"}, "feature_cache must be"),
        ({"name": "/no/missing"}, "model.name='/no/missing' is no Hugging Face model"),
    ],
)
def test_what_the_encoder_does_not_have_is_refused_with_the_way_out(checkpoint, settings, message):
    with pytest.raises(ValueError, match=message):
        encoder(**({"name": checkpoint} | settings))


def test_folders_without_a_tokeniser_or_with_one_that_pads_with_nothing_are_refused(tmp_path):
    folder, missing = str(tmp_path), str(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"tokenizer='.*missing': expected a Hugging Face model"):
        pretrained_tokenizer(missing)
    model_of("bert").save_pretrained(folder)
    with pytest.raises(ValueError, match=rf"tokenizer='{folder}': .* it has no tokens"):
        pretrained_tokenizer(folder)
    without_padding = fit_tokenizer(["some words"], 50)
    PreTrainedTokenizerFast(tokenizer_object=without_padding).save_pretrained(folder)
    with pytest.raises(ValueError, match="with a fast tokeniser and a padding token"):
        pretrained_tokenizer(folder)


KINDS = ("bert", "roberta", "distilbert", "modernbert")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    return {kind: save_encoder(tmp_path_factory.mktemp(kind), TEXTS, kind) for kind in KINDS}


def text_encoder(folder: str | Path, trainable_layers: int | None, **arguments) -> AutoModelEncoder:
    return encoder(
        folder, vocab_size=TINY_VOCAB, padding_id=0, trainable_layers=trainable_layers, **arguments
    )


def token_ids() -> torch.Tensor:
    ids = torch.randint(1, TINY_VOCAB, (4, 9), generator=torch.Generator().manual_seed(1))
    ids[1, 5:] = 0
    return ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trainable_layers", [None, 0, 1, LAYERS])
def test_the_last_layers_alone_get_gradients_and_all_of_them(folders, kind, trainable_layers):
    encoder = text_encoder(folders[kind], trainable_layers)
    if trainable_layers != 0:
        encoder(token_ids()).square().sum().backward()
    named = dict(encoder.network.named_parameters())
    trained = {name for name, parameter in named.items() if parameter.grad is not None}
    # As ddp needs.
    assert trained == {name for name, parameter in named.items() if parameter.requires_grad}
    numbers = {int(part) for name in trained for part in name.split(".") if part.isdigit()}
    layers = LAYERS if trainable_layers is None else trainable_layers
    assert numbers == set(range(LAYERS - layers, LAYERS))
    assert any("embeddings" in name for name in trained) == (trainable_layers is None)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_layers_run_in_evaluation_mode_while_the_last_ones_train(folders, kind):
    encoder = text_encoder(folders[kind], 1).train()
    lists = [part for part in encoder.modules() if isinstance(part, nn.ModuleList)]
    (layers,) = [part for part in lists if len(part) == LAYERS]
    assert [layer.training for layer in layers] == [False] * (LAYERS - 1) + [True]
    assert not any(part.training for part in encoder.network.embeddings.modules())
    fixed = text_encoder(folders[kind], 0).train()
    assert torch.equal(fixed(token_ids()), fixed(token_ids()))
    assert not fixed(token_ids()).requires_grad


@pytest.mark.parametrize("trainable_layers", [None, 1])
def test_weights_that_are_stored_in_16_bits_train_in_32(tmp_path, trainable_layers):
    model_of("bert").bfloat16().save_pretrained(tmp_path)
    encoder = text_encoder(str(tmp_path), trainable_layers)
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}
    assert encoder(token_ids()).dtype == torch.float32


def test_pickled_weights_are_refused(tmp_path):
    folder = save_encoder(tmp_path, TEXTS)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model_of("bert").state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="safetensors"):
        text_encoder(folder, 1)
