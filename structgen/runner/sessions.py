"""Sessions: conversations that are kept between requests, by name.

Owns `Sessions`: what was said by session id, one turn at a time, bounded in number, size and age,
out and in as JSON. A turn begins with what was said before and ends by adding to it; a turn that
fails changes nothing. Two turns of one session never run at once: in this process the second waits
for the first, from another process the second to end is told. Where rows are kept is
`session_file`'s. What the model has read of a conversation its sequences keep by themselves: the
next turn begins with the same text, which is not run again.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from structgen.decoding import chat
from structgen.errors import OptionError, PromptError, SessionError
from structgen.storage import fork_safe

from .fields import place, steps_of
from .messages import Message
from .session_file import SessionFile

MOST_SESSIONS = 1_000
"""How many sessions are kept, where nothing else is said."""

MOST_BYTES = 1_000_000
"""Bytes of JSON that one session may have, where nothing else is said."""

_LONGEST_ID = 200
_IN_TURNS: contextvars.ContextVar[frozenset[Future[None]]] = contextvars.ContextVar(
    "structgen_sessions_in_turns", default=frozenset()
)
"""The places in line of the turns that this code runs within."""

Messages: TypeAlias = list[dict[str, Any]]

_KEPT = TypeAdapter(list[Message])


class _Exported(BaseModel):
    """A session in JSON."""

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
        path: an SQLite file to keep them in, made if it is not there; several processes may use
            one. None: in memory, until the process ends.
        max_sessions: how many are kept; beyond, that which was used longest ago is deleted.
        max_bytes: how long one may be, in bytes of its JSON; then it takes no further turn.
        max_age: seconds after its last turn after which one is deleted; None: never.
        clock: seconds since 1970.

    Raises:
        OptionError: a bound is no positive number.
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
        for name, bound in (("max_sessions", max_sessions), ("max_bytes", max_bytes)):
            if type(bound) is not int or bound < 1:
                raise OptionError(f"{name}={bound!r} is no whole number above 0.")
        if max_age is not None and (
            isinstance(max_age, bool)
            or not isinstance(max_age, (int, float))
            or not (max_age > 0 and math.isfinite(max_age))
        ):
            raise OptionError(f"max_age={max_age!r} is no positive number of seconds.")
        self.max_bytes = max_bytes
        where = None if path is None else Path(path).expanduser().absolute()
        self._file = SessionFile(where, max_sessions, max_age, clock)
        self._lock = fork_safe(threading.Lock())
        self._lanes: dict[str, deque[Future[None]]] = {}

    def ids(self) -> list[str]:
        """The ids of all sessions, those that were used last first."""
        return self._file.ids()

    def messages(self, session_id: str) -> Messages:
        """What was said.

        Raises:
            SessionError: there is no such session.
        """
        row = self._file.read(_checked_id(session_id))
        if row is None:
            raise self._none(session_id)
        return _messages(session_id, row.messages)

    def delete(self, session_id: str) -> bool:
        """Delete a session. Returns whether there was one. A turn that is under way then fails."""
        return self._file.delete(_checked_id(session_id))

    def export(self, session_id: str) -> str:
        """A session as JSON, for `load`.

        Raises:
            SessionError: there is no such session.
        """
        row = self._file.read(_checked_id(session_id))
        if row is None:
            raise self._none(session_id)
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
        """Take in a session that was exported, and return its id.

        Args:
            exported: what `export` gave, or the same as a dict.
            session_id: what to call it; None: what it was called.
            replace: whether it stands in place of one that has the id.

        Raises:
            SessionError: it is none, is too long, or there is one with this id.
        """
        data = self._read(exported)
        name = _checked_id(data.id if session_id is None else session_id)
        if not math.isfinite(data.created):
            raise SessionError(f"created={data.created} is no time. Export the session again.")
        messages = [message.model_dump(exclude_none=True) for message in data.messages]
        try:
            if messages:
                chat.parse([message.for_template() for message in data.messages])
        except PromptError as error:
            raise SessionError(f"The session cannot be taken in. {error}") from None
        text = _text(messages)
        self._check_size(name, text)
        if not self._file.put(name, text, data.created, replace):
            raise SessionError(
                f"There is a session {name!r} already. Pass session_id= for another name, or "
                "replace=True.",
                session_id=name,
            )
        return name

    def turn(self, session_id: str) -> Turn:
        """A turn of a session, new or not, to be used with ``async with``.

        Raises:
            SessionError: this is no id.
        """
        return Turn(self, _checked_id(session_id))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, exported: str | bytes | Mapping[str, Any]) -> _Exported:
        if not isinstance(exported, (str, bytes, Mapping)):
            raise SessionError(
                f"A session is JSON, as str, bytes or dict; got {type(exported).__name__}."
            )
        try:
            if isinstance(exported, Mapping):
                return _Exported.model_validate(dict(exported))
            most = 2 * self.max_bytes + 10_000  # as JSON may be written with blanks and escapes
            if len(exported) > most:
                raise SessionError(
                    f"This session has {len(exported):,} characters; at most {most:,} are read. "
                    "Shorten it, or raise max_bytes."
                )
            return _Exported.model_validate_json(exported)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = place(steps_of(first["loc"], is_name=first["type"] == "extra_forbidden"))
            raise SessionError(
                "This is no session that was exported: "
                f"{f'at {where}: ' if where else ''}{first['msg']}."
            ) from None
        except UnicodeEncodeError as error:
            raise SessionError(f"This is no session that was exported: {error}.") from None

    def _check_size(self, session_id: str, text: str) -> None:
        size = len(text.encode())
        if size > self.max_bytes:
            raise SessionError(
                f"The session {session_id!r} would have {size:,} bytes; it may have at most "
                f"{self.max_bytes:,}. Begin another one, shorten it (export, import), or raise "
                "max_bytes.",
                session_id=session_id,
            )

    def _none(self, session_id: str) -> SessionError:
        return SessionError(
            f"There is no session {session_id!r}: it was never begun, was deleted, or has expired.",
            session_id=session_id,
        )

    def _enter(self, session_id: str) -> Future[None]:
        """A place in the line of those who want a turn."""
        ticket: Future[None] = Future()
        with self._lock:
            lane = self._lanes.setdefault(session_id, deque())
            if not _IN_TURNS.get().isdisjoint(lane):
                raise SessionError(
                    f"The session {session_id!r} is used from within a turn of its own, by a tool "
                    "say, which would wait for itself. Use another session there.",
                    session_id=session_id,
                )
            lane.append(ticket)
            if len(lane) == 1:
                ticket.set_result(None)
        return ticket

    def _leave(self, session_id: str, ticket: Future[None]) -> None:
        with self._lock:
            lane = self._lanes[session_id]
            lane.remove(ticket)
            if not lane:
                del self._lanes[session_id]
            elif not lane[0].done():
                try:
                    lane[0].set_result(None)
                except InvalidStateError:  # cancelled just now: it leaves, and goes on from there
                    return

    def _in_turns(self) -> list[str]:
        with self._lock:
            return list(self._lanes)


@final
class Turn:
    """One turn of a session: what was said before, and then what is added to it.

    Attributes:
        session_id: whose.
    """

    def __init__(self, sessions: Sessions, session_id: str) -> None:
        self.session_id = session_id
        self._sessions = sessions
        self._before: Messages = []
        self._read_at = 0
        self._ticket: Future[None] | None = None

    async def __aenter__(self) -> Turn:
        """Wait for turns of this session that are under way, and begin.

        Raises:
            SessionError: it is asked for from within a turn of the same session, which would wait
                for itself; or the file cannot be read.
        """
        sessions = self._sessions
        ticket = self._ticket = sessions._enter(self.session_id)
        try:
            if not ticket.done():
                await asyncio.wrap_future(ticket)
            row = await asyncio.to_thread(sessions._file.begin, self.session_id)
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
        """What was said, and then ``messages``. A system message at their beginning stands in
        place of the session's.

        Raises:
            SessionError: together they are longer than a session may be.
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
        """Keep ``messages`` as all that was said.

        Raises:
            SessionError: another process has gone on with the session meanwhile, or it was
                deleted; or the file cannot be written. What is kept is as it was.
        """
        sessions = self._sessions
        written = await asyncio.to_thread(
            sessions._file.write,
            self.session_id,
            _text([dict(message) for message in messages]),
            self._read_at,
            sessions._in_turns(),
        )
        if not written:
            raise SessionError(
                f"The session {self.session_id!r} was deleted, replaced, or gone on with by "
                "another process, while this turn was under way. This turn was not kept.",
                session_id=self.session_id,
            )
        self._before = [dict(message) for message in messages]
        self._read_at += 1


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def _text(messages: Messages) -> str:
    return json.dumps(messages, ensure_ascii=False, separators=(",", ":"))


def _messages(session_id: str, text: str) -> Messages:
    """What is kept of a session.

    Raises:
        SessionError: somebody else has changed it.
    """
    try:
        found: Messages = json.loads(text)
        for message in _KEPT.validate_python(found):
            message.for_template()
    except ValueError as error:
        raise SessionError(
            f"What is kept of the session {session_id!r} is damaged. Delete it. {error}",
            session_id=session_id,
        ) from None
    return found


def _checked_id(session_id: object) -> str:
    if not isinstance(session_id, str) or not session_id or len(session_id) > _LONGEST_ID:
        raise SessionError(
            f"A session's id is a text of 1 to {_LONGEST_ID} characters; got "
            f"{str(session_id)[:50]!r} ({type(session_id).__name__})."
        )
    if "\0" in session_id or any("\ud800" <= char <= "\udfff" for char in session_id):
        raise SessionError(f"The session's id {session_id!r} has a character that is no text.")
    return session_id
