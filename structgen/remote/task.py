"""What a remote generator asks: a model, an output type in its server's words, and questions.

Owns the checks of a call before anything is sent, and the way from prompts and options to the
exchanges of one output or several. Knows no client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from structgen.constraint import Constraint
from structgen.constraint import compile as compile_constraint
from structgen.decoding import SearchOptions, chat
from structgen.decoding import options as search_options
from structgen.errors import OptionError, StructgenError
from structgen.types import OutputType

from .dialects import Dialect
from .exchange import Exchange, Question
from .reading import BYTES
from .requests import arguments_of, checking_options, messages_of
from .sending import Sent, sent

MAX_RETRIES = 20


class Served(Protocol):
    """A model behind a server, as far as it matters to what is asked."""

    @property
    def name(self) -> str:
        """What the server calls it."""

    @property
    def dialect(self) -> Dialect:
        """How the server is told of types and options."""

    @property
    def request(self) -> Mapping[str, Any]:
        """What every request has beside."""


class Task:
    """What a remote generator asks. Immutable, shared by threads."""

    def __init__(
        self,
        model: Served,
        output_type: Any,
        options: Mapping[str, Any],
    ) -> None:
        """Compile a type, to validate answers.

        Raises:
            OptionError: an option does not go with a remote model.
            OutputTypeError: the type cannot be enforced, or the dialect cannot say it.
        """
        compiled = checking_options(options)
        if isinstance(output_type, Constraint):
            raise OptionError(
                "A compiled constraint is for a vocabulary, and a remote model has none here. Pass "
                "the output type itself."
            )
        if output_type is None and options:
            raise OptionError(f"{', '.join(options)}: only meaningful with an output type.")
        self.model = model
        self.constraint: Constraint[Any] | None = None
        if output_type is not None:
            self.constraint = compile_constraint(output_type, BYTES, **compiled)
        self.sent: Sent = sent(self.constraint, model.dialect, output_type)

    @property
    def output(self) -> OutputType[Any] | None:
        """The output type."""
        return None if self.constraint is None else self.constraint.output

    def search(self, options: Mapping[str, Any]) -> SearchOptions:
        """The options of a call, checked.

        Raises:
            OptionError: one of them is unknown, out of range or does not travel.
        """
        search = search_options.parse(options)
        arguments_of(options, search, self.model.dialect)
        if search.retries and self.constraint is None:
            raise OptionError("retries= needs an output type: free text is never wrong.")
        if search.retries > MAX_RETRIES:
            raise OptionError(
                f"retries={search.retries:,} is out of range. Each is a request: {MAX_RETRIES} at "
                "most."
            )
        return search

    def question(
        self, prompt: Any, search: SearchOptions, given: Mapping[str, Any], index: int
    ) -> Question:
        """What is asked for one output.

        Raises:
            PromptError: the prompt is empty or malformed.
            OptionError: an option does not travel.
        """
        arguments, extra = arguments_of(given, search, self.model.dialect, index)
        return Question(
            self.constraint,
            self.sent,
            {
                **self.model.request,
                "model": self.model.name,
                "messages": messages_of(prompt),
                **arguments,
            },
            extra,
            search,
        )

    def one(self, prompt: Any, options: Mapping[str, Any], *, is_stream: bool = False) -> Exchange:
        """The exchange for one output.

        Raises:
            OptionError: the options are for several, or for what a stream cannot do.
        """
        search = self.search(options)
        if is_stream:
            if chat.is_batch(prompt) or search.n is not None:
                raise OptionError("stream makes one output: it takes one prompt and no n=.")
            if search.retries:
                raise OptionError(
                    "retries= is not possible in a stream: what it has given out cannot be taken "
                    "back. Call parse or result."
                )
        return Exchange(self.question(prompt, search, options, 0), is_stream=is_stream)

    def many(
        self, prompts: Sequence[Any], search: SearchOptions, given: Mapping[str, Any]
    ) -> tuple[dict[int, Exchange], dict[int, Exception]]:
        """The exchanges of a call for several, by their places; and what failed at once."""
        n = search.n or 1
        if n > 1 and (search.do_sample is False or search.temperature == 0):
            raise OptionError(
                f"n={n} outputs of a greedy call would be the same. Pass temperature= to sample."
            )
        exchanges: dict[int, Exchange] = {}
        errors: dict[int, Exception] = {}
        for i, prompt in enumerate(prompts):
            for k in range(n):
                try:
                    question = self.question(prompt, search, given, k)
                    exchanges[i * n + k] = Exchange(question)
                except StructgenError as error:
                    errors[i * n + k] = error
        return exchanges, errors

    def __repr__(self) -> str:
        what = "free text" if self.output is None else self.output.name
        return f"Generator({self.model!r}, {what})"
