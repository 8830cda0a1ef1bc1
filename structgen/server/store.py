"""Answers of ``/v1/responses`` that are kept, for their owner, until there are too many or too old.

Owns what is kept, for whom, how long, and which goes first: the oldest of whoever has most. In an
SQLite file, that of the Runner's sessions, so that they outlive the server; without one in memory.
An answer is written whole or not at all. Answers that are still being made are the `background`'s.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from structgen.runner import Sessions
from structgen.storage import fork_safe

from .errors import ApiError

_MOST_BYTES = 64 << 20
"""Most bytes of all answers and their messages, as JSON."""

_BUSY_SECONDS = 10.0

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
        items: the items of its input.
        messages: those of the chat, the answer's own not among them.
        owner: whose it is.
    """

    response: dict[str, Any]
    items: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    owner: str

    def texts(self) -> list[str]:
        """The answer, items and messages as JSON."""
        parts = (self.response, self.items, self.messages)
        return [json.dumps(one, ensure_ascii=False) for one in parts]


@final
class Store:
    """Those that there are.

    Args:
        most: how many are kept.
        seconds: after which one is forgotten.
        path: the file; None: in memory.
        clock: seconds since 1970.

    Raises:
        SessionError: the file is of something else, or cannot be read or made.
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
        self._lock = fork_safe(threading.Lock())
        if path is not None:
            path = path.expanduser()
            Sessions(path).close()  # makes it, for its owner alone, or says what is wrong with it
        self._connection = sqlite3.connect(
            ":memory:" if path is None else path,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        self._connection.execute("PRAGMA secure_delete = ON")  # nothing forgotten stays in the file
        self._connection.execute(_TABLE)

    async def put(self, stored: Stored) -> None:
        """Keep one, or what has become of it.

        Raises:
            ApiError: the file cannot be written.
        """
        await asyncio.to_thread(self._put, stored)

    async def get(self, id_: str, owner: str) -> Stored | None:
        """One, for whose it is."""
        return await asyncio.to_thread(self._get, id_, owner)

    async def remove(self, id_: str, owner: str) -> bool:
        """Forget one; whether it was there."""
        return await asyncio.to_thread(self._remove, id_, owner)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _put(self, stored: Stored) -> None:
        texts = stored.texts()
        size = sum(len(text.encode()) for text in texts)
        with self._transaction() as connection:
            row = (stored.response["id"], stored.owner, self._clock(), size, *texts)
            connection.execute("INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            count, total = connection.execute(
                "SELECT count(*), sum(size) FROM responses"
            ).fetchone()
            while count > self._most or total > _MOST_BYTES:
                # Of whoever has most, so that nobody drives out what is another's.
                most = "count(*)" if count > self._most else "sum(size)"
                oldest, less = connection.execute(
                    "SELECT id, size FROM responses WHERE owner = (SELECT owner FROM responses "
                    f"GROUP BY owner ORDER BY {most} DESC, min(written) LIMIT 1) "
                    "ORDER BY written, rowid LIMIT 1"
                ).fetchone()
                connection.execute("DELETE FROM responses WHERE id = ?", (oldest,))
                count, total = count - 1, (total - less)

    def _get(self, id_: str, owner: str) -> Stored | None:
        with self._transaction() as connection:
            row = connection.execute(
                "SELECT response, items, messages FROM responses WHERE id = ? AND owner = ?",
                (id_, owner),
            ).fetchone()
        if row is None:
            return None
        response, items, messages = map(json.loads, row)
        return Stored(response, items, messages, owner)

    def _remove(self, id_: str, owner: str) -> bool:
        with self._transaction() as connection:
            done = connection.execute(
                "DELETE FROM responses WHERE id = ? AND owner = ?", (id_, owner)
            )
            return done.rowcount == 1

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction, without answers that are too old; undone if anything goes wrong."""
        with self._lock:
            connection = self._connection
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    oldest = self._clock() - self._seconds
                    connection.execute("DELETE FROM responses WHERE written < ?", (oldest,))
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise ApiError(
                    503,
                    f"The answers that are kept cannot be read or written: {error}. Ask with "
                    "store=false, or have the server's file of sessions looked after.",
                    code="storage",
                ) from error
