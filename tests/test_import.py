"""What importing the library loads."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest

import as_lightning.data
import as_lightning.models

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
    program = (
        "import as_lightning, as_lightning.functional, as_lightning.compat, as_lightning.data, as_lightning.models"
    )
    assert loaded_beside_lightning(program) == set()


def test_digits_and_their_network_need_no_package_of_another_modality():
    found = loaded_beside_lightning(
        "from as_lightning.data import Digits\nfrom as_lightning.models import SmallCNN, ASSoftmaxClassifier"
    )
    assert found <= {"sklearn", "scipy.stats", "seqeval"}


@pytest.mark.parametrize("package", [as_lightning.data, as_lightning.models])
def test_every_exported_name_is_there_and_is_listed(package):
    assert dir(package) == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name).__name__ == name


@pytest.mark.parametrize("package", [as_lightning.data, as_lightning.models])
def test_a_name_that_is_not_exported_is_refused_as_of_any_module(package):
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Nope'"):
        _ = package.Nope
