"""The console scripts where the benchmark's packages are missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT_HYDRA = "import sys; sys.modules['hydra'] = None; from as_lightning.benchmark.console import {}; {}()"


@pytest.mark.parametrize(("function", "command"), [("train", "as-lightning"), ("report", "as-lightning-report")])
def test_a_command_without_its_packages_names_the_extra(function, command):
    missing = WITHOUT_HYDRA.format(function, function).replace("hydra", "hydra" if function == "train" else "pandas")
    finished = subprocess.run([sys.executable, "-c", missing], capture_output=True, text=True, check=False)
    package = "hydra" if function == "train" else "pandas"
    assert finished.returncode == 1
    assert finished.stderr == f'{command} needs the package {package}: pip install "as-lightning[benchmark]"\n'
