"""Files of requests, as OpenAI's batch API has them, answered in this process without a server.

Owns an application on an event loop of its own. What lines and their answers are stands in
`batches`; rows, parts and resuming are `structgen.jobs`' business.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

from structgen import models
from structgen.jobs import BadRow, Job, Parts, Row, Source, shown
from structgen.runner import ModelConfig, Runner

from .app import create_app
from .batches import ENDPOINTS, answered, call, outcome
from .settings import Settings

_WINDOW = 16


@final
class Requests:
    """Answers lines, by an application on an event loop of its own. Close it after use."""

    size = 1

    def __init__(self, app: Any, model: str | None = None) -> None:
        """Start the application.

        Args:
            app: of `create_app`.
            model: answers every line, whatever model that names; None: the one that it names.
        """
        self._model = model
        self._loop = asyncio.new_event_loop()
        self._app = app
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._life = contextlib.AsyncExitStack()
        entering = self._life.enter_async_context(app.router.lifespan_context(app))
        self._wait(entering)

    def __call__(self, rows: Sequence[Row | BadRow]) -> list[Row]:
        """The answer to each line."""
        return [answered(row, self._post, self._model) for row in rows]

    def _post(self, url: str, body: bytes) -> tuple[int, str, bytes]:
        made: tuple[int, str, bytes] = self._wait(call(self._app, url, body))
        return made

    def close(self) -> None:
        """Stop the application, which ends its models. A second call does nothing."""
        if self._thread.is_alive():
            self._wait(self._life.aclose())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def answer_files(
    source: Source,
    output: Path,
    *,
    model: str | None = None,
    workers: int = 1,
    progress: Callable[[Job], object] | None = None,
) -> None:
    """Answer all lines of files of requests, into a folder that survives being killed.

    Args:
        source: the lines.
        output: the folder.
        model: answers every line, whatever model that names; None: the catalogue's model of that
            name.
        workers: processes that run a model.
        progress: called after each line; None: a bar on a terminal, else lines.

    Raises:
        StructgenError: the folder holds other results, or cannot be written; or all lines failed.
    """
    listed = models.catalogue.ENTRIES
    known = {}
    for name in listed if model is None else [model]:
        is_embedder = name in listed and listed[name].task == "embed"
        known[name] = ModelConfig(source=name, processes=1 if is_embedder else workers)
    runner = Runner(known, default=model or models.DEFAULT, max_concurrency=_WINDOW * workers)
    settings = Settings(lazy=True, max_queue=4 * _WINDOW * workers, request_seconds=86_400.0)
    asking = Requests(create_app(runner, settings, owns_runner=True), model)
    identity = {"input": source.identity, "model": model, "requests": list(ENDPOINTS)}
    about: Any = {"window": _WINDOW * workers, "outcome": outcome}
    try:
        with (
            Parts(output, "jsonl", identity) as parts,
            Job(source, asking, first=parts.n_done, **about) as job,
            shown(job) if progress is None else contextlib.nullcontext(progress) as report,
        ):
            job.write(parts, report)
        job.check(parts)
    finally:
        asking.close()
