"""What a generator makes outputs of: a model, an output type, and the sections before the answer.

Owns the way from a prompt to an output that can be made: the messages with what they tell of tools
and thoughts, their tokens, and which sections there are. How an output is then made is
`generation`'s business, or `sections`'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np

from structgen.constraint import Constraint
from structgen.constraint import compile as compile_constraint
from structgen.errors import OptionError, PromptError
from structgen.models.base import Model
from structgen.models.passes import most_characters
from structgen.sampling import LogitsProcessor, TokenIds
from structgen.types import FREE_TEXT, ToolsOffered
from structgen.values import Checks, Judging, checks_of

from .call_validation import check_may_fit, messages_of, tokens_of
from .chat import TokenPrompt
from .drafts import Draft, after_draft
from .generation import Generation
from .options import SearchOptions
from .run import Run
from .sections import Drafted, Sections
from .thinking import Think, Thoughts
from .tool_prompts import SCHEMA
from .truncation import without_oldest

_ANY = 1 << 20
"""A budget with room for all tags."""

_MOST_REQUEST = 256
"""Tokens kept for what asks for the answer after a draft, where a prompt is cut."""


class Prepared(NamedTuple):
    """A prompt in tokens.

    Attributes:
        token_ids: int32 ``[n]``.
        request: the tokens between a draft and the answer; none without a draft.
    """

    token_ids: TokenIds
    request: Sequence[int]


@final
class Task:
    """Makes outputs of prompts. Immutable, shared by threads.

    Attributes:
        model: the model.
        constraint: the compiled output type, or None.
        has_sections: whether anything is written before the answer.
    """

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
        """A task.

        ``offered`` are the tools that prompts tell of; None: those of the output type.
        ``schema_hint`` is the JSON Schema that chats tell of; empty: none.

        Raises:
            OptionError: ``think`` or ``draft`` are none of these, or there is no room to think.
        """
        self.model = model
        self.constraint = constraint
        self._processor = processor
        if offered is None and constraint is not None:
            offered = constraint.output.offered
        self._offered = offered
        self._schema_hint = SCHEMA.replace("{schema}", schema_hint) if schema_hint else ""
        self._closing: Thoughts | None = None  # of thoughts that are not wanted
        if type(think) is int and think == 0:
            self._closing, think = Thoughts(model, Think(_ANY)), None
        if think is not None and not isinstance(think, Think):
            think = Think(think)
        if draft is not None and not isinstance(draft, (bool, Draft)):
            raise OptionError(f"draft={draft!r} is neither a bool nor a Draft.")
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
            OptionError: there are sections before the answer, and the prompt has its beginning; or
                a draft is asked for after tokens, or a text or tokens are to tell of a schema.
        """
        if self._schema_hint and isinstance(prompt, (str, TokenPrompt)):
            raise OptionError(
                "with_schema_hint=True tells of the schema in a chat, and a prompt that is a text "
                "is given to the model as it is. Write the schema into the text, or pass messages: "
                '[{"role": "user", "content": text}].'
            )
        if isinstance(prompt, TokenPrompt):
            return self._prepare_tokens(prompt, search)
        told = "" if self._thoughts is None else self._thoughts.instructions
        told = "\n\n".join(filter(None, (told, self._schema_hint)))
        parsed, tools = messages_of(self.model, prompt, self._offered, told)
        if self.has_sections and not isinstance(parsed, str) and _begins_the_answer(parsed):
            raise OptionError(
                "The last message is the assistant's, which begins the answer, and think= or "
                "draft= put something before it. Leave that message out, or these options."
            )

        def encoded(parsed: str | list[dict[str, Any]]) -> TokenIds:
            check_may_fit(self.model, parsed)
            return tokens_of(self.model, parsed, search.special_tokens, tools=tools)

        if not search.truncate:
            token_ids = encoded(parsed)
        elif isinstance(parsed, str):
            longest = self.model.vocabulary.trie.max_depth
            ends = most_characters(self.model.context_length, longest) - 1
            token_ids, most = encoded(parsed[-ends:]), self._most_prompt(search)
            if len(token_ids) > most:
                first, most = self.model.start_ids[:most], max(most - len(self.model.start_ids), 0)
                rest = token_ids[len(token_ids) - most :]
                token_ids = np.concatenate([np.array(first, np.int32), rest])
        else:
            most = self._most_prompt(search)

            def fits(messages: list[dict[str, Any]]) -> bool:
                try:
                    return len(encoded(messages)) <= most
                except PromptError as error:
                    if not error.is_too_long:
                        raise
                    return False

            parsed = without_oldest(parsed, fits)
            token_ids = encoded(parsed)
        request: Sequence[int] = ()
        if self._draft is not None:
            request = after_draft(self.model, parsed, tools, self._draft, search.special_tokens)
        if self._closing is not None:
            token_ids = self._closing.closed(token_ids)
            whole = np.concatenate([token_ids, np.array(request, np.int32)])
            request = self._closing.closed(whole)[len(token_ids) :].tolist()
        return Prepared(token_ids, request)

    def _prepare_tokens(self, prompt: TokenPrompt, search: SearchOptions) -> Prepared:
        """Check a prompt that is in tokens, and cut it if that was asked for."""
        size = self.model.vocabulary.size
        for place, token in enumerate(prompt.token_ids):
            if not 0 <= token < size:
                raise PromptError(
                    f"Token {place} of the prompt is {token:,}. Token ids are 0 to {size - 1:,}."
                )
        if not prompt.token_ids:
            raise PromptError("The prompt is empty: it has no tokens.")
        if self._draft is not None:
            raise OptionError("draft= asks for the answer in a chat. Pass messages, or no draft=.")
        token_ids: TokenIds = np.array(prompt.token_ids, np.int32)
        if search.truncate:
            token_ids = token_ids[-self._most_prompt(search) :]
        if self._closing is not None:
            token_ids = self._closing.closed(token_ids)
        return Prepared(token_ids, ())

    def _most_prompt(self, search: SearchOptions) -> int:
        """Most tokens of a prompt that leaves room for what is to come."""
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
        """An output that can be made.

        Args:
            prepared: of `prepare`.
            search: the options of the call.
            index: which output of a call for several this is.
            checks: of the output type, where they are made elsewhere.

        Raises:
            PromptError: the prompt is longer than the context.
            OptionError: an option does not fit the model or the prompt.
            BudgetTooSmall: fewer tokens left than any output of this type needs.
        """
        token_ids, model, constraint = prepared.token_ids, self.model, self.constraint
        if checks is None:
            checks = checks_for(self._checks, search, self.constraint)
        if not self.has_sections:
            return Generation(
                model, constraint, self._processor, token_ids, search, index=index, checks=checks
            )
        draft = None
        if self._draft is not None:
            most = self._draft.max_tokens or search.max_new_tokens
            if most is None:
                raise OptionError(
                    "draft= without max_new_tokens= would have no end. Pass max_new_tokens=, or "
                    "draft=Draft(max_tokens=...)."
                )
            draft = Drafted(self._free_text, most, prepared.request)
        return Sections(
            model,
            constraint,
            self._processor,
            token_ids,
            search,
            thoughts=self._thoughts,
            draft=draft,
            index=index,
            checks=checks,
        )

    @cached_property
    def _checks(self) -> Checks | None:
        return None if self.constraint is None else checks_of_constraint(self.constraint)


def checks_of_constraint(constraint: Constraint) -> Checks | None:
    """The checks of a compiled output type; None where no code looks at its values."""
    in_order = constraint.options.get("property_order", "schema") == "schema"
    return checks_of(constraint.output, in_order=in_order)


def checks_for(
    checks: Checks | None, search: SearchOptions, constraint: Constraint | None
) -> Checks | None:
    """What is checked while an output is written; None where nothing is.

    Args:
        checks: of the output type.
        search: the options of the call.
        constraint: the output type.

    Raises:
        OptionError: that does not go with the other options, or there is no output type.
    """
    if not search.retries:
        return None
    if constraint is None:
        raise OptionError("retries= needs an output type: free text has no checks.")
    if checks is not None and search.stop:
        raise OptionError(
            "stop= does not go with retries=: what a stop string cuts is not checked. Leave "
            "one of them out, or put the limit into the output type."
        )
    return checks


def _begins_the_answer(messages: Sequence[Mapping[str, Any]]) -> bool:
    return bool(messages[-1]["role"] == "assistant")
