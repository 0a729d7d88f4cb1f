"""What the tests of data share."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.file_server import FileServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    """A web server of the folder ``home`` in ``tmp_path``."""
    home = tmp_path / "home"
    home.mkdir()
    with FileServer(home) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
