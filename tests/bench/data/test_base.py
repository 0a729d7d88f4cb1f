"""What every data module does: it refuses arguments, splits by its own seed, counts classes and
takes the first.
"""

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness.data_settings import AUDIO, IMAGES, TEXT
from harness.made_files import write_images, write_table
from harness.variant_methods import random_logits
from lightning.pytorch import seed_everything

from as_lightning.bench.data.audio_folder import AudioFolder
from as_lightning.bench.data.base import BenchmarkDataModule, LabelledDataset
from as_lightning.bench.data.digits import Digits
from as_lightning.bench.data.image_folder import ImageFolder
from as_lightning.bench.data.reading import collected_messages
from as_lightning.bench.data.text.clinc150 import Clinc150
from as_lightning.bench.data.text.text_file import TextFile
from as_lightning.bench.run.train import made_module, read_data
from as_lightning.functional import logit_adjusted_loss

SETTINGS: dict[type[BenchmarkDataModule], dict[str, Any]] = {
    Clinc150: TEXT | {"path": "clinc150.json"},
    Digits: {},
    AudioFolder: AUDIO | {"path": "set"},
    ImageFolder: IMAGES | {"path": "set"},
    TextFile: TEXT | {"path": "set.csv"},
}
SEVERAL = {"label_separator": "|"}
OFFICIAL = {"validation_path": "b.csv", "test_path": "c.csv"}


@pytest.mark.parametrize(
    ("module", "arguments", "name"),
    [
        (Digits, {"batch_size": 0}, "batch_size must be"),
        (Digits, {"num_workers": -1}, "num_workers must be"),
        (Digits, {"label_noise": 1.1}, "label_noise must be"),
        (Digits, {"label_noise_kind": "x"}, "label_noise_kind must be"),
        (Digits, {"draw_seed": "abc"}, "draw_seed must be"),
        (Digits, {"imbalance": 0.5}, "imbalance must be"),
        (Digits, {"imbalance": 2, "shots": 3}, "imbalance must be .* without shots"),
        (Digits, {"shots": 200}, r"shots=200 needs .*class '\d' has \d+, the largest has 128"),
        (Digits, {"imbalance": 200}, "imbalance=200 needs .*the largest has 128"),
        (Digits, {"imbalance": 2, "first": 5}, r"imbalance=2 needs .*class '\d' has 0"),
        (TextFile, SEVERAL | {"imbalance": 2}, "imbalance=2 .*not for multilabel"),
        (TextFile, SEVERAL | {"label_noise": 0.4}, "label_noise=0.4 .*not for multilabel"),
        (AudioFolder, {"features": "mfcc"}, "features must be"),
        (AudioFolder, {"n_fft": 0}, "n_fft must be"),
        (AudioFolder, {"freq_mask": -1}, "freq_mask must be"),
        (AudioFolder, {"split_seed": "abc"}, "split_seed must be"),
        (AudioFolder, {"seconds": "abc"}, "seconds must be"),
        (AudioFolder, {"seconds": 0.016}, "seconds=0.016 are 128 samples: 129"),
        (AudioFolder, SEVERAL, "label_separator is .*data.labels"),
        (ImageFolder, {"crop_padding": -1}, "crop_padding must be"),
        (ImageFolder, {"mean": [0.5] * 3}, "give mean and std"),
        (ImageFolder, {"image_size": 0}, "image_size must be"),
        (ImageFolder, {"max_per_class": {"test": 0}}, "test must be"),
        (Clinc150, {"max_length": "abc"}, "max_length must be"),
        (Clinc150, {"vocab_size": 2}, "vocab_size must be"),
        (Clinc150, {"split_seed": 3}, "leave data.split_seed out"),
        (TextFile, OFFICIAL | {"split_seed": 3}, "leave data.split_seed out"),
        (TextFile, {"validation_path": "b.csv"}, "give test_path with validation_path"),
    ],
)
def test_an_argument_out_of_range_is_refused_by_its_name_before_reading(module, arguments, name):
    with pytest.raises((ValueError, TypeError), match=name):
        module(**(SETTINGS[module] | arguments)).setup()


@pytest.mark.parametrize("module", [Digits, ImageFolder, TextFile])
def test_a_split_depends_on_its_own_seed_and_on_no_other(tmp_path, module):
    if module is ImageFolder:
        write_images(tmp_path / "set", {"cat": 20, "dog": 30})
    if module is TextFile:
        write_table(tmp_path / "set.csv", {"a": 50, "b": 50})

    def drawn(own: int, other: int) -> list[Any]:
        seed_everything(other, verbose=False)
        data = module(**SETTINGS[module], data_dir=tmp_path, split_seed=own)
        data.setup()
        split = data.splits["test"]
        return [split.targets.tolist(), [torch.as_tensor(row).tolist() for row in split.inputs]]

    assert drawn(0, 1) == drawn(0, 2) != drawn(1, 1)


def test_digits_are_split_disjoint_complete_and_stratified_and_a_batch_is_images_in_the_unit_interval():
    data = Digits(batch_size=16)
    data.setup()
    assert [len(data.splits[name]) for name in ("train", "validation", "test")] == [1257, 180, 360]
    images = torch.cat([split.inputs.flatten(1) for split in data.splits.values()])
    assert len(images.unique(dim=0)) == len(images)
    for split in data.splits.values():
        shares = split.targets.bincount(minlength=10) / len(split)
        assert 0.08 < shares.min() <= shares.max() < 0.12
    images, targets = next(iter(data.train_dataloader()))
    assert (images.shape, images.dtype) == ((16, 1, 8, 8), torch.float32)
    assert targets.dtype == torch.int64
    assert 0.0 <= images.min() < images.max() <= 1.0


@pytest.mark.parametrize(
    ("kind", "targets", "of_first", "of_all"),
    [
        ("multiclass", torch.tensor([2, 0, 2, 2]), [1, 0, 1], [1, 0, 3]),
        (
            "token",
            [torch.tensor([-100, 2, 0]), torch.tensor([2, -100]), torch.tensor([2])],
            [1, 0, 2],
            [1, 0, 3],
        ),
        ("multilabel", torch.tensor([[1, 0, 1], [0, 0, 1], [0, 0, 1]]), [1, 0, 2], [1, 0, 3]),
    ],
)
def test_the_counts_are_those_of_the_targets_that_training_sees(kind, targets, of_first, of_all):
    class InMemory(BenchmarkDataModule):
        task = kind
        input_spec = property(lambda self: {})

        def load_splits(self) -> dict[str, LabelledDataset]:
            self.class_names = ["a", "b", "c"]
            return {
                split: LabelledDataset(range(len(targets)), targets)
                for split in ("train", "validation", "test")
            }

    for first, expected in ((2, of_first), (None, of_all)):
        data = InMemory(batch_size=2, first=first)
        data.setup()
        assert data.class_counts.tolist() == expected


def test_the_app_gives_a_loss_the_counts_of_its_data(composed):
    config = composed(
        "experiment=digits", "method=logit_adjusted", "method.tau=2.0", "data.first=300"
    )
    data = read_data(config)
    logits, target = random_logits(8, 10), torch.arange(8)
    expected = logit_adjusted_loss(logits, target, class_counts=data.class_counts, tau=2.0)
    assert torch.equal(made_module(config, data).criterion(logits, target), expected)


def test_the_first_samples_alone_can_be_trained_on(tmp_path):
    path = write_table(tmp_path / "set.csv", {"a": 40, "b": 40})

    def read(**conditions: int) -> SimpleNamespace:
        data = TextFile(path, **TEXT, **conditions)
        with collected_messages() as messages:
            data.setup()
        splits = {
            split: [[*map(torch.Tensor.tolist, row)] for row in rows]
            for split, rows in data.splits.items()
        }
        return SimpleNamespace(
            **splits, messages=messages, names=data.example_names("train"), of=data.class_names
        )

    whole, first, one, few = read(), read(first=9), read(first=1), read(first=30, shots=5)
    assert first.train == whole.train[:9]
    assert first.test == whole.test
    (lost,) = {*whole.of} - {whole.of[whole.train[0][1]]}
    assert re.search(rf"less than a tenth of the largest .*: 1 of 2, e.g. {lost}", one.messages[0])
    assert [target for _, target in few.train].count(0) == len(few.train) - 5 == 5
    assert {*few.names} <= {*whole.names[:30]}
