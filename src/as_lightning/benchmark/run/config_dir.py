"""Where the Hydra configs lie: beside the source in a checkout, inside the package in a wheel."""

from __future__ import annotations

from pathlib import Path


def config_dir() -> Path:
    """The directory that holds ``train.yaml``.

    Raises:
        FileNotFoundError: if the installation carries no configs.
    """
    package = Path(__file__).resolve().parents[2]
    for candidate in (package / "conf", package.parents[1] / "conf"):
        if (candidate / "train.yaml").is_file():
            return candidate
    raise FileNotFoundError(f"no conf/train.yaml in {package} or {package.parents[1]}: install as-lightning again")
