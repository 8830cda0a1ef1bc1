"""One Runner for all adapters; tests of packages that need a newer Python are left out."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import pytest
from inside import arguments_asked

from structgen import Runner

# Frameworks phone home unless told otherwise, and wait where there is no network.
os.environ["LANGSMITH_TRACING"] = "false"
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"

collect_ignore_glob = [  # they need Python 3.11
    f"test_{name}*.py"
    for name, package in (("pydantic_ai",) * 2, ("haystack",) * 2, ("langchain", "langchain_core"))
    if importlib.util.find_spec(package) is None
]


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    """A chat model, ``small``, which is ``main`` too, and an embedder, ``vectors``."""
    models = {"small": "smollm2-135m-instruct", "vectors": "all-minilm-l6-v2"}
    with Runner(models, aliases={"main": "small"}) as made:
        yield made


@pytest.fixture
def asked_arguments(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, object]]]:
    """JSON Schemas that masks enforce of arguments of tools; the test is to ask of some, closed."""
    found = arguments_asked(monkeypatch)
    yield found
    assert found
    assert all(one["additionalProperties"] is False for one in found)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
