"""Generators of remote models, synchronous and asynchronous: the same calls as of any other.

Owns the calls, and how several outputs are asked for side by side. What is asked is `Task`'s, one
output an `Exchange`, sent by `drivers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, final

from structgen.decoding import (
    AsyncMaker,
    AsyncStream,
    AsyncTypedGenerator,
    AsyncValueStream,
    Chunk,
    GenerationResult,
    Output,
    Prompt,
    SectionName,
    Stream,
    Take,
    ValueStream,
    chat,
    check_by_name,
    gathered,
)
from structgen.errors import OptionError, StructgenError
from structgen.generator import Generator, Maker
from structgen.options import CallOptions
from structgen.types import T_co
from structgen.values import shapes_of

from .drivers import chunks, chunks_async, make, make_async
from .exchange import Exchange
from .task import Served, Task

if TYPE_CHECKING:
    import openai
    from typing_extensions import Never, Unpack

SIDE_BY_SIDE = 8
"""Most requests at once of a call for several outputs, where ``batch_size`` does not say."""


class Asked(Served, Maker, Protocol):
    """A model that is asked by a synchronous client."""

    @property
    def client(self) -> openai.OpenAI:
        """The client."""


class AskedAsync(Served, AsyncMaker, Protocol):
    """A model that is asked by an asynchronous client."""

    @property
    def client(self) -> openai.AsyncOpenAI:
        """The client."""


@final
class RemoteGenerator(Generator[T_co]):
    """What ``Generator(model, output_type)`` is for the model of a synchronous client.

    Attributes:
        model: the model.
        constraint: the output type, compiled to validate answers; None: free text.
    """

    model: Asked
    _asks: Task

    def __new__(cls, model: Asked, output_type: Any = None, **options: Any) -> RemoteGenerator[Any]:
        """See `structgen.Generator`; of its options those are possible that say what a type is."""
        self: RemoteGenerator[Any] = object.__new__(cls)
        self._asks = Task(model, output_type, options)
        self.model, self.constraint = model, self._asks.constraint
        return self

    def __repr__(self) -> str:
        return repr(self._asks)

    def probabilities(self, prompt: Prompt, **options: Any) -> NoReturn:
        """Not possible: it takes the model's scores of whole texts, which servers do not give.

        Raises:
            OptionError: always.
        """
        raise OptionError(
            "probabilities are not possible with a remote model: they take the scores of every "
            "token, which servers do not give. Ask for logprobs=True, and look at result.logprobs."
        )

    def stream(self, prompt: Prompt, *more: Never, **options: Unpack[CallOptions]) -> Stream[T_co]:
        """Return the answer to ``prompt`` piece by piece, as it comes, each piece validated.

        Args and raises as for calling the generator. Reading raises `ParseError` at the first byte
        that no text of the type has there.
        """
        check_by_name(more)
        exchange = self._asks.one(prompt, options, is_stream=True)
        return Stream(exchange, chunks(self.model.client, exchange))

    def stream_values(
        self, prompt: Prompt, *more: Never, **options: Unpack[CallOptions]
    ) -> ValueStream[T_co]:
        """Return the value for ``prompt`` again and again while it comes, as far as it has."""
        return ValueStream(self.stream(prompt, *more, **options), self._asks.output, self._shapes)

    def _outputs(
        self, prompt: Any, options: Mapping[str, Any], convert: Callable[[Output], Any]
    ) -> Any:
        search = self._asks.search(options)
        client = self.model.client
        is_batch = chat.are_several(prompt)
        if not is_batch and search.n is None:
            exchange = self._asks.one(prompt, options)
            make(client, exchange)
            return convert(exchange)
        prompts = prompt if is_batch else [prompt]
        exchanges, errors = self._asks.many(prompts, search, options)
        outputs: list[Any] = [None] * (len(prompts) * (search.n or 1))

        def work(place: int) -> None:
            try:
                make(client, exchanges[place])
                outputs[place] = convert(exchanges[place])
            except StructgenError as error:
                errors[place] = error

        if exchanges:
            most = min(search.batch_size or SIDE_BY_SIDE, len(exchanges))
            with ThreadPoolExecutor(most, "structgen-remote") as pool:
                try:
                    list(pool.map(work, exchanges))
                except BaseException:
                    for exchange in exchanges.values():
                        exchange.cancel()
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        results = gathered(outputs, errors, len(prompts), search)
        return results if is_batch else results[0]


@final
class AsyncRemoteGenerator(AsyncTypedGenerator[T_co]):
    """What ``Generator(model, output_type)`` is for the model of an asynchronous client.

    Attributes:
        model: the model.
        constraint: the output type, compiled to validate answers; None: free text.
    """

    def __init__(self, model: AskedAsync, output_type: Any = None, **options: Any) -> None:
        """See `structgen.Generator`; of its options those are possible that say what a type is."""
        self._asks = Task(model, output_type, options)
        self.model, self.constraint = model, self._asks.constraint
        self._shapes = None if self._asks.output is None else shapes_of(self._asks.output)

    def __repr__(self) -> str:
        return repr(self._asks)

    async def _outputs(
        self, prompt: Any, options: Mapping[str, Any], take: Take, *, is_sure: bool
    ) -> Any:
        search = self._asks.search(options)
        is_batch = chat.are_several(prompt)
        if not is_batch and search.n is None:
            exchange = self._asks.one(prompt, options)
            await make_async(self.model.client, exchange)
            return take(exchange.result)
        prompts = prompt if is_batch else [prompt]
        exchanges, errors = self._asks.many(prompts, search, options)
        outputs: list[Any] = [None] * (len(prompts) * (search.n or 1))
        room = asyncio.Semaphore(search.batch_size or SIDE_BY_SIDE)

        async def work(place: int) -> None:
            async with room:
                try:
                    await make_async(self.model.client, exchanges[place])
                    outputs[place] = take(exchanges[place].result)
                except StructgenError as error:
                    errors[place] = error

        tasks = [asyncio.ensure_future(work(place)) for place in exchanges]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        results = gathered(outputs, errors, len(prompts), search)
        return results if is_batch else results[0]

    def stream(
        self, prompt: Prompt, *more: Never, **options: Unpack[CallOptions]
    ) -> AsyncStream[T_co]:
        """Return the answer to ``prompt`` piece by piece, as it comes, each piece validated."""
        check_by_name(more)
        exchange = self._asks.one(prompt, options, is_stream=True)
        return RemoteStream(exchange, chunks_async(self.model.client, exchange))

    def stream_values(
        self, prompt: Prompt, *more: Never, **options: Unpack[CallOptions]
    ) -> AsyncValueStream[T_co]:
        """Return the value for ``prompt`` again and again while it comes, as far as it has."""
        return AsyncValueStream(
            self.stream(prompt, *more, **options), self._asks.output, self._shapes
        )


@final
class RemoteStream(AsyncStream[T_co]):
    """The answer of a remote model, piece by piece."""

    def __init__(self, exchange: Exchange, pieces: AsyncGenerator[Chunk, None]) -> None:
        """Read ``pieces``, of which the exchange is made."""
        self._exchange = exchange
        self._pieces = pieces
        self._section: SectionName | None = None
        self._is_over = False
        self._step: asyncio.Task[Chunk] | None = None

    async def __anext__(self) -> Chunk:
        if self._step is not None:
            raise StructgenError("This stream is being read by another task. It has one reader.")
        if self._is_over:
            raise StopAsyncIteration
        # In a task of its own, so that `aclose` can end it and not the task that reads.
        self._step = step = asyncio.ensure_future(self._next())
        try:
            await asyncio.wait([step])
        except BaseException:
            self._is_over = True
            step.cancel()
            await asyncio.wait([step])
            raise
        finally:
            self._step = None
        if step.cancelled():
            raise StopAsyncIteration
        try:
            chunk = step.result()
        except BaseException:
            self._is_over = True
            raise
        self._section = chunk.section
        return chunk

    async def _next(self) -> Chunk:
        return await self._pieces.__anext__()

    async def aclose(self) -> None:
        """Stop: the connection is closed, and its reader at the end. A second call does nothing."""
        self._is_over = True
        if self._step is not None:
            self._step.cancel()
            await asyncio.wait([self._step])
        await self._pieces.aclose()
        self._exchange.stop()

    @property
    def section(self) -> SectionName | None:
        """Which section the latest piece belongs to: ``"reasoning"`` or ``"answer"``."""
        return self._section

    @property
    def result(self) -> GenerationResult[T_co]:
        """What came, once the stream has been read to its end.

        Raises:
            StructgenError: it has not.
        """
        if not self._is_over:
            raise StructgenError("The stream has not been read to its end, so it has no result.")
        return self._exchange.result
