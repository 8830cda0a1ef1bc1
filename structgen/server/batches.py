"""Files and batches of OpenAI's API: what is kept on disk, whose it is, and the work in between.

Owns a folder, in which each owner has one of their own: files, each with a description beside it,
and batches, each with its state and the parts of its answers (`structgen.jobs`). All of it survives
the server: a batch that was under way goes on when the next one starts. Batches run one after the
other, those of different owners in turns; their requests go through the application like others, on
behalf of their owner, without a socket. Of lines and answers it owns the shape: ``custom_id``, and
status, id and body exactly as the server would have sent them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, final

from starlette.types import ASGIApp, Message

from structgen.errors import StructgenError
from structgen.jobs import BadRow, Job, Parts, Row, Source
from structgen.storage import fork_safe
from structgen.storage.user_folder import written_whole

from .errors import ApiError
from .gateway import LOG, OWNER

ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/decisions",
)
"""What a line may ask for."""

_LINE = {"custom_id", "method", "url", "body"}
_ATTEMPTS = 5
_MOST_FILES, _MOST_BATCHES, _MOST_UNDER_WAY = 500, 500, 16
_WINDOW = 8
_ID = re.compile(r"(file|batch)-[0-9a-f]{24}")
_UNDER_WAY = ("validating", "in_progress", "finalizing", "cancelling")


def is_request(row: Row | BadRow | None) -> bool:
    """Whether a row is a line of such a file."""
    return isinstance(row, dict) and row.keys() >= _LINE


async def call(
    app: ASGIApp, url: str, body: bytes, owner: str | None = None
) -> tuple[int, str, bytes]:
    """POST to an application.

    Args:
        app: the application.
        url: the path.
        body: JSON.
        owner: on whose behalf, who need not show a key again.

    Returns:
        The status, the request's id, and the answer's body.
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
    return status, id_, b"".join(parts)


Post: TypeAlias = Callable[[str, bytes], "tuple[int, str, bytes]"]
"""POSTs a body to a path, from any thread: the status, the request's id, and the answer's body."""


def poster(app: ASGIApp, loop: asyncio.AbstractEventLoop, owner: str | None = None) -> Post:
    """What asks an application that lives in an event loop, on behalf of ``owner``."""

    def post(url: str, body: bytes) -> tuple[int, str, bytes]:
        return asyncio.run_coroutine_threadsafe(call(app, url, body, owner), loop).result()

    return post


def answered(row: Row | BadRow, post: Post, model: str | None = None) -> Row:
    """The answer to a line. Waits for it: not for event loops.

    Args:
        row: the line.
        post: asks.
        model: answers it, whatever model it names; None: the one that it names.
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
    try:
        data = json.dumps(body if model is None else {**body, "model": model}).encode()
    except RecursionError:
        return refused_line(custom_id, "body is nested too deeply.")
    for attempt in range(_ATTEMPTS):
        status, id_, made = post(row["url"], data)
        if status not in (429, 503):
            break
        time.sleep(min(2**attempt, 30))  # too much is under way, or a process was lost
    response = {"status_code": status, "request_id": id_, "body": json.loads(made or b"null")}
    return {"id": f"batch_{id_}", "custom_id": custom_id, "response": response, "error": None}


def refused_line(custom_id: Any, message: str) -> Row:
    """The answer to a line that is not asked at all."""
    error = {"code": "invalid_request", "message": message}
    return {"id": None, "custom_id": custom_id, "response": None, "error": error}


class _Stopped(StructgenError):
    """A batch is cancelled, or the server ends."""


@final
class Files:
    """What is kept. Its methods read and write files: call them off the event loop."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Open a folder, or make it, for this user alone.

        Args:
            folder: where.
            max_bytes: most bytes of one owner's files.
        """
        self.folder = folder.expanduser()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._max_bytes = max_bytes
        self._lock = fork_safe(threading.Lock())

    def add(self, owner: str, data: bytes, name: str, purpose: str) -> dict[str, Any]:
        """Keep a file.

        Raises:
            ApiError: the owner has too many, or too much.
        """
        with self._lock:
            known = self.all(owner)
            if len(known) >= _MOST_FILES or (
                sum(one["bytes"] for one in known) + len(data) > self._max_bytes
            ):
                raise ApiError(
                    413,
                    f"You have {len(known):,} files, and there is room for {_MOST_FILES:,} of "
                    f"{self._max_bytes:,} bytes in all. Delete some.",
                    code="storage_full",
                )
            id_ = f"file-{secrets.token_hex(12)}"
            about = {
                "id": id_,
                "object": "file",
                "bytes": len(data),
                "created_at": int(time.time()),
                "filename": name,
                "purpose": purpose,
                "status": "processed",
            }
            self._put(self.content(owner, id_), data)
            self._put(self._about(owner, id_), json.dumps(about).encode())
        return about

    def get(self, owner: str, id_: str) -> dict[str, Any]:
        """What is known of a file or batch.

        Raises:
            ApiError: the owner has none of that id.
        """
        try:
            if _ID.fullmatch(id_) is None:
                raise FileNotFoundError
            found: dict[str, Any] = json.loads(self._about(owner, id_).read_bytes())
        except (OSError, ValueError):
            raise ApiError(404, f"There is no {id_[:100]!r}.", code="not_found") from None
        return found

    def all(self, owner: str, kind: str = "file") -> list[dict[str, Any]]:
        """All files of an owner, or batches, the newest first."""
        found = []
        for path in self._of(owner).glob(f"{kind}-*.json"):
            with contextlib.suppress(OSError, ValueError):
                found.append(json.loads(path.read_bytes()))
        return sorted(found, key=lambda one: (one["created_at"], one["id"]), reverse=True)

    def remove(self, owner: str, id_: str) -> None:
        """Forget a file or batch."""
        self.get(owner, id_)
        self._about(owner, id_).unlink(missing_ok=True)
        self.content(owner, id_).unlink(missing_ok=True)
        shutil.rmtree(self.parts(owner, id_), ignore_errors=True)

    def note(self, owner: str, batch: Mapping[str, Any]) -> None:
        """Write down what has become of a batch."""
        self._put(self._about(owner, batch["id"]), json.dumps(batch).encode())

    def content(self, owner: str, id_: str) -> Path:
        """Where a file's content is."""
        return self._of(owner) / f"{id_}.data"

    def parts(self, owner: str, id_: str) -> Path:
        """Where the parts of a batch's answers are."""
        return self._of(owner) / f"{id_}.parts"

    def unfinished(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The batches that are under way, with their owners, the oldest first."""
        found = []
        for path in self.folder.glob("*/owner"):
            owner = path.read_text(encoding="utf-8")
            found += [(owner, one) for one in self.all(owner, "batch") if is_under_way(one)]
        return iter(sorted(found, key=lambda one: one[1]["created_at"]))

    def _of(self, owner: str) -> Path:
        folder = self.folder / hashlib.sha256(owner.encode()).hexdigest()[:32]
        if not folder.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)
            self._put(folder / "owner", owner.encode())
        return folder

    def _about(self, owner: str, id_: str) -> Path:
        return self._of(owner) / f"{id_}.json"

    def _put(self, path: Path, data: bytes) -> None:
        try:
            with written_whole(path) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ApiError(
                507, f"The file cannot be kept: {error.strerror}.", code="storage_full"
            ) from error


def is_under_way(batch: Mapping[str, Any]) -> bool:
    """Whether something is still done for a batch."""
    return batch["status"] in _UNDER_WAY


@final
class _Lines:
    """Asks of each line, unless it is for another endpoint."""

    size = 1
    identity: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, post: Post, url: str, is_ending: Callable[[], bool]) -> None:
        self._post, self._url, self._is_ending = post, url, is_ending

    def __call__(self, rows: Sequence[Row | BadRow]) -> list[Row]:
        """The answer to each line."""
        return [self._answer(row) for row in rows]

    def _answer(self, row: Row | BadRow) -> Row:
        if isinstance(row, dict) and row.get("url") != self._url:
            return refused_line(
                row.get("custom_id"), f"The batch is for {self._url}, and the line for another."
            )
        made = answered(row, self._post)
        response = made["response"]
        if response is not None and response["status_code"] >= 500 and self._is_ending():
            raise _Stopped("The server ends, and with it the models.")  # no answer to the line
        return made


@final
class Batches:
    """The batches of a server. For its event loop."""

    def __init__(self, app: Any, files: Files) -> None:
        """Nothing runs yet."""
        self._app = app
        self._files = files
        self._waiting: list[tuple[str, str]] = []
        self._cancelled: set[str] = set()
        self._more = asyncio.Event()
        self._is_ending = False
        self._latest: list[str] = []  # owners, who was served last at the end
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Go on with what is unfinished, and take more."""
        self._task = asyncio.ensure_future(self._run())

    async def close(self, seconds: float) -> None:
        """Stop; wait so long for lines under way. The others are the next server's."""
        self._is_ending = True
        self._more.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)

    async def create(self, owner: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Take a batch.

        Raises:
            ApiError: there is no such file, or the owner has too many batches.
        """
        return await asyncio.to_thread(self._create, owner, given, asyncio.get_running_loop())

    def _create(
        self, owner: str, given: Mapping[str, Any], loop: asyncio.AbstractEventLoop
    ) -> dict[str, Any]:
        files = self._files
        files.get(owner, given["input_file_id"])
        known = files.all(owner, "batch")
        if sum(map(is_under_way, known)) >= _MOST_UNDER_WAY or len(known) >= _MOST_BATCHES:
            raise ApiError(
                429,
                f"You have {len(known):,} batches, and {_MOST_UNDER_WAY} may be under way of "
                f"{_MOST_BATCHES:,}. Wait for some to end.",
                code="too_many_batches",
                headers={"Retry-After": "60"},
            )
        batch = {
            "id": f"batch-{secrets.token_hex(12)}",
            "object": "batch",
            **given,
            "errors": None,
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": int(time.time()),
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
        }
        files.note(owner, batch)
        loop.call_soon_threadsafe(self._add, owner, batch["id"])
        return batch

    def _add(self, owner: str, id_: str) -> None:
        self._waiting.append((owner, id_))
        self._more.set()

    async def cancel(self, owner: str, id_: str) -> dict[str, Any]:
        """End a batch where it is; what has been answered is its output."""
        batch = await asyncio.to_thread(self._files.get, owner, id_)
        if not is_under_way(batch):
            raise ApiError(
                409, f"The batch is {batch['status']} already.", code="batch_not_under_way"
            )
        self._cancelled.add(id_)
        return {**batch, "status": "cancelling"}

    async def _run(self) -> None:
        found = await asyncio.to_thread(lambda: list(self._files.unfinished()))
        self._waiting = [(owner, one["id"]) for owner, one in found] + self._waiting
        while not self._is_ending:
            if not self._waiting:
                self._more.clear()
                await self._more.wait()
                continue
            # Whoever was served longest ago comes first.
            last = {owner: n for n, owner in enumerate(self._latest)}
            owner, id_ = min(self._waiting, key=lambda one: last.get(one[0], -1))
            self._waiting.remove((owner, id_))
            self._latest = [*(one for one in self._latest if one != owner), owner][-1000:]
            loop = asyncio.get_running_loop()
            try:
                await asyncio.to_thread(self._answer, owner, id_, loop)
            except Exception:
                LOG.exception("the batch %s cannot go on", id_)
                with contextlib.suppress(ApiError):
                    await asyncio.to_thread(self._fail, owner, id_)
            self._cancelled.discard(id_)

    def _answer(self, owner: str, id_: str, loop: asyncio.AbstractEventLoop) -> None:
        """Answer all lines of a batch, from where it stopped; write what has become of it."""
        files = self._files
        batch = files.get(owner, id_)
        try:
            lines = Source.of(files.content(owner, batch["input_file_id"]), kind="jsonl")
        except StructgenError as error:
            self._end(owner, batch, "failed", [{"code": "invalid_file", "message": str(error)}])
            return
        batch |= {"status": "in_progress", "in_progress_at": int(time.time())}
        batch["request_counts"]["total"] = lines.total or 0
        files.note(owner, batch)

        post = poster(self._app, loop, owner)
        ask = _Lines(post, batch["endpoint"], lambda: self._is_ending)

        def go_on(job: Job) -> None:
            if self._is_ending or id_ in self._cancelled:
                raise _Stopped("The batch is stopped.")
            counts = {"completed": job.first + job.n_rows - job.n_errors, "failed": job.n_errors}
            batch["request_counts"] |= counts
            if job.n_rows % 100 == 0:
                files.note(owner, batch)

        status = "completed"
        with Parts(files.parts(owner, id_), "jsonl", {"file": batch["input_file_id"]}) as parts:
            try:
                with Job(lines, ask, window=_WINDOW, first=parts.n_done) as job:
                    job.write(parts, go_on)
            except _Stopped:
                if id_ not in self._cancelled:
                    return
                status = "cancelled"
            good: list[str] = []
            bad: list[str] = []
            for row in parts.rows():
                response = row["response"]
                is_good = response is not None and response["status_code"] == 200
                (good if is_good else bad).append(json.dumps(row, ensure_ascii=False) + "\n")
        batch["request_counts"] |= {"completed": len(good), "failed": len(bad)}
        for name, made in (("output", good), ("error", bad)):
            if made:
                data = "".join(made).encode(errors="backslashreplace")
                file = files.add(owner, data, f"{id_}_{name}.jsonl", "batch_output")
                batch[f"{name}_file_id"] = file["id"]
        self._end(owner, batch, status)
        shutil.rmtree(files.parts(owner, id_), ignore_errors=True)

    def _fail(self, owner: str, id_: str) -> None:
        said = "Something went wrong in the server, whose log says what."
        batch = self._files.get(owner, id_)
        self._end(owner, batch, "failed", [{"code": "internal_error", "message": said}])

    def _end(
        self, owner: str, batch: dict[str, Any], status: str, errors: list[Any] | None = None
    ) -> None:
        batch |= {"status": status, f"{status}_at": int(time.time())}
        batch["errors"] = None if errors is None else {"object": "list", "data": errors}
        self._files.note(owner, batch)


def listed(found: list[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """A page of a list.

    Args:
        found: all of it, the newest first.
        query: ``limit``, ``after`` an id, ``order`` and ``purpose``.

    Raises:
        ApiError: one of them is wrong.
    """
    unknown = set(query) - {"limit", "after", "order", "purpose"}
    limit = query.get("limit", "100")
    if unknown or not re.fullmatch(r"[1-9][0-9]{0,4}", limit):
        name = min(unknown, default="limit")
        raise ApiError(400, f"{name} is not supported, or wrong.", param=name, code="invalid_value")
    if query.get("order") == "asc":
        found = found[::-1]
    if "purpose" in query:
        found = [one for one in found if one["purpose"] == query["purpose"]]
    ids = [one["id"] for one in found]
    if "after" in query:
        found = found[ids.index(query["after"]) + 1 :] if query["after"] in ids else []
    page = found[: int(limit)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(page) < len(found),
    }
