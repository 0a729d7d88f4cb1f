"""Encoders of which the last layers are trained: what is frozen, and that the parts are the whole."""

from __future__ import annotations

import pytest
import torch
from harness.tiny_encoder import LAYERS, VOCAB, model_of, save_encoder

from as_lightning.benchmark.data.text.data_module import pretrained_tokenizer
from as_lightning.benchmark.encoders.auto_model import AutoModelEncoder
from as_lightning.benchmark.encoders.torchvision_encoder import TorchvisionEncoder

KINDS = ("bert", "roberta", "distilbert", "modernbert")
TEXTS = ["a good film", "a bad film", "no film at all"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    return {kind: save_encoder(tmp_path_factory.mktemp(kind), TEXTS, kind) for kind in KINDS}


def text_encoder(folder: str, trainable_layers: int | None, pooling: str = "mean", **arguments) -> AutoModelEncoder:
    return AutoModelEncoder(folder, VOCAB, 32, 0, pooling, trainable_layers=trainable_layers, **arguments)


def token_ids() -> torch.Tensor:
    ids = torch.randint(1, VOCAB, (4, 9), generator=torch.Generator().manual_seed(1))
    ids[1, 5:] = 0
    return ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trainable_layers", [0, 1, LAYERS])
@pytest.mark.parametrize("pooling", ["mean", "none"])
def test_frozen_part_and_top_together_are_the_whole_encoder(folders, kind, trainable_layers, pooling):
    whole = text_encoder(folders[kind], None, pooling).eval()
    cut = text_encoder(folders[kind], trainable_layers, pooling).eval()
    ids = token_ids()
    with torch.no_grad():
        assert torch.equal(cut(ids), whole(ids))
        assert torch.equal(cut(cut.frozen_output(ids)), whole(ids))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trainable_layers", [0, 1, 2])
def test_only_the_last_layers_get_gradients(folders, kind, trainable_layers):
    whole = text_encoder(folders[kind], None)
    cut = text_encoder(folders[kind], trainable_layers)
    if trainable_layers:
        cut(token_ids()).sum().backward()
    trained = {name for name, parameter in cut.model.named_parameters() if parameter.grad is not None}
    numbers = {int(part) for name in trained for part in name.split(".") if part.isdigit()}
    assert numbers == set(range(LAYERS - trainable_layers, LAYERS))
    assert not any("embeddings" in name for name in trained)
    assert cut.model.state_dict().keys() == whole.model.state_dict().keys()


def test_frozen_layers_run_without_dropout_while_the_last_ones_train_with_it(folders):
    encoder = text_encoder(folders["bert"], 1).train()
    ids = token_ids()
    first, second = encoder.frozen_output(ids), encoder.frozen_output(ids)
    assert torch.equal(first.values, second.values)
    assert not first.values.requires_grad
    assert not torch.equal(encoder(first), encoder(first))


def test_more_trainable_layers_than_there_are_is_refused_with_their_number(folders):
    with pytest.raises(ValueError, match=rf"trainable_layers is {LAYERS + 1}, .* has {LAYERS} layers"):
        text_encoder(folders["bert"], LAYERS + 1)
    with pytest.raises(ValueError, match="trainable_layers is 11, resnet18 has 10 stages"):
        TorchvisionEncoder("resnet18", None, 3, trainable_layers=11)
    with pytest.raises(ValueError, match="trainable_layers must be an integer of at least 0, got -1"):
        text_encoder(folders["bert"], -1)


def test_pickled_weights_are_refused_unless_asked_for(tmp_path):
    folder = save_encoder(tmp_path, TEXTS)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model_of("bert").state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pickled weights \(pytorch_model.bin\).*model.allow_pickle=true"):
        text_encoder(folder, 1)
    assert text_encoder(folder, 1, allow_pickle=True)(token_ids()).shape == (4, 16)


def test_a_folder_without_a_tokenizer_is_refused_by_its_name(tmp_path):
    model_of("bert").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"tokenizer='{tmp_path}': the folder has no tokenizer"):
        pretrained_tokenizer(str(tmp_path))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "densenet121"])
@pytest.mark.parametrize("trainable_layers", [0, 1, 2])
def test_frozen_stages_and_the_last_ones_together_are_the_whole_network(name, trainable_layers):
    torch.manual_seed(0)
    whole = TorchvisionEncoder(name, None, 3).eval()
    torch.manual_seed(0)
    cut = TorchvisionEncoder(name, None, 3, trainable_layers=trainable_layers)
    images = torch.randn(2, 3, 32, 32)
    before = {key: value.clone() for key, value in cut.network.state_dict().items()}
    frozen = cut.train().frozen_output(images)
    assert all(torch.equal(value, before[key]) for key, value in cut.network.state_dict().items())  # no new statistics
    with torch.no_grad():
        assert torch.equal(cut.eval()(images), whole(images))
        assert torch.equal(cut(frozen), whole(images))
    trained = sum(parameter.requires_grad for parameter in cut.parameters())
    assert 0 < trained < len(list(whole.parameters())) if trainable_layers else trained == 0


def test_a_network_that_is_no_chain_of_its_stages_is_refused():
    with pytest.raises(ValueError, match="vit_b_32 cannot be cut before its stage 'conv_proj'"):
        TorchvisionEncoder("vit_b_32", None, 3, trainable_layers=2)
