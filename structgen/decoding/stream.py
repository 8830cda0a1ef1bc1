"""Stream: one output handed to its reader piece by piece.

It owns the life of a sequence, from the first piece to the last or to wherever the reader leaves.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import Generic, final

from structgen.errors import StructgenError
from structgen.models.base import Model
from structgen.types import T_co

from .loop import decode
from .results import GenerationResult
from .run import Chunk, Output, Run, SectionName


@final
class Stream(Iterator[Chunk], Generic[T_co]):
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
                "This stream has been read to its end, and gives its pieces once. The text is in "
                "stream.result.text; for another output call generator.stream again."
            )
        return self

    def __next__(self) -> Chunk:
        """Return the next piece of text: a str, whose ``section`` says what it is part of.

        Raises:
            StructgenError: another thread is reading, so that pieces would be torn apart.
        """
        if not self._reading.acquire(blocking=False):
            raise StructgenError(
                "This stream is being read, by another thread or by a processor of its own. A "
                "stream has one reader: let it hand the pieces on, or give each reader a stream."
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

    def __enter__(self) -> Stream[T_co]:
        return self

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
    """Make an output with a model: own the sequence from the first piece of text to the last.

    No method: a generator that held its stream would keep a dropped one, and its sequence, until
    the garbage collector comes by.
    """
    length = len(run.prompt_ids) + run.max_tokens
    sequence = model.start(length, prefix=run.prompt_ids, adapter=run.adapter)
    try:
        yield from decode(run, sequence)
    finally:
        run.stop()
        sequence.close()
    run.check_whole()
