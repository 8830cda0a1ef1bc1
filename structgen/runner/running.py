"""Somebody else's work, run so that it holds up nothing: in a thread, for so long, or in turns.

Owns calls of functions in threads that nobody waits for at the end of the process, time limits that
hold whatever the code does when it is cancelled, and `Places`, which owners share fairly. Knows no
tools and no models.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Hashable
from typing import Any, TypeVar, final

from structgen.errors import Overloaded

from .loops import Interrupted, carried

ResultT = TypeVar("ResultT")


class OutOfTime(Exception):
    """The time limit of a call is over; not the TimeoutError of some library in the tool."""


class CancelledInside(Exception):
    """What was called has raised CancelledError by itself: nobody has cancelled the call."""


async def within(limit: float | None, awaitable: Any) -> Any:
    """Await something for so long; then it is cancelled, and not waited for.

    Raises:
        OutOfTime: it took longer.
        CancelledInside: so it did; CancelledError is the end of the task that awaits this, alone.
    """
    task: asyncio.Future[Any] = asyncio.ensure_future(carried(awaitable))
    try:
        done, _ = await asyncio.wait([task], timeout=limit)
        if not done:
            raise OutOfTime
        if task.cancelled():
            raise CancelledInside("CancelledError")
        return task.result()
    except Interrupted as error:
        if isinstance(error.cause, asyncio.CancelledError):
            raise CancelledInside("CancelledError") from None
        raise error.cause from None
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(_retrieved)


def _retrieved(task: asyncio.Future[Any]) -> None:
    """Look at what came of a task that nobody waits for, or asyncio would report it."""
    if not task.cancelled():
        task.exception()


async def in_thread(function: Callable[[], ResultT], name: str) -> ResultT:
    """Call a function in a thread of its own, in this context. If this is cancelled the thread goes
    on; the end of the process does not wait for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ResultT] = loop.create_future()
    context = contextvars.copy_context()

    def settle(error: BaseException | None, *made: ResultT) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(*made)
        elif isinstance(error, StopIteration):  # which a future refuses
            future.set_exception(RuntimeError(f"StopIteration: {error}"))
        else:
            future.set_exception(error if isinstance(error, Exception) else Interrupted(error))

    def work() -> None:
        outcome: tuple[Any, ...]
        try:
            outcome = (None, context.run(function))
        except BaseException as error:
            outcome = (error,)
        # Where the loop is closed, nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future


def is_async(function: Any) -> bool:
    """Whether calling a function gives an awaitable, as far as can be told beforehand."""
    while isinstance(function, functools.partial):
        function = function.func
    # Of a class, too, this is what its instances are called by.
    return any(map(inspect.iscoroutinefunction, (function, function.__call__)))


@final
class Places:
    """Places for work, of which there are so many, shared fairly. For one event loop.

    A free place goes to whichever waiting owner holds the fewest; owners that hold equally many
    take turns. Of several places one is always left for another owner, so that its work never waits
    for the first owner's to end; but for what has no owner, which is the program's own. Where too
    many wait, it is the last of the owner who has most that is refused.
    """

    def __init__(
        self, number: int, most_waiting: int, refused: Callable[[], Exception] | None = None
    ) -> None:
        """Make places.

        Args:
            number: how many.
            most_waiting: how many may wait for them.
            refused: what is raised where there are more.
        """
        self._number = self._free = number
        self._most_waiting = most_waiting
        self._refused = refused or self._overloaded
        self._held: Counter[Hashable] = Counter()
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def active(self) -> int:
        """How many are held."""
        return self._number - self._free

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return sum(not one.done() for line in self._waiting.values() for one in line)

    @contextlib.asynccontextmanager
    async def of(self, owner: Hashable) -> AsyncGenerator[None, None]:
        """Wait for a place, and hold it.

        Raises:
            Overloaded: too many wait; or what ``refused`` makes.
        """
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(given)
        self._give()
        if self.waiting > self._most_waiting:
            self._refuse(owner)
        try:
            await given
            yield
        finally:
            if given.done() and not given.cancelled() and given.exception() is None:
                self._free += 1
                self._held[owner] -= 1
                if not self._held[owner]:
                    del self._held[owner]
                if owner in self._waiting:
                    self._waiting.move_to_end(owner)
                self._give()
            else:
                self._left(owner, given)

    def _give(self) -> None:
        """Give places that are free to those who wait."""
        while self._free and self._waiting:
            owner = min(self._waiting, key=self._held.__getitem__)  # the first of equals
            if owner is not None and self._held[owner] >= max(self._number - 1, 1):
                return
            given = self._waiting[owner][0]
            self._left(owner, given)
            if not given.done():  # else it was cancelled a moment ago
                self._free -= 1
                self._held[owner] += 1
                given.set_result(None)

    def _refuse(self, latest: Hashable) -> None:
        """Refuse the last of the owner who has most that wait; of equals, the latest."""
        owner = max(self._waiting, key=lambda one: (len(self._waiting[one]), one == latest))
        given = self._waiting[owner].pop()
        if not self._waiting[owner]:
            del self._waiting[owner]
        if not given.done():
            given.set_exception(self._refused())

    def _overloaded(self) -> Exception:
        return Overloaded(
            f"{self.active:,} requests like this are worked on, and {self._most_waiting:,} wait, "
            "most of them yours. Retry when some of them have ended.",
            retry_after=1.0,
        )

    def _left(self, owner: Hashable, given: asyncio.Future[None]) -> None:
        """Take one who waits off its line, which goes behind those of the others."""
        line = self._waiting.get(owner, deque())
        if given in line:
            line.remove(given)
            self._waiting.move_to_end(owner)
            if not line:
                del self._waiting[owner]
