"""CIFAR: torchvision fetches its archives, here from a local server; what is ours is the split."""

import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest
import torch
from harness.data_settings import IMAGES, UNCHANGED
from torchvision import datasets

from as_lightning.bench.data.image.cifar import CIFAR10, CIFAR100


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def small_cifar(module: type[CIFAR10], server, below: str = "") -> type[CIFAR10]:
    """A module of the same layout as ``module``, 2 classes and 20 images per file, whose archive
    the server has.
    """
    published = module.published
    label_key = "fine_labels" if published is datasets.CIFAR100 else "labels"
    files = {published.meta["filename"]: pickle.dumps({published.meta["key"]: ["cat", "dog"]})}
    for seed, (name, _) in enumerate([*published.train_list, *published.test_list]):
        pixels = np.random.default_rng(seed).integers(0, 256, (20, 3072), dtype=np.uint8)
        files[name] = pickle.dumps({"data": pixels, label_key: [index % 2 for index in range(20)]})
    with tarfile.open(server.home / published.filename, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{published.base_folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    attributes = {
        "url": f"{server.url}/{below}{published.filename}",
        "tgz_md5": md5((server.home / published.filename).read_bytes()),
        "train_list": [[name, md5(files[name])] for name, _ in published.train_list],
        "test_list": [[name, md5(files[name])] for name, _ in published.test_list],
        "meta": {**published.meta, "md5": md5(files[published.meta["filename"]])},
    }
    return type("Small", (module,), {"published": type("Published", (published,), attributes)})


@pytest.mark.parametrize(("module", "train_files"), [(CIFAR10, 5), (CIFAR100, 1)])
def test_cifar_is_downloaded_once_split_by_class_and_its_images_are_the_bytes_of_its_files(
    server, tmp_path, module, train_files
):
    small = small_cifar(module, server)
    for _ in range(2):
        data = small(**IMAGES, data_dir=tmp_path / "data", validation_size=6, **UNCHANGED)
        data.prepare_data()
        data.setup()
    assert (
        server.requests.count(f"/{module.published.filename}") == len(server.requests) <= 2
    )  # HEAD and GET
    assert [len(data.splits[split]) for split in ("train", "validation", "test")] == [
        20 * train_files - 6,
        6,
        20,
    ]
    assert data.splits["validation"].targets.bincount().tolist() == [3, 3]
    assert data.class_names == ["cat", "dog"]
    images = torch.cat([split.inputs.flatten(1) for split in data.splits.values()])
    assert len(images.unique(dim=0)) == 20 * train_files + 20
    rows = np.random.default_rng(train_files).integers(
        0, 256, (20, 3072), dtype=np.uint8
    )  # the last file
    batch, targets = next(iter(data.test_dataloader()))
    torch.testing.assert_close(batch.flatten(1), torch.from_numpy(rows).float(), atol=1e-3, rtol=0)
    assert targets.tolist() == [index % 2 for index in range(20)]


def test_a_download_that_breaks_off_says_where_to_put_the_archive_and_can_be_tried_again(
    server, tmp_path
):
    with pytest.raises(
        RuntimeError, match=r"cifar-10-python.tar.gz could not be downloaded .* AS_LIGHTNING_DATA"
    ):
        small_cifar(CIFAR10, server, below="cut/")(
            **IMAGES, data_dir=tmp_path / "data"
        ).prepare_data()
    small_cifar(CIFAR10, server)(**IMAGES, data_dir=tmp_path / "data", validation_size=6).setup()
