"""One Runner with the default model for all tests of the stage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from structgen import Runner
from structgen.runner import CodeExecutionConfig

MODEL = "smollm2-135m-instruct"


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    search: Any = {"enable_search": True, "search_callback": lambda query: []}
    search["search_embedding_model"] = "small"  # nothing is found, so that nothing is ranked
    search["code_execution_config"] = CodeExecutionConfig() if os.name == "posix" else None
    with Runner({"small": MODEL}, aliases={"default": "small"}, **search) as made:
        yield made
