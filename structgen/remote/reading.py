"""Read a server's answer as it arrives: out of its wrapper object, byte by byte by our automaton.

Turns the server's text into a text of the output type: it removes the object around a bare value,
drops a null that stands for a missing member, and lets the constraint accept or refuse each byte.
Knows no requests, and not what follows a refusal.
"""

from __future__ import annotations

import codecs
import re
from typing import Literal

from structgen.constraint import Constraint, Cursor
from structgen.errors import TokenNotAllowed
from structgen.insight import Closed, Grown, JsonReader, Opened, why_barred
from structgen.vocabulary import Vocabulary

BYTES = Vocabulary([bytes([byte]) for byte in range(256)] + [b""], eos_token_ids=[256])
"""A vocabulary of single bytes: a constraint over it reads any text."""

_END = 256
_BLANK = b" \t\n\r"
_LONGEST_OPENING = 4096  # bytes of a name and blanks before a value
MOST_EXPLAINED = 1 << 16  # bytes whose JSON is read again to say what may follow
_OPENING = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"value"[ \t\n\r]*:[ \t\n\r]*')
_MAY_OPEN = re.compile(
    rb'[ \t\n\r]*(\{[ \t\n\r]*("(v(a(l(u(e("[ \t\n\r]*(:[ \t\n\r]*)?)?)?)?)?)?)?)?)?'
)


class NotOfType(Exception):
    """The answer is not a text of the type; the message says why."""


class Answer:
    """One answer, fed piece by piece.

    Attributes:
        text: the accepted text of the type so far.
    """

    def __init__(
        self,
        constraint: Constraint | None,
        form: Literal["bare", "text", "value"] = "bare",
        has_nulls: bool = False,
    ) -> None:
        self._constraint = constraint
        self._object = None if form == "bare" else _Object(is_text=form == "text")
        self._pieces: list[str] = []
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogatepass").decode
        self._checked: _Checked | None = None
        if constraint is not None:
            self._checked = _WithoutNulls(constraint) if has_nulls else _Checked(constraint)

    @property
    def text(self) -> str:
        """The text of the type so far."""
        return "".join(self._pieces)

    def feed(self, piece: str) -> str:
        """Add a piece of the answer; return the new text that is certain.

        Raises:
            NotOfType: no text of the type continues like this.
        """
        data = piece.encode("utf-8", "surrogatepass")
        if self._object is not None:
            data = self._object.feed(data)
        if self._checked is not None:
            data = self._checked.feed(data)
        new = self._decode(data)
        if new:
            self._pieces.append(new)
        return new

    def finish(self) -> None:
        """End the answer.

        Raises:
            NotOfType: it is not whole.
        """
        if self._object is not None:
            self._object.finish()
        if self._checked is not None:
            self._checked.finish()


class _Object:
    """Takes the value out of ``{"value": …}``: the text of a string, or JSON unchanged."""

    def __init__(self, is_text: bool) -> None:
        self._is_text = is_text
        self._before: bytearray | None = bytearray()
        self._reader = JsonReader()
        self._reader.feed(b'{"value":')
        self._state: Literal["inside", "behind", "closed"] = "inside"

    def feed(self, data: bytes) -> bytes:
        if self._before is not None:
            self._before += data
            opening = _OPENING.match(self._before)
            if opening is None or opening.end() == len(self._before):
                is_long = len(self._before) > _LONGEST_OPENING  # it is read again with each piece
                if is_long or _MAY_OPEN.fullmatch(self._before) is None:
                    raise self._wrong(bytes(self._before))
                return b""
            data, self._before = bytes(self._before[opening.end() :]), None
        out = b""
        if self._state == "inside":
            out, data = self._inside(data)
        behind = data.strip(_BLANK)
        if behind:
            if behind != b"}" or self._state != "behind":
                raise self._wrong(behind)
            self._state = "closed"
        return out

    def finish(self) -> None:
        if self._state != "closed":
            raise NotOfType('The answer ended before its object {"value": …} was complete.')

    def _inside(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the part of the value in a piece, and what follows it."""
        begin = self._reader.n_bytes
        text = ""
        try:
            events = self._reader.feed(data)
        except (IndexError, ValueError):
            raise self._wrong(data) from None
        for event in events:
            if event.path[:1] != ("value",):
                raise self._wrong(data)
            if isinstance(event, Grown):
                text += event.text
            elif len(event.path) == 1:
                if isinstance(event, Closed):
                    self._state = "behind"
                    end = event.end - begin
                    return self._given(text, data[:end]), data[end:]
                if self._is_text and event.kind != "string":
                    raise self._wrong(data[event.start - begin :])
        return self._given(text, data), b""

    def _given(self, text: str, data: bytes) -> bytes:
        return text.encode("utf-8", "surrogatepass") if self._is_text else data

    def _wrong(self, found: bytes) -> NotOfType:
        shown = found.decode("utf-8", "replace")[:60]
        return NotOfType(f'The answer is not of the form {{"value": …}}: it has {shown!r} instead.')


class _Checked:
    """Bytes that a constraint accepts."""

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self._cursor: Cursor = constraint.start()
        self._read = bytearray()

    def feed(self, data: bytes) -> bytes:
        self._accept(data)
        return data

    def finish(self) -> None:
        if not self._cursor.is_accepting:
            raise NotOfType(self._why(_END))

    def _accept(self, data: bytes) -> None:
        accept, read = self._cursor.accept, self._read
        for byte in data:
            try:
                accept(byte)
            except TokenNotAllowed:
                raise NotOfType(self._why(bytes([byte]))) from None
            read.append(byte)

    def _why(self, token: int | bytes) -> str:
        if len(self._read) > MOST_EXPLAINED:
            return f"It does not match the type after {len(self._read):,} bytes."
        return why_barred(self._constraint, self._read, token, chosen=-1, cursor=self._cursor)


class _WithoutNulls(_Checked):
    """The same, but members that are null where the type allows no null are left out.

    A member of an object is held back until its value begins.
    """

    def __init__(self, constraint: Constraint) -> None:
        super().__init__(constraint)
        self._reader = JsonReader()
        self._held = b""
        # For each open object, the number of members written and kept; None: an array.
        self._open: list[list[int] | None] = []
        self._is_null = False  # whether the held value is a null that is left out

    def feed(self, data: bytes) -> bytes:
        out = bytearray()
        self._held += data
        try:
            events = self._reader.feed(data)
        except (IndexError, ValueError):  # no JSON
            self._accept(self._held)
            raise NotOfType("The answer is not JSON.") from None
        at = self._reader.n_bytes - len(self._held)  # where in the answer it begins

        def take(end: int) -> bytes:
            nonlocal at
            taken, self._held = self._held[: end - at], self._held[end - at :]
            at = end
            return taken

        for event in events:
            if isinstance(event, Opened):
                if self._open and self._open[-1] is not None:
                    self._begin(self._open[-1], take(event.start), out)
                if event.kind in ("object", "array"):
                    self._put(take(event.start + 1), out)
                    self._open.append([0, 0] if event.kind == "object" else None)
            elif isinstance(event, Closed):
                if event.kind in ("object", "array"):
                    self._open.pop()
                self._end(take(event.end), out)
        is_between = self._reader.open_start < 0 and self._open and self._open[-1] is not None
        if not is_between and not self._is_null:
            self._put(take(self._reader.n_bytes), out)
        if len(self._held) > _LONGEST_OPENING:
            raise NotOfType(f"The answer has {_LONGEST_OPENING:,} bytes before a value.")
        return bytes(out)

    def finish(self) -> None:
        if self._held and not self._is_null:
            self._accept(self._held)
        super().finish()

    def _put(self, data: bytes, out: bytearray) -> None:
        self._accept(data)
        out += data

    def _begin(self, members: list[int], before: bytes, out: bytearray) -> None:
        """Begin a member's value; ``before``: the comma, name and colon before it."""
        if members[0] and not members[1]:
            # The member before it was left out, but the comma between them remains.
            stripped = before.lstrip(_BLANK)
            if stripped[:1] != b",":
                raise NotOfType(self._why((stripped + self._held)[:1]))
            before = stripped[1:]
        members[0] += 1
        self._put(before, out)
        has_colon = before.rstrip(_BLANK).endswith(b":")
        self._is_null = has_colon and self._held[:1] == b"n" and not self._takes(0x6E)
        members[1] += not self._is_null
        if self._is_null:
            self._cursor.rollback(len(before))
            del self._read[len(self._read) - len(before) :], out[len(out) - len(before) :]

    def _end(self, value: bytes, out: bytearray) -> None:
        """End a value that has not been yielded yet."""
        if not self._is_null:
            self._put(value, out)
        elif value != b"null":
            raise NotOfType(self._why(value))
        self._is_null = False

    def _takes(self, byte: int) -> bool:
        try:
            self._cursor.accept(byte)
        except TokenNotAllowed:
            return False
        self._cursor.rollback(1)
        return True
