"""What tests know of the server that they share."""

from __future__ import annotations

from dataclasses import dataclass

from structgen import Runner

MODEL = "smollm2-135m-instruct"
EMBEDDER = "all-minilm-l6-v2"
KEY = "sk-test-1"


@dataclass(frozen=True)
class Served:
    """A server that runs in a thread of this process."""

    runner: Runner
    root: str
    port: int
