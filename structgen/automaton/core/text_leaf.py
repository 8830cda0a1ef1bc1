"""Text leaves: characters of a symbol automaton, written in an encoding, bare or as JSON strings.

A state pairs a state of the automaton with one of the encoding (`encoding`). States are made only
where a token ends. Inside a token, text is read by character, and plain ASCII in one piece.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable
from typing import Any

from structgen.automaton.regex.automaton import MAX_SPELLING, Quoting, SymbolAutomaton
from structgen.automaton.regex.encoding import GROUND, Utf8, may_escape
from structgen.automaton.regex.symbols import (
    NO_STATE,
    shortest_path,
    spell_edge,
    spell_edges,
    steps,
)
from structgen.automaton.texts import Text, put
from structgen.grammar.quotes import FAR

from .leaf import ENDED, Leaf

_QUOTE = 0x22
_PLAIN_BYTES = [byte for byte in range(0x20, 0x7F) if byte not in (_QUOTE, 0x5C)]

_PLAIN_TEXT = re.compile(rb"[ !#-\[\]-~]+")
_PLAIN = _PLAIN_TEXT.match
"""Match printable ASCII without quotes and backslashes, which every encoding writes unchanged."""

is_plain = _PLAIN_TEXT.fullmatch
"""Return whether bytes are entirely such text, and not empty."""

_IN_TEXT = (GROUND,)
"""The rest of a state's key, after the symbol state, between two characters."""


class TextLeaf(Leaf):
    """Bare texts of a symbol automaton, written in an encoding."""

    holds_text = True
    _state_bytes = 200

    def __init__(self, symbols: SymbolAutomaton, encoding: Utf8) -> None:
        super().__init__()
        self.symbols = symbols
        self.encoding = encoding
        self._steps: dict[int, int] = {}
        self._completions: dict[tuple[int, int], Text] = {}
        self._lefts: dict[tuple[int, int], int] = {}
        # Completions from a document's characters, by node of the encoding.
        self._spelt: dict[tuple[Any, int], list[bytes | None]] = {}
        self.start = self.state((symbols.start, GROUND))
        self.is_private = symbols.is_private

    @property
    def weight(self) -> int:
        """See `Leaf.weight`."""
        more = 100 * (len(self._steps) + len(self._lefts)) + 500 * len(self._completions)
        return super().weight + self.symbols.weight + more

    @functools.cached_property
    def most_left(self) -> int | None:
        """Number of bytes that suffice to end any text that has begun, without the quotes; None if
        unknown. Used only for token budgets."""
        quoting = self.symbols.quoting(self.symbols.start)
        if quoting is not None:
            widths = [len(text or b"") for text in quoting.spelt(self.encoding)]
            return quoting.passages.most_left(widths) + MAX_SPELLING
        expression = self.symbols.expression(self.symbols.start)
        span = expression and expression[0].span(expression[1])
        if not span:
            return None
        is_canonical = not may_escape(ord("a"), self.encoding.spelling)
        return span.rest * span.width + (span.widest if is_canonical else MAX_SPELLING) - 1

    def _edges(self, key: Any) -> dict[int, Any]:
        return spell_edges(self.symbols, self.encoding, key)

    def _label(self, key: Any) -> int:
        symbol_state, node = key
        return self.symbols.label(symbol_state) if node == GROUND else -1

    def text_state(self, q: int) -> int | None:
        """See `Leaf.text_state`."""
        key = self._keys[q]
        return key[0] if key[1] == GROUND else None

    def in_text(self, symbol_state: int, node: int = GROUND) -> int:
        """See `Leaf.in_text`."""
        return self.state((symbol_state, node))

    def step(self, q: int, byte: int) -> int:
        """See `Leaf.step`: follows one byte without computing the others."""
        row = self._rows[q]
        if row is not None:
            return row.get(byte, -1)
        to = self._steps.get(q << 8 | byte)
        if to is None:
            key = self._follow(self._keys[q], byte)
            to = self._steps[q << 8 | byte] = -1 if key is None else self.state(key)
        return to

    def _follow(self, key: Any, byte: int) -> Hashable | None:
        return spell_edge(self.symbols, self.encoding, key, byte)

    def continues(self, q: int) -> bool:
        """See `Leaf.continues`."""
        key = self._keys[q]
        return key[1] != GROUND or bool(self.symbols.moves(key[0]))

    def _search(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        # Search by symbol instead of by byte: a string of a thousand characters takes a thousand
        # steps, not a thousand times each partly written character.
        symbol_state, node = self._keys[q]
        text = self._complete_symbols(symbol_state, node)
        return None if text is None or wanted not in (None, 0) else (text, 0)

    def _complete_symbols(self, symbol_state: int, node: int) -> Text | None:
        """Return the fewest bytes from a symbol state and encoding node to acceptance.

        Among several, take the text that begins with the longest run, then the first in byte order,
        and so on, so that the result does not depend on earlier calls.
        """
        at, way = (symbol_state, node), []
        while (found := self._completion(at)) is None:
            left = self._left(at)
            if left is None:
                return None
            to, spelt = self._next_step(at, left)
            way.append((at, spelt))
            at = to, GROUND
        for at, spelt in reversed(way):
            found = self._completions[at] = put(spelt, found)
        return found

    def _completion(self, at: tuple[int, int]) -> Text | None:
        """Return `_complete_symbols` where it is known, or can be read from a document."""
        symbol_state, node = at
        if node == GROUND and self.symbols.label(symbol_state) >= 0:
            return b""
        found = self._completions.get(at)
        if found is None and (quoting := self.symbols.quoting(symbol_state)) is not None:
            found = self._completions[at] = self._complete_quote(quoting, node)
        return found

    def _next_step(self, at: tuple[int, int], left: int) -> tuple[int, Text]:
        """Return the first step, in that order, of a text of ``left`` bytes."""
        *ways, last = steps(self.symbols, self.encoding, *at)
        for to, spelt in ways:
            rest = left - len(spelt)
            if self.symbols.at_least(to) <= rest and self._left((to, GROUND), rest) == rest:
                return to, spelt
        return last

    def _left(self, at: tuple[int, int], most: int | None = None) -> int | None:
        """Return the fewest bytes to an end; None if more than ``most``, or if there is no end."""
        # The search ends at known results: the states of one pattern share most of their ways.
        lefts, label, at_least = self._lefts, self.symbols.label, self.symbols.at_least
        if at in lefts:
            return lefts[at]

        def estimate(state: int) -> int:
            found = lefts.get((state, GROUND))
            return at_least(state) if found is None else found

        path = shortest_path(
            self.symbols,
            self.encoding,
            *at,
            lambda state: (state, GROUND) in lefts or label(state) >= 0,
            estimate,
            most,
        )
        if path is None:
            return None
        left = lefts.get((path[-1][0], GROUND), 0) if path else 0
        for state, spelt in reversed(path):
            lefts.setdefault((state, GROUND), left)
            left += len(spelt)
        lefts[at] = left
        return left

    def _complete_quote(self, quoting: Quoting, node: int) -> bytes:
        """Return `_complete_symbols` from the document, where only a quote is left."""
        passages = quoting.passages
        for at in (GROUND, node):
            if (passages, at) not in self._spelt:
                self._spelt[passages, at] = quoting.spelt(self.encoding, at)
        spelt = self._spelt[passages, GROUND]
        first = None if node == GROUND else self._spelt[passages, node]
        at, end = passages.nearest(
            quoting.read,
            [len(text or b"") for text in spelt],
            None if first is None else [FAR if text is None else len(text) for text in first],
        )
        texts = [spelt[code] for code in passages.codes[at:end].tolist()]
        if first:
            texts[0] = first[passages.codes[at]]
        return b"".join([text for text in texts if text])


def read_text(
    leaf: Leaf, symbol_state: int, node: int, data: bytes, start: int
) -> tuple[int, int, int]:
    """Read inside a text of ``leaf``, up to a closing quote.

    Returns:
        The symbol state and the encoding's node at that place, or at the end of the data, and the
        index up to which it read; `NO_STATE` if the text is not allowed.
    """
    symbols, leads, end = leaf.symbols, leaf.leads, len(data)
    while start < end:
        if node == GROUND:
            if data[start] == _QUOTE:
                break
            plain = _PLAIN(data, start)
            if plain is not None:
                start = plain.end()
                known = symbol_state in leads
                to = leads[symbol_state] if known else None
                if to is None:
                    to = symbols.read(symbol_state, plain[0])
                    if to is None:
                        return NO_STATE, node, start
                    if not known and (to == symbol_state or (to in leads and leads[to] == to)):
                        leads[symbol_state] = _lead(symbols, symbol_state, to)
                symbol_state = to
                continue
        spelt = spell_edge(symbols, leaf.encoding, (symbol_state, node), data[start])
        start += 1
        if spelt is None:
            return NO_STATE, node, start
        symbol_state, node = spelt
    return symbol_state, node, start


def _lead(symbols: SymbolAutomaton, state: int, to: int) -> int | None:
    """Return ``to``, where one text leads from ``state`` and from ``to`` itself, if every plain
    text leads there from ``state``; otherwise None."""
    chars, most = symbols.run(state)
    if most < 0 and symbols.settled(state) <= (to != state):
        minterms = symbols.alphabet.ascii_minterms()
        if all(chars >> minterms[byte] & 1 for byte in _PLAIN_BYTES):
            return to
    return None


class StringLeaf(TextLeaf):
    """JSON strings, with their quotes, whose value a symbol automaton accepts."""

    _OPEN = "open"
    _CLOSED = "closed"

    def __init__(self, symbols: SymbolAutomaton, encoding: Utf8) -> None:
        super().__init__(symbols, encoding)
        self.inside = self.start
        self.start = self.state(self._OPEN)

    def _edges(self, key: Any) -> dict[int, Any]:
        if key == self._OPEN:
            return {0x22: (self.symbols.start, GROUND)}
        if key == self._CLOSED:
            return {}
        edges = super()._edges(key)
        symbol_state, node = key
        if node == GROUND and self.symbols.label(symbol_state) >= 0:
            edges[0x22] = self._CLOSED
        return edges

    def _label(self, key: Any) -> int:
        return 0 if key == self._CLOSED else -1

    def text_state(self, q: int) -> int | None:
        """See `Leaf.text_state`."""
        key = self._keys[q]
        return key[0] if key[1:] == _IN_TEXT else None

    def after_quote(self, label: int) -> int:
        """See `Leaf.after_quote`."""
        return self.state(self._CLOSED)

    def at_least(self, q: int) -> int:
        """See `Leaf.at_least`."""
        return self.symbols.at_least(self.symbols.start) + 2 if q == self.start else 0

    def _follow(self, key: Any, byte: int) -> Hashable | None:
        if isinstance(key, str) or key[0] == self._OPEN:
            to: Hashable = self._edges(key).get(byte)
            return to
        if byte == _QUOTE and key[1] == GROUND:
            return self._CLOSED if self.symbols.label(key[0]) >= 0 else None
        return spell_edge(self.symbols, self.encoding, key, byte)

    def read(self, q: int, data: bytes, start: int) -> tuple[int, int]:
        """See `Leaf.read`. Creates only the last state."""
        key = self._keys[q]
        if key == self._CLOSED:
            return -1, start + 1
        if key == self._OPEN or key[0] == self._OPEN:
            if data[start] != _QUOTE:
                return -1, start + 1
            q = self.inside if key == self._OPEN else self.state((key[1], GROUND))
            key = self._keys[q]
            start += 1
            if start == len(data):
                return q, start
        symbol_state, node = key
        if node != GROUND or data[start] != _QUOTE:
            symbol_state, node, start = read_text(self, symbol_state, node, data, start)
            if symbol_state == NO_STATE:
                return -1, start
            if start == len(data):
                if symbol_state == key[0] and node == key[1]:
                    return q, start  # as in most strings
                key = symbol_state, node
                q = self._ids.get(key, -1)
                return (self._add(key, -1) if q < 0 else q), start
        return ENDED if self.symbols.label(symbol_state) >= 0 else -1, start + 1

    def continues(self, q: int) -> bool:
        """See `Leaf.continues`."""
        return bool(self._keys[q] != self._CLOSED)

    def _search(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        key = self._keys[q]
        opening = b""
        if key == self._OPEN:
            opening, key = b'"', (self.symbols.start, GROUND)
        symbol_state, node = key
        text = self._complete_symbols(symbol_state, node)
        return (
            None if text is None or wanted not in (None, 0) else (put(opening, put(text, b'"')), 0)
        )
