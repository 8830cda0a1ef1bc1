"""Answers that are made while nobody waits for them, and what has happened of each so far.

Owns the tasks, and the events that a client may follow from any place, again and again. When an
answer is finished it is the `store`'s; its events are kept a while longer, for clients that come
back.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import final

from .store import Stored

_FINISHED = 64
"""Most finished answers whose events are kept."""


@final
class Job:
    """One answer that is being made, or was.

    Attributes:
        stored: it, as far as it is there.
        task: what makes it.
        events: what has happened; each stands at its sequence number.
        is_wanted: whether it is to be kept: it was not deleted.
    """

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.task: asyncio.Task[None] | None = None
        self.events: list[bytes] = []
        self.is_wanted = True
        self._is_over = False
        self._more = asyncio.Event()

    def say(self, event: bytes) -> None:
        """Add an event."""
        self.events.append(event)
        self._wake()

    def end(self) -> None:
        """No more events come."""
        self._is_over = True
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
        """Add one; forget some that were finished long ago."""
        self._jobs[job.stored.response["id"]] = job
        finished = [id_ for id_, one in self._jobs.items() if one.task is None or one.task.done()]
        for id_ in finished[: max(len(finished) - _FINISHED, 0)]:
            del self._jobs[id_]

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

    async def close(self) -> None:
        """End all."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
