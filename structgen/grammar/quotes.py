"""Documents for quotes: borders of words, sentences and lines, and equivalent characters.

The borders determine where a quote may begin and end. `read` prepares the document of an IR node as
arrays over its characters, because a document may be long. Knows neither the search for quotes nor
masks.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.grammar import ir
from structgen.grammar.regex import folded

Int32: TypeAlias = npt.NDArray[np.int32]
Int8: TypeAlias = npt.NDArray[np.int8]
Bools: TypeAlias = npt.NDArray[np.bool_]

FAR = np.iinfo(np.int32).max
"""The position of something that does not exist."""

_FEW = 20_000
"""Up to this many characters, sorting is faster than a look-up table."""

# The roles of characters in words.
_OTHER, _BLANK, _WORD, _MARK, _WHOLE, _JOINS = range(6)

_JOINING = frozenset("'’.,:/@_&+-\u2010\u2011\u00ad")
"""These belong to a word if they are between two characters of it."""

_WITHOUT_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Characters of scripts without blanks between words: each is a word."""

_CLOSING = "\"'”’»)]」』"
_CHUNK = re.compile(rf"[^\s。！？]*[。！？]+[{re.escape(_CLOSING)}]*|[^\s。！？]+")
_LINE = re.compile(r"\S(?:[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*\S)?")
_ENDING = (".", "!", "?", "…", "。", "！", "？")


class Document(NamedTuple):
    """A document.

    Attributes:
        sets: the code points of each class of equivalent characters.
        codes: the document's characters, by class. A run of blanks is one character, if allowed.
        at: int32; the position of each of these characters in the document, and the document's
            length.
        is_end: bool; whether a quote may end before each character, and at the end.
        starts: int32, ascending; the characters before which a quote may begin.
        first: int32; the first possible end of quotes from each start.
        last: int32; the last possible end.
    """

    sets: list[ir.Ranges]
    codes: npt.NDArray[Any]
    at: Int32
    is_end: Bools
    starts: Int32
    first: Int32
    last: Int32


def read(quote: ir.Quote) -> Document:
    """Return the document of a quote.

    Cost: 0.1 s for 150,000 words; 0.3 s by sentences.
    """
    text = quote.document
    different, numbers = _numbered(text)
    kinds = np.array([_kind(char) for char in different], np.int8)[numbers]
    keep = np.ones(len(text), bool)
    if quote.any_whitespace:
        keep[1:] = (kinds[1:] != _BLANK) | (kinds[:-1] != _BLANK)
    at: Int32 = np.append(np.flatnonzero(keep), len(text)).astype(np.int32)
    of_class, sets = _classes(different, quote)
    n_classes = len(sets)  # plus one number
    small = np.uint8 if n_classes < 0xFF else np.int16 if n_classes < 0x7FFF else np.int32
    codes: npt.NDArray[Any] = np.array(of_class, small)[numbers[keep]]
    begins, (first, beyond), is_end = _borders(text, kinds, at, quote.unit)
    starts = np.flatnonzero(begins).astype(np.int32)
    which = first.searchsorted(starts)  # of the first word that is entirely in a quote
    least = min(quote.least, len(text) + 1)  # the same as any larger number
    enough = which + least <= len(first)
    starts, which = starts[enough], which[enough]
    # The first and last ends of a quote from each start.
    first_end = beyond[which + (least - 1)]
    ends = np.flatnonzero(is_end).astype(np.int32)
    if quote.most is None or not len(starts):
        last_end: Int32 = np.full(len(starts), ends[-1] if len(ends) else 0, np.int32)
    else:
        beyond = np.append(beyond, np.int32(FAR))
        too_far = beyond[np.minimum(which + min(quote.most, len(text)), len(beyond) - 1)]
        last_end = ends[ends.searchsorted(too_far) - 1]
    return Document(sets, codes, at, is_end, starts, first_end, last_end)


def _borders(
    text: str, kinds: Int8, at: Int32, unit: str
) -> tuple[Bools, tuple[Int32, Int32], Bools]:
    """Return where quotes may begin; where words begin and end; where quotes may end."""
    n = len(at) - 1
    if unit == "character":
        every = np.arange(n + 1, dtype=np.int32)
        return np.arange(n + 1) < n, (every[:-1], every[1:]), np.arange(n + 1) > 0
    if unit in ("sentence", "line"):
        found = _sentences(text) if unit == "sentence" else [m.span() for m in _LINE.finditer(text)]
        spans = np.array(found, np.int32).reshape(-1, 2)
        first, beyond = spans[:, 0], spans[:, 1]
        begins, ends = np.zeros((2, len(text) + 1), bool)
        begins[first] = ends[beyond] = True
    else:
        begins, ends, first, beyond = _words(kinds)
    if n < len(text):  # no border is inside a run of blanks
        begins, ends = begins[at], ends[at]
        first, beyond = (at.searchsorted(x).astype(np.int32) for x in (first, beyond))
    return begins, (first, beyond), ends


def _numbered(text: str) -> tuple[list[str], Int32]:
    """Return the distinct characters of a text, and the index of each character."""
    points = np.frombuffer(text.encode("utf-32-le"), "<u4")
    if len(points) < _FEW:
        different = sorted(set(text))
        numbers = np.array([ord(char) for char in different], np.uint32).searchsorted(points)
        return different, numbers.astype(np.int32)
    table = np.zeros(ir.MAX_CODE_POINT + 1, np.int32)
    table[points] = 1
    present = np.flatnonzero(table)
    table[present] = np.arange(len(present))
    return [chr(point) for point in present.tolist()], table[points]


def _classes(different: list[str], quote: ir.Quote) -> tuple[list[int], list[ir.Ranges]]:
    """Return the class of each character, and the code points of each class."""
    sets: dict[ir.Ranges, int] = {}

    def number(char: str) -> int:
        chars = ir.character(ord(char))
        if quote.any_whitespace and char.isspace():
            chars = _BLANKS
        elif quote.ignore_case and (char.lower() != char or char.upper() != char):
            chars = folded(chars)
        return sets.setdefault(chars.ranges, len(sets))

    return [number(char) for char in different], list(sets)


_BLANKS = ir.char_set(
    [(point, point) for point in range(0x3001) if chr(point).isspace()]  # there are none above
)


def _kind(char: str) -> int:
    if char.isspace():
        return _BLANK
    if unicodedata.category(char)[0] == "M":
        return _MARK
    if _WITHOUT_BLANKS.match(char):
        return _WHOLE
    if char.isalnum() or char == "_":
        return _WORD
    return _JOINS if char in _JOINING else _OTHER


def _words(kind: Int8) -> tuple[Bools, Bools, Int32, Int32]:
    """Return where quotes of whole words may begin and end; where words begin and end.

    A word may include characters directly beside it.
    """
    n = len(kind)
    letter = (kind == _WORD) | (kind == _MARK)
    if n > 2:
        letter[1:-1] |= (kind[1:-1] == _JOINS) & letter[:-2] & letter[2:]
    inside = letter | (kind == _WHOLE)
    # whether a character and the previous one are in the same word
    with_last = np.zeros(n + 1, bool)
    with_last[1:-1] = (letter[1:] & letter[:-1]) | ((kind[1:] == _MARK) & inside[:-1])
    first = np.flatnonzero(inside & ~with_last[:-1]).astype(np.int32)
    beyond = (np.flatnonzero(inside & ~with_last[1:]) + 1).astype(np.int32)
    blanks = np.concatenate(([0], (kind == _BLANK).cumsum()))
    begun = np.zeros(n + 2, np.int32)
    begun[first + 1] = 1
    begun = begun[: n + 1].cumsum()  # words that begin before each place
    ended = np.zeros(n + 1, np.int32)
    ended[beyond] = 1
    ended = ended.cumsum()  # and that end before or at it
    between = begun == ended
    following = np.append(first, n)[np.minimum(begun, len(first))]
    begins = between & (begun < len(first)) & (blanks[following] == blanks)
    before = np.append(0, beyond)[ended]
    ends = between & (ended > 0) & (blanks[before] == blanks)
    return begins, ends, first, beyond


def _sentences(text: str) -> list[tuple[int, int]]:
    """Return the start and end (exclusive) of each sentence: text with a sentence's end, or before
    an empty line."""
    found: list[tuple[int, int]] = []
    begin, end = -1, 0
    for chunk in _CHUNK.finditer(text):
        if begin >= 0 and text.count("\n", end, chunk.start()) > 1:
            found.append((begin, end))
            begin = -1
        if begin < 0:
            begin = chunk.start()
        end = chunk.end()
        if chunk[0].rstrip(_CLOSING).endswith(_ENDING):
            found.append((begin, end))
            begin = -1
    if begin >= 0:
        found.append((begin, end))
    return found
