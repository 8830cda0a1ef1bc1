r"""The bytes of code points: automata from bytes to minterms.

`Utf8` writes plain text. `JsonString` writes the inside of a JSON string (RFC 8259) as raw UTF-8 or
as an escape. ``escapes="any"`` allows every legal form, ``"canonical"`` only the shortest one (and
``\uXXXX`` for anything outside ASCII), so that names have one form and can be forced.
``"any-ascii"`` and ``"canonical-ascii"`` allow only the ASCII forms of these, ``"python"`` those
that Python's literals read the same way: no surrogate pairs.

An encoding is a tree of nodes built on demand. Node 0 is between two characters; every other node
is inside one. ``row(node)`` maps a byte either to a deeper node (>= 0) or to the completed minterm
(``~minterm``, < 0). ``reach(node)`` is the mask of the minterms that can still be completed, so
that a caller can prune dead ends. Nodes for one minterm are shared, so a plain string's UTF-8
automaton has eight states. There are no overlong forms or surrogates. Equal alphabets share their
encodings of strings (`json_string`). Knows only characters, no languages.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Literal, TypeAlias

from structgen.grammar.ir import MAX_CODE_POINT
from structgen.storage import cached_method

from .alphabet import NO_ATOM, Alphabet

Row: TypeAlias = "dict[int, int]"
Escapes: TypeAlias = Literal["any", "canonical", "any-ascii", "canonical-ascii", "python"]

ASCII_ONLY = frozenset(["any-ascii", "canonical-ascii"])
"""The values of ``escapes`` that escape everything outside ASCII."""

GROUND = 0
_SHORT = {0x62: 0x08, 0x66: 0x0C, 0x6E: 0x0A, 0x72: 0x0D, 0x74: 0x09}
_LETTERS = {meaning: letter for letter, meaning in _SHORT.items()}
_BLOCKS = [
    *((lead, (lead & 0x1F) << 6) for lead in range(0xC2, 0xE0)),
    (0xE0, 0x800),
    *((lead, (lead & 0x0F) << 12) for lead in range(0xE1, 0xF0)),
    (0xF0, 0x10000),
    *((lead, (lead & 0x07) << 18) for lead in range(0xF1, 0xF5)),
]
"""Each lead byte of UTF-8, with the first character that it begins."""
_HEX = [(b, int(chr(b), 16)) for b in b"0123456789abcdefABCDEF"]
_CONTINUATION = [(0x80 + value, value) for value in range(64)]
_DIGITS = {4: _HEX, 6: _CONTINUATION}
"""By the number of bits that each digit holds: bytes, with their values."""
_QUOTE, _BACKSLASH, _SLASH, _U = 0x22, 0x5C, 0x2F, 0x75


def may_escape(code_point: int, escapes: str, barred: frozenset[int] = frozenset()) -> bool:
    """Return whether ``\\uXXXX`` may write a code point below U+10000.

    ``barred`` are the lead bytes that cannot be written.
    """
    if code_point >= 0x80 or escapes in ("any", "any-ascii"):
        return True
    if code_point < 0x20:
        return code_point not in _SHORT.values()
    return code_point in barred


class Utf8:
    """Plain UTF-8 (RFC 3629) over ``alphabet``."""

    spelling = "utf8"
    barred: frozenset[int] = frozenset()
    """Encodings with the same ``escapes`` and barred bytes write every character the same way."""
    _first_raw = 0
    """From this code point on, ASCII characters may be written unescaped."""

    def __init__(self, alphabet: Alphabet) -> None:
        self.alphabet = alphabet
        self._keys: list[tuple[Any, ...]] = [("_ground",)]
        self._ids: dict[tuple[Any, ...], int] = {("_ground",): GROUND}
        self._rows: list[Row | None] = [None]
        self._reach: list[int] = [alphabet.everything]

    def row(self, node: int) -> Row:
        """Return the outgoing bytes of ``node``: deeper nodes, or ``~minterm``. Do not change the
        dict."""
        row = self._rows[node]
        if row is None:
            build, *of_what = self._keys[node]
            row = self._rows[node] = getattr(self, build)(*of_what)
        return row

    def follow(self, node: int, byte: int) -> int | None:
        """Return one entry of `row`, or None. Characters of one byte need no row."""
        if node == GROUND and byte < 0x80:
            return ~self.alphabet.minterm(byte)
        return self.row(node).get(byte)

    def reach(self, node: int) -> int:
        """Return the mask of the minterms that can be completed from ``node``."""
        return self._reach[node]

    def span(self, node: int) -> tuple[int, int] | None:
        """Return the first and last code point below ``node``, if they are one known range."""
        kind, *key = self._keys[node]
        if kind != "_digits" or key[-1] != NO_ATOM:
            return None
        _, _, low, first, last, _ = key
        return low + first, low + last

    def spell(self, code_point: int) -> bytes:
        """Return the shortest spelling of ``code_point``."""
        return chr(code_point).encode()

    @cached_method
    def shortest(self, node: int) -> dict[int, bytes]:
        """Map each minterm that can be completed from ``node`` to the fewest bytes that complete
        it."""
        if node == GROUND:
            return self._shortest_characters()
        found: dict[int, bytes] = {}
        seen = {node}
        level = [(node, b"")]
        while level:
            deeper: list[tuple[int, bytes]] = []
            for at, so_far in level:
                for byte, to in sorted(self.row(at).items()):
                    if to < 0:
                        found.setdefault(~to, so_far + bytes([byte]))
                    elif to not in seen:
                        seen.add(to)
                        deeper.append((to, so_far + bytes([byte])))
            level = deeper
        return found

    def _shortest_characters(self) -> dict[int, bytes]:
        """`shortest` between two characters, computed from the alphabet."""
        found: dict[int, bytes] = {}
        alphabet = self.alphabet
        # Characters that must be escaped may come before others.
        blocks = [start for lead, start in _BLOCKS if lead not in self.barred and self.barred]
        for i, (first, minterm) in enumerate(zip(alphabet.starts, alphabet.minterms, strict=True)):
            if minterm == NO_ATOM:
                continue
            beyond = alphabet.starts[i + 1] if i + 1 < len(alphabet.starts) else MAX_CODE_POINT + 1
            # One-byte forms come first. Outside ASCII, forms grow with the code point, in length
            # and in byte order.
            end, raw = min(beyond, 0x80), self._first_raw
            points = [*range(max(first, raw), end), *range(first, min(end, raw))]
            if beyond > 0x80:
                points.append(max(first, 0x80))
                points += [start for start in blocks if first < start < beyond]
            for point in points:
                spelt = self.spell(point)
                known = found.get(minterm)
                if known is None or (len(spelt), spelt) < (len(known), known):
                    found[minterm] = spelt
                if len(spelt) == 1:
                    break
        return found

    def _node(self, key: tuple[Any, ...], reach: int) -> int:
        found = self._ids.get(key)
        if found is None:
            found = len(self._keys)
            self._keys.append(key)
            self._rows.append(None)
            self._reach.append(reach)
            self._ids[key] = found
        return found

    def _ground(self) -> Row:
        row = {byte: ~minterm for byte, minterm in enumerate(self.alphabet.ascii_minterms())}
        self._lead_bytes(row)
        return row

    def _lead_bytes(self, row: Row) -> None:
        for byte in range(0xC2, 0xF5):
            remaining = 1 + (byte >= 0xE0) + (byte >= 0xF0)
            low = (byte & 0x3F >> remaining) << 6 * remaining
            first, last = (0x80, 0x800, 0x10000)[remaining - 1], low | (1 << 6 * remaining) - 1
            to = self._after(6, remaining, low, max(first - low, 0), min(last, 0x10FFFF) - low)
            if to is not None:
                row[byte] = to

    def _after(
        self, bits: int, remaining: int, low: int, first: int, last: int, minterm: int = NO_ATOM
    ) -> int | None:
        """Return the node before ``remaining`` digits of that many bits, which choose a code point
        from ``low + first`` to ``low + last``, all in ``minterm`` if given.

        A node, or ``~minterm`` if there are no digits; None if no code point is possible.
        """
        if minterm == NO_ATOM:
            minterm = self.alphabet.single_minterm(low + first, low + last)
        if not remaining:
            return None if minterm == NO_ATOM else ~minterm
        if minterm == NO_ATOM:
            reach = self.alphabet.minterms_between(low + first, low + last)
        else:
            low, reach = 0, 1 << minterm
        key = ("_digits", bits, remaining, low, first, last, minterm)
        return self._node(key, reach) if reach else None

    def _digits(
        self, bits: int, remaining: int, low: int, first: int, last: int, minterm: int
    ) -> Row:
        row: Row = {}
        span = 1 << bits * (remaining - 1)
        if minterm != NO_ATOM and not first and last == (span << bits) - 1:
            after = self._after(bits, remaining - 1, 0, 0, span - 1, minterm)
            assert after is not None
            return dict.fromkeys([byte for byte, _ in _DIGITS[bits]], after)
        for byte, digit in _DIGITS[bits]:
            at = digit * span
            here, beyond = max(first - at, 0), min(last - at, span - 1)
            if here <= beyond:
                to = self._after(bits, remaining - 1, low + at, here, beyond, minterm)
                if to is not None:
                    row[byte] = to
        return row


class JsonString(Utf8):
    """The inside of a JSON string over ``alphabet``, without the closing quote.

    Args:
        alphabet: the minterms.
        escapes: ``"any"`` allows every form of RFC 8259; ``"canonical"`` only the shortest form of
            ASCII, and raw or ``\\uXXXX`` for the rest. ``"any-ascii"`` and ``"canonical-ascii"``
            escape everything outside ASCII. ``"python"`` is canonical without two ``\\uXXXX`` for
            one character, which Python reads as two.
        missing: bytes from 0x7F on that cannot be written: characters that need one are escaped.
    """

    _first_raw = 0x20

    def __init__(
        self, alphabet: Alphabet, escapes: Escapes = "any", missing: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(alphabet)
        self.escapes = escapes
        # If a continuation byte is missing, no lead byte is sure to have a valid continuation.
        continues = any(0x80 <= byte < 0xC0 for byte in missing)
        self.barred = missing | frozenset(range(0xC2, 0xF5)) if continues else missing
        self.spelling = escapes
        self._has_pairs = escapes != "python" or bool(self.barred)

    def spell(self, code_point: int) -> bytes:
        """Return the shortest spelling of ``code_point``."""
        if code_point in (_QUOTE, _BACKSLASH):
            return b"\\" + bytes([code_point])
        letter = _LETTERS.get(code_point)
        if letter is not None:
            return b"\\" + bytes([letter])
        raw = chr(code_point).encode()
        is_raw = code_point < 0x80 or self.escapes not in ASCII_ONLY
        if code_point >= 0x20 and is_raw and raw[0] not in self.barred:
            return raw
        if code_point < 0x10000:
            return b"\\u%04x" % code_point
        high, low = divmod(code_point - 0x10000, 0x400)
        return b"\\u%04x\\u%04x" % (0xD800 + high, 0xDC00 + low)

    def follow(self, node: int, byte: int) -> int | None:
        """See `Utf8.follow`."""
        if node == GROUND and 0x20 <= byte < 0x7F and byte not in (_QUOTE, _BACKSLASH):
            return ~self.alphabet.minterm(byte)
        return self.row(node).get(byte)

    def _ground(self) -> Row:
        row: Row = {}
        for byte in range(0x20, 0x80):
            if byte not in (_QUOTE, _BACKSLASH):
                row[byte] = ~self.alphabet.minterm(byte)
        if self.escapes not in ASCII_ONLY:
            self._lead_bytes(row)
        for byte in self.barred & row.keys():
            del row[byte]
        reach = 0
        for target in self._escape_row().values():
            reach |= self._reach[target] if target >= 0 else 1 << ~target
        row[_BACKSLASH] = self._node(("_escape_row",), reach)
        return row

    def _escape_row(self) -> Row:
        minterm = self.alphabet.minterm
        row: Row = {_QUOTE: ~minterm(_QUOTE), _BACKSLASH: ~minterm(_BACKSLASH)}
        if self.escapes in ("any", "any-ascii"):
            row[_SLASH] = ~minterm(_SLASH)
        for letter, meaning in _SHORT.items():
            row[letter] = ~minterm(meaning)
        hexadecimal = self._hex(4, 0)
        if hexadecimal is not None:
            row[_U] = hexadecimal
        return row

    def _allowed_escape(self, code_point: int) -> bool:
        """Return whether ``\\uXXXX`` may write this code point below U+10000."""
        return may_escape(code_point, self.escapes, self.barred)

    def _hex(self, digits: int, prefix: int) -> int | None:
        """Return the node before ``digits`` more hex digits; None if no code point is possible."""
        alphabet = self.alphabet
        first, last = prefix << 4 * digits, (prefix + 1 << 4 * digits) - 1
        is_partly_barred = first < 0x80 and self.escapes not in ("any", "any-ascii")
        if not is_partly_barred and (last < 0xD800 or first > 0xDFFF):
            return self._after(4, digits, first, 0, last - first)
        if not digits:
            return self._one_escaped(first)
        reach = alphabet.minterms_between(max(first, 0x80) if is_partly_barred else first, last)
        for code_point in range(first, min(last + 1, 0x80)) if is_partly_barred else ():
            if self._allowed_escape(code_point):
                reach |= 1 << alphabet.minterm(code_point)
        low, high = max(first, 0xD800), min(last, 0xDBFF)
        if low <= high and self._has_pairs:
            reach |= alphabet.minterms_between(_pairs(low), _pairs(high) + 0x3FF)
        return self._node(("_hex_row", digits, prefix), reach) if reach else None

    def _one_escaped(self, code: int) -> int | None:
        """Return the node after one code unit that is a surrogate, or may not be escaped."""
        if not (0xD800 <= code <= 0xDBFF and self._has_pairs):
            is_allowed = not 0xD800 <= code <= 0xDFFF and self._allowed_escape(code)
            return ~self.alphabet.minterm(code) if is_allowed else None
        low = self._after(4, 4, _pairs(code) - 0xDC00, 0xDC00, 0xDFFF)
        assert low is not None, "all code points have minterms"
        for before in (_U, _BACKSLASH):
            low = self._node(("_only", before, low), self._reach[low])
        return low

    def _hex_row(self, digits: int, prefix: int) -> Row:
        ways = [(byte, self._hex(digits - 1, prefix << 4 | value)) for byte, value in _HEX]
        return {byte: to for byte, to in ways if to is not None}

    def _only(self, byte: int, to: int) -> Row:
        return {byte: to}


def _pairs(high: int) -> int:
    """Return the first code point that begins with a high surrogate."""
    return 0x10000 + (high - 0xD800 << 10)


_strings: weakref.WeakValueDictionary[Any, JsonString] = weakref.WeakValueDictionary()
_made: deque[JsonString] = deque(maxlen=16)
"""The last few, so that common ones survive while no constraint exists."""


def json_string(
    alphabet: Alphabet, escapes: Escapes, missing: frozenset[int] = frozenset()
) -> JsonString:
    """Return the `JsonString` of these arguments, shared by equal alphabets while in use."""
    key = (alphabet.key, escapes, missing)
    found = _strings.get(key)
    if found is None:
        found = _strings[key] = JsonString(alphabet, escapes, missing)
        _made.append(found)
    return found
