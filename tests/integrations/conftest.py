"""One Runner for all adapters; tests of packages that need a newer Python are left out."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import pytest

from structgen import Runner

# Frameworks phone home unless told otherwise, and wait where there is no network.
os.environ["LANGSMITH_TRACING"] = "false"
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"

collect_ignore = []
if importlib.util.find_spec("pydantic_ai") is None:  # it needs Python 3.11
    collect_ignore.append("test_pydantic_ai.py")


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    """A chat model, ``small``, which is ``main`` too, and an embedder, ``vectors``."""
    models = {"small": "smollm2-135m-instruct", "vectors": "all-minilm-l6-v2"}
    with Runner(models, aliases={"main": "small"}) as made:
        yield made


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
