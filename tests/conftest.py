"""For all tests: the default model; arrays of tokenizers, made by the code under test."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import structgen
from structgen.storage import array_cache

if TYPE_CHECKING:  # or every test would import the runtime
    from structgen.models.genai.model import TextModel


# Machines may be busy: no test is about time.
settings.register_profile("structgen", deadline=None)
settings.load_profile("structgen")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Fetch the default model, once: a test in which that happened would see it reported."""
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    with contextlib.suppress(structgen.StructgenError):  # those who need it say what is wrong
        structgen.models.path("smollm2-135m-instruct")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names with an address: each worker process would have tests of other names."""
    found = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if found:
        raise pytest.UsageError(f"names of tests hold addresses: {found}. Give ids=.")


@pytest.fixture(scope="session", autouse=True)
def arrays_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # which the workers of one run share
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_cache, "root", lambda: folder / "arrays")
        yield


@pytest.fixture(scope="module")
def model() -> TextModel:
    """The default model; what it keeps of calls goes with the module that asked."""
    return structgen.load("smollm2-135m-instruct")
