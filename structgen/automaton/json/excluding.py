"""A leaf without a few of its texts, for example any string except these.

Unique items bar the values already written, so one constraint needs many such languages. As
expressions (anything, and not ``red``) each would need its own automaton, walks and masks. Instead,
`ExcludingLeaf` runs the leaf that they all share and, in parallel, for each barred value a small
automaton with all the ways to write it. When no barred value can follow any more, usually after a
character or two, only the shared leaf continues (`handed`), with its cached walks.

The barred set is usually the previous one plus a value. So a set of automata is stored as another
set plus an automaton (`_nodes`), and each item costs only its own part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from structgen.automaton.core.leaf import Leaf
from structgen.automaton.core.text_leaf import StringLeaf
from structgen.automaton.texts import Text, head, put
from structgen.automaton.work import WORK
from structgen.storage import cached_method

from .numbers import NumberLeaf

Key: TypeAlias = "tuple[int, int]"
"""The state of the shared leaf, and the number of the set of barred automata that can still
continue."""

Single: TypeAlias = "tuple[Leaf, int] | None"
"""The automaton of all ways to write one value, and its start state; None: there are none."""


class ExcludingLeaf(Leaf):
    """The texts of a leaf except some values, which are given to `open`.

    Attributes:
        base: the leaf; it has one outcome.
    """

    is_shared = False
    hands_over = True

    def __init__(self, base: Leaf) -> None:
        super().__init__()
        self.base = base
        if base.holds_text:
            self.encoding = base.encoding
        # Sets of barred automata, each the number of a smaller set plus an automaton with its
        # state. The first set is empty.
        self._nodes: list[tuple[int, Leaf, int]] = [(0, base, 0)]
        self._node_ids: dict[tuple[int, int, int], int] = {}
        self._barred_rows: list[dict[int, int] | None] = [{}]
        self._ends: list[bool] = [False]
        self._opened: dict[tuple[int, ...], int] = {(): 0}

    def open(
        self, numbers: tuple[int, ...], single: Callable[[int], Single]
    ) -> tuple[Leaf, int] | None:
        """Return the leaf, and its start state, without the values of ``numbers``.

        This is `base` if it has none of them; None if every text is barred.

        Args:
            numbers: the numbers of the values.
            single: returns the automaton of the ways to write each.
        """
        node = self._opened.get(numbers)
        if node is None:
            before = self._opened.get(numbers[:-1])
            node = before or 0
            for number in numbers if before is None else numbers[-1:]:
                only = single(number)
                node = node if only is None else self._with(node, *only)
            self._opened[numbers] = node
        if not node:
            return self.base, self.base.start
        first = self.base.start, node
        return (self, self.state(first)) if self.is_alive(first) else None

    def _with(self, node: int, leaf: Leaf, q: int) -> int:
        """Return the set ``node`` plus one automaton."""
        key = node, leaf.number, q
        found = self._node_ids.get(key)
        if found is None:
            WORK.spend(1)
            WORK.hold(300)
            found = self._node_ids[key] = len(self._nodes)
            self._nodes.append((node, leaf, q))
            self._barred_rows.append(None)
            self._ends.append(self._ends[node] or leaf.labels[q] >= 0)
        return found

    @property
    def weight(self) -> int:
        """See `Leaf`."""
        return super().weight + 400 * len(self._nodes)

    def key(self, q: int) -> Key:
        """Return the state of `base` and of the barred values for ``q``."""
        key: Key = self._keys[q]
        return key

    def handed(self, q: int) -> tuple[Leaf, int] | None:
        """See `Leaf.handed`."""
        at, barred = self._keys[q]
        return None if barred else (self.base, at)

    def barred_row(self, barred: int) -> dict[int, int]:
        """Return the bytes with which barred values continue, each with the values that do."""
        found = self._barred_rows[barred]
        if found is None:
            todo = []
            while (row := self._barred_rows[barred]) is None:
                todo.append(barred)
                barred = self._nodes[barred][0]
            found = row
            for node in reversed(todo):
                _, leaf, q = self._nodes[node]
                found = found.copy()
                WORK.spend(1 + (len(found) >> 5))
                for byte, to in leaf.row(q).items():
                    found[byte] = self._with(found.get(byte, 0), leaf, to)
                self._barred_rows[node] = found
        return found

    def is_barred(self, barred: int) -> bool:
        """Return whether the text so far is barred."""
        return self._ends[barred]

    @cached_method
    def is_alive(self, key: Key) -> bool:
        """Return whether any text that is not barred is still possible.

        `base` has no dead ends, so a byte with which no barred value continues is enough. The
        search is finite, because barred values are, and rarely takes a second step.
        """
        base = self.base
        todo, seen = [key], {key}
        while todo:
            at, barred = todo.pop()
            WORK.spend(2)
            if not barred or (base.labels[at] >= 0 and not self.is_barred(barred)):
                return True
            row, taken = base.row(at), self.barred_row(barred)
            if len(row) > len(taken) or any(byte not in taken for byte in row):
                return True
            following = {(to, taken[byte]) for byte, to in row.items()} - seen
            seen |= following
            todo += following
        return False

    # -- Leaf -------------------------------------------------------------------------------

    def _edges(self, key: Key) -> Mapping[int, Key]:
        at, barred = key
        taken = self.barred_row(barred)
        edges: dict[int, Key] = {}
        for byte, to in self.base.row(at).items():
            after: Key = (to, taken.get(byte, 0))
            if self.is_alive(after):
                edges[byte] = after
        return edges

    def _label(self, key: Key) -> int:
        at, barred = key
        return -1 if self.is_barred(barred) else self.base.labels[at]

    def step(self, q: int, byte: int) -> int:
        """See `Leaf.step`: follows one byte without computing the others."""
        at, barred = self._keys[q]
        to = self.base.step(at, byte)
        if to < 0:
            return -1
        after: Key = (to, self.barred_row(barred).get(byte, 0))
        return self.state(after) if self.is_alive(after) else -1

    def read(self, q: int, data: bytes, start: int) -> tuple[int, int]:
        """See `Leaf.read`."""
        for i in range(start, len(data)):
            at, barred = self._keys[q]
            if not barred:
                to, end = self.base.read(at, data, i)
                return (to if to < 0 else self.state((to, 0))), end
            q = self.step(q, data[i])
            if q < 0 or self.labels[q] >= 0:
                return q, i + 1
        return q, len(data)

    def continues(self, q: int) -> bool:
        """See `Leaf.continues`."""
        at, barred = self._keys[q]
        return bool(self.row(q)) if barred else self.base.continues(at)

    def text_state(self, q: int) -> int | None:
        """See `Leaf.text_state`: as in `base`."""
        return self.base.text_state(self._keys[q][0])

    def at_least(self, q: int) -> int:
        """See `Leaf.at_least`."""
        return self.base.at_least(self._keys[q][0])

    def _search(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        """Search by length as long as the text may be barred; `base` knows the rest."""
        best: tuple[Text, int] | None = None
        level, seen = [(b"", q)], {q}  # earlier ones are shorter, or sort first
        while level and (best is None or len(level[0][0]) <= len(best[0])):
            following: list[tuple[bytes, int]] = []
            for text, at in level:
                WORK.spend(5)
                state, barred = self._keys[at]
                label = self.labels[at]
                rest = self.base.shortest(state, wanted) if not barred else None
                if barred:
                    for byte, to in sorted(self.row(at).items()):
                        if to not in seen:
                            seen.add(to)
                            following.append((text + bytes([byte]), to))
                    if label >= 0 and wanted in (None, label):
                        rest = b"", label
                if rest is not None:
                    whole = put(text, rest[0])
                    if best is None or (len(whole), whole) < (len(best[0]), best[0]):
                        best = whole, rest[1]
            level = following
        return best


def bytes_of_many(leaf: Leaf, q: int, count: int) -> int | None:
    """Return a length within which ``leaf`` has more than ``count`` different values from ``q``.

    None if this is not obvious. Only forms that no other value has are counted: strings without
    escapes, and digits other than 0 in numbers.
    """
    of_text = _OF_STRINGS if isinstance(leaf, StringLeaf) else frozenset[int]()
    plain = _OF_NUMBERS if isinstance(leaf, NumberLeaf) else of_text
    begun = 0
    if leaf.holds_text and leaf.text_state(q) is None:
        # Within a character, where any will do; or before the quote.
        way = leaf.shortest(q)
        for byte in b"" if way is None else head(way[0], _LONGEST_CHARACTER):
            q, begun = leaf.step(q, byte), begun + 1
            if leaf.text_state(q) is not None:
                break
    states, ended = {q: 1}, 0
    for n_bytes in range(begun, begun + _MOST_STEPS):
        if ended + sum(states.values()) > count:
            # Each of these begins at least one value.
            ends = [leaf.shortest(at) for at in states]
            return n_bytes + max([len(end[0]) for end in ends if end is not None], default=0)
        following: dict[int, int] = {}
        for at, ways in states.items():
            ended += ways * (leaf.labels[at] >= 0)
            for byte, to in leaf.row(at).items():
                if byte in plain:
                    following[to] = following.get(to, 0) + ways
        states = following
    return None


_MOST_STEPS = 24
_LONGEST_CHARACTER = 16
_OF_STRINGS = frozenset(range(0x20, 0x7F)) - {0x5C}
_OF_NUMBERS = frozenset(b"123456789")  # not 0, which may end a fraction
