"""What is wrong with a request: status, class of the client's exception, and the field by name."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from one_server import KEY, Served

from structgen.errors import ModelError, WorkerDied
from structgen.server.errors import api_error, public

ASK: Any = [{"role": "user", "content": "Hi."}]
AUTH = {"Authorization": f"Bearer {KEY}"}
BAD_SCHEMA = {"type": "object", "properties": {"x": {"type": "string", "pattern": r"(a)\1"}}}


def schema(given: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": given}}


@pytest.mark.parametrize(
    ("path", "name", "meant"),
    [
        ("/v1/chat/completions", "max_tokns", "Did you mean max_tokens?"),
        ("/v1/chat/completions", "stram", "Did you mean stream?"),
        ("/v1/completions", "max_new_tokns", "Did you mean max_tokens?"),
        ("/v1/responses", "max_tokens", "Did you mean max_output_tokens?"),
        ("/v1/responses", "temprature", "Did you mean temperature?"),
        ("/v1/responses", "structured_output", "Did you mean structured_outputs?"),
    ],
)
def test_the_field_that_was_meant_is_one_of_the_endpoint(
    served: Served, path: str, name: str, meant: str
) -> None:
    answer = httpx.post(f"{served.root}{path}", json={name: 1}, headers=AUTH, timeout=60)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, name)
    assert error["message"] == f"{name} is not supported. {meant}"


@pytest.mark.parametrize(
    ("path", "field"), [("chat/completions", "max_tokens"), ("responses", "max_output_tokens")]
)
def test_a_budget_that_is_too_small_is_told_without_the_form(
    served: Served, path: str, field: str
) -> None:
    asked = {"grammar": "a{200}", "grammar_type": "regex", field: 5}
    asked["messages" if path[0] == "c" else "input"] = "x"
    answer = httpx.post(f"{served.root}/v1/{path}", json=asked, headers=AUTH, timeout=60)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, field)
    assert error["message"].startswith(
        f"{field} leaves 5 tokens for the answer, but the requested form"
    )
    assert "needs about 51, including the end-of-sequence token. Raise" in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"foo": 1}, "foo"),
        ({"$ref": 1}, "$ref"),
        ({"a b": 1}, "a b"),
        ({"str": 1}, "str"),
        ({"": 1}, ""),
        ({"messages": [{"role": "user", "content": "x", "$y": 1}]}, "messages[0].$y"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"min_p": 2}, "min_p"),
        ({"functions": []}, "functions"),
        ({"output_type": "int"}, "output_type"),
        ({"session_id": "mine"}, "session_id"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"n": 9}, "n"),
        ({"n": 0}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"store": "yes"}, "store"),
        ({"guided_json_object": 0}, "guided_json_object"),
        ({"structured_outputs": {"json_object": "no"}}, "structured_outputs.json_object"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "file"}]}]},
         "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {
            "url": "https://example.com/x.png"}}]}]}, "messages[0].content[0].image_url.url"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {
            "url": "data:image/png;base64,AAAA"}}]}]}, "messages[0].content[0].image_url"),
        ({"messages": [{"role": "user", "content": "a b " * 9000}]}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1, "response_format": schema({"const": "a long constant"})}, "max_tokens"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": schema("/etc/passwd.json")}, "response_format.json_schema.schema"),
        ({"response_format": schema(BAD_SCHEMA)},
         "response_format.json_schema.schema.properties.x.pattern"),
        ({"structured_outputs": {"json": BAD_SCHEMA}},
         "structured_outputs.json.properties.x.pattern"),
        ({"structured_outputs": {"foo": 1}}, "structured_outputs.foo"),
        ({"structured_outputs": {"regex": "a("}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice"),
        ({"guided_json": "{"}, "guided_json"),
        ({"structured_outputs": {"grammar": "/etc/passwd"}}, "structured_outputs.grammar"),
        ({"chat_template_kwargs": {"tools_in_user": 1}}, "chat_template_kwargs.tools_in_user"),
        ({"tools": ["os.system"]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": BAD_SCHEMA}}]},
         "tools[0].function.parameters.properties.x.pattern"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x"),
        ({"adapter": "none"}, "adapter"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("streams", [False, True])
def test_fields_are_named(
    client: openai.OpenAI, fields: dict[str, Any], param: str, streams: bool
) -> None:
    body = {"model": "small", "messages": ASK, "max_tokens": 8, "stream": streams, **fields}
    if "stream_options" in fields:
        body["stream"] = False
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", body=body, cast_to=object)
    error = caught.value
    assert error.param == param
    assert error.type == "invalid_request_error"
    assert "Traceback" not in error.message
    assert error.message


def test_classes_of_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="none", messages=ASK)
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none")
    with pytest.raises(openai.AuthenticationError) as refused:
        client.with_options(api_key="sk-wrong").models.list()
    assert refused.value.code == "invalid_api_key"


def test_an_output_that_cannot_stand(client: openai.OpenAI, served: Served) -> None:
    body: Any = {"model": "small", "messages": ASK, "grammar": ["yes", "no"],
                 "grammar_type": "choice", "abstain_below": 0.999_999}  # fmt: skip
    answer = httpx.post(f"{served.root}/v1/chat/completions", json=body, headers=AUTH, timeout=60)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("abstained", "invalid_request_error")
    assert (error["param"], "not sure enough" in error["message"]) == ("abstain_below", True)
    with pytest.raises(openai.UnprocessableEntityError):
        client.chat.completions.create(
            model="small",
            messages=ASK,
            extra_body={k: v for k, v in body.items() if k not in ("model", "messages")},
        )
    with httpx.stream(
        "POST",
        f"{served.root}/v1/chat/completions",
        json={**body, "stream": True},
        headers=AUTH,
        timeout=60,
    ) as stream:
        lines = [line for line in stream.iter_lines() if line]
    assert stream.status_code == 200  # sent before the answer was known
    assert '"abstained"' in lines[-1]
    asked: Any = {"grammar": ["yes", "no"], "grammar_type": "choice", "abstain_below": 0.999_999}
    with pytest.raises(openai.UnprocessableEntityError):
        client.responses.create(model="small", input="Hi.", extra_body=asked)
    with pytest.raises(openai.UnprocessableEntityError):
        client.completions.create(model="small", prompt="Yes or no?", extra_body=asked)
    *_, last = client.responses.create(model="small", input="Hi.", stream=True, extra_body=asked)
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.code == "abstained"


def test_a_long_prompt_of_a_completion_is_its_prompt(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="small", prompt="a b " * 9000)
    assert caught.value.param == "prompt"
    assert caught.value.code == "context_length_exceeded"


BODIES: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"[]", 400),
    (b"{", 400),
    (b"\xff{}", 400),
    (b'{"a": NaN}', 400),
    (b'{"a": 1, "a": 2}', 400),
    (b'{"messages": "\\ud800"}', 400),
    (b'{"\\ud800": 1}', 400),
    (b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", 400),
    (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    (b'{"max_tokens": ' + b"9" * 10_000 + b', "messages": "x"}', 400),
    (b'{"max_tokens": ' + b"9" * 400 + b', "messages": "x"}', 400),
    (b'{"seed": 1e400, "messages": "x"}', 400),
    (b'{"temperature": 1e400, "messages": "x"}', 400),
    (b'{"messages": "' + b"x" * (5 << 20) + b'"}', 413),
    (json.dumps({"messages": "x", "guided_regex": "a" * 600_000}).encode(), 413),
]


@pytest.mark.parametrize(("body", "status"), BODIES, ids=lambda one: str(one)[:24])
def test_bodies(served: Served, body: bytes, status: int) -> None:
    headers = {**AUTH, "Content-Type": "application/json"}
    answer = httpx.post(
        f"{served.root}/v1/chat/completions", content=body, headers=headers, timeout=60
    )
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_what_is_no_json(served: Served) -> None:
    url = f"{served.root}/v1/chat/completions"
    for headers in (
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ):
        answer = httpx.post(url, content=b"{}", headers={**AUTH, **headers}, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_content_type")


def test_paths_and_methods(served: Served) -> None:
    answer = httpx.get(f"{served.root}/v1/nothing", headers=AUTH, timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert answer.json()["error"]["message"].endswith("See /docs.")
    answer = httpx.post(f"{served.root}/chat/completions", headers=AUTH, json={}, timeout=60)
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].endswith("Did you mean /v1/chat/completions?")
    answer = httpx.get(f"{served.root}/v1/chat/completions", headers=AUTH, timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"
    assert "POST" in answer.json()["error"]["message"]
    answer = httpx.head(f"{served.root}/")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize("kind", [ModelError, WorkerDied])
def test_what_a_process_wrote_is_told_to_nobody(kind: Any) -> None:
    """A traceback, say, or what it was asked for others."""
    api = api_error(kind("It ended.\nIt wrote last:\nTraceback ..."))
    assert (api.status, api.message) == (503, "It ended.")


def test_a_long_error_of_a_folder_is_cut_before_it_is_searched_for_paths() -> None:
    assert len(public("The pooling is " + "/-" * 10**6)) < 10_000
