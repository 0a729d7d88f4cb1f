"""CIFAR: its archives from a local server, unpacked once."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest
import torch
from harness.data_settings import IMAGES
from torchvision import datasets

from as_lightning.benchmark.data.image.cifar import CIFAR10, CIFAR100

UNCHANGED = {
    "crop_padding": 0,
    "horizontal_flip": False,
    "mean": [0.0] * 3,
    "std": [1 / 255] * 3,
}  # batches hold the bytes' own values


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def sizes(data) -> dict[str, int]:
    return {split: len(dataset) for split, dataset in data.splits.items()}


def images(data, split: str) -> set[bytes]:
    """The images of a split, as values that can be compared and put in a set."""
    return {bytes(image.numpy().tobytes()) for image in data.splits[split].inputs}


def small_cifar(module: type[CIFAR10], server, *, leave_out: str | None = None, below: str = "") -> type[CIFAR10]:
    """A module of the same layout as ``module``, 2 classes and 20 images per file, whose archive the server has."""
    published = module.published
    label_key, names_key = (
        ("fine_labels", "fine_label_names") if published is datasets.CIFAR100 else ("labels", "label_names")
    )
    files = {}
    for seed, (name, _) in enumerate([*published.train_list, *published.test_list]):
        generator = np.random.default_rng(seed)
        pixels = generator.integers(0, 256, (20, 3072), dtype=np.uint8)
        files[name] = pickle.dumps({"data": pixels, label_key: [index % 2 for index in range(20)]})
    meta = published.meta["filename"]
    files[meta] = pickle.dumps({names_key: ["cat", "dog"]})
    with tarfile.open(server.home / published.filename, "w:gz") as archive:
        for name, content in files.items():
            if name != leave_out:
                member = tarfile.TarInfo(f"{published.base_folder}/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    attributes = {
        "url": f"{server.url}/{below}{published.filename}",
        "tgz_md5": md5((server.home / published.filename).read_bytes()),
        "train_list": [[name, md5(files[name])] for name, _ in published.train_list],
        "test_list": [[name, md5(files[name])] for name, _ in published.test_list],
        "meta": {**published.meta, "md5": md5(files[meta])},
    }
    return type("Small", (module,), {"published": type("Published", (published,), attributes)})


@pytest.mark.parametrize(("module", "train_files"), [(CIFAR10, 5), (CIFAR100, 1)])
def test_cifar_is_downloaded_once_and_split_by_class(server, tmp_path, module, train_files):
    small = small_cifar(module, server)
    for _ in range(2):
        data = small(**IMAGES, data_dir=tmp_path / "data", validation_size=6)
        data.prepare_data()
        data.setup()
    assert server.requests == [f"/{module.published.filename}"]
    published = data.published
    assert {path.name for path in (tmp_path / "data").iterdir()} == {published.filename, published.base_folder}
    assert sizes(data) == {"train": 20 * train_files - 6, "validation": 6, "test": 20}
    assert data.splits["validation"].targets.bincount().tolist() == [3, 3]
    assert data.class_names == ["cat", "dog"]
    assert len(images(data, "train") | images(data, "validation") | images(data, "test")) == 20 * train_files + 20


def test_cifar_images_are_the_bytes_of_its_files_in_order(server, tmp_path):
    data = small_cifar(CIFAR10, server)(**IMAGES, data_dir=tmp_path / "data", validation_size=6, **UNCHANGED)
    data.setup()
    rows = np.random.default_rng(5).integers(0, 256, (20, 3072), dtype=np.uint8)  # the sixth file is the test's
    batch, targets = next(iter(data.test_dataloader()))
    torch.testing.assert_close(batch.flatten(1), torch.from_numpy(rows).float(), atol=1e-3, rtol=0)
    assert targets.tolist() == [index % 2 for index in range(20)]


def test_cifars_validation_depends_on_the_split_seed_alone(server, tmp_path):
    small = small_cifar(CIFAR10, server)

    def validation(split_seed: int, seed: int) -> set[bytes]:
        torch.manual_seed(seed)
        data = small(**IMAGES, data_dir=tmp_path / "data", validation_size=10, split_seed=split_seed)
        data.setup()
        return images(data, "validation")

    assert validation(0, 1) == validation(0, 2)
    assert validation(0, 1) != validation(1, 1)


def test_a_cifar_download_that_breaks_off_leaves_nothing_and_can_be_tried_again(server, tmp_path):
    with pytest.raises((RuntimeError, ValueError)):
        small_cifar(CIFAR10, server, below="cut/")(**IMAGES, data_dir=tmp_path / "data").prepare_data()
    assert list((tmp_path / "data").iterdir()) == []
    small_cifar(CIFAR10, server)(**IMAGES, data_dir=tmp_path / "data").prepare_data()
    assert (tmp_path / "data" / CIFAR10.published.base_folder).is_dir()


def test_a_cifar_archive_that_is_damaged_is_refused_by_its_md5_and_kept(server, tmp_path):
    small = small_cifar(CIFAR10, server)
    path = small(**IMAGES, data_dir=tmp_path / "data").fetch_archive()
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    with pytest.raises(ValueError, match=rf"wrong checksum: expected MD5 {md5(content)}, got {md5(content[:-10])}"):
        small(**IMAGES, data_dir=tmp_path / "data").setup()
    assert path.read_bytes() == content[:-10]


def test_a_cifar_download_with_another_md5_leaves_nothing(server, tmp_path):
    small = small_cifar(CIFAR10, server)
    with (server.home / CIFAR10.published.filename).open("ab") as file:
        file.write(b"more")
    with pytest.raises(ValueError, match=r"hash of downloaded file .* does not match"):
        small(**IMAGES, data_dir=tmp_path / "data").prepare_data()
    assert list((tmp_path / "data").iterdir()) == []


def test_a_cifar_archive_without_one_of_its_files_is_refused_by_name(server, tmp_path):
    small = small_cifar(CIFAR10, server, leave_out="data_batch_3")
    with pytest.raises(ValueError, match=r"cifar-10-python.tar.gz: the archive does not hold what it should"):
        small(**IMAGES, data_dir=tmp_path / "data").setup()


def test_cifar_has_the_address_and_checksum_that_its_home_publishes():
    assert CIFAR10.published.url == "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    assert CIFAR10.published.tgz_md5 == "c58f30108f718f92721af3b95e74349a"
    assert CIFAR100.published.url == "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    assert CIFAR100.published.tgz_md5 == "eb9058c3a382ffc7106e4002c42a8d85"


@pytest.mark.parametrize("validation_size", [1, 99])
def test_a_validation_size_that_leaves_a_split_without_a_class_is_refused(server, tmp_path, validation_size):
    with pytest.raises(ValueError, match=f"validation_size must be between 2 and 98, .* got {validation_size}"):
        small_cifar(CIFAR10, server)(**IMAGES, data_dir=tmp_path / "data", validation_size=validation_size).setup()


def unpacked(folder):
    """When each unpacked file was written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / CIFAR10.published.base_folder).iterdir()}


def test_cifar_is_unpacked_once_and_a_damaged_file_is_mended_from_the_archive(server, tmp_path):
    small = small_cifar(CIFAR10, server)
    small(**IMAGES, data_dir=tmp_path / "data", validation_size=6).setup()
    written = unpacked(tmp_path / "data")
    assert len(written) == 7
    data = small(**IMAGES, data_dir=tmp_path / "data", validation_size=6)
    data.setup()
    assert unpacked(tmp_path / "data") == written
    damaged = tmp_path / "data" / CIFAR10.published.base_folder / "data_batch_2"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:100])
    small(**IMAGES, data_dir=tmp_path / "data", validation_size=6).setup()
    assert damaged.read_bytes() == whole


def test_unpacked_cifar_files_are_read_without_the_archive(server, tmp_path):
    small = small_cifar(CIFAR10, server)
    small(**IMAGES, data_dir=tmp_path / "data").prepare_data()
    (tmp_path / "data" / CIFAR10.published.filename).unlink()
    data = small(**IMAGES, data_dir=tmp_path / "data", validation_size=6)
    data.setup()
    assert sizes(data)["train"] == 94
    assert len(server.requests) == 1


def test_an_archive_in_a_folder_that_cannot_be_written_to_is_read_all_the_same(server, tmp_path, monkeypatch):
    small = small_cifar(CIFAR10, server)
    small(**IMAGES, data_dir=tmp_path / "data", validation_size=6).fetch_archive()
    monkeypatch.setattr("os.access", lambda path, mode: False)
    data = small(**IMAGES, data_dir=tmp_path / "data", validation_size=6)
    data.setup()
    assert sizes(data)["train"] == 94
    assert [path.name for path in (tmp_path / "data").iterdir()] == [CIFAR10.published.filename]
