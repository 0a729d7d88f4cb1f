"""A web server on this machine that serves a folder."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder; what is asked for below ``cut/`` breaks off half-way."""

    server: FileServer

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.requests.append(self.path)
        if not self.path.startswith("/cut/"):
            super().do_GET()
            return
        content = (Path(self.directory) / self.path.removeprefix("/cut/")).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])


class FileServer(ThreadingHTTPServer):
    """Serves the folder ``home`` by ``url/name``, and half of a file by ``url/cut/name``;
    ``requests`` are paths.
    """

    def __init__(self, home):
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(home)))
        self.home = home
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests: list[str] = []
