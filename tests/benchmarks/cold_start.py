"""How long a new process takes until an engine's tokenizer is ready, and until its first mask."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from engines import ENGINES, Engine
from mask_report import OURS

from structgen.vocabulary.tokens import Vocabulary

_SCHEMA = '{"type": "object", "additionalProperties": {"type": "string"}}'

Start = tuple[float, float]
"""Seconds until the tokenizer is ready, and until the first mask of a free object."""


def cold_start(name: str, tokenizer: Path, vocabulary: Vocabulary, cache: str, clock: str) -> Start:
    """Measure in this process, which must be new. Imports do not count."""
    os.environ["STRUCTGEN_CACHE"] = cache
    now = time.process_time if clock == "cpu" else time.perf_counter
    Engine.clock = staticmethod(now)
    engine = ENGINES[name](tokenizer, vocabulary)
    started = now()
    session = engine.start(engine.compile(_SCHEMA))
    session.mask()
    return engine.prepare_seconds, engine.prepare_seconds + now() - started


def cold_starts(
    names: Sequence[str], tokenizer: Path, vocabulary: Vocabulary, clock: str
) -> list[tuple[str, Start]]:
    """Measure each engine in a process of its own; ours without, then with, its cache on disk."""
    found = []
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as cache:
        for name in names:
            labels = [f"{name}, nothing cached", f"{name}, cached on disk"]
            for label in labels if name == OURS else [name]:
                with context.Pool(1) as pool:
                    arguments = (name, tokenizer, vocabulary, cache, clock)
                    found.append((label, pool.apply(cold_start, arguments)))
    return found
