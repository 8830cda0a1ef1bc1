"""Leaf automata: lazy byte automata for everything that needs no stack.

A `Leaf` is a deterministic byte automaton with integer states made on demand. ``row(q)`` maps the
outgoing bytes to states, without bytes that lead nowhere. ``label(q)`` is the outcome if the leaf
may end at ``q``, else -1. The outcome of an object key identifies the property; everything else
ends with 0. A leaf does not know what follows it.

Subclasses describe a state by a hashable key, and compute a key's outgoing bytes and label. There
are leaves for text (`text_leaf`), finite sets of byte strings (`LiteralLeaf`), numbers, keys with
punctuation, whitespace, and terminals of grammars.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from structgen.automaton.regex.automaton import SymbolAutomaton
from structgen.automaton.regex.encoding import GROUND, Utf8
from structgen.automaton.regex.symbols import MAX_SEARCH
from structgen.automaton.texts import Text
from structgen.automaton.work import WORK
from structgen.errors import check_limit
from structgen.storage import fork_safe

GROW = fork_safe(threading.RLock())
"""Held while any automaton grows: states are shared between threads, growth is brief."""

Row = dict[int, int]

ENDED = -2
"""`Leaf.read` returns this minus the outcome for an end after which nothing may follow."""

_MANY_STATES = 16
_BYTES_A_NODE = 240

_numbers = itertools.count()


class Leaf:
    """Base of all leaf automata: interning, lazy rows, shortest completions.

    Attributes:
        is_shared: whether several schemas share the instance, so that its walks outlive a
            constraint.
        holds_text: whether part of it is text: characters of ``symbols``, encoded by ``encoding``.
        hands_over: whether `handed` may return a leaf.
        start: its first state, if that is always the same.
        leads: for each visited state of the symbols, the single state to which every text of
            printable ASCII without quotes and backslashes leads; None if there are several.
        attached: data of other modules about this leaf, each under its own key.
        number: unique in the process.
        labels: `label` of each state. Read only.
        tell_from: the number of states below which `grown` returns 0.
        of_grammar: whether it belongs to a context-free grammar, which uses different walks.
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
        self._shortest: dict[tuple[int, int | None], tuple[Text, int] | None] = {}
        self.leads: dict[int, int | None] = {}
        self.attached: dict[Any, Any] = {}
        self.number = next(_numbers)
        self._n_edges = 0
        self._reported = 0
        self.report_from = 0

    @property
    def weight(self) -> int:
        """Its size in bytes, roughly, without encodings, which leaves share.

        Estimated from the number of its parts of each kind and their average size on MaskBench.
        """
        return 2000 + self._state_bytes * len(self._keys) + 40 * self._n_edges

    def grown(self) -> int:
        """Return by how many bytes it has grown since the last call; 0 if by few states."""
        if len(self._keys) < self.report_from:
            return 0
        self.report_from = len(self._keys) + _MANY_STATES
        before, self._reported = self._reported, self.weight
        return self._reported - before

    # -- what a subclass answers ------------------------------------------------------------

    def _edges(self, key: Any) -> Mapping[int, Any]:
        """Map each byte to the key of the next state, without bytes that lead nowhere."""
        raise NotImplementedError

    def _label(self, key: Any) -> int:
        """Return the outcome at ``key``, or -1."""
        raise NotImplementedError

    # -- the automaton ----------------------------------------------------------------------

    def state(self, key: Hashable) -> int:
        """Return the integer of the state that ``key`` describes."""
        found = self._ids.get(key)
        if found is None:
            with GROW:
                found = self._ids.get(key)
                if found is None:
                    found = self._add(key, self._label(key))
        return found

    def _add(self, key: Hashable, label: int) -> int:
        """Add a state and return it. Call with `GROW` held."""
        WORK.left -= 1
        if WORK.left < 0:
            raise WORK.too_much()
        found = len(self._keys)
        self._keys.append(key)
        self._rows.append(None)
        self.labels.append(label)
        self._ids[key] = found
        return found

    def row(self, q: int) -> Row:
        """Return the outgoing bytes of ``q``. Do not change the dict."""
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
            if after is not last:  # true for most digits
                last, to = after, self.state(after)
            row[byte] = to
        return row

    def step(self, q: int, byte: int) -> int:
        """Return the state after ``byte``, or -1."""
        return self.row(q).get(byte, -1)

    def read(self, q: int, data: bytes, start: int) -> tuple[int, int]:
        """Read ``data[start:]`` from ``q``, up to the first place where the leaf may end.

        Call with `GROW` held.

        Returns:
            The state at that place, or at the end of the data, or -1 if there is none; and the
            index up to which it read. Where the leaf has to end, `ENDED` minus the outcome instead
            of a state, so that no state is made.
        """
        rows, labels = self._rows, self.labels
        for i in range(start, len(data)):
            row = rows[q]
            q = self.step(q, data[i]) if row is None else row.get(data[i], -1)
            if q < 0:
                return -1, i + 1
            if labels[q] >= 0:
                row = rows[q]
                continues = self.continues(q) if row is None else row
                return q if continues else ENDED - labels[q], i + 1
        return q, len(data)

    def continues(self, q: int) -> bool:
        """Return whether any byte may follow ``q``."""
        return bool(self.row(q))

    def takes(self, q: int, byte: int) -> bool:
        """Return whether ``byte`` may follow ``q``."""
        row = self._rows[q]
        return self.step(q, byte) >= 0 if row is None else byte in row

    def reads_plain(self, q: int) -> bool:
        """Return whether every text that `leads` describes leads from ``q`` back to ``q``, as far
        as known."""
        state = self.text_state(q)
        return state is not None and self.leads.get(state) == state

    def handed(self, q: int) -> tuple[Leaf, int] | None:
        """Return another leaf and its state that are equivalent to this one at ``q``, if any."""
        return None

    def label(self, q: int) -> int:
        """Return the outcome when the leaf ends at ``q``, or -1 if it may not end there."""
        return self.labels[q]

    def text_state(self, q: int) -> int | None:
        """Return the state of the leaf's symbols if ``q`` is between two characters of a text."""
        return None

    def in_text(self, symbol_state: int, node: int = GROUND) -> int:
        """Return the leaf state at ``symbol_state``, within the character of ``node``."""
        raise NotImplementedError

    def after_quote(self, label: int) -> int:
        """Return the state after the closing quote of a text whose symbols end with ``label``."""
        raise NotImplementedError

    def before_text(self, q: int) -> tuple[Leaf, int, int | None] | None:
        """Return a shared leaf and state that are equivalent to ``q`` up to the start of a text
        (its outcome 1), and the state of the symbols there. None if there is none."""
        return None

    def own_before(self, q: int, symbol_state: int | None) -> int:
        """Return this leaf's state for state ``q`` of that shared leaf, if the text begins at
        ``symbol_state``."""
        raise NotImplementedError

    def after_text(self, label: int) -> tuple[Leaf, int] | None:
        """Return a shared leaf that is equivalent to this one after a text that ends with
        ``label``, and the outcome of this leaf for each of its outcomes, if there is one."""
        return None

    def behind_text(self, q: int) -> tuple[Leaf, int, int] | None:
        """Return the leaf of `after_text`, its state for ``q``, and the label of the text, if ``q``
        comes after a text; otherwise None."""
        return None

    def own(self, q: int, label: int) -> int:
        """Return this leaf's state for state ``q`` of that shared leaf."""
        raise NotImplementedError

    def alike(self, q: int, most_digits: int) -> int:
        """Return a state that accepts the same texts as ``q`` among those that begin with at most
        ``most_digits`` digits, each with an end equally near; often ``q`` itself."""
        return q

    def at_least(self, q: int) -> int:
        """Return a lower bound on the bytes from ``q`` to an end, without a search."""
        return 0

    def shortest(self, q: int, wanted: int | None = None) -> tuple[Text, int] | None:
        """Return the fewest bytes from ``q`` to an end (with outcome ``wanted``, if given).

        Returns:
            The bytes and the outcome reached, or None if there is no such end. Among the shortest,
            the first in byte order, so that the result is reproducible.

        Raises:
            CompileLimitExceeded: the search visited more than `MAX_SEARCH` states.
        """
        found = self._shortest.get((q, wanted), False)
        if found is not False:
            return found  # type: ignore[return-value]
        label = self.label(q)
        if label >= 0 and wanted in (None, label):
            answer: tuple[Text, int] | None = (b"", label)
        else:
            answer = self._search(q, wanted)
        self._shortest[q, wanted] = answer
        return answer

    def _search(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        parents: dict[int, tuple[int, int]] = {q: (-1, 0)}
        queue = deque([q])
        while queue:
            current = queue.popleft()
            WORK.spend(1)
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
            check_limit(
                len(parents), MAX_SEARCH, "finding a shortest completion visits too many states"
            )
        return None


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
        WORK.hold(_BYTES_A_NODE * len(self._children))
        self.start = self.state(0)

    @property
    def weight(self) -> int:
        """See `Leaf.weight`."""
        return super().weight + _BYTES_A_NODE * len(self._children)

    def _edges(self, key: Any) -> Mapping[int, Any]:
        children: dict[int, int] = self._children[key]
        return children

    def _label(self, key: Any) -> int:
        label: int = self._ends[key]
        return label

    def read(self, q: int, data: bytes, start: int) -> tuple[int, int]:
        """See `Leaf.read`. Creates only the last state."""
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
