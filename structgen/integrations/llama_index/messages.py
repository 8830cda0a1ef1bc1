"""A history of LlamaIndex's as the messages of a chat.

Owns which role, and which block of a message, becomes what.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from structgen.errors import OptionError

from ..frameworks import joined

_ROLES = {"chatbot": "assistant", "model": "assistant", "function": "tool"}
"""Roles that chat templates call otherwise."""


def chat_of(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """The messages of a chat.

    Raises:
        OptionError: one has what no model that reads texts can be shown.
    """
    return joined(_told(message) for message in messages)


def _told(message: ChatMessage) -> dict[str, Any]:
    role = _ROLES.get(message.role.value, message.role.value)
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ThinkingBlock):
            thoughts.append(block.content or "")
        elif isinstance(block, ToolCallBlock):
            calls.append(_call(block))
        elif not isinstance(block, CachePoint):  # prompts are kept by themselves
            raise OptionError(
                f"A {type(block).__name__} is not supported: models of structgen read text."
            )
    told: dict[str, Any] = {"role": role, "content": "\n".join(texts)}
    if role == "tool":
        told["tool_call_id"] = message.additional_kwargs.get("tool_call_id")
    if role == "assistant":
        if any(thoughts):
            told["reasoning_content"] = "\n\n".join(thoughts)
        calls = calls or message.additional_kwargs.get("tool_calls") or []
        if calls:
            told["tool_calls"] = calls
    return told


def _call(block: ToolCallBlock) -> dict[str, Any]:
    given = block.tool_kwargs
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    function = {"name": block.tool_name, "arguments": arguments}
    return {"id": block.tool_call_id, "type": "function", "function": function}
