"""One server with the default model and an embedder for all tests of the stage."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import openai
import pytest
import uvicorn
from one_server import EMBEDDER, KEY, MODEL, Served

from structgen import Runner
from structgen.server import Settings, create_app


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    with Runner({"small": MODEL, "vectors": EMBEDDER}, aliases={"gpt-4o": "small"}) as runner:
        settings = Settings(api_keys=("sk-other", KEY), max_outputs=8, cors_origins=("http://a.b",))
        app = create_app(runner, settings)
        config = uvicorn.Config(app, port=0, log_config=None, access_log=False, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not (server.started and app.state.is_ready):
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Served(runner, f"http://127.0.0.1:{port}", port)
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def client(served: Served) -> Iterator[openai.OpenAI]:
    made = openai.OpenAI(base_url=f"{served.root}/v1", api_key=KEY, max_retries=0, timeout=60)
    with made:
        yield made
