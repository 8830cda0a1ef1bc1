"""A request of the Responses API, as the chat that it is.

Owns its fields: ``text.format`` is ``response_format``, flattened, as are tools; what each is
called in errors. Knows no storage and no HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from structgen.runner import ChatRequest

from .input_items import items_of, messages_in
from .settings import Settings
from .shapes import ResponsesBody
from .wire import Asked, asked, check_many, read, refused

SAME = (
    "model",
    "temperature",
    "top_p",
    "tool_choice",
    "parallel_tool_calls",
    "top_k",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "no_repeat_ngram_size",
    "logit_bias",
    "stop",
    "seed",
    "adapter",
    "timeout",
    "special_tokens",
    "abstain_below",
    "grammar",
    "grammar_type",
    "structured_outputs",
    "enable_thinking",
    "thinking_budget",
    "chat_template_kwargs",
)
"""Fields that are those of chats."""

_NAMES = {
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "truncate_sequence": "truncation",
    "logprobs": "include",
}
"""What fields of chats are called here."""


@dataclass(slots=True)
class Turn:
    """What is asked of a model, and what comes back beside the answer.

    Attributes:
        asked: the chat.
        messages: its messages but for the instructions: what the next turn goes on from.
        items: the items of the input.
        echo: fields of the answer that say what was asked.
        is_stored: whether the answer is kept.
        in_background: whether nobody waits for it.
    """

    asked: Asked[ChatRequest]
    messages: list[dict[str, Any]]
    items: list[dict[str, Any]]
    echo: dict[str, Any]
    is_stored: bool
    in_background: bool


def turn_of(body: Mapping[str, Any], before: list[dict[str, Any]], settings: Settings) -> Turn:
    """What a body asks.

    Args:
        body: the request.
        before: the messages of the answer that it goes on from.
        settings: the server's.

    Raises:
        ApiError: a field is unknown, unsupported or wrong.
    """
    chat: dict[str, Any] = {name: body[name] for name in SAME if name in body}
    left = {name: value for name, value in body.items() if name not in SAME}
    check_many(left.get("input"), "input", settings.max_inputs)
    given = read(ResponsesBody, left)
    items = items_of(left.get("input"))
    messages = [*before, *messages_in(items)]
    if not messages:
        raise refused("input: there is none. Pass a text, or a list of items.", "input", "missing")
    head = []
    if given.instructions is not None:
        head = [{"role": "system", "content": given.instructions}]
    chat["messages"] = [*head, *messages]
    if given.max_output_tokens is not None:
        chat["max_tokens"] = given.max_output_tokens
    format_ = (left.get("text") or {}).get("format")
    if format_ is not None:
        chat["response_format"] = _format(format_)
    if given.text is not None and given.text.verbosity is not None:
        chat["verbosity"] = given.text.verbosity
    tools = None if left.get("tools") is None else [_tool(tool) for tool in left["tools"]]
    if tools is not None:
        chat["tools"] = [
            {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}
            for tool in tools
        ]
    _choice(chat)
    effort = None if given.reasoning is None else given.reasoning.effort
    if effort is not None:
        chat["reasoning_effort"] = effort
    if given.include or given.top_logprobs:
        chat["logprobs"] = True
    if given.top_logprobs is not None:
        chat["top_logprobs"] = given.top_logprobs
    if given.truncation == "auto":
        chat["truncate_sequence"] = True
    is_stored, in_background = given.store is not False, bool(given.background)
    if in_background and not is_stored:
        raise refused("background needs store=true.", "background", "invalid_value")
    chat["stream"] = bool(given.stream)
    work = asked(ChatRequest, chat, settings, rename=_renamed)
    work.request = ChatRequest.of(work.request, {"stream_options": {"include_usage": True}})
    echo = {
        "background": in_background,
        "instructions": given.instructions,
        "max_output_tokens": given.max_output_tokens,
        "metadata": given.metadata or {},
        "parallel_tool_calls": chat.get("parallel_tool_calls") is not False,
        "previous_response_id": given.previous_response_id,
        "reasoning": {"effort": effort, "summary": None},
        "store": is_stored,
        "temperature": chat.get("temperature"),
        "presence_penalty": chat.get("presence_penalty") or 0,
        "frequency_penalty": chat.get("frequency_penalty") or 0,
        "text": {"format": format_ or {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": tools or [],
        "top_logprobs": given.top_logprobs or 0,
        "top_p": chat.get("top_p"),
        "truncation": given.truncation or "disabled",
        "user": given.user,
        "safety_identifier": given.safety_identifier,
        "prompt_cache_key": given.prompt_cache_key,
        "service_tier": "default",
        "max_tool_calls": None,
    }
    return Turn(work, messages, items, echo, is_stored, in_background)


def _renamed(param: str) -> str:
    """What a field of a chat is called here."""
    if param.startswith("messages"):
        return "input"
    if param.startswith("tools["):
        return param.replace("].function", "]", 1)
    if param.startswith("tool_choice.function"):
        return param.replace(".function", "", 1)
    for ours, theirs in _NAMES.items():
        if param == ours or param.startswith((f"{ours}.", f"{ours}[")):
            return theirs + param[len(ours) :]
    return param


def _format(given: dict[str, Any]) -> dict[str, Any]:
    """A flattened ``text.format``, as chats have it."""
    inner = {name: value for name, value in given.items() if name != "type" and value is not None}
    if given["type"] == "json_schema":
        return {"type": "json_schema", "json_schema": inner}
    return {"type": given["type"]}


def _tool(given: Mapping[str, Any]) -> dict[str, Any]:
    """A tool with all of its fields."""
    fields = {name: value for name, value in given.items() if value is not None}
    none = {"type": "object", "properties": {}}
    return {"description": None, "parameters": none, "strict": False, **fields}


def _choice(chat: dict[str, Any]) -> None:
    """A flattened ``tool_choice``, as chats have it."""
    choice = chat.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function" and "name" in choice:
        chat["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
