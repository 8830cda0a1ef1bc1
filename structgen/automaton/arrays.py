"""JSON arrays: the punctuation leaf that all arrays share, and the frame of one open array.

`ArrayLeaf` writes ``[``, ``,`` and ``]`` with the whitespace around them. `ArrayPlan` is the frame:
its state is how many items are complete (no further than it matters) and whether punctuation or an
item is being written; it tells which conjunction the next item is owed to.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from ..grammar.schema_graph import TRUE
from .leaf import Leaf
from .machine import POP, Alternative
from .whitespace import Whitespace

if TYPE_CHECKING:
    from .values import JsonLanguage

ITEM, CLOSE = 0, 1


class ArrayLeaf(Leaf):
    """Array punctuation; ends with `ITEM` where an item starts, with `CLOSE` after ``]``."""

    def __init__(self, space: Whitespace) -> None:
        super().__init__()
        self._space = space

    def open(self, item: bool, close: bool) -> int:
        """State before ``[``, after which an item may come, or ``]``."""
        return self.state(("open", item, close))

    def after_item(self, item: bool, close: bool) -> int:
        """State after an item, where ``,`` and another item may come, or ``]``."""
        return self.state(("next", 0, item, close))

    def _edges(self, key: Hashable) -> Mapping[int, Hashable]:
        phase, *rest = key  # type: ignore[misc]
        if phase == "open":
            return {0x5B: ("first", 0, *rest)}
        if phase == "closed":
            return {}
        space, item, close = rest
        edges: dict[int, Hashable] = {
            byte: (phase, to, item, close) for byte, to in self._space.edges[space].items()
        }
        if self._space.may_end[space]:
            if phase == "next" and item:
                edges[0x2C] = ("comma", 0, True, False)
            if close:
                edges[0x5D] = ("closed",)
        return edges

    def _label(self, key: Hashable) -> int:
        phase, *rest = key  # type: ignore[misc]
        if phase == "closed":
            return CLOSE
        if phase in ("first", "comma") and rest[1] and self._space.may_end[rest[0]]:
            return ITEM
        return -1


class ArrayPlan:
    """The frame of an array owed to the array assertions of several nodes at once.

    States: ``2 * n`` while punctuation is written after n items, ``2 * n + 1`` during the item that
    follows them. Items beyond the last that matters are not counted.
    """

    def __init__(self, language: JsonLanguage, nodes: tuple[int, ...]) -> None:
        self._language = language
        asserting = [language.nodes[n] for n in nodes]
        self._min = max((n.min_items for n in asserting), default=0)
        limits = [n.max_items for n in asserting if n.max_items is not None]
        self._max: int | None = min(limits) if limits else None
        self._nodes = asserting
        self._prefix = max((len(n.prefix) for n in asserting), default=0)
        self._count_to = max(self._prefix, self._min, self._max or 0)
        self._limit: int | None = None
        self._finish: dict[int, bytes | None] = {}

    def _item(self, index: int) -> int:
        """The conjunction that item ``index`` is owed to."""
        return self._language.conjunction(
            n.prefix[index] if index < len(n.prefix) else n.items for n in self._nodes
        )

    def _most(self) -> int | None:
        """Most items possible: ``maxItems``, or the first item that nothing satisfies."""
        if self._limit is None:
            # -1 stands for "no limit": None is "not computed yet".
            self._limit = -1 if self._max is None else self._max
            if any(n.prefix or n.items != TRUE for n in self._nodes):
                for index in range(self._prefix + 1):
                    if 0 <= self._limit <= index:
                        break
                    if not self._language.is_possible(self._item(index)):
                        self._limit = index
                        break
        return None if self._limit < 0 else self._limit

    def _may(self, count: int) -> tuple[bool, bool]:
        """Whether another item, and whether ``]``, may follow ``count`` items."""
        most = self._most()
        return most is None or count < most, count >= self._min

    def children(self) -> list[int]:
        """The conjunctions that items are owed to."""
        return [self._item(i) for i in range(self._prefix + 1)]

    def is_possible(self) -> bool:
        """Whether any array satisfies the nodes."""
        return not self._min or self.shortest_text() is not None

    def open(self) -> Alternative:
        """How such an array starts."""
        leaf = self._language.array_leaf
        return Alternative(leaf, leaf.open(*self._may(0)), ((self, 0),))

    def resume(self, at: int, outcome: int) -> tuple[Alternative, ...]:
        """What may follow; see `machine.Frame`."""
        count = at >> 1
        if not at & 1:
            if outcome == CLOSE:
                return POP
            frame = ((self, at + 1),)
            return tuple(
                Alternative(way.leaf, way.q, way.frames + frame)
                for way in self._language.alternatives(self._item(count))
            )
        count = min(count + 1, self._count_to)
        leaf = self._language.array_leaf
        return (Alternative(leaf, leaf.after_item(*self._may(count)), ((self, 2 * count),)),)

    def finish(self, at: int, outcome: int) -> bytes | None:
        """The fewest bytes that close the array; see `machine.Frame`."""
        count = at >> 1
        if at & 1:
            return self._close_after(count + 1)
        if outcome == CLOSE:
            return b""
        text = self._language.shortest(self._item(count))
        rest = self._close_after(count + 1)
        return None if text is None or rest is None else text + rest

    def shortest_text(self) -> bytes | None:
        """The shortest whole array, or None when there is none (or none known yet)."""
        rest = self._items_from(0)
        return None if rest is None else self._space("[") + rest

    def _close_after(self, count: int) -> bytes | None:
        if count >= self._min:
            return self._space("", "]")
        rest = self._items_from(count)
        return None if rest is None else self._space("", ",") + rest

    def _items_from(self, count: int) -> bytes | None:
        """Items ``count`` up to the fewest allowed, and ``]``."""
        parts: list[bytes] = []
        if self._max is not None and self._max < self._min:
            return None
        for index in range(count, self._min):
            text = self._language.shortest(self._item(min(index, self._prefix)))
            if text is None:
                return None
            if parts:
                parts.append(self._space("", ","))
            parts.append(text)
        return b"".join(parts) + self._space("", "]")

    def _space(self, before: str, after: str = "") -> bytes:
        """Punctuation with the least whitespace the options ask for."""
        least = self._language.least_space
        return before.encode() + least + after.encode() + (least if after == "," else b"")
