"""Reading a text with a constraint's automaton byte by byte, for those who ask about places in it.

Cursors go from token to token; between two, and inside one, this goes. It knows nothing of tokens.
"""

from __future__ import annotations

from functools import partial

from structgen.automaton.core import DEAD, NeedsText, TextHistory
from structgen.automaton.texts import Text
from structgen.constraint import Constraint


class ByteReader:
    """A text being read.

    Attributes:
        machine: the automaton.
        state: where in it the text has led to, `DEAD` if nowhere.
    """

    def __init__(self, constraint: Constraint) -> None:
        self._engine = constraint._ready()
        self.machine = self._engine.machine
        self.state = self.machine.start
        self._read = bytearray()
        self._tape = TextHistory()
        self._on_tape = 0

    @property
    def length(self) -> int:
        """Bytes read."""
        return len(self._read)

    def go_on(self, data: bytes) -> None:
        """Read more of the text."""
        for byte in data:
            self.state = self.step(self.state, byte, bytes([byte]))
            self._read.append(byte)

    def step(self, state: int, byte: int, since: bytes) -> int:
        """The state after ``byte``; ``since`` is what leads there from what has been read, with
        that byte.

        Raises:
            CompileLimitExceeded: that takes more than one call may do.
        """
        step = partial(self._step, state, byte, since)
        return self._engine.within_limits(("read", state, byte), step)

    def _step(self, state: int, byte: int, since: bytes) -> int:
        to = self.machine.step(state, byte)
        if to != DEAD and self.machine.is_pending(to):
            to = self.machine.resolve(to, self._tape_now().after(since))
        return to

    def next_bytes(self, state: int) -> set[int]:
        """The bytes that may come in ``state``.

        Raises:
            CompileLimitExceeded: that takes more than one call may do.
        """
        find = partial(self.machine.next_bytes, state)
        return self._engine.within_limits(("next", state, 0), find)

    def forced_byte(self) -> int:
        """The only byte that may come, or -1.

        Raises:
            CompileLimitExceeded: that takes more than one call may do.
        """
        find = partial(self.machine.forced_byte, self.state)
        return self._engine.within_limits(("forced", self.state, 0), find)

    def shortest_completion(self) -> Text:
        """The shortest text that finishes what has been read, as far as one is known.

        Raises:
            CompileLimitExceeded: that takes more than one call may do.
        """
        return self._engine.within_limits(("finish", self.state, 0), self._completion)

    def _completion(self) -> Text:
        try:
            return self.machine.shortest_completion(self.state)
        except NeedsText:
            return self.machine.shortest_completion(self.state, self._tape_now())

    def _tape_now(self) -> TextHistory:
        # Written only when it is asked for, which is when the text is JSON: a tape reads nothing
        # else.
        self._tape.feed(bytes(self._read[self._on_tape :]))
        self._on_tape = len(self._read)
        return self._tape
