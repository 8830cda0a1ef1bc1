"""Errands: work of another stage that is done where the model is.

It owns sending them, waiting, and dropping them when nobody waits any more. What an errand is about
it does not know: it is an object that travels, with a method that yields before each pass.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from structgen.decoding import CancelEvent

from .calls import CALLERS, Asked, RunningCall, raised
from .model import AsyncModel
from .protocol import Errand, ErrandCall


async def run_errands(
    model: AsyncModel,
    errands: Sequence[Errand],
    *,
    timeout: float | None = None,
    cancel: CancelEvent | None = None,
) -> list[Any]:
    """Have errands done by the process of a model; their results, in their order.

    Others' calls have passes between theirs, and nothing here holds up the event loop.

    Args:
        model: the model.
        errands: objects of classes that the process can import.
        timeout: seconds that each may take from when it reaches the process, waiting included.
        cancel: an object with ``is_set()``, such as an `asyncio.Event`.

    Raises:
        StructgenError: what the first to fail has failed with; IncompleteOutput: ``timeout`` or
            ``cancel`` ended it; WorkerDied: the process ended by itself.
    """
    caller = next(CALLERS)
    calls: list[RunningCall] = []
    try:
        for errand in errands:
            data = pickle.dumps(errand, pickle.HIGHEST_PROTOCOL)
            calls.append(RunningCall(Asked(ErrandCall(0, caller, data, timeout), cancel)))
            await calls[-1].begin(model._host)
        return [raised(await call.end()) for call in calls]
    finally:
        for call in calls:
            call.drop()
