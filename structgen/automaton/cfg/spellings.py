"""States of one terminal, named so that other grammars find them: by the text that leads there.

A terminal's states are numbered by the grammar it stands in. What they mean is not the grammar's
business: the terminal's content and the first text to reach a state, in order of length and then
of code points, say it everywhere. This module knows neither bytes nor rules.
"""

from __future__ import annotations

from .terminals import Terminals

MAX_STATES = 200
"""Most states of a terminal that are looked at for their names."""


class Spellings:
    """The names of one terminal's states.

    Args:
        terminals: the grammar's.
        terminal: its number; not embedded, and none that matches nothing.
    """

    def __init__(self, terminals: Terminals, terminal: int) -> None:
        self._terminals = terminals
        start = terminals.starts[terminal]
        self._texts = {start: ""}
        self._ends = {terminals.end(start): ""}
        self._level = [start]
        self._reached = {"": start}

    def of_state(self, state: int) -> str | None:
        """The name of ``state``; None where it is too far from the start."""
        while state not in self._texts and self._look_further():
            pass
        return self._texts.get(state)

    def of_end(self, condition: int) -> str | None:
        """The name of the first state in which the terminal ends under ``condition``, if any."""
        while condition not in self._ends and self._look_further():
            pass
        return self._ends.get(condition)

    def state(self, text: str) -> int:
        """The state of that name."""
        found = self._reached.get(text)
        if found is None:
            terminals = self._terminals
            minterm = 1 << terminals.alphabet.minterm(ord(text[-1]))
            moves = terminals.moves(self.state(text[:-1]))
            found = self._reached[text] = next(to for mask, to in moves if mask & minterm)
        return found

    def _look_further(self) -> bool:
        """Name what is one character further; False if there is nothing, or there are too many."""
        terminals, texts = self._terminals, self._texts
        first = terminals.alphabet.representatives
        level, self._level = self._level, []
        if len(texts) > MAX_STATES:
            return False
        # Levels are in order of their names, and minterms in order of their first code points.
        for state in level:
            for bit, to in sorted((mask & -mask, to) for mask, to in terminals.moves(state)):
                if to not in texts:
                    texts[to] = text = texts[state] + chr(first[bit.bit_length() - 1])
                    self._ends.setdefault(terminals.end(to), text)
                    self._level.append(to)
        return bool(self._level)
