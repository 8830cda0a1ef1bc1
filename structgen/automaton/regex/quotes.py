"""Verbatim quotes of a document: what may follow the text so far.

`Passages` sorts the places where quotes may begin by the text after them, only as far as needed.
This is a lazy suffix array (the construction of Giegerich, Kurtz and Stoye 2003). A position is an
interval of it and the number of characters read. So memory depends only on the document, and there
is no search. Equivalent characters are one *class*. Hold `core.GROW` while using it, because
sorting moves places. Knows no expressions, encodings or vocabularies.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.work import WORK
from structgen.errors import check_limit, counted
from structgen.grammar import ir
from structgen.grammar.quotes import FAR, read

Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]

MAX_CHARACTERS = 4_000_000
"""The most characters of a document. Each takes 25 bytes."""


class Interval(NamedTuple):
    """Starts of quotes with the same text so far.

    Attributes:
        low: the first of them, sorted by the text after them.
        high: one more than the last of them.
        depth: the number of characters read.
    """

    low: int
    high: int
    depth: int


class Passages:
    """The quotes of one document.

    Args:
        quote: the document, and the conditions on its quotes.

    Attributes:
        digest: a unique digest.
        sets, codes, at, is_end, starts: those of `grammar.quotes.Document`.
        root: the interval before any character.

    Raises:
        CompileLimitExceeded: the document has more than `MAX_CHARACTERS`.
    """

    def __init__(self, quote: ir.Quote) -> None:
        text = quote.document
        check_limit(
            len(text),
            MAX_CHARACTERS,
            "the document of a quote is too long; split it, and quote from the relevant part",
        )
        WORK.spend(len(text) >> 8)
        WORK.hold(25 * len(text))
        options = quote.unit, quote.least, quote.most, quote.ignore_case, quote.any_whitespace
        digest = hashlib.blake2b(text.encode(), digest_size=16)
        digest.update(repr(options).encode())
        self.digest = digest.digest()
        document = read(quote)
        self.sets, self.codes, self.at = document.sets, document.codes, document.at
        self.is_end, self.starts = document.is_end, document.starts
        self._first, self._last = document.first, document.last
        next_end: Int32 = np.arange(len(self.is_end), dtype=np.int32)
        next_end[~self.is_end] = FAR
        self._next_end = np.minimum.accumulate(next_end[::-1])[::-1]
        self._order = np.arange(len(self.starts), dtype=np.int32)
        self.root = Interval(0, len(self.starts), 0)
        self._children: dict[Interval, dict[int, Interval]] = {}

    @property
    def weight(self) -> int:
        """Roughly the number of bytes by which it has grown."""
        return 300 * len(self._children)

    # -- reading ----------------------------------------------------------------------------

    def children(self, interval: Interval) -> dict[int, Interval]:
        """Map the class of the next character to the interval after it."""
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
        continues = at < self._last[here]
        most = len(self.sets)
        code = np.full(high - low, most, self.codes.dtype)
        code[continues] = self.codes[at[continues]]
        # Ends come last. Fast, because there are few different small numbers.
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
        """Return the interval after characters of these classes, or None."""
        found: Interval | None = interval
        for code in codes:
            if found is None:
                break
            found = self.children(found).get(code)
        return found

    def _one(self, interval: Interval) -> tuple[int, int, int]:
        """Return the place of an interval with one start, and the first and last ends of its
        quote."""
        which = self._order[interval.low]
        at = int(self.starts[which]) + interval.depth
        return at, int(self._first[which]), int(self._last[which])

    def standing(self, interval: Interval) -> tuple[Int32, Int32, Int32, Int32]:
        """Return all starts, how far each has been read, and the next and last ends of its
        quote."""
        low, high, depth = interval
        here = self._order[low:high]
        starts = self.starts[here]
        at = starts + np.int32(depth)
        return starts, at, self.next_end(at, self._first[here]), self._last[here]

    def least(self, interval: Interval) -> int:
        """Return the fewest characters to an end; 0 where a quote may end."""
        if interval.high - interval.low == 1:
            place, first, _ = self._one(interval)
            return max(first, int(self._next_end[place])) - place
        _, at, end, _ = self.standing(interval)
        return int((end - at).min())

    def most_left(self, widths: list[int]) -> int:
        """Return the greatest distance to an end, in bytes, anywhere in a quote, given bytes by
        class."""
        upto = self.upto(widths)
        between = np.diff(upto[np.flatnonzero(self.is_end)]).max(initial=0)
        return int(max((upto[self._first] - upto[self.starts]).max(), between))

    def nearest(
        self, interval: Interval, widths: list[int], first: list[int] | None = None
    ) -> tuple[int, int]:
        """Return the current position that is nearest to an end, and that end.

        Args:
            widths: the bytes of each class of characters.
            first: the bytes of the next character, if one is required; `FAR` for an impossible one.
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
        chosen = best[at[best].argmin()]  # the first of them, so that results are reproducible
        return int(at[chosen]), int(end[chosen])

    def upto(self, widths: list[int]) -> Int64:
        """Return the bytes of all characters before each one, given the bytes of each class."""
        if self._summed[0] != widths:
            self._summed = widths, np.concatenate(([0], np.array(widths)[self.codes].cumsum()))
        found: Int64 = self._summed[1]
        return found

    _summed: tuple[list[int], Any] = ([], None)

    def next_end(self, at: Int32, first: Int32) -> Int32:
        """Return the next ends, from ``first`` on, of quotes that have been read up to ``at``."""
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
        """Return the places of ``text`` in the document as a quote: start and end (exclusive), in
        order."""
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


_known: weakref.WeakValueDictionary[ir.Quote, Passages] = weakref.WeakValueDictionary()


def passages_of(quote: ir.Quote) -> Passages:
    """Return the `Passages` of a quote, shared as long as it is in use."""
    found = _known.get(quote)
    if found is None:
        found = _known[quote] = Passages(quote)
    return found


def unquotable(regex: ir.Regex) -> str:
    """Return why a document in ``regex`` has nothing to quote; empty if each has something."""
    for node in ir.nodes(regex):
        if isinstance(node, ir.Quote) and not len(passages_of(node).starts):
            least = counted(node.least, node.unit)
            lacks = f"has fewer than {least}" if node.document.strip() else "is empty"
            return f"the document of its Quote {lacks}, so there is nothing to quote"
    return ""
