"""A history of Haystack's as the messages of a chat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from haystack.dataclasses import ChatMessage, TextContent

from structgen.errors import OptionError

from ..frameworks import joined


def chat_of(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """The messages of a chat.

    Raises:
        OptionError: one has what no model that reads texts can be shown.
    """
    return joined(told for message in messages for told in _told(message))


def _told(message: ChatMessage) -> Iterator[dict[str, Any]]:
    if message.images or message.files:
        raise _no_text("An image or a file")
    if message.tool_call_results:
        for result in message.tool_call_results:
            content = result.result
            if not isinstance(content, str):
                if not all(isinstance(part, TextContent) for part in content):
                    raise _no_text(f"The result of {result.origin.tool_name}")
                content = "\n".join(part.text for part in content if isinstance(part, TextContent))
            yield {"role": "tool", "content": content, "tool_call_id": result.origin.id}
        return
    told: dict[str, Any] = {"role": message.role.value, "content": "\n\n".join(message.texts)}
    if message.name is not None:
        told["name"] = message.name
    if message.reasoning is not None:
        told["reasoning_content"] = message.reasoning.reasoning_text
    if message.tool_calls:
        told["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.tool_name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False),
                },
            }
            for call in message.tool_calls
        ]
    yield told


def _no_text(what: str) -> OptionError:
    return OptionError(f"{what} is not supported: models of structgen read text.")
