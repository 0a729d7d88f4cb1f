"""The encoders that are trained from scratch: the CNN for spectrograms and the transformer for
text.
"""

import pytest
import torch
from harness.configured_encoder import configured_encoder

from as_lightning.bench.encoders.from_scratch import SmallCNN, TextTransformer, pool


def audio_cnn(**settings) -> SmallCNN:
    return configured_encoder("audio_cnn", **({"in_channels": 1, "dropout": 0.0} | settings))


@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize("shape", [(1, 40, 65), (2, 33, 7), (1, 40, 1)])
def test_features_have_the_size_that_it_announces_and_are_finite(rows, shape):
    model = audio_cnn(in_channels=shape[0], channels=(4, 8, 16), rows=rows)
    features = model(torch.randn(3, *shape))
    assert features.shape == (3, model.out_features) == (3, 16 * rows)
    assert features.isfinite().all()
    features.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_bands_tell_high_from_low_and_time_does_not_matter():
    model = audio_cnn(channels=(8,), rows=4).eval()
    low, high = torch.zeros(2, 1, 32, 40)
    low[..., 4:6, 10:14] = high[..., 26:28, 10:14] = 1.0
    features = model(torch.stack([low, high, low.roll(20, -1)])).unflatten(1, (4, -1)).detach()
    torch.testing.assert_close(features[0], features[2])
    # the band of the sound is 0 for the low one and 3 for the high one, and to each it is the same
    torch.testing.assert_close(features[0, 0], features[1, 3])
    torch.testing.assert_close(features[0, 3], features[1, 1])
    assert not torch.allclose(features[0, 0], features[0, 3])


def encoder(**arguments) -> TextTransformer:
    sizes = {"vocab_size": 50, "max_length": 12, "padding_id": 0, "width": 16, "heads": 2}
    return configured_encoder("text_transformer", **(sizes | arguments)).eval()


@pytest.mark.parametrize("padding_id", [0, 7])
@pytest.mark.parametrize("pooling", ["mean", "first", "none"])
def test_padding_does_not_change_the_features_of_a_text(pooling, padding_id):
    model = encoder(pooling=pooling, padding_id=padding_id)
    text = torch.tensor([[11, 3, 42, 9, 30]])
    padded = torch.full((2, 12), padding_id)
    padded[0, :5] = text[0]
    padded[1] = torch.arange(20, 32)
    with torch.no_grad():
        alone, among = model(text), model(padded)[:1]
    torch.testing.assert_close(
        among[:, :5] if pooling == "none" else among, alone, atol=1e-5, rtol=1e-5
    )


def test_the_mean_is_over_the_tokens_that_are_present():
    hidden, present = torch.randn(2, 4, 3), torch.tensor([[True, True, False, False], [True] * 4])
    features = pool(hidden, present, "mean")
    torch.testing.assert_close(features, torch.stack([hidden[0, :2].mean(0), hidden[1].mean(0)]))
    assert torch.equal(pool(hidden, present, "first"), hidden[:, 0])
    assert pool(hidden, present, "none") is hidden


def test_more_bands_than_rows_and_an_unknown_pooling_are_refused():
    with pytest.raises(ValueError, match=r"model.rows=6 .*the layers leave 5 by"):
        audio_cnn(channels=(4, 4, 4), rows=6)(torch.zeros(1, 1, 40, 10))
    with pytest.raises(
        ValueError, match="pooling must be one of 'mean', 'first', 'none', got 'max'"
    ):
        encoder(pooling="max")(torch.tensor([[1, 2]]))
