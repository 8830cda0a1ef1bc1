"""The whole JSON text: a value with whitespace before and after it (RFC 8259, section 2).

Only flexible whitespace is allowed there, so that a compact text has nothing around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

from structgen.automaton.core.frames import POP, Alternative, TextHistory, Textless
from structgen.automaton.core.leaf import Leaf
from structgen.automaton.core.machine import Machine
from structgen.automaton.texts import Text

from .whitespace import Whitespace

_BEFORE, _AFTER = 0, 1


class _SpaceLeaf(Leaf):
    """At least one character of whitespace."""

    def __init__(self, space: Whitespace) -> None:
        super().__init__()
        self._space = space
        self.start = self.state(0)

    def _edges(self, key: Any) -> Mapping[int, Any]:
        assert isinstance(key, int)
        return self._space.edges[key]

    def _label(self, key: Any) -> int:
        assert isinstance(key, int)
        return 0 if key and self._space.may_end[key] else -1


@lru_cache(maxsize=16)
def _space_leaf(space: Whitespace) -> _SpaceLeaf:
    return _SpaceLeaf(space)


class Document(Textless):
    """The frame below a top-level value.

    Args:
        value: how the value starts.
        space: whitespace around it.
        limit: see `frames.Frame`.
    """

    nests = False

    def __init__(self, value: tuple[Alternative, ...], space: Whitespace, limit: int) -> None:
        self.limit = limit
        # Without this frame below: what referred to it from here would leave it to the collector.
        self._value = value
        self._leaf = _space_leaf(space)

    def open(self) -> tuple[Alternative, ...]:
        """How a text starts: with the value, or with whitespace."""
        return (*self._ways(), Alternative(self._leaf, self._leaf.start, ((self, _BEFORE),)))

    def _ways(self) -> tuple[Alternative, ...]:
        """How the value starts, over this frame."""
        own = self, _AFTER
        return tuple([Alternative(way.leaf, way.q, (*way.frames, own)) for way in self._value])

    @cached_property
    def _completion(self) -> Text:
        """A short text of the value: the one that the value's own ways would be completed with.

        Not a shorter one, where there is: a completion would begin with a blank to come by it.
        """
        value = Machine(self._value)
        return value.shortest_completion(value.start, TextHistory())

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """See `frames.Frame`."""
        if at == _BEFORE:
            return self._ways()
        return (*POP, Alternative(self._leaf, self._leaf.start))

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """See `frames.Frame`."""
        return b"" if at == _AFTER else self._completion
