"""What a reader is told of an output while it is made: text that is certain, and steps and scores.

Owns which tokens' text has been handed out, and which steps and log probabilities go with it. Which
tokens stand for good is told to it; what happened at a token, `structgen.insight` records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import final

from structgen.constraint import Constraint
from structgen.insight import TOP, StepRecorder, Trace, TraceStep, headline, readable_prompt
from structgen.models.base import Model
from structgen.sampling import TokenIds, TokenLogprob

from .options import SearchOptions
from .run import Chunk
from .text_assembler import TextAssembler


@final
class Report:
    """The steps and log probabilities that a call asks for.

    Attributes:
        recorder: has to be told of each token.
    """

    def __init__(self, model: Model, constraint: Constraint | None, search: SearchOptions) -> None:
        """Begin with none."""
        n_top = max(search.top_logprobs, TOP if search.trace else 0)
        self.recorder = StepRecorder(constraint, model.vocabulary, n_top)
        self._model = model
        self._constraint = constraint
        self._search = search
        self._ends: deque[int] = deque()  # where texts end of tokens whose scores are to be told
        self._n_told = 0

    def note_text(self, n_begun: int) -> None:
        """The next token's text ends after so many characters."""
        if self._search.logprobs:
            self._ends.append(n_begun)

    def news(self, n_given: int) -> tuple[tuple[TraceStep, ...], tuple[TokenLogprob, ...]]:
        """Steps that are new, and the scores of tokens whose text has been given out since.

        Args:
            n_given: how many characters have been given out.
        """
        first = self._n_told
        while self._ends and self._ends[0] <= n_given:
            self._ends.popleft()
            self._n_told += 1
        steps = self.recorder.take_news() if self._search.trace else ()
        return steps, self._listed(self.recorder.logprobs_of(first, self._n_told))

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...] | None:
        """Of all tokens, if they were asked for."""
        return self._listed(self.recorder.logprobs) if self._search.logprobs else None

    def trace(self, prompt_ids: TokenIds, max_tokens: int) -> Trace | None:
        """What happened so far, if that was asked for."""
        if not self._search.trace:
            return None
        return Trace(
            self.recorder.steps,
            self._constraint,
            title=headline(
                None if self._constraint is None else self._constraint.output.name,
                self._model.name,
            ),
            prompt=readable_prompt(prompt_ids.tolist(), self._model.vocabulary),
            n_tokens=self._model.vocabulary.size,
            max_tokens=max_tokens,
        )

    def _listed(self, found: Sequence[TokenLogprob]) -> tuple[TokenLogprob, ...]:
        """With as many of the likeliest tokens as were asked for, where a trace has more."""
        n_top = self._search.top_logprobs
        return tuple(
            replace(scores, top=scores.top[:n_top], unmasked_top=scores.unmasked_top[:n_top])
            for scores in found
        )


@final
class Reporter:
    """The text of one output as it is handed out.

    Attributes:
        stopped_by: the stop string that ended it, or None.
    """

    def __init__(self, texts: Sequence[bytes], stop: Sequence[str], report: Report | None) -> None:
        """Begin with none.

        Args:
            texts: the bytes of each token.
            stop: what ends the text.
            report: what goes with it, or None.
        """
        self._text = TextAssembler(texts, stop)
        self.stopped_by: str | None = None
        self._report = report
        self._chunks: list[str] = []
        self._n_told = 0  # tokens whose text has been taken down by `tell_up_to`

    @property
    def text(self) -> str:
        """All text that is certain."""
        return self._text.text

    def tell(self, token: int) -> None:
        """Take down the text of a token that stays."""
        chunk = self._text.feed(token)
        if chunk:
            self._chunks.append(chunk)
        self.stopped_by = self._text.stopped_by
        if self._report is not None:
            self._report.note_text(self._text.n_begun)

    def tell_up_to(self, output_ids: TokenIds, n_tokens: int) -> None:
        """Take down the text of the first tokens of an output, which stay."""
        for token in output_ids[self._n_told : n_tokens].tolist():
            self.tell(token)
        self._n_told = n_tokens

    def finish(self) -> None:
        """No more tokens come."""
        self._chunks.append(self._text.finish())

    def take(self) -> list[Chunk]:
        """The text that has become certain since the last call, in one piece if any."""
        if not self._chunks:
            return []
        chunk = "".join(self._chunks)
        self._chunks.clear()
        if not chunk:
            return []
        if self._report is None:
            return [Chunk(chunk)]
        steps, logprobs = self._report.news(self._text.n_given)
        return [Chunk(chunk, steps=steps, logprobs=logprobs)]
