"""The pretrained encoders of waveforms, with random weights: nothing is downloaded."""

from collections.abc import Iterator

import pytest
import torch
import torchaudio
from harness.configured_encoder import configured_encoder

from as_lightning.bench.encoders.wav2vec2 import Wav2Vec2Encoder


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Iterator[torch.nn.Module]:
    """A network, whose weights lie where torchaudio looks for them before it downloads any."""
    torch.manual_seed(1)
    network = torchaudio.models.wav2vec2_base()
    folder = tmp_path_factory.mktemp("torch")
    (folder / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(
        network.state_dict(), folder / "hub" / "checkpoints" / "wav2vec2_fairseq_base_ls960.pth"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_HOME", str(folder))
        yield network


def encoder_of(**settings) -> Wav2Vec2Encoder:
    return configured_encoder("wav2vec2", **settings)


@pytest.fixture(scope="module")
def small(network) -> Wav2Vec2Encoder:
    return encoder_of(layers=1)


def test_features_are_the_mean_over_the_frames_of_the_last_layer_used_and_spectrograms_are_refused(
    small, network
):
    waveforms = torch.randn(2, 1600) / 10
    with torch.no_grad():
        (frames,), _ = network.eval().extract_features(waveforms, num_layers=1)
        features = small.eval()(waveforms)
    assert frames.shape[1] == 4
    assert features.shape == (2, small.out_features) == (2, 768)
    torch.testing.assert_close(features, network.encoder.transformer.layer_norm(frames).mean(1))
    with pytest.raises(
        ValueError, match=r"expected waveforms \(N, samples\), got \(2, 1, 40, 65\)"
    ):
        small(torch.zeros(2, 1, 40, 65))


def test_the_feature_extractor_is_frozen_and_all_else_learns(small):
    small.train()
    small.network.encoder.transformer.layer_drop = 0.0
    small.zero_grad()
    small(torch.randn(2, 800) / 10).square().sum().backward()
    for name, parameter in small.named_parameters():
        assert (
            parameter.requires_grad
            == (parameter.grad is not None)
            == ("feature_extractor" not in name)
        ), name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 0}, "layers must be between 1 and the 12 .*, got 0"),
        ({"layers": 13}, "layers must be between 1 and the 12 .*, got 13"),
        ({"bundle": "WAV2VEC3"}, r"bundle must be one of 'HUBERT_BASE', .*, got 'WAV2VEC3'"),
        ({"bundle": "WAV2VEC2_ASR_BASE_10M"}, r"bundle must be one of"),
    ],
)
def test_layers_and_bundles_that_there_are_not_are_refused(network, settings, message):
    with pytest.raises(ValueError, match=message):
        encoder_of(**settings)


def test_waveforms_that_a_network_wants_standardised_do_not_depend_on_loudness_nor_on_their_neighbours(
    network, monkeypatch
):
    bundle = torchaudio.pipelines.HUBERT_BASE
    monkeypatch.setattr(
        bundle, "_path", torchaudio.pipelines.WAV2VEC2_BASE._path
    )  # the same architecture
    monkeypatch.setattr(bundle, "_normalize_waveform", True)
    encoder = encoder_of(bundle="HUBERT_BASE", layers=1).eval()
    waveforms = torch.randn(2, 800)
    with torch.no_grad():
        together = encoder(waveforms * torch.tensor([[0.05], [2.0]]) + 0.3)
        alone = encoder(waveforms[:1])
    torch.testing.assert_close(together[:1], alone, atol=1e-3, rtol=1e-3)
