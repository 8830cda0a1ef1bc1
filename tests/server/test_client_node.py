"""Vercel's AI SDK, from Node: runs where its packages are installed.

npm install --no-package-lock --prefix tests/server/node
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from doc_blocks import block
from one_server import KEY, Served

HERE = Path(__file__).with_name("node")
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(NODE is None, reason="needs Node 20 or later"),
    pytest.mark.skipif(
        not (HERE / "node_modules" / "ai").exists(),
        reason="needs npm install --no-package-lock --prefix tests/server/node",
    ),
]


def test_objects_streams_tools_and_vectors(served: Served) -> None:
    assert NODE is not None
    given = {"STRUCTGEN_URL": f"{served.root}/v1", "STRUCTGEN_KEY": KEY}
    made = subprocess.run(
        [NODE, str(HERE / "ask.mjs")],
        env=os.environ | given,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout)
    assert found["object"]["country"] in ("Italy", "Norway")
    assert found["tokens"] > 0
    assert found["warnings"] == []
    assert found["partials"] > 1
    assert found["choice"] in ("tea", "coffee")
    assert found["results"]
    assert all(one.startswith("12 degrees in ") for one in found["results"])
    assert all(one["city"] in ("Rome", "Oslo") for one in found["calls"])
    assert found["dimensions"] == 384


def test_the_block_of_the_documents(served: Served) -> None:
    assert NODE is not None
    text = block("docs/clients.md", "import { createOpenAICompatible }")
    for theirs, ours in (("http://127.0.0.1:8000/v1", f"{served.root}/v1"), ("sk-local", KEY)):
        assert theirs in text
        text = text.replace(theirs, ours)
    made = subprocess.run(
        [NODE, "--input-type=module", "-e", f"{text}\nconsole.log(JSON.stringify(object));"],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["country"] in ("Italy", "Norway")
