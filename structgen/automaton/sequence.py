"""Texts of several grammars one after the other: what may follow when one of them has ended.

Owns the frame below each part but the last. The parts are any that start with leaves and frames;
where one may end is theirs to say. Knows no JSON and no rules.
"""

from __future__ import annotations

from structgen.automaton.core import POP, Alternative, Machine, TextHistory
from structgen.automaton.core.frames import Frame
from structgen.automaton.texts import Text, joined

_UNLIMITED = 1 << 30


class SequenceFrame(Frame):
    """The frame below an open part. ``at`` is the number of the part after it.

    Args:
        parts: how a text of each may start.
    """

    nests = False

    def __init__(self, parts: tuple[tuple[Alternative, ...], ...]) -> None:
        self._parts = parts
        # A token may reach from here into a part that minds how deep it nests.
        pushed = [frame for part in parts for way in part for frame, _ in way.frames]
        self.limit = min([frame.limit for frame in pushed], default=_UNLIMITED)
        self._completions: dict[int, Text] = {}

    def open(self) -> tuple[Alternative, ...]:
        """How a text of all starts."""
        return self._ways(0) if self._parts else POP

    def _ways(self, at: int) -> tuple[Alternative, ...]:
        """How the rest from a part on starts; below a last part without frames there is nothing."""
        own = self, at + 1
        is_last = at == len(self._parts) - 1
        return tuple(
            [
                way
                if is_last and not way.frames
                else Alternative(way.leaf, way.q, (*way.frames, own))
                for way in self._parts[at]
            ]
        )

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """See `frames.Frame`."""
        return self._ways(at) if at < len(self._parts) else POP

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """See `frames.Frame`: the shortest texts known of the parts from one on."""
        found = self._completions.get(at)
        if found is None:
            shortest: list[Text] = []
            for part in self._parts[at:]:
                machine = Machine(part)
                shortest.append(machine.shortest_completion(machine.start, TextHistory()))
            found = self._completions[at] = joined(b"", shortest)
        return found
