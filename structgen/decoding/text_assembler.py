"""Token bytes into text, and why an output ended.

It owns the way token bytes become chunks of text that are never taken back. It knows nothing of
models, schemas or prompts.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Literal, TypeAlias

FinishReason: TypeAlias = Literal["stop", "budget", "length", "stop_string", "cancelled"]
"""Why an output ended: by itself; whole, but shortened by its budget; at a limit, at a stop string,
or by its reader."""


class TextAssembler:
    """Token ids in, text out, in chunks that are never taken back.

    Bytes are held back while they are an unfinished UTF-8 character, and text while it could be
    the beginning of a stop string. Invalid UTF-8, which only a free text can contain, becomes
    U+FFFD.

    Attributes:
        text: all text given out so far.
        stopped_by: the stop string that ended the text, or None.
    """

    def __init__(self, tokens: Sequence[bytes], stop: Sequence[str] = ()) -> None:
        self._tokens = tokens
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._chunks: list[str] = []
        self._n_given = 0
        self.stopped_by: str | None = None

    @property
    def text(self) -> str:
        """All text given out so far."""
        return "".join(self._chunks)

    @property
    def n_given(self) -> int:
        """How many characters have been given out so far."""
        return self._n_given

    @property
    def n_begun(self) -> int:
        """How many characters there are, held ones and one that is not finished included."""
        return self._n_given + len(self._held) + bool(self._decoder.getstate()[0])

    def feed(self, token_id: int) -> str:
        """Add a token; return the text that is now certain, perhaps none.

        When a stop string is complete, returns what came before it and sets ``stopped_by``.
        """
        self._held += self._decoder.decode(self._tokens[token_id])
        if not self._stop:
            return self._give(len(self._held))
        found = [(at, s) for s in self._stop if (at := self._held.find(s)) >= 0]
        if found:
            at, self.stopped_by = min(found)
            chunk = self._give(at)
            self._held = ""
            return chunk
        return self._give(len(self._held) - self._unsure())

    def finish(self) -> str:
        """No more tokens will come: return the text held back.

        The bytes of an unfinished character are dropped.
        """
        return self._give(len(self._held))

    def _give(self, length: int) -> str:
        chunk, self._held = self._held[:length], self._held[length:]
        if chunk:
            self._chunks.append(chunk)
            self._n_given += length
        return chunk

    def _unsure(self) -> int:
        """Length of the longest end of the held text that a stop string begins with."""
        longest = min(len(self._held), max(map(len, self._stop)) - 1)
        for length in range(longest, 0, -1):
            end = self._held[-length:]
            if any(s.startswith(end) for s in self._stop):
                return length
        return 0
