"""ValueStream: one output handed to its reader as its value, as far as that is known.

It owns what a stream of text becomes: a `structgen.Partial` for each piece of the answer that says
something new, and the parsed value at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from structgen.types import OutputType, T_co
from structgen.values import GrowingValue, Partial, Shapes

from .results import GenerationResult
from .stream import Stream


@final
class ValueStream(Iterator[Partial[T_co]]):
    """An output being generated: an iterator over its value as far as it has been written.

    Each `structgen.Partial` has more than the one before it; the last one is `Partial.complete`,
    and its `Partial.value` is what `Generator.parse` gives. Use it as a context manager, or call
    `close`, to stop early; `cancel` from another thread. It has one reader.
    """

    def __init__(
        self, stream: Stream[T_co], output: OutputType[T_co] | None, shapes: Shapes | None = None
    ) -> None:
        self._stream = stream
        self._growing = GrowingValue(output, shapes)
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

    def __enter__(self) -> ValueStream[T_co]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def result(self) -> GenerationResult[T_co]:
        """What has been generated so far, as `Stream.result`."""
        return self._stream.result if self._whole is None else self._whole
