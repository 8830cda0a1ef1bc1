"""Short ways to the end of a text: a leaf's, and those that close the frames below it.

Only budgets, `min_tokens_to_finish` and messages ask for them. They are the same each time. A leaf
and a stack is all that is known here; which of them a state is made of, `machine` knows.
"""

from __future__ import annotations

from typing import Any

from structgen.automaton.texts import Text, flat, joined, put

from .frames import Frame, NeedsText
from .leaf import Leaf
from .stacks import BOTTOM
from .text_history import TextHistory


class AnyText(TextHistory):
    """In the place of a tape: any text, but that no value recorded is one of ``told``.

    Attributes:
        told: values at which the completion made with it looks. A value recorded that has none of
            them, nor a part of one, leaves the completion as it is.
    """

    __slots__ = ("told",)

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []


class Completions:
    """Completions over the stacks that have been reached.

    Args:
        frames, continuations: of `Stacks`, which go on to grow.
    """

    def __init__(
        self, frames: list[tuple[Frame, int]], continuations: list[tuple[tuple[int, int], ...]]
    ) -> None:
        self._frames = frames
        self._continuations = continuations
        # most bytes that close a continuation after an outcome
        self._most_closing: dict[tuple[int, int], int | None] = {(BOTTOM, 0): 0}

    def completion(
        self, leaf: Leaf, q: int, continuation: int, tape: TextHistory | None = None
    ) -> Text | None:
        """Bytes from one configuration; None if that one is hopeless."""
        best = self._completion(leaf, q, continuation, tape, None)
        # The nearest end of the leaf may be the start of something long: what the frame itself
        # would have chosen counts too, so that no completion is longer than `finish` promised.
        for frame_id, _ in self._continuations[continuation]:
            frame, at = self._frames[frame_id]
            wanted = frame.preferred(at)
            if wanted is not None:
                best = _shorter(best, self._completion(leaf, q, continuation, tape, wanted))
        return best

    def _completion(
        self, leaf: Leaf, q: int, continuation: int, tape: TextHistory | None, wanted: int | None
    ) -> Text | None:
        shortest = leaf.shortest(q, wanted)
        if shortest is None:
            return None
        return self._close(continuation, shortest[1], shortest[0], tape)

    def _close(
        self, continuation: int, outcome: int, out: Text, tape: TextHistory | None
    ) -> Text | None:
        """``out`` and the bytes after it that close every frame of ``continuation``.

        The fewest that the frames offer. Where they depend on the text so far, only what each frame
        in turn offers as fewest is followed down.
        """
        if tape is None:
            best: Text | None = out if continuation == BOTTOM else None
            for frame_id, below in self._continuations[continuation]:
                rest = self.rest(below)
                own = None if rest is None else self._finish_frame(frame_id, outcome, out, None)
                if rest is not None and own is not None:
                    best = _shorter(best, put(own, rest))
            return best
        todo = [(out, continuation)]
        while todo:
            out, continuation = todo.pop()
            if continuation == BOTTOM:
                return out
            ways: list[tuple[Text, int]] = []
            for frame_id, below in self._continuations[continuation]:
                own = self._finish_frame(frame_id, outcome, out, tape)
                if own is not None:
                    ways.append((own, below))
            todo += sorted(ways, key=lambda way: (len(way[0]), way), reverse=True)
            outcome = 0
        return None

    def most_bytes(
        self, leaf: Leaf, q: int, continuation: int, wanted: int | None = None
    ) -> int | None:
        """Most bytes that `completion` may have, whatever the text so far; None when unknown.

        ``wanted``: the outcome with which the leaf ends, None for any.
        """
        shortest = leaf.shortest(q, wanted)
        if shortest is None:
            return None
        rest = self._most_below(continuation, shortest[1])
        return None if rest is None else len(shortest[0]) + rest

    def _most_below(self, continuation: int, outcome: int) -> int | None:
        """Most bytes that close every frame of ``continuation`` after ``outcome``."""
        known = self._most_closing
        todo = [(continuation, outcome)]
        while todo:
            here, last = todo[-1]
            links = self._continuations[here]
            missing = [(below, 0) for _, below in links if (below, 0) not in known]
            if missing:
                todo += missing
                continue
            todo.pop()
            most: int | None = 0
            for frame_id, below in links:
                own, rest = self._most_of_frame(frame_id, last), known[below, 0]
                if own is None or rest is None:
                    most = None
                    break
                most = max(most or 0, own + rest)
            known[here, last] = most
        return known[continuation, outcome]

    def _most_of_frame(self, frame_id: int, outcome: int) -> int | None:
        frame, at = self._frames[frame_id]
        if frame.records(at, outcome) and frame.finish_reads(at, outcome):
            return frame.finish_most(at, outcome)
        own = frame.finish(at, outcome)
        return None if own is None else len(own)

    def rest(self, continuation: int) -> Text | None:
        """The fewest bytes that close ``continuation`` after outcome 0, over all its stacks."""
        # continuation → (bytes in all, those for its own frame, the continuation then)
        known: dict[int, tuple[int, Text, int] | None] = {BOTTOM: (0, b"", BOTTOM)}
        todo = [continuation]
        while todo:
            links = self._continuations[todo[-1]]
            missing = [below for _, below in links if below not in known]
            if missing:
                todo += missing
                continue
            ways: list[tuple[int, Text, int]] = []
            for frame_id, below in links:
                rest = known[below]
                own = None if rest is None else self._finish_frame(frame_id, 0, b"", None)
                if rest is not None and own is not None:
                    ways.append((len(own) + rest[0], own, below))
            known[todo.pop()] = min(ways) if ways else None
        parts: list[Text] = []
        while continuation != BOTTOM:
            way = known[continuation]
            if way is None:
                return None
            parts.append(way[1])
            continuation = way[2]
        return joined(b"", parts)

    def _finish_frame(
        self, frame_id: int, outcome: int, out: Text, tape: TextHistory | None
    ) -> Text | None:
        frame, at = self._frames[frame_id]
        text = None
        if frame.records(at, outcome) and frame.finish_reads(at, outcome):
            if tape is None:
                raise NeedsText
            if isinstance(tape, AnyText):
                otherwise = frame.finish_otherwise(at, outcome)
                if otherwise is None:
                    raise NeedsText
                tape.told += otherwise[1]
                return put(out, otherwise[0])
            text = tape.after(flat(out)).text(outcome)
        rest = frame.finish(at, outcome, text)
        return None if rest is None else put(out, rest)


def _shorter(a: Text | None, b: Text | None) -> Text | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b, key=lambda way: (len(way), way))
