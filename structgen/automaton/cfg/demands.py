"""What terminals demand of the text after them, each demand summed up by what settles it.

A demand is a condition on the rest; or, below 0, ``~terminal``: it stands for all those of a
terminal that has too many. Nearly always the first character of the next terminal meets a demand.
"""

from __future__ import annotations

from structgen.automaton.texts import Text

from .lexer import Lexer
from .rests import Rest

MAX_DEMANDS = 16
"""Most demands of a terminal that are told apart."""

_MAX_STATES = 5_000


class Demands:
    """The demands of one grammar's terminals.

    Attributes:
        first: the minterms that each terminal can begin with.
        known: of each, minterms of which any settles all its demands, whether the text may always
            end after it, and the demands; None: too many.
    """

    def __init__(self, lexer: Lexer) -> None:
        self._lexer = lexer
        terminals = lexer.terminals
        self.known = [
            terminals.demands(t) if start >= 0 or t in terminals.embedded else (0, False, None)
            for t, start in enumerate(terminals.starts)
        ]
        self.first = [
            terminals.first(t) if start >= 0 or t in terminals.embedded else 0
            for t, start in enumerate(terminals.starts)
        ]
        # For each demand: the minterms that settle it, and whether the text may end.
        self._settling: dict[int, tuple[int, bool]] = {
            ~t: (mask, may_end) for t, (mask, may_end, _) in enumerate(self.known)
        }
        self._met: dict[int, tuple[int, int]] = {}
        self._texts: dict[tuple[int, int], dict[int, Text]] = {}

    def look_closer(self, terminal: int) -> tuple[int, ...] | None:
        """The demands of a terminal, by looking at many of its states; None: still too many."""
        exact = self._lexer.terminals.demands(terminal, _MAX_STATES)
        if exact[2] is not None:
            self.known[terminal] = exact
            self._settling[~terminal] = exact[:2]
            del self._met[~terminal]
        return exact[2]

    def at_end(self, demand: int) -> Rest | None:
        """The empty completion, where the text may end under a demand."""
        return (0, b"", None) if self.settling(demand)[1] else None

    def settling(self, demand: int) -> tuple[int, bool]:
        """The minterms that settle a demand, and whether the text may end under it."""
        found = self._settling.get(demand)
        if found is None:
            found = self._settling[demand] = self._lexer.terminals.settled_by([demand])
        return found

    def meeting(self, demand: int) -> tuple[int, int]:
        """The terminals of which some first character settles a demand, and those of which some
        does not, as masks."""
        found = self._met.get(demand)
        if found is None:
            settling = self.settling(demand)[0]
            some = others = 0
            for t, first in enumerate(self.first):
                if first & settling:
                    some |= 1 << t
                if first & ~settling:
                    others |= 1 << t
            found = self._met[demand] = some, others
        return found

    def of(self, terminal: int) -> tuple[int, ...]:
        """What is demanded after a terminal: conditions, or the one that stands for all."""
        demands = self.known[terminal][2]
        return (~terminal,) if demands is None or len(demands) > MAX_DEMANDS else demands

    def steps(self, demand: int, terminal: int) -> dict[int, Text]:
        """Some ways to read ``terminal`` under a demand: what it demands in turn → its bytes."""
        key = (demand, terminal)
        found = self._texts.get(key)
        if found is None:
            mask = self.settling(demand)[0] & self.first[terminal]
            if mask:
                text, after = self._lexer.exits.shortest_beginning(terminal, mask)
                found = {after: text}
            elif demand >= 0 and self.first[terminal]:
                found = self._lexer.exits.near_of(terminal, demand)
            else:
                found = {}
            self._texts[key] = found
        return found
