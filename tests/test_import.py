"""What importing the library loads, and how far the way of a loss is."""

from harness.loaded_packages import loaded_beside_lightning

import as_lightning


def test_the_mixin_loads_neither_callbacks_nor_the_app_and_importing_as_lightning_no_other_package(
    tmp_path,
):
    ours = "print(*(name for name in sys.modules if name.startswith('as_lightning')))"
    found = loaded_beside_lightning(
        f"import as_lightning.mixin\n{ours}\nimport as_lightning.functional, as_lightning.compat",
        tmp_path,
    )
    modules = {name for name in found if name.startswith("as_lightning")}
    assert found == modules
    assert not [name for name in modules if ".bench" in name or ".callbacks" in name]


def test_a_star_import_loads_no_package_of_the_app(tmp_path):
    ours = "print(*(name for name in sys.modules if name.startswith('as_lightning.bench')))"
    assert not loaded_beside_lightning(
        f"from as_lightning import *\nASSoftmaxLoss, TemperatureScaling\n{ours}", tmp_path
    )
    assert "compare" in dir(as_lightning)
