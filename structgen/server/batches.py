"""Files and batches of OpenAI's API: storage on disk, ownership, and running the batches.

Each owner has a subfolder with files, each with a description beside it, and batches, each with its
state and the parts of its answers (`structgen.jobs`). An unfinished batch continues when the next
server starts. Batches run one after the other, those of different owners in turn. Their requests go
through the application like any others, on behalf of the owner, without a socket. A line of answers
has ``custom_id``, and the status, id and body that the server would have sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, TypeVar, final

from filelock import FileLock, Timeout
from starlette.types import ASGIApp, Message

from structgen.errors import OptionError, StructgenError, let_go
from structgen.insight import check_values
from structgen.jobs import BadRow, Job, Parts, Row, Source, Unread, as_json
from structgen.runner import Aside
from structgen.storage import fork_safe
from structgen.storage.user_folder import unique, written_whole

from .errors import ApiError
from .gateway import LOG, OWNER
from .settings import Settings
from .shapes import BatchAnswer, FileAnswer
from .wire import refused

T = TypeVar("T")

ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/decisions",
)
"""The endpoints that a line may ask for."""

_LINE = {"custom_id", "method", "url", "body"}
_ATTEMPTS = 5
_OF = "[0-9a-f]" * 32  # names of owners' folders
_MOST_FILES, _MOST_BATCHES, _MOST_UNDER_WAY = 500, 500, 16
_MOST_WAITING = 256
_MOST_LINES = 50_000
_MOST_LISTED = 10
_WINDOW = 8
_ENVELOPE = 64 << 10
"""Most bytes of a line beside its body."""

_NOTED = 1.0
"""Seconds between writes of the number of answered lines."""

_TURN = 30.0
"""Seconds after which a batch lets those of other owners go first."""

_ROOM = 5.0
"""Seconds after which a line is tried again that found no room beside other requests."""

_PAUSE = 60.0
"""Seconds after which a batch continues that could not be written, for example because the disk was
full."""

_ID = re.compile(r"(file|batch)-[0-9a-f]{24}")
_WRITTEN = re.compile(rb'"(?:completion|output)_tokens": ?(\d{1,9})')
_GOOD = b'"response": {"status_code": 200, '  # parsing blocks all; quotes in texts have a \
_UNDER_WAY = ("validating", "in_progress", "finalizing", "cancelling")


async def _call(app: ASGIApp, url: str, body: bytes, owner: str | None) -> tuple[int, str, bytes]:
    """POST JSON to an application on behalf of an owner, without a key.

    Returns the status, the request's id, and the answer's body.
    """
    status, id_ = 500, ""
    parts: list[bytes] = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()  # this client never disconnects
        raise AssertionError

    async def send(message: Message) -> None:
        nonlocal status, id_
        if message["type"] == "http.response.start":
            status = message["status"]
            id_ = dict(message["headers"]).get(b"x-request-id", b"").decode()
        else:
            parts.append(message.get("body", b""))

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
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 0),
        "server": ("localhost", 80),
    }
    if owner is not None:
        scope[OWNER] = owner
    await app(scope, receive, send)
    return status, id_, b"".join(parts)


def outcome(row: Row) -> tuple[Any, int]:
    """Return a line's error and its number of output tokens: see `Job`."""
    if (response := row["response"]) is None:
        return row["error"], 0
    if response["status_code"] != 200:
        return response, 0
    written = _WRITTEN.search(as_json(response["body"]))
    return None, int(written[1]) if written else 0


def _refused_line(custom_id: Any, message: str) -> Row:
    """Return the answer for a line that is not sent at all."""
    error = {"code": "invalid_request", "message": message}
    if not isinstance(custom_id, (str, int, float)):
        custom_id = None  # it may be deeply nested
    return {"id": None, "custom_id": custom_id, "response": None, "error": error}


class _Stopped(StructgenError):
    """A batch was cancelled, or the server is ending."""


class _Full(StructgenError):
    """There is no room for more answers."""


@final
class Files:
    """The stored files and batches. The methods access the disk: from the event loop, call them
    through `aside`."""

    def __init__(self, folder: Path, max_bytes: int, *, by_owner: bool = True) -> None:
        """Open or create a folder that only this user can read.

        Args:
            folder: the folder.
            max_bytes: most bytes of one owner's files.
            by_owner: whether the limit is per owner, or for all owners together.

        Raises:
            OptionError: another server uses the folder, or it cannot be created.
        """
        self.folder = folder.expanduser()
        self._max_bytes = max_bytes
        self._by_owner = by_owner
        self._lock = fork_safe(threading.RLock())
        self._turns = Aside(2, _MOST_WAITING, "structgen-files")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._own = FileLock(self.folder / ".lock", thread_local=False)
            self._own.acquire(timeout=0)
        except Timeout:
            raise OptionError(
                f"Another server uses {self.folder} for its files. Give each server its own folder."
            ) from None
        except OSError as error:
            raise OptionError(f"Cannot store files in {self.folder}: {error.strerror}.") from None

        # Left by a server that was killed while it wrote, or before it removed something. Only in
        # folders of owners: anything else in the folder is not ours.
        for path in (*self.folder.glob(f"{_OF}/file-*.data"), *self.folder.glob(f"{_OF}/.*-*.*.*")):
            if not path.with_suffix(".json").exists():
                path.unlink(missing_ok=True)
        for path in self.folder.glob(f"{_OF}/batch-*.parts"):
            batch = _read(path.with_suffix(".json"))
            if batch is not None and not is_under_way(batch):
                shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Release the folder for other servers."""
        self._own.release()

    async def aside(self, owner: str, work: Callable[[], T]) -> T:
        """Run work on stored files in a thread, for which owners take turns.

        Raises:
            Overloaded: too much waits.
        """
        return await self._turns.do(owner, work)

    def add(self, owner: str, data: bytes, name: str) -> dict[str, Any]:
        """Store a file of requests.

        Raises:
            ApiError: the owner has too many files or bytes.
        """
        self._check_room(owner, len(data))
        return self.keep(owner, secrets.token_hex(12), [data], name, "batch")

    def keep(
        self, owner: str, id_: str, lines: Iterable[bytes], name: str, purpose: str
    ) -> dict[str, Any]:
        """Store a file that there is room for; it replaces one with the same id.

        Raises:
            ApiError: it cannot be written.
        """
        id_ = f"file-{id_}"
        size = self._put(self.content(owner, id_), lines)
        about = {
            "id": id_,
            "object": "file",
            "bytes": size,
            "created_at": int(time.time()),
            "filename": name,
            "purpose": purpose,
            "status": "processed",
        }
        try:
            self._describe(owner, about)
        except ApiError:
            self.content(owner, id_).unlink(missing_ok=True)  # or it would count unseen
            raise
        return about

    def room(self, owner: str) -> int:
        """Return how many more bytes the owner may store."""
        top = self._of(owner) if self._by_owner else self.folder  # `walk` skips what is gone
        files = (Path(place, name) for place, _, names in os.walk(top) for name in names)
        kept = (one for one in files if one.suffix == ".data" or one.parent.suffix == ".parts")
        return self._max_bytes - sum(map(_size, kept))

    def get(self, owner: str, id_: str) -> dict[str, Any]:
        """Return the description of a file or batch.

        Raises:
            ApiError: the owner has no such file or batch.
        """
        found = _read(self._about(owner, id_)) if _ID.fullmatch(id_) else None
        if found is None:
            raise none(id_)
        return found

    def all(self, owner: str, kind: str = "file") -> list[dict[str, Any]]:
        """Return all files or batches of an owner, the newest first."""
        paths = self._of(owner).glob(f"{kind}-*.json")
        found = [one for path in paths if (one := _read(path)) is not None]
        return sorted(found, key=lambda one: (one["created_at"], one["id"]), reverse=True)

    def remove(self, owner: str, id_: str) -> None:
        """Delete a file or batch."""
        self.get(owner, id_)
        self._about(owner, id_).unlink(missing_ok=True)
        self.content(owner, id_).unlink(missing_ok=True)
        shutil.rmtree(self.parts(owner, id_), ignore_errors=True)

    def begin(self, owner: str, batch: dict[str, Any]) -> None:
        """Store a new batch. Beyond 500, the oldest ended one is deleted.

        Raises:
            ApiError: the owner has too many running batches, or too many files.
        """
        with self._lock:
            self._check_room(owner)
            known = self.all(owner, "batch")
            if sum(map(is_under_way, known)) >= _MOST_UNDER_WAY:
                raise ApiError(
                    429,
                    f"You have {_MOST_UNDER_WAY} unfinished batches, which is the limit. Wait "
                    "until one of them finishes.",
                    code="too_many_batches",
                    headers={"Retry-After": "60"},
                )
            excess = max(len(known) + 1 - _MOST_BATCHES, 0)
            ended = [one for one in reversed(known) if not is_under_way(one)]
            for one in ended[:excess]:
                self.remove(owner, one["id"])
            self._describe(owner, batch)

    def note(self, owner: str, batch: dict[str, Any]) -> None:
        """Store the state of a batch; one that is being cancelled stays so."""
        with self._lock:
            known = self.get(owner, batch["id"])
            if known["status"] == "cancelling" and is_under_way(batch):
                batch |= {name: known[name] for name in ("status", "cancelling_at")}
            self._describe(owner, batch)

    def cancel(self, owner: str, id_: str) -> dict[str, Any]:
        """Mark a batch to be cancelled.

        Raises:
            ApiError: it has ended.
        """
        with self._lock:
            batch = self.get(owner, id_)
            if not is_under_way(batch):
                raise ApiError(
                    409, f"The batch is already {batch['status']}.", code="batch_not_under_way"
                )
            batch |= {"status": "cancelling", "cancelling_at": int(time.time())}
            self._describe(owner, batch)
        return batch

    def content(self, owner: str, id_: str) -> Path:
        """Return the path of a file's content."""
        return self._of(owner) / f"{id_}.data"

    def parts(self, owner: str, id_: str) -> Path:
        """Return the folder with the parts of a batch's answers."""
        return self._of(owner) / f"{id_}.parts"

    def unfinished(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the unfinished batches with their owners, the oldest first."""
        found = []
        for path in self.folder.glob("*/owner"):
            with contextlib.suppress(OSError, ValueError):
                owner = path.read_text(encoding="utf-8")
                if self._of(owner) == path.parent:
                    found += [(owner, one) for one in self.all(owner, "batch") if is_under_way(one)]
        return sorted(found, key=lambda one: one[1]["created_at"])

    def _check_room(self, owner: str, size: int = 0) -> None:
        count = len(self.all(owner))
        if count >= _MOST_FILES or size > self.room(owner):
            whose = "" if self._by_owner else " shared by all users"
            raise ApiError(
                413,
                f"You have {count:,} files. The limits are {_MOST_FILES:,} files and "
                f"{self._max_bytes:,} bytes{whose}. Delete some files.",
                code="storage_full",
            )

    def _of(self, owner: str) -> Path:
        return self.folder / hashlib.sha256(owner.encode()).hexdigest()[:32]

    def _about(self, owner: str, id_: str) -> Path:
        return self._of(owner) / f"{id_}.json"

    def _describe(self, owner: str, one: Mapping[str, Any]) -> None:
        if not (name := self._of(owner) / "owner").exists():
            self._put(name, [owner.encode()])
        self._put(self._about(owner, one["id"]), [json.dumps(one).encode()])

    def _put(self, path: Path, lines: Iterable[bytes]) -> int:
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with written_whole(path) as file:
                for line in lines:
                    file.write(line)
                file.flush()
                os.fsync(file.fileno())
                return file.tell()
        except OSError as error:
            raise ApiError(
                507, f"Cannot store the file: {error.strerror}.", code="storage_full"
            ) from error


def _read(path: Path) -> dict[str, Any] | None:
    """Return the description of a file or batch; None: it is missing or not valid."""
    try:
        given = path.read_bytes()
        kind = FileAnswer if path.name.startswith("file-") else BatchAnswer
        found = kind.model_validate_json(given).model_dump()
    except (OSError, ValueError):
        return None
    return found if found["id"] == path.stem else None


def _size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it has just been deleted."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def none(id_: str) -> ApiError:
    """Return the error for an unknown id."""
    return ApiError(404, f"There is no {id_[:100]!r}.", code="not_found")


def is_under_way(batch: Mapping[str, Any]) -> bool:
    """Return whether a batch has not ended."""
    return batch["status"] in _UNDER_WAY


@final
class Asking:
    """Sends each line to an application.

    Attributes:
        n_bytes: bytes of all answers so far.
    """

    size = 1

    def __init__(
        self,
        app: ASGIApp,
        loop: asyncio.AbstractEventLoop,
        *,
        owner: str | None = None,
        url: str | None = None,
        model: str | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin.

        Args:
            app: the application.
            loop: the application's event loop.
            owner: the owner on whose behalf lines are sent, without a key; None: no owner.
            url: the endpoint of all lines; None: each line names its own.
            model: the model that answers every line; None: the one that the line names.
            is_over: returns whether to start no more lines.
        """
        self._app, self._loop, self._owner = app, loop, owner
        self._url, self._model, self._is_over = url, model, is_over
        self._under_way: dict[object, Future[tuple[int, str, bytes]] | None] = {}
        self._beside: set[object] = set()  # requests that ran beside others at some time
        self._is_last, self._is_stopped = threading.Event(), False
        self._refused = threading.RLock()
        self.n_bytes = 0

    def __call__(self, rows: Sequence[Row | BadRow]) -> list[Row]:
        """Return the answer to each line.

        Raises:
            _Stopped: no more lines are sent.
        """
        return [self._answer(row) for row in rows]

    def finish(self) -> None:
        """Start no more lines."""
        self._is_last.set()

    def stop(self) -> None:
        """Start no more lines, and cancel those under way."""
        self._is_stopped = True
        self.finish()
        for one in list(self._under_way.values()):
            if one is not None:  # otherwise the line checks itself
                one.cancel()

    def _answer(self, row: Row | BadRow) -> Row:
        self._wait(0)
        if self._is_over():
            raise _Stopped
        if isinstance(row, BadRow):
            return _refused_line(None, row.error)
        custom_id, url, body = map(row.get, ("custom_id", "url", "body"))
        if self._url not in (None, url):
            return _refused_line(
                custom_id, f"The batch is for {self._url}, but url in this line differs."
            )
        if row.keys() != _LINE or not isinstance(custom_id, str):
            return _refused_line(custom_id, f"The fields of a line are {', '.join(sorted(_LINE))}.")
        if row["method"] != "POST" or url not in ENDPOINTS:
            return _refused_line(
                custom_id, f"method must be POST, and url one of {', '.join(ENDPOINTS)}."
            )
        if not isinstance(body, dict) or body.get("stream") or body.get("background"):
            return _refused_line(custom_id, "body must be an object without stream and background.")
        try:
            body = body if self._model is None else {**body, "model": self._model}
            # Hardly longer than the line, whose bytes have the same limit.
            text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
            data = text.encode(errors="backslashreplace")  # lone surrogates
        except RecursionError:
            return _refused_line(custom_id, "body is nested too deeply.")
        status, id_, made = self._post(url, data)
        self.n_bytes += len(made)
        if status >= 500:
            self._wait(0)  # the server and its models are ending: this is no answer
        response = {"status_code": status, "request_id": id_, "body": Unread(made or b"null")}
        return {"id": f"batch_{id_}", "custom_id": custom_id, "response": response, "error": None}

    def _wait(self, seconds: float) -> None:
        if self._is_last.wait(seconds):
            raise _Stopped

    def _post(self, url: str, body: bytes) -> tuple[int, str, bytes]:
        """Answer a line; try again if the server is overloaded or a process died."""
        n_failed = 0
        with contextlib.ExitStack() as refusing:
            while True:
                work = _call(self._app, url, body, self._owner)
                mine = object()
                self._under_way[mine] = None
                if len(self._under_way) > 1:
                    self._beside.update(self._under_way)
                try:
                    asked = asyncio.run_coroutine_threadsafe(work, self._loop)
                    self._under_way[mine] = asked
                    if self._is_stopped:
                        asked.cancel()
                    made = asked.result()
                except CancelledError:
                    raise _Stopped from None
                finally:
                    del self._under_way[mine]
                had_others = mine in self._beside  # they may have ended since
                self._beside.discard(mine)
                if made[0] == 429 and (had_others or self._under_way):
                    # One at a time: refused lines would wait for each other in turn.
                    refusing.enter_context(self._refused)
                    self._wait(_ROOM if self._under_way else 0)
                    continue
                n_failed += 1
                if made[0] not in (429, 503) or n_failed == _ATTEMPTS:
                    return made
                self._wait(2**n_failed / 2)


@final
class Batches:
    """The batches of a server. Used in its event loop only."""

    def __init__(self, app: Any, files: Files, settings: Settings) -> None:
        """Start without batches."""
        self._app = app
        self._files = files
        self._settings = settings
        self._waiting: list[tuple[str, str]] = []
        self._cancelled: set[str] = set()
        self._now: tuple[str, Asking] | None = None
        self._more = asyncio.Event()
        self._is_ending = False
        self._latest: list[str] = []  # owners, the one served last at the end
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Continue unfinished batches, and accept new ones."""
        self._task = asyncio.ensure_future(self._run())

    async def close(self, seconds: float) -> None:
        """Stop, after some seconds for lines under way. The next server answers the others."""
        self._is_ending = True
        self._more.set()
        for end in (Asking.finish, Asking.stop):
            if self._now is not None:
                end(self._now[1])
            if self._task is not None:
                await asyncio.wait([self._task], timeout=seconds)
        self._files.close()

    async def create(self, owner: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Create a batch.

        Raises:
            ApiError: there is no such file, or the owner has too many batches.
        """
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
        loop = asyncio.get_running_loop()

        def write() -> None:
            self._files.get(owner, given["input_file_id"])
            self._files.begin(owner, batch)
            loop.call_soon_threadsafe(self._add, owner, batch["id"])

        await self._files.aside(owner, write)
        return batch

    def _add(self, owner: str, id_: str) -> None:
        if (owner, id_) not in self._waiting:
            self._waiting.append((owner, id_))
        self._more.set()

    async def cancel(self, owner: str, id_: str) -> dict[str, Any]:
        """End a batch where it is; the answers so far are its output."""
        batch = await self._files.aside(owner, lambda: self._files.cancel(owner, id_))
        if (owner, id_) in self._waiting:
            self._cancelled.add(id_)
        if self._now is not None and self._now[0] == id_:
            self._now[1].stop()
        return batch

    async def _run(self) -> None:
        found = await asyncio.to_thread(self._files.unfinished)
        self._cancelled.update(one["id"] for _, one in found if one["status"] == "cancelling")
        new, self._waiting = self._waiting, []
        for owner, id_ in [*((owner, one["id"]) for owner, one in found), *new]:
            self._add(owner, id_)
        while not self._is_ending:
            if not self._waiting:
                self._more.clear()
                await self._more.wait()
                continue
            # First the owner served longest ago, and of its batches those that only have to end.
            last = {owner: n for n, owner in enumerate(self._latest)}
            owner, id_ = min(
                self._waiting, key=lambda one: (last.get(one[0], -1), one[1] not in self._cancelled)
            )
            self._waiting.remove((owner, id_))
            self._cancelled.discard(id_)
            self._latest = [*(one for one in self._latest if one != owner), owner][-1000:]
            loop = asyncio.get_running_loop()
            try:
                again = await asyncio.to_thread(self._answer, owner, id_, loop)
            except Exception as error:
                LOG.exception("cannot continue the batch %s", id_)
                again = await asyncio.to_thread(self._fail, owner, id_, error)
                let_go(error)
            self._now = None
            if again is not None:
                loop.call_later(again, self._add, owner, id_)

    def _answer(self, owner: str, id_: str, loop: asyncio.AbstractEventLoop) -> float | None:
        """Answer lines of a batch from where it stopped, and store its state.

        Returns:
            Seconds until it continues; None: it has ended.
        """
        files = self._files
        batch = files.get(owner, id_)
        until = math.inf

        def is_over() -> bool:
            """Return whether other owners, or batches that only have to be ended, go first now. At
            least one line is answered."""
            nonlocal until
            if until == math.inf:
                until = time.monotonic() + _TURN
                return False
            return time.monotonic() > until and any(
                one[0] != owner or one[1] in self._cancelled for one in [*self._waiting]
            )

        asking = Asking(self._app, loop, owner=owner, url=batch["endpoint"], is_over=is_over)
        self._now = id_, asking
        if self._is_ending or not is_under_way(batch):
            return None
        lines = _NONE
        problems: Sequence[dict[str, Any]] = ()
        if batch["status"] != "cancelling":  # reading them only to end the batch would delay others
            lines, problems = self._lines(owner, batch)
            batch |= {"status": "in_progress", "in_progress_at": int(time.time())}
            batch["request_counts"]["total"] = lines.total or 0
        room, counts, noted = files.room(owner), batch["request_counts"], -math.inf

        def note_progress(job: Job) -> None:
            nonlocal noted
            if asking.n_bytes > room:
                raise _Full
            n_failed = failed + job.n_errors
            counts.update(completed=job.first + job.n_rows - n_failed, failed=n_failed)
            if time.monotonic() - noted > _NOTED:
                noted = time.monotonic()
                files.note(owner, batch)

        with Parts(files.parts(owner, id_), "jsonl", {"file": batch["input_file_id"]}) as parts:
            if parts.n_done != counts["completed"] + counts["failed"]:
                # A killed server had counted answers that it had not written yet.
                failed = sum(_GOOD not in line for line in parts.lines())
                counts.update(completed=parts.n_done - failed, failed=failed)
            failed = counts["failed"]
            files.note(owner, batch)
            if batch["status"] == "cancelling":
                asking.stop()
            is_whole = True
            try:
                about: Any = {"first": parts.n_done, "outcome": outcome, "close": asking.stop}
                with Job(lines, asking, window=_WINDOW, **about) as job:
                    job.write(parts, note_progress)
            except _Full:
                message = (
                    "There is no space for more answers. The files contain the answers so far."
                )
                problems = [{"code": "storage_full", "message": message}]
            except _Stopped:
                is_whole = False
            is_cancelled = files.get(owner, id_)["status"] == "cancelling"
            if not is_cancelled and not problems and not is_whole:
                files.note(owner, batch)
                return 0
            batch["status"] = "finalizing"
            files.note(owner, batch)
            self._keep(owner, batch, parts)
        status = "cancelled" if is_cancelled else "failed" if problems else "completed"
        self._end(owner, batch, status, problems)
        return None

    def _lines(
        self, owner: str, batch: Mapping[str, Any]
    ) -> tuple[Source, Sequence[dict[str, Any]]]:
        """Return the lines of a batch; or none and the reasons why they cannot be answered."""
        id_, most = batch["input_file_id"], self._settings

        def read(line: str) -> Any:
            check_values(line, most.max_body_values + len(_LINE))
            return json.loads(line, object_pairs_hook=unique)

        path = self._files.content(owner, id_)
        try:
            with path.open("rb") as file:
                n_lines = sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b""))
            # Half of the lines may be blank. Millions of blank ones would be read one by one.
            if n_lines <= 2 * _MOST_LINES:
                found = Source.of_lines(path, most.max_body_bytes + _ENVELOPE, read)
                n_lines = found.total or 0
                if n_lines <= _MOST_LINES:
                    is_new = "in_progress_at" not in batch
                    problems = _repeats(path, read) if is_new else ()
                    return (found if not problems else _NONE), problems
        except OSError:
            message = f"The file {id_} was deleted."
        else:
            message = f"The file has {n_lines:,} lines; the limit is {_MOST_LINES:,}."
        return _NONE, [{"code": "invalid_file", "message": message}]

    def _keep(self, owner: str, batch: dict[str, Any], parts: Parts) -> None:
        """Store the answers as files."""
        counts = Counter[bool]()

        def lines(is_good: bool) -> Iterator[bytes]:
            for line in parts.lines():
                if (_GOOD in line) == is_good:
                    counts[is_good] += 1
                    yield line

        for name, is_good in (("output", True), ("error", False)):
            made = lines(is_good)
            if (first := next(made, None)) is not None:
                title = f"{batch['id']}_{name}.jsonl"
                # The same id if a batch ends twice, after a kill or a full disk.
                id_ = hashlib.sha256(title.encode()).hexdigest()[:24]
                whole = itertools.chain([first], made)
                file = self._files.keep(owner, id_, whole, title, "batch_output")
                batch[f"{name}_file_id"] = file["id"]
        batch["request_counts"] |= {"completed": counts[True], "failed": counts[False]}

    def _fail(self, owner: str, id_: str, error: Exception) -> float | None:
        """Mark a batch as failed. If it cannot be written, it is tried again later, as in
        `_answer`."""
        if isinstance(error, ApiError):
            return None if error.status == 404 else _PAUSE  # it was deleted, or the disk is full
        if isinstance(error.__cause__, OSError):
            return _PAUSE
        message = "An internal error occurred. See the server's log for details."
        try:
            batch = self._files.get(owner, id_)
            self._end(owner, batch, "failed", [{"code": "internal_error", "message": message}])
        except ApiError as again:
            return self._fail(owner, id_, again)
        return None

    def _end(
        self, owner: str, batch: dict[str, Any], status: str, errors: Sequence[dict[str, Any]]
    ) -> None:
        batch |= {"status": status, f"{status}_at": int(time.time())}
        batch["errors"] = {"object": "list", "data": list(errors)} if errors else None
        self._files.note(owner, batch)
        shutil.rmtree(self._files.parts(owner, batch["id"]), ignore_errors=True)


_NONE = Source(lambda: iter(()), total=0)


def _repeats(path: Path, read: Callable[[str], Any]) -> list[dict[str, Any]]:
    """Return errors for the first lines whose ``custom_id`` repeats that of an earlier line."""
    known: dict[str, int] = {}
    errors: list[dict[str, Any]] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                custom_id = read(line.decode("utf-8-sig"))["custom_id"]
            except (ValueError, TypeError, LookupError, RecursionError):
                continue  # the answer to it will say so
            if not isinstance(custom_id, str):
                continue
            first = known.setdefault(custom_id, number)
            if first < number:
                message = f"Lines {first} and {number} have the same custom_id {custom_id[:100]!r}."
                message += " Use a different custom_id for each line."
                about = {"line": number, "param": "custom_id", "message": message}
                errors.append({"code": "duplicate_custom_id", **about})
                if len(errors) == _MOST_LISTED:
                    break
    return errors


def listed(found: list[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of a list.

    Args:
        found: the whole list, the newest first.
        query: the parameters ``limit``, ``after`` (an id), ``order`` and ``purpose``.

    Raises:
        ApiError: a parameter is wrong.
    """
    known = {"limit": "[1-9][0-9]{0,4}", "after": ".*", "order": "asc|desc", "purpose": ".*"}
    for name, value in query.items():
        if name not in known or not re.fullmatch(known[name], value, re.DOTALL):
            raise refused(f"{name} is not supported, or wrong.", name[:100], "invalid_value")
    if query.get("order") == "asc":
        found = found[::-1]
    if "purpose" in query:
        found = [one for one in found if one.get("purpose") == query["purpose"]]
    ids = [one["id"] for one in found]
    if "after" in query:
        found = found[ids.index(query["after"]) + 1 :] if query["after"] in ids else []
    page = found[: int(query.get("limit", "100"))]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(page) < len(found),
    }
