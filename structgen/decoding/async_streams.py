"""Outputs handed over piece by piece to asynchronous code: as text, and as growing values.

Owns what an asynchronous stream offers, and how its text becomes values. Where the text comes from
is left to whoever inherits from `AsyncStream`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Generic, final

from structgen.types import OutputType, T_co
from structgen.values import GrowingValue, Partial, Shapes

from .results import GenerationResult
from .run import Chunk, SectionName


class AsyncStream(AsyncIterator[Chunk], Generic[T_co]):
    """An output being generated: an asynchronous iterator over pieces of text, none of them empty.

    Nothing runs before the first piece is asked for. Use it with ``async with``, or call `aclose`,
    to stop early; cancelling the task that reads it stops it too. It has one reader.
    """

    @abstractmethod
    async def __anext__(self) -> Chunk:
        """Return the next piece of text: a str, whose ``section`` says what it is part of.

        Raises:
            IncompleteOutput: the output was cut before it was whole.
            StructgenError: another task is reading.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Stop generating. A second call does nothing."""

    @property
    @abstractmethod
    def section(self) -> SectionName | None:
        """Which section the latest piece belongs to; None before the first."""

    @property
    @abstractmethod
    def result(self) -> GenerationResult[T_co]:
        """What was generated, once the stream has been read to its end.

        Raises:
            StructgenError: it has not.
        """

    def __aiter__(self) -> AsyncStream[T_co]:
        return self

    async def __aenter__(self) -> AsyncStream[T_co]:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


@final
class AsyncValueStream(AsyncIterator[Partial[T_co]]):
    """An output being generated: an asynchronous iterator over its value as far as it is written.

    What `structgen.ValueStream` is, for asynchronous code. It has one reader.
    """

    def __init__(
        self,
        stream: AsyncStream[T_co],
        output: OutputType[T_co] | None,
        shapes: Shapes | None = None,
    ) -> None:
        self._stream = stream
        self._growing = GrowingValue(output, shapes)
        self._is_over = False

    def __aiter__(self) -> AsyncValueStream[T_co]:
        return self

    async def __anext__(self) -> Partial[T_co]:
        """Return the value with what has become known of it.

        Raises:
            ParseError: the output is whole, and a check that only its class can make refuses it.
            IncompleteOutput: it was cut before it was whole.
            StructgenError: another task is reading.
        """
        if self._is_over:
            raise StopAsyncIteration
        async for chunk in self._stream:
            if chunk.section != "answer":
                continue
            found = self._growing.feed(chunk)
            if found is not None:
                return found
        self._is_over = True
        result = self._stream.result
        if result.finish_reason == "cancelled":
            raise StopAsyncIteration
        return self._growing.finish(result.value)

    async def aclose(self) -> None:
        """Stop generating. A second call does nothing."""
        await self._stream.aclose()

    async def __aenter__(self) -> AsyncValueStream[T_co]:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    @property
    def result(self) -> GenerationResult[T_co]:
        """What was generated, as `AsyncStream.result`."""
        return self._stream.result
