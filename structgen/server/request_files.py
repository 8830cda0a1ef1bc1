"""Files of requests, as OpenAI's batch API has them, answered by the application in this process.

A line has ``custom_id``, ``method``, ``url`` and ``body``; its answer has ``custom_id`` and the
``response``: status, id and body, exactly what the server would have sent. Owns the shape of lines
and answers, and calling the application without a socket. Rows, parts and resuming are
`structgen.jobs`' business.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from starlette.types import ASGIApp, Message

from structgen import models
from structgen.jobs import BadRow, Job, Parts, Row, Source, shown
from structgen.runner import ModelConfig, Runner

from .gateway import OWNER
from .settings import Settings

ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/decisions",
)
"""What a line may ask for."""

_LINE = {"custom_id", "method", "url", "body"}
_WINDOW = 16
_ATTEMPTS = 5


def is_request(row: Row | BadRow | None) -> bool:
    """Whether a row is a line of such a file."""
    return isinstance(row, dict) and row.keys() >= _LINE


async def call(
    app: ASGIApp, url: str, body: bytes, owner: str | None = None
) -> tuple[int, str, Any]:
    """POST to an application.

    Args:
        app: the application.
        url: the path.
        body: JSON.
        owner: on whose behalf, who need not show a key again.

    Returns:
        The status, the request's id, and the answer's JSON.
    """
    status, id_ = 500, ""
    parts: list[bytes] = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()  # this client does not go away
        raise AssertionError

    async def send(message: Message) -> None:
        nonlocal status, id_
        if message["type"] == "http.response.start":
            status = message["status"]
            id_ = dict(message["headers"]).get(b"x-request-id", b"").decode()
        else:
            parts.append(message.get("body", b""))

    headers = {"host": "localhost", "content-type": "application/json"}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": url,
        "raw_path": url.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (name.encode(), value.encode())
            for name, value in {**headers, "content-length": str(len(body))}.items()
        ],
        "client": ("127.0.0.1", 0),
        "server": ("localhost", 80),
    }
    if owner is not None:
        scope[OWNER] = owner
    await app(scope, receive, send)
    return status, id_, json.loads(b"".join(parts) or b"null")


@final
class Requests:
    """Answers lines, by an application on an event loop of its own. Close it after use."""

    size = 1
    identity: ClassVar[Mapping[str, Any]] = {"requests": list(ENDPOINTS)}

    def __init__(self, app: Any, model: str | None = None) -> None:
        """Start the application.

        Args:
            app: of `create_app`.
            model: answers every line, whatever model that names; None: the one that it names.
        """
        self._app = app
        self._model = model
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._life = contextlib.AsyncExitStack()
        entering = self._life.enter_async_context(app.router.lifespan_context(app))
        self._wait(entering)

    def __call__(self, rows: Sequence[Row | BadRow]) -> list[Row]:
        """The answer to each line."""
        return [self._answer(row) for row in rows]

    def close(self) -> None:
        """Stop the application, which ends its models. A second call does nothing."""
        if self._thread.is_alive():
            self._wait(self._life.aclose())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _answer(self, row: Row | BadRow) -> Row:
        made: Row = self._wait(answered(self._app, row, model=self._model))
        return made


async def answered(
    app: ASGIApp, row: Row | BadRow, *, model: str | None = None, owner: str | None = None
) -> Row:
    """The answer to a line.

    Args:
        app: the application.
        row: the line.
        model: answers it, whatever model it names; None: the one that it names.
        owner: on whose behalf; None: this program's.
    """
    if isinstance(row, BadRow):
        return refused_line(None, row.error)
    custom_id, body = row.get("custom_id"), row.get("body")
    if not is_request(row) or not isinstance(custom_id, str):
        return refused_line(custom_id, f"A line has {', '.join(sorted(_LINE))}.")
    if row["method"] != "POST" or row["url"] not in ENDPOINTS:
        listed = ", ".join(ENDPOINTS)
        return refused_line(custom_id, f"{row['method']} {row['url']}: POST one of {listed}.")
    if not isinstance(body, dict) or body.get("stream") or body.get("background"):
        return refused_line(
            custom_id, "body is an object, without stream and background: answers come whole."
        )
    if model is not None:
        body = {**body, "model": model}
    data = json.dumps(body).encode()
    for attempt in range(_ATTEMPTS):
        status, id_, made = await call(app, row["url"], data, owner)
        if status not in (429, 503):
            break
        await asyncio.sleep(min(2**attempt, 30))  # too much is under way, or a process was lost
    response = {"status_code": status, "request_id": id_, "body": made}
    return {"id": f"batch_{id_}", "custom_id": custom_id, "response": response, "error": None}


def refused_line(custom_id: Any, message: str) -> Row:
    """The answer to a line that is not asked at all."""
    error = {"code": "invalid_request", "message": message}
    return {"id": None, "custom_id": custom_id, "response": None, "error": error}


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
        StructgenError: the folder holds other results, or cannot be written.
    """
    from .app import create_app  # which has the endpoints of batches, and they this module

    listed = models.catalogue.ENTRIES
    known = {}
    for name in listed if model is None else [model]:
        is_embedder = name in listed and listed[name].task == "embed"
        known[name] = ModelConfig(source=name, processes=1 if is_embedder else workers)
    runner = Runner(known, default=model or models.DEFAULT, max_concurrency=_WINDOW * workers)
    settings = Settings(lazy=True, max_queue=4 * _WINDOW * workers, request_seconds=86_400.0)
    asking = Requests(create_app(runner, settings, owns_runner=True), model)
    identity = {"input": source.identity, "model": model, **asking.identity}
    try:
        with (
            Parts(output, "jsonl", identity) as parts,
            Job(source, asking, window=_WINDOW * workers, first=parts.n_done) as job,
            shown(job) if progress is None else contextlib.nullcontext(progress) as report,
        ):
            job.write(parts, report)
    finally:
        asking.close()
