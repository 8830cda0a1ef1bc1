"""Where what follows an item depends on its text only in name.

After an item of an array whose items must be unique, everything goes on in the same way whatever
the item was, up to the next one's end: only then is it compared. `Forgetting` tells the trie nodes
after which no token gets that far, so that one walk serves all texts (`Frame.forget`), from those
few that have to be walked with the text. It knows leaves, frames and the trie, but no masks.
"""

from __future__ import annotations

from typing import NamedTuple

from structgen.automaton.core import Frame, Leaf, Machine
from structgen.automaton.json import bytes_of_many
from structgen.storage import GenerationalCache

from .walk_store import Node, WalkStore

_MOST_VISITED = 400
"""Places below one node that are looked at before it is left to the text."""


class Apart(NamedTuple):
    """What `Forgetting.apart` finds.

    Attributes:
        at: the frame's state that has forgotten the text.
        node: the nodes from which that is as good, as one; None for none.
        others: the other nodes.
    """

    at: int
    node: Node | None
    others: tuple[int, ...]


class Forgetting:
    """Which nodes may be walked without the text, for the frames of one machine."""

    def __init__(self, machine: Machine, store: WalkStore) -> None:
        self._machine = machine
        self._store = store
        self._known: GenerationalCache[tuple[Frame, int, int, bool, int], bool] = store.cache()
        self._apart: GenerationalCache[tuple[Frame, int, int, bool, Node], Apart] = store.cache()
        self._plenty: GenerationalCache[tuple[Leaf, int, int], bool] = store.cache()

    def apart(self, frame: Frame, at: int, outcome: int, node: Node, limited: bool) -> Apart | None:
        """The nodes of ``node``, where ``frame`` is to be resumed, told apart; None where nothing
        can be forgotten."""
        forgotten = frame.forget(at, outcome)
        if forgotten is None:
            return None
        key = (frame, forgotten, outcome, limited, node)
        found = self._apart[key]
        if found is None:
            found = self._apart[key] = self._tell_apart(frame, forgotten, outcome, node, limited)
            self._store.used += 300
        return found

    def _tell_apart(self, frame: Frame, at: int, outcome: int, node: Node, limited: bool) -> Apart:
        store, known = self._store, self._known
        count = store.trie.n_children
        alike: list[int] = []
        others: list[int] = []
        for real in store.real(node):
            if not count[real]:
                continue
            key = (frame, at, outcome, limited, real)
            is_alike = known[key]
            if is_alike is None:
                is_alike = known[key] = self._is_alike(frame, at, outcome, real, limited)
                store.used += 200
            (alike if is_alike else others).append(real)
        return Apart(at, store.join(alike) if alike else None, (*others,))

    def _is_alike(self, frame: Frame, at: int, outcome: int, node: int, limited: bool) -> bool:
        """Whether no token ends an item of ``frame`` below ``node``, nor comes near an end."""
        resumed = self._machine.resumed
        n_barred = frame.forgotten(at)
        n_visited = 0
        # leaf, its state, node, the frame's state below it, and whether that is within an item
        todo = [
            (way.leaf, way.q, node, way.frames[-1][1], False)
            for way in resumed(frame, at, outcome, limited)
            if way.leaf is not None
        ]
        first, count, byte_at = self._store.views[:3]
        while todo:
            leaf, q, here, below, is_inside = todo.pop()
            n_visited += 1
            if n_visited > _MOST_VISITED:
                return False
            for child in range(first[here], first[here] + count[here]):
                to = leaf.step(q, byte_at[child])
                if to < 0:
                    continue
                if is_inside and (leaf.labels[to] >= 0 or not self._has_plenty(leaf, to, n_barred)):
                    return False
                if count[child]:
                    todo.append((leaf, to, child, below, is_inside))
                if leaf.labels[to] < 0 or not count[child]:
                    continue
                for way in resumed(frame, below, leaf.labels[to], limited):
                    if way.leaf is None:
                        continue  # the array is closed, and with it all that it compares
                    if len(way.frames) != 1:
                        return False
                    todo.append((way.leaf, way.q, child, way.frames[0][1], True))
        return True

    def _has_plenty(self, leaf: Leaf, q: int, count: int) -> bool:
        """Whether some text is left from ``q`` whichever ``count`` ones are barred."""
        key = (leaf, q, count)
        found = self._plenty[key]
        if found is None:
            found = self._plenty[key] = bytes_of_many(leaf, q, count) is not None
            self._store.used += 200
        return found
