"""Somebody else's code, run so that it holds up nothing: in a thread, or for so long.

Owns calls of functions in threads that nobody waits for at the end of the process, and time limits
that hold whatever the code does when it is cancelled. Knows no tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from .loops import Interrupted, carried

ResultT = TypeVar("ResultT")


class OutOfTime(Exception):
    """The time limit of a call is over; not the TimeoutError of some library in the tool."""


async def within(limit: float | None, awaitable: Any) -> Any:
    """Await something for so long; then it is cancelled, and not waited for."""
    task: asyncio.Future[Any] = asyncio.ensure_future(carried(awaitable))
    try:
        done, _ = await asyncio.wait([task], timeout=limit)
        if not done:
            raise OutOfTime
        return task.result()
    except Interrupted as error:
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
