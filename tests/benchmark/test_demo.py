"""The demo's own parts show what they say; the comparison has tests of its own."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest


def test_the_demos_windows_and_masking_are_what_its_text_says(capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_from_file_location("demo", Path(__file__).parents[2] / "docs/demo.py")
    assert spec is not None
    assert spec.loader is not None
    demo = module_from_spec(spec)
    spec.loader.exec_module(demo)
    demo.masking_and_accumulation()
    demo.exact_windows()
    printed = capsys.readouterr().out
    masked = [int(share) for share in re.findall(r"masked +(\d+)% \|", printed)]
    assert masked[0] < 45 < 85 < masked[-1]
    stock, ours = (float(apart) for apart in re.findall(r"(\d\.\de-\d+)$", printed, re.MULTILINE))
    assert ours < 1e-14 < 1e-3 < stock
