"""Images: CIFAR's archives from a local server, folders of every layout, and what is wrong with files."""

from __future__ import annotations

import hashlib
import io
import pickle
import shutil
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets

import as_lightning.benchmark.data.image as image_module
from as_lightning.benchmark.data.image import (
    CIFAR10,
    CIFAR100,
    ImageFiles,
    ImageFolder,
    decode_image,
    mean_and_std,
    pixel_sums,
)

PLAIN = {"crop_padding": 0, "horizontal_flip": False}
UNCHANGED = {**PLAIN, "mean": [0.0] * 3, "std": [1 / 255] * 3}  # batches hold the bytes' own values


def encoded(pixels: np.ndarray, ending: str = "png", **options) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, ending, **options)
    return buffer.getvalue()


def write_images(root: Path, counts: dict[str, int], size: int = 6, seed: int = 0) -> dict[str, np.ndarray]:
    """Write so many random PNG images into each folder; returns the pixels by name."""
    generator = np.random.default_rng(seed)
    written = {}
    for folder, count in counts.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            pixels = generator.integers(0, 256, (size, size, 3), dtype=np.uint8)
            name = f"{folder}/{index:03d}.png"
            (root / name).write_bytes(encoded(pixels))
            written[name] = pixels
    return written


SPLIT_COUNTS = {"train/cat": 20, "train/dog": 10, "test/cat": 4, "test/dog": 3}
FLAT_COUNTS = {"cat": 20, "dog": 10, "emu": 30}


@pytest.fixture
def split_folder(tmp_path: Path) -> Path:
    write_images(tmp_path / "pets", SPLIT_COUNTS)
    return tmp_path / "pets"


@pytest.fixture
def flat_folder(tmp_path: Path) -> Path:
    write_images(tmp_path / "animals", FLAT_COUNTS)
    return tmp_path / "animals"


def ready(path: Path, **arguments) -> ImageFolder:
    data = ImageFolder(path, **arguments)
    data.prepare_data()
    data.setup()
    return data


def sizes(data) -> dict[str, int]:
    return {split: len(dataset) for split, dataset in data.splits.items()}


def images(data, split: str) -> set[bytes]:
    """The images of a split, as values that can be compared and put in a set."""
    return {bytes(image.numpy().tobytes()) for image in data.splits[split].inputs}


def labelled(data, split: str) -> dict[bytes, str]:
    dataset = data.splits[split]
    pairs = zip(dataset.inputs, dataset.targets, strict=True)
    return {image.numpy().tobytes(): data.class_names[target] for image, target in pairs}


# one image


def test_decoding_gives_the_pixels_of_a_png_channels_first():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    image = decode_image(encoded(pixels))
    assert image.dtype == torch.uint8
    assert np.array_equal(image.numpy(), pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("kind", ["grey", "16 bits", "alpha", "palette"])
def test_every_kind_of_pixels_becomes_rgb(kind):
    grey = np.random.default_rng(0).integers(0, 256, (5, 7), dtype=np.uint8)
    rgb = np.repeat(grey[..., None], 3, axis=2)
    content = {
        "grey": lambda: encoded(grey),
        "16 bits": lambda: encoded(grey.astype(np.uint16) * 256 + 99),
        "alpha": lambda: encoded(np.concatenate([rgb, grey[..., None]], axis=2)),
        "palette": lambda: _palette(grey),
    }[kind]()
    assert np.array_equal(decode_image(content).numpy(), rgb.transpose(2, 0, 1))


def _palette(grey: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(grey).convert("P").save(buffer, "png")
    return buffer.getvalue()


def test_a_photograph_taken_upright_is_decoded_upright():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # stored on its side: turn it clockwise by 90 degrees
    turned = np.rot90(pixels, k=-1)
    assert np.array_equal(decode_image(encoded(pixels, exif=exif)).numpy(), turned.transpose(2, 0, 1))


@pytest.mark.parametrize("upright", [False, True])
def test_scaling_keeps_the_aspect_ratio_and_the_middle(upright):
    pixels = np.zeros((10, 30, 3), dtype=np.uint8)
    # the middle 10 columns are kept; scaled to half, two more on both sides have a part in them
    for channel, columns in enumerate((slice(0, 8), slice(8, 22), slice(22, 30))):
        pixels[:, columns, channel] = 200
    image = decode_image(encoded(pixels.swapaxes(0, 1) if upright else pixels), image_size=5)
    assert image.shape == (3, 5, 5)
    assert image.flatten(1).unique(dim=1).squeeze().tolist() == [0, 200, 0]


@pytest.mark.parametrize("ending", ["jpeg", "png", "bmp", "webp", "tiff"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9])
def test_an_image_that_is_cut_short_is_refused(ending, share):
    content = encoded(np.random.default_rng(0).integers(0, 256, (50, 50, 3), dtype=np.uint8), ending)
    assert decode_image(content).shape == (3, 50, 50)
    with pytest.raises(ValueError, match=r"\w"):
        decode_image(content[: round(share * len(content))])


def test_pixels_of_an_unknown_range_are_refused():
    with pytest.raises(ValueError, match="pixels of mode F, whose range is not known"):
        decode_image(encoded(np.ones((3, 3), dtype=np.float32), "tiff"))


def test_mean_and_deviation_are_those_of_the_pixels_in_the_unit_interval():
    pixels = torch.randint(0, 256, (50, 3, 6, 5), dtype=torch.uint8)
    mean, std = mean_and_std(pixel_sums(pixels))
    values = pixels.double().movedim(1, 0).flatten(1) / 255
    torch.testing.assert_close(torch.tensor(mean, dtype=torch.float64), values.mean(1))
    torch.testing.assert_close(torch.tensor(std, dtype=torch.float64), values.std(1, correction=0))


def test_a_constant_channel_is_centred_and_not_divided_by_zero():
    pixels = torch.randint(0, 256, (50, 3, 6, 5), dtype=torch.uint8)
    pixels[:, 1] = 51
    mean, std = mean_and_std(pixel_sums(pixels))
    assert (mean[1], std[1]) == (0.2, 1.0)
    assert 0.2 < std[0] < 0.4


# what the loaders give


def test_a_batch_is_float_images_and_class_indices(split_folder):
    data = ready(split_folder, batch_size=8)
    batch, targets = next(iter(data.train_dataloader()))
    assert (batch.shape, batch.dtype, targets.shape, targets.dtype) == ((8, 3, 6, 6), torch.float32, (8,), torch.int64)
    assert data.input_spec == {"in_channels": 3}
    assert data.class_names == ["cat", "dog"]


@pytest.mark.parametrize("cache", [True, False])
def test_the_training_split_has_mean_zero_and_deviation_one(split_folder, cache):
    data = ready(split_folder, cache=cache, **PLAIN)
    batch = torch.cat([batch for batch, _ in data.train_dataloader()]).double()
    torch.testing.assert_close(batch.mean((0, 2, 3)), torch.zeros(3, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(batch.std((0, 2, 3), correction=0), torch.ones(3, dtype=torch.float64))


def test_given_mean_and_deviation_are_those_used(split_folder):
    data = ready(split_folder, mean=[0.1, 0.2, 0.3], std=[0.5, 0.25, 2.0])
    raw = data.splits["test"].inputs[0] / 255
    expected = (raw - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor([0.5, 0.25, 2.0]).view(3, 1, 1)
    torch.testing.assert_close(data.splits["test"][0][0], expected)


def test_training_images_are_shifted_and_mirrored_within_the_padding(split_folder):
    data = ready(split_folder, **{**UNCHANGED, "crop_padding": 2, "horizontal_flip": True})
    original = data.splits["train"].inputs[0].float()
    padded = torch.nn.functional.pad(original, (2, 2, 2, 2))
    views = [padded[:, y : y + 6, x : x + 6] for y in range(5) for x in range(5)]
    views += [view.flip(-1) for view in views]
    seen = set()
    for _ in range(60):
        taken = data.splits["train"][0][0]
        (match,) = [index for index, view in enumerate(views) if torch.allclose(taken, view, atol=1e-3)]
        seen.add(match)
    assert len(seen) > 20
    assert {index // 25 for index in seen} == {0, 1}


@pytest.mark.parametrize("split", ["validation", "test"])
def test_only_training_images_are_augmented(split_folder, split):
    data = ready(split_folder, **{**UNCHANGED, "crop_padding": 2, "horizontal_flip": True})
    for index, image in enumerate(data.splits[split].inputs):
        torch.testing.assert_close(data.splits[split][index][0], image.float(), atol=1e-3, rtol=0)


def test_corrupted_training_images_are_given_without_augmentation(split_folder):
    data = ready(split_folder, label_noise=0.5, **{**UNCHANGED, "crop_padding": 2, "horizontal_flip": True})
    known = images(data, "train")
    for batch, targets in data.corrupted_dataloader():
        assert (targets[:, 0] != targets[:, 1]).all()
        assert {image.round().to(torch.uint8).numpy().tobytes() for image in batch} <= known


@pytest.mark.parametrize("cache", [True, False])
def test_loader_processes_give_what_the_main_process_gives(split_folder, cache):
    alone = list(ready(split_folder, cache=cache, batch_size=3).test_dataloader())
    spread = list(ready(split_folder, cache=cache, batch_size=3, num_workers=2).test_dataloader())
    assert len(alone) == 3
    for (images_a, targets_a), (images_b, targets_b) in zip(alone, spread, strict=True):
        assert torch.equal(images_a, images_b)
        assert torch.equal(targets_a, targets_b)


def test_small_sets_are_kept_decoded_and_others_decoded_when_taken(split_folder, monkeypatch):
    kept = ready(split_folder, **PLAIN)
    assert isinstance(kept.splits["train"].inputs, torch.Tensor)
    monkeypatch.setattr(image_module, "CACHE_LIMIT", 36 * 3 * 37)  # the bytes of the 37 images: not below the limit
    taken = ready(split_folder, **PLAIN)
    assert isinstance(taken.splits["train"].inputs, ImageFiles)
    for split in kept.splits:
        assert len(kept.splits[split]) == len(taken.splits[split])
        for (image_a, target_a), (image_b, target_b) in zip(kept.splits[split], taken.splits[split], strict=True):
            assert torch.equal(image_a, image_b)
            assert target_a == target_b
    monkeypatch.setattr(image_module, "CACHE_LIMIT", 36 * 3 * 37 + 1)
    assert isinstance(ready(split_folder).splits["train"].inputs, torch.Tensor)


# layouts and splits


def test_train_and_test_folders_are_those_splits_and_a_tenth_of_each_class_is_validation(split_folder):
    data = ready(split_folder)
    assert sizes(data) == {"train": 27, "validation": 3, "test": 7}
    assert data.splits["validation"].targets.bincount().tolist() == [2, 1]
    assert len(images(data, "train") | images(data, "validation") | images(data, "test")) == 37


@pytest.mark.parametrize("name", ["validation", "val"])
def test_a_validation_folder_is_the_validation_split(split_folder, name):
    write_images(split_folder, {f"{name}/cat": 5}, seed=1)
    assert sizes(ready(split_folder)) == {"train": 30, "validation": 5, "test": 7}


def test_each_image_has_the_class_of_its_folder(tmp_path):
    written = write_images(tmp_path / "pets", {**SPLIT_COUNTS, "train/dog/puppies": 3})
    data = ready(tmp_path / "pets", image_size=None)
    found = {**labelled(data, "train"), **labelled(data, "validation"), **labelled(data, "test")}
    expected = {pixels.transpose(2, 0, 1).tobytes(): name.split("/")[1] for name, pixels in written.items()}
    assert found == expected


def test_class_folders_alone_are_split_80_10_10_by_class(flat_folder):
    data = ready(flat_folder)
    counts = {split: dataset.targets.bincount().tolist() for split, dataset in data.splits.items()}
    assert counts == {"train": [16, 8, 24], "validation": [2, 1, 3], "test": [2, 1, 3]}
    assert len(images(data, "train") | images(data, "validation") | images(data, "test")) == 60


def test_class_folders_may_be_called_train_without_being_a_split(tmp_path):
    write_images(tmp_path / "vehicles", {"bus": 10, "car": 10, "train": 10})
    assert ready(tmp_path / "vehicles").class_names == ["bus", "car", "train"]


@pytest.mark.parametrize("counts", [SPLIT_COUNTS, FLAT_COUNTS])
@pytest.mark.parametrize("ending", ["tar.gz", "zip"])
def test_an_archive_with_or_without_a_folder_around_reads_as_the_folder(tmp_path, counts, ending):
    write_images(tmp_path / "around" / "set", counts)
    folder = ready(tmp_path / "around" / "set")
    kind = {"tar.gz": "gztar", "zip": "zip"}[ending]
    for name, base in (("bare", tmp_path / "around" / "set"), ("wrapped", tmp_path / "around")):
        shutil.make_archive(str(tmp_path / name), kind, base)
        archive = ready(Path(f"{name}.{ending}"), data_dir=tmp_path)
        for split in folder.splits:
            assert labelled(archive, split) == labelled(folder, split)


def test_splits_depend_on_their_own_seed_and_on_no_other(flat_folder):
    def taken(split_seed: int, seed: int, **arguments) -> list[list[int]]:
        torch.manual_seed(seed)
        np.random.seed(seed)
        data = ready(flat_folder, split_seed=split_seed, **arguments)
        return [torch.stack(list(data.splits[split].inputs)).tolist() for split in data.splits]

    assert taken(0, 1) == taken(0, 2, cache=False, batch_size=7)
    assert all(one != other for one, other in zip(taken(0, 1), taken(1, 1), strict=True))


def test_a_new_class_leaves_the_split_of_the_others_as_it_was(flat_folder):
    before = images(ready(flat_folder), "test")
    write_images(flat_folder, {"ape": 10}, seed=1)
    after = images(ready(flat_folder), "test")
    assert before < after
    assert len(after) == len(before) + 1


def test_max_per_class_limits_every_split_and_takes_part_of_what_a_larger_one_takes(flat_folder):
    small, large, whole = (ready(flat_folder, max_per_class=limit) for limit in (2, 9, None))
    assert small.splits["train"].targets.bincount().tolist() == [2, 2, 2]
    assert large.splits["train"].targets.bincount().tolist() == [9, 8, 9]
    assert small.splits["test"].targets.bincount().tolist() == [2, 1, 2]
    for split in whole.splits:
        assert images(small, split) <= images(large, split) <= images(whole, split)


def test_max_per_class_may_differ_between_splits(flat_folder):
    data = ready(flat_folder, max_per_class={"train": 5, "test": 1, "validation": None})
    assert sizes(data) == {"train": 15, "validation": 6, "test": 3}


def test_classes_are_mixed_in_the_order_of_a_split(flat_folder):
    targets = ready(flat_folder).splits["validation"].targets.tolist()
    assert targets != sorted(targets)


# what is wrong with files and folders


def test_damaged_files_are_counted_and_the_first_five_named_before_training(split_folder):
    whole = (split_folder / "train/cat/001.png").read_bytes()
    (split_folder / "test/dog/000.png").write_bytes(whole[: len(whole) // 2])
    for index in range(2, 8):
        (split_folder / f"train/cat/{index:03d}.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"^7 of 37 images cannot be decoded: ") as raised:
        ready(split_folder)
    message = str(raised.value)
    assert f"{split_folder}/test/dog/000.png: image file is truncated" in message
    assert f"{split_folder}/train/cat/005.png: not an image" in message
    assert message.count(".png") == 5
    assert message.endswith("; ...")


def test_a_split_of_damaged_files_alone_is_refused_in_the_same_way(split_folder):
    for file in (split_folder / "train").rglob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(ValueError, match=r"^30 of 37 images cannot be decoded: .*train/cat/000.png: not an image"):
        ready(split_folder)


def test_a_damaged_image_in_an_archive_is_named_with_the_archive(split_folder):
    (split_folder / "train/cat/003.png").write_bytes(b"no image")
    archive = shutil.make_archive(str(split_folder), "zip", split_folder)
    with pytest.raises(ValueError, match=r"1 of 37 images .*pets.zip/train/cat/003.png: not an image$"):
        ready(Path(archive))


def test_an_image_of_another_size_is_named_unless_a_size_is_set(split_folder):
    write_images(split_folder, {"train/other": 3}, size=9)
    with pytest.raises(ValueError, match=r"one size, .*train/other/000.png is 9x9, others are 6x6: set image_size"):
        ready(split_folder)
    assert ready(split_folder, image_size=4).splits["train"].inputs.shape[1:] == (3, 4, 4)


def test_an_empty_class_folder_of_the_training_split_is_named(split_folder, flat_folder):
    for folder, label in ((split_folder, "train/cow"), (flat_folder, "cow")):
        (folder / label).mkdir()
        with pytest.raises(ValueError, match=f"{label}: the class folder holds no image"):
            ready(folder)


def test_a_class_folder_of_other_files_is_named_in_an_archive_too(split_folder):
    (split_folder / "train/cow").mkdir()
    (split_folder / "train/cow/readme.txt").write_text("cows follow")
    archive = shutil.make_archive(str(split_folder), "gztar", split_folder)
    with pytest.raises(ValueError, match=r"pets.tar.gz/train/cow: the class folder holds no image"):
        ready(Path(archive))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_class_that_the_training_split_lacks_is_named(split_folder, split):
    write_images(split_folder, {f"{split}/cow": 2})
    with pytest.raises(ValueError, match=f"the {split} split has classes that the train split lacks: cow"):
        ready(split_folder)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"train/cat": 3, "train/dog": 3}, r"set: expected the folders .*, found no images in test"),
        ({"train/cat": 3, "val/cat": 3}, r"set: expected the folders .*, found no images in test"),
        ({"test/cat": 3, "val/cat": 3}, r"set: expected the folders .*, found no images in train"),
        ({**SPLIT_COUNTS, "val/cat": 1, "validation/cat": 1}, r"found both validation and val"),
        ({**SPLIT_COUNTS, "extra/cat": 1}, r"set: expected the folders .*, found extra too"),
        ({**SPLIT_COUNTS, "train": 1}, r"set/train/000.png lies in no class folder"),
        ({**FLAT_COUNTS, ".": 1}, r"set/000.png lies in no class folder"),
        ({"cat": 20}, r"expected a folder for each class, found one: 'cat'"),
        ({"cat": 20, "dog": 2}, r"class 'dog' has 2 images, too few for the splits train, validation, test"),
        ({**SPLIT_COUNTS, "train/dog": 1}, r"class 'dog' has 1 images, too few for the splits train, validation"),
    ],
)
def test_folders_of_another_layout_are_refused_with_what_is_wrong(tmp_path, counts, message):
    write_images(tmp_path / "set", counts)
    with pytest.raises(ValueError, match=message):
        ready(tmp_path / "set")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"crop_padding": -1}, "crop_padding must be at least 0"),
        ({"mean": [0.5] * 3}, "give mean and std, or neither"),
        ({"mean": [0.5], "std": [1.0]}, "mean must have 3 numbers"),
        ({"mean": [0.5] * 3, "std": [1.0, 1.0, 0.0]}, "std must be positive"),
        ({"image_size": 0}, "image_size must be at least 1"),
        ({"validation_share": 0.0}, "validation_share must be a share"),
        ({"validation_share": 1.0}, "validation_share must be a share"),
        ({"cache": "always"}, "cache must be True, False or 'auto'"),
        ({"max_per_class": 0}, "max_per_class must be at least 1"),
        ({"max_per_class": {"test": 0}}, "max_per_class must be at least 1"),
        ({"max_per_class": {"val": 3}}, "max_per_class has the splits .* got 'val'"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        ImageFolder("set", **arguments)


def test_a_path_with_nothing_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing does not exist"):
        ready(Path("missing"), data_dir=tmp_path)


def test_cifar10_as_jpeg_files_is_read_from_its_archive(real_data):
    data = ready(
        Path("cifar10_jpeg.tar.gz"), data_dir=real_data, max_per_class={"train": 20, "test": 5, "validation": 3}
    )
    assert sizes(data) == {"train": 200, "validation": 30, "test": 50}
    assert data.class_names[:3] == ["airplane", "automobile", "bird"]
    assert data.num_classes == 10
    assert data.splits["train"].inputs.shape == (200, 3, 32, 32)
    # of the whole set they are 0.49, 0.48, 0.45 and 0.25, 0.24, 0.26
    assert data.mean == pytest.approx([0.49, 0.48, 0.45], abs=0.04)
    assert data.std == pytest.approx([0.25, 0.24, 0.26], abs=0.03)


# CIFAR


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; what is asked for below ``cut/`` breaks off half-way."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.requests.append(self.path)
        if not self.path.startswith("/cut/"):
            super().do_GET()
            return
        content = (Path(self.directory) / self.path.removeprefix("/cut/")).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])


@pytest.fixture
def server(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(home))) as server:
        server.requests = []
        server.home = home
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        server.url = f"http://127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()
        thread.join()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def small_cifar(module: type[CIFAR10], server, *, leave_out: str | None = None, below: str = "") -> type[CIFAR10]:
    """A module of the same layout as ``module``, 2 classes and 20 images a file, whose archive the server has."""
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
        data = small(data_dir=tmp_path / "data", validation_size=6)
        data.prepare_data()
        data.setup()
    assert server.requests == [f"/{module.published.filename}"]
    assert [path.name for path in (tmp_path / "data").iterdir()] == [module.published.filename]
    assert sizes(data) == {"train": 20 * train_files - 6, "validation": 6, "test": 20}
    assert data.splits["validation"].targets.bincount().tolist() == [3, 3]
    assert data.class_names == ["cat", "dog"]
    assert len(images(data, "train") | images(data, "validation") | images(data, "test")) == 20 * train_files + 20


def test_cifar_images_are_the_bytes_of_its_files_in_order(server, tmp_path):
    data = small_cifar(CIFAR10, server)(data_dir=tmp_path / "data", validation_size=6, **UNCHANGED)
    data.setup()
    rows = np.random.default_rng(5).integers(0, 256, (20, 3072), dtype=np.uint8)  # the sixth file is the test's
    batch, targets = next(iter(data.test_dataloader()))
    torch.testing.assert_close(batch.flatten(1), torch.from_numpy(rows).float(), atol=1e-3, rtol=0)
    assert targets.tolist() == [index % 2 for index in range(20)]


def test_cifars_validation_depends_on_the_split_seed_alone(server, tmp_path):
    small = small_cifar(CIFAR10, server)

    def validation(split_seed: int, seed: int) -> set[bytes]:
        torch.manual_seed(seed)
        data = small(data_dir=tmp_path / "data", validation_size=10, split_seed=split_seed)
        data.setup()
        return images(data, "validation")

    assert validation(0, 1) == validation(0, 2)
    assert validation(0, 1) != validation(1, 1)


def test_a_cifar_download_that_breaks_off_leaves_nothing_and_can_be_tried_again(server, tmp_path):
    with pytest.raises((RuntimeError, ValueError)):
        small_cifar(CIFAR10, server, below="cut/")(data_dir=tmp_path / "data").prepare_data()
    assert list((tmp_path / "data").iterdir()) == []
    small_cifar(CIFAR10, server)(data_dir=tmp_path / "data").prepare_data()
    assert [path.name for path in (tmp_path / "data").iterdir()] == [CIFAR10.published.filename]


def test_a_cifar_archive_that_is_damaged_is_refused_by_its_md5_and_kept(server, tmp_path):
    small = small_cifar(CIFAR10, server)
    path = small(data_dir=tmp_path / "data").fetch_archive()
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    with pytest.raises(ValueError, match=rf"wrong checksum: expected MD5 {md5(content)}, got {md5(content[:-10])}"):
        small(data_dir=tmp_path / "data").setup()
    assert path.read_bytes() == content[:-10]


def test_a_cifar_download_with_another_md5_leaves_nothing(server, tmp_path):
    small = small_cifar(CIFAR10, server)
    with (server.home / CIFAR10.published.filename).open("ab") as file:
        file.write(b"more")
    with pytest.raises(ValueError, match=r"hash of downloaded file .* does not match"):
        small(data_dir=tmp_path / "data").prepare_data()
    assert list((tmp_path / "data").iterdir()) == []


def test_a_cifar_archive_without_one_of_its_files_is_refused_by_name(server, tmp_path):
    small = small_cifar(CIFAR10, server, leave_out="data_batch_3")
    with pytest.raises(ValueError, match=r"cifar-10-python.tar.gz: the archive does not hold what it should"):
        small(data_dir=tmp_path / "data").setup()


@pytest.mark.parametrize("validation_size", [1, 99])
def test_a_validation_size_that_leaves_a_split_without_a_class_is_refused(server, tmp_path, validation_size):
    with pytest.raises(ValueError, match=f"validation_size must be between 2 and 98, .* got {validation_size}"):
        small_cifar(CIFAR10, server)(data_dir=tmp_path / "data", validation_size=validation_size).setup()


def test_cifar_has_the_address_and_checksum_that_its_home_publishes():
    assert CIFAR10.published.url == "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    assert CIFAR10.published.tgz_md5 == "c58f30108f718f92721af3b95e74349a"
    assert CIFAR100.published.url == "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    assert CIFAR100.published.tgz_md5 == "eb9058c3a382ffc7106e4002c42a8d85"
