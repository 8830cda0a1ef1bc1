"""The punctuation that all arrays share: ``[``, ``,`` and ``]`` with the whitespace around them.

Knows nothing of items: who opens an array says whether one may follow, and whether ``]`` may.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from structgen.automaton.core.leaf import Leaf

from .whitespace import Whitespace

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

    def _edges(self, key: Any) -> Mapping[int, Any]:
        phase, *rest = key
        if phase == "open":
            return {0x5B: ("first", 0, *rest)}
        if phase == "closed":
            return {}
        space, item, close = rest
        edges: dict[int, Any] = {
            byte: (phase, to, item, close) for byte, to in self._space.edges[space].items()
        }
        if self._space.may_end[space]:
            if phase == "next" and item:
                edges[0x2C] = ("comma", self._space.after_mark, True, False)
            if close:
                edges[0x5D] = ("closed",)
        return edges

    def _label(self, key: Any) -> int:
        phase, *rest = key
        if phase == "closed":
            return CLOSE
        if phase in ("first", "comma") and rest[1] and self._space.may_end[rest[0]]:
            return ITEM
        return -1


@lru_cache(maxsize=64)
def array_leaf(space: Whitespace) -> ArrayLeaf:
    """The leaf of arrays with such whitespace."""
    return ArrayLeaf(space)
