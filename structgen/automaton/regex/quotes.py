"""Verbatim pieces of one document: where they may stand, and what may follow what has been read.

`Passages` knows of a document where its quotes may begin and end, and sorts the beginnings by what
follows them, no further than somebody reads: as a suffix array that is made on demand (the lazy
construction of Giegerich, Kurtz and Stoye 2003). What has been read is an interval of it and a
number of characters; so a document takes what its characters take, however much is read, and
nothing is searched for. Characters that count as the same are one *class*. To be used with
`core.GROW` held, since beginnings change places. Knows nothing of expressions, encodings and
vocabularies.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
import weakref
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.work import WORK
from structgen.errors import check_limit
from structgen.grammar import ir
from structgen.grammar.regex import folded

Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

MAX_CHARACTERS = 4_000_000
"""Most characters of one document: 25 bytes are kept of each."""

_FEW = 20_000
"""Characters that are quicker sorted than looked up."""

FAR = np.iinfo(np.int32).max
"""Where nothing is, and what cannot be had."""

# What characters are to words.
_OTHER, _BLANK, _WORD, _MARK, _WHOLE, _JOINS = range(6)

_JOINING = frozenset("'’.,:/@_&+-\u2010\u2011\u00ad")
"""These belong to a word where they stand between two characters of one."""

_WITHOUT_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Characters of scripts that put no blanks between words: each is a word."""

_CLOSING = "\"'”’»)]」』"
_CHUNK = re.compile(rf"[^\s。！？]*[。！？]+[{re.escape(_CLOSING)}]*|[^\s。！？]+")
_ENDING = (".", "!", "?", "…", "。", "！", "？")


class Interval(NamedTuple):
    """Beginnings of quotes that go on alike.

    Attributes:
        low: the first of them, in the order of what follows them,
        high: and one more than the last.
        depth: so many characters have been read.
    """

    low: int
    high: int
    depth: int


class Passages:
    """The quotes of one document.

    Args:
        quote: the document, and what is asked of its quotes.

    Attributes:
        digest: what nothing else has.
        sets: the code points of each class of characters.
        codes: int32; the document's characters, by class. A run of blanks is one, if it may be.
        at: int32; where each of these characters begins in the document, and its length.
        is_end: bool; before which characters, and at the end, a quote may end.
        root: where nothing has been read.

    Raises:
        CompileLimitExceeded: the document has more than `MAX_CHARACTERS`.
    """

    def __init__(self, quote: ir.Quote) -> None:
        text = quote.document
        check_limit(
            len(text),
            MAX_CHARACTERS,
            "the document of a quote is too long; divide it, and quote from the part that matters",
        )
        WORK.spend(len(text) >> 8)
        WORK.hold(25 * len(text))
        settings = repr((quote.unit, quote.least, quote.most, *quote_options(quote)))
        digest = hashlib.blake2b(text.encode(), digest_size=16)
        digest.update(settings.encode())
        self.digest = digest.digest()
        different, numbers = _numbered(text)
        kinds = np.array([_kind(char) for char in different], np.int8)[numbers]
        keep = np.ones(len(text), bool)
        if quote.any_whitespace:
            keep[1:] = (kinds[1:] != _BLANK) | (kinds[:-1] != _BLANK)
        self.at: Int32 = np.append(np.flatnonzero(keep), len(text)).astype(np.int32)
        codes, self.sets = _classes(different, quote)
        n_classes = len(self.sets)  # and one number more
        small = np.uint8 if n_classes < 0xFF else np.int16 if n_classes < 0x7FFF else np.int32
        self.codes: npt.NDArray[Any] = np.array(codes, small)[numbers[keep]]
        begins, words, ends = self._borders(text, kinds, quote.unit)
        self.is_end = ends
        last: Int32 = np.arange(len(ends), dtype=np.int32)
        last[~ends] = FAR
        self._next_end = np.minimum.accumulate(last[::-1])[::-1]
        self._begin(np.flatnonzero(begins).astype(np.int32), *words, quote)
        self._children: dict[Interval, dict[int, Interval]] = {}

    def _borders(
        self, text: str, kinds: npt.NDArray[np.int8], unit: str
    ) -> tuple[Bools, tuple[Int32, Int32], Bools]:
        """Where quotes may begin; where words begin and end; where quotes may end."""
        n = len(self.codes)
        if unit == "character":
            every = np.arange(n + 1, dtype=np.int32)
            return np.arange(n + 1) < n, (every[:-1], every[1:]), np.arange(n + 1) > 0
        if unit == "sentence":
            spans = np.array(_sentences(text), np.int32).reshape(-1, 2)
            first, beyond = spans[:, 0], spans[:, 1]
            begins, ends = np.zeros((2, len(text) + 1), bool)
            begins[first] = ends[beyond] = True
        else:
            begins, ends, first, beyond = _words(kinds)
        if n < len(text):  # no border is inside a run of blanks
            where = self.at
            begins, ends = begins[where], ends[where]
            first, beyond = (where.searchsorted(x).astype(np.int32) for x in (first, beyond))
        return begins, (first, beyond), ends

    def _begin(self, starts: Int32, first: Int32, beyond: Int32, quote: ir.Quote) -> None:
        """Keep the beginnings from which quotes of so many units are."""
        which = first.searchsorted(starts)  # of the first word that a quote holds whole
        enough = which + quote.least <= len(first)
        starts, which = starts[enough], which[enough]
        self.starts: Int32 = starts
        # Where a quote from there may end first, and last.
        self._first: Int32 = beyond[which + (quote.least - 1)]
        ends = np.flatnonzero(self.is_end).astype(np.int32)
        if quote.most is None or not len(starts):
            self._last: Int32 = np.full(len(starts), ends[-1] if len(ends) else 0, np.int32)
        else:
            beyond = np.append(beyond, np.int32(FAR))
            too_far = beyond[np.minimum(which + quote.most, len(beyond) - 1)]
            self._last = ends[ends.searchsorted(too_far) - 1]
        self._order = np.arange(len(starts), dtype=np.int32)
        self.root = Interval(0, len(starts), 0)

    @property
    def weight(self) -> int:
        """About how many bytes it has grown by."""
        return 300 * len(self._children)

    # -- reading ----------------------------------------------------------------------------

    def children(self, interval: Interval) -> dict[int, Interval]:
        """By class of the next character, what is read then."""
        low, high, depth = interval
        if high - low == 1:
            at, _, last = self._one(interval)
            return {int(self.codes[at]): Interval(low, high, depth + 1)} if at < last else {}
        found = self._children.get(interval)
        if found is None:
            found = self._children[interval] = self._sorted(interval)
        return found

    def _sorted(self, interval: Interval) -> dict[int, Interval]:
        low, high, depth = interval
        WORK.spend(1 + (high - low >> 8))
        here = self._order[low:high]
        at = self.starts[here] + np.int32(depth)
        goes_on = at < self._last[here]
        most = len(self.sets)
        code = np.full(high - low, most, self.codes.dtype)
        code[goes_on] = self.codes[at[goes_on]]
        # What ends comes last. Of a few kinds of numbers that are small, this is quick.
        self._order[low:high] = here[code.argsort(kind="stable")]
        counts = np.bincount(code, minlength=most)[:most]
        present = counts.nonzero()[0]
        bounds = (low + counts[present].cumsum()).tolist()
        firsts = [low, *bounds][:-1]
        return {
            which: Interval(a, b, depth + 1)
            for which, a, b in zip(present.tolist(), firsts, bounds, strict=True)
        }

    def after(self, interval: Interval, codes: Iterable[int]) -> Interval | None:
        """What has been read after more characters of some classes, or None."""
        found: Interval | None = interval
        for code in codes:
            if found is None:
                break
            found = self.children(found).get(code)
        return found

    def _one(self, interval: Interval) -> tuple[int, int, int]:
        """Of an interval of one: where it is, and where its quote may end first and last."""
        which = self._order[interval.low]
        at = int(self.starts[which]) + interval.depth
        return at, int(self._first[which]), int(self._last[which])

    def standing(self, interval: Interval) -> tuple[Int32, Int32, Int32, Int32]:
        """For each beginning, itself, where it has been read up to, where its quote may end next,
        and where last."""
        low, high, depth = interval
        here = self._order[low:high]
        starts = self.starts[here]
        at = starts + np.int32(depth)
        return starts, at, self.next_end(at, self._first[here]), self._last[here]

    def least(self, interval: Interval) -> int:
        """The fewest characters that are still to be read; 0 where a quote may end."""
        if interval.high - interval.low == 1:
            place, first, _ = self._one(interval)
            return max(first, int(self._next_end[place])) - place
        _, at, end, _ = self.standing(interval)
        return int((end - at).min())

    def most_left(self, widths: list[int]) -> int:
        """The most that is left to an end from anywhere in a quote, by what each class takes."""
        upto = self.upto(widths)
        between = np.diff(upto[np.flatnonzero(self.is_end)]).max(initial=0)
        return int(max((upto[self._first] - upto[self.starts]).max(), between))

    def nearest(
        self, interval: Interval, widths: list[int], first: list[int] | None = None
    ) -> tuple[int, int]:
        """How far what is nearest to an end has been read, and where that is.

        Args:
            widths: what each class of characters takes.
            first: what the next character takes, where there has to be one; `FAR` for one that
                cannot be.
        """
        _, at, end, last = self.standing(interval)
        upto = self.upto(widths)
        if first is None:
            cost = upto[end] - upto[at]
        else:
            here = at < last
            at, end = at[here], self.next_end(at[here] + 1, end[here])
            cost = upto[end] - upto[at + 1] + np.array(first)[self.codes[at]]
        best = np.flatnonzero(cost == cost.min())
        chosen = best[at[best].argmin()]  # the first of them, so that answers are reproducible
        return int(at[chosen]), int(end[chosen])

    def upto(self, widths: list[int]) -> Int64:
        """What all characters before each one take, by what each class does."""
        if self._summed[0] != widths:
            self._summed = widths, np.concatenate(([0], np.array(widths)[self.codes].cumsum()))
        found: Int64 = self._summed[1]
        return found

    _summed: tuple[list[int], Any] = ([], None)

    def next_end(self, at: Int32, first: Int32) -> Int32:
        """Where quotes that have been read up to ``at`` may end next, from ``first`` on."""
        found: Int32 = np.maximum(first, self._next_end[at])
        return found

    # -- values -----------------------------------------------------------------------------

    @cached_property
    def _class_of(self) -> dict[str, int]:
        return {
            chr(point): number
            for number, ranges in enumerate(self.sets)
            for low, high in ranges
            for point in range(low, high + 1)
        }

    def places(self, text: str) -> list[tuple[int, int]]:
        """Where ``text`` stands in the document as a quote: each first and one more than last
        character, in order."""
        if not len(self.starts):
            return []
        interval = self.after(self.root, [self._class_of.get(char, -1) for char in text])
        if interval is None:
            return []
        starts, at, end, _ = self.standing(interval)
        found = np.sort(starts[at == end])
        return list(
            zip(self.at[found].tolist(), self.at[found + interval.depth].tolist(), strict=True)
        )


def quote_options(quote: ir.Quote) -> tuple[bool, bool]:
    """What counts as the same."""
    return quote.ignore_case, quote.any_whitespace


def _numbered(text: str) -> tuple[list[str], Int32]:
    """The different characters of a text, and which of them each one is."""
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
    """The class of each of some characters, and the code points of each class."""
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


def _words(kind: npt.NDArray[np.int8]) -> tuple[Bools, Bools, Int32, Int32]:
    """Where quotes of whole words may begin and end; where words begin and end.

    With a word may come what stands at it without a blank between.
    """
    n = len(kind)
    letter = (kind == _WORD) | (kind == _MARK)
    if n > 2:
        letter[1:-1] |= (kind[1:-1] == _JOINS) & letter[:-2] & letter[2:]
    inside = letter | (kind == _WHOLE)
    with_last = np.zeros(n + 1, bool)  # whether a character and the one before are of one word
    with_last[1:-1] = (letter[1:] & letter[:-1]) | ((kind[1:] == _MARK) & inside[:-1])
    first = np.flatnonzero(inside & ~with_last[:-1]).astype(np.int32)
    beyond = (np.flatnonzero(inside & ~with_last[1:]) + 1).astype(np.int32)
    blanks = np.concatenate(([0], (kind == _BLANK).cumsum()))
    begun = np.zeros(n + 2, np.int32)
    begun[first + 1] = 1
    begun = begun[: n + 1].cumsum()  # words that begin before each place
    ended = np.zeros(n + 1, np.int32)
    ended[beyond] = 1
    ended = ended.cumsum()  # and that end before it or there
    between = begun == ended
    following = np.append(first, n)[np.minimum(begun, len(first))]
    begins = between & (begun < len(first)) & (blanks[following] == blanks)
    before = np.append(0, beyond)[ended]
    ends = between & (ended > 0) & (blanks[before] == blanks)
    return begins, ends, first, beyond


def _sentences(text: str) -> list[tuple[int, int]]:
    """First and one more than last character of each sentence: what ends like one, or stands before
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


_known: weakref.WeakValueDictionary[ir.Quote, Passages] = weakref.WeakValueDictionary()


def passages_of(quote: ir.Quote) -> Passages:
    """The `Passages` of a quote: one for all, as long as it is in use."""
    found = _known.get(quote)
    if found is None:
        found = _known[quote] = Passages(quote)
    return found
