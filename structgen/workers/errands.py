"""Errands: work that is done where the model is, beside the making of outputs.

It owns sending them, waiting, and dropping them when nobody waits any more. What an errand of
another stage is about it does not know: it is an object that travels, with a method that yields
before each pass. One is its own: the tokens of a generator's prompt.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from structgen.decoding import CancelEvent, SearchOptions, Task
from structgen.decoding import options as search_options
from structgen.insight import Passes
from structgen.models.base import Model

from .calls import CALLERS, Asked, RunningCall, owner, raised
from .generator import WorkerGenerator
from .model import AsyncModel
from .process import Host
from .protocol import Errand, ErrandCall, LoweredType


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
    return await _run(model._host, errands, timeout, cancel)


async def _run(
    host: Host,
    errands: Sequence[Errand],
    timeout: float | None = None,
    cancel: CancelEvent | None = None,
) -> list[Any]:
    caller = next(CALLERS)
    calls: list[RunningCall] = []
    try:
        for errand in errands:
            data = pickle.dumps(errand, pickle.HIGHEST_PROTOCOL)
            calls.append(RunningCall(Asked(ErrandCall(0, caller, data, timeout, owner()), cancel)))
            await calls[-1].begin(host)
        return [raised(await call.end()) for call in calls]
    finally:
        for call in calls:
            call.drop()


@dataclass(frozen=True, slots=True)
class Preparing:
    """An errand: the tokens of a prompt, as a generator gives it to the model.

    Attributes:
        lowered: what the generator sends of its output type.
        prompt: a text, or messages.
        search: the options of the call.
    """

    lowered: bytes
    prompt: Any
    search: SearchOptions

    def begin(self, model: Model) -> Passes[list[int]]:
        """Encode it; no pass of the model is made, and no output type compiled."""
        lowered: LoweredType = pickle.loads(self.lowered)
        offered = lowered.offered
        task = Task(model, None, None, lowered.think, lowered.draft, offered=offered)
        token_ids = task.prepare(self.prompt, self.search).token_ids
        return _told([int(token) for token in token_ids])


def _told(tokens: list[int]) -> Passes[list[int]]:
    yield from ()
    return tokens


async def prompt_tokens(generator: WorkerGenerator[Any], prompt: Any, **options: Any) -> list[int]:
    """The tokens that a call of a generator gives to the model before it writes.

    They are those of the chat template, with what it tells of tools and thoughts. Args as for the
    generator.

    Raises:
        PromptError: the prompt is empty or malformed.
        OptionError: an option is wrong.
        WorkerDied: the model's process ended by itself.
    """
    search = search_options.parse(options)
    found: list[list[int]] = await _run(
        generator._host, [Preparing(generator._lowered, prompt, search)]
    )
    return found[0]
