"""Request files of OpenAI's batch API, answered in this process without a server.

Runs the application on its own event loop. `batches` defines the lines and their answers;
`structgen.jobs` has rows, parts and resuming.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal

from structgen import models
from structgen.jobs import BadRow, Job, Parts, Row, Source, shown
from structgen.runner import ModelConfig, Runner

from .app import create_app
from .batches import ENDPOINTS, Asking, outcome
from .settings import Settings

_WINDOW = 16


@contextlib.contextmanager
def _living(app: Any) -> Iterator[asyncio.AbstractEventLoop]:
    """Run an application in an event loop in a thread until the block ends."""

    async def here() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    life = app.router.lifespan_context(app)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(life):
        yield portal.call(here)


def _each_once(rows: Iterator[Row | BadRow]) -> Iterator[Row | BadRow]:
    """Yield the lines, except those whose ``custom_id`` repeats that of an earlier line."""
    known: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        custom_id = row.get("custom_id") if isinstance(row, dict) else None
        first = known.setdefault(custom_id, number) if isinstance(custom_id, str) else number
        if first < number:
            problem = f"Requests {first:,} and {number:,} have the same custom_id {custom_id!r}."
            row = BadRow(f"{problem} Use a different custom_id for each request.")
        yield row


def answer_files(
    source: Source,
    output: Path,
    *,
    model: str | None = None,
    workers: int = 1,
    progress: Callable[[Job], object] | None = None,
) -> None:
    """Answer all lines of request files, into a folder from which a killed run can be continued.

    Args:
        source: the lines of the files.
        output: the folder for the answers.
        model: the model that answers every line; None: the catalogue's model that the line names.
        workers: number of processes per model.
        progress: called after each line; None: a bar on a terminal or in a notebook, otherwise
            lines.

    Raises:
        StructgenError: the folder has other results or cannot be written, or all lines failed.
    """
    read = source.read
    source = replace(source, read=lambda: _each_once(read()))
    listed = models.catalogue.ENTRIES
    known = {}
    for name in listed if model is None else [model]:
        is_embedder = name in listed and listed[name].task == "embed"
        known[name] = ModelConfig(source=name, processes=1 if is_embedder else workers)
    runner = Runner(known, default=model or models.DEFAULT, max_concurrency=_WINDOW * workers)
    settings = Settings(lazy=True, max_queue=4 * _WINDOW * workers, request_seconds=86_400.0)
    app = create_app(runner, settings, owns_runner=True)
    identity = {"input": source.identity, "model": model, "requests": list(ENDPOINTS)}
    about: Any = {"window": _WINDOW * workers, "outcome": outcome}
    with _living(app) as loop, Parts(output, "jsonl", identity) as parts:
        asking = Asking(app, loop, model=model)
        with (
            Job(source, asking, first=parts.n_done, close=asking.stop, **about) as job,
            shown(job) if progress is None else contextlib.nullcontext(progress) as report,
        ):
            job.write(parts, report)
        job.check(parts)
