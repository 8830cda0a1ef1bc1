"""Which terminals can stand side by side, and where that makes an end certain.

A terminal's end demands something of what follows (see `cfg_terminals`): after a number, no digit.
Nearly always the first character of the next terminal meets the demand. `Neighbours` says so with
one mask a terminal, of the atoms that settle whatever the terminal may demand, and reasons with
these masks alone: `is_free` when no demand of any terminal can ever lead to a dead end, and
`is_certain` when a place can be finished after a given kind of terminal. Both may say no where a
closer look (`cfg_completion`) would say yes, never the other way round.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from .cfg_goals import Goals
from .cfg_stacks import BOTTOM, Stacks, unpack
from .cfg_terminals import Terminals

_Node = tuple[int, int]
"""A goal state, or ``~goal`` for the beginning of a goal, and the kind of terminal before it."""

Rest = tuple[int, bytes, "tuple[int, int] | None"]
"""Length of a whole completion, its first part, and the (continuation, kind) it goes on with."""


class Neighbours:
    """The terminals of one grammar, side by side.

    Args:
        stacks: the places.
        terminals: the terminals.
        ignore: terminals that may stand anywhere.
        shortest: the fewest bytes of a terminal that begin with one of some atoms.
    """

    def __init__(
        self,
        stacks: Stacks,
        terminals: Terminals,
        ignore: frozenset[int],
        shortest: Callable[[int, int], bytes],
    ) -> None:
        self._shortest = shortest
        self._stacks = stacks
        self._goals: Goals = stacks.goals
        self._terminals = terminals
        self._ignore = ignore
        # A kind: the atoms that settle what is demanded, and whether the text may end.
        self._kinds: dict[tuple[int, bool], int] = {}
        self._settling: list[tuple[int, bool]] = []
        self._kind_of = [
            self._kind(terminals.settling(t)) if start >= 0 else -1
            for t, start in enumerate(terminals.starts)
        ]
        self._first = [
            terminals.first(t) if start >= 0 else 0 for t, start in enumerate(terminals.starts)
        ]
        self._texts: dict[tuple[int, int], bytes | None] = {}
        self._ends: dict[_Node, dict[int, bytes]] = {}
        # Who else ends when a node does: (node, bytes before), or (node, state to go on in).
        self._heads: dict[_Node, dict[tuple[_Node, bytes], None]] = {}
        self._callers: dict[_Node, dict[tuple[_Node, int], None]] = {}
        self._todo: list[tuple[int, _Node, int, bytes]] = []
        self._rests: dict[tuple[int, int], Rest | None] = {}

    def _kind(self, settling: tuple[int, bool]) -> int:
        found = self._kinds.get(settling)
        if found is None:
            found = self._kinds[settling] = len(self._settling)
            self._settling.append(settling)
        return found

    def can_follow(self, kind: int, terminal: int) -> bool:
        """Whether ``terminal`` can be read after a terminal of ``kind``, whatever that demands."""
        return bool(self._settling[kind][0] & self._first[terminal])

    def kind_of(self, terminal: int) -> int:
        """The kind of a terminal."""
        return self._kind_of[terminal]

    def is_free(self) -> bool:
        """Whether no demand of any terminal can ever lead to a dead end."""
        follow, last = self._goals.neighbours()
        everything = set(follow).union(*follow.values()) if follow else set()
        bridges = [
            i for i in self._ignore if all(self.can_follow(self._kind_of[i], t) for t in everything)
        ]
        if len(bridges) < len(self._ignore):
            return False
        for terminal, following in follow.items():
            kind = self._kind_of[terminal]
            bridged = any(self.can_follow(kind, i) for i in bridges)
            if not bridged and not all(self.can_follow(kind, t) for t in following):
                return False
        return all(self._settling[self._kind_of[t]][1] for t in last | self._ignore)

    def _text(self, kind: int, terminal: int) -> bytes | None:
        """The fewest bytes of ``terminal`` that settle what a terminal of ``kind`` demands."""
        key = (kind, terminal)
        if key not in self._texts:
            mask = self._settling[kind][0]
            self._texts[key] = (
                self._shortest(terminal, mask) if self._first[terminal] & mask else None
            )
        return self._texts[key]

    # -- places -----------------------------------------------------------------------------------

    def of_place(self, place: int, terminal: int) -> bytes | None:
        """A short way to the end from ``place`` after any end of ``terminal``, if certain."""
        found = self._of_place(place, terminal)
        if found is None:
            return None
        out = bytearray()
        at: Rest | None = found
        while at is not None:
            out += at[1]
            at = self._rests[at[2]] if at[2] is not None else None
        return bytes(out)

    def is_certain(self, place: int, terminal: int) -> bool:
        """Whether a text can surely be finished from ``place`` after any end of ``terminal``."""
        return self._of_place(place, terminal) is not None

    def _of_place(self, place: int, terminal: int) -> Rest | None:
        kind = self._kind_of[terminal]
        if self._stacks.accepting[place] and self._settling[kind][1]:
            return (0, b"", None)
        best: Rest | None = None
        for state, below in self._stacks.places[place]:
            for after, text in self._ends_of((state, kind)).items():
                rest = self._of_continuation(below, after)
                if rest is not None and (best is None or rest[0] + len(text) < best[0]):
                    best = (rest[0] + len(text), text, (below, after))
        return best

    def _of_continuation(self, continuation: int, kind: int) -> Rest | None:
        """As `_of_place`; without recursion, since stacks can be deep."""
        key = (continuation, kind)
        stack = [key]
        while stack:
            at = stack[-1]
            if at in self._rests:
                stack.pop()
                continue
            missing: list[tuple[int, int]] = []
            best: Rest | None = None
            for top in self._stacks.continuations[at[0]]:
                if top == BOTTOM:
                    if self._settling[at[1]][1]:
                        best = (0, b"", None)
                    continue
                state, below = unpack(top)
                for after, text in self._ends_of((state, at[1])).items():
                    if (below, after) not in self._rests:
                        missing.append((below, after))
                        continue
                    rest = self._rests[below, after]
                    if rest is not None and (best is None or rest[0] + len(text) < best[0]):
                        best = (rest[0] + len(text), text, (below, after))
            if missing:
                stack += missing
            else:
                self._rests[at] = best
                stack.pop()
        return self._rests[key]

    # -- goals ------------------------------------------------------------------------------------

    def _ends_of(self, node: _Node) -> dict[int, bytes]:
        """For the kinds of terminals a goal can surely end with: the fewest bytes until then."""
        if node not in self._ends:
            self._open(node)
            while self._todo:
                _, at, kind, text = heapq.heappop(self._todo)
                self._end(at, kind, text)
        return self._ends[node]

    def _open(self, start: _Node) -> None:
        goals = self._goals
        opened = [start]
        self._ends[start], self._heads[start], self._callers[start] = {}, {}, {}
        for node in opened:
            state, kind = node
            if state >= 0 and goals.accepts[state]:
                heapq.heappush(self._todo, (0, node, kind, b""))
            edges = goals.edges(state) if state >= 0 else goals.start(~state)
            steps = [(symbol, to) for symbol, to in edges.items()]
            steps += [(terminal, state) for terminal in self._ignore]
            for symbol, to in steps:
                inner = (symbol, kind)
                if symbol >= 0:
                    text = self._text(kind, symbol)
                    if text is None or (to == state and self._kind_of[symbol] == kind):
                        continue
                    inner = (to, self._kind_of[symbol])
                if inner not in self._ends:
                    self._ends[inner], self._heads[inner], self._callers[inner] = {}, {}, {}
                    opened.append(inner)
                if symbol >= 0:
                    assert text is not None
                    self._heads[inner][node, text] = None
                    for after, more in self._ends[inner].items():
                        self._push(node, after, text + more)
                else:
                    self._callers[inner][node, to] = None
                    for after, more in list(self._ends[inner].items()):
                        self._go_on(node, to, after, more)

    def _push(self, node: _Node, kind: int, text: bytes) -> None:
        if not self._is_beaten(node, kind, text):
            heapq.heappush(self._todo, (len(text), node, kind, text))

    def _is_beaten(self, node: _Node, kind: int, text: bytes) -> bool:
        """Whether some known end of ``node`` is as short and demands no more."""
        mask, may_end = self._settling[kind]
        for other, known in self._ends[node].items():
            if len(known) <= len(text):
                settling, ends = self._settling[other]
                if mask & ~settling == 0 and ends >= may_end:
                    return True
        return False

    def _end(self, node: _Node, kind: int, text: bytes) -> None:
        if self._is_beaten(node, kind, text):
            return
        self._ends[node][kind] = text
        for head, before in self._heads[node]:
            self._push(head, kind, before + text)
        for caller, to in list(self._callers[node]):
            self._go_on(caller, to, kind, text)

    def _go_on(self, caller: _Node, to: int, kind: int, text: bytes) -> None:
        """A goal called by ``caller`` can end with ``kind`` after ``text``; ``to`` follows."""
        node = (to, kind)
        if node not in self._ends:
            self._open(node)
        if (caller, text) not in self._heads[node]:
            self._heads[node][caller, text] = None
            for after, more in list(self._ends[node].items()):
                self._push(caller, after, text + more)
