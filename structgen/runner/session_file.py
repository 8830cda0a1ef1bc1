"""Where sessions are kept: an SQLite database, in memory or in a file.

Owns the table, its transactions, and what is told when the file cannot be read or written. A row is
written whole or not at all; who writes says which turn it has read, so that of two processes that
went on from the same turn the second is told, and nothing is overwritten. Knows no messages: texts.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from structgen.errors import SessionError
from structgen.storage import fork_safe

_APPLICATION_ID = 0x5347454E  # "SGEN"
_VERSION = 1
_BUSY_SECONDS = 10.0  # how long to wait for another process that writes

_TABLE = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    turn INTEGER NOT NULL,
    created REAL NOT NULL,
    used REAL NOT NULL,
    messages TEXT NOT NULL
)"""


@dataclass(frozen=True, slots=True)
class Row:
    """A session as it is kept.

    Attributes:
        turn: how often it was written.
        created: when it began, in seconds since 1970.
        used: when it was last read or written for a turn.
        messages: JSON.
    """

    turn: int
    created: float
    used: float
    messages: str


@final
class SessionFile:
    """The rows. Safe to use by all threads, and by several processes with one file.

    Args:
        path: the file, made if it is not there, for its owner only; None: in memory.
        most: most rows; beyond, those that were used longest ago are deleted.
        max_age: seconds after which a row that was not used is deleted; None: never.
        clock: seconds since 1970.

    Raises:
        SessionError: the file is of something else, or cannot be read or made.
    """

    def __init__(
        self, path: Path | None, most: int, max_age: float | None, clock: Callable[[], float]
    ) -> None:
        self.path = path
        self._most = most
        self._max_age = max_age
        self._clock = clock
        self._lock = fork_safe(threading.Lock())
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._is_closed = False
        with self._transaction():
            pass

    def read(self, session_id: str) -> Row | None:
        """The row, if there is one and it has not expired."""
        with self._transaction() as connection:
            return self._row(connection, session_id)

    def begin(self, session_id: str) -> Row | None:
        """The same, which is used now."""
        with self._transaction() as connection:
            now = self._clock()
            connection.execute("UPDATE sessions SET used = ? WHERE id = ?", (now, session_id))
            return self._row(connection, session_id)

    def write(self, session_id: str, messages: str, turn: int, kept: Collection[str]) -> bool:
        """Write a row, if it still is at the turn that was read: 0, if there was none.

        Args:
            session_id: whose.
            messages: JSON.
            turn: what the row was at when it was read.
            kept: ids that are not deleted to make room.

        Returns:
            Whether it was written.
        """
        with self._transaction() as connection:
            now = self._clock()
            if turn:
                done = connection.execute(
                    "UPDATE sessions SET turn = turn + 1, used = ?, messages = ? "
                    "WHERE id = ? AND turn = ?",
                    (now, messages, session_id, turn),
                )
                return done.rowcount == 1
            if self._row(connection, session_id) is not None:
                return False
            connection.execute(
                "INSERT INTO sessions VALUES (?, 1, ?, ?, ?)", (session_id, now, now, messages)
            )
            self._make_room(connection, {*kept, session_id})
            return True

    def put(self, session_id: str, messages: str, created: float, replaces: bool) -> bool:
        """Write a row that comes from elsewhere. Returns whether it was written."""
        with self._transaction() as connection:
            before = self._row(connection, session_id)
            if before is not None and not replaces:
                return False
            turn = 1 if before is None else before.turn + 1
            row = (session_id, turn, created, self._clock(), messages)
            connection.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?)", row)
            self._make_room(connection, {session_id})
            return True

    def delete(self, session_id: str) -> bool:
        """Delete a row. Returns whether there was one."""
        with self._transaction() as connection:
            done = connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
            return done.rowcount == 1

    def ids(self) -> list[str]:
        """Whose rows there are, those that were used last first."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT id FROM sessions ORDER BY used DESC, id")
            return [row[0] for row in rows]

    def close(self) -> None:
        """Close the file. What is read or written after that is refused."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _row(self, connection: sqlite3.Connection, session_id: str) -> Row | None:
        found = connection.execute(
            "SELECT turn, created, used, messages FROM sessions WHERE id = ?", (session_id,)
        ).fetchone()
        return None if found is None else Row(*found)

    def _make_room(self, connection: sqlite3.Connection, kept: set[str]) -> None:
        (count,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
        if count <= self._most:
            return
        oldest = connection.execute("SELECT id FROM sessions ORDER BY used, id").fetchall()
        free = [row for row in oldest if row[0] not in kept][: count - self._most]
        if len(free) < count - self._most:
            raise SessionError(
                f"There are {self._most:,} sessions, as many as may be, and all are in a turn. "
                "Raise the limit (max_sessions), or wait."
            )
        connection.executemany("DELETE FROM sessions WHERE id = ?", free)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction, without rows that have expired; undone if anything goes wrong."""
        with self._lock:
            if self._is_closed:
                raise SessionError("The sessions are closed, and so is their runner.")
            try:
                connection = self._opened()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    if self._max_age is not None:
                        oldest = self._clock() - self._max_age
                        connection.execute("DELETE FROM sessions WHERE used < ?", (oldest,))
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OSError) as error:
                raise self._failure(error) from error

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and (self.path is None or self._process == os.getpid()):
            return self._connection
        # A connection does not outlive a fork; the parent's is left as it is.
        if self.path is not None:
            # For the owner alone: chats are private.
            file = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                if os.name == "posix" and os.fstat(file).st_mode & 0o077:
                    os.fchmod(file, 0o600)
            finally:
                os.close(file)
        connection = sqlite3.connect(
            ":memory:" if self.path is None else self.path,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._process = connection, os.getpid()
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the table, or see that it is ours."""
        connection.execute("PRAGMA secure_delete = ON")  # what is deleted is not left in the file
        connection.execute("BEGIN IMMEDIATE")
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if owner == 0 and tables == 0:
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        elif owner != _APPLICATION_ID:
            raise SessionError(
                f"{self.path} is an SQLite file of another program. It was left as it is. Name a "
                "file of its own for the sessions."
            )
        elif version != _VERSION:
            raise SessionError(
                f"{self.path} was written by another version of structgen (form {version}; this "
                f"one reads form {_VERSION}). It was left as it is."
            )
        connection.execute("COMMIT")

    def _failure(self, error: Exception) -> SessionError:
        where = "The sessions in memory" if self.path is None else f"The sessions' file {self.path}"
        said = str(error)
        if "full" in said:
            advice = "The disk is full: make room."
        elif "not a database" in said or "malformed" in said or "corrupt" in said:
            advice = "It is damaged. Move it away, or put a copy in its place; a new one is made."
        elif "locked" in said:
            advice = f"Another process has held it for {_BUSY_SECONDS:g} s."
        elif isinstance(error, OSError) or "readonly" in said or "unable to open" in said:
            advice = "Check that its folder exists, and who may write to it."
        else:
            advice = ""
        return SessionError(
            f"{where} cannot be used: {said}. Nothing in it was changed. {advice}".rstrip()
        )
