"""The task of a remote generator: a model, an output type in the server's form, and prompts.

A call is checked before anything is sent; its prompts and options become exchanges of one or
several outputs. Here are the names under which options are sent, and the reasons why some cannot be
sent. Knows no client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from structgen.automaton.json import ReadLimits
from structgen.constraint import Constraint
from structgen.constraint import compile as compile_constraint
from structgen.decoding import SearchOptions, Several, chat
from structgen.decoding import options as search_options
from structgen.errors import OptionError, PromptError, StructgenError
from structgen.media import openai_part
from structgen.options import OPTIONS
from structgen.types import OutputType

from .dialects import STANDARD, Dialect
from .exchange import Exchange, Question, Replies
from .reading import BYTES
from .sending import Sent, sent

_FOR_TYPES = ReadLimits.__optional_keys__.union(
    ("dialect", "documents", "format_assertion", "closed", "on_unsupported")
)
"""Compile options that say what a type is, not how it is written."""

_CHECKING = {
    "whitespace": "flexible",
    "max_whitespace": 10_000,
    "property_order": "any",
    "spelling": "any",
    "max_digits": 1_000,
    "max_depth": 1_000,  # deeper ones make a long path for each event of their reader
}


def checking_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the compile options for validating answers: every way that JSON may be written.

    Raises:
        OptionError: an option is unknown, or is about how JSON is written.
    """
    for name, value in options.items():
        if name in ("think", "draft", "processor") and value is None:
            continue
        if name == "with_schema_hint":
            if value is False or value is None:
                continue
            raise OptionError(
                "with_schema_hint= is not supported for a remote model: its server decides how "
                "the model sees the schema. Write the schema into the prompt."
            )
        if name in ("think", "draft"):
            raise OptionError(
                f"{name}= is not supported for a remote model: its server decides what comes "
                "before an answer. The reasoning of such models is in result.reasoning."
            )
        if name == "processor":
            raise OptionError(f"processor= is not supported: {OPTIONS[name].remote}", option=name)
        if name in _CHECKING or name in ("ensure_ascii", "indent"):
            raise OptionError(
                f"{name}= is not supported for a remote model: its server decides how JSON is "
                "written. structgen reads every form."
            )
        if name not in _FOR_TYPES:
            misplaced = search_options.misplaced({name: options[name]})
            raise OptionError(misplaced or f"{name}= is not supported for a remote model.")
    kept = {name: value for name, value in options.items() if name in _FOR_TYPES}
    return {**_CHECKING, **kept}


def messages_of(prompt: Any) -> list[dict[str, Any]]:
    """Return the messages of a prompt; a text becomes a message of the user. Pictures and sounds
    are included.

    Raises:
        PromptError: it is empty or malformed, or ends with an answer to be continued.
    """
    parsed = chat.parse(prompt)
    if isinstance(parsed, str):
        return [{"role": "user", "content": parsed}]
    if parsed[-1]["role"] == "assistant":
        raise PromptError(
            "The last message is the assistant's, but servers begin a new one after it. End with "
            "a message of the user or a tool."
        )
    return [
        {**message, "content": [openai_part(one) for one in message["content"]]}
        if chat.media_of([message])
        else message
        for message in parsed
    ]


def arguments_of(
    given: Mapping[str, Any], search: SearchOptions, dialect: Dialect, index: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a request and its extra body, from the options of a call.

    Args:
        given: the options that were passed.
        search: the same options, checked.
        dialect: the server's dialect.
        index: the number of this output in a call for several.

    Raises:
        OptionError: an option cannot be sent.
    """
    arguments: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name in given:
        option = OPTIONS[name]
        if given[name] is None or name in ("logprobs", "top_logprobs"):
            if given[name] is not None and not dialect.has_logprobs:
                raise _no_option(name, dialect)
            continue
        if option.remote is None:
            continue
        if isinstance(option.remote, str):
            raise OptionError(
                f"{name}= is not supported for a remote model: {option.remote}", option=name
            )
        if dialect.servers not in option.remote:
            raise _no_option(name, dialect)
        value = getattr(search, name)
        if name == "seed":
            value += index
        if name == "logit_bias":
            value = {str(token): _bias(token, added) for token, added in value.items()}
        there = option.remote[dialect.servers]
        (arguments if there in STANDARD else extra)[there] = value
    if search.stop:
        if dialect.servers == "openai" and len(search.stop) > 4:
            raise OptionError(f"stop= has {len(search.stop)} strings; OpenAI accepts at most 4.")
        arguments["stop"] = list(search.stop)
    if search.do_sample is False:
        arguments["temperature"] = 0
    if search.logprobs:
        arguments["logprobs"] = True
        if search.top_logprobs > 20:
            raise OptionError(
                f"top_logprobs={search.top_logprobs} is too large: servers return at most 20."
            )
        if search.top_logprobs:
            arguments["top_logprobs"] = search.top_logprobs
    return arguments, extra


def _no_option(name: str, dialect: Dialect) -> OptionError:
    has = [
        other
        for other, option in OPTIONS.items()
        if (option.remote is None and (dialect.has_logprobs or "logprobs" not in other))
        or (isinstance(option.remote, Mapping) and dialect.servers in option.remote)
    ]
    return OptionError(
        f"{name}= is not supported in the dialect {dialect.name!r}: its servers have no such "
        f"option. Supported: {', '.join(sorted(has))}.",
        option=name,
    )


def _bias(token: int, added: float) -> float:
    if added == -math.inf:
        return -100
    if not -100 <= added <= 100:
        raise OptionError(
            f"logit_bias[{token}]={added:g} is out of range. Servers accept -100 to 100."
        )
    return added


MAX_RETRIES = 20


class Served:
    """A model behind a server."""

    def __init__(
        self, client: Any, name: str, dialect: Dialect, request: Mapping[str, Any]
    ) -> None:
        self.client = client
        self.name = name
        self.dialect = dialect
        self.request = request

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, dialect={self.dialect.name!r})"


class Task:
    """The task of a remote generator. Immutable, shared by threads."""

    def __init__(self, model: Served, output_type: Any, options: Mapping[str, Any]) -> None:
        """Compile a type, to validate answers.

        Raises:
            OptionError: an option does not go with a remote model.
            OutputTypeError: the type cannot be enforced, or the dialect cannot express it.
        """
        compiled = checking_options(options)
        if isinstance(output_type, Constraint):
            raise OptionError(
                "A compiled constraint is for a vocabulary, but a remote model has none here. "
                "Pass the output type itself."
            )
        if output_type is None and options:
            raise OptionError(f"{', '.join(options)} requires an output type.")
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
        """Return the options of a call, checked.

        Raises:
            OptionError: an option is unknown or out of range, or cannot be sent.
        """
        search = search_options.parse(options)
        arguments_of(options, search, self.model.dialect)
        if search.retries and self.constraint is None:
            raise OptionError("retries= requires an output type: free text is never wrong.")
        if search.retries > MAX_RETRIES:
            raise OptionError(
                f"retries={search.retries:,} is out of range. Each is a request: at most "
                f"{MAX_RETRIES}."
            )
        return search

    def question(
        self, prompt: Any, search: SearchOptions, given: Mapping[str, Any], index: int
    ) -> Question:
        """Return the question for one output.

        Raises:
            PromptError: the prompt is empty or malformed.
            OptionError: an option cannot be sent.
        """
        arguments, extra = arguments_of(given, search, self.model.dialect, index)
        own = {"model": self.model.name, "messages": messages_of(prompt)}
        arguments = {**self.model.request, **own, **arguments}
        return Question(self.constraint, self.sent, arguments, extra, search)

    def one(self, prompt: Any, options: Mapping[str, Any], *, is_stream: bool = False) -> Exchange:
        """Return the exchange for one output.

        Raises:
            OptionError: an option is for several outputs, or impossible in a stream.
        """
        search = self.search(options)
        if is_stream:
            if (
                Several.are_asked(prompt, search) and prompt
            ):  # an empty list raises an error of its own
                raise OptionError("stream returns one output: pass one prompt and no n=.")
            if search.retries:
                raise OptionError(
                    "retries= is not supported in a stream, which cannot take back what it "
                    "returned. Call parse or result."
                )
        return Exchange(self.question(prompt, search, options, 0), is_stream=is_stream)

    def many(
        self, several: Several, search: SearchOptions, given: Mapping[str, Any]
    ) -> dict[int, Exchange]:
        """Begin a call for several outputs; return the exchanges by place, without those that
        failed at once."""
        n = search.n or 1
        if n > 1 and (search.do_sample is False or search.temperature == 0):
            raise OptionError(
                f"n={n} outputs of a greedy call would be the same. Pass temperature= to sample."
            )
        exchanges: dict[int, Exchange] = {}
        replies = Replies(len(several.asks))
        for place, (prompt, index) in enumerate(several.asks):
            try:
                question = self.question(prompt, search, given, index)
                exchanges[place] = Exchange(question, replies=replies)
            except StructgenError as error:
                several.fail(place, error)
        return exchanges

    def __repr__(self) -> str:
        what = "free text" if self.output is None else self.output.name
        return f"Generator({self.model!r}, {what})"
