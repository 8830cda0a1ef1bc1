"""Shared by the engine tests: one vocabulary of each kind a process."""

from __future__ import annotations

import pytest
import real_tokenizers

from structgen import Vocabulary


@pytest.fixture(params=real_tokenizers.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def vocabulary(kind: str) -> Vocabulary:
    return real_tokenizers.vocabulary(kind)
