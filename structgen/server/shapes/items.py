"""Items: what the input of the Responses API and of decisions is a list of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, StrictStr, Tag

from structgen.runner import Many

from .base import Body, kind_of, tag_of

Status = Literal["in_progress", "completed", "incomplete"]


class InputText(Body):
    """A text."""

    type: Literal["input_text", "text"]
    text: StrictStr


class OutputText(Body):
    """A text of the assistant's, as answers have it."""

    type: Literal["output_text"]
    text: StrictStr
    annotations: Many[Any] | None = None
    logprobs: Many[Any] | None = None


class InputJson(Body):
    """A value, which the model reads as JSON."""

    type: Literal["input_json"]
    data: dict[str, Any] | Many[dict[str, Any]]


class ReasoningText(Body):
    """A thought."""

    type: Literal["reasoning_text"]
    text: StrictStr


_PARTS = ("input_text", "text", "output_text", "input_json")


def _part(given: Any) -> Any:
    return kind_of(given, _PARTS)


def _part_tag(given: Any) -> str:
    kind = tag_of(given)
    return "input_text-part" if kind == "text-part" else kind


Part: TypeAlias = Annotated[
    Annotated[InputText, Tag("input_text-part")]
    | Annotated[OutputText, Tag("output_text-part")]
    | Annotated[InputJson, Tag("input_json-part")],
    Discriminator(_part_tag),
    BeforeValidator(_part),
]
"""A part of a message."""


class MessageItem(Body):
    """A message."""

    type: Literal["message"] | None = "message"
    id: StrictStr | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: StrictStr | Many[Part]
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class CallItem(Body):
    """A call that the model asked for."""

    type: Literal["function_call"]
    id: StrictStr | None = None
    call_id: StrictStr
    name: StrictStr
    arguments: StrictStr
    status: Status | None = None


class CallOutputItem(Body):
    """What came of a call."""

    type: Literal["function_call_output"]
    id: StrictStr | None = None
    call_id: StrictStr
    output: StrictStr | Many[Part]
    status: Status | None = None


class ReasoningItem(Body):
    """A thought of the assistant's, before the message or calls after it."""

    type: Literal["reasoning"]
    id: StrictStr | None = None
    summary: Annotated[list[Any], Field(max_length=0)] | None = None
    content: Many[ReasoningText] | None = None
    status: Status | None = None


_ITEMS = ("message", "function_call", "function_call_output", "reasoning")


def _item(given: Any) -> Any:
    if isinstance(given, Mapping) and given.get("type") is None and "role" in given:
        return given
    return kind_of(given, _ITEMS)


def _item_tag(given: Any) -> str:
    kind = tag_of(given)
    return "message-part" if kind == "None-part" else kind


InputItem: TypeAlias = Annotated[
    Annotated[MessageItem, Tag("message-part")]
    | Annotated[CallItem, Tag("function_call-part")]
    | Annotated[CallOutputItem, Tag("function_call_output-part")]
    | Annotated[ReasoningItem, Tag("reasoning-part")],
    Discriminator(_item_tag),
    BeforeValidator(_item),
]
"""An item."""
