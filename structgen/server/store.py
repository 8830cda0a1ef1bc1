"""Answers of ``/v1/responses``: stored ones, and those that run in the background.

`Store` keeps finished answers of each owner in an SQLite file (that of the Runner's sessions) or in
memory. When there are too many, the oldest answer of the owner with the most is dropped. `Jobs` has
the tasks of background answers and their events, which a client may follow from any point. The
events of a finished answer stay for a while, for clients that reconnect.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from structgen.errors import SessionError
from structgen.runner import Aside, Database

from .errors import ApiError

_MOST_BYTES = 64 << 20
"""Most bytes of all answers and their messages, as JSON."""

_MOST_WAITING = 1_000
"""Most reads and writes that wait; owners take turns."""

_TABLE = """
CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    written REAL NOT NULL,
    size INTEGER NOT NULL,
    response TEXT NOT NULL,
    items TEXT NOT NULL,
    messages TEXT NOT NULL
)"""


@dataclass(slots=True)
class Stored:
    """One answer.

    Attributes:
        response: it.
        items: the input items.
        messages: the messages of the chat, without the answer's own.
        owner: the owner.
        size: characters of all these, if it is stored.
    """

    response: dict[str, Any]
    items: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    owner: str
    size: int = field(default=0, compare=False)

    def texts(self) -> list[str]:
        """Return the answer, items and messages as JSON."""
        parts = (self.response, self.items, self.messages)
        return [json.dumps(one, ensure_ascii=False) for one in parts]


@final
class Store:
    """The stored answers.

    Args:
        most: the most answers that are stored.
        seconds: the time after which an answer is deleted.
        path: the file; None: in memory.
        clock: returns seconds since 1970.

    Raises:
        SessionError: the file is something else, or cannot be read or created.
    """

    def __init__(
        self,
        most: int,
        seconds: float = float("inf"),
        path: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._turns = Aside(1, _MOST_WAITING, "structgen-store")
        self._file = Database(None if path is None else path.expanduser().absolute())
        with self._file.transaction() as connection:
            connection.execute(_TABLE)

    async def put(self, stored: Stored) -> None:
        """Store an answer, or its new state.

        Raises:
            ApiError: the file cannot be written.
        """

        def put() -> None:
            texts = stored.texts()
            size = sum(len(text.encode()) for text in texts)
            with self._transaction() as connection:
                row = (stored.response["id"], stored.owner, self._clock(), size, *texts)
                connection.execute(
                    "INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)", row
                )
                self._make_room(connection)

        await self._turns.do(stored.owner, put)

    async def get(self, id_: str, owner: str) -> Stored | None:
        """Return one, for whose it is.

        Raises:
            ApiError: the file cannot be read, or something else has changed it.
        """

        def get() -> Stored | None:
            with self._transaction() as connection:
                row = connection.execute(
                    "SELECT response, items, messages FROM responses "
                    "WHERE id = ? AND owner = ? AND written >= ?",
                    (id_, owner, self._oldest),
                ).fetchone()
            if row is None:
                return None
            try:
                response, items, messages = map(json.loads, row)
                if not isinstance(response, dict) or not all(
                    isinstance(one, dict) for one in (*items, *messages)
                ):
                    raise TypeError("it is not an answer")
            except (ValueError, TypeError, RecursionError) as error:
                raise ApiError(
                    503,
                    f"The stored answer {id_!r} is damaged: {error}. Send the request again.",
                    code="storage",
                ) from None
            return Stored(response, items, messages, owner, sum(map(len, row)))

        return await self._turns.do(owner, get)

    async def remove(self, id_: str, owner: str) -> bool:
        """Delete an answer; return whether it existed."""

        def remove() -> bool:
            with self._transaction() as connection:
                done = connection.execute(
                    "DELETE FROM responses WHERE id = ? AND owner = ?", (id_, owner)
                )
                return done.rowcount == 1

        return await self._turns.do(owner, remove)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def _oldest(self) -> float:
        """Return the earliest time of answers that have not expired."""
        return self._clock() - self._seconds

    def _make_room(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM responses WHERE written < ?", (self._oldest,))
        count, total = connection.execute("SELECT count(*), total(size) FROM responses").fetchone()
        while count > self._most or total > _MOST_BYTES:
            # Of the owner with the most, so that no owner can push out another's.
            most = "count(*)" if count > self._most else "sum(size)"
            oldest, less = connection.execute(
                "SELECT id, size FROM responses WHERE owner = (SELECT owner FROM responses "
                f"GROUP BY owner ORDER BY {most} DESC, min(written) LIMIT 1) "
                "ORDER BY written, rowid LIMIT 1"
            ).fetchone()
            connection.execute("DELETE FROM responses WHERE id = ?", (oldest,))
            count, total = count - 1, (total - less)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction, which is rolled back if anything goes wrong."""
        try:
            with self._file.transaction() as connection:
                yield connection
        except SessionError as error:
            raise ApiError(
                503,
                f"Cannot read or write the stored answers: {error.__cause__ or error}. Send "
                "store=false, or ask the operator to check the server's sessions file.",
                code="storage",
            ) from error


_MOST_JOBS = 16
"""Most background answers of one owner that run at once."""

_MOST_JOB_BYTES = 16 << 20
"""Most bytes of their input and events; above that no further one may begin."""

_FINISHED_JOBS = 64
"""Most finished answers whose events are kept."""

_FINISHED_JOB_BYTES = 32 << 20
"""Most bytes of these events."""


@final
class Job:
    """A background answer, running or finished.

    Attributes:
        stored: the answer so far.
        task: the task that makes it.
        events: its events, each at its sequence number.
        is_wanted: whether to store it; False once it was deleted.
        is_kept: whether the store has its final state.
        is_stopped: whether it was asked to end. A second time would drop its last events.
        size: bytes of its events, and of its input while it runs.
    """

    def __init__(self, stored: Stored, size: int = 0) -> None:
        self.stored = stored
        self.size = self._input = size
        self.task: asyncio.Task[None] | None = None
        self.events: list[bytes] = []
        self.is_wanted = True
        self.is_kept = False
        self.is_stopped = False
        self._is_over = False
        self._more = asyncio.Event()

    def add(self, event: bytes) -> None:
        """Add an event."""
        self.events.append(event)
        self.size += len(event)
        self._wake()

    @property
    def is_finished(self) -> bool:
        """Whether its work has ended."""
        return self._is_over and (self.task is None or self.task.done())

    def end(self) -> None:
        """Mark the events as complete."""
        self._is_over = True
        self.size, self._input = self.size - self._input, 0
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    async def after(self, number: int) -> AsyncGenerator[bytes, None]:
        """Yield the events after a number, as they come."""
        at = number + 1
        while True:
            while at < len(self.events):
                yield self.events[at]
                at += 1
            if self._is_over:
                return
            await self._more.wait()


@final
class Jobs:
    """All background answers. Used in one event loop only."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()

    def add(self, job: Job) -> None:
        """Add a new answer; drop some that finished long ago.

        Raises:
            ApiError: its owner has too many running.
        """
        owner = job.stored.owner
        open_ = [
            one for one in self._jobs.values() if one.stored.owner == owner and not one.is_finished
        ]
        size = sum(one.size for one in open_)
        if len(open_) >= _MOST_JOBS or size >= _MOST_JOB_BYTES:
            raise ApiError(
                429,
                f"You have {len(open_)} background answers in progress with {size:,} bytes. The "
                f"limits are {_MOST_JOBS} answers and {_MOST_JOB_BYTES:,} bytes. Wait for one to "
                "finish, or cancel one with POST /v1/responses/ID/cancel.",
                param="background",
                code="rate_limit_exceeded",
                headers={"Retry-After": "5"},
            )
        self._jobs[job.stored.response["id"]] = job
        finished = [(id_, one.size) for id_, one in self._jobs.items() if one.is_finished]
        count, held = len(finished), sum(size for _, size in finished)
        for id_, size in finished:
            if count <= _FINISHED_JOBS and held <= _FINISHED_JOB_BYTES:
                break
            del self._jobs[id_]
            count, held = count - 1, held - size

    def get(self, id_: str, owner: str) -> Job | None:
        """Return one, for whose it is."""
        found = self._jobs.get(id_)
        return found if found is not None and found.stored.owner == owner else None

    async def stop(self, id_: str, *, forget: bool = False) -> None:
        """Stop one."""
        job = self._jobs[id_]
        if forget:
            job.is_wanted = False
            del self._jobs[id_]
        if job.task is not None:
            if not job.is_stopped:
                job.is_stopped = True
                job.task.cancel()
            await asyncio.gather(job.task, return_exceptions=True)
        job.end()  # the task may not have begun

    async def close(self) -> None:
        """Stop all."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
