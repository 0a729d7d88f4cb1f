"""The CNN for spectrograms."""

from __future__ import annotations

import pytest
import torch
from harness.configured_encoder import configured_encoder

from as_lightning.benchmark.encoders.from_scratch import AudioCNN


def encoder_of(**settings) -> AudioCNN:
    return configured_encoder("audio_cnn", **({"in_channels": 1, "bands": 1, "dropout": 0.0} | settings))


@pytest.mark.parametrize("bands", [1, 3, 5])
@pytest.mark.parametrize("shape", [(1, 40, 65), (2, 33, 7), (1, 40, 1)])
def test_features_have_the_size_that_it_announces_and_are_finite(bands, shape):
    model = encoder_of(in_channels=shape[0], channels=(4, 8, 16), bands=bands)
    features = model(torch.randn(3, *shape))
    assert features.shape == (3, model.out_features) == (3, 16 * bands)
    assert features.isfinite().all()
    features.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_bands_tell_high_from_low_and_time_does_not_matter():
    model = encoder_of(channels=(8,), bands=4).eval()
    low, high = torch.zeros(2, 1, 32, 40)
    low[..., 4:6, 10:14] = high[..., 26:28, 10:14] = 1.0
    features = model(torch.stack([low, high, low.roll(20, -1)])).unflatten(1, (4, -1)).detach()
    torch.testing.assert_close(features[0], features[2])
    # the band of the sound is 0 for the low one and 3 for the high one, and to each it is the same
    torch.testing.assert_close(features[0, 0], features[1, 3])
    torch.testing.assert_close(features[0, 3], features[1, 1])
    assert not torch.allclose(features[0, 0], features[0, 3])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_its_gradients_on_a_gpu_are_deterministic():
    model = encoder_of(channels=(8, 16), bands=3).cuda()
    torch.use_deterministic_algorithms(True)
    try:
        model(torch.randn(4, 1, 40, 65, device="cuda")).square().sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_more_bands_than_rows_are_refused():
    with pytest.raises(ValueError, match="5 rows of frequency are left after the pooling, fewer than bands=6"):
        encoder_of(channels=(4, 4, 4), bands=6)(torch.zeros(1, 1, 40, 10))
