"""Which of the optional packages a program loads, seen from a fresh interpreter."""

from __future__ import annotations

import functools
import subprocess
import sys

OPTIONAL = (
    *("torchvision", "torchaudio", "hydra", "sklearn", "scipy.stats", "entmax", "tokenizers", "pooch", "statsmodels"),
    *("soundfile", "seqeval", "transformers", "PIL"),
)


@functools.cache
def loaded(program: str) -> set[str]:
    """Which of the optional packages a program has loaded at its end."""
    said = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*[name for name in {OPTIONAL} if name in sys.modules])"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(said.stdout.split())


def loaded_beside_lightning(program: str) -> set[str]:
    return loaded(program) - loaded("import torch, lightning.pytorch, torchmetrics")
