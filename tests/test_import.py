"""What importing the library loads."""

from __future__ import annotations

import subprocess
import sys


def test_importing_as_lightning_loads_torch_lightning_and_torchmetrics_only():
    program = (
        "import sys, as_lightning, as_lightning.functional, as_lightning.compat\n"
        "print([name for name in ('torchvision', 'torchaudio', 'hydra', 'sklearn', 'scipy.stats', 'entmax', "
        "'tokenizers', 'pooch', 'statsmodels', 'soundfile') if name in sys.modules])"
    )
    before = (
        "import sys, torch, lightning.pytorch, torchmetrics\n"
        "print([name for name in ('torchvision', 'torchaudio', 'hydra', 'sklearn', 'scipy.stats', 'entmax', "
        "'tokenizers', 'pooch', 'statsmodels', 'soundfile') if name in sys.modules])"
    )
    loaded = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        for code in (before, program)
    ]
    assert loaded[0] == loaded[1]
