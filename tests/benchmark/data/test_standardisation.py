"""The mean and the standard deviation that inputs are standardised by."""

from __future__ import annotations

import torch

from as_lightning.benchmark.data.decoded_files import mean_and_std, value_sums


def test_mean_and_deviation_are_those_of_the_pixels_in_the_unit_interval():
    pixels = torch.randint(0, 256, (50, 3, 6, 5), dtype=torch.uint8)
    mean, std = mean_and_std(value_sums(pixels), scale=255.0)
    values = pixels.double().movedim(1, 0).flatten(1) / 255
    torch.testing.assert_close(mean, values.mean(1))
    torch.testing.assert_close(std, values.std(1, correction=0))


def test_a_constant_channel_is_centred_and_not_divided_by_zero():
    pixels = torch.randint(0, 256, (50, 3, 6, 5), dtype=torch.uint8)
    pixels[:, 1] = 51
    mean, std = mean_and_std(value_sums(pixels), scale=255.0)
    assert (mean[1].item(), std[1].item()) == (0.2, 1.0)
    assert 0.2 < std[0] < 0.4


def test_the_sums_of_parts_add_up_to_those_of_the_whole():
    features = torch.randn(7, 1, 24, 41, dtype=torch.float64) - 5
    parts = sum(value_sums(part) for part in features)
    mean, std = mean_and_std(parts)
    torch.testing.assert_close(mean, features.mean().reshape(1))
    torch.testing.assert_close(std, features.std(correction=0).reshape(1))
