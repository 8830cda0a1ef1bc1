"""For all tests: arrays of tokenizers are made by the code under test, not found in a cache."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from structgen import array_cache


@pytest.fixture(scope="session", autouse=True)
def arrays_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # which the workers of one run share
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_cache, "root", lambda: folder / "arrays")
        yield
