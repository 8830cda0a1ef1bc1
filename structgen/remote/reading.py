"""The answer of a server, read as it comes: out of its object, and byte by byte by our automaton.

Owns the way from what the server writes to a text of the output type: the object around a bare
value is taken off, a null that stands for a member left out is left out, and each byte is accepted
by the constraint or refused. Knows neither requests nor what is made of a refusal.
"""

from __future__ import annotations

import codecs
import re
from typing import Literal

from structgen.constraint import Constraint, Cursor
from structgen.errors import TokenNotAllowed
from structgen.insight import Unescaper, why_barred
from structgen.vocabulary import Vocabulary

BYTES = Vocabulary([bytes([byte]) for byte in range(256)] + [b""], eos_token_ids=[256])
"""A vocabulary of single bytes: a constraint over it reads any text."""

_END = 256
_BLANK = frozenset(b" \t\n\r")
_LONGEST_OPENING = 4096
_OPENING = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"value"[ \t\n\r]*:[ \t\n\r]*')
_MAY_OPEN = re.compile(
    rb'[ \t\n\r]*(\{[ \t\n\r]*("(v(a(l(u(e("[ \t\n\r]*(:[ \t\n\r]*)?)?)?)?)?)?)?)?)?'
)


class NotOfType(Exception):
    """The answer is no text of the type; says why, in words."""


class Answer:
    """One answer, fed piece by piece.

    Attributes:
        text: the text of the type so far, all of it accepted.
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
        """The answer goes on; returns what of the text is new and certain.

        Raises:
            NotOfType: no text of the type goes on so.
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
        """The answer has ended.

        Raises:
            NotOfType: it is not whole.
        """
        if self._object is not None:
            self._object.finish()
        if self._checked is not None:
            self._checked.finish()


class _Object:
    """Takes a value out of ``{"value": …}``: the text of a string, or JSON as it stands."""

    def __init__(self, is_text: bool) -> None:
        self._is_text = is_text
        self._before: bytearray | None = bytearray()
        self._string: Unescaper | None = None
        self._depth = 0
        self._in_string = self._escaped = False
        self._state: Literal["first", "inside", "behind", "closed"] = "first"
        self._is_scalar = False

    def feed(self, data: bytes) -> bytes:
        if self._before is not None:
            self._before += data
            opening = _OPENING.match(self._before)
            if opening is None or opening.end() == len(self._before):
                is_long = len(self._before) > _LONGEST_OPENING  # it is read anew with each piece
                if is_long or _MAY_OPEN.fullmatch(self._before) is None:
                    raise self._wrong(bytes(self._before))
                return b""
            data, self._before = bytes(self._before[opening.end() :]), None
        out = bytearray()
        for byte in data:
            if self._state == "first":
                if self._is_text and byte != 0x22:
                    raise self._wrong(bytes([byte]))
                self._string = Unescaper() if self._is_text else None
                self._is_scalar = byte not in b'{["'
                self._state = "inside"
                if self._is_text:
                    continue
            if self._state == "inside":
                if self._string is not None:
                    out += self._unescape(self._string, byte)
                    continue
                if self._is_scalar and (byte in _BLANK or byte in b"},"):
                    self._state = "behind"
                else:
                    out.append(byte)
                    self._follow(byte)
                    continue
            if byte in _BLANK:
                continue
            if byte != 0x7D or self._state == "closed":
                raise self._wrong(bytes([byte]))
            self._state = "closed"
        return bytes(out)

    def finish(self) -> None:
        if self._state != "closed":
            raise NotOfType('The answer ended before its object {"value": …} was whole.')

    def _unescape(self, string: Unescaper, byte: int) -> bytes:
        if string.in_escape or byte == 0x5C:
            text = string.escape(byte)
        elif byte == 0x22:
            text = string.end()
            self._state = "behind"
        else:
            text = string.plain(bytes([byte]))
        return text.encode("utf-8", "surrogatepass")

    def _follow(self, byte: int) -> None:
        """Find the end of a value in JSON."""
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif byte == 0x5C:
                self._escaped = True
            elif byte == 0x22:
                self._in_string = False
        elif byte == 0x22:
            self._in_string = True
        elif byte in b"{[":
            self._depth += 1
        elif byte in b"}]":
            self._depth -= 1
        if not self._is_scalar and not self._in_string and self._depth == 0:
            self._state = "behind"

    def _wrong(self, found: bytes) -> NotOfType:
        shown = found.decode("utf-8", "replace")[:60]
        return NotOfType(f'The answer is not of the form {{"value": …}}: it has {shown!r} there.')


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
        return why_barred(self._constraint, self._read, token, chosen=-1)


class _WithoutNulls(_Checked):
    """The same, without members that are null where the type has no null: they are left out.

    A member of an object is held back until its value begins.
    """

    def __init__(self, constraint: Constraint) -> None:
        super().__init__(constraint)
        self._members: list[int] = []  # of each open container: how many were kept; -1: an array
        self._written: list[int] = []  # the same, with those that were left out
        self._held: bytearray | None = None
        self._in_key = self._in_string = self._escaped = self._has_colon = False
        self._rest = b""  # of a null that is left out

    def feed(self, data: bytes) -> bytes:
        out = bytearray()
        for byte in data:
            if self._rest:
                if byte != self._rest[0]:
                    raise NotOfType(self._why(b"n" + bytes([byte])))
                self._rest = self._rest[1:]
                if not self._rest:
                    self._hold()
            elif self._held is not None:
                self._hold_back(self._held, byte, out)
            elif self._in_string:
                self._put(bytes([byte]), out)
                if self._ends_string(byte):
                    self._in_string = False
                    self._after_value()
            elif self._members and self._members[-1] >= 0 and (byte in _BLANK or byte in b",}"):
                self._hold()  # a number or a word has ended
                assert self._held is not None
                self._hold_back(self._held, byte, out)
            else:
                self._put(bytes([byte]), out)
                self._structure(byte)
        return bytes(out)

    def finish(self) -> None:
        if self._held:
            self._accept(bytes(self._held))
        super().finish()

    def _put(self, data: bytes, out: bytearray) -> None:
        self._accept(data)
        out += data

    def _hold(self) -> None:
        self._held = bytearray()
        self._in_key = self._has_colon = False

    def _ends_string(self, byte: int) -> bool:
        if self._escaped:
            self._escaped = False
        elif byte == 0x5C:
            self._escaped = True
        else:
            return byte == 0x22
        return False

    def _hold_back(self, held: bytearray, byte: int, out: bytearray) -> None:
        """Between two values of an object: a comma, a name, a colon, or the object's end."""
        if self._in_key:
            held.append(byte)
            self._in_key = not self._ends_string(byte)
        elif byte == 0x22 and not self._has_colon:
            held.append(byte)
            self._in_key = True
        elif byte == 0x3A and not self._has_colon:
            held.append(byte)
            self._has_colon = True
        elif byte in _BLANK or (byte == 0x2C and not self._has_colon):
            held.append(byte)
        elif self._has_colon:
            self._begin_value(bytes(held), byte, out)
        else:  # the object's end, or what does not belong here
            self._held = None
            self._put(bytes(held) + bytes([byte]), out)
            self._structure(byte)

    def _begin_value(self, before: bytes, byte: int, out: bytearray) -> None:
        if self._written[-1] and not self._members[-1]:
            # What stood before it was left out, the comma between them is still there.
            stripped = before.lstrip(b" \t\n\r")
            if stripped[:1] != b",":
                raise NotOfType(self._why(stripped[:1]))
            before = stripped[1:]
        self._written[-1] += 1
        self._held = None
        self._put(before, out)
        if byte == 0x6E and not self._takes(byte):
            self._cursor.rollback(len(before))
            del self._read[len(self._read) - len(before) :], out[len(out) - len(before) :]
            self._rest = b"ull"
            return
        self._members[-1] += 1
        self._put(bytes([byte]), out)
        self._structure(byte)

    def _takes(self, byte: int) -> bool:
        try:
            self._cursor.accept(byte)
        except TokenNotAllowed:
            return False
        self._cursor.rollback(1)
        return True

    def _structure(self, byte: int) -> None:
        """What a byte outside of strings opens or closes."""
        if byte == 0x22:
            self._in_string = True
        elif byte == 0x7B:
            self._members.append(0)
            self._written.append(0)
            self._hold()
        elif byte == 0x5B:
            self._members.append(-1)
            self._written.append(-1)
        elif byte in b"}]":
            self._members.pop()
            self._written.pop()
            self._after_value()

    def _after_value(self) -> None:
        if self._members and self._members[-1] >= 0:
            self._hold()
