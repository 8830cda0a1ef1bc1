"""An output in sections: a thought, a draft, the answer, in one sequence of the model.

Each section is a `Generation` with its own cursor and budget, whose prompt is everything before it.
So the model sees all earlier sections, and masks, sampling and confidence work as in a single one.
`Sections` chains them; the caller runs the model for the current `part`. Between two sections there
are fixed tokens: the end of a thought (`thinking`), or the request for the answer after a draft.

    prompt, <think> ─▶ reasoning ─▶ </think> ─▶ draft ─▶ request ─▶ answer

Budgets. A thought has at most ``think`` tokens including its tags, a draft has its own limit, the
answer has ``max_new_tokens``. The maximum of the earlier sections is reserved before anything runs,
so the answer always has room. Stop strings, ``max_length``, log probabilities, traces and
confidence apply to the answer; everything else applies to all sections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np

from structgen.constraint import Constraint
from structgen.errors import BudgetTooSmall, IncompleteOutput, OptionError, PromptError
from structgen.models.base import Model, Passes, joined
from structgen.sampling import TokenIds

from .call_validation import check_fits
from .generation import Generation
from .options import SearchOptions
from .progress import Clock, Reporter
from .results import Chunk, FinishReason, GenerationResult, SectionName, Usage
from .thinking import Thoughts

_Section: TypeAlias = tuple[SectionName, Constraint | None, SearchOptions]
"""A section's name, output type and options."""

_ENDED = ("stop", "budget", "length", "stop_string")
"""The finish reasons after which another section follows."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """The draft of one output.

    Attributes:
        constraint: its output type.
        max_tokens: the most tokens of the draft.
        request: the tokens between it and the answer.
    """

    constraint: Constraint
    max_tokens: int
    request: Sequence[int]


@final
class Sections:
    """One output of several sections. See `Generation` for the driver's side.

    Attributes:
        prompt_ids: int32 ``[n]``, the prompt with the thought opened.
        max_tokens: the most tokens after it, of all sections and the tokens between.
        adapter: the name of the model's adapter, or None.
        media: the pictures and sounds of the prompt, or None.
        part: the current section.
    """

    def __init__(
        self,
        make: Callable[..., Generation],
        model: Model,
        constraint: Constraint | None,
        prompt_ids: TokenIds,
        search: SearchOptions,
        thoughts: Thoughts | None,
        draft: Drafted | None,
    ) -> None:
        """Check a call against the model.

        Args:
            make: makes a section from the arguments that differ between sections.
            model: the model.
            constraint: the compiled output type of the answer, or None.
            prompt_ids: the result of `encode`.
            search: the result of `structgen.decoding.options.parse`.
            thoughts: the thoughts of the generator, or None.
            draft: the draft, or None.

        Raises:
            PromptError, OptionError, BudgetTooSmall: as for a `Generation`, after the longest
                possible sections.
        """
        self._make = make
        self._model = model
        self._constraint = constraint
        self._search = search
        self._thoughts = thoughts
        self._draft = draft
        before = search.but(
            stop=(),
            max_length=None,
            min_length=None,
            abstain_below=None,
            logprobs=False,
            top_logprobs=0,
            trace=False,
            retries=0,
            best=False,
        )
        self._waiting: list[_Section] = [("answer", constraint, search)]
        self.prompt_ids, self._reserved, n_opening = prompt_ids, 0, 0
        if draft is not None:
            before = before.but(max_new_tokens=draft.max_tokens)
            self._waiting.insert(0, ("draft", draft.constraint, before))
            closing = 0 if thoughts is None else thoughts.most_closing
            self._reserved += draft.max_tokens + len(draft.request) + closing
        if thoughts is not None:
            before = before.but(stop=(thoughts.end,), max_new_tokens=thoughts.max_free)
            self._waiting.insert(0, ("reasoning", thoughts.constraint, before))
            self.prompt_ids, n_opening = thoughts.opened(prompt_ids)
            self._reserved += thoughts.most_tokens - n_opening
        last = self._last()
        self.max_tokens = self._reserved + last.max_tokens
        self.adapter, self.media = last.adapter, last.media
        self._texts: dict[SectionName, str] = {}
        self._counts: dict[SectionName, int] = {}
        self._guessed = self._accepted = 0  # in earlier sections
        self._n_request = 0
        self._chunks: list[Chunk] = []
        self._began: float | None = None
        self._clock = Clock()
        self._reused = 0
        self._n_prompt = self._at = len(self.prompt_ids) - n_opening  # the start of the section
        self._begin(self.prompt_ids)

    def _last(self) -> Generation:
        """Return the answer after the longest possible sections, to report errors early."""
        n_before = len(self.prompt_ids) + self._reserved
        try:
            # otherwise it takes memory
            check_fits(self._model, n_before, self._search.max_new_tokens)
            room = np.zeros(self._reserved, np.int32)
            return self._generation(self._waiting[-1], np.concatenate([self.prompt_ids, room]))
        except (PromptError, OptionError, BudgetTooSmall) as error:
            limits = ("max_length", "max_new_tokens")
            if isinstance(error, OptionError) and error.option not in limits:
                raise
            error.args = (
                f"{error} Of the tokens before the answer, {self._reserved:,} are reserved for "
                "thoughts and drafts.",
            )
            raise

    def _begin(self, token_ids: TokenIds) -> None:
        section = self._waiting.pop(0)
        self._section, self.part = section[0], self._generation(section, token_ids)

    def _generation(self, section: _Section, token_ids: TokenIds) -> Generation:
        _, constraint, search = section
        return self._make(
            constraint=constraint,
            prompt_ids=token_ids,
            search=search,
            position=len(token_ids) - len(self.prompt_ids),
        )

    # -- what there is ----------------------------------------------------------------------

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the output ended, None while it continues: the answer's reason, if there is an
        answer."""
        reason = self.part.finish_reason
        return None if self._waiting and reason in _ENDED else reason

    @property
    def result(self) -> GenerationResult[Any]:
        """The result so far. ``text`` and ``token_ids`` are the answer's."""
        result = self.part.result
        guesses = result.usage
        texts, counts = dict(self._texts), dict(self._counts)
        if self._section != "answer":
            texts[self._section] = result.text
            counts[self._section] = self.part.tokens.length - self._at
            reporter = Reporter(self._model, self._constraint, self._search)  # without tokens yet
            result = replace(
                result,
                text="",
                token_ids=(),
                mean_allowed_tokens=None,
                shortened=(),
                confidence={},
                _parsed=None,
                finish_reason=None if result.finish_reason in _ENDED else result.finish_reason,
                _logprobs=() if self._search.logprobs else None,
                _trace=reporter.trace(self.prompt_ids, self.max_tokens),
                usage=Usage(0, 0),
            )
        return replace(
            result,
            usage=replace(
                result.usage,
                prompt_tokens=self._n_prompt + self._n_request,
                reused_tokens=self._reused,
                reasoning_tokens=counts.get("reasoning", 0),
                draft_tokens=counts.get("draft", 0),
                guessed_tokens=self._guessed + guesses.guessed_tokens,
                accepted_tokens=self._accepted + guesses.accepted_tokens,
            ),
            timings=self._clock.timings,
            reasoning=texts["reasoning"].strip() if "reasoning" in texts else None,
            draft=texts.get("draft"),
        )

    def check_whole(self) -> None:
        """Check that an output of a type was not cut.

        Raises:
            IncompleteOutput: it was; the error has the answer's text, which may be empty.
        """
        if self._section == "answer":
            self.part.check_whole()
        elif self._constraint is not None:
            raise IncompleteOutput(
                f"The output was truncated before its {self._constraint.output.name} began, in "
                f"its {self._section}: {self.part.why_cut()}",
                text="",
            )

    # -- the driver's side ------------------------------------------------------------------

    @property
    def is_interrupted(self) -> bool:
        """Whether the output must end where it is: cancelled, or timed out."""
        return self.part.is_interrupted

    def start(self, reused_tokens: int = 0) -> None:
        """Note that the model is about to run: times count from here."""
        self.count_time_from(self._clock.start())
        self._reused = min(reused_tokens, self._n_prompt)
        self.part.start(reused_tokens)

    def count_time_from(self, began: float) -> None:
        """Set the start of the call: ``timeout`` is one limit for all sections."""
        if self._began is None:
            self._began = began
        self.part.count_time_from(self._began)

    def advance(self) -> Passes[None]:
        """Continue as far as possible without the model; may end sections, and the output."""
        yield from self.part.advance()
        while self._waiting and self.part.finish_reason in _ENDED:
            self._begin_section()
            yield from self.part.advance()
        if self.finish_reason is not None:
            self._clock.end()

    def _begin_section(self) -> None:
        """Begin the next section."""
        part, token_ids = self.part, self.part.tokens.row
        n_seen = part.tokens.n_seen
        self._note_chunks()
        part.stop()
        result = part.result
        text = result.text
        self._guessed += result.usage.guessed_tokens
        self._accepted += result.usage.accepted_tokens
        self._texts[self._section] = text
        if self._section == "reasoning":
            assert self._thoughts is not None
            is_closed = part.finish_reason == "stop_string"
            more = self._thoughts.closing(token_ids, text, is_closed=is_closed)
            begun = "" if is_closed else self._thoughts.begun(text)
            self._texts["reasoning"] = text.removesuffix(begun)
            if begun and self._chunks:
                last = Chunk(self._chunks.pop().removesuffix(begun), "reasoning")
                self._chunks += [last] if last else []
            token_ids = joined(token_ids, more)
            count = len(token_ids) - self._at
        else:
            assert self._draft is not None
            count = len(token_ids) - self._at
            self._n_request = len(self._draft.request)
            token_ids = joined(token_ids, self._draft.request)
            if self._thoughts is not None:
                # A template that opens thoughts itself has opened another one.
                closed = self._thoughts.closed(token_ids)
                self._n_request += len(closed) - len(token_ids)
                token_ids = closed
        self._counts[self._section] = count
        self._at = len(token_ids)
        self._begin(token_ids)
        if self._began is not None:
            self.part.count_time_from(self._began)
        self.part.start(n_seen)
        if self._clock.is_cancelled:
            self.part.cancel()

    def _note_chunks(self) -> None:
        self._chunks += [
            Chunk(chunk, self._section, chunk.steps, chunk.logprobs)
            for chunk in self.part.take_chunks()
        ]
        if self._chunks:
            self._clock.note_text()

    def take_chunks(self) -> list[Chunk]:
        """Return the text that has become final since the last call."""
        self._note_chunks()
        chunks, self._chunks = self._chunks, []
        return chunks

    def cancel(self) -> None:
        """Request that the output end where it is. Call from any thread."""
        self._clock.cancel()
        self.part.cancel()

    def stop(self) -> None:
        """End the output here, ``cancelled`` unless it has ended."""
        self._clock.end()
        self.part.stop()


Run: TypeAlias = Generation | Sections
"""One output, between a prompt and a result."""
