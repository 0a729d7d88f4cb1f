"""Gather the records of a sweep's or a comparison's runs, one ``result.json`` a run, into one ``runs.jsonl``.

    python results/gather.py FOLDER ...

A line holds the fields of a ``result.json`` and the path of the run's folder, with sorted keys. The ``result.json``
files, the locks of runs and their empty folders are removed; ``as-lightning-report`` takes the folder as before.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from as_lightning.bench.run.result import RESULT_FILE, RUNS_FILE, read_runs
from as_lightning.bench.run.runner import LOCK_FILE


def gather(folder: Path) -> None:
    """Move the runs below a folder into its ``runs.jsonl``; one that is there already
    is replaced.
    """
    files = [file for name in (RESULT_FILE, LOCK_FILE) for file in folder.rglob(name)]
    records = [asdict(run) | {"path": path} for path, run in read_runs(folder).items()]
    lines = [json.dumps(record, sort_keys=True, separators=(",", ":")) for record in records]
    (folder / RUNS_FILE).write_text("\n".join([*lines, ""]), encoding="utf-8")
    for file in files:
        file.unlink()
        for parent in file.parents:
            if parent == folder or any(parent.iterdir()):
                break
            parent.rmdir()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        gather(Path(name))
