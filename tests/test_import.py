"""What importing the library loads."""

from __future__ import annotations

from harness.loaded_packages import loaded_beside_lightning


def test_importing_as_lightning_loads_torch_lightning_and_torchmetrics_only():
    program = "import as_lightning, as_lightning.functional, as_lightning.compat"
    assert loaded_beside_lightning(program) == set()
