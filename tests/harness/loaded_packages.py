"""Which of the optional packages a program loads, seen from a process that has loaded
none of them.
"""

import sys
from functools import partial

from harness.prepared_processes import run

OPTIONAL = (
    *(
        "torchvision",
        "torchaudio",
        "hydra",
        "sklearn",
        "scipy.stats",
        "entmax",
        "tokenizers",
        "pooch",
    ),
    *("soundfile", "seqeval", "transformers", "PIL"),
)


def loaded_beside_lightning(program, folder):
    """Which of them a program loads that torch, Lightning and torchmetrics have not loaded; and
    what it prints.
    """
    done = run(partial(_print_loaded, program), folder=folder)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def _print_loaded(program):
    """Run it as an interpreter would that has not loaded the library yet, nor the optional
    packages.
    """
    for name in [*sys.modules]:
        if name.split(".")[0] == "as_lightning" or name.startswith(OPTIONAL):
            del sys.modules[name]
    exec(compile(program, "program", "exec"), {"sys": sys})
    print(*[name for name in OPTIONAL if name in sys.modules])
