"""The log-mel spectrogram."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from harness.made_files import tone

from as_lightning.benchmark.data.audio.data_module import LogMel


@pytest.mark.parametrize("hz", [300.0, 1000.0, 2500.0])
def test_the_log_mel_spectrum_of_a_tone_peaks_in_its_mel_band(hz):
    n_mels, rate = 40, 8000
    spectrum = LogMel(rate, n_mels, n_fft=512, hop_length=128)(tone(hz))
    assert spectrum.shape == (1, n_mels, 4000 // 128 + 1)

    def mel(frequency: float) -> float:
        return 2595 * np.log10(1 + frequency / 700)

    centres = np.linspace(0, mel(rate / 2), n_mels + 2)[1:-1]
    expected = int(np.abs(centres - mel(hz)).argmin())
    assert spectrum[0, :, 5:-5].argmax(dim=0).unique().tolist() == [expected]


def test_silence_is_the_floor_of_the_log_mel_spectrum():
    spectrum = LogMel(8000, 24, n_fft=256, hop_length=100)(torch.zeros(4000))
    torch.testing.assert_close(spectrum, torch.full_like(spectrum, np.log(1e-6)))
