"""The same mixed requests with a further model, where it is in the cache: `pytest -m large`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mixed import EMBEDDER, GEMMA, SMALL, all_at_once, tiny_model

from structgen import Runner, models

pytestmark = pytest.mark.large


def test_three_real_models_and_a_tiny_one(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    asked = request.config.option.markexpr == "large"
    if not asked and all(one.name != GEMMA for one in models.installed()):
        pytest.skip(f"{GEMMA} is not in the cache; `pytest -m large` fetches it")
    sources = {"small": SMALL, "vectors": EMBEDDER, "tiny": tiny_model(tmp_path), "gemma": GEMMA}
    with Runner(sources) as runner:
        asyncio.run(all_at_once(runner, 54))
        assert set(runner.list_models_with_status().values()) == {"loaded"}
