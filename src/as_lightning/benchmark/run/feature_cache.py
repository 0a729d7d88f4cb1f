"""Outputs of frozen layers, computed once for each sample and kept in memory or in a memory-mapped file."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pooch
import torch
from torch import Tensor

from as_lightning.benchmark.data.base import BenchmarkDataModule, LabelledDataset, say
from as_lightning.benchmark.encoders.frozen import FrozenEncoder, FrozenOutput

CHUNK = 64  # samples of one size that the frozen layers take at once


class FrozenOutputs(Sequence[Tensor]):
    """The outputs of a split's samples, one after the other, of shape `(rows, ...)`.

    `ends` is where each sample's rows end; None where each sample is one row.
    """

    def __init__(self, values: np.ndarray, ends: np.ndarray | None) -> None:
        self.values, self.ends = values, ends

    def __len__(self) -> int:
        return len(self.values) if self.ends is None else len(self.ends)

    def __getitem__(self, index: Any) -> Any:
        if self.ends is None:
            return torch.from_numpy(self.values[index])
        start = self.ends[index - 1] if index else 0
        return torch.from_numpy(self.values[start : self.ends[index]])


def _collated(collate: Callable[[list[Any]], Any], samples: list[Any]) -> tuple[FrozenOutput, Tensor]:
    """A batch of outputs as `collate` makes it, with what of it is no padding."""
    values, targets = collate(samples)
    lengths = torch.tensor([len(sample[0]) for sample in samples])
    return FrozenOutput(values, torch.arange(values.size(1)) < lengths[:, None]), targets


def cache_features(datamodule: BenchmarkDataModule, encoder: torch.nn.Module, data_dir: Path) -> None:
    """Put the outputs of the encoder's frozen layers, if it has any, in the place of the inputs of all splits.

    The file of a split is `data_dir/frozen/<key>.npy`, with its checksum beside it; a damaged one is made again. The
    key is of the frozen weights, the inputs (so also of the tokenizer) and the version of torch.
    """
    if not isinstance(encoder, FrozenEncoder) or encoder.trainable_layers is None or encoder.feature_cache == "off":
        return
    if datamodule.random_inputs:
        say(
            "the training inputs are augmented at random, so the frozen layers run in every epoch: switch the "
            "augmentation off (for images data.crop_padding=0 data.horizontal_flip=false) to run them once"
        )
        return
    folder = data_dir / "frozen" if encoder.feature_cache == "file" else None
    frozen = _digest_of_weights(encoder)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    home = next(encoder.parameters()).device
    encoder.to(device)
    for split, dataset in datamodule.splits.items():
        inputs = _Inputs(dataset)
        key = hashlib.sha256(f"{frozen} {inputs.digest} {device}".encode()).hexdigest()[:24]
        values = None if folder is None else _read(folder / f"{key}.npy")
        if values is None:
            values = _compute(encoder, inputs, device)
            if folder is not None:
                values = _write(folder / f"{key}.npy", values)
            say(f"{split}: the outputs of the frozen layers are computed, {values.nbytes / 2**20:,.0f} MiB")
        ends = inputs.ends if inputs.ends is not None and len(values) == inputs.ends[-1] else None
        datamodule.splits[split] = LabelledDataset(FrozenOutputs(values, ends), dataset.targets)
    datamodule.collate = partial(_collated, datamodule.collate)  # type: ignore[method-assign]
    encoder.to(home)


class _Inputs:
    """The inputs of a data set: their digest, which of them have one size, and where each text's tokens end."""

    def __init__(self, dataset: LabelledDataset) -> None:
        self.dataset = dataset
        digest = hashlib.sha256()
        lengths = np.zeros(len(dataset), dtype=np.int64)
        self.sizes: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for index in range(len(dataset)):
            taken = dataset[index][0]
            lengths[index] = len(taken)
            self.sizes[tuple(taken.shape)].append(index)
            digest.update(f"{taken.dtype} {tuple(taken.shape)}".encode() + taken.contiguous().numpy().tobytes())
        self.digest = digest.hexdigest()
        self.ends = np.cumsum(lengths) if all(len(shape) == 1 for shape in self.sizes) else None


def _compute(encoder: FrozenEncoder, inputs: _Inputs, device: str) -> np.ndarray:
    values: np.ndarray | None = None
    chunks = [
        same[start : start + CHUNK] for _, same in sorted(inputs.sizes.items()) for start in range(0, len(same), CHUNK)
    ]
    for indices in chunks:  # of one size, so that no padding takes part
        batch = torch.stack([inputs.dataset[index][0] for index in indices])
        output = encoder.frozen_output(batch.to(device)).values.float().cpu().numpy()
        ends = inputs.ends if output.ndim == 3 else None  # an output for each token
        if values is None:
            shape = (len(inputs.dataset), *output.shape[1:]) if ends is None else (int(ends[-1]), output.shape[2])
            values = np.empty(shape, dtype=np.float32)
        for index, of_sample in zip(indices, output, strict=True):
            rows = index if ends is None else slice(ends[index] - len(of_sample), ends[index])
            values[rows] = of_sample
    assert values is not None
    return values


def _digest_of_weights(encoder: FrozenEncoder) -> str:
    digest = hashlib.sha256(f"{torch.__version__} {CHUNK} {encoder.frozen_settings()}".encode())
    for name, tensor in encoder.frozen_module().state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _read(path: Path) -> np.ndarray | None:
    """The values of a file, mapped into memory; None where there is no sound one."""
    note = path.with_suffix(".sha256")
    if not path.exists():
        return None
    if note.exists() and note.read_text(encoding="utf-8") == _note(path, path):
        return np.load(path, mmap_mode="c")
    say(f"{path} is damaged, or not what its name says: it is made again")
    return None


def _write(path: Path, values: np.ndarray) -> np.ndarray:
    """Write a file whole or not at all, and map it into memory; what cannot be written stays in memory."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as folder:
            partial_file = Path(folder, path.name)
            np.save(partial_file, values)
            path.with_suffix(".sha256").write_text(_note(path, partial_file), encoding="utf-8")
            os.replace(partial_file, path)
    except OSError as error:
        say(f"{path} could not be written ({error}): the outputs of the frozen layers stay in memory")
        return values
    return np.load(path, mmap_mode="c")


def _note(path: Path, file: Path) -> str:
    return f"{path.stem} {pooch.file_hash(str(file))}"
