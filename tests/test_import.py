"""What importing the library loads, and how far the way of a loss is."""

import sys

import lightning.pytorch as pl
import pytest
import torch
from harness.loaded_packages import loaded_beside_lightning
from torch.utils._python_dispatch import TorchDispatchMode

import as_lightning
from as_lightning import ASSoftmaxMixin


def test_the_mixin_loads_at_most_30_modules_of_ours_and_importing_as_lightning_no_package_but_its_own(
    tmp_path,
):
    ours = "print(*(name for name in sys.modules if name.startswith('as_lightning')))"
    found = loaded_beside_lightning(
        f"import as_lightning.mixin\n{ours}\nimport as_lightning.functional, as_lightning.compat",
        tmp_path,
    )
    modules = {name for name in found if name.startswith("as_lightning")}
    assert found == modules
    assert len(modules) <= 30
    assert not [
        name for name in modules if ".variants" in name or ".bench" in name or ".callbacks" in name
    ]


def test_a_star_import_loads_no_package_of_the_app(tmp_path):
    ours = "print(*(name for name in sys.modules if name.startswith('as_lightning.bench')))"
    assert not loaded_beside_lightning(
        f"from as_lightning import *\nASSoftmaxLoss, TemperatureScaling\n{ours}", tmp_path
    )
    assert "compare" in dir(as_lightning)


class Depth(TorchDispatchMode):
    """How many functions of ours are called when an operation first computes with the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.ours: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        computes = func.overloadpacket.__name__ not in (
            "detach",
            "view",
            "_unsafe_view",
            "unsqueeze",
            "alias",
        )
        if (
            not self.ours
            and computes
            and any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in args)
        ):
            frame = sys._getframe()
            while frame is not None:
                if frame.f_globals.get("__name__", "").startswith("as_lightning."):
                    self.ours.append(f"{frame.f_globals['__name__']}.{frame.f_code.co_name}")
                frame = frame.f_back
        return func(*args, **(kwargs or {}))


class Module(ASSoftmaxMixin, pl.LightningModule): ...


@pytest.mark.parametrize("rows", [8, 40_000], ids=["few logits", "many logits"])
def test_a_loss_through_the_mixin_takes_at_most_5_calls_before_arithmetic(rows):
    module, depth = Module(), Depth()
    with depth:
        module.as_softmax_loss(torch.randn(rows, 4), torch.zeros(rows, dtype=torch.int64))
    outside_the_kernel = [call for call in depth.ours if ".kernels." not in call]
    assert depth.ours
    assert len(outside_the_kernel) + 1 <= 5
    assert rows > 8 or len(depth.ours) <= 5
