"""One Runner with the default model for all tests of the stage."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

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


@pytest.fixture
def slow_class() -> Iterator[type[BaseModel]]:
    """A class for a tool, whose check does not return before the test has ended."""
    go_on = threading.Event()

    class Slow(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def check(cls, n: int) -> int:
            go_on.wait(60)
            return n

        def __call__(self) -> int:
            return self.n

    yield Slow
    go_on.set()
