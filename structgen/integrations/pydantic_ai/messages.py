"""A history of pydantic-ai's as the messages of a chat.

Owns which part becomes what; instructions stand with the system's first messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    CachePoint,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from ..frameworks import joined

Chat = list[dict[str, Any]]


def chat_of(
    messages: Sequence[ModelMessage], instructions: Sequence[InstructionPart] | None
) -> Chat:
    """The messages of a chat.

    Raises:
        UserError: a part is none that a model which reads texts can be shown.
    """
    told: Chat = []
    for message in messages:
        if isinstance(message, ModelResponse):
            told.append(_answer(message))
        else:
            told += _request(message)
    leading = 0
    while leading < len(told) and told[leading]["role"] == "system":
        leading += 1
    more = [{"role": "system", "content": part.content} for part in instructions or ()]
    return joined([*told[:leading], *more, *told[leading:]])


def _request(message: ModelRequest) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, SystemPromptPart):
            yield {"role": "system", "content": part.content}
        elif isinstance(part, UserPromptPart):
            yield {"role": "user", "content": _user(part)}
        elif isinstance(part, ToolReturnPart):
            if part.files:
                raise _no_text(f"A file in the result of {part.tool_name}")
            yield {
                "role": "tool",
                "tool_call_id": part.tool_call_id,
                "content": part.model_response_str(),
            }
        else:
            raise UserError(
                f"{type(part).__name__} is nothing that a model can be shown as it is. Pass "
                "model.prepare_messages(messages), as an Agent does."
            )


def _user(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content
    texts = []
    for item in part.content:
        if isinstance(item, (str, TextContent)):
            texts.append(item if isinstance(item, str) else item.content)
        elif not isinstance(item, CachePoint):  # prompts are kept by themselves
            raise _no_text(f"{type(item).__name__} in a user's message")
    return "\n\n".join(texts)


def _no_text(what: str) -> UserError:
    return UserError(f"{what} is not supported: models of structgen read text.")


def _answer(message: ModelResponse) -> dict[str, Any]:
    """An earlier answer; what only another provider's models can read of it is left out."""
    texts, thoughts, calls = [], [], []
    for part in message.parts:
        if isinstance(part, TextPart):
            texts.append(part.content)
        elif isinstance(part, ThinkingPart):
            thoughts.append(part.content)
        elif isinstance(part, ToolCallPart):
            function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
            calls.append({"id": part.tool_call_id, "type": "function", "function": function})
    told: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts)}
    if thoughts:
        told["reasoning_content"] = "\n\n".join(thoughts)
    if calls:
        told["tool_calls"] = calls
    return told
