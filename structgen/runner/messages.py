"""Messages of a chat, as OpenAI's API has them, and as chat templates take them.

Owns what may be in a message and what is wrong with one. Which messages a chat has is the request's
business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, StrictInt, StrictStr, field_validator, model_validator

from .fields import Many, Part, Wrong, check_json


class TextPart(Part):
    """A part of a message's content. Only texts are supported."""

    type: Literal["text"] = "text"
    text: StrictStr


class CalledFunction(Part):
    """What a call calls: a name, and its arguments as JSON text."""

    name: StrictStr
    arguments: StrictStr

    @field_validator("arguments")
    @classmethod
    def _in_bounds(cls, text: str) -> str:
        try:
            check_json(text)
        except ValueError as error:
            raise Wrong(f"{error}.") from None
        return text


class MessageToolCall(Part):
    """A call in an earlier answer of the assistant's."""

    id: StrictStr | None = None
    type: Literal["function"] = "function"
    function: CalledFunction
    index: StrictInt | None = None


class Message(Part):
    """One message of a chat.

    Attributes:
        role: who says it; ``developer`` is ``system``.
        content: text, or parts of text, which are put together.
        name: who says it by name, for templates that know names.
        tool_calls: calls in an earlier answer of the assistant's.
        tool_call_id: which call this is the result of, with the role ``tool``.
        reasoning_content: what the assistant thought, for templates that show it.
        refusal: as answers have it: None.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: StrictStr | Many[TextPart] | None = None
    name: StrictStr | None = None
    tool_calls: Many[MessageToolCall] | None = None
    tool_call_id: StrictStr | None = None
    reasoning_content: StrictStr | None = None
    refusal: None = None
    annotations: list[Any] | None = Field(default=None, max_length=0)
    audio: None = None
    function_call: None = None

    @field_validator("content", mode="before")
    @classmethod
    def _only_text(cls, content: Any) -> Any:
        if isinstance(content, (list, tuple)):
            for index, part in enumerate(content):
                kind = part.get("type") if isinstance(part, Mapping) else None
                if isinstance(kind, str) and kind != "text":
                    raise Wrong(
                        f"parts of type {kind!r} are not supported: models read text. Pass "
                        '{"type": "text", "text": ...}.',
                        index,
                        "type",
                    )
            return list(content)
        return content

    @model_validator(mode="after")
    def _is_whole(self) -> Message:
        if self.tool_calls and self.role != "assistant":
            raise Wrong(f"a message of the {self.role} has no calls.", "tool_calls")
        if self.tool_call_id is not None and self.role != "tool":
            raise Wrong("only a message with the role 'tool' has it.", "tool_call_id")
        if self.content is None and not self.tool_calls:
            raise Wrong("there is none. Pass a text.", "content")
        return self

    @property
    def text(self) -> str:
        """What is said."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""

    def for_template(self) -> dict[str, Any]:
        """The message as chat templates take it."""
        role = "system" if self.role == "developer" else self.role
        message: dict[str, Any] = {"role": role, "content": self.text}
        for name in ("name", "tool_call_id", "reasoning_content"):
            value = getattr(self, name)
            if value is not None:
                message[name] = value
        if self.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id or f"call{index:05}",
                    "type": "function",
                    "function": {
                        "name": call.function.name,
                        "arguments": _arguments(call.function.arguments),
                    },
                }
                for index, call in enumerate(self.tool_calls)
            ]
        return message


def _arguments(text: str) -> Any:
    """Arguments as templates want them: as a value, where they are JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def as_dict(message: Any) -> Any:
    """An answer's message, or one of another library, as a dict."""
    if isinstance(message, BaseModel) and not isinstance(message, Message):
        return message.model_dump(exclude_none=True)
    return message
