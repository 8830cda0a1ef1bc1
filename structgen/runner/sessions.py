"""Sessions: conversations stored between requests, by id, in memory or in an SQLite file.

`Sessions` stores messages by session id, with limits on number, size and age, and imports and
exports sessions as JSON. A turn starts from the stored messages and adds to them; a turn that fails
changes nothing. Within a process, two turns of one session never run at once: the second waits. The
model's sequences cache what they have read of a conversation, so the next turn does not run the
same text again.

`Database` has the file, its transactions, and the errors for a file that cannot be read or written.
A row is written completely or not at all. A writer names the turn that it has read: if two
processes continue from the same turn, the second to finish gets an error, and nothing is
overwritten. Turns of a row count from a random number, since it may replace a deleted row.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import math
import os
import re
import secrets
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from structgen.decoding import chat
from structgen.errors import PromptError, SessionError
from structgen.options import Whole
from structgen.storage import fork_safe

from .fields import check_json, place, steps_of
from .requests import Message
from .tools import check_seconds

_APPLICATION_ID = 0x5347454E  # "SGEN"
_VERSION = 1
_BUSY_SECONDS = 10.0  # seconds to wait for another process that writes
_LONGEST_ROW = 256 << 20  # bytes: a row of 600 MB in a foreign file took twice as much memory

_TABLE = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    turn INTEGER NOT NULL,
    created REAL NOT NULL,
    used REAL NOT NULL,
    messages TEXT NOT NULL
)"""


_PLAIN = re.compile(
    r"CREATE TABLE \w+ \((?:\s*\w+ (?:TEXT|INTEGER|REAL)(?: PRIMARY KEY| NOT NULL)?,?)+\s*\)"
)
"""Matches the definition of a table that computes nothing. A server has a table of its own beside
the sessions."""


@dataclass(frozen=True, slots=True)
class Row:
    """A session as it is stored.

    Attributes:
        turn: how often the session was written.
        created: when it began, in seconds since 1970.
        used: when it was last read or written for a turn.
        messages: JSON.
    """

    turn: int
    created: float
    used: float
    messages: str


@final
class Database:
    """An SQLite file. Safe to use by all threads, and by several processes at once.

    Args:
        path: the file, created if necessary, readable by its owner only; None: in memory.

    Raises:
        SessionError: the file is something else, or cannot be read or created.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = fork_safe(threading.Lock())
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._is_closed = False
        with self.transaction():
            pass

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction, which is rolled back if anything goes wrong."""
        with self._lock:
            if self._is_closed:
                raise SessionError("The sessions are closed because their Runner is closed.")
            try:
                connection = self._opened()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # in a message
                raise self._failure(error) from error

    def close(self) -> None:
        """Close the file. Later reads and writes raise an error."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and (self.path is None or self._process == os.getpid()):
            return self._connection
        # A connection cannot be used after a fork; the parent's is left alone.
        if self.path is not None:
            # For the owner only: chats are private.
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
            if sys.version_info >= (3, 11):
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_ROW)
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._process = connection, os.getpid()
        weakref.finalize(self, connection.close).atexit = False  # if nobody closes it
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Create the table, or check that it is ours."""
        connection.execute("PRAGMA secure_delete = ON")  # deleted data does not stay in the file
        connection.execute("BEGIN IMMEDIATE")
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        made = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        if owner == 0 and not made:
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        elif owner != _APPLICATION_ID:
            raise SessionError(
                f"{self.path} is an SQLite file of another program. structgen did not change it. "
                "Use a separate file for the sessions."
            )
        elif version != _VERSION:
            raise SessionError(
                f"{self.path} was written by another version of structgen (format {version}; this "
                f"version reads format {_VERSION}). structgen did not change it. Use another file."
            )
        # Triggers, views, indexes and checks may compute forever. SQLite's own indexes have no
        # text.
        elif ("table", "sessions", _TABLE.strip()) not in made or not all(
            kind == "index" if sql is None else _PLAIN.fullmatch(sql) for kind, _, sql in made
        ):
            raise SessionError(
                f"{self.path} has views, triggers, indexes or a table that structgen did not "
                "create. structgen did not change it. Use another file."
            )
        connection.execute("COMMIT")

    def _failure(self, error: Exception) -> SessionError:
        where = "The sessions in memory" if self.path is None else f"The sessions file {self.path}"
        reason = str(error)
        if "full" in reason:
            advice = "The disk is full. Free some space."
        elif any(one in reason for one in ("not a database", "malformed", "corrupt", "decode")):
            advice = "It is damaged. Move it away to start with an empty file, or restore a backup."
        elif "too big" in reason:
            advice = f"A row has, or would have, more than {_LONGEST_ROW:,} bytes."
        elif "locked" in reason:
            advice = f"Another process has locked it for {_BUSY_SECONDS:g} s."
        elif isinstance(error, OSError) or "readonly" in reason or "unable to open" in reason:
            advice = "Check that its folder exists and that you may write to it."
        else:
            advice = ""
        return SessionError(
            f"{where} cannot be used: {reason}. Nothing was changed. {advice}".rstrip()
        )


MOST_SESSIONS = 1_000
"""How many sessions are kept by default."""

MOST_BYTES = 1_000_000
"""Bytes of JSON that one session may have by default."""

_LONGEST_ID = 200
_IN_TURNS: contextvars.ContextVar[frozenset[Future[None]]] = contextvars.ContextVar(
    "structgen_sessions_in_turns", default=frozenset()
)
"""The places in line of the turns that this code runs inside."""

Messages: TypeAlias = list[dict[str, Any]]

_KEPT = TypeAdapter(list[Message])


class _Exported(BaseModel):
    """A session as exported JSON."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal["structgen.session"]
    version: Literal[1]
    id: str
    created: float
    messages: list[Message]


@final
class Sessions:
    """Conversations by session id. Safe to share by threads, tasks and loops.

    Args:
        path: the SQLite file that stores them, created if necessary. Several processes may share
            it. None: memory.
        max_sessions: most sessions. Beyond it, the least recently used one is deleted.
        max_bytes: most bytes of one session, as JSON. A longer one takes no further turn.
        max_age: seconds after its last turn until a session is deleted; None: never.
        clock: returns seconds since 1970.

    Raises:
        OptionError: a limit is not a positive number.
        SessionError: the file cannot be used.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_sessions: int = MOST_SESSIONS,
        max_bytes: int = MOST_BYTES,
        max_age: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        Whole(1)("max_sessions", max_sessions)
        Whole(1)("max_bytes", max_bytes)
        check_seconds("max_age", max_age)
        self.max_bytes = max_bytes
        self._most = max_sessions
        self._max_age = max_age
        self._clock = clock
        self._file = Database(None if path is None else Path(path).expanduser().absolute())
        self._lock = fork_safe(threading.Lock())
        # The callers that want a turn, in order, each with the turns it is inside.
        self._lanes: dict[str, dict[Future[None], frozenset[Future[None]]]] = {}

    def ids(self) -> list[str]:
        """Return the ids of all sessions, the most recently used first."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT id FROM sessions ORDER BY used DESC, id")
            return [row[0] for row in rows]

    def messages(self, session_id: str) -> Messages:
        """Return the messages of a session.

        Raises:
            SessionError: there is no such session.
        """
        return _messages(session_id, self._known(session_id).messages)

    def delete(self, session_id: str) -> bool:
        """Delete a session, and return whether it existed. A running turn of it then fails."""
        name = _checked_id(session_id)
        with self._transaction() as connection:
            done = connection.execute("DELETE FROM sessions WHERE id = ?", (name,))
            return done.rowcount == 1

    def export(self, session_id: str) -> str:
        """Return a session as JSON that `load` accepts.

        Raises:
            SessionError: there is no such session.
        """
        row = self._known(session_id)
        made = {
            "format": "structgen.session",
            "version": 1,
            "id": session_id,
            "created": row.created,
            "messages": _messages(session_id, row.messages),
        }
        return json.dumps(made, ensure_ascii=False)

    def load(
        self,
        exported: str | bytes | Mapping[str, Any],
        session_id: str | None = None,
        *,
        replace: bool = False,
    ) -> str:
        """Import a session that was exported, and return its id.

        Args:
            exported: the result of `export`, or the same as a dict.
            session_id: its id here; None: the exported id.
            replace: whether to replace a session that has the id.

        Raises:
            SessionError: it is not a session, it is too long, or the id is taken.
        """
        data = self._read(exported)
        name = _checked_id(data.id if session_id is None else session_id)
        if not math.isfinite(data.created):
            raise SessionError(
                f"created={data.created} is not a valid time. Export the session again."
            )
        messages = [message.model_dump(exclude_none=True) for message in data.messages]
        try:
            if messages:
                chat.parse([message.for_template() for message in data.messages])
        except PromptError as error:
            raise SessionError(f"The session cannot be imported: {error}") from None
        text = _text(messages)
        self._check_size(name, text)
        with self._transaction() as connection:
            before = self._row(connection, name)
            if before is not None and not replace:
                raise SessionError(
                    f"A session {name!r} already exists. Pass another name as session_id=, or "
                    "replace=True.",
                    session_id=name,
                )
            row = (name, 1 + secrets.randbits(48), data.created, self._clock(), text)
            connection.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?)", row)
            self._make_room(connection, {name})
        return name

    def turn(self, session_id: str) -> Turn:
        """Begin a turn of a new or stored session. Use it with ``async with``.

        Raises:
            SessionError: the id is not valid.
        """
        return Turn(self, _checked_id(session_id))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, exported: str | bytes | Mapping[str, Any]) -> _Exported:
        if not isinstance(exported, (str, bytes, Mapping)):
            raise SessionError(
                f"A session must be JSON as a str, bytes or dict; got {type(exported).__name__}."
            )
        try:
            if isinstance(exported, Mapping):
                return _Exported.model_validate(dict(exported))
            most = 2 * self.max_bytes + 10_000  # since JSON may be written with blanks and escapes
            if len(exported) > most:
                raise SessionError(
                    f"This session has {len(exported):,} characters; the limit is {most:,}. "
                    "Shorten it, or raise max_bytes."
                )
            return _Exported.model_validate_json(exported)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = place(steps_of(first["loc"], is_name=first["type"] == "extra_forbidden"))
            raise SessionError(
                "This is not an exported session: "
                f"{f'at {where}: ' if where else ''}{first['msg']}."
            ) from None
        except UnicodeEncodeError as error:
            raise SessionError(f"This is not an exported session: {error}.") from None

    def _check_size(self, session_id: str, text: str) -> None:
        size = len(text.encode())
        if size > self.max_bytes:
            raise SessionError(
                f"The session {session_id!r} would have {size:,} bytes; the limit is "
                f"{self.max_bytes:,}. Start a new session, shorten it (export, then import), or "
                "raise max_bytes.",
                session_id=session_id,
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction, in which expired rows have been deleted."""
        with self._file.transaction() as connection:
            if self._max_age is not None:
                oldest = self._clock() - self._max_age
                connection.execute("DELETE FROM sessions WHERE used < ?", (oldest,))
            yield connection

    def _row(self, connection: sqlite3.Connection, session_id: str) -> Row | None:
        found = connection.execute(
            "SELECT turn, created, used, messages FROM sessions WHERE id = ?", (session_id,)
        ).fetchone()
        if found is not None and [*map(type, found)] != [int, float, float, str]:
            raise _damaged(session_id, "Its row has values of the wrong types.")
        return None if found is None else Row(*found)

    def _known(self, session_id: str) -> Row:
        name = _checked_id(session_id)
        with self._transaction() as connection:
            row = self._row(connection, name)
        if row is None:
            raise SessionError(
                f"The session {session_id!r} does not exist: it was never started, was deleted, "
                "or has expired.",
                session_id=session_id,
            )
        return row

    def _begin(self, session_id: str) -> Row | None:
        """Return the row, marked as used now; None: there is none."""
        with self._transaction() as connection:
            now = self._clock()
            connection.execute("UPDATE sessions SET used = ? WHERE id = ?", (now, session_id))
            return self._row(connection, session_id)

    def _write(self, session_id: str, messages: str, turn: int) -> int:
        """Write a row if it is still at the turn that was read (0: it did not exist); return its
        turn now, or 0 if it was not."""
        with self._lock:
            in_turns = {*self._lanes, session_id}
        with self._transaction() as connection:
            now = self._clock()
            if turn:
                done = connection.execute(
                    "UPDATE sessions SET turn = turn + 1, used = ?, messages = ? "
                    "WHERE id = ? AND turn = ?",
                    (now, messages, session_id, turn),
                )
                return (turn + 1) * done.rowcount
            if self._row(connection, session_id) is not None:
                return 0
            row = (session_id, 1 + secrets.randbits(48), now, now, messages)
            connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", row)
            self._make_room(connection, in_turns)
            return row[1]

    def _make_room(self, connection: sqlite3.Connection, kept: set[str]) -> None:
        (count,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
        if count <= self._most:
            return
        oldest = connection.execute("SELECT id FROM sessions ORDER BY used, id").fetchall()
        free = [row for row in oldest if row[0] not in kept][: count - self._most]
        if len(free) < count - self._most:
            raise SessionError(
                f"All {self._most:,} sessions (max_sessions) are in use by running requests. "
                "Wait, or raise max_sessions."
            )
        connection.executemany("DELETE FROM sessions WHERE id = ?", free)

    def _enter(self, session_id: str) -> Future[None]:
        """Return a place in the line of callers that want a turn."""
        ticket: Future[None] = Future()
        within = _IN_TURNS.get()
        with self._lock:
            lane = self._lanes.setdefault(session_id, {})
            if within and not within.isdisjoint(self._needed(lane)):
                whose = (
                    "of the same session"
                    if not within.isdisjoint(lane)
                    else "that this session waits for"
                )
                raise SessionError(
                    f"The session {session_id!r} is used inside a turn {whose}, for example by a "
                    "tool, so it would wait for itself. Use another session there.",
                    session_id=session_id,
                )
            lane[ticket] = within
            if len(lane) == 1:
                ticket.set_result(None)
        return ticket

    def _needed(self, turns: Iterable[Future[None]]) -> set[Future[None]]:
        """Return all turns that must end before these can end."""
        found: set[Future[None]] = set()
        left = [*turns]
        while left:
            one = left.pop()
            if one not in found:
                found.add(one)
                for lane in self._lanes.values():
                    line = [*lane]
                    left += line[: line.index(one)] if one in lane else ()
                    left += [other for other in line if one in lane[other]]
        return found

    def _leave(self, session_id: str, ticket: Future[None]) -> None:
        with self._lock:
            lane = self._lanes[session_id]
            del lane[ticket]
            if not lane:
                del self._lanes[session_id]
            elif not (first := next(iter(lane))).done():
                try:
                    first.set_result(None)
                except InvalidStateError:  # just cancelled: it leaves the line itself
                    return


@final
class Turn:
    """One turn of a session: the messages before it, then those that it adds."""

    def __init__(self, sessions: Sessions, session_id: str) -> None:
        self.session_id = session_id
        self._sessions = sessions
        self._before: Messages = []
        self._read_at = 0
        self._ticket: Future[None] | None = None

    async def __aenter__(self) -> Turn:
        """Wait for earlier turns of this session, and begin.

        Raises:
            SessionError: begun inside a turn of this session, or inside one that this session waits
                for, so it would wait for itself; or the file cannot be read.
        """
        sessions = self._sessions
        ticket = self._ticket = sessions._enter(self.session_id)
        try:
            if not ticket.done():
                await asyncio.wrap_future(ticket)
            row = await asyncio.to_thread(sessions._begin, self.session_id)
            if row is not None:
                self._before = _messages(self.session_id, row.messages)
                self._read_at = row.turn
            _IN_TURNS.set(_IN_TURNS.get() | {ticket})
        except BaseException:
            sessions._leave(self.session_id, ticket)
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._ticket is not None:
            _IN_TURNS.set(_IN_TURNS.get() - {self._ticket})
            self._sessions._leave(self.session_id, self._ticket)

    def with_history(self, messages: Sequence[Mapping[str, Any]]) -> Messages:
        """Return the session's messages, then ``messages``. If these begin with a system message,
        it replaces the session's.

        Raises:
            SessionError: together they exceed the size limit of a session.
        """
        new = [dict(message) for message in messages]
        before = self._before
        if before and new and _is_system(new[0]):
            if _is_system(before[0]):
                before = before[1:]
            before = [new.pop(0), *before]
        together = [*before, *new]
        self._sessions._check_size(self.session_id, _text(together))
        return together

    async def end(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Store ``messages`` as the whole session.

        Raises:
            SessionError: another process has continued the session meanwhile, or it was deleted, or
                the file cannot be written. The stored session is unchanged.
        """
        sessions = self._sessions
        written = await asyncio.to_thread(
            sessions._write,
            self.session_id,
            _text([dict(message) for message in messages]),
            self._read_at,
        )
        if not written:
            raise SessionError(
                f"The session {self.session_id!r} was deleted, replaced or continued by another "
                "process during this turn. This turn was not saved.",
                session_id=self.session_id,
            )
        self._before = [dict(message) for message in messages]
        self._read_at = written


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def _text(messages: Messages) -> str:
    return json.dumps(messages, ensure_ascii=False, separators=(",", ":"))


def _messages(session_id: str, text: str) -> Messages:
    """Return the messages of a stored session.

    Raises:
        SessionError: the stored text is invalid, because something else changed it.
    """
    try:
        check_json(text, len(text))
        found: Messages = json.loads(text)
        for message in _KEPT.validate_python(found):
            message.for_template()
    except ValueError as error:
        raise _damaged(session_id, str(error)) from None
    return found


def _damaged(session_id: str, why: str) -> SessionError:
    return SessionError(
        f"The stored session {session_id!r} is damaged. Delete it. {why}", session_id=session_id
    )


def _checked_id(session_id: object) -> str:
    if not isinstance(session_id, str) or not session_id or len(session_id) > _LONGEST_ID:
        raise SessionError(
            f"A session id must be a string of 1 to {_LONGEST_ID} characters; got "
            f"{str(session_id)[:50]!r} ({type(session_id).__name__})."
        )
    if "\0" in session_id or any("\ud800" <= char <= "\udfff" for char in session_id):
        raise SessionError(f"The session id {session_id!r} contains a NUL or a lone surrogate.")
    return session_id
