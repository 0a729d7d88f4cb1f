"""The log-mel spectrogram, the usual input of audio networks."""

from __future__ import annotations

from torch import Tensor, nn

from as_lightning.benchmark.packages import loading

LOG_FLOOR = 1e-6  # power below which log-mel takes all for silence: about that of 16-bit rounding noise


class LogMel(nn.Module):
    r"""The logarithm of the mel-scaled power spectrum.

    .. math:: \log \max\Big(\epsilon, \sum_f M_{mf} \, |\mathrm{STFT}(x)_{ft}|^2\Big), \quad \epsilon = 10^{-6}

    ``M`` are triangular filters on the HTK mel scale from 0 Hz to half the sample rate, the window is Hann's.

    Args:
        sample_rate: of the waveforms, in Hz.
        n_mels: mel bands, at least 1.
        n_fft: length of the window in samples, at least 2.
        hop_length: samples from a frame to the next, at least 1.

    Shape:
        - input: ``(samples,)``, more than ``n_fft // 2`` of them; output: ``(1, n_mels, samples // hop_length + 1)``.

    Source: :class:`torchaudio.transforms.MelSpectrogram`.
    """

    def __init__(self, sample_rate: int, n_mels: int, n_fft: int, hop_length: int) -> None:
        super().__init__()
        with loading("torchaudio"):
            from torchaudio.transforms import MelSpectrogram

        self.mel = MelSpectrogram(sample_rate, n_fft=n_fft, hop_length=hop_length, n_mels=n_mels)

    def forward(self, waveform: Tensor) -> Tensor:
        return self.mel(waveform).clamp(min=LOG_FLOOR).log().unsqueeze(0)
