"""A user's own images: how they are decoded, kept and augmented, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness.data_settings import IMAGES, PLAIN, UNCHANGED
from harness.made_files import encoded, write_images
from PIL import Image

from as_lightning.bench.data.image_folder import ImageFolder, decode_image

SPLIT_COUNTS = {"train/cat": 20, "train/dog": 10, "test/cat": 4, "test/dog": 3}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_images(tmp_path / "pets", SPLIT_COUNTS)
    return tmp_path / "pets"


def ready(path: Path, **arguments) -> ImageFolder:
    data = ImageFolder(path, **(IMAGES | arguments))
    data.setup()
    return data


def labelled(data, split: str) -> dict[bytes, str]:
    """Return the class of each image of a split, by the image's bytes."""
    dataset = data.splits[split]
    pairs = zip(dataset.inputs, dataset.targets, strict=True)
    return {image.numpy().tobytes(): data.class_names[target] for image, target in pairs}


def test_examples_keep_their_names_where_the_folder_moves(folder):
    before, after = ready(folder), ready(folder.rename(folder.with_name("elsewhere")))
    assert before.example_names("test") == after.example_names("test")
    assert all(name.startswith("test/") for name in before.example_names("test"))


def test_images_are_normalised(folder):
    data = ready(folder, num_workers=1, **PLAIN)
    batch = torch.cat([batch for batch, _ in data.train_dataloader()]).double()
    mean = batch.mean((0, 2, 3))
    torch.testing.assert_close(mean, torch.zeros(3, dtype=torch.float64), atol=1e-6, rtol=0)
    std = batch.std((0, 2, 3), correction=0)
    torch.testing.assert_close(std, torch.ones(3, dtype=torch.float64))
    given = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.25, 2.0]}
    test = ready(folder, **given).splits["test"]
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in given.values())
    torch.testing.assert_close(test[0][0], (test.inputs[0] / 255 - mean) / std)


def test_training_images_alone_are_shifted_and_mirrored(folder):
    augmented = {"crop_padding": 2, "horizontal_flip": True}
    data = ready(folder, **(UNCHANGED | augmented))
    padded = torch.nn.functional.pad(data.splits["train"].inputs[0].float(), (2, 2, 2, 2))
    views = [padded[:, y : y + 6, x : x + 6] for y in range(5) for x in range(5)]
    views += [view.flip(-1) for view in views]
    seen = set()
    for _ in range(60):
        taken = data.splits["train"][0][0]
        seen |= {number for number, view in enumerate(views) if torch.allclose(taken, view)}
    assert len(seen) > 20
    assert {index // 25 for index in seen} == {0, 1}
    for split in ("validation", "test"):
        for (found, _), image in zip(data.splits[split], data.splits[split].inputs, strict=True):
            torch.testing.assert_close(found, image.float(), atol=1e-3, rtol=0)


def test_each_image_has_the_class_of_its_folder(tmp_path):
    written = write_images(tmp_path / "pets", {**SPLIT_COUNTS, "train/dog/puppies": 3})
    data = ready(tmp_path / "pets", image_size=None)
    found = labelled(data, "train") | labelled(data, "validation") | labelled(data, "test")
    assert found == {
        pixels.transpose(2, 0, 1).tobytes(): name.split("/")[1] for name, pixels in written.items()
    }


def test_max_per_class_limits_every_split_and_takes_part_of_what_a_larger_one_takes(tmp_path):
    write_images(tmp_path / "animals", {"cat": 20, "dog": 10, "emu": 30})
    small, large, whole = (
        ready(tmp_path / "animals", max_per_class={"train": limit, "test": limit})
        for limit in (2, 9, None)
    )
    assert small.splits["train"].targets.bincount().tolist() == [2, 2, 2]
    assert large.splits["train"].targets.bincount().tolist() == [9, 8, 9]
    assert small.splits["test"].targets.bincount().tolist() == [2, 1, 2]
    assert len(small.splits["validation"]) == len(whole.splits["validation"])
    for split in whole.splits:
        targets = whole.splits[split].targets
        assert not torch.equal(targets, targets.sort().values)  # mixed: a loader may be cut short
        assert labelled(small, split).keys() <= labelled(large, split).keys()
        assert labelled(large, split).keys() <= labelled(whole, split).keys()


def test_an_image_of_another_size_is_named(folder):
    write_images(folder, {"train/other": 3}, size=9)
    shapes = r"its shape is \(3, 9, 9\), not \(3, 6, 6\): set data.image_size"
    with pytest.raises(ValueError, match=rf"other/00\d.png: {shapes}"):
        ready(folder)
    assert ready(folder, image_size=4).splits["train"].inputs.shape[1:] == (3, 4, 4)


RGB = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
GREY = RGB[..., 0]
ALPHA = np.array([[0, 51, 255]], dtype=np.uint8)
BLACK = np.concatenate([np.zeros((1, 3, 3), dtype=np.uint8), ALPHA[..., None]], axis=2)
CLEAR = Image.fromarray(BLACK)
COLOURS = Image.fromarray(np.arange(3, dtype=np.uint8)[None], "P")  # a colour for each pixel
COLOURS.putpalette([0] * 9)
ON_ITS_SIDE = Image.Exif()
ON_ITS_SIDE[0x0112] = 6  # turn it clockwise by 90 degrees


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        pytest.param(encoded(RGB), RGB, id="rgb"),
        pytest.param(encoded(GREY), GREY, id="grey"),
        pytest.param(encoded(Image.fromarray(GREY).convert("P")), GREY, id="palette"),
        pytest.param(encoded(RGB, exif=ON_ITS_SIDE), np.rot90(RGB, k=-1), id="turned"),
        # What is transparent shows white.
        pytest.param(encoded(CLEAR), 255 - ALPHA, id="clear"),
        pytest.param(encoded(CLEAR.convert("LA")), 255 - ALPHA, id="clear grey"),
        pytest.param(encoded(COLOURS, transparency=ALPHA.tobytes()), 255 - ALPHA, id="clear P"),
    ],
)
def test_every_kind_of_pixels_becomes_upright_rgb_channels_first(content: bytes, shown: Any):
    image = decode_image(content)
    assert image.dtype == torch.uint8
    expected = shown if shown.ndim == 3 else np.repeat(shown[..., None], 3, axis=2)
    assert np.array_equal(image.numpy(), expected.transpose(2, 0, 1))


@pytest.mark.parametrize("upright", [False, True])
def test_scaling_keeps_the_aspect_ratio_and_the_middle(upright):
    pixels = np.zeros((10, 30, 3), dtype=np.uint8)
    # the middle 10 columns are kept; scaled to half, two more on both sides have a part in them
    for channel, columns in enumerate((slice(0, 8), slice(8, 22), slice(22, 30))):
        pixels[:, columns, channel] = 200
    image = decode_image(encoded(pixels.swapaxes(0, 1) if upright else pixels), image_size=5)
    assert image.shape == (3, 5, 5)
    assert image.flatten(1).unique(dim=1).squeeze().tolist() == [0, 200, 0]
