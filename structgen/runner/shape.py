"""What all answers of a Runner have in common: their wire form, ids, times and usage.

Owns that fields which only this package has are left out of the wire form where they have nothing
to say, and that those which OpenAI's clients expect are there, as null. Knows no kind of answer.
"""

from __future__ import annotations

import secrets
import time
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


def new_id(prefix: str) -> str:
    """An id that no other answer has."""
    return prefix + secrets.token_hex(12)


def now() -> int:
    """Seconds since 1970."""
    return int(time.time())


class Shape(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="forbid")

    _own: ClassVar[frozenset[str]] = frozenset()
    """Fields that are left out of the wire form where they are None."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema of the wire form: all fields are there but those that may be left out."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        schema["required"] = [name for name in cls.model_fields if name not in cls._own]
        return schema

    @model_serializer(mode="wrap")
    def _wire(self, handler: SerializerFunctionWrapHandler) -> Any:
        made = handler(self)
        return {k: v for k, v in made.items() if v is not None or k not in self._own}


# -- usage ------------------------------------------------------------------------------------


class PromptTokensDetails(Shape):
    """Of the prompt's tokens."""

    cached_tokens: int = 0


class CompletionTokensDetails(Shape):
    """Of the answer's tokens.

    Attributes:
        reasoning_tokens: those of thoughts, tags included.
        forced_tokens: those that were the only way on, and not chosen.
    """

    reasoning_tokens: int = 0
    forced_tokens: int = 0


class Usage(Shape):
    """Tokens and times of a request.

    Attributes:
        prompt_tokens: of the prompt, after the chat template.
        completion_tokens: of all outputs, thoughts included.
        total_tokens: of both.
        prompt_tokens_details: how many the model had seen before.
        completion_tokens_details: how many were thought, and how many forced.
        time_to_first_token: seconds from the request to the first text, waiting included.
        total_time: seconds to the end.
        tokens_per_second: completion tokens in that time.
    """

    _own = frozenset({"time_to_first_token", "total_time", "tokens_per_second"})

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails = Field(default_factory=PromptTokensDetails)
    completion_tokens_details: CompletionTokensDetails = Field(
        default_factory=CompletionTokensDetails
    )
    time_to_first_token: float | None = None
    total_time: float | None = None
    tokens_per_second: float | None = None
