"""The lines that the documentation gives for shell completion, in a bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import as_lightning

PAGE = Path(__file__).parents[3] / "docs/running.md"
PROGRAM = "#!{python}\nfrom as_lightning.benchmark.commands.console import {function}\n{function}()\n"
TAB = """
complete -p {command}
COMP_LINE='{command} experiment=di' COMP_CWORD=1
COMP_POINT=${{#COMP_LINE}}
hydra_bash_completion
echo "completed: ${{COMPREPLY[*]}}"
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(("command", "function"), [("as-lightning", "train"), ("as-lightning-compare", "compare")])
def test_the_documented_line_installs_the_completion_of_the_command(command, function, tmp_path):
    line = f'eval "$({command} -sc install=bash)"'
    assert f"`{line}`" in PAGE.read_text(encoding="utf-8")
    program = tmp_path / command
    program.write_text(PROGRAM.format(python=sys.executable, function=function), encoding="utf-8")
    program.chmod(0o755)
    source = str(Path(as_lightning.__file__).parents[1])
    done = subprocess.run(
        ["bash", "--norc", "-c", line + TAB.format(command=command)],
        cwd=tmp_path,
        env=os.environ
        | {
            "PATH": os.pathsep.join((str(tmp_path), os.environ["PATH"])),
            "PYTHONPATH": os.pathsep.join((source, *filter(None, [os.environ.get("PYTHONPATH")]))),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    rule, completed = done.stdout.splitlines()
    assert rule.startswith("complete ")
    assert rule.endswith(f"-F hydra_bash_completion {command}")
    assert completed == "completed: experiment=digits"
    assert done.stderr == ""
