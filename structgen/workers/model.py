"""`AsyncModel`: a model that runs in a separate process, and errands for it.

An errand is other work in the model's process: a picklable function from a later stage that returns
a generator, which yields before each pass. This module has one errand itself: the tokens of a
generator's prompt.
"""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, final

from typing_extensions import TypedDict

from structgen.asking import AskedAsync
from structgen.constraint import compile as compile_constraint
from structgen.decoding import SearchOptions, Task
from structgen.decoding import options as search_options
from structgen.errors import ModelError
from structgen.media import Audio
from structgen.models.base import LoadOptions, Model, Passes
from structgen.models.listening import Listening, Segment, Transcript
from structgen.options import OPTIONS, CancelEvent
from structgen.vocabulary import Vocabulary

from .generator import WorkerGenerator
from .process import NUMBERS, Host, RunningCall, owner, raised
from .protocol import Errand, ErrandCall, Load, LoweredType, Ready

if TYPE_CHECKING:
    from structgen.models import genai

T = TypeVar("T")


@final
class AsyncModel(AskedAsync, AbstractAsyncContextManager["AsyncModel"]):
    """A text model that runs in a separate process. Tasks, event loops and threads can share it.

    Make one with `structgen.load_async` or `TextModel.to_async`. Ask it for values, ``await
    model(prompt, output_type)``; ``Generator(model, output_type)`` is an `AsyncTypedGenerator`.
    Concurrent calls share the model pass by pass, or as a batch. The first call starts the process;
    after it has died, the next call starts it again. It ends with `aclose`, ``async with``, when
    the model is garbage-collected, and when this process ends.

    Attributes:
        name: its name in messages: the folder's name.
        folder: the folder from which it was loaded.
        vocabulary: its tokens.
        context_length: the most tokens of a sequence, prompt and output together.
        search_defaults: its default search settings.
    """

    def __init__(self, host: Host, ready: Ready, vocabulary: Vocabulary) -> None:
        self.name = ready.name
        self.folder = Path(ready.folder)
        self.vocabulary = vocabulary
        self.context_length = ready.context_length
        self.search_defaults = dict(ready.search_defaults)
        self._tool_syntax = ready.tool_syntax
        self._host = host
        weakref.finalize(self, host.end)

    @classmethod
    async def load(
        cls,
        name: str | os.PathLike[str],
        options: LoadOptions,
        *,
        batch_size: int | None = None,
        **others: Any,
    ) -> AsyncModel:
        """Start a process and load a model in it: see `structgen.load_async`, and `Load`."""
        _check_rows(batch_size)
        where: Any = Path(name) if isinstance(name, os.PathLike) else name
        host = Host(Load(where, options, batch_size=batch_size, **others))
        try:
            ready, vocabulary = await host.facts()
            # So that compiling the first output type is as fast as compiling others.
            await asyncio.to_thread(compile_constraint, _Example, vocabulary)
        except BaseException:
            host.end()
            raise
        return cls(host, ready, vocabulary)

    @classmethod
    def like(cls, model: genai.TextModel, batch_size: int | None = None) -> AsyncModel:
        """Return the same model in a separate process: see `TextModel.to_async`."""
        _check_rows(batch_size)
        if model.folder is None or model.options is None:
            raise ModelError(
                f"{model.name} was created from objects of the runtime, which cannot be sent to "
                "another process. Load it from its folder: structgen.load_async(folder)."
            )
        host = Host(
            Load(
                model.folder.absolute(),
                model.options,
                adapters=tuple((name, str(file)) for name, file in model.adapter_files.items()),
                batch_size=batch_size,
            ),
            model.vocabulary,
        )
        return cls(host, Ready.of(model), model.vocabulary)

    def __repr__(self) -> str:
        return (
            f"AsyncModel({self.name!r}, vocabulary={self.vocabulary.size:,}, "
            f"context_length={self.context_length:,})"
        )

    def make_generator(self, output_type: Any = None, **options: Any) -> WorkerGenerator[Any]:
        """Return a generator; ``Generator(model, output_type, **options)`` calls this.

        Raises:
            As `structgen.Generator`; and OptionError: a ``processor``, because it is a function of
            this process.
        """
        return WorkerGenerator(self, self._host, self._tool_syntax, output_type, options)

    def _make(self, output_type: Any, **options: Any) -> WorkerGenerator[Any]:
        facts = _Facts(self.name, self.vocabulary, self.search_defaults)
        return WorkerGenerator(facts, self._host, self._tool_syntax, output_type, options)

    def _mine(self, generator: Any) -> Any:
        made = copy.copy(generator)
        made.model = self  # and so its process
        return made

    @property
    def pid(self) -> int | None:
        """Its process id; None while there is none."""
        return self._host.pid

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the adapters that are loaded."""
        return tuple(sorted(name for name, _ in self._host.load.adapters))

    async def load_adapter(self, path: str | os.PathLike[str], name: str) -> None:
        """Load a LoRA adapter, like `TextModel.load_adapter`."""
        file = str(Path(path).expanduser().absolute())
        await run_errands(self, [partial(_load_adapter, path=file, name=name)])
        load = self._host.load
        self._host.load = replace(load, adapters=(*load.adapters, (name, file)))

    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter, like `TextModel.unload_adapter`."""
        await run_errands(self, [partial(_unload_adapter, name=name)])
        load = self._host.load
        left = tuple(one for one in load.adapters if one[0] != name)
        self._host.load = replace(load, adapters=left)

    async def transcribe(
        self, audio: Audio, *, prompt: str = "", temperature: float = 0.0
    ) -> Transcript:
        """Transcribe like `TextModel.transcribe`, sharing the model with other calls."""
        windows = transcribe_windows(self, audio, prompt=prompt, temperature=temperature)
        return [transcript async for _, transcript in windows][-1]

    async def aclose(self) -> None:
        """End the process. Running calls fail with a `ModelError`. A second call does nothing."""
        await asyncio.to_thread(self._host.close)

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


class _Facts(NamedTuple):
    """The part of a model to which its cached generators refer, so that the model itself can be
    garbage-collected."""

    name: str
    vocabulary: Vocabulary
    search_defaults: Mapping[str, Any]


class _Example(TypedDict):
    text: str


def _check_rows(batch_size: object) -> None:
    if batch_size is not None:
        OPTIONS["batch_size"].read("batch_size", batch_size)


async def run_errands(
    model: AsyncModel | WorkerGenerator[Any],
    errands: Sequence[Errand],
    *,
    timeout: float | None = None,
    cancel: CancelEvent | None = None,
) -> list[Any]:
    """Run errands in the process of a model; return their results in order.

    Passes of other calls run in between, and the event loop is not blocked.

    Args:
        model: the model, or a generator of it.
        errands: picklable functions, such as partials of importable ones.
        timeout: seconds that each may take after it reaches the process, waiting included.
        cancel: an object with ``is_set()``, such as an `asyncio.Event`.

    Raises:
        StructgenError: the first error of an errand; IncompleteOutput: ``timeout`` or ``cancel``
            ended it; WorkerDied: the process ended by itself.
    """
    caller = next(NUMBERS)
    calls: list[RunningCall] = []
    try:
        for errand in errands:
            data = pickle.dumps(errand, pickle.HIGHEST_PROTOCOL)
            calls.append(RunningCall(ErrandCall(0, caller, data, timeout, owner()), cancel))
            await calls[-1].begin(model._host)
        return [raised(await call.end()) for call in calls]
    finally:
        for call in calls:
            call.drop()


async def transcribe_windows(
    model: AsyncModel, audio: Audio, *, prompt: str, temperature: float
) -> AsyncGenerator[tuple[Sequence[Segment], Transcript], None]:
    """Transcribe a sound window by window: yield each window's segments, and the transcript so far.

    Args and raises as `structgen.TextModel.transcribe`.
    """
    listening: Listening
    begin = methodcaller("listening", audio, prompt, temperature)
    (listening,) = await run_errands(model, [begin])
    while (window := listening.window) is not None:
        (transcript,) = await run_errands(model, [methodcaller("hearing", window)])
        yield listening.add(transcript), listening.transcript


def _prepared(
    model: Model, lowered: bytes, prompt: Any, search: SearchOptions
) -> Passes[list[int]]:
    """Errand: return the tokens of a prompt, as a generator passes it to the model.

    Runs no pass of the model, and compiles no output type.

    Args:
        model: the model.
        lowered: the sent part of the generator's output type.
        prompt: a text, or messages.
        search: the options of the call.
    """
    of: LoweredType = pickle.loads(lowered)
    task = Task(model, None, None, of.think, of.draft, offered=of.offered)
    return at_once([int(token) for token in task.prepare(prompt, search).token_ids])


def _load_adapter(model: genai.TextModel, path: str, name: str) -> Passes[None]:
    """Errand: load an adapter. Passes of other calls run meanwhile."""
    model.load_adapter(path, name)
    return at_once(None)


def _unload_adapter(model: genai.TextModel, name: str) -> Passes[None]:
    model.unload_adapter(name)
    return at_once(None)


def at_once(result: T) -> Passes[T]:
    """Wrap work without a pass of the model as an errand."""
    yield from ()
    return result


async def prompt_tokens(generator: WorkerGenerator[Any], prompt: Any, **options: Any) -> list[int]:
    """Return the prompt tokens of a call of a generator.

    They include the chat template with its text about tools and thoughts. Args as for the
    generator.

    Raises:
        PromptError: the prompt is empty or malformed.
        OptionError: an option is wrong.
        WorkerDied: the model's process ended by itself.
    """
    search = search_options.parse(options)
    lowered = generator._lowered
    errand = partial(_prepared, lowered=lowered, prompt=prompt, search=search)
    found: list[list[int]] = await run_errands(generator, [errand])
    return found[0]
