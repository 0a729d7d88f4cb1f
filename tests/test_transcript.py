"""The committed transcript belongs to today's README and script, and names nothing of the machine that made it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import as_lightning

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "transcript.md").read_text(encoding="utf-8")
SCRIPT = runpy.run_path(str(ROOT / "docs" / "transcript.py"))


def test_the_page_has_the_steps_and_files_of_the_script_in_its_order():
    place = 0
    for text, commands in SCRIPT["STEPS"]:
        for piece in (text, *(f"\n$ {command}\n" for command in commands)):
            place = PAGE.index(piece, place)
    shown = [name for name in SCRIPT["FILES"] if f"$ cat {name}\n" in PAGE]
    assert len(shown) >= 3
    for name in shown:
        assert f"$ cat {name}\n{SCRIPT['FILES'][name]}" in PAGE


def test_the_example_is_the_readmes_first_python_block():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.split("```python\n")[1].startswith(SCRIPT["readme_example"]())


def test_the_version_that_was_installed_is_this_one():
    assert f"as_lightning-{as_lightning.__version__}-py3-none-any.whl" in PAGE


def test_samples_are_masked_and_have_neither_loss_nor_gradient():
    (masked,) = re.findall(r"^(\d+) of \d+ validation samples are masked$", PAGE, re.MULTILINE)
    assert int(masked) > 0
    assert f"{masked} have zero loss, {masked} have zero gradient" in PAGE


def test_no_command_has_failed_and_no_path_of_the_machine_is_named():
    assert "Traceback" not in PAGE
    assert not re.search(r"(?<![\w.])/(?:tmp|home|root|usr|work|opt|var)/", PAGE)
    assert "pypi" not in PAGE


def test_of_a_progress_bar_the_last_line_is_shown_and_the_folder_is_left_out():
    printed = (
        "WARNING: Location 'x' is ignored\nEpoch 0: 1/2\rEpoch 0: 2/2\n\n/x/y/a.py:1: warning\nEpoch 1: 2/2\n90%\n"
    )
    assert SCRIPT["as_seen"](printed, Path("/x/y")) == "a.py:1: warning\nEpoch 1: 2/2\n90%"
