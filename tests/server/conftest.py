"""One server with the default model and an embedder for all tests of the stage."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest
from one_server import EMBEDDER, KEY, MODEL, Served, serving

from structgen import Runner
from structgen.server import Settings


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    with Runner({"small": MODEL, "vectors": EMBEDDER}, aliases={"gpt-4o": "small"}) as runner:
        settings = Settings(
            api_keys=("sk-other", KEY),
            max_outputs=8,
            cors_origins=("http://a.b",),
            allow_unload=True,
        )
        with serving(runner, settings) as made:
            yield made


@pytest.fixture(scope="session")
def client(served: Served) -> Iterator[openai.OpenAI]:
    made = openai.OpenAI(base_url=f"{served.root}/v1", api_key=KEY, max_retries=0, timeout=60)
    with made:
        yield made


@pytest.fixture(scope="session")
def http(served: Served) -> Iterator[httpx.Client]:
    auth = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=served.root, headers=auth, timeout=60) as made:
        yield made
