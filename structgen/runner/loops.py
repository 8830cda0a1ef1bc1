"""Event loops and threads: how work crosses from one to another without blocking either.

This module has an event loop in its own thread, and passes work, results and streams between it and
waiting threads or coroutines of other loops. When a caller leaves, its work is cancelled.

It also runs other people's code: in daemon threads, with time limits that hold whatever the code
does when it is cancelled, and in turns (`Places` and `Aside`, which owners share fairly). Knows no
tools and no models.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import os
import queue
import threading
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterator,
)
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, TypeVar, final

from structgen.decoding import ReadAsync
from structgen.errors import Overloaded, StructgenError

T = TypeVar("T")


class Interrupted(Exception):
    """Carries what ends a loop out of a task: KeyboardInterrupt, say, that a tool has raised.

    Attributes:
        cause: it.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(repr(cause))
        self.cause = cause


async def carried(work: Awaitable[T]) -> T:
    """Await something whose KeyboardInterrupt or SystemExit arrives as `Interrupted`."""
    try:
        return await work
    except (KeyboardInterrupt, SystemExit) as error:
        raise Interrupted(error) from None  # a task that ends by one of these ends its loop, too


@final
class LoopThread:
    """A loop that runs in a thread. Thread-safe.

    Attributes:
        is_stopping: whether `stop` was called.
    """

    def __init__(self, name: str) -> None:
        """Start it."""
        self._pid = os.getpid()
        self.is_stopping = False
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            # Calls under way get an error: somebody waits for them.
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self.loop.close()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have a coroutine run in the loop.

        Raises:
            StructgenError: this process was forked from the one with the loop, or that is closed.
        """
        try:
            self.check()
            return asyncio.run_coroutine_threadsafe(work, self.loop)
        except BaseException:
            work.close()
            raise

    def check(self) -> None:
        """Raise where nothing can be begun.

        Raises:
            StructgenError: so it is.
        """
        if self._pid != os.getpid():
            raise StructgenError(
                "This Runner was created in the parent process of a fork, and its thread does not "
                "exist in this process. Create a Runner in this process."
            )
        if self.loop.is_closed() or not self._thread.is_alive():
            raise _closed()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result; Ctrl-C cancels it.

        Raises:
            StructgenError: this thread is the loop's own, which would wait for itself.
        """
        if self.is_current:
            work.close()
            raise StructgenError(
                "This call runs in the Runner's own thread, which cannot wait for itself. In a "
                "callback, await the async method, such as achat."
            )
        future = self.begin(work)
        try:
            return future.result()
        except Interrupted as error:
            raise error.cause from None
        except CancelledError:
            raise _closed() from None
        except BaseException:
            future.cancel()
            raise
        finally:
            del future  # a program that keeps an error keeps nothing else with it

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the loop. Raises as `wait`."""

        async def called() -> T:
            return function()

        return self.wait(called())

    async def asked(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and await its result, in any loop; cancelled with it.

        What it raises as `Interrupted` is raised as what that carries; so it is by `wait`, and by
        streams.
        """
        if asyncio.get_running_loop() is self.loop:
            return await work
        try:
            return await asyncio.wrap_future(self.begin(work))
        except Interrupted as error:
            raise error.cause from None
        except asyncio.CancelledError:
            if self.is_stopping:
                raise _closed() from None
            raise

    @property
    def is_current(self) -> bool:
        """Whether this code runs in its thread."""
        return threading.current_thread() is self._thread

    def stop(self, seconds: float | None = None) -> None:
        """Stop the loop and wait until its thread has ended. A second call does nothing.

        Args:
            seconds: wait so long at most: something in the loop may never give it back.
        """
        if self._pid != os.getpid() or self.loop.is_closed():
            return
        self.is_stopping = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_current:
            self._thread.join(seconds)


def _closed() -> StructgenError:
    return StructgenError("This Runner is closed. Create a new one.")


class _Stream(Generic[T]):
    """Pieces that a task in the loop makes. Nothing runs before the first is asked for."""

    def __init__(self, thread: LoopThread, make: Callable[[], AsyncGenerator[T, None]]) -> None:
        thread.check()
        self._thread = thread
        self._make = make
        self._work: Future[None] | None = None
        self._is_over = False

    def _begin(self, put: Callable[[T | None], object]) -> None:
        """Have pieces come, and None at last."""
        if self._work is None:
            self._work = self._thread.begin(_pump(self._make(), put))
            finalizer = weakref.finalize(self, self._work.cancel)

            def ended(_: Future[None]) -> None:  # also where it never began
                finalizer.detach()  # an error leads back to this stream: neither would ever go
                with contextlib.suppress(asyncio.CancelledError):
                    put(None)

            self._work.add_done_callback(ended)

    def _taken(self, piece: T | None) -> T | None:
        """Return a piece; None at the end, and where this stream was closed."""
        if self._is_over or self._work is None:
            return None
        if piece is not None:
            return piece
        self._is_over = True
        try:
            self._work.result()
        except Interrupted as error:
            raise error.cause from None
        except CancelledError:
            raise _closed() from None
        finally:
            self._work = None
        return None

    def _stop(self) -> None:
        self._is_over = True
        if self._work is not None:
            self._work.cancel()


async def _pump(pieces: AsyncGenerator[T, None], put: Callable[[T], object]) -> None:
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            put(piece)


@final
class ChunkStream(_Stream[T], Iterator[T], contextlib.AbstractContextManager["ChunkStream[T]"]):
    """The pieces of an answer. Close it, or leave its ``with``, to end the work early."""

    def __init__(self, thread: LoopThread, make: Callable[[], AsyncGenerator[T, None]]) -> None:
        super().__init__(thread, make)
        self._arrived: queue.SimpleQueue[T | None] = queue.SimpleQueue()

    def __next__(self) -> T:
        """Wait for the next piece.

        Raises:
            StructgenError: what the request failed with.
        """
        if self._is_over:
            raise StopIteration
        self._begin(self._arrived.put)
        piece = self._taken(self._arrived.get())
        if piece is None:
            raise StopIteration
        return piece

    def close(self) -> None:
        """End the work. A second call does nothing."""
        self._stop()

    def __exit__(self, *exception: object) -> None:
        self.close()


@final
class AsyncChunkStream(
    _Stream[T],
    ReadAsync,
    AsyncIterator[T],
    contextlib.AbstractAsyncContextManager["AsyncChunkStream[T]"],
):
    """The pieces of an answer, for asynchronous code. Close it to end the work early.

    Cancelling the task that reads it ends the work, too.
    """

    def __init__(self, thread: LoopThread, make: Callable[[], AsyncGenerator[T, None]]) -> None:
        super().__init__(thread, make)
        self._arrived: asyncio.Queue[T | None] | None = None

    async def __anext__(self) -> T:
        """Wait for the next piece.

        Raises:
            StructgenError: what the request failed with.
        """
        if self._is_over:
            raise StopAsyncIteration
        if self._arrived is None:
            arrived: asyncio.Queue[T | None] = asyncio.Queue()
            self._arrived = arrived
            loop = asyncio.get_running_loop()

            def put(piece: T | None) -> None:
                try:
                    loop.call_soon_threadsafe(arrived.put_nowait, piece)
                except RuntimeError:  # the reader's loop is closed
                    raise asyncio.CancelledError from None

            self._begin(put)
        try:
            piece = self._taken(await self._arrived.get())
        except BaseException:
            self._stop()
            raise
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """End the work. A second call does nothing."""
        self._stop()

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


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
            task.add_done_callback(_retrieved)
        task.cancel()  # also one that has just failed: it would be reported


def _retrieved(task: asyncio.Future[Any]) -> None:
    """Look at what came of a task that nobody waits for, or asyncio would report it."""
    if not task.cancelled():
        task.exception()


async def in_thread(function: Callable[[], ResultT], name: str) -> ResultT:
    """Call a function in a thread of its own, in this context. If this is cancelled the thread goes
    on; the end of the process does not wait for it."""
    loop = asyncio.get_running_loop()
    # Emptied at the end, as `outcome` is: see `LoopThread.wait`.
    futures: list[asyncio.Future[ResultT]] = [loop.create_future()]
    context = contextvars.copy_context()

    def settle(error: BaseException | None, *made: ResultT) -> None:
        future = futures.pop()
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
        del outcome

    threading.Thread(target=work, name=name, daemon=True).start()
    return await futures[0]


def is_async(function: Any) -> bool:
    """Return whether calling a function gives an awaitable, as far as is known before the call."""
    while isinstance(function, functools.partial):
        function = function.func
    # Of a class, too, this is what its instances are called by.
    return any(map(inspect.iscoroutinefunction, (function, function.__call__)))


_LATELY = 10.0
"""Seconds of all owners' work after which what was before counts half."""


@final
class Places:
    """A fixed number of places for work, shared fairly. For one event loop.

    A free place goes to whichever waiting owner holds the fewest. Of several it is, where there is
    a clock, the one that has had the least time lately; else they take turns. Of several places one
    is always left for another owner, so that its work never waits for the first owner's to end; but
    for what has no owner, which is the program's own. Where too many wait, it is the last of the
    owner who has most that is refused.
    """

    def __init__(
        self,
        number: int,
        most_waiting: int,
        refused: Callable[[], Exception] | None = None,
        *,
        beyond: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Make places.

        Args:
            number: how many.
            most_waiting: how many may wait for them.
            refused: what is raised where there are more.
            beyond: of several, whether an owner that holds none gets one of as many more, where
                none is free: else it waits where two others hold all.
            clock: seconds, by which the time of owners is counted.
        """
        self._number = self._free = number
        self._least = -number if beyond and number > 1 else 0  # free ones, for such an owner
        self._most_waiting = most_waiting
        self._refused = refused or self._overloaded
        self._clock = clock or (lambda: 0.0)
        self._held: Counter[Hashable] = Counter()
        self._used: dict[Hashable, float] = {}  # seconds lately
        self._counted = 0.0  # seconds since those before count half
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[float]]] = OrderedDict()

    @property
    def active(self) -> int:
        """How many are held."""
        return self._number - self._free

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return sum(not one.done() for line in self._waiting.values() for one in line)

    @contextlib.asynccontextmanager
    async def of(self, owner: Hashable) -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
        """Wait for a place, and hold it.

        Yields:
            What gives it to another owner who waits, and waits for it before the owner's other
            work does.

        Raises:
            Overloaded: too many wait; or what ``refused`` makes.
        """
        given: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(given)
        self._give()
        if self.waiting > self._most_waiting:
            self._refuse(owner)

        async def again() -> None:
            nonlocal given
            began = given.result()
            given = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(owner, deque()).appendleft(given)
            self._give_back(owner, began)
            await given

        try:
            await given
            yield again
        finally:
            if given.done() and not given.cancelled() and given.exception() is None:
                self._give_back(owner, given.result())
            else:
                self._left(owner, given)

    async def hold(
        self, owner: Hashable, work: Callable[[Callable[[], Awaitable[None]]], Awaitable[T]]
    ) -> T:
        """Wait for a place, and do some work there, which is given what `of` yields.

        What has begun continues to its end, or to where it lets others go first, also when nobody
        waits for it any more, and keeps its place. Owners that come and go would else have as many
        threads and processes as they like.

        Raises:
            Overloaded: as `of`.
        """
        is_at_work, is_wanted = False, True

        async def placed() -> T:
            nonlocal is_at_work
            async with self.of(owner) as again:

                async def pause() -> None:
                    nonlocal is_at_work
                    is_at_work = False
                    if not is_wanted:
                        raise asyncio.CancelledError
                    await again()
                    is_at_work = True

                is_at_work = True
                return await work(pause)

        task = asyncio.ensure_future(placed())
        task.add_done_callback(_retrieved)
        try:
            return await asyncio.shield(task)
        finally:
            is_wanted = False
            if not is_at_work:
                task.cancel()
            del task  # as in `LoopThread.wait`

    def _give_back(self, owner: Hashable, began: float) -> None:
        """Take a place from an owner, who goes behind the others that wait."""
        if seconds := self._clock() - began:
            self._used[owner] = self._used.get(owner, 0.0) + seconds
            self._counted += seconds
            if self._counted > _LATELY:
                self._counted = 0.0
                self._used = {o: s / 2 for o, s in self._used.items() if s > _LATELY / 1000}
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        if owner in self._waiting:
            self._waiting.move_to_end(owner)
        self._give()

    def _give(self) -> None:
        """Give places that are free to those who wait."""
        while self._waiting:
            owner = min(self._waiting, key=lambda o: (self._held[o], self._used.get(o, 0.0)))
            if self._free <= 0:
                with_none = (one for one in self._waiting if not (one is None or self._held[one]))
                owner = next(with_none, None)
                if owner is None or self._free <= self._least:
                    return
            elif owner is not None and self._held[owner] >= max(self._number - 1, 1):
                return
            given = self._waiting[owner][0]
            self._left(owner, given)
            if not given.done():  # else it was cancelled a moment ago
                self._free -= 1
                self._held[owner] += 1
                given.set_result(self._clock())

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
            f"{self.active:,} requests of this kind are running and {self._most_waiting:,} are "
            "waiting, most of them yours. Retry when some have finished.",
            retry_after=1.0,
        )

    def _left(self, owner: Hashable, given: asyncio.Future[float]) -> None:
        """Take one who waits off its line, which goes behind those of the others."""
        line = self._waiting.get(owner, deque())
        if given in line:
            line.remove(given)
            self._waiting.move_to_end(owner)
            if not line:
                del self._waiting[owner]


@final
class Aside:
    """Threads for work that would hold up a loop: that many at once, which owners share fairly.

    A thread cannot be stopped: see `Places.hold`.
    """

    def __init__(self, number: int, most_waiting: int, name: str) -> None:
        """As `Places`; ``name`` is that of the threads."""
        self._places = Places(number, most_waiting)
        self._name = name

    async def do(self, owner: Hashable, work: Callable[[], T]) -> T:
        """Do some work there.

        Raises:
            Overloaded: too much waits.
        """
        return await self._places.hold(owner, lambda _: in_thread(work, self._name))
