"""The pretrained encoders of waveforms, with random weights: nothing is downloaded."""

from __future__ import annotations

import pytest
import torch
import torchaudio
from harness.configured_encoder import configured_encoder

from as_lightning.benchmark.encoders.wav2vec2 import ARCHITECTURES, Wav2Vec2Encoder


def encoder_of(**settings) -> Wav2Vec2Encoder:
    return configured_encoder("wav2vec2", **settings)


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    torch.manual_seed(1)
    return torchaudio.models.wav2vec2_base()


@pytest.fixture(scope="module")
def weights(network, tmp_path_factory):
    """A file as torchaudio downloads it."""
    path = tmp_path_factory.mktemp("weights") / "wav2vec2_base.pth"
    torch.save(network.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def small(weights) -> Wav2Vec2Encoder:
    return encoder_of(weights=weights, layers=1)


def test_features_are_the_mean_over_the_frames_of_the_last_layer_used(small, network):
    waveforms = torch.randn(2, 1600) / 10
    with torch.no_grad():
        (frames,), _ = network.eval().extract_features(waveforms, num_layers=1)
        features = small.eval()(waveforms)
    assert frames.shape[1] == 4
    assert features.shape == (2, small.out_features) == (2, 768)
    torch.testing.assert_close(features, network.encoder.transformer.layer_norm(frames).mean(1))


def test_the_feature_extractor_is_frozen_and_all_else_learns(small):
    small.train()
    small.network.encoder.transformer.layer_drop = 0.0
    small.zero_grad()
    small(torch.randn(2, 800) / 10).square().sum().backward()
    for name, parameter in small.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None) == ("feature_extractor" not in name), name


def test_standardised_waveforms_do_not_depend_on_loudness_nor_on_their_neighbours(small):
    small.eval()
    small.standardised = True
    try:
        waveforms = torch.randn(2, 800)
        with torch.no_grad():
            together = small(waveforms * torch.tensor([[0.05], [2.0]]) + 0.3)
            alone = small(waveforms[:1])
    finally:
        small.standardised = False
    torch.testing.assert_close(together[:1], alone, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("bundle", ARCHITECTURES)
def test_the_architecture_is_the_bundles(bundle):
    published = getattr(torchaudio.pipelines, bundle)
    assert published.sample_rate == 16_000
    build, standardised = ARCHITECTURES[bundle]
    assert published._normalize_waveform == standardised
    # what its weights fit: a network that both build on the meta device, without numbers
    with torch.device("meta"):
        ours = getattr(torchaudio.models, build)()
        model = {"Wav2Vec2": torchaudio.models.wav2vec2_model, "WavLM": torchaudio.models.wavlm_model}
        theirs = model[published._model_type](**published._params)
    shapes = [{name: tensor.shape for name, tensor in each.state_dict().items()} for each in (ours, theirs)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": "other.pth"}, r"other.pth does not hold the weights of WAV2VEC2_BASE"),
        ({"pretrained": False, "layers": 0}, "layers must be between 1 and the 12 .*, got 0"),
        ({"pretrained": False, "layers": 13}, "layers must be between 1 and the 12 .*, got 13"),
        ({"bundle": "WAV2VEC3"}, r"bundle must be one of WAV2VEC2_BASE, .*, got 'WAV2VEC3'"),
    ],
)
def test_weights_layers_and_bundles_that_there_are_not_are_refused(tmp_path, monkeypatch, settings, message):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": torch.zeros(1)}, "other.pth")
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        encoder_of(**settings)


def test_spectrograms_are_refused(small):
    with pytest.raises(ValueError, match=r"expected waveforms \(N, samples\), got \(2, 1, 40, 65\)"):
        small(torch.zeros(2, 1, 40, 65))
