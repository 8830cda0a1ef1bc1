"""What a machine asks of the frames on its stack, and what they answer.

A `Frame` is a kind of open value: when the leaf above it ends with an outcome, it says in which
ways the text may go on, each an `Alternative`, and how it is closed in the fewest bytes. Who asks
is not known here, nor what kinds there are.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from structgen.automaton.texts import Text

from .leaf import Leaf


class Frame(Protocol):
    """A kind of open value. ``at`` is the frame's own integer state.

    Attributes:
        nests: whether it counts towards the depth of the stack.
        limit: the depth, with this frame on top, from which on it is resumed as ``limited``.
        may_record: whether `records` may ever say so; hardly any frame's does.
    """

    nests: bool
    limit: int
    may_record: bool

    def records(self, at: int, outcome: int) -> bool:
        """Whether what follows depends on the text just written (a key, or an array's item)."""
        ...

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """What may follow when the leaf above ends with ``outcome``.

        ``text`` is given where `records` says so. ``limited`` says that the stack is as deep as it
        may become without care: what is pushed from here on has to mind its own depth.
        """
        ...

    def forget(self, at: int, outcome: int) -> int | None:
        """Where `records` says that what follows depends on the text: a state of the frame from
        which the same follows, whatever the text is, up to the end of the next value inside.

        Not to be resumed there, and some value is certainly possible. None where there is none.
        """
        ...

    def forgotten(self, at: int) -> int:
        """In such a state, and those that follow: how many values at most the next one must not be
        equal to. 0 in all others."""
        ...

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """The fewest bytes that close this frame after ``outcome``, or an upper bound of them.

        ``text`` is only needed where `records` and `finish_reads` say so. From a state that has
        forgotten what is barred (see `forget`), as many bytes as may be needed, but not these.
        """
        ...

    def finish_reads(self, at: int, outcome: int) -> bool:
        """Whether `finish` depends on the text, where `records` says that `resume` does."""
        ...

    def finish_otherwise(self, at: int, outcome: int) -> tuple[Text, Collection[Any]] | None:
        """Where `finish` depends on the text: what it comes to for all texts but those of certain
        values, and these values, or more. None where that is not known."""
        ...

    def finish_most(self, at: int, outcome: int) -> int | None:
        """Where `finish` depends on the text: most bytes that it may come to; None when unknown."""
        ...

    def preferred(self, at: int) -> int | None:
        """The outcome with which `finish` would have the leaf above end, or None for any."""
        ...


class Textless:
    """Base of the frames that go on alike, whatever the text was."""

    may_record = False

    def records(self, at: int, outcome: int) -> bool:
        """See `Frame`."""
        return False

    def forget(self, at: int, outcome: int) -> int | None:
        """See `Frame`."""
        return None

    def forgotten(self, at: int) -> int:
        """See `Frame`."""
        return 0

    def finish_reads(self, at: int, outcome: int) -> bool:
        """See `Frame`."""
        return False

    def finish_otherwise(self, at: int, outcome: int) -> None:
        """See `Frame`."""

    def finish_most(self, at: int, outcome: int) -> None:
        """See `Frame`."""

    def preferred(self, at: int) -> int | None:
        """See `Frame`."""
        return None


class Released(Protocol):
    """What lives as long as a machine."""

    def release(self) -> None:
        """Let go of all that refers back."""
        ...


class NeedsText(Exception):
    """The answer depends on text that a state does not hold; ask again with a `TextHistory`."""


class Alternative:
    """One way to go on: ``leaf`` in state ``q``, over ``frames`` (top first) pushed on the stack.

    Without a leaf nothing is read: the topmost frame below is resumed with outcome 0.
    """

    __slots__ = ("frames", "leaf", "q")

    def __init__(
        self, leaf: Leaf | None, q: int = 0, frames: tuple[tuple[Frame, int], ...] = ()
    ) -> None:
        self.leaf = leaf
        self.q = q
        self.frames = frames


POP = (Alternative(None),)
