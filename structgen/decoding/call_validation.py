"""Checks of a call against the model and the output type, before anything runs.

These are the checks that need more than the options: the prompt's tokens, the budget, loaded
adapters, and whether a value can be uncertain. Knows no steps or sequences; `generation` makes the
output.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from structgen.constraint import Constraint
from structgen.decoding import chat
from structgen.decoding.chat import Prompt, TokenPrompt
from structgen.decoding.chat_tokens import encode_chat, encode_text, too_long
from structgen.decoding.options import SearchOptions
from structgen.decoding.tools import with_calls, with_text, with_tools
from structgen.errors import OptionError, PromptError
from structgen.insight import may_have_sites, suggestion
from structgen.media import MARKS, Media, marked
from structgen.models.base import (
    MediaPrompt,
    Model,
    Passes,
    Perceived,
    TokenSequence,
    after_start,
    joined,
    most_characters,
    passes,
)
from structgen.sampling import TokenIds
from structgen.types import ToolsOffered

_SLICE = 4_096  # characters
_SPARE = 1.25  # times the tokens: texts in slices have a few more

P = TypeVar("P", str, list[dict[str, Any]], TokenPrompt)


def messages_of(
    model: Model, prompt: Prompt, offered: ToolsOffered | None = None, instructions: str = ""
) -> tuple[str | list[dict[str, Any]], Sequence[Mapping[str, Any]] | None, Sequence[Media]]:
    """Return a prompt as the model gets it: text, or messages and the tools for the template; and
    the pictures and sounds that the messages' marks represent.

    Args:
        model: the model.
        prompt: text; or chat messages.
        offered: the tools that a chat describes.
        instructions: further text for the system message of a chat.

    Raises:
        PromptError: empty or malformed.
    """
    parsed = chat.parse(prompt)
    if isinstance(parsed, str):
        return parsed, None, ()
    parsed, media = marked(parsed)
    parsed = with_calls(model, parsed)
    if instructions:
        parsed = with_text(model, parsed, instructions)
    return *with_tools(model, parsed, offered), media


def encode(
    model: Model,
    prompt: Prompt,
    special_tokens: str = "template",
    constraint: Constraint | None = None,
    *,
    bounded: bool = False,
) -> TokenIds:
    """Return the tokens of a prompt, int32 ``[n]``, by `messages_of` and `tokens_of`; ``bounded``:
    check first that it may fit."""
    offered = None if constraint is None else constraint.output.offered
    parsed, tools, media = messages_of(model, prompt, offered)
    seen = model.perceive(media) if media else None
    times = _SPARE if bounded else math.inf
    token_ids = tokens_of(model, parsed, special_tokens, tools=tools, times=times, seen=seen)
    return token_ids if seen is None else seen.in_prompt(token_ids)[0]


def tokens_of(
    model: Model,
    parsed: str | list[dict[str, Any]],
    special_tokens: str = "template",
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    times: float = _SPARE,
    seen: Perceived | None = None,
) -> TokenIds:
    """Return the tokens of a prompt, int32 ``[n]``, through the chat template if it is a chat.

    Picture or sound ``i`` is the one number ``-1 - i`` among them.

    Args:
        model: the model.
        parsed: the result of `messages_of`: text, in which special tokens are read, after the
            model's `start_ids` unless it begins with them; or chat messages.
        special_tokens: where special tokens are read in a chat: see `SearchOptions`.
        tools: the tools that the template describes.
        times: the most tokens, as a multiple of the model's context; infinity: no limit.
        seen: its pictures and sounds.

    Raises:
        PromptError: the prompt has no tokens, or cannot fit.
    """
    check = functools.partial(check_may_fit, model, times=times) if times < math.inf else None
    if isinstance(parsed, str):
        if check is not None:
            check(parsed)
        token_ids = after_start(model.start_ids, model.encode(parsed))
    else:
        anywhere = special_tokens == "anywhere"
        around = () if seen is None else seen.around
        marks = {mark: mark.join(texts) for mark, texts in zip(MARKS, around, strict=False)}
        token_ids = encode_chat(
            model, parsed, tools=tools, anywhere=anywhere, check=check, marks=marks
        )
    if not len(token_ids):
        raise PromptError("The prompt is empty: it has no tokens.")
    return token_ids


def encode_pieces(model: Model, pieces: Sequence[tuple[str, bool]]) -> TokenIds:
    """Return the tokens of a text in pieces, int32 ``[n]``, after the `start_ids`.

    Args:
        model: the model.
        pieces: the pieces of the text, each with whether special tokens are read in it.

    Raises:
        PromptError: the text is empty or not a text, or cannot fit.
    """
    text = "".join(piece for piece, _ in pieces)
    check_may_fit(model, text)
    chat.parse(text)
    return after_start(model.start_ids, encode_text(model, pieces))


def opening(
    model: Model,
    prompt_ids: TokenIds,
    adapter: str | None,
    media: MediaPrompt | None,
    before: Sequence[int],
    room: int,
) -> Passes[tuple[TokenSequence, int]]:
    """Begin a sequence on a prompt and some tokens after it, pass by pass.

    Args:
        model: the model.
        prompt_ids: the result of `encode`.
        adapter: the adapter to run with, or None.
        media: the prompt's pictures and sounds, or None.
        before: the tokens after the prompt.
        room: the most tokens to come after these.

    Returns:
        The sequence, and how many tokens fit after it: ``room``, or fewer if the context ends
            before.
    """
    token_ids = joined(prompt_ids, before)
    room = min(room, model.context_length - len(token_ids))
    length = len(token_ids) + room
    sequence = model.start(length, prefix=token_ids, adapter=adapter, media=media)
    try:
        # At least two tokens, as in a call without a prefix: see `models.genai.sequences`.
        first = max(min(sequence.make_room(length), len(token_ids) - 2), 0)
        sequence.rewind(first)
        for piece in passes(token_ids[first:], model.pace.longest_pass):
            yield
            sequence.append(piece)
    except BaseException:
        sequence.close()
        raise
    return sequence, room


def check_fits(model: Model, prompt_tokens: int, wanted: int | None = None) -> None:
    """Check that a prompt leaves room for an output of up to ``wanted`` tokens.

    Raises:
        PromptError: it does not.
    """
    context = model.context_length
    if prompt_tokens >= context:
        excess = prompt_tokens - context + (wanted if wanted and wanted < context else 1)
        raise PromptError(
            f"The prompt has {prompt_tokens:,} tokens, but the limit of {model.name} is "
            f"{context:,} for prompt and output. Shorten it by at least {excess:,} tokens.",
            is_too_long=True,
        )


def part_that_may_fit(
    model: Model, text: str, times: float = _SPARE, *, at_end: bool = False
) -> str:
    """Return the beginning of a text, or its end, with somewhat more tokens than fit into a model's
    context.

    Args:
        model: the model.
        text: any text; returned unchanged if it has no more tokens.
        times: a multiple of the model's context.
        at_end: whether to return the end.

    Cost: that of tokenizing the returned part, slice by slice; nothing for up to 4,096 characters.
    """
    size, kept, room = len(text), 0, model.context_length * times
    while _SLICE < size > kept and room >= 0:
        end = size - kept if at_end else kept + _SLICE
        piece = text[max(end - _SLICE, 0) : end]
        room -= len(model.encode(piece))
        kept += len(piece)
    if not kept:
        return text
    return text[size - kept :] if at_end else text[:kept]


def check_may_fit(model: Model, text: str, times: float = _SPARE) -> None:
    """Check that a prompt is not too long to fit, before tokenizing it, which may take seconds.

    Args:
        model: the model.
        text: the whole text to tokenize; for a chat, the rendered template.
        times: as for `part_that_may_fit`, which has the same cost.

    Raises:
        PromptError: it cannot fit.
    """
    _check_length(model, text)
    if len(part_that_may_fit(model, text, times)) < len(text):
        n_tokens = len(model.encode(text[:_SLICE])) * len(text) // _SLICE
        raise too_long(model, f"about {n_tokens:,} tokens")


def _check_length(model: Model, text: str) -> None:
    """Check that a prompt may fit, whichever tokens it has."""
    length, context = len(text), model.context_length
    most = most_characters(context, model.vocabulary.trie.max_depth)
    if length >= most:
        raise too_long(model, f"at least {length * context // most:,} tokens")


def that_may_fit(model: Model, parsed: P, *, cuts: bool) -> P:
    """Return a prompt whose texts may fit, whichever tokens they have.

    Args:
        model: the model, which may be in another process.
        parsed: a text, chat messages, or a `TokenPrompt`, which is not changed.
        cuts: whether to drop the beginning of a text, or the oldest messages, if it is too long.

    Raises:
        PromptError: it cannot fit, and must not be cut.
    """

    def text(messages: list[dict[str, Any]]) -> str:
        return "".join(one["content"] for one in messages if isinstance(one["content"], str))

    if isinstance(parsed, TokenPrompt):
        return parsed
    if not cuts:
        _check_length(model, parsed if isinstance(parsed, str) else text(parsed))
        return parsed
    most = most_characters(model.context_length, model.vocabulary.trie.max_depth) - 1
    if isinstance(parsed, str):
        return parsed[-most:]
    return chat.without_oldest(parsed, lambda messages: len(text(messages)) - most)


def check_adapter(model: Model, adapter: str | None) -> None:
    """Check that a requested adapter is loaded.

    Raises:
        OptionError: it is not.
    """
    if adapter is not None and adapter not in model.adapters:
        loaded = ", ".join(sorted(model.adapters)) or "none"
        raise OptionError(
            f"adapter={adapter!r} is not loaded (loaded: {loaded}). First load it with "
            "load_adapter of the model or of its Runner.",
            option="adapter",
            value=adapter,
        )


def check_values(constraint: Constraint | None, search: SearchOptions) -> None:
    """Check ``abstain_below`` and ``best`` against the output type.

    Raises:
        OptionError: no output of the type has such values, or ``best`` is combined with an option
            that it does not support.
    """
    for option in ("abstain_below", "best"):
        asks = getattr(search, option)
        if asks is None or asks is False:
            continue
        if constraint is None or not may_have_sites(constraint):
            what = "free text" if constraint is None else constraint.output.name
            raise OptionError(
                f"{option}= requires a value with few alternatives, which {what} does not have: a "
                "value in JSON or a whole output, not in a template, tag or tool call.",
                option=option,
            )
        found = suggestion(constraint, asks) if isinstance(asks, Mapping) else None
        if found is not None:
            raise OptionError(
                f"abstain_below has {found[0]!r}, but no output of {constraint.output.name} has a "
                f"value with few alternatives there. {found[1]}",
                option="abstain_below",
                value=asks,
            )
    if search.retries and constraint is not None and constraint.has_temperatures:
        raise OptionError(
            "retries= cannot be combined with temperature= of a grammar's rules. Remove one.",
            option="retries",
        )
    for name in ("retries", "stop"):
        if search.best and getattr(search, name):
            raise OptionError(
                f"{name}= cannot be combined with best=. Remove one of them.", option="best"
            )


def budget(model: Model, prompt_tokens: int, search: SearchOptions) -> int:
    """Return how many tokens a call may generate, the end of the sequence included; at least 1.

    Raises:
        PromptError: the prompt is longer than the context.
        OptionError: ``max_length`` is more than the context, or less than the prompt; or
            ``max_new_tokens`` is more than the prompt leaves of the context.
    """
    check_fits(model, prompt_tokens, search.max_new_tokens)
    context = model.context_length
    if search.max_length is not None and search.max_length > context:
        raise OptionError(
            f"max_length={search.max_length:,} exceeds the limit of {model.name}: {context:,} "
            "tokens for prompt and output.",
            option="max_length",
            value=search.max_length,
        )
    most = search.max_new_tokens
    if most is not None and prompt_tokens + most > context:
        raise OptionError(
            f"max_new_tokens={most:,} is too large for {model.name}: its limit is {context:,} "
            f"tokens for prompt and output, and the prompt has {prompt_tokens:,}. Pass at most "
            f"{context - prompt_tokens:,}, or omit it to use all that is left.",
            option="max_new_tokens",
            value=most,
        )
    # A call that sets a length is not bound by the default length in the model's folder.
    default = context if most is not None else model.search_defaults.get("max_length", context)
    limit = search.max_length or min(int(default), context)
    if prompt_tokens >= limit:
        raise OptionError(
            f"max_length is {limit:,} tokens and counts the prompt, which has {prompt_tokens:,}. "
            "Raise it, or use max_new_tokens, which counts the output only.",
            option="max_length",
        )
    left = limit - prompt_tokens
    return left if most is None else min(left, most)
