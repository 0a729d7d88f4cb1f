"""Outputs of frozen layers, computed once for each sample and kept in memory or in a memory-mapped
file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pooch
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset

from as_lightning.bench.data.base import BenchmarkDataModule, LabelledDataset, say
from as_lightning.bench.encoders.frozen import FrozenEncoder, FrozenOutput
from as_lightning.bench.run.identity import digest, value_digest
from as_lightning.bench.run.result import whole_file

CHUNK = 64  # samples of one size that the frozen layers take at once


def _collated(
    collate: Callable[[list[Any]], Any], samples: list[Any]
) -> tuple[FrozenOutput, Tensor]:
    """A batch of outputs, put together by `collate`, with a mask of the positions that are no
    padding.
    """
    values, targets = collate(samples)
    lengths = torch.tensor([len(sample[0]) for sample in samples])
    return FrozenOutput(values, torch.arange(values.size(1)) < lengths[:, None]), targets


def cache_features(
    datamodule: BenchmarkDataModule, encoder: torch.nn.Module, data_dir: Path
) -> None:
    """Replace the inputs of all splits by the outputs of the encoder's frozen layers, if it has
    any.

    A file `data_dir/frozen/<key>.npy`, with its checksum beside it, holds the outputs of a split's
    distinct inputs, or of all splits' where `split_seed` deals the samples out. A damaged file is
    made again. The key is a digest of the frozen weights and their settings, the inputs (and so the
    tokenizer), the device and the version of torch.
    """
    if (
        not isinstance(encoder, FrozenEncoder)
        or encoder.trainable_layers is None
        or encoder.feature_cache == "off"
    ):
        return
    if datamodule.random_inputs:
        switch_off = "switch that off (for images data.crop_padding=0 data.horizontal_flip=false) to run them once"
        say(
            "the training inputs are augmented at random, so the frozen layers run in every "
            f"epoch: {switch_off}"
        )
        return
    # nothing reads the pooler, whose weights are random where a checkpoint has none
    weights = {
        name: part
        for name, part in encoder.network.state_dict().items()
        if not name.startswith("pooler.")
    }
    key_parts = [
        torch.__version__,
        str(CHUNK),
        str(encoder.frozen_settings()),
        value_digest(weights),
    ]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    encoder_device = next(encoder.parameters()).device
    encoder.to(device)
    for group in (
        [list(datamodule.splits)]
        if datamodule.splits_by_seed
        else [[split] for split in datamodule.splits]
    ):
        all_samples: ConcatDataset[Any] = ConcatDataset(
            [datamodule.splits[split] for split in group]
        )
        digests: list[str] = []
        first_samples: dict[str, tuple[int, tuple[int, ...]]] = {}
        for index in range(len(all_samples)):
            values = all_samples[index][0]
            digests.append(value_digest(values))
            first_samples.setdefault(digests[-1], (index, tuple(values.shape)))
        rows = {
            digest: row for row, digest in enumerate(sorted(first_samples))
        }  # the same however they are dealt out
        samples = Subset(all_samples, [first_samples[digest][0] for digest in rows])
        shapes = [first_samples[digest][1] for digest in rows]
        sample = samples[0][0][None].to(device)
        per_token = (
            sample.ndim == 2 and encoder.frozen_output(sample).values.ndim == 3
        )  # of texts, without pooling
        lengths = [shape[0] for shape in shapes] if per_token else None
        key = digest(*key_parts, *rows, device)
        path = data_dir / "frozen" / f"{key}.npy" if encoder.feature_cache == "file" else None
        values = None if path is None else _read(path)
        if values is None:
            values = _compute(encoder, samples, shapes, lengths, device)
            values = values if path is None else _write(path, values)
            names = ", ".join(group)
            say(
                f"{names}: the outputs of the frozen layers are computed, "
                f"{values.nbytes / 2**20:,.0f} MiB"
            )
        outputs: Any = torch.from_numpy(values)
        outputs = outputs if lengths is None else outputs.split(lengths)
        sample_rows = (rows[digest] for digest in digests)
        for split in group:
            inputs: Any = Subset(outputs, [*islice(sample_rows, len(datamodule.splits[split]))])
            datamodule.splits[split] = LabelledDataset(inputs, datamodule.splits[split].targets)
    datamodule.collate = partial(_collated, datamodule.collate)
    encoder.to(encoder_device)


def _compute(
    encoder: FrozenEncoder,
    samples: Subset[Any],
    shapes: list[tuple[int, ...]],
    lengths: list[int] | None,
    device: str,
) -> np.ndarray:
    """The outputs of all samples, `(samples, ...)`, or of all tokens, of which each sample has one
    of `lengths`.
    """
    outputs, groups = torch.empty(0), defaultdict(list)
    for index, shape in enumerate(shapes):
        groups[shape].append(index)
    chunks = [
        rows[start : start + CHUNK]
        for _, rows in sorted(groups.items())
        for start in range(0, len(rows), CHUNK)
    ]
    for indices in chunks:  # of one shape, so that no padding takes part
        batch = torch.stack([samples[index][0] for index in indices])
        values = encoder.frozen_output(batch.to(device)).values.float().cpu()
        if not len(outputs):
            full_shape = (
                (len(samples), *values.shape[1:])
                if lengths is None
                else (sum(lengths), values.size(2))
            )
            outputs = torch.empty(full_shape, dtype=torch.float32)
            sample_outputs = outputs if lengths is None else outputs.split(lengths)
        for index, value in zip(indices, values, strict=True):
            sample_outputs[index].copy_(value)
    return outputs.numpy()


def _read(path: Path) -> np.ndarray | None:
    """The values of a file, mapped into memory; None if it is missing or damaged."""
    checksum_file = path.with_suffix(".sha256")
    if not path.exists():
        return None
    if checksum_file.exists() and checksum_file.read_text(encoding="utf-8") == _note(path, path):
        return np.load(path, mmap_mode="c")
    say(f"{path} is damaged, or not what its name says: it is made again")
    return None


def _write(path: Path, values: np.ndarray) -> np.ndarray:
    """Write a file whole or not at all, and map it into memory; values that cannot be written stay
    in memory.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial_file:
            with open(partial_file, "wb") as file:
                np.save(file, values)
            path.with_suffix(".sha256").write_text(_note(path, partial_file), encoding="utf-8")
    except OSError as error:
        say(
            f"{path} could not be written ({error}): the outputs of the frozen layers stay in "
            "memory"
        )
        return values
    return np.load(path, mmap_mode="c")


def _note(path: Path, file: Path) -> str:
    return f"{path.stem} {pooch.file_hash(str(file))}"
