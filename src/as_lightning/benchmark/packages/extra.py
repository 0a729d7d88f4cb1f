"""What the extra ``as-lightning[benchmark]`` installs, and what to say where it is missing."""

from __future__ import annotations

from importlib.util import find_spec

# what no run, comparison or report goes without; packages of one modality are loaded where they are used
CORE = {
    "hydra": "hydra-core",
    "sklearn": "scikit-learn",
    "scipy": "scipy",
    "statsmodels": "statsmodels",
    "pandas": "pandas",
    "matplotlib": "matplotlib",
    "rich": "rich",
    "jinja2": "jinja2",
    "filelock": "filelock",
}
MODALITIES = {
    "torchvision": "torchvision",
    "torchaudio": "torchaudio",
    "tensorboard": "tensorboard",
    "baycomp": "baycomp",
    "pooch": "pooch",
    "soundfile": "soundfile",
    "tokenizers": "tokenizers",
    "seqeval": "seqeval",
    "entmax": "entmax",
}

COMMAND = 'pip install "as-lightning[benchmark]" (in a checkout: pip install -c constraints.txt ".[benchmark]")'


def missing_packages() -> list[str]:
    """The packages that the benchmark always needs and that are not installed."""
    return [package for module, package in CORE.items() if find_spec(module) is None]


def how_to_install(packages: list[str]) -> str:
    """The end of a message: ``needs the package x: pip install ...``."""
    kind = "package" if len(packages) == 1 else "packages"
    return f"needs the {kind} {', '.join(packages)}: {COMMAND}"


def package_of(error: BaseException | None) -> str | None:
    """The package of the extra that an error, or one of its causes, says is missing; None if it says no such thing."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            top = error.name.partition(".")[0]
            return (CORE | MODALITIES).get(top)
        error = error.__cause__ or error.__context__
    return None
