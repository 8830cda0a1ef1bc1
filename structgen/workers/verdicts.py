"""Checks that need the user's code, for an output that is written in another process.

This module has both sides of ``retries=`` across the pipe. In the worker, `AskedChecks` replaces
the type's checks: it reads the JSON and asks about each value that closes. In the parent, a `Judge`
reads the same bytes with the type's own `structgen.values.Checks` and answers. Knows no pipe, loop
or model.

    worker: AskedReading.read ─▶ Question ─▶ Judge.answer: parent
                 verdict      ◀─  Verdict ◀──────┘

While it waits for an answer, the output is paused and others get passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from structgen.errors import ParseError
from structgen.insight import Closed, JsonReader
from structgen.values import WAITING, Checks, Key, Refusal


@dataclass(frozen=True, slots=True)
class Question:
    """To the parent: an output continues.

    Attributes:
        id: the call's number.
        keep: how many of the bytes sent before are still valid.
        pieces: the bytes after those, by token.
        is_end: whether this is the end.
    """

    id: int
    keep: int
    pieces: Sequence[bytes]
    is_end: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """To the worker: the result of the checks.

    Attributes:
        id: the call's number.
        refusal: the refusal, or None.
        settled_before: the settled offset before the last piece.
        settled: the settled offset after it.
        open_values: as `structgen.values.Reading.open_values`.
    """

    id: int
    refusal: Refusal | None
    settled_before: int
    settled: int
    open_values: tuple[tuple[Key, int], ...]


# -- in the worker ----------------------------------------------------------------------------


@final
class AskedChecks:
    """The checks of one output, which run in the parent."""

    def __init__(
        self,
        name: str,
        ask: Callable[[Question], object],
        call_id: int,
        *,
        is_json: bool,
        streams_text: bool,
    ) -> None:
        """Begin an output.

        Args:
            name: the type's name.
            ask: sends a question to the parent.
            call_id: the call's number.
            is_json: whether values are checked when they close, not only the whole.
            streams_text: whether to send every token, because a reader waits for its text.
        """
        self.name = name
        self.is_json = is_json
        self.asks_always = streams_text
        self.latest: AskedReading | None = None
        self.ask = ask
        self.id = call_id

    def reading(self, data: bytes = b"") -> AskedReading:
        """Begin, or continue with an output of which ``data`` has been accepted."""
        self.latest = AskedReading(self, data)
        return self.latest

    def receive(self, verdict: Verdict) -> None:
        """Receive an answer, in any thread."""
        if self.latest is not None:
            self.latest.answer = verdict


@final
class AskedReading:
    """An output while it is written. See `structgen.values.Reading`."""

    values: tuple[Any, ...] = ()  # the parent has them

    def __init__(self, checks: AskedChecks, data: bytes) -> None:
        self.settled = self.settled_before = 0
        self.open_values: Sequence[tuple[Key, int]] = ()
        self.answer: Verdict | None = None
        self._checks = checks
        self._keep = len(data)
        self._pieces: list[bytes] = []
        self._reader = JsonReader()
        if checks.is_json:
            self._reader.feed(data)

    def read(self, data: bytes) -> Any:
        """Read more of the output."""
        self._pieces.append(data)
        if not self._checks.is_json:
            return None
        has_closed = any(isinstance(event, Closed) for event in self._reader.feed(data))
        if has_closed or self._checks.asks_always:
            return self._ask(is_end=False)
        return None

    def end(self) -> Any:
        """End the output."""
        return self._ask(is_end=True)

    def _ask(self, *, is_end: bool) -> Any:
        self.answer = None
        pieces = tuple(self._pieces)
        self._checks.ask(Question(self._checks.id, self._keep, pieces, is_end))
        self._keep += sum(map(len, self._pieces))
        self._pieces.clear()
        return WAITING

    def verdict(self) -> Any:
        """Return the answer to the last question; `WAITING` while there is none."""
        found = self.answer
        if found is None:
            return WAITING
        self.settled_before, self.settled = found.settled_before, found.settled
        self.open_values = found.open_values
        # From now on, starts of values matter, too.
        self._checks.asks_always = self._checks.asks_always or found.refusal is not None
        return found.refusal


# -- in the parent ----------------------------------------------------------------------------


@final
class Judge:
    """The checks of one output.

    Attributes:
        values: the value of the whole output, after it was accepted.
        error: the error of the latest refused value.
    """

    def __init__(self, checks: Checks) -> None:
        self.values: tuple[Any, ...] = ()
        self.error: ParseError | None = None
        self._checks = checks
        self._reading = checks.reading()
        self._data = bytearray()

    def answer(self, question: Question) -> Verdict:
        """Return the result of the checks. Raises errors of the type's code other than refusals."""
        if question.keep != len(self._data):
            del self._data[question.keep :]
            self._reading = self._checks.reading(bytes(self._data))
        reading = self._reading
        refusal: Refusal | None = None
        before = reading.settled
        for piece in question.pieces:
            before = reading.settled
            self._data += piece
            refusal = reading.read(piece)
        if question.is_end:
            before = reading.settled
            refusal = reading.end()
        self.values = reading.values
        if refusal is not None:
            self.error = refusal.error
        return Verdict(question.id, refusal, before, reading.settled, tuple(reading.open_values))
