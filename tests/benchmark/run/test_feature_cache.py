"""Outputs of frozen layers that are kept: the same bits as computed anew, and made again where they are not theirs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from harness.data_settings import TEXT
from harness.tiny_encoder import save_encoder
from torch import Tensor
from transformers import BertModel

from as_lightning.benchmark.data.base import collected_messages
from as_lightning.benchmark.data.files import LabelledFile
from as_lightning.benchmark.data.image.data_module import ImageDataModule
from as_lightning.benchmark.data.text.text_file import TextFile
from as_lightning.benchmark.encoders.auto_model import AutoModelEncoder
from as_lightning.benchmark.encoders.torchvision_encoder import TorchvisionEncoder
from as_lightning.benchmark.run.feature_cache import cache_features
from as_lightning.benchmark.run.train import train

WORDS = ["good", "bad", "film", "plot", "never", "always", "it", "was", "seen", "again"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "reviews.csv"
    rows = [
        f"{' '.join(WORDS[(row * step) % 10] for step in range(1, 3 + row % 5))},{'good' if row % 2 else 'bad'}"
        for row in range(80)
    ]
    path.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return save_encoder(tmp_path_factory.mktemp("encoder"), WORDS)


def data_of(texts: Path, folder: str, **arguments) -> TextFile:
    data = TextFile(path=texts, tokenizer=folder, **(TEXT | {"batch_size": 8} | arguments))
    data.setup()
    return data


def encoder_of(data: TextFile, folder: str, trainable_layers: int = 1, **arguments) -> AutoModelEncoder:
    return AutoModelEncoder(folder, **data.input_spec, pooling="mean", trainable_layers=trainable_layers, **arguments)


def kept(data: TextFile) -> dict[str, list[list[float]]]:
    return {split: [dataset[row][0].tolist() for row in range(len(dataset))] for split, dataset in data.splits.items()}


@pytest.mark.parametrize("trainable_layers", [0, 1])
def test_what_is_kept_has_the_bits_of_what_is_computed_anew(texts, folder, tmp_path, trainable_layers):
    results = []
    for place, cache in [("one", "file"), ("one", "file"), ("two", "file"), ("three", "memory")]:
        data = data_of(texts, folder)
        cache_features(data, encoder_of(data, folder, trainable_layers, feature_cache=cache), tmp_path / place)
        results.append(kept(data))
    assert all(other == results[0] for other in results[1:])
    assert len(list((tmp_path / "one" / "frozen").glob("*.npy"))) == 3
    assert not (tmp_path / "three").exists()
    plain = data_of(texts, folder)
    encoder = encoder_of(plain, folder, trainable_layers)
    for split, dataset in plain.splits.items():
        for index in range(0, len(dataset), 7):
            ids = dataset[index][0]
            alike = [row for row in range(len(dataset)) if len(dataset[row][0]) == len(ids)]
            batch = torch.stack([dataset[row][0] for row in alike])
            anew = encoder.frozen_output(batch).values[alike.index(index)]
            assert results[0][split][index] == anew.tolist()


@pytest.mark.parametrize("trainable_layers", [0, 1])
def test_texts_of_one_token_each_have_the_features_that_they_have_without_the_cache(folder, tmp_path, trainable_layers):
    path = tmp_path / "words.csv"
    path.write_text("text,label\n" + "good,a\nbad,b\n" * 20, encoding="utf-8")
    plain, data = data_of(path, folder, max_length=1), data_of(path, folder, max_length=1)
    encoder = encoder_of(data, folder, trainable_layers).eval()
    cache_features(data, encoder, tmp_path)
    for (ids, _), (outputs, _) in zip(plain.val_dataloader(), data.val_dataloader(), strict=True):
        assert ids.shape[1] == 1
        with torch.no_grad():
            torch.testing.assert_close(encoder(outputs), encoder(ids))


@pytest.mark.parametrize("loader", ["val_dataloader", "corrupted_dataloader"])
def test_a_batch_of_kept_outputs_gives_the_features_of_its_texts_also_with_noise_and_shots(
    texts, folder, tmp_path, loader
):
    data = []
    for _ in range(2):
        torch.manual_seed(3)
        data.append(data_of(texts, folder, shots=10, label_noise=0.5))
    plain, kept_data = data
    encoder = encoder_of(kept_data, folder).eval()
    cache_features(kept_data, encoder, tmp_path)
    batches = zip(getattr(plain, loader)(), getattr(kept_data, loader)(), strict=True)
    for (ids, targets), (outputs, same_targets) in batches:
        assert torch.equal(targets, same_targets)
        assert torch.equal(outputs.present, ids != plain.padding_id)
        with torch.no_grad():
            torch.testing.assert_close(encoder(outputs), encoder(ids))


@pytest.mark.parametrize("damage", ["cut off", "one bit", "no note", "foreign"])
def test_a_file_that_is_damaged_or_of_something_else_is_made_again_and_said(texts, folder, tmp_path, damage):
    data = data_of(texts, folder)
    cache_features(data, encoder_of(data, folder), tmp_path)
    before = kept(data)
    one, other = sorted((tmp_path / "frozen").glob("*.npy"))[:2]
    content = one.read_bytes()
    if damage == "cut off":
        one.write_bytes(content[:-10])
    elif damage == "one bit":
        one.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "no note":
        one.with_suffix(".sha256").unlink()
    else:
        one.write_bytes(other.read_bytes())
        one.with_suffix(".sha256").write_bytes(other.with_suffix(".sha256").read_bytes())
    again = data_of(texts, folder)
    with collected_messages() as messages:
        cache_features(again, encoder_of(again, folder), tmp_path)
    assert [message for message in messages if f"{one} is damaged, or not what its name says" in message]
    assert one.read_bytes() == content
    assert before == kept(again)


def test_another_encoder_other_layers_and_other_texts_have_files_of_their_own(texts, folder, tmp_path):
    def files(texts_path: Path, encoder_folder: str, layers: int) -> set[str]:
        data = data_of(texts_path, encoder_folder)
        cache_features(data, encoder_of(data, encoder_folder, layers), tmp_path)
        return {path.name for path in (tmp_path / "frozen").glob("*.npy")}

    other = tmp_path / "other"
    save_encoder(other, WORDS)
    changed = BertModel.from_pretrained(other)
    with torch.no_grad():
        changed.embeddings.word_embeddings.weight[7, 3] += 1.0
    changed.save_pretrained(other)
    fewer = tmp_path / "fewer.csv"
    fewer.write_text(texts.read_text(encoding="utf-8").rsplit("\n", 10)[0], encoding="utf-8")
    assert len(files(texts, folder, 1)) == 3
    assert len(files(texts, folder, 1)) == 3
    drawn = tmp_path / "drawn"  # the pooler of a checkpoint without one, at another seed
    save_encoder(drawn, WORDS)
    model = BertModel.from_pretrained(drawn)
    torch.nn.init.normal_(model.pooler.dense.weight)
    model.save_pretrained(drawn)
    assert len(files(texts, str(drawn), 1)) == 3
    assert len(files(texts, folder, 2)) == 6
    assert len(files(texts, str(other), 1)) == 9
    assert len(files(fewer, folder, 1)) > 9


def test_a_folder_that_cannot_be_written_leaves_the_outputs_in_memory_and_says_so(texts, folder, tmp_path):
    (tmp_path / "frozen").write_text("a file where a folder should be", encoding="utf-8")
    data = data_of(texts, folder)
    with collected_messages() as messages:
        cache_features(data, encoder_of(data, folder), tmp_path)
    assert sum("stay in memory" in message for message in messages) == 3
    assert data.splits["train"].inputs[0].is_floating_point()


class TinyImages(ImageDataModule):
    """Eight random images a split."""

    decode = staticmethod(Tensor.clone)

    def index(self) -> dict[str, list[LabelledFile]]:
        images = torch.randint(0, 255, (8, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        files = [LabelledFile("ab"[row % 2], str(row), partial(images.select, 0, row)) for row in range(8)]
        return dict.fromkeys(("train", "validation", "test"), files)


def test_images_are_kept_unless_they_are_augmented(tmp_path):
    pixels = {"batch_size": 4, "mean": [0.5] * 3, "std": [0.2] * 3}
    encoder = TorchvisionEncoder("resnet18", None, 3, trainable_layers=1).eval()
    augmented = TinyImages(**pixels)
    augmented.setup()
    with collected_messages() as messages:
        cache_features(augmented, encoder, tmp_path)
    assert [message for message in messages if "data.crop_padding=0 data.horizontal_flip=false" in message]
    assert augmented.splits["train"].inputs[0].shape == (3, 32, 32)
    plain, data = (TinyImages(crop_padding=0, horizontal_flip=False, **pixels) for _ in range(2))
    plain.setup()
    data.setup()
    cache_features(data, encoder, tmp_path)
    for (images, _), (outputs, _) in zip(plain.test_dataloader(), data.test_dataloader(), strict=True):
        with torch.no_grad():
            torch.testing.assert_close(encoder(outputs), encoder(images))


def test_data_for_an_encoder_without_frozen_layers_stay_as_they_are(texts, folder, tmp_path):
    data = data_of(texts, folder)
    before = dict(data.splits)
    cache_features(data, torch.nn.Linear(2, 2), tmp_path)
    cache_features(data, encoder_of(data, folder, feature_cache="off"), tmp_path)
    assert data.splits == before
    with pytest.raises(ValueError, match="feature_cache must be one of 'file', 'memory', 'off', got 'disk'"):
        encoder_of(data, folder, feature_cache="disk")


def test_a_run_that_finds_its_outputs_ends_as_the_run_that_computed_them(texts, folder, tmp_path, composed):
    results = []
    for output in ("first", "second"):
        data = ("experiment=text_file", f"data.path={texts}", f"data_dir={tmp_path / 'data'}", "logger=none")
        model = ("model=auto_model", f"model.name={folder}", "model.trainable_layers=1", "trainer.max_epochs=2")
        results.append(train(composed(*data, *model, output=output)))
    assert results[0].metrics == results[1].metrics
    assert [line["loss"] for line in results[0].evaluations] == [line["loss"] for line in results[1].evaluations]
    files = list((tmp_path / "data" / "frozen").glob("*.npy"))
    assert [np.load(path, mmap_mode="r").dtype for path in files] == [np.float32] * 3


def test_the_first_samples_alone_can_be_trained_on(texts, folder):
    whole, data = data_of(texts, folder), data_of(texts, folder, first=9)
    assert all(torch.equal(data.splits["train"][index][0], whole.splits["train"][index][0]) for index in range(9))
    assert len(data.splits["train"]) == 9
    assert len(data.splits["test"]) == len(whole.splits["test"])
    one_class = int(whole.splits["train"].targets[0])
    lost = whole.class_names[1 - one_class]
    with collected_messages() as messages:
        data_of(texts, folder, first=1)
    assert any(f"1 of 2 classes have no example among them: {lost}" in message for message in messages)
    few = data_of(texts, folder, first=30, shots=5)
    assert few.splits["train"].targets.bincount().tolist() == [5, 5]
    assert set(few.example_names("train")) <= set(whole.example_names("train")[:30])
