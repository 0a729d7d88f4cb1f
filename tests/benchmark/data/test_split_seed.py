"""What is drawn at random of a data set depends on its own seed and on no other."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness.data_settings import AUDIO, IMAGES, TEXT
from harness.made_files import write_images

from as_lightning.benchmark.data.audio.chords import Chords
from as_lightning.benchmark.data.base import BenchmarkDataModule
from as_lightning.benchmark.data.digits import Digits
from as_lightning.benchmark.data.image.image_folder import ImageFolder
from as_lightning.benchmark.data.text.text_file import TextFile

MODULES: dict[str, Callable[..., BenchmarkDataModule]] = {
    "digits": Digits,
    "images": partial(ImageFolder, "set", **IMAGES),
    "chords": partial(Chords, **AUDIO),
    "texts": partial(TextFile, "set.csv", **TEXT),
}


@pytest.mark.parametrize("module", MODULES)
def test_a_split_depends_on_its_own_seed_and_on_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setattr(Chords, "CLIPS_A_CLASS", dict.fromkeys(Chords.CLIPS_A_CLASS, 1))
    if module == "images":
        write_images(tmp_path / "set", {"cat": 20, "dog": 30})
    if module == "texts":
        rows = "".join(f"text {number},{'ab'[number % 2]}\n" for number in range(100))
        (tmp_path / "set.csv").write_text(f"text,label\n{rows}")

    def drawn(own: int, other: int) -> list[Any]:
        torch.manual_seed(other)
        np.random.seed(other)
        random.seed(other)
        data = MODULES[module](data_dir=tmp_path, split_seed=own)
        data.setup()
        split = data.splits["test"]
        return [split.targets.tolist(), [torch.as_tensor(row).tolist() for row in split.inputs]]

    first = drawn(0, 1)
    assert drawn(0, 2) == first
    assert drawn(1, 1) != first
