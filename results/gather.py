"""Gather the records of a sweep's or a comparison's runs, one ``result.json`` a run, into one ``runs.jsonl``.

    python results/gather.py FOLDER ...

A line holds the fields of a ``result.json`` and the path of the run's folder, with sorted keys. The ``result.json``
files and their empty folders are removed; ``as-lightning-report`` takes the folder as before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from as_lightning.benchmark.run.result import RESULT_FILE, RUNS_FILE, Result


def gather(folder: Path) -> None:
    """Move the runs below a folder into its ``runs.jsonl``; one that is there already is replaced."""
    together = folder / RUNS_FILE
    lines = together.read_text(encoding="utf-8").splitlines() if together.exists() else []
    records = {record["path"]: record for record in map(json.loads, lines)}
    files = sorted(folder.rglob(RESULT_FILE))
    for file in files:
        Result.read(file)  # refuses what is none
        path = file.parent.relative_to(folder).as_posix()
        records[path] = json.loads(file.read_text(encoding="utf-8")) | {"path": path}
    lines = [json.dumps(records[path], sort_keys=True, separators=(",", ":")) for path in sorted(records)]
    together.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for file in files:
        file.unlink()
        for parent in file.parents:
            if parent == folder or any(parent.iterdir()):
                break
            parent.rmdir()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        gather(Path(name))
