"""The input of the Responses API and of decisions: items, and the messages of a chat that they are.

Owns which kinds of items there are, and what each may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .output_items import new_id
from .wire import refused


def items_of(given: Any) -> list[dict[str, Any]]:
    """The input as items, each with its type."""
    if given is None:
        return []
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise refused("input is a text, or a list of items.", "input", "invalid_value")
    found = []
    for index, item in enumerate(given):
        if not isinstance(item, dict):
            raise refused(f"input[{index}] is no object.", f"input[{index}]", "invalid_value")
        kind = item.get("type") or ("message" if "role" in item else None)
        if not isinstance(kind, str) or kind not in _KNOWN:
            raise refused(
                f"input[{index}].type: {kind!r} is not supported. It is one of "
                f"{', '.join(_KNOWN)}.",
                f"input[{index}].type",
            )
        for name, value in item.items():
            if name not in _KNOWN[kind] and value is not None:
                raise refused(f"input[{index}].{name} is not supported.", f"input[{index}].{name}")
        found.append({**item, "type": kind, "id": item.get("id") or new_id("msg_")})
        if not isinstance(found[-1]["id"], str):
            raise refused(f"input[{index}].id is a text.", f"input[{index}].id", "invalid_value")
    return found


_ROLES = ("user", "assistant", "system", "developer")

_KNOWN = {
    "message": {"type", "id", "role", "content", "status", "phase"},
    "function_call": {"type", "id", "call_id", "name", "arguments", "status"},
    "function_call_output": {"type", "id", "call_id", "output", "status"},
    "reasoning": {"type", "id", "summary", "content", "status"},
}
"""Kinds of items, and what each may have."""


def messages_of(given: Any) -> list[dict[str, Any]]:
    """An ``input`` as messages of a chat.

    Raises:
        ApiError: an item is unknown or wrong.
    """
    return messages_in(items_of(given))


def messages_in(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items as messages of a chat: calls in a row are one message."""
    found: list[dict[str, Any]] = []
    thought: str | None = None
    for index, item in enumerate(items):
        at = f"input[{index}]"
        kind = item["type"]
        if kind == "reasoning":
            thought = _joined(item.get("content") or [], f"{at}.content", ("reasoning_text",))
            continue
        if kind == "function_call_output":
            output = item.get("output")
            text = output
            if not isinstance(output, str):
                text = _joined(output, f"{at}.output", ("input_text",))
            found.append(
                {"role": "tool", "tool_call_id": _named(item, "call_id", at), "content": text}
            )
            continue
        message: dict[str, Any]
        if kind == "function_call":
            call = {
                "id": _named(item, "call_id", at),
                "type": "function",
                "function": {
                    "name": _named(item, "name", at),
                    "arguments": _named(item, "arguments", at),
                },
            }
            last = found[-1] if found else {}
            if last.get("role") == "assistant" and thought is None:
                last.setdefault("tool_calls", []).append(call)
                continue
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        else:
            content = item.get("content")
            if not isinstance(content, str):
                content = _joined(content, f"{at}.content", ("input_text", "output_text", "text"))
            role = item.get("role")
            if not isinstance(role, str) or role not in _ROLES:
                raise refused(f"{at}.role: {role!r} is not supported.", f"{at}.role")
            message = {"role": role, "content": content}
        if thought and message["role"] == "assistant":
            message["reasoning_content"] = thought
        thought = None
        found.append(message)
    return found


def _named(item: Mapping[str, Any], name: str, at: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise refused(f"{at}.{name} is a text.", f"{at}.{name}", "invalid_value")
    return value


def _joined(parts: Any, at: str, kinds: tuple[str, ...]) -> str:
    """The texts of parts of a content."""
    if not isinstance(parts, list):
        raise refused(f"{at} is a text, or a list of parts.", at, "invalid_value")
    texts = []
    for index, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in kinds or not isinstance(part.get("text"), str):
            raise refused(
                f"{at}[{index}]: parts of type {kind!r} are not supported. They are "
                f"{' or '.join(kinds)}, with a text.",
                f"{at}[{index}].type",
            )
        texts.append(part["text"])
    return "".join(texts)


def said_in(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Output items as messages, for the turn after."""
    return messages_in([{**item} for item in output])
