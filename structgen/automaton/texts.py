"""Texts that may be longer than memory: bytes, or a rope of shared parts.

The shortest text of a type can be astronomically long (a thousand items of a thousand items of a
thousand), and the shortest ways from all states of one text share most of their parts. A `Rope` is
two texts in a row, or one text repeated. It knows its length and takes the same memory whatever its
length. `flat` returns its bytes if there are few. Short texts are plain bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, final

from structgen.automaton.work import WORK
from structgen.errors import check_limit

LONGEST = 1 << 60
"""`len` of a rope is at most this."""

MAX_FLAT = 4 << 20
"""The most bytes that `flat` returns."""

_SHORT = 512
"""Texts of up to this many bytes are plain bytes, never ropes."""

_COMPARED = 1024
"""Texts of equal length are compared by this many of their first bytes."""

_PIECE = 4096
"""Rough maximum size of a piece, in bytes."""


@final
class Rope:
    """A text of more than `_SHORT` bytes: ``first`` repeated ``times`` times, then ``second``.
    Immutable.
    """

    __slots__ = ("first", "second", "size", "times")

    def __init__(self, first: Text, times: int, second: Text) -> None:
        self.first = first
        self.times = times
        self.second = second
        self.size: int = size_of(first) * times + size_of(second)

    def __len__(self) -> int:
        return min(self.size, LONGEST)

    def __add__(self, other: Text) -> Text:
        return Rope(self, 1, other) if other else self

    def __radd__(self, other: bytes) -> Text:
        return Rope(other, 1, self) if other else self

    def __bytes__(self) -> bytes:
        return flat(self)

    def __lt__(self, other: Text) -> bool:
        return head(self, _COMPARED) < head(other, _COMPARED)

    def __gt__(self, other: Text) -> bool:
        return head(self, _COMPARED) > head(other, _COMPARED)

    def __repr__(self) -> str:
        return f"Rope({head(self, 20)!r}…, {self.size:,} bytes)"


Text: TypeAlias = "bytes | Rope"


def size_of(text: Text) -> int:
    """Return the number of bytes of ``text``, without the limit of `len`."""
    return text.size if isinstance(text, Rope) else len(text)


def put(first: Text, second: Text) -> Text:
    """Return two texts, one after the other."""
    if isinstance(first, Rope) or isinstance(second, Rope):
        return first + second
    if len(first) + len(second) <= _SHORT or not first or not second:
        return first + second
    return Rope(first, 1, second)


def repeated(text: Text, times: int) -> Text:
    """Return ``text`` repeated ``times`` times."""
    if times <= 1 or not text:
        return text if times > 0 else b""
    if isinstance(text, bytes) and len(text) * times <= _SHORT:
        return text * times
    return Rope(text, times, b"")


def joined(between: bytes, texts: Sequence[Text]) -> Text:
    """Return ``texts`` in a row, with ``between`` between any two. Equal neighbours share one
    object."""
    if len(texts) < _SHORT and sum(map(len, texts)) + len(between) * len(texts) <= _SHORT:
        return between.join(map(bytes, texts))
    WORK.spend(1 + (len(texts) >> 2))
    out: Text = b""
    piece: list[bytes] = []  # short texts before ``out``, last one first: one part of the rope
    size = 0
    at = len(texts)
    while at:
        end, text = at, texts[at - 1]
        at -= 1
        while at and texts[at - 1] is text:
            at -= 1
        if end == len(texts):
            part = put(repeated(put(text, between), end - at - 1), text)
        else:
            part = repeated(put(text, between), end - at)
        if isinstance(part, bytes) and size + len(part) <= _SHORT:
            piece.append(part)
            size += len(part)
            continue
        if piece:
            out = put(b"".join(reversed(piece)), out)
        piece, size = [], 0
        if isinstance(part, bytes):
            piece, size = [part], len(part)
        else:
            out = put(part, out)
    return put(b"".join(reversed(piece)), out)


def flat(text: Text) -> bytes:
    """Return the bytes of ``text``.

    Raises:
        CompileLimitExceeded: there are more than `MAX_FLAT` of them.
    """
    if isinstance(text, bytes):
        return text
    check_limit(
        text.size,
        MAX_FLAT,
        "structgen would have to write out a shortest text of the output type, which is too long; "
        "require fewer or shorter items",
    )
    parts = [*chunks(text)]
    WORK.spend(len(parts) >> 2)
    return b"".join(parts)


def head(text: Text, most: int) -> bytes:
    """Return the first bytes of ``text``, up to ``most``."""
    if isinstance(text, bytes):
        return text[:most]
    out = bytearray()
    for chunk in chunks(text):
        out += chunk
        if len(out) >= most:
            break
    return bytes(out[:most])


def chunks(text: Text) -> Iterator[bytes]:
    """Yield the bytes of ``text``, piece by piece from the left."""
    todo: list[tuple[Text, int]] = [(text, 1)]
    while todo:
        part, times = todo.pop()
        if isinstance(part, bytes):
            at_once = min(times, _PIECE // (len(part) + 1) + 1)
            if times > at_once:
                todo.append((part, times - at_once))
            yield part * at_once
        else:
            if times > 1:
                todo.append((part, times - 1))
            todo.append((part.second, 1))
            todo.append((part.first, part.times))
