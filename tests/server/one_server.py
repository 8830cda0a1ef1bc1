"""What tests know of the server that they share, and how to run others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from structgen import Runner
from structgen.integrations.connections import connections
from structgen.server import Settings, create_app

MODEL = "smollm2-135m-instruct"
EMBEDDER = "all-minilm-l6-v2"
KEY = "sk-test-1"


@dataclass(frozen=True)
class Served:
    """A server that runs in a thread of this process."""

    runner: Runner
    root: str
    port: int


@contextmanager
def serving(runner: Runner, settings: Settings) -> Iterator[Served]:
    """A server that answers with a Runner, until the end of the block."""
    app = create_app(runner, settings)
    http = connections(settings.body_seconds, settings.write_seconds)
    config = uvicorn.Config(app, port=0, http=http, log_config=None, access_log=False, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not (server.started and app.state.is_ready):
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Served(runner, f"http://127.0.0.1:{port}", port)
    finally:
        server.should_exit = True
        thread.join()
