"""``/v1/responses`` and ``/v1/decisions``, asked by the official client."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Literal

import httpx
import openai
import pytest
from one_server import KEY, Served
from openai.types.responses import Response
from pydantic import BaseModel, Field

from structgen.server.errors import ApiError
from structgen.server.shapes import DecisionsBody
from structgen.server.store import Store, Stored
from structgen.server.wire import read

AUTH = {"Authorization": f"Bearer {KEY}"}


class Person(BaseModel):
    name: str = Field(max_length=12)
    mood: Literal["calm", "angry"]


WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


def create(client: openai.OpenAI, **fields: Any) -> Any:
    given = {"model": "small", "input": "Name a colour.", "temperature": 0, "max_output_tokens": 16}
    return client.responses.create(**{**given, **fields})


def test_pages_of_input_items(client: openai.OpenAI) -> None:
    """Clients read parts: a content that was sent as a text had none."""
    roles = "user", "assistant", "user"
    given = [{"role": role, "content": str(i)} for i, role in enumerate(roles)]
    listed = client.responses.input_items
    id_ = create(client, input=given, max_output_tokens=1).id
    page = listed.list(id_, order="asc", limit=2)

    def texts(items: Any) -> list[str]:
        return [item.content[0].text for item in items]

    assert texts(page.data) == ["0", "1"]
    assert texts(page) == ["0", "1", "2"]
    assert texts(listed.list(id_)) == ["2", "1", "0"]
    assert [type(item.content[0]).__name__ for item in page.data] == [
        "ResponseInputText",
        "ResponseOutputText",
    ]
    for query in ({"order": "up"}, {"limit": 0}, {"include": "x"}):
        with pytest.raises(openai.BadRequestError, match="not supported, or wrong"):
            listed.list(id_, extra_query=query)


def test_an_answer_is_kept_gone_on_from_and_forgotten(client: openai.OpenAI) -> None:
    made = create(client, max_output_tokens=3, metadata={"a": "b"}, instructions="Be short.")
    assert made.object == "response"
    assert made.status == "incomplete"
    assert made.incomplete_details.reason == "max_output_tokens"
    assert made.output_text
    assert made.usage.output_tokens == 3
    assert made.metadata == {"a": "b"}
    assert client.responses.retrieve(made.id).output_text == made.output_text
    (item,) = client.responses.input_items.list(made.id).data
    assert item.type == "message"
    more = create(client, input="And another?", previous_response_id=made.id)
    assert more.previous_response_id == made.id
    assert more.usage.input_tokens > made.usage.input_tokens
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, previous_response_id=made.id)
    assert caught.value.param == "previous_response_id"


def test_an_answer_says_how_it_was_made(client: openai.OpenAI, served: Served) -> None:
    given: Any = {"model": "small", "input": "Hi.", "max_output_tokens": 1}
    plain = client.responses.create(**given)
    assert (plain.temperature, plain.top_p) == (0, 1)  # the model's own: the likeliest token
    assert client.responses.create(**given, top_p=0.5).temperature == 1
    hot = client.responses.create(**given, temperature=0.7, extra_body={"presence_penalty": 1})
    assert (hot.temperature, hot.top_p, hot.to_dict()["presence_penalty"]) == (0.7, 1, 1)
    assert hot.service_tier == "default"
    for name in ("compact", "input_tokens"):
        answer = httpx.post(f"{served.root}/v1/responses/{name}", json={}, headers=AUTH, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_an_answer_is_its_owners(client: openai.OpenAI) -> None:
    made = create(client, max_output_tokens=2)
    other = client.with_options(api_key="sk-other")
    with pytest.raises(openai.NotFoundError):
        other.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        other.responses.delete(made.id)
    with pytest.raises(openai.BadRequestError):
        create(other, previous_response_id=made.id)
    assert client.responses.retrieve(made.id).id == made.id


def test_an_answer_that_is_not_kept(client: openai.OpenAI) -> None:
    made = create(client, max_output_tokens=2, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_instances(client: openai.OpenAI) -> None:
    made = client.responses.parse(model="small", input="A person.", text_format=Person)
    assert made.status == "completed"
    assert isinstance(made.output_parsed, Person)


def test_any_root(client: openai.OpenAI) -> None:
    for schema in ({"enum": ["yes", "no"]}, {"type": "array", "maxItems": 1}, True):
        text: Any = {"format": {"type": "json_schema", "name": "it", "schema": schema}}
        json.loads(create(client, text=text, max_output_tokens=64).output_text)
    json.loads(create(client, text={"format": {"type": "json_object"}}).output_text)


def test_calls_and_their_results(client: openai.OpenAI) -> None:
    made = create(
        client,
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=64,
    )
    (call,) = made.output
    assert call.type == "function_call"
    assert call.status == "completed"
    assert json.loads(call.arguments)["city"] in ("Oslo", "Rome")
    told = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    more = create(client, previous_response_id=made.id, input=[told], tools=[WEATHER],
                  tool_choice="none", max_output_tokens=4)  # fmt: skip
    assert more.output_text
    whole = [{"role": "user", "content": "Weather?"}, call.model_dump(), told]
    assert create(client, input=whole, max_output_tokens=4).output_text


def test_a_stream_has_typed_events(client: openai.OpenAI) -> None:
    whole = create(client)
    events = list(create(client, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        f"response.{whole.status}",
    ]
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens
    assert client.responses.retrieve(events[0].response.id).output_text == text


def test_a_stream_of_an_instance(client: openai.OpenAI) -> None:
    with client.responses.stream(model="small", input="A person.", text_format=Person) as stream:
        for _ in stream:
            pass
        made = stream.get_final_response()
    assert isinstance(made.output_parsed, Person)


def test_a_stream_of_a_call(client: openai.OpenAI) -> None:
    events = list(
        create(
            client,
            tools=[WEATHER],
            tool_choice={"type": "function", "name": "weather"},
            parallel_tool_calls=False,
            stream=True,
            max_output_tokens=64,
        )
    )
    added = [event for event in events if event.type == "response.output_item.added"]
    assert added[0].item.name == "weather"
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    (done,) = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert "".join(deltas) == done.arguments == events[-1].response.output[0].arguments


def test_thinking(client: openai.OpenAI) -> None:
    text: Any = {"format": {"type": "json_schema", "name": "it", "schema": {"const": "a"}}}
    for stream in (False, True):
        made = create(client, reasoning={"effort": "minimal"}, text=text, stream=stream,
                      max_output_tokens=32)  # fmt: skip
        made = list(made)[-1].response if stream else made
        assert [item.type for item in made.output] == ["reasoning", "message"]
        assert made.output[0].content[0].text
        assert made.usage.output_tokens_details.reasoning_tokens > 0
        again = create(client, input=[*made.output, {"role": "user", "content": "Why?"}],
                       max_output_tokens=2)  # fmt: skip
        assert again.output_text


def test_probabilities(client: openai.OpenAI) -> None:
    made = create(client, include=["message.output_text.logprobs"], top_logprobs=2)
    tokens = made.output[0].content[0].logprobs
    assert "".join(token.token for token in tokens) == made.output_text
    assert all(len(token.top_logprobs) == 2 for token in tokens)
    events = list(
        create(client, include=["message.output_text.logprobs"], top_logprobs=2, stream=True)
    )
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    told = [(token.token, token.logprob) for delta in deltas for token in delta.logprobs]
    assert told == [(token.token, token.logprob) for token in tokens]
    assert len([delta for delta in deltas if delta.logprobs]) > 1
    assert events[-1].response.output[0].content[0].logprobs == tokens


def test_an_answer_that_cannot_be_kept_is_told(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put = Store.put

    async def full(self: Store, stored: Stored) -> None:
        if stored.response["status"] != "queued":
            raise ApiError(503, "The disk is full.", code="storage")
        await put(self, stored)

    monkeypatch.setattr(Store, "put", full)
    made = create(client, background=True, max_output_tokens=3)
    while made.status in ("queued", "in_progress"):
        made = client.responses.retrieve(made.id)
    assert made.status == "incomplete"
    for _ in range(600):
        if f"cannot store the answer {made.id}: The disk is full." in caplog.text:
            break
        time.sleep(0.05)
    else:
        pytest.fail(caplog.text)


def test_in_the_background(client: openai.OpenAI) -> None:
    made = create(client, background=True, max_output_tokens=3)
    assert made.status == "queued"
    for _ in range(600):
        made = client.responses.retrieve(made.id)
        if made.status not in ("queued", "in_progress"):
            break
        time.sleep(0.05)
    assert made.status == "incomplete"
    assert made.output_text
    long = create(client, background=True, max_output_tokens=4000)
    assert client.responses.cancel(long.id).status == "cancelled"
    assert client.responses.retrieve(long.id).status == "cancelled"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"foo": 1}, "foo"),
        ({"conversation": "x"}, "conversation"),
        ({"input": [{"type": []}]}, "input[0].type"),
        ({"input": [{"role": {}, "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": "x", "id": 1}]}, "input[0].id"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
         "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
         "input[0].content[0].image_url"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         "input"),
        ({"input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": "http://localhost/x.png"}]}]},
         "input[0].content[0].image_url"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {
            "properties": {"x": {"pattern": "(a)\\1"}}}}}},
         "text.format.schema.properties.x.pattern"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "f", "parameters": {
            "properties": {"x": {"type": "banana"}}}}]}, "tools[0].parameters.properties.x.type"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"truncation": "some"}, "truncation"),
        ({"store": False, "background": True}, "background"),
        ({"temperature": -1}, "temperature"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"input": "a b " * 9000}, "input"),
        ({"input": []}, "input"),
    ],
)  # fmt: skip
def test_fields_are_named(client: openai.OpenAI, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/responses", body={"model": "small", "input": "x", **fields}, cast_to=object)
    assert caught.value.param == param


def test_asynchronous_client(served: Served) -> None:
    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=f"{served.root}/v1", api_key=KEY) as client:

            async def parsed() -> None:
                made = await client.responses.parse(
                    model="small", input="A person.", text_format=Person
                )
                assert isinstance(made.output_parsed, Person)

            async def streamed() -> None:
                stream = await client.responses.create(
                    model="small", input="Hi.", stream=True, max_output_tokens=4
                )
                last: Response | None = None
                async for event in stream:
                    last = getattr(event, "response", last)
                assert last is not None
                assert last.output_text

            await asyncio.gather(parsed(), streamed(), parsed())

    asyncio.run(main())


# -- decisions --------------------------------------------------------------------------------


def test_decisions(client: openai.OpenAI) -> None:
    made = client.decisions.create(
        model="small",
        input=[{"role": "user", "content": "I want my money back!"}],
        questions=[
            {"type": "predicate", "instructions": "Is it a complaint?", "name": "complaint"},
            {
                "type": "choice",
                "instructions": "Which team?",
                "choices": [{"value": "billing", "description": "money"}, {"value": "tech"}],
            },
            {"type": "choice", "instructions": "Polite?", "choices": [
                {"value": True}, {"value": False}]},
            {"type": "score", "instructions": "How angry?", "levels": [
                {"label": "calm"}, {"label": "furious"}]},
        ],
    )  # fmt: skip
    predicate, team, polite, anger = made.answers
    assert predicate.type == "predicate"
    assert predicate.name == "complaint"
    assert 0 <= predicate.probability <= 1
    assert team.type == polite.type == "choice"
    assert {one.value for one in team.probabilities} == {"billing", "tech"}
    assert polite.choice in (True, False)
    assert sum(one.probability for one in team.probabilities) == pytest.approx(1)
    assert anger.type == "score"
    assert isinstance(team.informative, bool)  # a field of ours, which the client keeps
    assert [one.label for one in anger.probabilities] == ["calm", "furious"]
    assert made.usage.total_tokens > 0
    criteria = {"true": "asks for money", "false": "asks for a recipe"}
    question: Any = {"type": "predicate", "instructions": "Money?", "criteria": criteria}
    told = client.decisions.create(
        model="vectors", input="I want my money back!", questions=[question]
    )
    assert told.answers[0].type == "predicate"
    assert told.answers[0].probability > 0.5


def test_decisions_call_questions_by_their_names(client: openai.OpenAI) -> None:
    team = {"type": "choice", "instructions": "Which team?", "choices": [
        {"value": "billing", "description": "money"}, {"value": "tech"}]}  # fmt: skip
    body: Any = {"model": "vectors", "input": "I want my money back!"}
    two = {"questions": [{**team, "name": "sure"}, {**team, "name": "team"}]}
    made: Any = client.post(
        "/decisions", body={**body, **two, "abstain_below": {"sure": 1}}, cast_to=object
    )
    assert [one["type"] for one in made["answers"]] == ["refusal", "choice"]
    for name, called in (("money", "'money'"), (None, r"'questions\[0\]'")):
        asked = {"type": "predicate", "instructions": "Money?", "name": name}
        with pytest.raises(openai.BadRequestError, match=f"{called}: an embedder cannot tell"):
            client.post("/decisions", body={**body, "questions": [asked]}, cast_to=object)


def test_what_decisions_have_read_before(client: openai.OpenAI) -> None:
    questions: Any = [
        {"type": "predicate", "instructions": "Is it so?"},
        {"type": "predicate", "instructions": [
            {"type": "input_text", "text": "Is it like "},
            {"type": "input_json", "data": {"a": [1]}}]},
    ]  # fmt: skip
    said = [{"type": "input_json", "data": {"text": "A very particular state. " * 8}}]
    given: Any = {"model": "small", "input": [{"role": "user", "content": said}]}
    given["extra_body"] = {"debias": "none"}  # what labels cost without a state is kept
    first = client.decisions.create(**given, questions=questions).usage
    again = client.decisions.create(**given, questions=questions).usage
    assert first.input_tokens == again.input_tokens == again.total_tokens
    assert first.input_tokens_details.cached_tokens < first.input_tokens // 2
    assert again.input_tokens // 2 < again.input_tokens_details.cached_tokens < again.input_tokens


def test_systemone(served: Served) -> None:
    body = {
        "model": "small",
        "state": {"text": "I want my money back!"},
        "questions": {
            "a": {"type": "noul", "instructions": "A complaint?", "criteria": {"true": "angry"}},
            "b": {"type": "choice", "instructions": "Team?", "criteria": {"x": "money", "y": None}},
            "c": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "furious"]},
        },
    }
    made = httpx.post(f"{served.root}/v1/systemone", json=body, headers=AUTH, timeout=60).json()
    answers = made["answers"]
    assert 0 <= answers["a"]["noul"] <= 1
    assert list(answers["b"]["probabilities"]) == ["x", "y"]
    assert answers["c"]["legend"] == {"0": "calm", "1": "furious"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"questions": []}, "questions"),
        ({"questions": [{"type": "noul", "instructions": "x"}]}, "questions[0].type"),
        ({"questions": [{"type": "predicate"}]}, "questions[0].instructions"),
        ({"questions": [{"type": "choice", "instructions": "x", "choices": [{"value": "a"}]}]},
         "questions[0].choices"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
         "input[0].content[0].type"),
        ({"foo": 1}, "foo"),
        ({"tolerance": 2}, "tolerance"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_decisions(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    good = {"model": "small", "input": "x", "questions": [
        {"type": "predicate", "instructions": "x"}]}  # fmt: skip
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/decisions", body={**good, **fields}, cast_to=object)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("fields", "field", "right"),
    [
        ({"type": "choice", "options": ["a", "b"]}, "options", '"choices": [{"value": '),
        ({"type": "choice", "options": {"a": "b"}}, "options", '"choices": [{"value": '),
        ({"type": "choice", "choices": ["a", "b"]}, "choices", '"choices": [{"value": '),
        ({"type": "choice", "choices": {"a": "b"}}, "choices", '"choices": [{"value": '),
        ({"type": "score", "levels": ["a", "b"]}, "levels", '"levels": [{"label": '),
    ],
)
def test_labels_in_structgen_s_own_form_are_told_openai_s(
    fields: dict[str, Any], field: str, right: str
) -> None:
    question = {"instructions": "x", **fields}
    with pytest.raises(ApiError) as caught:
        read(DecisionsBody, {"input": "x", "questions": [question]})
    assert caught.value.param == f"questions[0].{field}"
    assert f"Write {right}" in str(caught.value)
