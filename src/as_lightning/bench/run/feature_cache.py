"""Outputs of a frozen encoder, computed once for each sample and kept in memory or by joblib."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset

from as_lightning.bench.data.base import BenchmarkDataModule, LabelledDataset, say
from as_lightning.bench.encoders.frozen import FrozenEncoder

CHUNK = 64  # samples of one size that the encoder takes at once


def cache_features(
    datamodule: BenchmarkDataModule, encoder: torch.nn.Module, data_dir: Path
) -> None:
    """Replace the inputs of all splits by the outputs of an encoder that can be kept.

    With ``feature_cache="file"`` they are kept in ``data_dir/frozen`` by `joblib.Memory`, under the
    digest of the frozen weights and their settings, and that of the samples: those of a split, or
    of all splits where ``split_seed`` deals them out.
    """
    if not isinstance(encoder, FrozenEncoder) or not encoder.can_be_kept:
        return
    if encoder.feature_cache == "off":
        return
    if datamodule.random_inputs:
        say(
            "the training inputs are augmented at random, so the frozen layers run in every "
            "epoch: switch that off (for images data.crop_padding=0 data.horizontal_flip=false) to "
            "run them once"
        )
        return
    place = data_dir / "frozen" if encoder.feature_cache == "file" else None
    memory = joblib.Memory(place, mmap_mode="c", verbose=0)
    computed = memory.cache(features_of, ignore=["encoder", "samples"])
    digest = encoder_digest(encoder)
    groups = [[split] for split in datamodule.splits]
    if datamodule.splits_by_seed:
        groups = [list(datamodule.splits)]
    for group in groups:
        samples: ConcatDataset[Any] = ConcatDataset([datamodule.splits[split] for split in group])
        keys = [joblib.hash(samples[index][0].numpy()) for index in range(len(samples))]
        # The same order, however the samples are dealt out.
        distinct = dict(sorted({key: index for index, key in enumerate(keys)}.items()))
        rows = {key: row for row, key in enumerate(distinct)}
        outputs = computed(encoder, Subset(samples, list(distinct.values())), digest, list(rows))
        values: Any = torch.from_numpy(outputs)
        remaining = iter(keys)
        for split in group:
            targets = datamodule.splits[split].targets
            own: Any = Subset(values, [rows[key] for key in islice(remaining, len(targets))])
            datamodule.splits[split] = LabelledDataset(own, targets)
    encoder.inputs_are_features = True


def encoder_digest(encoder: FrozenEncoder) -> str:
    """Return a digest of what decides the outputs: weights, settings, and the version of torch."""
    weights = {
        name: weight.cpu().numpy()
        for name, weight in encoder.network.state_dict().items()
        # Nothing reads the pooler, whose weights are random where a checkpoint has none.
        if not name.startswith("pooler.")
    }
    return joblib.hash([torch.__version__, encoder.settings(), weights])


def features_of(
    encoder: FrozenEncoder, samples: Subset[Any], encoder_key: str, sample_keys: list[str]
) -> np.ndarray:
    """Return the features ``(samples, d)``; the two keys are what they are kept under."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    before = next(encoder.parameters()).device
    encoder.to(device)
    inputs = [samples[index][0] for index in range(len(samples))]
    by_shape = defaultdict(list)
    for index, values in enumerate(inputs):
        by_shape[values.shape].append(index)
    outputs: list[Tensor] = [torch.empty(0)] * len(inputs)
    for _, indices in sorted(by_shape.items()):  # of one shape, so that no padding takes part
        for start in range(0, len(indices), CHUNK):
            chunk = indices[start : start + CHUNK]
            batch = torch.stack([inputs[index] for index in chunk]).to(device)
            for index, values in zip(chunk, encoder(batch), strict=True):
                outputs[index] = values.float().cpu()
    encoder.to(before)
    size = outputs[0].numel() * 4 * len(outputs) / 2**20
    say(f"the outputs of the frozen layers are computed, some {size:,.0f} MiB")
    return torch.stack(outputs).numpy()
