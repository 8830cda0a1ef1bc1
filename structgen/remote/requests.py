"""Requests: what a call asks for, in the words of a server.

Owns which options travel under which names, which cannot, and why; and the messages of a prompt.
Knows nothing of answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from structgen.decoding import SearchOptions, chat
from structgen.decoding import options as search_options
from structgen.errors import OptionError, PromptError

from .dialects import STANDARD, Dialect

_HERE = frozenset(
    ("timeout", "cancel", "n", "batch_size", "return_errors", "retries", "stop", "do_sample")
)
_ELSEWHERE = {
    "max_length": "a remote server counts the tokens of prompts itself. Pass max_new_tokens=.",
    "min_length": "a remote server is not told how long a text has to be at least. Say it in the "
    "type: Regex, or minLength.",
    "no_repeat_ngram_size": "servers have no such option.",
    "processor": "scores are chosen from on the server, where no function of yours runs.",
    "trace": "steps happen on the server, which does not tell of them.",
    "abstain_below": "that takes the model's scores of whole values, which servers do not give. "
    "Look at result.logprobs.",
    "best": "that takes the model's scores of whole values, which servers do not give.",
    "forced": "how text is written is the server's business.",
    "special_tokens": "the server applies the chat template.",
    "adapter": "adapters are the server's: pass their name as the model's to from_openai.",
}
"""Options that remote models do not have, and why."""

_FOR_TYPES = frozenset(
    (
        "dialect",
        "documents",
        "format_assertion",
        "on_unsupported",
        "max_work",
        "max_mask_work",
        "max_memory_bytes",
    )
)
"""Compile options that say what a type is, and not how it is written."""

_CHECKING = {
    "whitespace": "flexible",
    "max_whitespace": 10_000,
    "property_order": "any",
    "spelling": "any",
    "max_digits": 1_000,
    "max_depth": None,
}


def checking_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The compile options for validating answers: every way that JSON may be written.

    Raises:
        OptionError: one of ``options`` is about how JSON is written, or is none.
    """
    for name, value in options.items():
        if name in ("think", "draft", "processor") and value is None:
            continue
        if name == "with_schema_hint":
            if value is False or value is None:
                continue
            raise OptionError(
                "with_schema_hint= is not possible with a remote model: its server decides what "
                "the model is told of the schema that it gets. Write the schema into the prompt."
            )
        if name in ("think", "draft"):
            raise OptionError(
                f"{name}= is not possible with a remote model: its server decides what comes "
                "before an answer. Models that reason by themselves give it as result.reasoning."
            )
        if name == "processor":
            raise OptionError(f"processor= is not possible: {_ELSEWHERE['processor']}")
        if name in _CHECKING or name == "ensure_ascii":
            raise OptionError(
                f"{name}= is not possible with a remote model: its server decides how JSON is "
                "written. Every way is understood."
            )
        if name not in _FOR_TYPES:
            misplaced = search_options.misplaced(options)
            raise OptionError(misplaced or f"Unknown option {name!r} of a generator.")
    kept = {name: value for name, value in options.items() if name in _FOR_TYPES}
    return {**_CHECKING, **kept}


def messages_of(prompt: Any) -> list[dict[str, Any]]:
    """The messages of a prompt: a text is what a user says.

    Raises:
        PromptError: it is empty or malformed, or ends with an answer that is to go on.
    """
    parsed = chat.parse(prompt)
    if isinstance(parsed, str):
        return [{"role": "user", "content": parsed}]
    if parsed[-1]["role"] == "assistant":
        raise PromptError(
            "The last message is the assistant's, and servers begin a new one after it. End with "
            "a message of the user's or of a tool's."
        )
    return parsed


def arguments_of(
    given: Mapping[str, Any], search: SearchOptions, dialect: Dialect, index: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of a request and its extra body, from the options of a call.

    Args:
        given: the options as they were given, to tell which were.
        search: the same, checked.
        dialect: the server's.
        index: which output of a call for several this is.

    Raises:
        OptionError: one of them does not travel.
    """
    arguments: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name in given:
        if given[name] is None or name in _HERE:
            continue
        name = "random_seed" if name == "seed" else name
        if name in _ELSEWHERE:
            raise OptionError(f"{name}= is not possible with a remote model: {_ELSEWHERE[name]}")
        if name in ("logprobs", "top_logprobs"):
            if not dialect.has_logprobs:
                raise OptionError(_no_option(name, dialect))
            continue
        if name not in dialect.options:
            raise OptionError(_no_option(name, dialect))
        value = getattr(search, name)
        if name == "random_seed":
            value += index
        if name == "logit_bias":
            value = {str(token): _bias(token, added) for token, added in value.items()}
        there = dialect.options[name]
        (arguments if there in STANDARD else extra)[there] = value
    if search.stop:
        if dialect.name.startswith("openai") and len(search.stop) > 4:
            raise OptionError(f"stop= has {len(search.stop)} strings, and OpenAI takes 4 at most.")
        arguments["stop"] = list(search.stop)
    if search.do_sample is False:
        arguments["temperature"] = 0
    if search.logprobs:
        arguments["logprobs"] = True
        if search.top_logprobs > 20:
            raise OptionError(
                f"top_logprobs={search.top_logprobs} is more than servers give: 20 at most."
            )
        if search.top_logprobs:
            arguments["top_logprobs"] = search.top_logprobs
    return arguments, extra


def _no_option(name: str, dialect: Dialect) -> str:
    has = [*dialect.options, "stop", "timeout", "cancel", "retries"]
    has += ["logprobs", "top_logprobs"] if dialect.has_logprobs else []
    return (
        f"{name}= is not possible in the dialect {dialect.name!r}: its servers have no such "
        f"option. They have: {', '.join(sorted(has))}."
    )


def _bias(token: int, added: float) -> float:
    if added == -math.inf:
        return -100
    if not -100 <= added <= 100:
        raise OptionError(
            f"logit_bias[{token}]={added:g} is out of range. Servers take -100 to 100."
        )
    return added
