"""The packages that the app needs, the messages where one is missing, and the folder of its
configs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

# the packages that every run, comparison or report needs, by their modules
SAME_NAME = ["scipy", "pandas", "matplotlib", "rich", "filelock", "jinja2", "joblib", "pooch"]
CORE = {"hydra": "hydra-core", "sklearn": "scikit-learn", "cloudpickle": "cloudpickle"}
CORE |= {"seqeval": "seqeval", **{name: name for name in SAME_NAME}}
# those of one modality are loaded where they are used
MODALITIES = ("torchvision", "torchaudio", "tensorboard", "soundfile", "tokenizers")
COMMAND = 'in a checkout pip install -c constraints.txt ".[benchmark]", of a wheel pip install "FILE.whl[benchmark]"'
TOGETHER = ("torch==2.11.0", "torchvision==0.26.0", "torchaudio==2.11.0")  # as constraints.txt


def missing_packages() -> list[str]:
    """Return the packages that the app always needs and that are not installed."""
    return [package for module, package in CORE.items() if find_spec(module) is None]


def how_to_install(packages: list[str]) -> str:
    """Return the end of a message: `needs the package x: pip install ...`."""
    plural = "s" if len(packages) > 1 else ""
    return f"needs the package{plural} {', '.join(packages)}: {COMMAND}"


def require_core() -> None:
    """Raise `ImportError` if a package that the app always needs is missing."""
    missing = missing_packages()
    if missing:
        raise ImportError(f"as_lightning.bench {how_to_install(missing)}", name=missing[0])


def package_of(error: BaseException | None) -> str | None:
    """Return the missing package of the extra that an error, or one of its causes, names."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            module = error.name.partition(".")[0]
            return module if module in MODALITIES else CORE.get(module)
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def loading(package: str) -> Iterator[None]:
    """Import `torchvision` or `torchaudio` inside: an `ImportError` explains one that was built for
    another torch.
    """
    try:
        yield
    except ModuleNotFoundError:
        raise
    except (ImportError, OSError, RuntimeError) as error:
        raise ImportError(
            f"{package} does not load beside torch {version('torch')}: it was built for another one "
            f"({error}). Install three that belong together: pip install {' '.join(TOGETHER)} "
            "(for a build without CUDA add --index-url https://download.pytorch.org/whl/cpu)",
            name=package,
        ) from error


def config_dir() -> Path:
    """Return the directory that holds `train.yaml`: that of the wheel, or that of the checkout."""
    package = Path(__file__).resolve().parents[1]
    return package / "conf" if (package / "conf").is_dir() else package.parents[1] / "conf"
