"""A request of the Responses API, as the chat that it is.

Owns its fields: ``text.format`` is ``response_format``, flattened, as are tools; what each is
called in errors, and which are not supported. Knows no storage and no HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from structgen.runner import ChatRequest

from .input_items import items_of, messages_in
from .settings import Settings
from .wire import Asked, asked, refused

HARMLESS = (
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
)
"""Fields that change no answer; ``metadata`` comes back with it."""

_SAME = (
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

_INCLUDED = "message.output_text.logprobs"

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
    left = dict(body)
    chat: dict[str, Any] = {name: left.pop(name) for name in _SAME if name in left}
    given = left.pop("input", None)
    items = items_of(given)
    new = messages_in(items)
    messages = [*before, *new]
    if not messages:
        raise refused("input: there is none. Pass a text, or a list of items.", "input", "missing")
    instructions = _text(left, "instructions")
    head = [{"role": "system", "content": instructions}] if instructions is not None else []
    chat["messages"] = [*head, *messages]
    if left.get("max_output_tokens") is not None:
        chat["max_tokens"] = left["max_output_tokens"]
    _text_format(left.get("text"), chat)
    tools = _tools(left.get("tools"))
    if tools is not None:
        chat["tools"] = [
            {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}
            for tool in tools
        ]
    _choice(chat)
    effort = _reasoning(left.get("reasoning"))
    if effort is not None:
        chat["reasoning_effort"] = effort
    _logprobs(left, chat)
    truncation = left.get("truncation")
    if truncation not in (None, "auto", "disabled"):
        raise refused("truncation is auto or disabled.", "truncation", "invalid_value")
    if truncation == "auto":
        chat["truncate_sequence"] = True
    flags = {name: _flag(left, name) for name in ("stream", "store", "background")}
    _stream_options(left.get("stream_options"))
    metadata = left.get("metadata")
    known = {
        "instructions", "max_output_tokens", "text", "tools", "reasoning", "include",
        "top_logprobs", "truncation", "stream", "store", "background", "stream_options",
        "previous_response_id", *HARMLESS,
    }  # fmt: skip
    for name in left:
        if name not in known and left[name] is not None:
            raise refused(f"{name} is not supported.", name)
    if flags["stream"] and flags["background"]:
        raise refused("stream and background exclude each other.", "stream", "invalid_value")
    if flags["background"] and flags["store"] is False:
        raise refused("background needs store=true.", "background", "invalid_value")
    chat["stream"] = bool(flags["stream"])
    for name in ("metadata", "user"):
        if left.get(name) is not None:
            chat[name] = left[name]
    work = asked(ChatRequest, chat, settings, rename=_renamed)
    work.request = ChatRequest.of(work.request, {"stream_options": {"include_usage": True}})
    format_ = (left.get("text") or {}).get("format") or {"type": "text"}
    echo = {
        "background": bool(flags["background"]),
        "instructions": instructions,
        "max_output_tokens": left.get("max_output_tokens"),
        "metadata": metadata or {},
        "parallel_tool_calls": chat.get("parallel_tool_calls") is not False,
        "previous_response_id": left.get("previous_response_id"),
        "reasoning": {"effort": effort, "summary": None},
        "store": flags["store"] is not False,
        "temperature": chat.get("temperature"),
        "text": {"format": format_},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": tools or [],
        "top_logprobs": left.get("top_logprobs") or 0,
        "top_p": chat.get("top_p"),
        "truncation": truncation or "disabled",
        "user": left.get("user"),
    }
    return Turn(work, messages, items, echo, flags["store"] is not False, bool(flags["background"]))


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


def _flag(left: Mapping[str, Any], name: str) -> bool | None:
    value = left.get(name)
    if value is not None and not isinstance(value, bool):
        raise refused(f"{name} is true or false.", name, "invalid_value")
    return value


def _text(left: Mapping[str, Any], name: str) -> str | None:
    value = left.get(name)
    if value is not None and not isinstance(value, str):
        raise refused(f"{name} is a text.", name, "invalid_value")
    return value


def _object(value: Any, name: str, known: set[str]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise refused(f"{name} is an object.", name, "invalid_value")
    for key, one in value.items():
        if key not in known and one is not None:
            raise refused(f"{name}.{key} is not supported.", f"{name}.{key}")
    return value


def _stream_options(value: Any) -> None:
    if _object(value, "stream_options", {"include_obfuscation"}).get("include_obfuscation"):
        raise refused(
            "stream_options.include_obfuscation is not supported.",
            "stream_options.include_obfuscation",
        )


def _text_format(value: Any, chat: dict[str, Any]) -> None:
    text = _object(value, "text", {"format", "verbosity"})
    if text.get("verbosity") is not None:
        chat["verbosity"] = text["verbosity"]
    given = text.get("format")
    if given is None:
        return
    if not isinstance(given, dict):
        raise refused("text.format is an object.", "text.format", "invalid_value")
    if given.get("type") == "json_schema":
        inner = {k: v for k, v in given.items() if k != "type" and v is not None}
        chat["response_format"] = {"type": "json_schema", "json_schema": inner}
    else:
        chat["response_format"] = given


def _tools(value: Any) -> list[dict[str, Any]] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise refused("tools is a list.", "tools", "invalid_value")
    found = []
    for index, tool in enumerate(value):
        at = f"tools[{index}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind != "function":
            raise refused(f"{at}.type: {kind!r} is not supported. It is 'function'.", f"{at}.type")
        made = {"description": None, "parameters": None, "strict": False, **tool}
        if made["parameters"] is None:
            made["parameters"] = {"type": "object", "properties": {}}
        if made["strict"] is None:
            made["strict"] = False
        found.append(made)
    return found


def _choice(chat: dict[str, Any]) -> None:
    """A flattened ``tool_choice``, as chats have it."""
    choice = chat.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function" and "name" in choice:
        chat["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}


def _reasoning(value: Any) -> Any:
    given = _object(value, "reasoning", {"effort", "summary", "generate_summary"})
    for name in ("summary", "generate_summary"):
        if given.get(name) not in (None, "auto"):
            raise refused(
                f"reasoning.{name} is not supported: the thought is there as it is.",
                f"reasoning.{name}",
            )
    return given.get("effort")


def _logprobs(left: Mapping[str, Any], chat: dict[str, Any]) -> None:
    include = left.get("include") or []
    if not isinstance(include, list):
        raise refused("include is a list.", "include", "invalid_value")
    for index, one in enumerate(include):
        if one != _INCLUDED:
            raise refused(f"include[{index}]: {one!r} is not supported.", f"include[{index}]")
    if include or left.get("top_logprobs"):
        chat["logprobs"] = True
    if left.get("top_logprobs") is not None:
        chat["top_logprobs"] = left["top_logprobs"]
