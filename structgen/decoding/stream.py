"""One output, yielded piece by piece: as text, or as its growing value.

`Stream` owns a sequence from the first piece until the last, or until the reader stops.
`ValueStream` yields a `structgen.Partial` for each piece that adds something. `AsyncStream` and
`AsyncValueStream` do the same for asynchronous code; subclasses supply the text.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Generic, final

from structgen.errors import StructgenError
from structgen.models.base import Model
from structgen.types import OutputType, T_co
from structgen.values import GrowingValue, Partial

from .loop import made
from .results import Chunk, GenerationResult, Output, SectionName
from .sections import Run

if TYPE_CHECKING:
    from typing_extensions import Self


@final
class Stream(Iterator[Chunk], AbstractContextManager["Stream[T_co]"], Generic[T_co]):
    """An output being generated: an iterator over nonempty pieces of text.

    To stop early, use it as a context manager, or call `close`; from another thread, call `cancel`.
    Only one thread may read it.
    """

    def __init__(self, run: Output, chunks: Generator[Chunk, None, None]) -> None:
        """Make a stream of an output.

        Args:
            run: the output.
            chunks: makes the output while it is read; closing it stops the output.
        """
        self._run = run
        self._chunks = chunks
        self._reading = threading.Lock()
        self._is_read = False
        self._section: SectionName | None = None

    def __iter__(self) -> Stream[T_co]:
        """Return the stream, which can be read once.

        Raises:
            StructgenError: it has already been read to its end.
        """
        if self._is_read:
            raise StructgenError(
                "This stream was read to its end and cannot be read again. The text is in "
                "stream.result.text; for another output, call generator.stream again."
            )
        return self

    def __next__(self) -> Chunk:
        """Return the next piece of text: a str with its ``section``.

        Raises:
            StructgenError: another thread is reading.
        """
        if not self._reading.acquire(blocking=False):
            raise StructgenError(
                "This stream is being read by another thread or by its own processor. A stream "
                "has one reader: pass its pieces on from there, or use one stream per reader."
            )
        try:
            chunk = next(self._chunks)
            self._section = chunk.section
            return chunk
        except StopIteration:
            self._is_read = True
            raise
        finally:
            self._reading.release()

    def close(self) -> None:
        """Stop generating and release the sequence. A second call does nothing.

        While another thread is reading, this is `cancel`.
        """
        if not self._reading.acquire(blocking=False):  # only its reader can close it
            self.cancel()
            return
        try:
            self._chunks.close()
            self._run.stop()
        finally:
            self._reading.release()

    def cancel(self) -> None:
        """End the output where it is, within one step, from any thread.

        The reader reaches the end of the stream or, if an output type was cut, gets an
        `IncompleteOutput` with the text.
        """
        self._run.cancel()

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def section(self) -> SectionName | None:
        """The section of the latest piece; None before the first.

        ``"answer"``; with ``think=`` and ``draft=`` first ``"reasoning"`` and ``"draft"``.
        """
        return self._section

    @property
    def result(self) -> GenerationResult[T_co]:
        """The result so far; its ``finish_reason`` is None until the output ends.

        It ends when the stream has been read to its end, or closed or cancelled.
        """
        return self._run.result


def pieces(model: Model, run: Run) -> Generator[Chunk, None, None]:
    """Make an output with a model: yield the pieces of its text.

    Not a method: a generator that held its stream would keep a dropped stream, and its sequence,
    alive until the next garbage collection.
    """
    for chunks in made(model, run):
        yield from chunks


@final
class ValueStream(Iterator[Partial[T_co]], AbstractContextManager["ValueStream[T_co]"]):
    """An output being generated: an iterator over its growing value.

    Each `structgen.Partial` has more than the previous one; the last one is `Partial.complete`, and
    its `Partial.value` equals the result of `Generator.parse`. To stop early, use it as a context
    manager, or call `close`; from another thread, call `cancel`. Only one thread may read it.
    """

    def __init__(self, stream: Stream[T_co], output: OutputType[T_co] | None) -> None:
        self._stream = stream
        self._growing = GrowingValue(output)
        self._is_over = False
        self._whole: GenerationResult[T_co] | None = None

    def __iter__(self) -> ValueStream[T_co]:
        """Return the stream, which can be read once.

        Raises:
            StructgenError: it has already been read to its end.
        """
        iter(self._stream)
        return self

    def __next__(self) -> Partial[T_co]:
        """Return the value with its new parts.

        Raises:
            ParseError: the output is complete, but code of its class rejects it.
            IncompleteOutput: it was cut before it was complete.
            StructgenError: another thread is reading.
        """
        for chunk in () if self._is_over else self._stream:
            if chunk.section != "answer":
                continue
            found = self._growing.feed(chunk)
            if found is not None:
                return found
        result = self._stream.result
        was_over, self._is_over = self._is_over, True
        if was_over or result.finish_reason == "cancelled":
            raise StopIteration
        self._whole = result
        return self._growing.finish(result.value)

    def close(self) -> None:
        """Stop generating and release the sequence. A second call does nothing."""
        self._stream.close()

    def cancel(self) -> None:
        """End the output where it is, within one step, from any thread."""
        self._stream.cancel()

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def result(self) -> GenerationResult[T_co]:
        """The result so far, like `Stream.result`."""
        return self._stream.result if self._whole is None else self._whole


class ReadAsync(ABC):
    """Base of asynchronous streams: supports ``async for`` and ``async with``; ``for`` and ``with``
    raise."""

    @abstractmethod
    async def aclose(self) -> None:
        """Stop generating. A second call does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    if not TYPE_CHECKING:  # type checkers say so by themselves

        def __iter__(self) -> None:
            raise TypeError(
                f"{type(self).__name__} is asynchronous. Use async for and async with instead of "
                "for and with."
            )

        __enter__ = __iter__
        __exit__ = None  # only looked up


class AsyncStream(ReadAsync, AsyncIterator[Chunk], Generic[T_co]):
    """An output being generated: an asynchronous iterator over nonempty pieces of text.

    Nothing runs before the first piece is requested. To stop early, use ``async with``, call
    `aclose`, or cancel the reading task. Only one task may read it.
    """

    _is_reading = False
    _section: SectionName | None = None
    _result: GenerationResult[T_co] | None = None

    async def __anext__(self) -> Chunk:
        """Return the next piece of text: a str with its ``section``.

        Raises:
            IncompleteOutput: the output was cut before it was complete.
            StructgenError: another task is reading.
        """
        if self._is_reading:
            raise StructgenError(
                "This stream is being read by another task. A stream has one reader: pass its "
                "pieces on from there, or use one stream per reader."
            )
        self._is_reading = True
        try:
            chunk = await self._next()
        finally:
            self._is_reading = False
        self._section = chunk.section
        return chunk

    @abstractmethod
    async def _next(self) -> Chunk:
        """Wait for the next piece; after the last one, the result is available."""

    @property
    def section(self) -> SectionName | None:
        """The section of the latest piece; None before the first."""
        return self._section

    @property
    def result(self) -> GenerationResult[T_co]:
        """The result, after the stream has been read to its end.

        Raises:
            StructgenError: it has not been read to its end.
        """
        if self._result is None:
            raise StructgenError(
                "The stream has not been read to its end, so it has no result: "
                "async for piece in stream: ..."
            )
        return self._result


@final
class AsyncValueStream(ReadAsync, AsyncIterator[Partial[T_co]]):
    """An output being generated: an asynchronous iterator over its growing value.

    `structgen.decoding.ValueStream` for asynchronous code. Only one task may read it.
    """

    def __init__(self, stream: AsyncStream[T_co], output: OutputType[T_co] | None) -> None:
        self._stream = stream
        self._growing = GrowingValue(output)
        self._is_over = False

    async def __anext__(self) -> Partial[T_co]:
        """Return the value with its new parts.

        Raises:
            ParseError: the output is complete, but code of its class rejects it.
            IncompleteOutput: it was cut before it was complete.
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

    @property
    def result(self) -> GenerationResult[T_co]:
        """The result, like `AsyncStream.result`."""
        return self._stream.result
