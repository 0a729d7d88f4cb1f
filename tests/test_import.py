"""What importing the library loads."""

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


def test_importing_as_lightning_loads_torch_lightning_and_torchmetrics_only():
    program = "import as_lightning, as_lightning.functional, as_lightning.compat"
    assert loaded_beside_lightning(program) == set()


def test_digits_and_their_network_need_no_package_of_another_modality():
    found = loaded_beside_lightning(
        "from as_lightning.benchmark.data.digits import Digits\n"
        "from as_lightning.benchmark.encoders.small_cnn import SmallCNN\n"
        "from as_lightning.benchmark.tasks.classifier import ASSoftmaxClassifier"
    )
    assert found <= {"sklearn", "scipy.stats", "seqeval"}
