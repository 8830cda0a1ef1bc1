"""The whole JSON text: whitespace around the value (RFC 8259, section 2), and the first brace.

The mask of the first token only needs to know whether an object may have members and whether it may
be empty: hardly any vocabulary has a token with a brace and the start of a key. So if the value is
obviously an object, the machine starts with `OpeningLeaf`, one leaf for all schemas, over a
`PlainRoot`, which makes the object's frame after the brace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from structgen.automaton.core.frames import POP, Alternative, Frame
from structgen.automaton.core.leaf import Leaf
from structgen.automaton.core.machine import Machine
from structgen.automaton.texts import Text

from .language import Language
from .whitespace import Whitespace, before_key, kept


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


@kept
def around(space: Whitespace) -> tuple[Alternative, ...]:
    """Return the alternatives for the text around the value: nothing, or whitespace."""
    leaf = _SpaceLeaf(space)
    return (*POP, Alternative(leaf, leaf.start))


_BRACE = 0x7B
_READ: tuple[str] = ("read",)


class OpeningLeaf(Leaf):
    """``{`` of an object that may have members or not, and may be empty or not."""

    def __init__(self, space: Whitespace) -> None:
        super().__init__()
        self._space = space

    def open(self, has_key: bool, may_close: bool) -> int:
        """Return the state before ``{``; after it may come a key, or ``}``, or either."""
        return self.state(("open", has_key, may_close))

    def before_key(self, q: int) -> tuple[Leaf, int]:
        """Return the leaf, and its state, from the brace to the start of a key."""
        before = before_key(self._space)
        return before, before.state(self._keys[q])

    def continues(self, q: int) -> bool:
        """See `Leaf.continues`."""
        return self.labels[q] < 0

    def _edges(self, key: Any) -> Mapping[int, Any]:
        return {} if key == _READ else {_BRACE: _READ}

    def _label(self, key: Any) -> int:
        return 0 if key == _READ else -1


_opening_leaf = kept(OpeningLeaf)


class PlainRoot(Frame):
    """The frame of a document's object up to its brace; see `frames.Frame`."""

    nests = True

    def __init__(self, language: Language) -> None:
        self._language = language
        self.limit = language.limit_below((language.root >> 1,))

    def open(self, has_key: bool, may_close: bool) -> Alternative:
        """Return the alternatives with which the document may start."""
        leaf = _opening_leaf(self._language.inside.space)
        return Alternative(leaf, leaf.open(has_key, may_close), ((self, 0),))

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """See `frames.Frame`: the object after its brace."""
        # Like `JsonLanguage.alternatives`, but the object is known to exist.
        (plan,) = self._language.shapes(self._language.root)[1]
        way = plan.open()
        assert way.leaf is not None
        return (Alternative(way.leaf, way.leaf.step(way.q, _BRACE), way.frames),)

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """See `frames.Frame`: among equally short objects, the one that its own leaf would
        choose."""
        opened = Machine(self.resume(at, outcome))
        return opened.shortest_completion(opened.start)
