"""A stand-in for the Hugging Face hub: as much of its HTTP surface as a snapshot needs.

Repositories are dictionaries of bytes. It can cut transfers short, refuse, and counts requests.
"""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """The server, on a free port of this machine.

    Attributes:
        repositories: files by name, by repository id.
        gated: repositories that answer 401 with the hub's word for gated.
        refused: repositories that answer a bare status: {repository: status}.
        cuts: how often the transfer of a file is still to be cut half-way: {file: times}.
        altered: content that is sent instead of a file's own: {file: content}.
        downloads: (file, first byte asked for) of every GET for content, in order.
        requests: how many requests of any kind there were.
        tokens: what these had for a token.
    """

    def __init__(self):
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.refused: dict[str, int] = {}
        self.cuts: dict[str, int] = {}
        self.altered: dict[str, bytes] = {}
        self.downloads: list[tuple[str, int]] = []
        self.requests = 0
        self.tokens: set[str | None] = set()
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
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
    hub: Hub

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()

    def _answer(self):
        self.hub.requests += 1
        self.hub.tokens.add(self.headers["Authorization"])
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        if api:
            parts = parts[2:]
        repository, rest = "/".join(parts[:2]), parts[2:]
        if repository in self.hub.gated:
            self._error(401, "GatedRepo")
        elif repository in self.hub.refused:
            self._error(self.hub.refused[repository], "")
        elif repository not in self.hub.repositories:
            self._error(404, "RepoNotFound")
        elif api and rest[:1] == ["tree"]:
            self._tree(self.hub.repositories[repository])
        elif api and (not rest or rest[0] == "revision"):
            self._info(repository, self.hub.repositories[repository])
        elif rest[:1] == ["resolve"]:
            self._file(self.hub.repositories[repository], "/".join(rest[2:]))
        else:
            self._error(404, "EntryNotFound")

    def _info(self, repository, files):
        siblings = [_sibling(name, data) for name, data in files.items()]
        self._json({"id": repository, "sha": COMMIT, "siblings": siblings})

    def _tree(self, files):
        self._json(
            [
                {"type": "file", "path": name, "size": len(data), "oid": _etag(data)}
                for name, data in files.items()
            ]
        )

    def _file(self, files, name):
        if name not in files:
            self._error(404, "EntryNotFound")
            return
        data = self.hub.altered.get(name, files[name])
        asked = self.headers.get("Range", "bytes=0-")
        first = int(asked.removeprefix("bytes=").split("-")[0])
        if first >= len(data) > 0:
            self._head(416, 0, {"Content-Range": f"bytes */{len(data)}"})
            return
        status, headers = 200, {"ETag": f'"{_etag(data)}"', "Accept-Ranges": "bytes"}
        if "Range" in self.headers:
            status = 206
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        self._head(status, len(data) - first, headers)
        if self.command == "HEAD":
            return
        self.hub.downloads.append((name, first))
        body = data[first:]
        if self.hub.cuts.get(name, 0) > 0:
            self.hub.cuts[name] -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)
        self.close_connection = True

    def _json(self, value):
        body = json.dumps(value).encode()
        self._head(200, len(body), {"Content-Type": "application/json"})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status, code):
        self._head(status, 0, {"X-Error-Code": code, "X-Error-Message": code} if code else {})

    def _head(self, status, length, headers):
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("X-Repo-Commit", COMMIT)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _etag(data):
    return hashlib.sha1(data).hexdigest()


def _sibling(name, data):
    """What the hub says of a file; of a large one, its SHA-256, and the id of a note about it."""
    said = {"rfilename": name, "size": len(data)}
    if name.endswith((".data", ".onnx")):
        digest = hashlib.sha256(data).hexdigest()  # in letters of either kind
        digest = digest.upper() if name.endswith(".onnx") else digest
        lfs = {"sha256": digest, "size": len(data), "pointerSize": 130}
        return {**said, "blobId": _etag(b"note"), "lfs": lfs}
    return {**said, "blobId": hashlib.sha1(b"blob %d\0%s" % (len(data), data)).hexdigest()}
