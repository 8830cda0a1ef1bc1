"""Prompts: what a caller may pass, what the model receives, and how a long prompt is truncated.

This module checks strings and chat messages. `without_oldest` drops the oldest turns of a chat,
each as a whole, and then the beginning of the last message. Templates belong to the model, tokens
to its tokenizer.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from structgen import media
from structgen.errors import PromptError, did_you_mean
from structgen.media import Audio, Image

ROLES = ("system", "developer", "user", "assistant", "tool")
"""The roles a chat message may have."""

_NAMES = {"human": "user", "ai": "assistant"}
"""Other libraries' names of roles."""

Message: TypeAlias = Mapping[str, Any]
"""One chat message: ``{"role": "user", "content": "Hello"}``."""


class ChatMessage(Protocol):
    """A message as an object."""

    @property
    def role(self) -> object:
        """The role of the speaker."""

    @property
    def content(self) -> object:
        """The text of the message."""


Chat: TypeAlias = "Sequence[Message | ChatMessage]"
"""The messages of a chat."""

Parts: TypeAlias = "list[str | Image | Audio] | tuple[str | Image | Audio, ...]"
"""Texts and pictures or sounds."""

Prompt: TypeAlias = "str | Chat | Parts | Image | Audio"
"""Text, passed to the model unchanged; or chat messages, which go through its chat template; or a
list of texts and pictures or sounds, which together are a user's message; or a single picture or
sound.

A message is a mapping with ``role`` and ``content``, or an object with those two attributes. The
content is a str, or a list of parts: ``{"type": "text", "text": ...}``, an `Image` or `Audio`, or
these in the format of OpenAI's API. None beside an assistant's ``tool_calls`` is the empty text. If
the last message is the assistant's, the answer continues its content.
"""


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A prompt as tokens, which the model gets unchanged, with nothing before them.

    Attributes:
        token_ids: the ids; at least one.
    """

    token_ids: tuple[int, ...]


Prompts: TypeAlias = "list[str] | tuple[str, ...] | Sequence[Chat | Parts] | list[Prompt]"
"""Several prompts. (``Sequence[Prompt]`` would include any str.)"""


def is_batch(prompt: Any) -> bool:
    """Return whether ``prompt`` is several prompts: a list of strings and of lists of messages."""
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, (str, bytes, bytearray))
        and len(prompt) > 0
        and all(
            isinstance(item, str)
            or (
                isinstance(item, Sequence)
                and not isinstance(item, (bytes, bytearray))
                and not _is_bare(item)
            )
            for item in prompt
        )
    )


def are_several(prompt: Any) -> bool:
    """Return whether a call with ``prompt`` is for several outputs; true for an empty list, too."""
    return is_batch(prompt) or (isinstance(prompt, (list, tuple)) and not prompt)


def check_several(prompts: Any) -> None:
    """Raise PromptError if ``prompts`` is a single prompt of any form."""
    if not are_several(prompts):
        raise PromptError(
            "batch takes a list of prompts, each a string or a list of messages. For one prompt, "
            "call parse or pass [prompt]."
        )


def _is_bare(item: Any) -> bool:
    """Return whether this is a bare role and texts, or another library's message with a role."""
    return (
        isinstance(item, (tuple, list))
        and len(item) >= 2
        and all(isinstance(part, str) for part in item)
        and item[0] in (*ROLES, *_NAMES)
    )


def kind(value: Any) -> str:
    """Name a value's type with its article, for messages: ``an int``."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def parse(prompt: Any) -> str | list[dict[str, Any]]:
    """Check ``prompt``: text is returned as it is, messages as a list of plain dicts.

    Other keys of a mapping are kept for templates that use them. A content is text or, with
    pictures or sounds, a tuple of these and of ``{"type": "text", ...}``. Parsing the result again
    does not change it.

    Raises:
        PromptError: empty, of the wrong type, or with a message that lacks a known role or text.
    """
    if isinstance(prompt, str):
        if not prompt:
            raise PromptError("The prompt is empty. Pass some text, or a list of chat messages.")
        _check_text(prompt, "The prompt")
        return prompt
    if isinstance(prompt, (Image, Audio)):
        prompt = [prompt]
    if isinstance(prompt, Mapping):
        raise PromptError("The prompt is a single message. Pass it in a list: [message].")
    if not isinstance(prompt, Sequence) or isinstance(prompt, (bytes, bytearray)):
        raise PromptError(
            f"The prompt is {kind(prompt)}. Pass a str, or a list of chat messages "
            'such as {"role": "user", "content": "Hello"}; several prompts in a list.'
        )
    if not prompt:
        raise PromptError("The prompt is an empty list. Pass at least one chat message.")
    if any(isinstance(item, (Image, Audio)) for item in prompt):
        parts = [media.openai_part(item) if isinstance(item, str) else item for item in prompt]
        prompt = [{"role": "user", "content": parts}]
    messages = [_message(index, item) for index, item in enumerate(prompt)]
    _check_number(len(media_of(messages)))
    if not any(message["content"] for message in messages):
        raise PromptError("The prompt is empty: no message has any content.")
    return messages


def _message(index: int, item: Any) -> dict[str, Any]:
    where = f"Message {index}"
    if isinstance(item, str):
        raise PromptError(
            f"{where} is a str. Pass messages such as "
            '{"role": "user", "content": "Hello"}, or one string as the whole prompt.'
        )
    if _is_bare(item):
        shape = "pair" if len(item) == 2 else f"{type(item).__name__} of {len(item)} strings"
        raise PromptError(
            f"{where} is a {shape}, {item!r}. Messages are mappings: "
            f'{{"role": "{_NAMES.get(item[0], item[0])}", "content": {item[1]!r}}}.'
        )
    values: dict[str, Any] = dict(item) if isinstance(item, Mapping) else {}
    for name in ("role", "content"):
        missing = object()
        if isinstance(item, Mapping):
            value = item.get(name, missing)
        else:
            value = getattr(item, name, missing)
        calls = values.get("role") == "assistant" and values.get("tool_calls")
        if name == "content" and (value is None or value is missing) and calls:
            value = ""  # an assistant's message that calls tools needs no text
        if value is missing:
            raise PromptError(
                f"{where} has no {name!r} (got {_shape(item)}). "
                'Pass messages such as {"role": "user", "content": "Hello"}.'
            )
        if name == "content" and isinstance(value, (list, tuple)):
            value = _joined(value, where)
            if not isinstance(value, str) and values.get("role", "user") != "user":
                raise PromptError(
                    f"{where} has the role {values['role']!r} and a picture or a sound. Only user "
                    "messages may have them."
                )
        if not isinstance(value, str) and not (name == "content" and isinstance(value, tuple)):
            advice = f" Pass a str as {name!r}."
            if value is None and name == "content":
                advice = (
                    ' Pass a str, "" for no text. None is allowed only in a mapping with the '
                    'role "assistant" and "tool_calls".'
                )
            raise PromptError(f"{where}: {name!r} is {kind(value)}, not a str.{advice}")
        values[name] = value
    role = values["role"]
    if role not in ROLES:
        hint = did_you_mean(role, ROLES) or f" Roles are: {', '.join(ROLES)}."
        raise PromptError(f"{where} has the unknown role {role!r}.{hint}")
    for name, value in values.items():
        if isinstance(value, str) or not _is_plain(value):
            _check_deep(value, where if name == "content" else f"{where}: {name!r}")
    return values


def _is_plain(value: Any) -> bool:
    """Return whether a value obviously passes `_check_deep`, which takes five times as long."""
    with suppress(TypeError, ValueError, RecursionError):  # not JSON, or not text
        written = json.dumps(value, ensure_ascii=False)
        return bool(written.encode()) and "\\u0000" not in written
    return False


def _check_deep(value: Any, where: str) -> None:
    """Check all strings of a value."""
    if isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _check_deep(key, where)
            _check_deep(inner, where)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_deep(inner, where)


def _joined(parts: Sequence[Any], where: str) -> str | tuple[Any, ...]:
    """Return the text of content in parts, or the parts if some are not text."""
    found: list[str | media.Media] = []
    n_media = 0
    for index, one in enumerate(parts):
        found.append(media.part(one, f"{where}: part {index} of its content"))
        n_media += not isinstance(found[-1], str)
        _check_number(n_media)
    if not n_media:
        return "".join(map(str, found))
    return tuple(media.openai_part(one) if isinstance(one, str) else one for one in found)


def media_of(messages: Sequence[Mapping[str, Any]]) -> list[media.Media]:
    """Return the pictures and sounds of parsed messages."""
    contents = [message["content"] for message in messages]
    parts = [part for content in contents if not isinstance(content, str) for part in content]
    return [part for part in parts if isinstance(part, (Image, Audio))]


def _check_number(n_media: int) -> None:
    if n_media > media.MOST_MEDIA:
        raise PromptError(
            f"The prompt has more than {media.MOST_MEDIA} pictures and sounds. Remove some."
        )


def _check_text(text: str, where: str) -> None:
    # The runtime's tokenizer takes C strings: it would silently drop what follows a NUL.
    nul = text.find("\0")
    if nul >= 0:
        raise PromptError(f"{where} has a NUL character at position {nul}. Remove it.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(
            f"{where} has a lone surrogate at position {error.start}, which is not text. Remove it."
        ) from None


def _shape(item: Any) -> str:
    if isinstance(item, Mapping):
        return f"keys {sorted(map(str, item))}" if item else "an empty mapping"
    return kind(item)


_Messages = list[dict[str, Any]]


def without_oldest(
    messages: _Messages,
    excess: Callable[[_Messages], int],
    length: Callable[[str, int], int] = lambda text, n: n,
) -> _Messages:
    """Return the messages without the fewest oldest ones, so that the rest fits.

    The system's messages and the last one stay. Turns are dropped as a whole: no answer without its
    question, no tool result without its call. If the last message alone is too long, its beginning
    is dropped.

    Args:
        messages: the messages of a chat, at least one.
        excess: returns by how many tokens messages are too long; 0 or less: they fit.
        length: returns the number of characters of a text's first tokens.

    Returns:
        The messages, which fit unless the system's alone do not.

    Cost: about 8 calls of ``excess``.
    """
    if excess(messages) <= 0:
        return messages
    head = [message for message in messages[:-1] if message["role"] == "system"]
    turns = [message for message in messages[:-1] if message["role"] != "system"]
    last = messages[-1]
    starts = [i for i, message in enumerate(turns) if message["role"] == "user"]
    starts = [start for start in starts if start > 0]
    first = bisect_left(starts, True, key=lambda start: excess([*head, *turns[start:], last]) <= 0)
    if first < len(starts):
        return [*head, *turns[starts[first] :], last]
    while (over := excess([*head, last])) > 0 and (text := str(last["content"])):
        last = {**last, "content": text[max(length(text, over), 1) :]}
    return [*head, last]
