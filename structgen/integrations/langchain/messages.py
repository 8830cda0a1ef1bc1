"""A history of LangChain's as the messages of a chat.

Owns which message, and which block of its content, becomes what.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from structgen.errors import OptionError

from ..frameworks import joined

_CALLS = frozenset({"tool_use", "tool_call", "tool_call_chunk", "function_call"})
"""Blocks that say again what a message's ``tool_calls`` say."""

_THOUGHTS = {"reasoning": "reasoning", "thinking": "thinking"}
"""Blocks that are thoughts, and where their texts are."""


def chat_of(messages: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    """The messages of a chat.

    Raises:
        OptionError: one has what no model that reads texts can be shown.
    """
    return joined(_told(message) for message in messages)


def _told(message: BaseMessage) -> dict[str, Any]:
    text, thoughts = _texts(message)
    told: dict[str, Any] = {"role": _role(message), "content": text}
    if isinstance(message, AIMessage):
        thoughts = message.additional_kwargs.get("reasoning_content") or thoughts
        if thoughts:
            told["reasoning_content"] = thoughts
        if message.tool_calls:
            told["tool_calls"] = [_call(one) for one in message.tool_calls]
    elif isinstance(message, ToolMessage):
        told["tool_call_id"] = message.tool_call_id
    elif message.name is not None:
        told["name"] = message.name
    return told


def _role(message: BaseMessage) -> str:
    if isinstance(message, ChatMessage):
        return message.role
    for kind, role in (
        (SystemMessage, "system"),
        (HumanMessage, "user"),
        (AIMessage, "assistant"),
        (ToolMessage, "tool"),
    ):
        if isinstance(message, kind):
            return role
    kinds = (FunctionMessage, RemoveMessage)
    what = type(message).__name__ if isinstance(message, kinds) else repr(message.type)
    raise OptionError(f"A message of the kind {what} is nothing that a model can be shown.")


def _call(call: Any) -> dict[str, Any]:
    arguments = json.dumps(call["args"], ensure_ascii=False)
    function = {"name": call["name"], "arguments": arguments}
    return {"id": call["id"], "type": "function", "function": function}


def _texts(message: BaseMessage) -> tuple[str, str]:
    """What a message says, and what it thinks."""
    if isinstance(message.content, str):
        return message.content, ""
    texts: list[str] = []
    thoughts: list[str] = []
    for block in message.content:
        kind = "text" if isinstance(block, str) else block.get("type")
        if isinstance(block, str):
            texts.append(block)
        elif kind == "text":
            texts.append(str(block["text"]))
        elif kind in _THOUGHTS:
            thoughts.append(str(block.get(_THOUGHTS[kind]) or ""))
        elif not (kind in _CALLS and isinstance(message, AIMessage) and message.tool_calls):
            raise OptionError(
                f"A block of the type {kind!r} is not supported: models of structgen read text."
            )
    return "".join(texts), "\n\n".join(thoughts)
