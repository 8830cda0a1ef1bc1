"""Limit how much work and memory one call may take: counted, not timed.

So the same call on the same type ends the same way on every machine. A *step* is about one new
state, node or walk, some microseconds of work; new objects are also counted in bytes, roughly.
Searches and constructions report to `WORK` before they act. It raises `CompileLimitExceeded` when
the call has used up its limit. It does not know which call runs or where in the output type.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, final

from structgen.errors import CompileLimitExceeded
from structgen.grammar import reading
from structgen.storage import in_child

MAX_WORK = reading.MAX_WORK
"""Most steps of one call, unless an option says otherwise."""

MAX_MEMORY_BYTES = 1 << 30
"""Most bytes, about, that one call may add, unless an option says otherwise."""

FREE = 1 << 62
"""No bound."""


class Limits(NamedTuple):
    """What one call may do.

    Attributes:
        work: most steps.
        memory: most bytes.
        option: what raises the first, for messages.
    """

    work: int = MAX_WORK
    memory: int = MAX_MEMORY_BYTES
    option: str = "max_work"


@final
class Work:
    """The remaining work of the current call. Hold `leaf.GROW` to use it, so that there is one call
    at a time.

    Attributes:
        left: the remaining steps,
        room: and bytes; no bound outside of calls.
        limits: the limits at its beginning.
        depth: how many calls are nested.
    """

    __slots__ = ("depth", "left", "limits", "room")

    def __init__(self) -> None:
        self.depth = 0
        self.left = self.room = FREE
        self.limits = Limits()

    def spend(self, steps: int) -> None:
        """Count some steps that are about to be made.

        Raises:
            CompileLimitExceeded: the call has made too many.
        """
        self.left -= steps
        if self.left < 0:
            raise self.too_much()

    def hold(self, n_bytes: int) -> None:
        """Count some bytes that are about to be kept.

        Raises:
            CompileLimitExceeded: the call has kept too many.
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
        """Return what to raise where `left` is below 0."""
        actual, self.left = self.limits.work - self.left, 0
        return CompileLimitExceeded(
            "the output type needs too much work in one call; simplify it, or raise "
            f"{self.limits.option}",
            limit=self.limits.work,
            actual=actual,
        )

    def enter(self, limits: Limits) -> None:
        """Begin a call that may do so much, within what an outer call has left. `leave` must
        follow, whatever happens."""
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
"""That of the process: automata grow one at a time."""

in_child(WORK.forget)  # a call of another thread does not continue there


class within:  # in a third of the time of a generator: each compilation has one
    """A call that may do so much; see `Work.enter`. To be used with `leaf.GROW` held."""

    __slots__ = ("_limits",)

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def __enter__(self) -> None:
        WORK.enter(self._limits)

    def __exit__(self, *_: object) -> None:
        WORK.leave()


@contextmanager
def sharing(limits: Limits, spent: list[int]) -> Iterator[None]:
    """One of several calls that may do so much together; ``spent`` has what each has done.

    To be used with `leaf.GROW` held, which others may have between the calls.
    """
    with within(limits):
        WORK.left -= sum(spent)
        try:
            yield
        finally:
            spent[:] = [limits.work - WORK.left]
