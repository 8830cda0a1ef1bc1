"""`with_schema_hint=`: what a chat tells of its output type, and where that is refused."""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs
import pytest
from fakes import FakeModel
from pydantic import BaseModel, Field

import structgen
from structgen import Generator, JsonSchema, OptionError, Regex

ASK = [{"role": "user", "content": "When?"}]


class Meeting(BaseModel):
    when: datetime.date
    who: str = Field(description="the host", max_length=4)


@attrs.define
class Pair:
    left: int
    right: int


class Heard(FakeModel):
    """A model that keeps what the template last got, with a context that a schema fits into."""

    def __init__(self, script: str = "") -> None:
        super().__init__(script, context_length=20_000)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        self.heard = "".join(f"<{one['role']}>{one['content']}" for one in messages)
        return super().apply_chat_template(messages, tools=tools)


def told(output_type: Any) -> str:
    """What the template gets to see of a chat with the hint."""
    model = Heard()
    Generator(model, output_type, with_schema_hint=True).result(ASK, max_new_tokens=400)
    return model.heard


def schema_in(text: str) -> Any:
    return json.JSONDecoder().raw_decode(text[text.index("{") :])[0]


def test_the_schema_is_as_pydantic_describes_the_class() -> None:
    text = told(Meeting)
    assert schema_in(text) == Meeting.model_json_schema()
    assert text.endswith("<user>When?")


def test_json_schemas_and_other_types_are_told_without_keywords_of_ours() -> None:
    given = {"type": "object", "properties": {"a": {"type": "integer"}}, "maxProperties": 2}
    assert schema_in(told(JsonSchema(given))) == given
    fields = schema_in(told(Pair))["properties"]
    assert [one["type"] for one in fields.values()] == ["integer", "integer"]
    assert "structgen" not in json.dumps(fields)


@pytest.mark.parametrize("output_type", [Regex("a+"), Literal["a", "b"], None])
def test_what_is_no_json_has_no_schema(output_type: Any) -> None:
    with pytest.raises(OptionError, match="with_schema_hint=True"):
        told(output_type)


def test_texts_and_other_values_are_refused() -> None:
    model = Heard()
    with pytest.raises(OptionError, match="with_schema_hint=True requires a chat"):
        Generator(model, Meeting, with_schema_hint=True)("When?", max_new_tokens=90)
    with pytest.raises(OptionError, match="with_schema_hint='yes' is not a bool"):
        Generator(model, Meeting, with_schema_hint="yes")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="Pass it to Generator"):
        Generator(model, Meeting)(ASK, with_schema_hint=True)  # type: ignore[call-overload]


def test_a_process_tells_the_same() -> None:
    name = "smollm2-135m-instruct"
    options: dict[str, Any] = {"max_new_tokens": 60}
    here = structgen.load(name)
    expected = Generator(here, Meeting, with_schema_hint=True).result(ASK, **options)
    plain = Generator(here, Meeting).result(ASK, **options)
    assert expected.usage.prompt_tokens > plain.usage.prompt_tokens + 50

    async def there() -> Any:
        async with await structgen.load_async(name) as model:
            return await Generator(model, Meeting, with_schema_hint=True).result(ASK, **options)

    found = asyncio.run(there())
    assert found.usage.prompt_tokens == expected.usage.prompt_tokens
    assert found.text == expected.text
