"""A forked child goes on whatever other threads were doing when it was forked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent.parent / "structgen"
OWN_WAY = {
    "storage/array_cache.py": "has a reset of its own",
    "storage/locks.py": "makes none",
    "decoding/stream.py": "of one output, which nobody reads on in a child",
    "models/genai/media.py": "of one model, which does not live on in a child",
    "models/genai/sequences.py": "of one model, which does not live on in a child",
    "models/genai/whisper.py": "of one model, which does not live on in a child",
    "models/embedding/session.py": "of one model, which does not live on in a child",
    "asking.py": "of one model",
    "workers/process.py": "of one process that was started here; a child starts its own",
    "workers/scheduler.py": "of one model, which does not live on in a child",
    "workers/worker.py": "of a process of its own, which nobody forks",
    "insight/confidence.py": "of one result",
    "runner/code.py": "of one Runner, whose loop does not live on in a child",
    "runner/mcp.py": "of one server that was started here; a child starts its own",
    "runner/tools.py": "of one tool, and of one call of it",
    "runner/registry.py": "of one Runner, whose loop does not live on in a child",
    "runner/runner.py": "of one Runner, whose loop does not live on in a child",
    "runner/sessions.py": "of one Runner, whose loop does not live on in a child",
    "server/batches.py": "of one batch that is answered here; a child answers none",
}


def test_every_lock_of_the_engine_is_looked_after() -> None:
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        bare = re.findall(
            r"(?<!fork_safe\()threading\.R?Lock\(\)", path.read_text(encoding="utf-8")
        )
        assert not bare or name in OWN_WAY, f"{name} has a lock that a forked child may find taken"


SCRIPT = """
import os, sys, threading, time, warnings
import numpy as np
warnings.simplefilter("ignore")
from structgen import JsonSchema, Regex, Vocabulary, compile
from structgen.automaton.core import GROW, AUTOMATA
from structgen.automaton.work import WORK
from structgen.masks import leaf_walks
from structgen.storage import locks

locks.PATIENCE = float(sys.argv[1])
vocabulary = Vocabulary([bytes([i]) for i in range(256)] + [b""], eos_token_ids=[256])
taken, done = threading.Event(), threading.Event()

def hold():
    with leaf_walks._walkers_lock, AUTOMATA._lock, GROW:
        WORK.left = 3  # as in the middle of a call
        taken.set()
        done.wait(float(sys.argv[2]))
        WORK.end()

threading.Thread(target=hold, daemon=True).start()
taken.wait()
child = os.fork()
if not child:
    schema = JsonSchema({"type": "array", "items": {"type": "integer"}})
    cursor = compile(schema, vocabulary).start()
    cursor.accept(ord("["))
    for cursor, expected in ((cursor, 12), (compile(Regex("[a-z]+x"), vocabulary).start(), 26)):
        mask = np.zeros((vocabulary.size + 31) // 32, np.uint32)
        cursor.fill_mask(mask)
        assert np.unpackbits(mask.view(np.uint8)).sum() == expected
    os._exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7
done.set()
with GROW:  # the parent has given back what it took
    pass
assert not locks._held
print("ok")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(("patience", "held"), [("0.05", "60"), ("30", "0.3")])
def test_a_child_forked_in_the_middle_of_a_call_goes_on(patience: str, held: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, patience, held], capture_output=True, text=True, timeout=100
    )
    assert run.stdout == "ok\n", run.stderr
