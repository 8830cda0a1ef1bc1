"""Leaf automata: lazy byte automata for everything that needs no stack.

A `Leaf` is a deterministic byte automaton with integer states made on demand. ``row(q)`` holds the
outgoing bytes, never one that leads nowhere; ``label(q)`` says whether the leaf may end at ``q``
and with which outcome (-1: it may not). Object keys use the outcome to tell which property was
named; everything else ends with 0. A leaf knows nothing of what follows it.

Subclasses describe a state by a hashable key and answer two questions about a key: its outgoing
bytes and its label. The classes here cover regular text (`TextLeaf`), JSON strings (`StringLeaf`),
finite sets of byte strings (`LiteralLeaf`) and small hand-made tables (`TableLeaf`).
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import CompileLimitExceeded
from .encoding import GROUND, Utf8, may_escape
from .rests import longest_rest
from .symbols import (
    MAX_SEARCH,
    NO_STATE,
    SymbolAutomaton,
    shortest_path,
    spell_edge,
    spell_edges,
)

if TYPE_CHECKING:
    from ..grammar import ir

GROW = threading.RLock()
"""Held while any automaton grows: states are shared between threads, growth is brief."""

MAX_PROBED = 20_000
MAX_PROBED_A_CHARACTER = 100
"""States of a pattern that texts up to the length of its shortest may lead to, and how many more
for each character of that. The 1,723 patterns of MaskBench have 990 states at most."""

MAX_PROBED_BYTES = 64 << 20
"""Most memory that these states may take."""

_TELLING_STATES = 500
_FEWEST_LEVELS = 32
"""So many states, at so many lengths of text, tell how fast states grow."""

Row = dict[int, int]

ENDED = -2
"""`Leaf.read` tells an end after which nothing may follow by this, less the outcome."""


_MANY_STATES = 16

_numbers = itertools.count()


class Leaf:
    """Base of all leaf automata: interning, lazy rows, shortest completions.

    Attributes:
        is_shared: whether several schemas use one instance, so that walks of it are worth keeping
            when a constraint goes.
        holds_text: whether part of it is text: characters of ``symbols``, spelt by ``encoding``.
        hands_over: whether `handed` may say something.
        start: where it starts, if always in the same state.
        leads: for states of the symbols from which every text of printable ASCII without quotes
            and backslashes leads to the same one, that one; for others None; of those met.
        attached: what others keep about this leaf for as long as it lives, each under its own key.
        number: what no other leaf of the process ever has.
        labels: `label` of each state. Only to be read.
        tell_from: below so many states `grown` has nothing to tell.
        of_grammar: whether it is a context-free grammar's, which has walks of its own.
    """

    is_shared = True
    holds_text = False
    hands_over = False
    of_grammar = False
    _state_bytes = 500
    start: int
    symbols: SymbolAutomaton
    encoding: Utf8

    def __init__(self) -> None:
        self._keys: list[Any] = []
        self._ids: dict[Hashable, int] = {}
        self._rows: list[Row | None] = []
        self.labels: list[int] = []
        self._shortest: dict[tuple[int, int | None], tuple[bytes, int] | None] = {}
        self.leads: dict[int, int | None] = {}
        self.attached: dict[Any, Any] = {}
        self.number = next(_numbers)
        self._n_edges = 0
        self._told = 0
        self.tell_from = 0

    @property
    def weight(self) -> int:
        """About how many bytes it takes by now, encodings apart, which leaves share.

        By the number of its parts, and what parts of each kind took on average on MaskBench.
        """
        return 2000 + self._state_bytes * len(self._keys) + 40 * self._n_edges

    def grown(self) -> int:
        """By how many bytes it has grown since this was last told, if by many states."""
        if len(self._keys) < self.tell_from:
            return 0
        self.tell_from = len(self._keys) + _MANY_STATES
        told, self._told = self._told, self.weight
        return self._told - told

    # -- what a subclass answers ------------------------------------------------------------

    def _edges(self, key: Any) -> Mapping[int, Any]:
        """Byte → key of the next state, leaving out bytes that lead nowhere."""
        raise NotImplementedError

    def _label(self, key: Any) -> int:
        """Outcome at ``key``, or -1."""
        raise NotImplementedError

    # -- the automaton ----------------------------------------------------------------------

    def state(self, key: Hashable) -> int:
        """The integer of the state that ``key`` describes."""
        found = self._ids.get(key)
        if found is None:
            with GROW:
                found = self._ids.get(key)
                if found is None:
                    found = self._add(key, self._label(key))
        return found

    def _add(self, key: Hashable, label: int) -> int:
        """A new state, with `GROW` held."""
        found = len(self._keys)
        self._keys.append(key)
        self._rows.append(None)
        self.labels.append(label)
        self._ids[key] = found
        return found

    def row(self, q: int) -> Row:
        """Outgoing bytes of ``q``. The dict must not be changed."""
        row = self._rows[q]
        if row is None:
            with GROW:
                row = self._rows[q]
                if row is None:
                    row = self._new_row(self._keys[q])
                    self._n_edges += len(row)
                    self._rows[q] = row
        return row

    def _new_row(self, key: Any) -> Row:
        row: Row = {}
        last, to = None, -1
        for byte, after in self._edges(key).items():
            if after is not last:  # as it is for most digits
                last, to = after, self.state(after)
            row[byte] = to
        return row

    def step(self, q: int, byte: int) -> int:
        """The state after ``byte``, or -1."""
        return self.row(q).get(byte, -1)

    def read(self, q: int, data: bytes, start: int) -> tuple[int, int]:
        """Read ``data[start:]`` from ``q``, up to the first place where the leaf may end.

        To be called with `GROW` held.

        Returns:
            The state there, or at the end of the data, or -1 for none; and how far was read. Where
            the leaf has to end it is `ENDED` less the outcome instead: no state need be made.
        """
        rows, labels = self._rows, self.labels
        for i in range(start, len(data)):
            row = rows[q]
            q = self.step(q, data[i]) if row is None else row.get(data[i], -1)
            if q < 0:
                return -1, i + 1
            if labels[q] >= 0:
                row = rows[q]
                goes_on = self.goes_on(q) if row is None else row
                return q if goes_on else ENDED - labels[q], i + 1
        return q, len(data)

    def goes_on(self, q: int) -> bool:
        """Whether any byte may follow ``q``."""
        return bool(self.row(q))

    def takes(self, q: int, byte: int) -> bool:
        """Whether ``byte`` may follow ``q``."""
        row = self._rows[q]
        return self.step(q, byte) >= 0 if row is None else byte in row

    def handed(self, q: int) -> tuple[Leaf, int] | None:
        """Another leaf, and its state, that does all that this one does from ``q``, if any."""
        return None

    def label(self, q: int) -> int:
        """Outcome when the leaf ends at ``q``, or -1 when it may not end there."""
        return self.labels[q]

    def text_state(self, q: int) -> int | None:
        """The state of the leaf's symbols when ``q`` stands between two characters of a text."""
        return None

    def in_text(self, symbol_state: int, node: int = GROUND) -> int:
        """The leaf state at ``symbol_state``, inside the character of encoding node ``node``."""
        raise NotImplementedError

    def after_quote(self, label: int) -> int:
        """The leaf state after the closing quote of a text whose symbols end with ``label``."""
        raise NotImplementedError

    def before_text(self, q: int) -> tuple[Leaf, int, int | None] | None:
        """A shared leaf, and its state, that does the same from ``q`` up to where a text begins,
        which it calls outcome 1; and the state of the symbols where it does begin. None where there
        is none."""
        return None

    def own_before(self, q: int, symbol_state: int | None) -> int:
        """The state here that ``q`` of that shared leaf stands for, the text beginning at
        ``symbol_state``."""
        raise NotImplementedError

    def after_text(self, label: int) -> tuple[Leaf, int] | None:
        """A shared leaf that does the same after a text that ends with ``label``, if there is one;
        and the outcome here that each of its outcomes stands for."""
        return None

    def own(self, q: int, label: int) -> int:
        """The state here that ``q`` of that shared leaf stands for."""
        raise NotImplementedError

    def alike(self, q: int, most_digits: int) -> int:
        """A state from which the same texts are read as from ``q`` that begin with no more digits,
        and after each of which an end is as near; often ``q`` itself."""
        return q

    def at_least(self, q: int) -> int:
        """A lower bound on the bytes from ``q`` to an end, without a search."""
        return 0

    def shortest(self, q: int, wanted: int | None = None) -> tuple[bytes, int] | None:
        """The fewest bytes from ``q`` to an end (with outcome ``wanted``, if given).

        Returns:
            The bytes and the outcome reached, or None when there is no such end. Among equally
            short ones the first in byte order, so that the answer is reproducible.

        Raises:
            CompileLimitExceeded: more than `MAX_SEARCH` states had to be visited.
        """
        found = self._shortest.get((q, wanted), False)
        if found is not False:
            return found  # type: ignore[return-value]
        label = self.label(q)
        if label >= 0 and wanted in (None, label):
            answer: tuple[bytes, int] | None = (b"", label)
        else:
            answer = self._search(q, wanted)
        self._shortest[q, wanted] = answer
        return answer

    def _search(self, q: int, wanted: int | None) -> tuple[bytes, int] | None:
        parents: dict[int, tuple[int, int]] = {q: (-1, 0)}
        queue = deque([q])
        while queue:
            current = queue.popleft()
            row = self.row(current)
            for byte in sorted(row):
                to = row[byte]
                if to in parents:
                    continue
                parents[to] = (current, byte)
                label = self.label(to)
                if label >= 0 and wanted in (None, label):
                    out = bytearray()
                    while to != q:
                        to, byte = parents[to]
                        out.append(byte)
                    return bytes(reversed(out)), label
                queue.append(to)
            if len(parents) > MAX_SEARCH:
                raise CompileLimitExceeded(
                    "finding a shortest completion visits too many states",
                    limit=MAX_SEARCH,
                    actual=len(parents),
                )
        return None


class TextLeaf(Leaf):
    """Texts of a symbol automaton, spelt by an encoding, with nothing around them."""

    holds_text = True
    _state_bytes = 200

    def __init__(self, symbols: SymbolAutomaton, encoding: Utf8) -> None:
        super().__init__()
        self.symbols = symbols
        self.encoding = encoding
        self._steps: dict[int, int] = {}
        self._completions: dict[tuple[int, int], bytes] = {}
        self._completed = 0
        self.start = self.state((symbols.start, GROUND))

    @property
    def weight(self) -> int:
        """See `Leaf.weight`."""
        more = 100 * len(self._steps) + 150 * len(self._completions) + self._completed
        return super().weight + self.symbols.weight + more

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
        """See `Leaf.step`: one byte is followed without the others."""
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

    def goes_on(self, q: int) -> bool:
        """See `Leaf.goes_on`."""
        key = self._keys[q]
        return key[1] != GROUND or bool(self.symbols.moves(key[0]))

    def _search(self, q: int, wanted: int | None) -> tuple[bytes, int] | None:
        # Symbol by symbol instead of byte by byte: a string of a thousand characters is a
        # thousand steps, not a thousand times every half-spelt character.
        symbol_state, node = self._keys[q]
        text = self._complete_symbols(symbol_state, node)
        return None if text is None or wanted not in (None, 0) else (text, 0)

    def probe(self) -> None:
        """Look at what texts of each length up to the shortest that ends lead to.

        So a language whose states grow out of all proportion shows. Where they grow steadily, by a
        few more a character, not all are looked at: here and there along a shortest text.

        Raises:
            CompileLimitExceeded: it needs too many states.
        """
        start = self.symbols.start
        expression = self.symbols.expression(start)
        most_bytes = MAX_PROBED_BYTES + (expression[0].weight if expression else 0)
        n_levels = self._probe(start, most_bytes)
        if not n_levels or expression is None:
            return
        path = shortest_path(
            self.symbols, self.encoding, start, GROUND, lambda q: self.symbols.label(q) >= 0
        )
        at = 0
        while path and at < len(path) - _FEWEST_LEVELS:
            at = min(at + 2 * n_levels, len(path) - _FEWEST_LEVELS)
            n_levels = self._probe(path[at][0], most_bytes) or _FEWEST_LEVELS
        # What one text leads to is a small part of them; a long life may meet many.
        expression[0].give_room()

    def _probe(self, start: int, most_bytes: int) -> int:
        """Look at the states after a symbol state, up to the first that may end, until all take
        ``most_bytes``.

        Returns:
            0, or, where they grow steadily, after how many characters that was seen.
        """
        symbols = self.symbols
        most = MAX_PROBED + MAX_PROBED_A_CHARACTER * symbols.at_least(start)
        expression = symbols.expression(start)
        seen = {start}
        level = [start]
        widths: list[int] = []
        weights: list[int] = []
        while level and not any(symbols.label(q) >= 0 for q in level):
            following: list[int] = []
            for q in level:
                for _, to in symbols.moves(q):
                    if to not in seen:
                        seen.add(to)
                        following.append(to)
            weight = expression[0].weight if expression else 0
            if len(seen) > most or weight > most_bytes:
                raise CompileLimitExceeded(
                    "a pattern needs too many automaton states: of a counted repeat that may begin "
                    "anywhere, as in .*a.{20}, each set of beginnings is another. Lower its count, "
                    "or say what stands before it",
                    limit=most if len(seen) > most else most_bytes,
                    actual=len(seen) if len(seen) > most else weight,
                )
            widths.append(len(following))
            weights.append(weight)
            if len(seen) > _TELLING_STATES and _is_steady(widths, weights):
                return len(widths)
            level = following
        return 0

    def _complete_symbols(self, symbol_state: int, node: int) -> bytes | None:
        """The fewest bytes from ``(symbol state, encoding node)`` to an accepting symbol state."""
        if node == GROUND and self.symbols.label(symbol_state) >= 0:
            return b""
        known = self._completions.get((symbol_state, node))
        if known is not None:
            return known
        # Where a way is known the search ends: the states of one pattern have most of it in common.
        completions, label, at_least = self._completions, self.symbols.label, self.symbols.at_least

        def left(state: int) -> int:
            found = completions.get((state, GROUND))
            return at_least(state) if found is None else len(found)

        path = shortest_path(
            self.symbols,
            self.encoding,
            symbol_state,
            node,
            lambda state: (state, GROUND) in completions or label(state) >= 0,
            estimate=left,
        )
        if path is None:
            return None
        suffix = completions.get((path[-1][0], GROUND), b"") if path else b""
        for state, spelt in reversed(path):
            self._completions.setdefault((state, GROUND), suffix)
            suffix = spelt + suffix
            self._completed += len(suffix)
        self._completions[symbol_state, node] = suffix
        return suffix


def _is_steady(widths: list[int], weights: list[int]) -> bool:
    """Whether states grow no faster than the square of the length of text, each as large as ever.

    Args:
        widths: how many states are new, by the length of text,
        weights: and the bytes that all states so far take.
    """
    n, window = len(widths), _FEWEST_LEVELS // 4
    if n < _FEWEST_LEVELS:
        return False
    half = n // 2
    now, then = sum(widths[-window:]), sum(widths[half - window : half])
    grown, grown_then = (
        weights[-1] - weights[-1 - window],
        weights[half - 1] - weights[half - 1 - window],
    )
    # The square makes four of one; and a state that lists counts becomes twice as large.
    return now <= 4.5 * then and grown * then <= 1.4 * grown_then * now


def read_text(
    leaf: Leaf, symbol_state: int, node: int, data: bytes, start: int
) -> tuple[int, int, int]:
    """Read on inside a text of ``leaf``, up to a quote that stands there for itself.

    Returns:
        The symbol state and the encoding's node there, or at the end of the data, and how far was
        read; `NO_STATE` where that leads nowhere.
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
    """``to``, where one text leads from ``state``, and from itself, if every plain text leads there
    from ``state``; None if not."""
    chars, most = symbols.run(state)
    if most < 0 and symbols.settled(state) <= (to != state):
        atoms = symbols.alphabet.ascii_atoms()
        if all(chars >> atoms[byte] & 1 for byte in _PLAIN_BYTES):
            return to
    return None


_QUOTE = 0x22
_PLAIN_BYTES = [byte for byte in range(0x20, 0x7F) if byte not in (_QUOTE, 0x5C)]


class StringLeaf(TextLeaf):
    """JSON strings whose value a symbol automaton accepts, quotes included.

    Args:
        symbols: the automaton.
        encoding: how its symbols are spelt.
        regex: what it was made from, if that is an expression.
    """

    _OPEN = "open"
    _CLOSED = "closed"

    def __init__(
        self, symbols: SymbolAutomaton, encoding: Utf8, regex: ir.Regex | None = None
    ) -> None:
        super().__init__(symbols, encoding)
        self._regex = regex
        self.inside = self.start
        self.start = self.state(self._OPEN)

    @functools.cached_property
    def most_left(self) -> int | None:
        """Bytes that suffice to end any text that has begun, without the quotes; None where that is
        not known. Only budgets ask."""
        if self._regex is None:
            return None
        return longest_rest(self._regex, not may_escape(ord("a"), self.encoding.spelling))

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
        """See `Leaf.read`. Of what is read only the last state is made."""
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

    def goes_on(self, q: int) -> bool:
        """See `Leaf.goes_on`."""
        return bool(self._keys[q] != self._CLOSED)

    def _search(self, q: int, wanted: int | None) -> tuple[bytes, int] | None:
        key = self._keys[q]
        opening = b""
        if key == self._OPEN:
            opening, key = b'"', (self.symbols.start, GROUND)
        symbol_state, node = key
        text = self._complete_symbols(symbol_state, node)
        return None if text is None or wanted not in (None, 0) else (opening + text + b'"', 0)


_PLAIN = re.compile(rb"[ !#-\[\]-~]+").match
"""Printable ASCII without quotes and backslashes, which every encoding spells as itself."""


_IN_TEXT = (GROUND,)
"""What follows the symbol state in the key of a state between two characters."""


class LiteralLeaf(Leaf):
    """A finite set of byte strings, as a trie; ``labels[i]`` is the outcome of ``texts[i]``."""

    def __init__(self, texts: Iterable[bytes], labels: Iterable[int] | None = None) -> None:
        super().__init__()
        self._children: list[dict[int, int]] = [{}]
        self._ends: list[int] = [-1]
        all_texts = list(texts)
        for text, label in zip(
            all_texts, labels if labels is not None else [0] * len(all_texts), strict=True
        ):
            node = 0
            for byte in text:
                child = self._children[node].get(byte)
                if child is None:
                    child = len(self._children)
                    self._children.append({})
                    self._ends.append(-1)
                    self._children[node][byte] = child
                node = child
            self._ends[node] = label
        self.start = self.state(0)

    def _edges(self, key: Any) -> Mapping[int, Any]:
        children: dict[int, int] = self._children[key]
        return children

    def _label(self, key: Any) -> int:
        label: int = self._ends[key]
        return label

    def read(self, q: int, data: bytes, start: int) -> tuple[int, int]:
        """See `Leaf.read`. Of what is read only the last state is made."""
        node, end = self._keys[q], len(data)
        while start < end:
            node = self._children[node].get(data[start], -1)
            start += 1
            if node < 0:
                return -1, start
            label = self._ends[node]
            if label >= 0:
                if not self._children[node]:
                    return ENDED - label, start
                break
        return self.state(node), start


class TableLeaf(Leaf):
    """A small explicit automaton: ``table[name]`` is ``(outgoing bytes, label)``."""

    def __init__(self, table: Mapping[str, tuple[Mapping[int, str], int]]) -> None:
        super().__init__()
        self._table = table

    def _edges(self, key: Any) -> Mapping[int, Any]:
        return self._table[key][0]

    def _label(self, key: Any) -> int:
        return self._table[key][1]
