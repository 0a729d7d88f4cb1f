"""A user's own images: which are found, how they are decoded, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness.data_settings import IMAGES, PLAIN, UNCHANGED
from harness.made_files import encoded, write_images
from PIL import Image

from as_lightning.benchmark.compare.configured import data_digest
from as_lightning.benchmark.data import decoded_files
from as_lightning.benchmark.data.image.image_folder import ImageFolder, decode_image

SPLIT_COUNTS = {"train/cat": 20, "train/dog": 10, "test/cat": 4, "test/dog": 3}


@pytest.fixture
def split_folder(tmp_path: Path) -> Path:
    write_images(tmp_path / "pets", SPLIT_COUNTS)
    return tmp_path / "pets"


def ready(path: Path, **arguments) -> ImageFolder:
    data = ImageFolder(path, **(IMAGES | arguments))
    data.prepare_data()
    data.setup()
    return data


def images(data, split: str) -> set[bytes]:
    """The images of a split, as values that can be compared and put in a set."""
    return {bytes(image.numpy().tobytes()) for image in data.splits[split].inputs}


def labelled(data, split: str) -> dict[bytes, str]:
    dataset = data.splits[split]
    pairs = zip(dataset.inputs, dataset.targets, strict=True)
    return {image.numpy().tobytes(): data.class_names[target] for image, target in pairs}


def test_examples_keep_their_names_where_the_folder_moves(split_folder):
    before = ready(split_folder)
    after = ready(split_folder.rename(split_folder.with_name("elsewhere")))
    assert before.example_names("test") == after.example_names("test")
    assert all(name.startswith("test/") for name in before.example_names("test"))
    assert data_digest(before) == data_digest(after)


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


def test_training_images_alone_are_shifted_and_mirrored_within_the_padding(split_folder):
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
    for split in ("validation", "test"):
        for index, image in enumerate(data.splits[split].inputs):
            torch.testing.assert_close(data.splits[split][index][0], image.float(), atol=1e-3, rtol=0)


def test_corrupted_training_images_are_given_without_augmentation(split_folder):
    data = ready(split_folder, label_noise=0.5, **{**UNCHANGED, "crop_padding": 2, "horizontal_flip": True})
    known = images(data, "train")
    for batch, targets in data.corrupted_dataloader():
        assert (targets[:, 0] != targets[:, 1]).all()
        assert {image.round().to(torch.uint8).numpy().tobytes() for image in batch} <= known


@pytest.mark.parametrize("cache", [True, False], ids=["kept in memory", "decoded when taken"])
def test_loader_processes_give_what_the_main_process_gives(split_folder, cache):
    data = ready(split_folder, cache=cache, batch_size=3)
    alone = list(data.test_dataloader())
    data.num_workers = 2
    spread = list(data.test_dataloader())
    assert len(alone) == 3
    for (images_a, targets_a), (images_b, targets_b) in zip(alone, spread, strict=True):
        assert torch.equal(images_a, images_b)
        assert torch.equal(targets_a, targets_b)


def test_small_sets_are_kept_decoded_and_others_decoded_when_taken(split_folder, monkeypatch):
    kept = ready(split_folder, **PLAIN)
    assert isinstance(kept.splits["train"].inputs, torch.Tensor)
    monkeypatch.setattr(decoded_files, "CACHE_LIMIT", 36 * 3 * 37)  # the bytes of the 37 images: not below the limit
    taken = ready(split_folder, **PLAIN)
    assert isinstance(taken.splits["train"].inputs, decoded_files.DecodedFiles)
    for (image_a, target_a), (image_b, target_b) in zip(kept.splits["train"], taken.splits["train"], strict=True):
        assert torch.equal(image_a, image_b)
        assert target_a == target_b
    monkeypatch.setattr(decoded_files, "CACHE_LIMIT", 36 * 3 * 37 + 1)
    assert isinstance(ready(split_folder).splits["train"].inputs, torch.Tensor)


def test_each_image_has_the_class_of_its_folder(tmp_path):
    written = write_images(tmp_path / "pets", {**SPLIT_COUNTS, "train/dog/puppies": 3})
    data = ready(tmp_path / "pets", image_size=None)
    found = {**labelled(data, "train"), **labelled(data, "validation"), **labelled(data, "test")}
    expected = {pixels.transpose(2, 0, 1).tobytes(): name.split("/")[1] for name, pixels in written.items()}
    assert found == expected


def test_max_per_class_limits_every_split_and_takes_part_of_what_a_larger_one_takes(tmp_path):
    write_images(tmp_path / "animals", {"cat": 20, "dog": 10, "emu": 30})
    small, large, whole = (ready(tmp_path / "animals", max_per_class=limit) for limit in (2, 9, None))
    assert small.splits["train"].targets.bincount().tolist() == [2, 2, 2]
    assert large.splits["train"].targets.bincount().tolist() == [9, 8, 9]
    assert small.splits["test"].targets.bincount().tolist() == [2, 1, 2]
    for split in whole.splits:
        assert images(small, split) <= images(large, split) <= images(whole, split)


def test_damaged_files_are_counted_and_the_first_five_named_before_training(split_folder):
    whole = (split_folder / "train/cat/001.png").read_bytes()
    (split_folder / "test/dog/000.png").write_bytes(whole[: len(whole) // 2])
    for index in range(2, 8):
        (split_folder / f"train/cat/{index:03d}.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"^7 of 37 images cannot be used: ") as raised:
        ready(split_folder)
    message = str(raised.value)
    assert f"{split_folder}/test/dog/000.png: image file is truncated" in message
    assert f"{split_folder}/train/cat/005.png: not an image" in message
    assert message.count(".png") == 5
    assert message.endswith("; and 2 more")


def test_an_image_of_another_size_is_named_unless_a_size_is_set(split_folder):
    write_images(split_folder, {"train/other": 3}, size=9)
    with pytest.raises(
        ValueError, match=r"3 of 40 images .*other/000.png: its shape is \(3, 9, 9\), not \(3, 6, 6\): set data.image"
    ):
        ready(split_folder)
    assert ready(split_folder, image_size=4).splits["train"].inputs.shape[1:] == (3, 4, 4)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_class_that_the_training_split_lacks_is_named(split_folder, split):
    write_images(split_folder, {f"{split}/cow": 2})
    with pytest.raises(ValueError, match=f"the {split} split has classes that the train split lacks: cow"):
        ready(split_folder)


def test_cifar10_as_jpeg_files_is_read_from_its_archive(real_data):
    limits = {"train": 20, "test": 5, "validation": 3}
    data = ready(Path("cifar10_jpeg.tar.gz"), data_dir=real_data, max_per_class=limits)
    assert [len(data.splits[split]) for split in ("train", "validation", "test")] == [200, 30, 50]
    assert data.class_names[:3] == ["airplane", "automobile", "bird"]
    assert data.num_classes == 10
    assert data.splits["train"].inputs.shape == (200, 3, 32, 32)
    # of the whole set they are 0.49, 0.48, 0.45 and 0.25, 0.24, 0.26
    assert data.mean == pytest.approx([0.49, 0.48, 0.45], abs=0.04)
    assert data.std == pytest.approx([0.25, 0.24, 0.26], abs=0.03)


def test_decoding_gives_the_pixels_of_a_png_channels_first():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    image = decode_image(encoded(pixels))
    assert image.dtype == torch.uint8
    assert np.array_equal(image.numpy(), pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("kind", ["grey", "16 bits", "palette"])
def test_every_kind_of_pixels_becomes_rgb(kind):
    grey = np.random.default_rng(0).integers(0, 256, (5, 7), dtype=np.uint8)
    rgb = np.repeat(grey[..., None], 3, axis=2)
    pixels: Any = {
        "grey": grey,
        "16 bits": grey.astype(np.uint16) * 256 + 99,
        "palette": Image.fromarray(grey).convert("P"),
    }[kind]
    assert np.array_equal(decode_image(encoded(pixels)).numpy(), rgb.transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_shows_white(mode):
    alpha = np.array([[0, 51, 255]], dtype=np.uint8)
    shown = np.where(alpha == 255, 0, 255 - alpha)  # of black pixels
    image = Image.fromarray(np.concatenate([np.zeros((1, 3, 3), dtype=np.uint8), alpha[..., None]], axis=2))
    options = {}
    if mode == "P":  # a colour for each pixel, all of them black, with a transparency of its own
        image, options = Image.fromarray(np.arange(3, dtype=np.uint8)[None], "P"), {"transparency": alpha.tobytes()}
        image.putpalette([0] * 9)
    content = encoded(image.convert(mode), **options)
    assert np.array_equal(decode_image(content).numpy(), np.repeat(shown[None], 3, axis=0))


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
