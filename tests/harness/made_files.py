"""Images, clips and tables that tests write, and read again."""

import io

import numpy as np
import soundfile
import torch
from PIL import Image


def tone(hz, rate=8000, seconds=0.5):
    """A sine of amplitude 0.5."""
    return 0.5 * torch.sin(2 * torch.pi * hz * torch.arange(round(seconds * rate)) / rate)


def write_clip(path, waveform, rate=8000, subtype=None):
    """Write an audio file, and the folders around it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, waveform.numpy(), rate, subtype=subtype)
    return path


def encoded(image, ending="png", **options):
    """An image file of an image, or of pixels of shape ``(H, W)`` or ``(H, W, channels)``."""
    buffer = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(
        buffer, ending, **options
    )
    return buffer.getvalue()


def write_images(root, counts, size=6, seed=0):
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


def write_table(path, sizes):
    """Write a CSV table with so many different texts of each label, in turns."""
    rows = sorted((index, label) for label, size in sizes.items() for index in range(size))
    path.write_text(
        "text,label\n" + "".join(f"text {index} of {label},{label}\n" for index, label in rows)
    )
    return path
