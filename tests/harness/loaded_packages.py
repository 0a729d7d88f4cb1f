"""Which of the optional packages a program loads, seen from a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

OPTIONAL = (
    *("torchvision", "torchaudio", "hydra", "sklearn", "scipy.stats", "entmax", "tokenizers", "pooch"),
    *("soundfile", "seqeval", "transformers", "PIL"),
)


def loaded_beside_lightning(program: str) -> set[str]:
    """Which of them a program loads that torch, Lightning and torchmetrics have not loaded before."""
    lines = [
        "import sys, torch, lightning.pytorch, torchmetrics",
        "before = set(sys.modules)",
        program,
        f"print(*[name for name in {OPTIONAL} if name in sys.modules and name not in before])",
    ]
    said = subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, capture_output=True, text=True)
    return set(said.stdout.split())
