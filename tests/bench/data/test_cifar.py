"""CIFAR in torchvision's format: what is ours is the split."""

import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest
import torch
from harness.data_settings import IMAGES, UNCHANGED
from torchvision import datasets

from as_lightning.bench.data.cifar import CIFAR


def small_cifar(published: type, server) -> type:
    """Return torchvision's class for an archive of its layout on the server, with 20 images of 2
    classes a file.
    """
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
    md5 = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    packed = (server.home / published.filename).read_bytes()
    attributes = {
        "url": f"{server.url}/{published.filename}",
        "tgz_md5": hashlib.md5(packed).hexdigest(),
        "train_list": [[name, md5[name]] for name, _ in published.train_list],
        "test_list": [[name, md5[name]] for name, _ in published.test_list],
        "meta": {**published.meta, "md5": md5[published.meta["filename"]]},
    }
    return type("Published", (published,), attributes)


@pytest.mark.parametrize(("classes", "train_files"), [(10, 5), (100, 1)])
def test_cifar_is_split_by_class_as_published(server, tmp_path, monkeypatch, classes, train_files):
    name = f"CIFAR{classes}"
    monkeypatch.setattr(datasets, name, small_cifar(getattr(datasets, name), server))
    data = CIFAR(classes, data_dir=tmp_path, validation_share=0.3, **IMAGES, **UNCHANGED)
    data.prepare_data()
    data.setup()
    sizes = [14 * train_files, 6 * train_files, 20]
    assert [len(data.splits[split]) for split in ("train", "validation", "test")] == sizes
    assert data.splits["validation"].targets.bincount().tolist() == [3 * train_files] * 2
    assert data.class_names == ["cat", "dog"]
    images = torch.cat([split.inputs.flatten(1) for split in data.splits.values()])
    assert len(images.unique(dim=0)) == 20 * train_files + 20
    last_file = np.random.default_rng(train_files).integers(0, 256, (20, 3072), dtype=np.uint8)
    batch, targets = next(iter(data.test_dataloader()))
    expected = torch.from_numpy(last_file).float()
    torch.testing.assert_close(batch.flatten(1), expected, atol=1e-3, rtol=0)
    assert targets.tolist() == [index % 2 for index in range(20)]
