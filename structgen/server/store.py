"""Answers of ``/v1/responses`` that are kept, for their owner, until there are too many.

Owns what is kept, for whom, and which goes first: the oldest. In memory: a restart forgets them.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, final

_MOST_BYTES = 64 << 20
"""Most bytes of all answers and their messages, as JSON."""


@dataclass(slots=True)
class Stored:
    """One answer.

    Attributes:
        response: it.
        items: the items of its input.
        messages: those of the chat, the answer's own not among them.
        holder: whose it is.
        task: what makes it, in the background.
        size: bytes.
    """

    response: dict[str, Any]
    items: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    holder: str
    task: asyncio.Task[None] | None = None
    size: int = 0


@final
class Store:
    """Those that there are. For one event loop."""

    def __init__(self, most: int) -> None:
        """Keep ``most`` of them."""
        self._most = most
        self._stored: OrderedDict[str, Stored] = OrderedDict()
        self._size = 0

    def put(self, stored: Stored) -> None:
        """Keep one, or what has become of it."""
        id_ = stored.response["id"]
        self.remove(id_, stored.holder)
        stored.size = len(json.dumps([stored.response, stored.items, stored.messages]))
        self._stored[id_] = stored
        self._size += stored.size
        while self._stored and (len(self._stored) > self._most or self._size > _MOST_BYTES):
            self._drop(next(iter(self._stored)))

    def get(self, id_: str, holder: str) -> Stored | None:
        """One, for whose it is."""
        found = self._stored.get(id_)
        return found if found is not None and found.holder == holder else None

    def remove(self, id_: str, holder: str) -> bool:
        """Forget one; whether it was there."""
        if self.get(id_, holder) is None:
            return False
        self._drop(id_)
        return True

    def _drop(self, id_: str) -> None:
        self._size -= self._stored.pop(id_).size

    async def close(self) -> None:
        """End what is made in the background."""
        tasks = [one.task for one in self._stored.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
