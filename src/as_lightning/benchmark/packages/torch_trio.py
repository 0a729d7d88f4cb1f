"""torch, torchvision and torchaudio load only beside the builds that they were made for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

TOGETHER = ("torch==2.11.0", "torchvision==0.26.0", "torchaudio==2.11.0")  # as constraints.txt


@contextmanager
def loading(package: str) -> Iterator[None]:
    """Import ``torchvision`` or ``torchaudio`` inside: if it was built for another torch, the error says what to do.

    Args:
        package: its name.

    Raises:
        ImportError: in place of the ``RuntimeError`` (an operator does not exist, another version of CUDA) or
            ``OSError`` (an undefined symbol) that such a package ends with. A missing one stays a
            ``ModuleNotFoundError``.
    """
    try:
        yield
    except ModuleNotFoundError:
        raise
    except (ImportError, OSError, RuntimeError) as error:
        raise ImportError(
            f"{package} {_version(package)} does not load beside torch {_version('torch')}: it was built for another "
            f"one ({' '.join(str(error).split())}). Install three that belong together: pip install "
            f"{' '.join(TOGETHER)} (for a build without CUDA add --index-url https://download.pytorch.org/whl/cpu)",
            name=package,
        ) from error


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of an unknown version"
