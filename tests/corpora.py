"""Schemas with instances and verdicts, for tests that read many: our own sample, and two corpora.

The sample lies beside this file and is always there; `tests/data/make_sample.py` writes it. The
JSON-Schema-Test-Suite and MaskBench are not part of the project: they are read from
``../shared/data``, or from where STRUCTGEN_DATA says. On a machine without them the tests that need
them are skipped; where CI is set they fail, so that nothing is left out unseen.
"""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DATA = Path(os.environ.get("STRUCTGEN_DATA", Path(__file__).parents[2] / "shared" / "data"))
SAMPLE = Path(__file__).parent / "data" / "sample.jsonl"

both = pytest.mark.parametrize("corpus", ["sample", "suite"])
"""A test that runs over the sample everywhere, and over the suite where it is."""


def need(name: str) -> Path:
    """The path of a file of the corpora; without it the test is skipped, or fails in CI."""
    path = DATA / name
    if not path.exists():
        message = f"{path} is not here; STRUCTGEN_DATA may name another folder"
        if os.environ.get("CI"):
            pytest.fail(f"{message}. With CI set no test may be skipped for that.")
        pytest.skip(message)
    return path


def lines(name: str) -> Iterator[Any]:
    """The JSON values of a compressed file of the corpora, line by line."""
    with lzma.open(need(name), "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def groups(corpus: str) -> list[dict[str, Any]]:
    """Groups of tests as the suite has them: ``draft``, ``file``, ``optional``, ``description``,
    ``schema`` and ``tests``, each of these with ``description``, ``data`` and ``valid``."""
    if corpus == "sample":
        return [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    return list(lines("json-schema-test-suite.jsonl.xz"))


def documents(corpus: str) -> dict[str, Any]:
    """What the schemas of a corpus refer to beside themselves, by URL."""
    if corpus == "sample":
        return {}
    with lzma.open(need("json-schema-test-suite-remotes.json.xz"), "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found
