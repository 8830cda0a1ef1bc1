"""Event loops and threads: how work crosses from one to another without blocking either.

An event loop runs in a thread of its own. Work, results and streams pass between it and waiting
threads or coroutines of other loops. When a caller leaves, its work is cancelled.

Other people's code runs in daemon threads, with time limits that hold whatever the code does when
it is cancelled, and in places that owners share fairly (`Places`, `Aside`). Knows no tools and no
models.
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
    """Carries an exception that would end the event loop out of a task, such as a KeyboardInterrupt
    that a tool raised.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(repr(cause))
        self.cause = cause


async def carried(work: Awaitable[T]) -> T:
    """Await something whose KeyboardInterrupt or SystemExit arrives as `Interrupted`."""
    try:
        return await work
    except (KeyboardInterrupt, SystemExit) as error:
        raise Interrupted(error) from None  # a task that raises one of these ends its loop, too


@final
class LoopThread:
    """An event loop in its own thread. Thread-safe."""

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
            # Running calls get an error, because somebody waits for them.
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self.loop.close()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop.

        Raises:
            StructgenError: the loop is closed, or belongs to the process that this one was forked
                from.
        """
        try:
            self.check()
            return asyncio.run_coroutine_threadsafe(work, self.loop)
        except BaseException:
            work.close()
            raise

    def check(self) -> None:
        """Raise if nothing can be started.

        Raises:
            StructgenError: as for `begin`.
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
            StructgenError: called in the loop's own thread, which would wait for itself.
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
            del future  # a program that keeps the error then keeps nothing else

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the loop and wait for its result. Raises as `wait`."""

        async def called() -> T:
            return function()

        return self.wait(called())

    async def asked(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and await its result from any loop; cancelling this cancels
        it.

        If it raises `Interrupted`, the exception inside is raised instead, as in `wait` and in
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
        """Whether this code runs in the loop's thread."""
        return threading.current_thread() is self._thread

    def stop(self, seconds: float | None = None) -> None:
        """Stop the loop and wait until its thread has ended. Calling it again does nothing.

        Args:
            seconds: the most seconds to wait, because code in the loop may never return.
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
    """Pieces that a task in the loop makes. The task starts when the first piece is asked for."""

    def __init__(self, thread: LoopThread, make: Callable[[], AsyncGenerator[T, None]]) -> None:
        thread.check()
        self._thread = thread
        self._make = make
        self._work: Future[None] | None = None
        self._is_over = False

    def _begin(self, put: Callable[[T | None], object]) -> None:
        """Start the task, which sends pieces and then None."""
        if self._work is None:
            self._work = self._thread.begin(_pump(self._make(), put))
            finalizer = weakref.finalize(self, self._work.cancel)

            def ended(_: Future[None]) -> None:  # also if it never began
                finalizer.detach()  # the error refers to this stream: neither would ever be freed
                with contextlib.suppress(asyncio.CancelledError):
                    put(None)

            self._work.add_done_callback(ended)

    def _taken(self, piece: T | None) -> T | None:
        """Return a piece; None at the end or if the stream was closed."""
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
    """The pieces of an answer. Close it, or leave its ``with`` block, to end the work early."""

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
class AsyncChunkStream(_Stream[T], ReadAsync, AsyncIterator[T]):
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


ResultT = TypeVar("ResultT")


class OutOfTime(Exception):
    """The time limit of a call has passed. Not a TimeoutError of a library inside the tool."""


class CancelledInside(Exception):
    """The called code raised CancelledError although nobody cancelled the call."""


async def within(limit: float | None, awaitable: Any) -> Any:
    """Await something for some seconds; then cancel it, and do not wait for its end.

    Raises:
        OutOfTime: the time has passed.
        CancelledInside: it raised CancelledError by itself. A CancelledError from here always means
            that the awaiting task was cancelled.
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
        task.cancel()  # also one that has just failed, which asyncio would report


def _retrieved(task: asyncio.Future[Any]) -> None:
    """Retrieve the result of a task that nobody awaits, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


async def in_thread(function: Callable[[], ResultT], name: str) -> ResultT:
    """Call a function in a thread of its own, in this context. If this is cancelled, the thread
    goes on, but does not keep the process alive."""
    loop = asyncio.get_running_loop()
    # Emptied at the end, like `outcome`: see `LoopThread.wait`.
    futures: list[asyncio.Future[ResultT]] = [loop.create_future()]
    context = contextvars.copy_context()

    def settle(error: BaseException | None, *made: ResultT) -> None:
        future = futures.pop()
        if future.done():
            return
        if error is None:
            future.set_result(*made)
        elif isinstance(error, StopIteration):  # which a future cannot hold
            future.set_exception(RuntimeError(f"StopIteration: {error}"))
        else:
            future.set_exception(error if isinstance(error, Exception) else Interrupted(error))

    def work() -> None:
        outcome: tuple[Any, ...]
        try:
            outcome = (None, context.run(function))
        except BaseException as error:
            outcome = (error,)
        # If the loop is closed, nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, *outcome)
        del outcome

    threading.Thread(target=work, name=name, daemon=True).start()
    return await futures[0]


def is_async(function: Any) -> bool:
    """Return whether calling a function gives an awaitable, as far as that is known before the
    call."""
    while isinstance(function, functools.partial):
        function = function.func
    # Of a class, too: calling its instances runs this.
    return any(map(inspect.iscoroutinefunction, (function, function.__call__)))


_LATELY = 10.0
"""Seconds of work, of all owners together, after which earlier work counts half."""


@final
class Places:
    """A fixed number of places for work, shared fairly. For one event loop.

    A free place goes to the waiting owner that holds the fewest places. Among equals it goes to the
    one that has had the least time lately if there is a clock; otherwise they take turns. Of
    several places one is kept for another owner, whose work then need not wait. Work without an
    owner, which is the program's own, may have all. If too many wait, the last job of the owner
    with the most waiting jobs is refused.
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
            number: the number of places.
            most_waiting: the most jobs that may wait.
            refused: makes the error for a job beyond that.
            beyond: whether there are as many extra places for owners that hold none and find none
                free. Without them such an owner waits while two others hold all.
            clock: returns seconds; the time of owners is counted by it.
        """
        self._number = self._free = number
        self._least = -number if beyond and number > 1 else 0  # extra places for new owners
        self._most_waiting = most_waiting
        self._refused = refused or self._overloaded
        self._clock = clock or (lambda: 0.0)
        self._held: Counter[Hashable] = Counter()
        self._used: dict[Hashable, float] = {}  # seconds of each owner lately
        self._counted = 0.0  # seconds counted since the last halving
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[float]]] = OrderedDict()

    @property
    def active(self) -> int:
        """The number of places held."""
        return self._number - self._free

    @property
    def waiting(self) -> int:
        """The number of jobs waiting."""
        return sum(not one.done() for line in self._waiting.values() for one in line)

    @contextlib.asynccontextmanager
    async def of(self, owner: Hashable) -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
        """Wait for a place, and hold it.

        Yields:
            A function that hands the place to another waiting owner, and waits to get it back
            before the owner's other work does.

        Raises:
            Overloaded: too many wait; or the error that ``refused`` makes.
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
        """Wait for a place, and run work in it; the work is passed what `of` yields.

        Work that has begun keeps its place until it ends or hands it over, even if nobody waits for
        it any more. Otherwise owners that disconnect could occupy any number of threads and
        processes.

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
        """Take a place from an owner, who goes behind the other waiting ones."""
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
        """Give free places to those who wait."""
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
            if not given.done():  # otherwise it has just been cancelled
                self._free -= 1
                self._held[owner] += 1
                given.set_result(self._clock())

    def _refuse(self, latest: Hashable) -> None:
        """Refuse the last job of the owner with the most waiting; among equals, the latest job."""
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
        """Take a waiting job off its owner's line, and put that line behind the others."""
        line = self._waiting.get(owner, deque())
        if given in line:
            line.remove(given)
            self._waiting.move_to_end(owner)
            if not line:
                del self._waiting[owner]


@final
class Aside:
    """A fixed number of threads for work that would block an event loop, shared fairly by owners.

    A thread cannot be stopped: see `Places.hold`.
    """

    def __init__(self, number: int, most_waiting: int, name: str) -> None:
        """Args as for `Places`; ``name`` is the name of the threads."""
        self._places = Places(number, most_waiting)
        self._name = name

    async def do(self, owner: Hashable, work: Callable[[], T]) -> T:
        """Do some work there.

        Raises:
            Overloaded: too many jobs wait.
        """
        return await self._places.hold(owner, lambda _: in_thread(work, self._name))
