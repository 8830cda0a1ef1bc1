"""The shapes of the Responses API's answers: the answer, its items, their parts, its usage."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any


def new_id(prefix: str) -> str:
    """An id that nothing else has."""
    return prefix + secrets.token_hex(16)


def response_of(echo: Mapping[str, Any], model: str) -> dict[str, Any]:
    """An answer that has only begun; ``echo``: what was asked."""
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "usage": None,
        **echo,
    }


def text_part(text: str, logprobs: list[Any] | None = None) -> dict[str, Any]:
    """A part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs or []}


def message_item(id_: str, parts: list[dict[str, Any]], status: str) -> dict[str, Any]:
    """A message of the assistant's."""
    return {
        "type": "message",
        "id": id_,
        "role": "assistant",
        "status": status,
        "content": parts,
    }


def reasoning_item(id_: str, text: str | None, status: str) -> dict[str, Any]:
    """A thought."""
    content = [] if text is None else [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": id_, "summary": [], "content": content, "status": status}


def call_item(id_: str, call_id: str, name: str, arguments: str, status: str) -> dict[str, Any]:
    """A call that the model asks for."""
    return {
        "type": "function_call",
        "id": id_,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def usage_of(usage: Any) -> dict[str, Any]:
    """Tokens of a chat, as they are called here."""
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
