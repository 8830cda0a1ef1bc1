"""The step loop: from logits to tokens to text, one token at a time.

It owns the order of events in a step and the way token bytes become text. It is a plain generator
over plain callables and knows nothing of schemas, prompts, tokenizers or the runtime, so it runs as
well over a list of numbers as over a model.

One step::

    begin() ─▶ must_end()? ─▶ logits() ─▶ process() ─▶ choose() ─▶ end of sequence? ─▶ accept()
                   │ yes                 (only when there is                │ yes
                   ▼                      something to edit)                ▼
                 "stop"                                                   "stop"
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Literal, TypeAlias

from structgen.processors import Logits

FinishReason: TypeAlias = Literal["stop", "length", "stop_string", "cancelled"]
"""Why an output ended: by itself, at a limit, at a stop string, or by its reader."""


def decode(
    choose: Callable[[Logits | None], int],
    *,
    eos_token_ids: Collection[int],
    max_tokens: int,
    logits: Callable[[], Logits] | None = None,
    process: Callable[[Logits], Logits] | None = None,
    begin: Callable[[], bool] | None = None,
    accept: Callable[[int], None] | None = None,
) -> Generator[int, None, Literal["stop", "length"]]:
    """Yield token ids until the end of the sequence or ``max_tokens``.

    Args:
        choose: pick a token, from these logits (float32 ``[1, vocab]``) or, given None, from the
            model's own, and append it to the sequence.
        eos_token_ids: ids that end the sequence; they are counted, but not yielded.
        max_tokens: most tokens to choose.
        logits: scores of the next token; needed when ``process`` is given.
        process: edits the scores. Without it they never leave the runtime.
        begin: called first in each step; true when nothing but the end may follow, and the model
            need not be asked.
        accept: told every chosen token, the end of the sequence included.

    Returns:
        ``"stop"`` when the sequence ended, ``"length"`` when it ran into ``max_tokens``.
    """
    for _ in range(max_tokens):
        if begin is not None and begin():
            return "stop"
        edited = None
        if process is not None and logits is not None:
            edited = process(logits())
        token = choose(edited)
        if accept is not None:
            accept(token)
        if token in eos_token_ids:
            return "stop"
        yield token
    return "length"


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
        self.stopped_by: str | None = None

    @property
    def text(self) -> str:
        """All text given out so far."""
        return "".join(self._chunks)

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
        return chunk

    def _unsure(self) -> int:
        """Length of the longest end of the held text that a stop string begins with."""
        longest = min(len(self._held), max(map(len, self._stop)) - 1)
        for length in range(longest, 0, -1):
            end = self._held[-length:]
            if any(s.startswith(end) for s in self._stop):
                return length
        return 0
