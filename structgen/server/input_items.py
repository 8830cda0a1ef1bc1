"""The input of the Responses API and of decisions: items, as the messages of a chat.

Which items there are, and what each may have, is `shapes`' business: they are checked.
"""

from __future__ import annotations

import json
from typing import Any

from .output_items import new_id


def items_of(given: Any) -> list[dict[str, Any]]:
    """An ``input`` that was checked as items, each with its type and id."""
    if given is None:
        return []
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [
        {**item, "type": item.get("type") or "message", "id": item.get("id") or new_id("msg_")}
        for item in given
    ]


def messages_in(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items as messages of a chat: calls in a row are one message."""
    found: list[dict[str, Any]] = []
    thought: str | None = None
    for item in items:
        kind = item["type"]
        if kind == "reasoning":
            thought = _joined(item.get("content") or [])
            continue
        if kind == "function_call_output":
            text = _joined(item["output"])
            found.append({"role": "tool", "tool_call_id": item["call_id"], "content": text})
            continue
        message: dict[str, Any]
        if kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            last = found[-1] if found else {}
            if last.get("role") == "assistant" and thought is None:
                last.setdefault("tool_calls", []).append(call)
                continue
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        else:
            message = {"role": item["role"], "content": _joined(item["content"])}
        if thought and message["role"] == "assistant":
            message["reasoning_content"] = thought
        thought = None
        found.append(message)
    return found


def _joined(content: Any) -> str:
    """The text of a content, or of its parts."""
    if isinstance(content, str):
        return content
    return "".join(text_of(part) for part in content)


def text_of(part: Any) -> str:
    """What the model reads of a part."""
    if part["type"] == "input_json":
        return json.dumps(part["data"], ensure_ascii=False)
    text: str = part["text"]
    return text
