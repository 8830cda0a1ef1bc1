"""The whole JSON text: a value with whitespace before and after it (RFC 8259, section 2).

Only flexible whitespace is allowed there, so that a compact text has nothing around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .frames import POP, Alternative
from .leaf import Leaf
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


class Document:
    """The frame below a top-level value.

    Args:
        value: how the value starts.
        space: whitespace around it.
        limit: see `frames.Frame`.
        shortest: the shortest text of the value.
    """

    nests = may_record = False

    def __init__(
        self, value: tuple[Alternative, ...], space: Whitespace, limit: int, shortest: bytes
    ) -> None:
        self.limit = limit
        self._shortest = shortest
        self._value = tuple(
            Alternative(way.leaf, way.q, (*way.frames, (self, _AFTER))) for way in value
        )
        self._leaf = _SpaceLeaf(space)

    def open(self) -> tuple[Alternative, ...]:
        """How a text starts: with the value, or with whitespace."""
        return (*self._value, Alternative(self._leaf, self._leaf.start, ((self, _BEFORE),)))

    def records(self, at: int, outcome: int) -> bool:
        """See `frames.Frame`."""
        return False

    def forget(self, at: int, outcome: int) -> int | None:
        """See `frames.Frame`."""
        return None

    def forgotten(self, at: int) -> int:
        """See `frames.Frame`."""
        return 0

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """See `frames.Frame`."""
        if at == _BEFORE:
            return self._value
        return (*POP, Alternative(self._leaf, self._leaf.start))

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> bytes | None:
        """See `frames.Frame`."""
        return b"" if at == _AFTER else self._shortest

    def finish_reads(self, at: int, outcome: int) -> bool:
        """See `frames.Frame`."""
        return False

    def finish_variants(self, at: int, outcome: int) -> tuple[bytes, ...]:
        """See `frames.Frame`."""
        return ()

    def preferred(self, at: int) -> int | None:
        """See `frames.Frame`."""
        return None
