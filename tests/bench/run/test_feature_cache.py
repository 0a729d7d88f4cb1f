"""Outputs of frozen layers that are kept: the same bits as computed anew, and made again where they
are not theirs.
"""

import copy
from pathlib import Path

import pytest
import torch
from harness.data_settings import TEXT
from harness.made_files import write_images
from harness.tiny_encoder import save_encoder
from transformers import BertModel

from as_lightning.bench.data.base import BenchmarkDataModule
from as_lightning.bench.data.image_folder import ImageFolder
from as_lightning.bench.data.reading import collected_messages
from as_lightning.bench.data.text.text_file import TextFile
from as_lightning.bench.encoders.auto_model import AutoModelEncoder
from as_lightning.bench.encoders.torchvision_encoder import TorchvisionEncoder
from as_lightning.bench.run.feature_cache import cache_features
from as_lightning.bench.run.train import train

WORDS = ["good", "bad", "film", "plot", "never", "always", "it", "was", "seen", "again"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "reviews.csv"
    texts = [
        " ".join(WORDS[(row * step) % 10] for step in range(1, 3 + row % 5)) for row in range(80)
    ]
    path.write_text(
        "text,label\n" + "\n".join(f"{text},{row % 2}" for row, text in enumerate(texts))
    )
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return save_encoder(tmp_path_factory.mktemp("encoder"), WORDS)


def data_of(texts: Path, folder: str, **arguments) -> TextFile:
    data = TextFile(path=texts, tokenizer=folder, **(TEXT | {"batch_size": 8} | arguments))
    data.setup()
    return data


def encoder_of(data: TextFile, folder: str, **arguments) -> AutoModelEncoder:
    settings = {"pooling": "mean", "trainable_layers": 0} | arguments
    return AutoModelEncoder(folder, **data.input_spec, **settings)


def cached(texts: Path, folder: str, place: Path, cache: str = "file", **data) -> TextFile:
    """Return the data, of which the outputs are kept in ``place``."""
    data = data_of(texts, folder, **data)
    cache_features(data, encoder_of(data, folder, feature_cache=cache), place)
    return data


def kept(data: TextFile) -> dict[str, list[list[float]]]:
    return {
        split: [dataset[row][0].tolist() for row in range(len(dataset))]
        for split, dataset in data.splits.items()
    }


def assert_same_features(encoder, plain: BenchmarkDataModule, data, loader: str) -> None:
    pairs = zip(getattr(plain, loader)(), getattr(data, loader)(), strict=True)
    for (inputs, targets), (outputs, same_targets) in pairs:
        assert torch.equal(targets, same_targets)
        torch.testing.assert_close(outputs, encoder(inputs))


def test_what_is_kept_has_the_bits_of_what_is_computed_anew(texts, folder, tmp_path):
    places = [("one", "file"), ("one", "file"), ("two", "file"), ("three", "memory")]
    results = [kept(cached(texts, folder, tmp_path / place, cache)) for place, cache in places]
    assert all(other == results[0] for other in results[1:])
    assert not (tmp_path / "three").exists()


@pytest.mark.parametrize(
    ("loader", "settings"),
    [
        ("val_dataloader", {"length_buckets": False}),  # outputs have no lengths
        ("val_dataloader", {"max_length": 1}),
    ],
)
def test_a_batch_of_kept_outputs_has_the_features_of_its_texts(
    texts, folder, tmp_path, loader, settings
):
    plain, data = (data_of(texts, folder, **settings) for _ in range(2))
    encoder, other = (encoder_of(data, folder) for _ in range(2))
    cache_features(data, encoder, tmp_path)
    assert_same_features(other, plain, data, loader)
    outputs, _ = next(iter(getattr(data, loader)()))
    assert encoder(outputs) is outputs


def computed(texts: Path, folder: str | Path, place: Path, **data) -> int:
    """Return how many times outputs are computed, and not read."""
    with collected_messages() as messages:
        cached(texts, str(folder), place, **data)
    return sum("are computed" in message for message in messages)


def test_another_encoder_or_other_texts_are_computed_and_the_same_read(texts, folder, tmp_path):
    # An encoder of another weight, and one whose pooler is drawn anew, as that of a checkpoint
    # without one.
    weights = {"other": "embeddings.word_embeddings.weight", "drawn": "pooler.dense.weight"}
    for name, weight in weights.items():
        model = BertModel.from_pretrained(save_encoder(tmp_path / name, WORDS))
        with torch.no_grad():
            model.get_parameter(weight)[7, 3] += 1.0
        model.save_pretrained(tmp_path / name)
    other = tmp_path / "other.csv"
    other.write_text(f"{texts.read_text()}\nanother,0")
    assert computed(texts, folder, tmp_path) == 1
    assert computed(texts, folder, tmp_path) == 0
    assert computed(texts, tmp_path / "drawn", tmp_path) == 0
    assert computed(texts, folder, tmp_path, split_seed=1) == 0
    assert computed(texts, tmp_path / "other", tmp_path) == 1
    assert computed(other, folder, tmp_path) == 1
    for file in tmp_path.rglob("frozen/**/output.pkl"):
        file.write_bytes(file.read_bytes()[:-10])
    assert computed(texts, folder, tmp_path) == 1  # a damaged one is made again


def test_images_are_kept_unless_they_are_augmented(tmp_path):
    write_images(tmp_path / "set", {"cat": 10, "dog": 10}, size=32)
    pixels = {"batch_size": 4, "mean": [0.5] * 3, "std": [0.2] * 3}
    plain, data = (ImageFolder(tmp_path / "set", crop_padding=0, **pixels) for _ in range(2))
    augmented = ImageFolder(tmp_path / "set", **pixels)
    for images in (plain, data, augmented):
        images.setup()
    encoder = TorchvisionEncoder("resnet18", None, 3, trainable_layers=0)
    with collected_messages() as messages:
        cache_features(augmented, encoder, tmp_path)
    assert ["data.crop_padding=0 data.horizontal_flip=false" in text for text in messages] == [True]
    assert augmented.splits["train"].inputs[0].shape == (3, 32, 32)
    other = copy.deepcopy(encoder)
    cache_features(data, encoder, tmp_path)
    assert_same_features(other, plain, data, "test_dataloader")


@pytest.mark.parametrize(
    "settings", [{"feature_cache": "off"}, {"trainable_layers": 1}, {"pooling": "none"}]
)
def test_data_stay_where_outputs_cannot_be_kept(texts, folder, tmp_path, settings):
    data = data_of(texts, folder)
    before = dict(data.splits)
    cache_features(data, encoder_of(data, folder, **settings), tmp_path)
    cache_features(data, torch.nn.Linear(2, 2), tmp_path)
    assert data.splits == before


def test_a_run_with_kept_outputs_or_without_ends_the_same(texts, folder, tmp_path, composed):
    settings = (
        "experiment=text_file",
        f"data.path={texts}",
        f"data_dir={tmp_path}/data",
        "data.length_buckets=false",
        "model=auto_model",
        f"model.name={folder}",
        "model.trainable_layers=0",
        "lr_scheduler=null",
        "optimizer.lr=0.01",
        "logger=none",
        "trainer.max_epochs=2",
    )
    first, second, none = (
        train(composed(*settings, f"model.feature_cache={cache}", output=f"{number}"))
        for number, cache in enumerate(("file", "file", "off"))
    )
    assert first.metrics == second.metrics == pytest.approx(none.metrics, abs=1e-5)
    assert [line["loss"] for line in first.evaluations] == [
        line["loss"] for line in second.evaluations
    ]
