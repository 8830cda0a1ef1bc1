"""Hash-consed stacks of frames: continuations, each an integer.

A *continuation* is the frames still open, as a set of links, each a frame over another
continuation: stacks that differ only below share what is above (a graph-structured stack: Tomita
1986), so that how many there are depends on the schema and not on the depth of the text. They are
made when first reached and never change. What stands on top of them, and what is read, is not known
here.
"""

from __future__ import annotations

from structgen.automaton.work import WORK

from .frames import Frame

BOTTOM = 0
"""The empty continuation: the text may end here."""

_LINK_BITS = 32


class Stacks:
    """The continuations that have been reached.

    Attributes:
        frames: by number, each with its own state.
        continuations: the links of each, as numbers of frames and of continuations below.
        depths: how many of the frames nest, alike in all stacks of a continuation.
    """

    def __init__(self) -> None:
        self.frames: list[tuple[Frame, int]] = []
        self._frame_ids: dict[tuple[Frame, int], int] = {}
        self.continuations: list[tuple[tuple[int, int], ...]] = [()]
        self.depths: list[int] = [0]
        self._continuation_ids: dict[tuple[tuple[int, int], ...], int] = {}  # of several links
        self._over_ids: dict[int, int] = {}  # of one
        self._unions: dict[tuple[int, int], int] = {}

    def push(self, frames: tuple[tuple[Frame, int], ...], below: int) -> int:
        """The continuation ``frames`` (top first) over ``below``."""
        for pushed in reversed(frames):
            number = self._frame_ids.get(pushed)
            if number is None:
                number = self._frame_ids[pushed] = len(self.frames)
                self.frames.append(pushed)
            below = self.over(number, below)
        return below

    def union(self, a: int, b: int) -> int:
        """The continuation of all stacks of ``a`` and ``b``, neither of them empty."""
        if a == b:
            return a
        key = (a, b) if a < b else (b, a)
        found = self._unions.get(key)
        if found is None:
            WORK.spend(2)
            belows: dict[int, int] = {}
            links: set[tuple[int, int]] = set()
            for frame_id, below in (*self.continuations[a], *self.continuations[b]):
                if below == BOTTOM:
                    links.add((frame_id, below))
                    continue
                known = belows.get(frame_id)
                belows[frame_id] = below if known is None else self.union(known, below)
            found = self._unions[key] = self._continuation((*sorted({*links, *belows.items()}),))
        return found

    def _continuation(self, links: tuple[tuple[int, int], ...]) -> int:
        if len(links) == 1:
            return self.over(*links[0])
        found = self._continuation_ids.get(links)
        if found is None:
            WORK.spend(1 + (len(links) >> 2))
            WORK.hold(80 * len(links))
            found = self._continuation_ids[links] = len(self.continuations)
            frame_id, below = links[0]
            self.depths.append(self.depths[below] + self.frames[frame_id][0].nests)
            self.continuations.append(links)
        return found

    def over(self, frame_id: int, below: int) -> int:
        """The continuation of one link."""
        key = below << _LINK_BITS | frame_id
        found = self._over_ids.get(key)
        if found is None:
            found = self._over_ids[key] = len(self.continuations)
            self.depths.append(self.depths[below] + self.frames[frame_id][0].nests)
            self.continuations.append(((frame_id, below),))
        return found
