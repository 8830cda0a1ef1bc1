"""A stand-in for the package index: as much of it as ``pip download`` needs of a few wheels.

It can cut transfers short, and tells which wheels it sent.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Index:
    """The server, on a free port of this machine.

    Attributes:
        wheels: their content by file name.
        cut: wheels whose transfer ends half-way.
        sent: the names of wheels that were asked for, in order.
    """

    def __init__(self):
        self.wheels: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.sent: list[str] = []

        class Handler(_Handler):
            index = self

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    index: Index

    def log_message(self, *_):
        pass

    def do_GET(self):
        name = self.path.strip("/").split("/")[-1]
        if name in self.index.wheels:
            body, kind = self.index.wheels[name], "application/octet-stream"
            self.index.sent.append(name)
        else:
            links = [wheel for wheel in self.index.wheels if wheel.startswith(f"{name}-")]
            page = "".join(f'<a href="/files/{wheel}">{wheel}</a>' for wheel in links)
            body, kind = page.encode(), "text/html"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if name in self.index.cut else body)
        self.close_connection = True
