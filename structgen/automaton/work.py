"""Limit the work and memory of one call. Work is counted, not timed.

So the same call on the same type ends the same way on every machine. A *step* is about one new
state, node or walk, some microseconds of work. New objects are also counted, roughly, in bytes.
Searches and constructions report to `WORK` before they act, and `WORK` raises
`CompileLimitExceeded` when the call has used up its limit. It does not know which call is running
or at which place of the output type.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, final

from structgen.errors import CompileLimitExceeded
from structgen.grammar import reading
from structgen.storage import in_child

MAX_WORK = reading.MAX_WORK
"""Default limit of the steps of one call."""

MAX_MEMORY_BYTES = 1 << 30
"""Default limit of the bytes, roughly, that one call may add."""

FREE = 1 << 62
"""Stands for no limit."""


class Limits(NamedTuple):
    """The limits of one call.

    Attributes:
        work: most steps.
        memory: most bytes.
        option: the option that sets ``work``, for messages.
    """

    work: int = MAX_WORK
    memory: int = MAX_MEMORY_BYTES
    option: str = "max_work"


@final
class Work:
    """The remaining work of the current call. Hold `leaf.GROW` to use it, so that there is one call
    at a time.

    Attributes:
        left: the remaining steps; `FREE` outside of calls.
        room: the remaining bytes; `FREE` outside of calls.
        limits: the limits at the start of the call.
        depth: the number of nested calls.
    """

    __slots__ = ("depth", "left", "limits", "room")

    def __init__(self) -> None:
        self.depth = 0
        self.left = self.room = FREE
        self.limits = Limits()

    def spend(self, steps: int) -> None:
        """Count steps that the caller is about to take.

        Raises:
            CompileLimitExceeded: the call has taken too many steps.
        """
        self.left -= steps
        if self.left < 0:
            raise self.too_much()

    def hold(self, n_bytes: int) -> None:
        """Count bytes that the caller is about to keep.

        Raises:
            CompileLimitExceeded: the call has kept too many bytes.
        """
        self.room -= n_bytes
        if self.room < 0:
            actual, self.room = self.limits.memory - self.room, 0
            raise CompileLimitExceeded(
                "the output type needs too much memory in one call; simplify it, or raise "
                "max_memory_bytes",
                limit=self.limits.memory,
                actual=actual,
            )

    def too_much(self) -> CompileLimitExceeded:
        """Return the error to raise when `left` is below 0."""
        actual, self.left = self.limits.work - self.left, 0
        return CompileLimitExceeded(
            "the output type needs too much work in one call; simplify it, or raise "
            f"{self.limits.option}",
            limit=self.limits.work,
            actual=actual,
        )

    def enter(self, limits: Limits) -> None:
        """Begin a call with these limits, within what an outer call has left. Always call `leave`
        afterwards, also after an error."""
        self.depth += 1
        if self.depth == 1:
            self.limits = limits
            self.left, self.room, _ = limits

    def leave(self) -> None:
        """End that call."""
        self.depth -= 1
        if not self.depth:
            self.left = self.room = FREE

    def forget(self) -> None:
        """Reset: the process was forked, and no call runs in the child."""
        self.depth = 0
        self.left = self.room = FREE


WORK = Work()
"""The counter of this process: automata grow one at a time."""

in_child(WORK.forget)  # a call of another thread does not continue in the child


class within:  # takes a third of a generator's time, and each compilation uses one
    """A call with these limits; see `Work.enter`. Use it with `leaf.GROW` held."""

    __slots__ = ("_limits",)

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def __enter__(self) -> None:
        WORK.enter(self._limits)

    def __exit__(self, *_: object) -> None:
        WORK.leave()


@contextmanager
def sharing(limits: Limits, spent: list[int]) -> Iterator[None]:
    """One of several calls that share these limits; ``spent`` has what each has used.

    Use it with `leaf.GROW` held; other threads may take the lock between the calls.
    """
    with within(limits):
        WORK.left -= sum(spent)
        try:
            yield
        finally:
            spent[:] = [limits.work - WORK.left]
