"""For all tests: the default model; arrays of tokenizers, made by the code under test."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import structgen
from structgen.storage import array_cache

if TYPE_CHECKING:  # or every test would import the runtime
    from structgen.models.genai.model import TextModel


SLOW = Path(__file__).with_name("slow.txt")

# Machines may be busy: no test is about time.
settings.register_profile("structgen", deadline=None)
settings.load_profile("structgen")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Fetch the default model, once: a test in which that happened would see it reported."""
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    with contextlib.suppress(structgen.StructgenError):  # those who need it say what is wrong
        structgen.models.path("smollm2-135m-instruct")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep what was imported and collected out of collections: 5,000 tests are many objects."""
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("structgen")
    group.addoption("--everything", action="store_true", help="run the slow tests, too")
    group.addoption("--rest", action="store_true", help="run the slow tests alone")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One for each processor there is to use; each holds a model, so 8 at most."""
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests (``slow.txt``), where nothing is asked for by name."""
    # Each worker process would have tests of other names.
    if found := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"names of tests hold addresses: {found}. Give ids=.")
    by_name = any(Path(argument.partition("::")[0]).is_file() for argument in config.args)
    if by_name or config.option.keyword or config.option.markexpr or config.option.everything:
        return
    slow = set(SLOW.read_text(encoding="utf-8").split())

    def is_slow(item: pytest.Item) -> bool:
        steps = itertools.accumulate(item.nodeid.partition("[")[0].split("::"), "{}::{}".format)
        return not slow.isdisjoint(steps)

    left = [item for item in items if is_slow(item) != config.option.rest]
    items[:] = [item for item in items if is_slow(item) == config.option.rest]
    config.hook.pytest_deselected(items=left)


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
