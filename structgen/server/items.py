"""Items of the Responses API as chat messages, and the beginning of an answer.

`shapes` defines the items; the input has been validated with it.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any


def new_id(prefix: str) -> str:
    """Return a new unique id."""
    return prefix + secrets.token_hex(16)


BEGUN: dict[str, Any] = {
    "status": "in_progress",
    "completed_at": None,
    "error": None,
    "incomplete_details": None,
    "output": [],
    "usage": None,
}
"""The fields of an answer that has only begun."""


def response_of(echo: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer that has only begun, with no model; ``echo``: fields of the request."""
    head = {"id": new_id("resp_"), "object": "response", "created_at": int(time.time())}
    return {**head, **BEGUN, "model": "", **echo}


def text_part(text: str, logprobs: list[Any] | None = None) -> dict[str, Any]:
    """Return a part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs or []}


def usage_of(usage: Any) -> dict[str, Any]:
    """Return the usage of a chat in the Responses API's form."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.prompt_tokens_details.cached_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {
            "reasoning_tokens": usage.completion_tokens_details.reasoning_tokens
        },
        "total_tokens": usage.total_tokens,
    }


def items_of(given: Any) -> list[dict[str, Any]]:
    """Return a checked ``input`` as items, each with type and id."""
    if given is None:
        return []
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    items = [
        {**item, "type": item.get("type") or "message", "id": item.get("id") or new_id("msg_")}
        for item in given
    ]
    for item in items:
        if isinstance(text := item.get("content"), str):  # clients read the parts
            is_answer = item["role"] == "assistant"
            part = text_part(text) if is_answer else {"type": "input_text", "text": text}
            item["content"] = [part]
    return items


def messages_in(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return items as chat messages; consecutive calls are one message."""
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
            message = {"role": item["role"], "content": _content(item["content"])}
        if thought and message["role"] == "assistant":
            message["reasoning_content"] = thought
        thought = None
        found.append(message)
    return found


def _content(content: Any) -> Any:
    """Return the content of a message: its text, or its parts if some are pictures."""
    if isinstance(content, str) or all(part["type"] != "input_image" for part in content):
        return _joined(content)
    return [
        {"type": "image_url", "image_url": {"url": part["image_url"]}}
        if part["type"] == "input_image"
        else {"type": "text", "text": text_of(part)}
        for part in content
    ]


def _joined(content: Any) -> str:
    """Return the text of a content, or of its parts."""
    if isinstance(content, str):
        return content
    return "".join(text_of(part) for part in content)


def text_of(part: Any) -> str:
    """Return the text of a part for the model."""
    if part["type"] == "input_json":
        return json.dumps(part["data"], ensure_ascii=False)
    text: str = part["text"]
    return text
