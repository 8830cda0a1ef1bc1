"""A stand-in server, and models that ask it by the real client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

import structgen

from .chat_server import ChatServer, Reply


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer([Reply("")]) as running:
        yield running


@pytest.fixture
def remote(server: ChatServer) -> Iterator[Callable[..., structgen.RemoteModel]]:
    """Makes a model of the server, for a dialect and what it is to say."""
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client:

        def make(*replies: Any, dialect: Any = "openai", **options: Any) -> structgen.RemoteModel:
            if replies:
                server.say = [r if isinstance(r, Reply) else Reply(r) for r in replies]
            return structgen.from_openai(client, "stand-in", dialect=dialect, **options)

        yield make
