"""Pretrained encoders of waveforms: wav2vec 2.0, HuBERT and WavLM from torchaudio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from as_lightning.benchmark.packages import loading

# of each bundle of `torchaudio.pipelines` the function of `torchaudio.models`, and whether waveforms are standardised
ARCHITECTURES = {
    "WAV2VEC2_BASE": ("wav2vec2_base", False),
    "WAV2VEC2_LARGE": ("wav2vec2_large", False),
    "WAV2VEC2_LARGE_LV60K": ("wav2vec2_large_lv60k", True),
    "WAV2VEC2_XLSR53": ("wav2vec2_large_lv60k", True),
    "WAV2VEC2_XLSR_300M": ("wav2vec2_xlsr_300m", True),
    "HUBERT_BASE": ("hubert_base", False),
    "HUBERT_LARGE": ("hubert_large", True),
    "WAVLM_BASE": ("wavlm_base", False),
    "WAVLM_BASE_PLUS": ("wavlm_base", False),
    "WAVLM_LARGE": ("wavlm_large", True),
}


class Wav2Vec2Encoder(nn.Module):
    """A waveform's frames through a pretrained network, then the mean over the frames.

    The settings are described in ``conf/model/wav2vec2.yaml``; ``bundle`` is a key of ``ARCHITECTURES``.

    Shape:
        - input: ``(N, samples)``, 16 kHz in [-1, 1], at least 400 samples; output: ``(N, out_features)``.

    Raises:
        ValueError: if an argument is out of range, the weights are another network's, or the input is no waveform.

    Source: Baevski et al. 2020 (arXiv 2006.11477); `torchaudio.models.Wav2Vec2Model`.
    """

    network: Any  # torchaudio's Wav2Vec2Model, whose parts are not typed

    def __init__(
        self,
        bundle: str,
        pretrained: bool,
        weights: str | Path | None,
        layers: int | None,
        freeze_feature_extractor: bool,
    ) -> None:
        super().__init__()
        # here, as torchaudio refuses to load beside a torch that was built for another CUDA
        with loading("torchaudio"):
            import torchaudio

        if bundle not in ARCHITECTURES:
            raise ValueError(f"bundle must be one of {', '.join(ARCHITECTURES)}, got {bundle!r}")
        build, self.standardised = ARCHITECTURES[bundle]
        if weights is None and pretrained:
            loaded = getattr(torchaudio.pipelines, bundle).get_model()
            # torchaudio wraps a network whose waveforms are to be standardised, and does so over the batch as a whole:
            # a clip's features would depend on its neighbours
            self.network = loaded.model if self.standardised else loaded
        else:
            self.network = getattr(torchaudio.models, build)()
        if weights is not None:
            state = torch.load(Path(weights).expanduser(), map_location="cpu", weights_only=True)
            try:
                self.network.load_state_dict(state)
            except RuntimeError as error:
                raise ValueError(f"{weights} does not hold the weights of {bundle}: {error}") from error
        transformer = self.network.encoder.transformer
        available = len(transformer.layers)
        if layers is not None and not 1 <= layers <= available:
            raise ValueError(f"layers must be between 1 and the {available} of {bundle}, got {layers}")
        transformer.layers = transformer.layers[:layers]
        if freeze_feature_extractor:
            self.network.feature_extractor.requires_grad_(False)
        self.network.train()  # torchaudio hands it over in evaluation mode, and Lightning leaves it in that
        self.out_features = int(transformer.layer_norm.normalized_shape[0])

    def forward(self, waveforms: Tensor) -> Tensor:
        if waveforms.dim() != 2:
            raise ValueError(f"expected waveforms (N, samples), got {tuple(waveforms.shape)}: set features=waveform")
        if self.standardised:
            waveforms = F.layer_norm(waveforms, waveforms.shape[-1:])
        frames, _ = self.network(waveforms)
        return frames.mean(dim=1)
