"""How the app's packages are installed, and the folder of its configs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

INSTALL = (
    'install the extra "benchmark": in a checkout pip install -c constraints.txt ".[benchmark]", '
    'of a wheel pip install "FILE.whl[benchmark]"'
)
TOGETHER = ("torch==2.11.0", "torchvision==0.26.0", "torchaudio==2.11.0")  # as constraints.txt


def with_way_out(error: ModuleNotFoundError) -> str:
    """Return an error's message, with the command that installs the module that it names."""
    if error.name is None or INSTALL in str(error):
        return str(error)
    return f"{error}: {INSTALL}"


@contextmanager
def loading(package: str) -> Iterator[None]:
    """Explain inside an import of `torchvision` or `torchaudio` that is for another torch."""
    try:
        yield
    except ModuleNotFoundError:
        raise
    except (ImportError, OSError, RuntimeError) as error:
        raise ImportError(
            f"{package} does not load beside torch {version('torch')}: it was built for another "
            f"one ({error}). Install three that belong together: pip install {' '.join(TOGETHER)} "
            "(for a build without CUDA add --index-url https://download.pytorch.org/whl/cpu)",
            name=package,
        ) from error


def config_dir() -> Path:
    """Return the directory that holds `train.yaml`: that of the wheel, or that of the checkout."""
    package = Path(__file__).resolve().parents[1]
    return package / "conf" if (package / "conf").is_dir() else package.parents[1] / "conf"
