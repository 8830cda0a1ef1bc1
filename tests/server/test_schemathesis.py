"""The server keeps to its own document: Schemathesis writes requests of it, right and wrong ones.

Of every answer must hold that it is no 5xx, that its status and shape are in the document, and
that what the document does not allow was refused. (Not all that it allows can be answered: no
schema says that a regular expression is one.) A test run asks a little, the same each time. By
hand, with so many requests of each kind for each endpoint::

    PYTHONPATH=. python tests/server/test_schemathesis.py 60
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from one_server import EMBEDDER, KEY, MODEL, Served, serving

from structgen import Runner
from structgen.server import Settings

# No free text without end, and no form that takes longer than a test may.
SETTINGS = Settings(
    api_keys=(KEY,), max_tokens=4, max_outputs=2, compile_seconds=10, stored_responses=20
)


def run(root: str, cases: int, phases: str) -> subprocess.CompletedProcess[str]:
    """Ask a server."""
    program = [sys.executable, "-m", "schemathesis.cli", "run", f"{root}/openapi.json"]
    arguments = {
        "-H": f"Authorization: Bearer {KEY}",
        "--max-examples": cases,
        "--seed": 1,
        "--phases": phases,
        "--exclude-checks": "positive_data_acceptance",
        "--warnings": "off",
        "--request-timeout": 120,
    }
    program += [str(part) for pair in arguments.items() for part in pair]
    program += ["--continue-on-failure", "--no-shrink"]
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
        "PYTHONPATH": str(here),
    }
    with tempfile.TemporaryDirectory() as folder:  # it leaves notes of what it has found
        return subprocess.run(
            program, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )


def test_answers_are_those_of_the_document(served: Served) -> None:
    with serving(served.runner, SETTINGS) as made:
        told = run(made.root, 2, "fuzzing")
    assert told.returncode == 0, told.stdout[-6000:] + told.stderr[-2000:]
    found = re.search(r"(\d+) generated, \1 passed", told.stdout)
    assert found is not None, told.stdout[-2000:]
    assert int(found[1]) > 40


if __name__ == "__main__":
    with (
        Runner({"small": MODEL, "vectors": EMBEDDER}, aliases={"gpt-4o": "small"}) as runner,
        serving(runner, SETTINGS) as made,
    ):
        told = run(made.root, int(sys.argv[1]), "examples,coverage,fuzzing,stateful")
    print(told.stdout, told.stderr)
    sys.exit(told.returncode)
