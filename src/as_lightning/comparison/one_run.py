"""One run of a comparison in processes of its own: Lightning starts the others by its command,
``python -m as_lightning.comparison.one_run FOLDER RUN``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import cloudpickle

from as_lightning.bench.run.result import own_file
from as_lightning.bench.run.runner import quiet_training
from as_lightning.comparison.make import CANDIDATES_FILE, make_here
from as_lightning.comparison.plan import Run

if __name__ == "__main__":
    directory = Path(sys.argv[1])
    recipe = cloudpickle.loads(own_file(directory / CANDIDATES_FILE).read_bytes())
    with quiet_training():
        make_here(recipe, directory, Run(**json.loads(sys.argv[2])))
