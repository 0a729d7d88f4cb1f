"""What the tests of data share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.file_server import FileServer, file_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    """A web server of the folder ``home`` in ``tmp_path``."""
    home = tmp_path / "home"
    home.mkdir()
    with file_server(home) as server:
        yield server
