"""Image files: every kind of pixels becomes RGB, and what is no image is refused."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from harness.made_files import encoded
from PIL import Image

from as_lightning.benchmark.data.image.image_folder import decode_image


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
