"""Answers that are made while nobody waits for them, and what has happened of each so far.

Owns the tasks, how many of them somebody may have, and the events that a client may follow from any
place, again and again. When an answer is finished it is the `store`'s; its events are kept a while
longer, for clients that come back.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import final

from .errors import ApiError
from .store import Stored

_MOST = 16
"""Most answers of one owner that are being made."""

_MOST_BYTES = 16 << 20
"""Most bytes of these, input and events, at which one more may begin."""

_FINISHED = 64
"""Most finished answers whose events are kept."""

_FINISHED_BYTES = 32 << 20
"""Most bytes of these events."""


@final
class Job:
    """One answer that is being made, or was.

    Attributes:
        stored: it, as far as it is there.
        task: what makes it.
        events: what has happened; each stands at its sequence number.
        is_wanted: whether it is to be kept: it was not deleted.
        size: bytes of its input, while it is made, and of its events.
    """

    def __init__(self, stored: Stored, size: int = 0) -> None:
        self.stored = stored
        self.size = self._input = size
        self.task: asyncio.Task[None] | None = None
        self.events: list[bytes] = []
        self.is_wanted = True
        self._is_over = False
        self._more = asyncio.Event()

    def say(self, event: bytes) -> None:
        """Add an event."""
        self.events.append(event)
        self.size += len(event)
        self._wake()

    @property
    def is_finished(self) -> bool:
        """Whether nothing more is done for it."""
        return self._is_over and (self.task is None or self.task.done())

    def end(self) -> None:
        """No more events come."""
        self._is_over = True
        self.size, self._input = self.size - self._input, 0
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    async def after(self, number: int) -> AsyncGenerator[bytes, None]:
        """The events after one, as they come."""
        at = number + 1
        while True:
            while at < len(self.events):
                yield self.events[at]
                at += 1
            if self._is_over:
                return
            await self._more.wait()


@final
class Jobs:
    """All of them. For one event loop."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()

    def add(self, job: Job) -> None:
        """Add one that is about to be made; forget some that were finished long ago.

        Raises:
            ApiError: its owner has too many.
        """
        owner = job.stored.owner
        open_ = [
            one for one in self._jobs.values() if one.stored.owner == owner and not one.is_finished
        ]
        size = sum(one.size for one in open_)
        if len(open_) >= _MOST or size >= _MOST_BYTES:
            raise ApiError(
                429,
                f"{len(open_)} answers of yours, {size:,} bytes, are being made in the background. "
                f"Another may begin below {_MOST} answers and {_MOST_BYTES:,} bytes. Wait for one, "
                "or end one with POST /v1/responses/ID/cancel.",
                param="background",
                code="rate_limit_exceeded",
                headers={"Retry-After": "5"},
            )
        self._jobs[job.stored.response["id"]] = job
        finished = [(id_, one.size) for id_, one in self._jobs.items() if one.is_finished]
        count, held = len(finished), sum(size for _, size in finished)
        for id_, size in finished:
            if count <= _FINISHED and held <= _FINISHED_BYTES:
                break
            del self._jobs[id_]
            count, held = count - 1, held - size

    def get(self, id_: str, owner: str) -> Job | None:
        """One, for whose it is."""
        found = self._jobs.get(id_)
        return found if found is not None and found.stored.owner == owner else None

    async def stop(self, id_: str, *, forget: bool = False) -> None:
        """End one."""
        job = self._jobs[id_]
        if forget:
            job.is_wanted = False
            del self._jobs[id_]
        if job.task is not None:
            job.task.cancel()
            await asyncio.gather(job.task, return_exceptions=True)
        job.end()  # its task may not have begun

    async def close(self) -> None:
        """End all."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
