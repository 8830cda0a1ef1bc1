"""Values as JSON may write them: one string in many spellings, read as one.

It owns telling that two texts, or the beginnings of two, spell one value: ``"ö"``, ``"\\u00f6"``
and ``"\\u00F6"``. It knows nothing of automata, tokens and models.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import final

_QUOTE = b'"'

# The pieces of a string: raw bytes; escapes of one character, which may be a pair of surrogates. A
# first half waits for what comes, and stands alone when that cannot be the second.
_PIECE = re.compile(
    rb"[^\\]+"
    rb"|\\[^u]"
    rb"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])",
    re.DOTALL,
)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def canonical(text: bytes) -> tuple[bytes, bytes]:
    """Write part of a JSON string in the one way that stands for all.

    Args:
        text: part of one, which begins with a whole character; quotes may be among it.

    Returns:
        The characters that are whole, each raw where JSON allows that, else by its shortest escape;
        and the beginning of an escape that is not, in lower case.
    """
    if b"\\" not in text:
        return text, b""
    whole = bytearray()
    at = 0
    while (piece := _PIECE.match(text, at)) is not None:
        whole += _plain(piece[0])
        at = piece.end()
    return bytes(whole), text[at:].lower()


def may_become(whole: bytes, begun: bytes, text: bytes) -> bool:
    """Whether what `canonical` made of a beginning can go on to ``text``, which it made too."""
    if not text.startswith(whole):
        return False
    if not begun:
        return True
    rest = text[len(whole) :]
    if not rest or rest.startswith(_QUOTE):
        return False
    return rest.startswith(begun) or _escaped(rest).startswith(begun)


def is_closed(text: bytes) -> bool:
    """Whether a JSON string has its closing quote at its end."""
    if len(text) < 2 or text[-1:] != _QUOTE:
        return False
    escapes = len(text) - 1 - len(text[:-1].rstrip(b"\\"))
    return escapes % 2 == 0


def longest(text: bytes) -> int:
    """Bytes of the longest way to write a JSON scalar."""
    if not text.startswith(_QUOTE):
        return len(text)
    # Six for each UTF-16 unit, of which there are no more than bytes.
    return max(6 * len(json.loads(text).encode("utf-16-le", "surrogatepass")) // 2 + 2, len(text))


def _plain(piece: bytes) -> bytes:
    if not piece.startswith(b"\\"):
        return piece
    char = json.loads(_QUOTE + piece + _QUOTE)
    try:
        return json.dumps(char, ensure_ascii=False)[1:-1].encode()
    except UnicodeEncodeError:  # half of a pair
        return piece.lower()


def _escaped(text: bytes) -> bytes:
    """The first character of ``text``, which `canonical` made, by its ``\\u`` escape."""
    if text.startswith(b"\\"):
        piece = _PIECE.match(text)
        char = json.loads(_QUOTE + (text if piece is None else piece[0]) + _QUOTE)
    else:
        char = text[:4].decode(errors="ignore")[:1]
    units = char.encode("utf-16-be", "surrogatepass")
    return b"".join(b"\\u%02x%02x" % (units[i], units[i + 1]) for i in range(0, len(units), 2))


@final
class WrittenTexts:
    """Some texts, as they may be written from a place on that lies before or inside them.

    Attributes:
        count: how many texts.
    """

    def __init__(
        self, texts: Sequence[bytes], *, is_json: bool, lead: bytes = b"", head: bytes = b""
    ) -> None:
        """Take over the texts.

        Args:
            texts: all different; scalars where ``is_json``, else anything.
            is_json: whether a string among them may be spelt in other ways.
            lead: what stands between the place and them.
            head: what stands of them before the place.
        """
        self.count = len(texts)
        self._is_json = is_json
        self._lead = lead
        self._head = head
        written = [self._canonical(text) for text in texts]
        self._index = {text: i for i, text in enumerate(written)}
        self._sorted = sorted(written)  # those that begin alike are neighbours

    def is_open(self, text: bytes) -> bool:
        """Whether one of the texts goes on after ``text``, which begins at the place."""
        if len(text) < len(self._lead):
            return self._lead.startswith(text)
        if not text.startswith(self._lead):
            return False
        value = self._head + text[len(self._lead) :]
        if self._is_spelt(value):
            return _STRING.match(value) is None  # nothing but these is allowed inside
        at = bisect_right(self._sorted, value)
        return at < len(self._sorted) and self._sorted[at].startswith(value)

    def ended(self, before: bytes, text: bytes) -> int | None:
        """Which text a token ended that led from ``before`` to ``text``; None: it led away from
        all of them."""
        if not text.startswith(self._lead):
            return None
        value = self._head + text[len(self._lead) :]
        if self._is_spelt(value):
            string = _STRING.match(value)
            return None if string is None else self._index.get(canonical(string[0])[0])
        first = max(len(value) - (len(text) - len(before)), 0)
        for end in range(len(value), first - 1, -1):
            found = self._index.get(value[:end])
            if found is not None:
                return found
        return None

    def _is_spelt(self, value: bytes) -> bool:
        return self._is_json and value.startswith(_QUOTE) and b"\\" in value

    def _canonical(self, text: bytes) -> bytes:
        return canonical(text)[0] if self._is_spelt(text) else text
