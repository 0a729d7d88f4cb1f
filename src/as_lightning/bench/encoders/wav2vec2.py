"""Pretrained encoders of waveforms: wav2vec 2.0, HuBERT and WavLM from torchaudio."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from as_lightning.bench.packages import loading
from as_lightning.functional.argument_checks import check_choice


class Wav2Vec2Encoder(nn.Module):
    """A waveform's frames through a pretrained network, then the mean over the frames.

    The settings are described in ``conf/model/wav2vec2.yaml``. A network of
    ``torchaudio.pipelines`` is downloaded once to the folder that ``TORCH_HOME`` names.

    Shape:
        - input: ``(N, samples)``, 16 kHz in [-1, 1], at least 400 samples; output: ``(N,
          out_features)``.

    Raises:
        ValueError: if there is no such ``bundle``, it has fewer ``layers``, or the input is no
            waveform.

    Source: Baevski et al. 2020 (arXiv 2006.11477); `torchaudio.models.Wav2Vec2Model`.
    """

    network: Any  # torchaudio's Wav2Vec2Model, whose parts are not typed

    def __init__(self, bundle: str, layers: int | None, freeze_feature_extractor: bool) -> None:
        super().__init__()
        # here, as torchaudio refuses to load beside a torch that was built for another CUDA
        with loading("torchaudio"):
            from torchaudio import pipelines

        # a bundle for speech recognition is of another type: its network ends in letters
        bundles = {
            name: value
            for name, value in vars(pipelines).items()
            if type(value) is pipelines.Wav2Vec2Bundle
        }
        network = bundles[check_choice("bundle", bundle, list(bundles))].get_model()
        # torchaudio wraps a network whose waveforms are to be standardised, and does so over the
        # batch as a whole: a clip's features would depend on its neighbours
        self.standardised = hasattr(network, "normalize_waveform")
        self.network = network.model if self.standardised else network
        transformer = self.network.encoder.transformer
        if layers is not None and not 1 <= layers <= len(transformer.layers):
            raise ValueError(
                f"layers must be between 1 and the {len(transformer.layers)} of {bundle}, got "
                f"{layers}"
            )
        transformer.layers = transformer.layers[:layers]
        if freeze_feature_extractor:
            self.network.feature_extractor.requires_grad_(False)
        # torchaudio hands it over in evaluation mode, and Lightning leaves it in that
        self.network.train()
        self.out_features = int(transformer.layer_norm.normalized_shape[0])

    def forward(self, waveforms: Tensor) -> Tensor:
        if waveforms.dim() != 2:
            raise ValueError(
                f"expected waveforms (N, samples), got {tuple(waveforms.shape)}: set "
                "features=waveform"
            )
        if self.standardised:
            waveforms = F.layer_norm(waveforms, waveforms.shape[-1:])
        frames, _ = self.network(waveforms)
        return frames.mean(dim=1)
