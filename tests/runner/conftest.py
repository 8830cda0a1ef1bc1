"""One Runner with the default model for all tests of the stage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from structgen import Runner

MODEL = "smollm2-135m-instruct"


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    with Runner({"small": MODEL}, aliases={"default": "small"}) as made:
        yield made
