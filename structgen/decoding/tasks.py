"""Prepare prompts for a generator, and run calls.

A `Task` turns a prompt into an output that can be made: messages with instructions about tools and
thoughts, their tokens, and the sections. `make_outputs` runs a call, for one output or several (by
prompts or ``n=``): it checks options, encodes prompts, makes and parses outputs, and combines
errors. `generation` makes one output, `loop` many together. `probabilities` returns the model's
probability of each possible output, for types with few texts, within a time limit;
`insight.confidence` computes it.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, final

import numpy as np

from structgen.constraint import Constraint
from structgen.constraint import compile as compile_constraint
from structgen.errors import (
    BatchError,
    BudgetTooSmall,
    IncompleteOutput,
    OptionError,
    PromptError,
    StructgenError,
    let_go,
)
from structgen.insight import MAX_ALTERNATIVES, Site, measuring, names_of, whole_texts
from structgen.models.base import GivenUp, MediaPrompt, Model, joined, run_passes
from structgen.options import CancelEvent, check_tolerance
from structgen.sampling import LogitsProcessor, TokenIds
from structgen.types import FREE_TEXT, ToolsOffered
from structgen.values import Checks, Judging, checks_of

from . import chat
from . import options as search_options
from .call_validation import (
    check_adapter,
    check_fits,
    messages_of,
    opening,
    part_that_may_fit,
    tokens_of,
)
from .chat import Prompt, TokenPrompt, without_oldest
from .generation import Generation
from .loop import made, make_all
from .options import SearchOptions
from .progress import Clock
from .results import Output
from .sections import Drafted, Run, Sections
from .thinking import Draft, Think, Thoughts, after_draft
from .tools import SCHEMA

_ANY = 1 << 20
"""A budget that is large enough for all tags."""

_MOST_REQUEST = 256
"""Tokens reserved for the request after a draft, when a prompt is cut."""


class Prepared(NamedTuple):
    """A prompt in tokens.

    Attributes:
        token_ids: int32 ``[n]``.
        request: the tokens between a draft and the answer; none without a draft.
        media: its pictures and sounds, or None.
    """

    token_ids: TokenIds
    request: Sequence[int]
    media: MediaPrompt | None = None


@final
class Task:
    """Prepares prompts and outputs. Immutable and thread-safe."""

    def __init__(
        self,
        model: Model,
        constraint: Constraint | None,
        processor: LogitsProcessor | None,
        think: int | Think | None = None,
        draft: bool | Draft | None = None,
        *,
        offered: ToolsOffered | None = None,
        schema_hint: str = "",
    ) -> None:
        """Make a task.

        ``offered`` are the tools that prompts describe; None: those of the output type.
        ``schema_hint`` is the JSON Schema that chats include; empty: none.

        Raises:
            OptionError: ``think`` or ``draft`` is invalid, or there is no room to think.
        """
        self.model = model
        self.constraint = constraint
        self._processor = processor
        if offered is None and constraint is not None:
            offered = constraint.output.offered
        self._offered = offered
        self._schema_hint = SCHEMA.replace("{schema}", schema_hint) if schema_hint else ""
        self._closing: Thoughts | None = None  # closes unwanted thoughts
        if type(think) is int and think == 0:
            self._closing, think = Thoughts(model, Think(_ANY)), None
        if think is not None and not isinstance(think, Think):
            think = Think(think)
        if draft is not None and not isinstance(draft, (bool, Draft)):
            raise OptionError(f"draft={draft!r} must be a bool or a Draft.", option="draft")
        self._draft = (Draft() if draft else None) if not isinstance(draft, Draft) else draft
        self._thoughts = None if think is None else Thoughts(model, think)
        self.has_sections = self._thoughts is not None or self._draft is not None

    @cached_property
    def _free_text(self) -> Constraint:
        return compile_constraint(FREE_TEXT, self.model.vocabulary)

    def prepare(self, prompt: Any, search: SearchOptions) -> Prepared:
        """Encode a prompt.

        Raises:
            PromptError: empty or malformed, or the template does not show where a draft ends.
            OptionError: there are sections before the answer, but the prompt contains its
                beginning; or a draft is requested after a token prompt, or a schema hint in a text
                or token prompt.
        """
        if self._schema_hint and isinstance(prompt, (str, TokenPrompt)):
            raise OptionError(
                "with_schema_hint=True requires a chat: the hint is a system message. Pass "
                '[{"role": "user", "content": text}], or write the schema into the text.',
                option="with_schema_hint",
            )
        if isinstance(prompt, TokenPrompt):
            return self._prepare_tokens(prompt, search)
        instructions = "" if self._thoughts is None else self._thoughts.instructions
        instructions = "\n\n".join(filter(None, (instructions, self._schema_hint)))
        parsed, tools, media = messages_of(self.model, prompt, self._offered, instructions)
        if self.has_sections and not isinstance(parsed, str) and parsed[-1]["role"] == "assistant":
            raise OptionError(
                "The last message is the assistant's, which begins the answer, but think= or "
                "draft= put text before the answer. Remove that message or these options.",
                option="think",
            )

        seen = self.model.perceive(media) if media else None

        encoded = functools.partial(
            tokens_of, self.model, special_tokens=search.special_tokens, tools=tools, seen=seen
        )

        if not search.truncate:
            token_ids = encoded(parsed)
        elif isinstance(parsed, str):
            parsed = part_that_may_fit(self.model, parsed, at_end=True)
            token_ids, most = encoded(parsed, times=math.inf), self._most_prompt(search)
            if len(token_ids) > most:
                first, most = self.model.start_ids[:most], max(most - len(self.model.start_ids), 0)
                rest = token_ids[len(token_ids) - most :]
                token_ids = joined(np.array(first, np.int32), rest)
        else:
            most = self._most_prompt(search)

            def excess(messages: list[dict[str, Any]]) -> int:
                try:
                    token_ids = encoded(messages, times=3)
                except PromptError as error:
                    if not error.is_too_long:
                        raise
                    return most  # at least twice as many remain without these
                return len(token_ids) + (0 if seen is None else seen.more(token_ids)) - most

            def length(text: str, n_tokens: int) -> int:
                token_ids, tokens = self.model.encode(text), self.model.vocabulary.tokens
                if len(token_ids) <= n_tokens:
                    return len(text)
                return len(
                    b"".join([tokens[i] for i in token_ids[:n_tokens]]).decode("utf-8", "ignore")
                )

            *before, last = parsed
            text = part_that_may_fit(self.model, str(last["content"]), at_end=True)
            parsed = without_oldest([*before, {**last, "content": text}], excess, length)
            token_ids = encoded(parsed)
        shown = None
        if seen is not None:
            places = [-1 - int(i) for i in token_ids if i < 0]
            if places != [*range(len(media))]:  # some were dropped with the oldest messages
                seen = self.model.perceive([media[i] for i in places]) if places else None
        if seen is not None:
            token_ids, shown = seen.in_prompt(token_ids)
        request: Sequence[int] = ()
        if self._draft is not None:
            request = after_draft(self.model, parsed, tools, self._draft, search.special_tokens)
        if self._closing is not None:
            token_ids = self._closing.closed(token_ids)
            whole = self._closing.closed(joined(token_ids, request))
            request = whole[len(token_ids) :].tolist()
        return Prepared(token_ids, request, shown)

    def _prepare_tokens(self, prompt: TokenPrompt, search: SearchOptions) -> Prepared:
        """Check a token prompt, and cut it if requested."""
        size = self.model.vocabulary.size
        for place, token in enumerate(prompt.token_ids):
            if not 0 <= token < size:
                raise PromptError(
                    f"Token {place} of the prompt is {token:,}. Token ids are 0 to {size - 1:,}."
                )
        if not prompt.token_ids:
            raise PromptError("The prompt is empty: it has no tokens.")
        if self._draft is not None:
            raise OptionError(
                "draft= requires a chat. Pass messages, or remove draft=.", option="draft"
            )
        token_ids: TokenIds = np.array(prompt.token_ids, np.int32)
        if search.truncate:
            token_ids = token_ids[-self._most_prompt(search) :]
        if self._closing is not None:
            token_ids = self._closing.closed(token_ids)
        return Prepared(token_ids, ())

    def _most_prompt(self, search: SearchOptions) -> int:
        """Return the most tokens of a prompt that leave room for the output."""
        context = min(search.max_length or 1 << 40, self.model.context_length)
        room = search.max_new_tokens or context // 4
        if self._thoughts is not None:
            room += self._thoughts.most_tokens
        if self._draft is not None:
            room += (self._draft.max_tokens or room) + _MOST_REQUEST
        return max(context - room, 1)

    def run(
        self,
        prepared: Prepared,
        search: SearchOptions,
        index: int = 0,
        checks: Judging | None = None,
    ) -> Run:
        """Return an output that can be made.

        Args:
            prepared: the result of `prepare`.
            search: the options of the call.
            index: the index of the output in a call for several.
            checks: the checks of the output type, if they run in another process.

        Raises:
            PromptError: the prompt is longer than the context.
            OptionError: an option does not fit the model or the prompt.
            BudgetTooSmall: fewer tokens left than any output of this type needs.
        """
        token_ids, model, constraint = prepared.token_ids, self.model, self.constraint
        make = partial(
            Generation,
            model,
            processor=self._processor,
            index=index,
            checks=checks or checks_for(self._checks, search, constraint),
            media=prepared.media,
        )
        if not self.has_sections:
            return make(constraint=constraint, prompt_ids=token_ids, search=search)
        draft = None
        if self._draft is not None:
            most = self._draft.max_tokens or search.max_new_tokens
            if most is None:
                raise OptionError(
                    "draft= without max_new_tokens= has no limit. Pass max_new_tokens=, or "
                    "draft=Draft(max_tokens=...).",
                    option="draft",
                )
            draft = Drafted(self._free_text, most, prepared.request)
        return Sections(make, model, constraint, token_ids, search, self._thoughts, draft)

    @cached_property
    def _checks(self) -> Checks | None:
        return None if self.constraint is None else checks_of_constraint(self.constraint)


def checks_of_constraint(constraint: Constraint) -> Checks | None:
    """Return the checks of a compiled output type; None if no code checks its values."""
    in_order = constraint.options.get("property_order", "schema") == "schema"
    return checks_of(constraint.output, in_order=in_order)


def checks_for(
    checks: Checks | None, search: SearchOptions, constraint: Constraint | None
) -> Checks | None:
    """Return the checks that run while an output is written; None if there are none.

    Raises:
        OptionError: the other options exclude checks, or there is no output type.
    """
    if not search.retries:
        return None
    if constraint is None:
        raise OptionError(
            "retries= requires an output type: free text has no checks.", option="retries"
        )
    if checks is not None and search.stop:
        raise OptionError(
            "stop= cannot be combined with retries=: output truncated by a stop string is not "
            "checked. Remove one of them, or put the limit into the output type.",
            option="stop",
        )
    return checks


def make_outputs(
    task: Task, prompt: Any, options: Mapping[str, Any], convert: Callable[[Output], Any]
) -> Any:
    """Make one output or several, and convert each; an error of one does not affect others.

    Raises:
        StructgenError: the error of the only output; `BatchError` if some of several failed.
    """
    began = time.perf_counter()
    model, constraint = task.model, task.constraint
    search = search_options.parse(options)
    if not Several.are_asked(prompt, search):
        run = task.run(task.prepare(prompt, search), search)
        for _ in made(model, run):
            pass
        return convert(run)
    several, n = Several(prompt, search), search.n or 1
    settings = search_options.resolve(search, model.search_defaults)
    sampled = constraint is not None and constraint.has_temperatures
    search_options.check_samples(search, settings, has_temperatures=sampled)
    runs: dict[int, Run] = {}
    for i in range(0, len(several.asks), n):
        places = range(i, i + n)
        try:
            prepared = task.prepare(several.asks[i][0], search)
            runs |= {place: task.run(prepared, search, index=place - i) for place in places}
        except StructgenError as error:
            for place in places:
                several.fail(place, error)
    forces = constraint is not None and search.forced
    batch_size = search.batch_size
    if batch_size is None and settings.get("random_seed", -1) >= 0:
        # In a batch, forced text and long rows run in different passes, which round differently.
        # With a seed, callers expect the same result as from a call for one output.
        batch_size = 1
    if search.retries or search.best:
        batch_size = 1  # rows of a batch cannot be rewound
    in_order = list(runs)
    failed = make_all(model, [*runs.values()], batch_size, forces=forces, began=began)
    for i, problem in failed.items():
        several.fail(in_order[i], problem)
    for place, run in runs.items():
        if place not in several.errors:
            several.put(place, partial(convert, run))
    return several.result()


@final
class Several:
    """The outputs of a call for several: ``n`` for each prompt.

    Attributes:
        asks: for each output, its prompt and its index among the outputs for that prompt.
        errors: errors, by the output's index.
    """

    def __init__(self, prompt: Any, search: SearchOptions) -> None:
        """Start without tasks; ``search`` are the options of the call."""
        self._is_batch = chat.are_several(prompt)
        self._search = search
        prompts = prompt if self._is_batch else [prompt]
        self.asks = [(one, index) for one in prompts for index in range(search.n or 1)]
        self.errors: dict[int, Exception] = {}
        self._outputs: list[Any] = [None] * len(self.asks)

    @staticmethod
    def are_asked(prompt: Any, search: SearchOptions) -> bool:
        """Return whether a call is for several outputs.

        Raises:
            OptionError: it is not, but has an option that only such calls have.
        """
        if search.n is not None or chat.are_several(prompt):
            return True
        if search.return_errors:
            raise OptionError(
                "return_errors= requires a call with several outputs. Pass a list of prompts, or "
                "n=.",
                option="return_errors",
            )
        return False

    def put(self, place: int, make: Callable[[], Any]) -> None:
        """Store an output or an error."""
        try:
            self._outputs[place] = make()
        except StructgenError as error:
            self.fail(place, error)

    def fail(self, place: int, error: Exception) -> None:
        """Store an error without tracebacks, whose frames would keep this object alive."""
        let_go(error)
        self.errors[place] = error

    def result(self) -> Any:
        """Return the value of the call: a list by prompt, with ``n=`` a list of lists.

        Raises:
            StructgenError: some outputs failed, without ``return_errors``.
        """
        search, outputs, errors = self._search, self._outputs, self.errors
        if search.return_errors:
            for place in errors:
                outputs[place] = errors[place]
        results, n = outputs, search.n or 1
        if search.n is not None:
            results = [outputs[i : i + n] for i in range(0, len(outputs), n)]
        if not errors or search.return_errors:
            return results if self._is_batch else results[0]
        first = errors[min(errors)]
        if len(errors) == len(outputs) and isinstance(first, (OptionError, BudgetTooSmall)):
            messages = {(type(error), str(error)) for error in errors.values()}
            if len(messages) == 1:  # the call is wrong, not one of its outputs
                raise first
        raise BatchError(
            _what_failed(errors, len(outputs)),
            results=results,
            errors={
                (place if search.n is None else divmod(place, n)): errors[place]
                for place in sorted(errors)
            },
        ) from first


def _what_failed(errors: Mapping[int, Exception], n_outputs: int) -> str:
    first = min(errors)
    message = str(errors[first]).rstrip()
    message += "" if message.endswith((".", "?", "…")) else "."
    if n_outputs == 1:
        return f"The only output failed: {message}"
    if len(errors) == n_outputs:
        return (
            f"All {n_outputs:,} outputs failed; the first: {message} Their errors are in .errors."
        )
    return (
        f"{len(errors):,} of {n_outputs:,} outputs failed; the first, .errors[{first}]: {message} "
        "The others are in .results; with return_errors=True, errors are returned in their places "
        "instead."
    )


def probabilities(
    task: Task,
    prompt: Prompt,
    *,
    tolerance: float,
    adapter: str | None,
    special_tokens: str,
    timeout: float | None,
    cancel: CancelEvent | None,
) -> dict[str, float]:
    """See `structgen.Generator.probabilities`; ``task`` makes the generator's outputs."""
    model, constraint, began = task.model, task.constraint, time.perf_counter()
    texts = None if constraint is None else run_passes(whole_texts(constraint))
    if constraint is None or texts is None:
        what = "free text" if constraint is None else constraint.output.name
        raise OptionError(
            f"probabilities requires an output type of at most {MAX_ALTERNATIVES:,} texts with "
            f"200,000 bytes in total, without objects or arrays, but {what} is not. For the "
            "fields of an object: generator.result(...).confidence."
        )
    search = search_options.parse(
        {"timeout": timeout, "cancel": cancel, "adapter": adapter, "special_tokens": special_tokens}
    )
    tolerance = check_tolerance("tolerance", tolerance)
    check_adapter(model, adapter)
    if chat.is_batch(prompt):
        raise PromptError(
            "probabilities takes one prompt. For several: "
            "[generator.probabilities(prompt) for prompt in prompts]."
        )
    site = Site("$", 0, 0, texts, names_of(constraint, texts))
    prompt_ids, _, media = task.prepare(prompt, search)
    check_fits(model, len(prompt_ids))
    clock = Clock(search.timeout, search.cancel)
    clock.count_from(began)
    try:
        open_sequence = partial(opening, model, prompt_ids, adapter, media)
        work = measuring(constraint, site, (), open_sequence, tolerance)
        found = run_passes(work, lambda: clock.is_interrupted)
    except GivenUp:
        raise IncompleteOutput(
            f"The probabilities are not complete: {clock.interruption}. A larger tolerance= needs "
            "fewer passes.",
            text="",
        ) from None
    return {alternative.text: alternative.probability for alternative in found.alternatives}
