"""Calls of remote models over real sockets: values, streams, batches, retries, errors, options."""

from __future__ import annotations

import threading
from typing import Annotated, Any, Literal

import numpy as np
import openai
import pytest
from pydantic import BaseModel, Field, field_validator

import structgen
from structgen import Cfg, Choice, Generator, JsonSchema, Regex, Template, ToolCalls
from structgen.media import Image, openai_part

from .chat_server import ChatServer, Reply

USER = [{"role": "user", "content": "Who?"}]


class Person(BaseModel):
    name: str = Field(min_length=1)
    age: Annotated[int, Field(ge=0, le=120)]
    nick: str = "none"

    @field_validator("name")
    @classmethod
    def capital(cls, value: str) -> str:
        if not value[:1].isupper():
            raise ValueError("names begin with a capital letter")
        return value


ANN = '{"name": "Ann", "age": 3, "nick": null}'


def test_values_texts_and_results(server: ChatServer, remote: Any) -> None:
    generator = Generator(remote(ANN), Person)
    assert generator.parse("Who?") == Person(name="Ann", age=3)
    assert generator("Who?") == '{"name": "Ann", "age": 3}'
    result = generator.result(USER)
    assert result.value == Person(name="Ann", age=3)
    assert (result.usage.prompt_tokens, result.usage.output_tokens) == (10, 13)
    assert (result.usage.reused_tokens, result.usage.reasoning_tokens) == (4, 2)
    assert result.finish_reason == "stop"
    assert result.token_ids == ()
    assert [request["messages"] for request in server.requests] == [USER] * 3
    assert generator.constraint is not None
    assert repr(generator) == "Generator(RemoteModel('stand-in', dialect='openai'), Person)"


def test_short_forms(remote: Any) -> None:
    model = remote(ANN)
    assert model("Who?", Person) == Person(name="Ann", age=3)
    assert "".join(model.stream("Who?", Person)) == '{"name": "Ann", "age": 3}'
    assert list(model.stream_values("Who?", Person))[-1].value == Person(name="Ann", age=3)
    assert model("Who?") == ANN
    with pytest.raises(structgen.OptionError, match="max_new_tokens"):
        model("Who?", Person, max_tokens=3)


def test_strict_schemas_are_closed_and_whole(server: ChatServer, remote: Any) -> None:
    Generator(remote(ANN), Person)("Who?")
    described = server.requests[0]["response_format"]["json_schema"]
    assert described["strict"] is True
    assert described["name"] == "Person"
    schema = described["schema"]
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["name", "age", "nick"]
    assert schema["properties"]["nick"]["anyOf"][1] == {"type": "null"}
    assert "minLength" not in schema["properties"]["name"]


def test_who_enforced_what_is_said(remote: Any) -> None:
    enforcement = Generator(remote(ANN), Person).result("Who?").enforcement
    assert enforcement is not None
    assert enforcement.dialect == "openai"
    assert "$.properties.age maximum" in enforcement.server
    assert "$.properties.name minLength" in enforcement.here
    assert any("capital" in place for place in enforcement.here)
    assert enforcement.neither == ()
    assert "only checked by structgen\n  $.properties.name minLength" in str(enforcement)
    told_nothing = Generator(remote('{"name":"Ann","age":3}', dialect="none"), Person).result(
        "Who?"
    )
    assert told_nothing.enforcement is not None
    assert told_nothing.enforcement.server == ()
    hint = Generator(remote(ANN, dialect="openai-non-strict"), int)
    with pytest.raises(structgen.ParseError):
        hint("Who?")


@pytest.mark.parametrize(
    ("output_type", "wire", "text", "value"),
    [
        (int, '{"value": 42}', "42", 42),
        (float, ' { "value" : -1.5e0 } ', "-1.5e0", -1.5),
        (Literal["a", "b"], '{"value":"b"}', "b", "b"),
        (Literal[1, 2], '{"value":"2"}', "2", 2),
        (list[str], '{"value":["x","}\\""]}', '["x","}\\""]', ["x", '}"']),
        (Regex(r"\w+é\n"), '{"value":"caf\\u00e9\\n"}', "café\n", "café\n"),
        (Template("{n}: {a}", n=Regex("[a-z]+"), a=int), '{"value":"x: 3"}', "x: 3", None),
        (bool, '{"value":true}', "true", True),
        (int | None, '{"value":null}', "null", None),
    ],
)
def test_what_is_no_object_travels_in_one(
    remote: Any, output_type: Any, wire: str, text: str, value: Any
) -> None:
    generator = Generator(remote(wire), output_type)
    result = generator.result("?")
    assert result.text == text
    if not isinstance(output_type, Template):
        assert result.value == value
    with generator.stream("?") as stream:
        assert "".join(stream) == text
    assert stream.result.value == result.value


@pytest.mark.parametrize(
    ("dialect", "output_type", "key", "sent"),
    [
        ("vllm", Choice(["a", "b"]), "structured_outputs", {"choice": ["a", "b"]}),
        ("vllm", Regex("[ab]"), "structured_outputs", {"regex": "[ab]"}),
        ("vllm", Cfg('root ::= "a"'), "structured_outputs", {"grammar": 'root ::= ("a")\n'}),
        ("vllm-guided", Regex("[ab]"), "guided_regex", "[ab]"),
        ("sglang", Regex("[ab]"), "regex", "[ab]"),
        ("sglang", Choice(["a", "b"]), "regex", "a|b"),
        ("sglang", Cfg('root ::= "a"'), "ebnf", 'root ::= ("a")\n'),
        ("llama.cpp", Regex("[ab]"), "grammar", "root ::= [ab]\n"),
        ("llama.cpp", Choice(["a", "b"]), "grammar", 'root ::= "a" | "b"\n'),
    ],
)
def test_bare_texts_travel_as_the_dialect_says(
    server: ChatServer, remote: Any, dialect: Any, output_type: Any, key: str, sent: Any
) -> None:
    result = Generator(remote("a", dialect=dialect), output_type).result("?")
    assert result.text == "a"
    assert server.requests[0][key] == sent
    assert "response_format" not in server.requests[0]
    assert result.enforcement is not None
    assert result.enforcement.server


def test_types_that_a_dialect_cannot_say_are_refused_before_a_request(
    server: ChatServer, remote: Any
) -> None:
    with pytest.raises(structgen.OutputTypeError, match=r"dialect 'openai'.*a grammar.*vLLM"):
        Generator(remote("a"), Cfg('root ::= "a"'))
    with pytest.raises(
        structgen.OutputTypeError, match=r"strict mode does not support objects.* at \$"
    ):
        Generator(remote("a"), dict[str, int])
    with pytest.raises(structgen.OutputTypeError, match=r"'vllm'.*a lookahead"):
        Generator(remote("a", dialect="vllm"), Regex(r"(?=a)\w"))
    with pytest.raises(structgen.OutputTypeError, match="a left-recursive rule"):
        Generator(remote("a", dialect="llama.cpp"), Cfg('root ::= root "a" | "b"'))
    with pytest.raises(structgen.OutputTypeError, match=r"points outside the schema"):
        Generator(remote("a"), JsonSchema({"$ref": "#n", "$defs": {"a": {"$anchor": "n"}}}))
    for options in ("temperature=2", "max_tokens=4"):
        text = f"start: n\nn[{options}]: /[a-z]+/"
        with pytest.raises(structgen.OutputTypeError, match="has rules with max_tokens= or temp"):
            Generator(remote("abcde", dialect="none"), Cfg(text, dialect="llguidance"))
    assert server.requests == []


def test_answers_that_are_not_of_the_type_are_refused(remote: Any) -> None:
    generator = Generator(remote('{"name": "Ann", "age": 300, "nick": "x"}'), Person)
    with pytest.raises(structgen.ParseError, match="less than or equal to 120"):
        generator("Who?")
    with pytest.raises(structgen.ParseError, match="capital letter"):
        Generator(remote('{"name": "ann", "age": 3, "nick": "x"}'), Person).parse("Who?")
    schema = JsonSchema({"type": "object", "properties": {"a": {"type": "integer"}}})
    with pytest.raises(structgen.ParseError, match=r"not allowed at \$\.a.*expected"):
        Generator(remote('{"a": "x"}'), schema)("?")
    with pytest.raises(structgen.ParseError, match="not of the form"):
        Generator(remote("Sure! Here it is"), int)("?")
    with pytest.raises(structgen.ParseError, match="The end was not allowed"):
        Generator(remote("ab", dialect="vllm"), Regex("abc"))("?")


def test_retries_show_the_model_what_was_wrong(server: ChatServer, remote: Any) -> None:
    bad, worse = '{"name": "ann", "age": 3, "nick": "x"}', "no"
    generator = Generator(remote(bad, worse, ANN), Person)
    result = generator.result(USER, retries=2)
    assert result.value.name == "Ann"
    assert (result.usage.prompt_tokens, result.usage.output_tokens) == (30, 13)
    assert (result.usage.retries, result.usage.retried_tokens) == (2, 14)
    assert [one.text for one in result.attempts] == [bad, worse]
    second, third = server.requests[1]["messages"], server.requests[2]["messages"]
    assert second[:2] == [*USER, {"role": "assistant", "content": bad}]
    assert "names begin with a capital letter" in second[2]["content"]
    assert third[:3] == second
    assert len(third) == 5


def test_retries_repeat_the_beginning_of_a_long_answer(server: ChatServer, remote: Any) -> None:
    """Thirteen answers of 2.5 MB were asked about with 180 MB, which took 560 MB of memory."""
    bad = '"' + "\1" * 70_000
    result = Generator(remote(bad, ANN), Person).result(USER, retries=1)
    assert result.attempts[0].text == bad
    assert server.requests[1]["messages"][1]["content"] == bad[:65_536]


def test_after_the_last_retry_all_attempts_are_told(server: ChatServer, remote: Any) -> None:
    generator = Generator(remote("no", "nor this", '{"name": "ann"}'), Person)
    with pytest.raises(structgen.errors.ValidationFailed) as caught:
        generator.parse("Who?", retries=2)
    assert [one.text for one in caught.value.attempts] == ["no", "nor this", '{"name": "ann"}']
    assert "None of 3 answers is Person" in str(caught.value)
    assert len(server.requests) == 3
    with pytest.raises(structgen.OptionError, match="retries=-1"):
        generator.parse("Who?", retries=-1)
    with pytest.raises(structgen.OptionError, match="cannot take back"):
        generator.stream("Who?", retries=1)
    with pytest.raises(structgen.OptionError, match="requires an output type"):
        Generator(remote("a"))("?", retries=1)
    with pytest.raises(structgen.OptionError, match="at most 20"):
        generator.parse("Who?", retries=21)


def test_streams_are_validated_as_they_come(server: ChatServer, remote: Any) -> None:
    generator = Generator(remote(ANN), Person)
    with generator.stream("Who?") as stream:
        pieces = list(stream)
    assert "".join(pieces) == '{"name": "Ann", "age": 3}'
    assert len(pieces) >= 5
    assert stream.result.value == Person(name="Ann", age=3)
    assert stream.result.usage.prompt_tokens == 10
    server.say = [Reply(ANN, counts_up=True)]
    with generator.stream("Who?") as stream:
        list(stream)
    assert (stream.result.usage.prompt_tokens, stream.result.usage.output_tokens) == (10, 13)
    bad = generator.stream("Who?")
    server.say = [Reply(['{"name": "A', 'nn", "age": x', ' and all the rest"}'])]
    got = []
    with pytest.raises(structgen.ParseError, match=r"not allowed at \$\.age"):
        got += iter(bad)
    assert got == ['{"name": "A']


def test_values_grow(remote: Any) -> None:
    stream = Generator(remote(ANN), Person).stream_values("Who?")
    grown = list(stream)
    assert grown[-1].value == Person(name="Ann", age=3)
    assert any(one.done("name") and not one.done("age") for one in grown)
    assert stream.result.value == grown[-1].value


def test_a_stream_that_is_left_hangs_up(server: ChatServer, remote: Any) -> None:
    model = remote(Reply(["a"] * 2000, seconds=0.001))
    with Generator(model).stream("?") as stream:
        assert next(stream) == "a"
    assert stream.result.finish_reason == "cancelled"
    event = threading.Event()
    with Generator(model).stream("?", cancel=event) as stream:
        next(stream)
        event.set()
        assert len(list(stream)) < 1000
    assert stream.result.finish_reason == "cancelled"
    with Generator(model).stream("?") as stream:
        next(stream)
        stream.cancel()
        assert len(list(stream)) < 1000


def test_reasoning_is_a_section(remote: Any) -> None:
    generator = Generator(remote(Reply('{"value":7}', reasoning="Let me see.")), int)
    result = generator.result("?")
    assert (result.text, result.reasoning) == ("7", "Let me see.")
    with generator.stream("?") as stream:
        assert [(chunk, chunk.section) for chunk in stream] == [
            ("Let me see.", "reasoning"),
            ("7", "answer"),
        ]
    assert list(generator.stream_values("?"))[-1].value == 7


def test_several_are_asked_side_by_side(server: ChatServer, remote: Any) -> None:
    server.say = lambda body: Reply(f'{{"value":{body["messages"][0]["content"]}}}', seconds=0.05)
    generator = Generator(remote(), int)
    prompts = [str(i) for i in range(12)]
    assert generator.batch(prompts, batch_size=3) == list(range(12))
    assert 2 <= server.most_at_once <= 3
    assert generator(["1", "2"]) == ["1", "2"]
    assert generator.parse("5", n=2, temperature=1, seed=3) == [5, 5]
    assert sorted(r["seed"] for r in server.requests[-2:]) == [3, 4]
    assert generator.batch([]) == []
    assert generator.parse([[{"role": "user", "content": "3"}]], n=1) == [[3]]
    with pytest.raises(structgen.OptionError, match="would be the same"):
        generator.parse("5", n=2, temperature=0)
    with pytest.raises(structgen.PromptError, match="list of prompts"):
        generator.batch("5")  # type: ignore[arg-type]


def test_of_several_some_may_fail(remote: Any, server: ChatServer) -> None:
    server.say = lambda body: Reply(f'{{"value":{body["messages"][0]["content"]}}}')
    generator = Generator(remote(), int)
    with pytest.raises(structgen.BatchError, match="1 of 3 outputs failed") as caught:
        generator.batch(["1", "x", "3"])
    assert caught.value.results == [1, None, 3]
    found = generator.batch(["1", "x"], return_errors=True)
    assert found[0] == 1
    assert isinstance(found[1], structgen.ParseError)


def test_cut_answers_have_no_value(remote: Any) -> None:
    reply = Reply('{"name": "An', finish_reason="length")
    with pytest.raises(structgen.IncompleteOutput, match="max_new_tokens") as caught:
        Generator(remote(reply), Person)("?")
    assert caught.value.text == '{"name": "An'
    free = Generator(remote(Reply("so far", finish_reason="model_length"))).result("?")
    assert (free.text, free.finish_reason) == ("so far", "length")
    with pytest.raises(structgen.IncompleteOutput):
        list(Generator(remote(reply), Person).stream("?"))


def test_refusals_are_errors(remote: Any) -> None:
    reply = Reply(None, refusal="I cannot help with that.")
    for read in (lambda g: g("?"), lambda g: list(g.stream("?"))):
        with pytest.raises(structgen.Refused, match="I cannot help") as caught:
            read(Generator(remote(reply), Person))
        assert caught.value.text == "I cannot help with that."
    with pytest.raises(structgen.Refused, match="content filter"):
        Generator(remote(Reply("x", finish_reason="content_filter")))("?")


def test_errors_of_the_server_are_told(server: ChatServer, remote: Any) -> None:
    with pytest.raises(structgen.RemoteError, match=r"status 400.*that is wrong") as caught:
        Generator(remote(Reply(status=400)))("?")
    assert caught.value.status == 400
    with pytest.raises(structgen.RemoteError, match="status 500"):
        list(Generator(remote(Reply(status=500))).stream("?"))
    with pytest.raises(structgen.RemoteError, match=r"disconnected|no finish_reason"):
        list(Generator(remote(Reply("a long text, and more", cut=True))).stream("?"))
    with pytest.raises(structgen.RemoteError, match="no finish_reason"):
        Generator(remote(Reply("text", finish_reason=None))).result("?")
    with openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="x", max_retries=0) as client:
        model = structgen.from_openai(client, "m")
        with pytest.raises(structgen.RemoteError, match=r"127\.0\.0\.1:9.* cannot be reached"):
            Generator(model)("?")


def test_a_call_ends_when_its_time_is_up(remote: Any) -> None:
    slow = Reply(["a"] * 10_000, seconds=0.01)
    result = Generator(remote(slow)).result("?", timeout=0.3)
    assert result.finish_reason == "cancelled"
    assert set(result.text) <= {"a"}
    with pytest.raises(structgen.IncompleteOutput, match="timeout"):
        Generator(remote(Reply(["1"] * 10_000, seconds=0.01), dialect="vllm"), int)(
            "?", timeout=0.3
        )
    with pytest.raises(structgen.IncompleteOutput, match="timeout"):
        Generator(remote(Reply('{"value":1}', seconds=3)), int)("?", timeout=0.2)
    gone = threading.Event()
    gone.set()
    assert Generator(remote(slow)).result("?", cancel=gone).finish_reason == "cancelled"


def test_options_travel_under_the_servers_names(server: ChatServer, remote: Any) -> None:
    common = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["x"], "max_new_tokens": 9}
    Generator(remote("a"))("?", **common, logit_bias={5: float("-inf")})
    Generator(remote("a", dialect="vllm"))("?", **common, top_k=3, repetition_penalty=1.5)
    Generator(remote("a", dialect="llama.cpp"))("?", repetition_penalty=1.5, do_sample=False)
    penalties = {"frequency_penalty": 0.5, "presence_penalty": -0.5}
    Generator(remote("a"))("?", **penalties)
    Generator(remote("a", dialect="sglang"))("?", **penalties, min_p=0.25)
    there = [
        {k: v for k, v in r.items() if k not in ("messages", "model")} for r in server.requests
    ]
    asked = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["x"]}
    assert there[0] == {**asked, "max_completion_tokens": 9, "logit_bias": {"5": -100}}
    assert there[1] == {**asked, "max_tokens": 9, "top_k": 3, "repetition_penalty": 1.5}
    assert there[2] == {"repeat_penalty": 1.5, "temperature": 0}
    assert there[3] == penalties
    assert there[4] == {**penalties, "min_p": 0.25}


@pytest.mark.parametrize(
    "options",
    [
        {"forced": False},
        {"processor": lambda ids, logits: None},
        {"max_length": 5},
        {"min_length": 5},
        {"trace": True},
        {"abstain_below": 0.5},
        {"adapter": "x"},
        {"special_tokens": "anywhere"},
        {"no_repeat_ngram_size": 3},
        {"top_k": 5},
        {"repetition_penalty": 1.2},
        {"min_p": 0.1},
        {"logit_bias": {3: 500}},
        {"top_logprobs": 50},
    ],
)
def test_options_that_do_not_travel_are_refused(
    server: ChatServer, remote: Any, options: dict[str, Any]
) -> None:
    generator = Generator(remote("a"))
    for call in (generator, generator.stream, generator.result):
        with pytest.raises(structgen.OptionError, match=next(iter(options))):
            call("?", **options)
    with pytest.raises(structgen.OptionError, match=next(iter(options))):
        generator(["?"], **options)
    assert server.requests == []


def test_a_refused_option_names_those_that_the_servers_have(remote: Any) -> None:
    with pytest.raises(structgen.OptionError) as caught:
        Generator(remote("a", dialect="openai"))("?", top_k=5)
    assert str(caught.value).partition("Supported: ")[2] == (
        "batch_size, cancel, do_sample, frequency_penalty, logit_bias, logprobs, max_new_tokens, "
        "n, presence_penalty, retries, return_errors, seed, stop, temperature, timeout, "
        "top_logprobs, top_p."
    )


@pytest.mark.parametrize(
    "options",
    [
        {"think": 20},
        {"draft": True},
        {"processor": lambda ids, logits: None},
        {"whitespace": "compact"},
        {"property_order": "any"},
        {"ensure_ascii": True},
        {"temperature": 0.5},
        {"wrong": 1},
    ],
)
def test_options_of_generators_that_are_not_possible_are_refused(
    remote: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(structgen.OptionError, match=next(iter(options))):
        Generator(remote("a"), Person, **options)


def test_probabilities_and_compiled_constraints_are_refused(remote: Any) -> None:
    with pytest.raises(structgen.OptionError, match="probabilities"):
        Generator(remote("a"), bool).probabilities("?")
    vocabulary = structgen.Vocabulary([bytes([i]) for i in range(256)] + [b""], eos_token_ids=[256])
    with pytest.raises(structgen.OptionError, match="Pass the output type itself"):
        Generator(remote("a"), structgen.compile(int, vocabulary))


def test_keywords_that_nothing_enforces_are_said(remote: Any) -> None:
    schema = JsonSchema({"type": "array", "items": {"type": "string", "pattern": r"(a)\1"}})
    with pytest.warns(structgen.errors.UnenforcedWarning):
        generator = Generator(remote('{"value":["aa"]}'), schema, on_unsupported="warn")
    enforcement = generator.result("?").enforcement
    assert enforcement is not None
    assert enforcement.neither == ("$.items pattern",)


def test_log_probabilities_come_with_the_result(server: ChatServer, remote: Any) -> None:
    reply = Reply(["ab", "c"], logprobs=[-0.5, -1.0])
    result = Generator(remote(reply)).result("?", logprobs=True, top_logprobs=1)
    assert [(one.token, one.logprob) for one in result.logprobs] == [(b"ab", -0.5), (b"c", -1.0)]
    assert result.logprobs[0].top[0].token == b"ab"
    with Generator(remote(reply)).stream("?", logprobs=True) as stream:
        list(stream)
    assert [one.logprob for one in stream.result.logprobs] == [-0.5, -1.0]
    assert server.requests[0]["logprobs"] is True
    with pytest.raises(structgen.OptionError, match="logprobs"):
        Generator(remote("a", dialect="ollama"))("?", logprobs=True)


def test_prompts_are_messages(server: ChatServer, remote: Any) -> None:
    generator = Generator(remote("a"))
    system = {"role": "system", "content": "Be short."}
    generator([system, *USER])
    assert server.requests[0]["messages"] == [system, *USER]
    with pytest.raises(structgen.PromptError, match="last message"):
        generator([*USER, {"role": "assistant", "content": "It is"}])
    with pytest.raises(structgen.PromptError):
        generator("")


def greet(name: str, times: int = 1) -> str:
    """Greet somebody."""
    return f"Hello {name}! " * times


def test_calls_of_tools(server: ChatServer, remote: Any) -> None:
    reply = Reply("Well.", calls=[("greet", '{"name":"Ann"}')], finish_reason="tool_calls")
    generator = Generator(remote(reply), ToolCalls([greet]))
    text, call = generator.parse("?")
    assert text == "Well."
    assert isinstance(call, structgen.Call)
    assert call.arguments == {"name": "Ann"}
    assert call() == "Hello Ann! "
    assert server.requests[0]["tools"][0]["function"]["name"] == "greet"
    assert server.requests[0]["tool_choice"] == "auto"
    assert generator.stream("?").result.finish_reason is None
    with generator.stream("?") as stream:
        list(stream)
    assert stream.result.value == [text, call]
    bad = Reply(None, calls=[("greet", '{"nom":"Ann"}')], finish_reason="tool_calls")
    with pytest.raises(structgen.ParseError):
        Generator(remote(bad), ToolCalls([greet]))("?")
    assert Generator(remote("Just text."), ToolCalls([greet])).parse("?") == ["Just text."]
    required = Generator(remote(reply), ToolCalls([greet], choice="required", parallel=False))
    with pytest.raises(structgen.ParseError):
        required("?")  # with text before the call
    assert server.requests[-1]["tool_choice"] == "required"
    assert server.requests[-1]["parallel_tool_calls"] is False


def test_an_answer_beside_calls_is_refused(remote: Any) -> None:
    with pytest.raises(structgen.OutputTypeError, match="answer= is not sent to servers"):
        Generator(remote(""), ToolCalls([greet], answer=int)).parse("?")


def test_functions_are_typed_calls(remote: Any) -> None:
    call = Generator(remote('{"name": "Bob", "times": null}'), greet).parse("?")
    assert (call.function, dict(call.arguments)) == (greet, {"name": "Bob"})


def test_what_every_request_has(server: ChatServer, remote: Any) -> None:
    model = remote("a", dialect="vllm", request={"reasoning_effort": "low", "extra_body": {"x": 1}})
    Generator(model, Regex("a"))("?")
    assert server.requests[0]["reasoning_effort"] == "low"
    assert server.requests[0]["x"] == 1
    assert server.requests[0]["structured_outputs"] == {"regex": "a"}
    with pytest.raises(structgen.OptionError, match="messages"):
        remote("a", request={"messages": []})


def test_the_extra_body_of_requests_stands_against_nothing(server: ChatServer, remote: Any) -> None:
    """The client puts it before all else: the server heard of no type, or no option of a call; and
    what was set beside a type for vLLM was dropped."""
    model = remote("a", request={"extra_body": {"temperature": 1.5, "x": None}})
    Generator(model)("?", temperature=0.5)
    Generator(model)("?")
    assert [one["temperature"] for one in server.requests] == [0.5, 1.5]
    Generator(remote("a", dialect="vllm", request={"extra_body": None}), Regex("a"))("?")
    body: dict[str, Any]
    for body in ({"response_format": {"type": "text"}}, {"structured_outputs": {"x": 1}}):
        with pytest.raises(structgen.OptionError, match=next(iter(body))):
            remote("a", dialect="vllm", request={"extra_body": body})


def test_what_is_no_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(structgen.ModelError, match="not a client of the package openai"):
        structgen.from_openai("http://x", "m")  # type: ignore[call-overload]
    with openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="x") as client:
        with pytest.raises(structgen.OptionError, match="dialect='vlm' is unknown"):
            structgen.from_openai(client, "m", dialect="vlm")  # type: ignore[call-overload]
        with pytest.raises(structgen.OptionError, match="not a name"):
            structgen.from_openai(client, "")
        monkeypatch.setitem(__import__("sys").modules, "openai", None)
        with pytest.raises(structgen.ModelError, match=r"pip install 'structgen\[openai\]'"):
            structgen.from_openai(client, "m")


def test_pictures_travel_in_openais_form(server, remote) -> None:
    image = Image(np.zeros((2, 3), np.uint8))
    model = remote("it is red")
    assert model(["What?", image]) == "it is red"
    message = server.requests[-1]["messages"][0]
    assert message == {"role": "user", "content": [*map(openai_part, ("What?", image))]}
