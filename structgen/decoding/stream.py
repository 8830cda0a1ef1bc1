"""One output, yielded piece by piece: as text, or as its growing value.

`Stream` owns the life of a sequence, from the first piece until the last, or until the reader
leaves. `ValueStream` yields a `structgen.Partial` for each piece that adds something.
`AsyncStream` and `AsyncValueStream` do the same for asynchronous code; subclasses supply the text.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Generic, final

from structgen.errors import StructgenError
from structgen.models.base import Model
from structgen.types import OutputType, T_co
from structgen.values import GrowingValue, Partial

from .loop import made
from .results import Chunk, GenerationResult, Output, SectionName
from .sections import Run


@final
class Stream(Iterator[Chunk], AbstractContextManager["Stream[T_co]"], Generic[T_co]):
    """An output being generated: an iterator over pieces of text, none of them empty.

    Use it as a context manager, or call `close`, to stop early; `cancel` from another thread. It
    has one reader.
    """

    def __init__(self, run: Output, chunks: Generator[Chunk, None, None]) -> None:
        """Hand over an output.

        Args:
            run: the output.
            chunks: makes it, as it is read; closed, it stops.
        """
        self._run = run
        self._chunks = chunks
        self._reading = threading.Lock()
        self._is_read = False
        self._section: SectionName | None = None

    def __iter__(self) -> Stream[T_co]:
        """Return itself, to be read once.

        Raises:
            StructgenError: it has been read to its end, so that nothing would come.
        """
        if self._is_read:
            raise StructgenError(
                "This stream was read to its end and cannot be read again. The text is in "
                "stream.result.text; for another output, call generator.stream again."
            )
        return self

    def __next__(self) -> Chunk:
        """Return the next piece of text: a str, whose ``section`` says what it is part of.

        Raises:
            StructgenError: another thread is reading, so that pieces would be torn apart.
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
        """Stop generating and give the sequence back. A second call does nothing.

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

        The reader finds the stream at its end, or, where an output type was cut, gets an
        `IncompleteOutput` that carries the text.
        """
        self._run.cancel()

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def section(self) -> SectionName | None:
        """Which section the latest piece belongs to; None before the first.

        ``"answer"``; with ``think=`` and ``draft=`` first ``"reasoning"`` and ``"draft"``.
        """
        return self._section

    @property
    def result(self) -> GenerationResult[T_co]:
        """What has been generated so far; its ``finish_reason`` is None until the output ends.

        That is when the stream has been read to its end, or closed or cancelled.
        """
        return self._run.result


def pieces(model: Model, run: Run) -> Generator[Chunk, None, None]:
    """Make an output with a model: the pieces of its text.

    No method: a generator that held its stream would keep a dropped one, and its sequence, until
    the garbage collector comes by.
    """
    for chunks in made(model, run):
        yield from chunks


@final
class ValueStream(Iterator[Partial[T_co]], AbstractContextManager["ValueStream[T_co]"]):
    """An output being generated: an iterator over its growing value.

    Each `structgen.Partial` has more than the one before it; the last one is `Partial.complete`,
    and its `Partial.value` is what `Generator.parse` gives. Use it as a context manager, or call
    `close`, to stop early; `cancel` from another thread. It has one reader.
    """

    def __init__(self, stream: Stream[T_co], output: OutputType[T_co] | None) -> None:
        self._stream = stream
        self._growing = GrowingValue(output)
        self._is_over = False
        self._whole: GenerationResult[T_co] | None = None

    def __iter__(self) -> ValueStream[T_co]:
        """Return itself, to be read once.

        Raises:
            StructgenError: it has been read to its end, so that nothing would come.
        """
        iter(self._stream)
        return self

    def __next__(self) -> Partial[T_co]:
        """Return the value with what has become known of it.

        Raises:
            ParseError: the output is whole, and a check that only its class can make refuses it.
            IncompleteOutput: it was cut before it was whole.
            StructgenError: another thread is reading.
        """
        for chunk in () if self._is_over else self._stream:
            if chunk.section != "answer":
                continue
            found = self._growing.feed(chunk)
            if found is not None:
                return found
        result = self._stream.result
        if self._is_over or result.finish_reason == "cancelled":
            self._is_over = True
            raise StopIteration
        self._is_over = True
        self._whole = result
        return self._growing.finish(result.value)

    def close(self) -> None:
        """Stop generating and give the sequence back. A second call does nothing."""
        self._stream.close()

    def cancel(self) -> None:
        """End the output where it is, within one step, from any thread."""
        self._stream.cancel()

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def result(self) -> GenerationResult[T_co]:
        """What has been generated so far, as `Stream.result`."""
        return self._stream.result if self._whole is None else self._whole


class ReadAsync:
    """What ``async for`` reads and ``async with`` ends, and no ``for`` and ``with``."""

    if not TYPE_CHECKING:  # type checkers say so by themselves

        def __iter__(self) -> None:
            raise TypeError(
                f"{type(self).__name__} is asynchronous. Use async for and async with instead of "
                "for and with."
            )

        __enter__ = __iter__
        __exit__ = None  # only looked up


class AsyncStream(
    ReadAsync, AsyncIterator[Chunk], AbstractAsyncContextManager["AsyncStream[T_co]"], Generic[T_co]
):
    """An output being generated: an asynchronous iterator over pieces of text, none of them empty.

    Nothing runs before the first piece is asked for. Use it with ``async with``, or call `aclose`,
    to stop early; cancelling the task that reads it stops it too. It has one reader.
    """

    _is_reading = False
    _section: SectionName | None = None
    _result: GenerationResult[T_co] | None = None

    async def __anext__(self) -> Chunk:
        """Return the next piece of text: a str, whose ``section`` says what it is part of.

        Raises:
            IncompleteOutput: the output was cut before it was whole.
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
        """Wait for the next piece; at the end, there is the result."""

    @abstractmethod
    async def aclose(self) -> None:
        """Stop generating. A second call does nothing."""

    @property
    def section(self) -> SectionName | None:
        """Which section the latest piece belongs to; None before the first."""
        return self._section

    @property
    def result(self) -> GenerationResult[T_co]:
        """What was generated, once the stream has been read to its end.

        Raises:
            StructgenError: it has not.
        """
        if self._result is None:
            raise StructgenError(
                "The stream has not been read to its end, so it has no result: "
                "async for piece in stream: ..."
            )
        return self._result

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


@final
class AsyncValueStream(
    ReadAsync, AsyncIterator[Partial[T_co]], AbstractAsyncContextManager["AsyncValueStream[T_co]"]
):
    """An output being generated: an asynchronous iterator over its value as far as it is written.

    What `structgen.decoding.ValueStream` is, for asynchronous code. It has one reader.
    """

    def __init__(self, stream: AsyncStream[T_co], output: OutputType[T_co] | None) -> None:
        self._stream = stream
        self._growing = GrowingValue(output)
        self._is_over = False

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

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    @property
    def result(self) -> GenerationResult[T_co]:
        """What was generated, as `AsyncStream.result`."""
        return self._stream.result
