"""Agents, sessions and metrics of a Runner, end to end on the default model."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import AfterValidator, BaseModel, Field

from structgen import RequestError, Runner, StructgenError, Tool
from structgen.errors import ModelNotFound, SessionError
from structgen.runner import AgenticToolCall, ChatResponse, McpServer, Sessions
from structgen.runner.telemetry import Traces

SERVER = str(Path(__file__).with_name("mcp_server.py"))
TABLE = {"Italy": "Rome", "Norway": "Oslo"}
ROUNDS = 2


Small = Annotated[int, Field(ge=0, le=99)]


def calculate(a: Small, operation: Literal["+", "-", "*"], b: Small) -> int:
    """Work out a sum of two numbers."""
    return {"+": a + b, "-": a - b, "*": a * b}[operation]


async def capital(country: Literal["Italy", "Norway"]) -> str:
    """The capital of a country."""
    await asyncio.sleep(0)
    return TABLE[country]


def two_and_three(a: Literal[2], b: Literal[3]) -> int:
    """Two plus three."""
    return a + b


class Report(BaseModel):
    """What was found out."""

    finding: Annotated[str, Field(max_length=20)]
    is_sure: bool


def log(response: ChatResponse) -> list[AgenticToolCall]:
    assert response.agentic_tool_calls is not None
    ChatCompletion.model_validate(response.model_dump(mode="json"), strict=False)
    return response.agentic_tool_calls


# -- agents -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    with McpServer.stdio(sys.executable, [SERVER], only=["population"]) as server:
        yield server


def choice(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize("name", ["calculate", "capital", "population"])
def test_an_agent_with_a_calculator_a_table_and_a_server(
    runner: Runner, server: McpServer, name: str
) -> None:
    response = runner.chat(
        messages="What is 12 times 3? Which city is the capital of Norway, and how large?",
        tools=[calculate, capital, server],
        tool_choice=choice(name),
        parallel_tool_calls=False,
        output_type=Report,
        max_tool_rounds=ROUNDS,
        max_tokens=60,
    )
    calls = log(response)
    assert isinstance(response.value, Report)
    assert response.choices[0].finish_reason == "stop"
    assert calls[0].name == name
    assert [call.round for call in calls] == sorted(call.round for call in calls)
    assert calls[-1].round <= ROUNDS
    for call in calls:
        given = json.loads(call.arguments)
        if call.name == "calculate":
            assert call.value == calculate(**given)
        elif call.name == "capital":
            assert call.result == TABLE[given["country"]]
        elif given["city"] in ("Rome", "Oslo"):
            assert (call.result or "").isdigit()
        else:  # the city is the model's own idea, and the server says that it knows none such
            assert call.status == "failed"


def test_the_whole_path_where_there_is_one_way(runner: Runner) -> None:
    seen: list[Any] = []
    response = runner.chat(
        messages="What is two and three?",
        tools=[two_and_three],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tool_rounds=1,
        approve=lambda asked: seen.append(dict(asked.arguments)) or True,
        output_type=Literal["five", "six"],
        max_tokens=100,
    )
    (call,) = log(response)
    assert (call.arguments, call.result, call.approved) == ('{"a": 2, "b": 3}', "5", True)
    assert seen == [{"a": 2, "b": 3}]
    assert response.value in ("five", "six")
    assert [message["role"] for message in response.messages] == ["assistant", "tool", "assistant"]
    assert response.usage.completion_tokens > 10
    # The prompt of the first round is not run again.
    assert response.usage.prompt_tokens_details.cached_tokens > 100


def test_a_stream_tells_of_calls_and_then_answers(runner: Runner) -> None:
    events, content, usage = [], "", None
    for chunk in runner.stream_chat(
        messages="What is two and three?",
        tools=[two_and_three],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tool_rounds=1,
        max_tokens=60,
        stream_options={"include_usage": True},
    ):
        ChatCompletionChunk.model_validate(chunk.model_dump(mode="json"), strict=False)
        if chunk.agentic_tool_call is not None:
            events.append((chunk.agentic_tool_call.status, chunk.agentic_tool_call.result))
        for piece in chunk.choices:
            assert piece.delta.tool_calls is None
            content += piece.delta.content or ""
        usage = chunk.usage or usage
    assert events == [("running", None), ("completed", "5")]
    assert content
    assert usage is not None
    assert usage.completion_tokens > 10


def test_async_tools_run_in_the_callers_loop(runner: Runner) -> None:
    async def where(x: Literal[1]) -> int:
        return threading.get_ident()

    fields: dict[str, Any] = {
        "messages": "Where?",
        "tools": [where],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tool_rounds": 1,
        "output_type": Literal["here"],
        "max_tokens": 40,
    }

    async def both() -> list[Any]:
        whole = await runner.achat(**fields)
        found = [log(whole)[0].value]
        async for chunk in runner.astream_chat(**fields):
            if chunk.agentic_tool_call is not None and chunk.agentic_tool_call.result:
                found.append(int(chunk.agentic_tool_call.result))
        return found

    assert asyncio.run(both()) == [threading.get_ident()] * 2
    elsewhere = log(runner.chat(**fields))[0].value
    assert elsewhere != threading.get_ident()


def test_a_tool_may_ask_the_runner(runner: Runner) -> None:
    def ask(x: Literal[1]) -> str:
        return runner.chat(messages="Yes or no?", output_type=Literal["yes", "no"]).text

    async def ask_later(x: Literal[1]) -> str:
        inner = await runner.achat(
            messages="Yes or no?",
            tools=[ask],
            tool_choice="required",
            parallel_tool_calls=False,
            max_tool_rounds=1,
            output_type=Literal["yes", "no"],
            max_tokens=40,
        )
        return inner.text

    async def ask_and_block(x: Literal[1]) -> str:
        return runner.chat(messages="?", tools=[ask], max_tool_rounds=1).text

    for tool, told in ((ask, None), (ask_later, None), (ask_and_block, "Await the async method")):
        response = runner.chat(
            messages="?",
            tools=[tool],
            tool_choice="required",
            parallel_tool_calls=False,
            max_tool_rounds=1,
            output_type=Literal["done"],
            max_tokens=40,
        )
        first = log(response)[0]
        if told is None:
            assert first.result in ("yes", "no")
        else:
            assert told in str(first.error)


class _Ends(BaseException):
    """What no library catches, as those of test frameworks."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, _Ends])
def test_what_ends_a_program_arrives_as_itself(runner: Runner, kind: type[BaseException]) -> None:
    def stop(x: Literal[1]) -> None:
        raise kind

    fields: dict[str, Any] = {
        "messages": "Stop.",
        "tools": [stop],
        "tool_choice": "required",
        "max_tool_rounds": 1,
        "max_tokens": 40,
    }
    with pytest.raises(kind):
        runner.chat(**fields)
    with pytest.raises(kind):
        list(runner.stream_chat(**fields))
    assert runner.chat(messages="Hello", max_tokens=2).text


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, _Ends])
def test_what_a_check_ends_a_program_by_ends_no_runner(
    runner: Runner, kind: type[BaseException]
) -> None:
    threads = []

    def ends(x: int) -> int:
        threads.append(threading.current_thread().name)
        raise kind

    class Checked(BaseModel):
        """Has a check."""

        x: Annotated[Literal[1], AfterValidator(ends)]

        def __call__(self) -> str:
            return "called"

    fields: dict[str, Any] = {"messages": "Stop.", "max_tokens": 40}
    tools = {"tools": [Checked], "tool_choice": "required", "max_tool_rounds": 1}
    for asked in (tools, {"output_type": Checked, "retries": 1}):
        with pytest.raises(kind):
            runner.chat(**fields, **asked)
        with pytest.raises(kind):
            list(runner.stream_chat(**fields, **asked))
        assert runner.chat(messages="Hello", max_tokens=2).text
    assert threads[:2] == ["tool Checked"] * 2, "it may take long, and others wait for the loop"


def test_tools_of_all_kinds_without_rounds_are_handed_back(runner: Runner) -> None:
    tool = Tool(calculate, lambda **given: pytest.fail("it ran"))
    response = runner.chat(
        messages="What is 2 + 3?",
        tools=[tool, Report],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=50,
    )
    assert response.choices[0].finish_reason == "tool_calls"
    assert response.agentic_tool_calls is None
    assert "agentic_tool_calls" not in response.model_dump()


def test_rounds_without_tools_are_refused(runner: Runner) -> None:
    with pytest.raises(RequestError) as caught:
        runner.chat(messages="?", max_tool_rounds=1)
    assert caught.value.param == "max_tool_rounds"


# -- sessions ---------------------------------------------------------------------------------


def test_a_second_turn_runs_less_than_the_conversation(runner: Runner) -> None:
    first = runner.chat(messages="Hello, I am Bob.", session_id="cached", max_tokens=12)
    second = runner.chat(messages="Who am I?", session_id="cached", max_tokens=12)
    third = runner.chat(messages="And you?", session_id="cached", max_tokens=12)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
    # An answer is read once more, in one pass: then it is as if it had never been written here.
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 3
    assert third.usage.prompt_tokens_details.cached_tokens >= second.usage.prompt_tokens - 3
    exported = json.loads(runner.export_session("cached"))
    assert [message["role"] for message in exported["messages"]] == ["user", "assistant"] * 3
    assert exported["messages"][1]["content"] == first.text
    assert "cached" in runner.list_session_ids()
    runner.import_session("copy", json.dumps(exported), model_id=runner.list_models()[0])
    with pytest.raises(ModelNotFound):
        runner.import_session("other", exported, model_id="nowhere")
    with pytest.raises(SessionError, match="already"):
        runner.import_session("copy", exported)
    runner.import_session("copy", exported, replace=True)
    again = runner.chat(messages="And then?", session_id="copy", max_tokens=12, seed=1)
    whole = [*exported["messages"], {"role": "user", "content": "And then?"}]
    assert again.text == runner.chat(messages=whole, max_tokens=12, seed=1).text
    assert runner.delete_session("copy")
    assert "copy" not in runner.list_session_ids()


def test_a_long_conversation_is_seldom_read_from_its_beginning(runner: Runner) -> None:
    usages = []
    for turn in range(8):
        long = f"{turn}: {'so it is ' * 60}"
        answer = runner.chat(messages=long, session_id="long", max_tokens=1)
        usages.append(answer.usage)
    cached = [usage.prompt_tokens_details.cached_tokens for usage in usages[1:]]
    expected = [usage.prompt_tokens - 3 for usage in usages[:-1]]
    rereads = sum(got < least for got, least in zip(cached, expected, strict=True))
    assert usages[-1].prompt_tokens > 1300
    assert rereads <= 3  # where it has outgrown its cache, which is then twice as large
    runner.delete_session("long")


def test_an_agents_rounds_are_kept_in_its_session(runner: Runner) -> None:
    fields: dict[str, Any] = {"tools": [two_and_three], "session_id": "agent", "max_tokens": 40}
    runner.chat(
        messages="Two and three?",
        tool_choice="required",
        parallel_tool_calls=False,
        max_tool_rounds=1,
        output_type=Literal["five"],
        **fields,
    )
    roles = [m["role"] for m in json.loads(runner.export_session("agent"))["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]
    list(runner.stream_chat(messages="Again.", session_id="agent", max_tokens=5))
    roles = [m["role"] for m in json.loads(runner.export_session("agent"))["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


def test_a_stream_that_is_read_to_its_end_is_kept(runner: Runner) -> None:
    text = ""
    for chunk in runner.stream_chat(messages="Hello", session_id="stream", max_tokens=6):
        text += chunk.choices[0].delta.content or ""
        if chunk.choices[0].finish_reason is not None:
            break
    kept = json.loads(runner.export_session("stream"))["messages"]
    assert kept[-1] == {"role": "assistant", "content": text}
    with runner.stream_chat(messages="More", session_id="stream", max_tokens=200) as left:
        next(left)
    assert runner.chat(messages="Hm.", session_id="stream", max_tokens=2).text is not None
    roles = [m["role"] for m in json.loads(runner.export_session("stream"))["messages"]]
    assert roles == ["user", "assistant"] * 2


def test_two_sessions_at_once_and_one_from_many_threads(runner: Runner) -> None:
    def turns(name: str) -> None:
        for _ in range(2):
            runner.chat(messages=name, session_id=f"at once {name}", max_tokens=2)

    threads = [threading.Thread(target=turns, args=(name,)) for name in "aabb"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "ab":
        kept = json.loads(runner.export_session(f"at once {name}"))["messages"]
        assert [message["role"] for message in kept] == ["user", "assistant"] * 4
        assert {message["content"] for message in kept[::2]} == {name}


def test_a_tool_cannot_wait_for_its_own_session(runner: Runner) -> None:
    def nested(x: Literal[1]) -> str:
        return runner.chat(messages="?", session_id="own", max_tokens=2).text

    response = runner.chat(
        messages="?",
        session_id="own",
        tools=[nested],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tool_rounds=1,
        output_type=Literal["done"],
        max_tokens=40,
    )
    assert "inside a turn of the same session" in str(log(response)[0].error)


def test_a_turn_that_is_cancelled_changes_nothing(runner: Runner) -> None:
    seen: list[str] = []

    async def long(x: Literal[1]) -> str:
        seen.append("began")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return ""

    async def work() -> None:
        chat = runner.achat(
            messages="?",
            session_id="cancelled",
            tools=[long],
            tool_choice="required",
            max_tool_rounds=1,
            max_tokens=40,
        )
        task = asyncio.create_task(chat)
        while not seen:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while len(seen) < 2:
            await asyncio.sleep(0.01)
        # The turn is over, so that the next one need not wait.
        await runner.achat(messages="Hello", session_id="cancelled", max_tokens=2)

    before = runner.metrics.value("requests_cancelled", "chat", "small")
    asyncio.run(asyncio.wait_for(work(), 120))
    assert seen == ["began", "cancelled"]
    kept = json.loads(runner.export_session("cancelled"))["messages"]
    assert [message["content"] for message in kept[:1]] == ["Hello"]
    assert runner.metrics.value("requests_cancelled", "chat", "small") == before + 1


def test_a_turn_that_cannot_be_kept_has_its_answer(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> bool:
        raise SessionError("The disk is full.")

    monkeypatch.setattr("structgen.runner.sessions.Sessions._write", full)
    with pytest.raises(SessionError, match="disk is full") as caught:
        runner.chat(messages="Hello", session_id="full", max_tokens=3)
    assert isinstance(caught.value.response, ChatResponse)
    assert caught.value.response.text
    monkeypatch.undo()
    assert "full" not in runner.list_session_ids()


def test_sessions_take_one_answer(runner: Runner) -> None:
    with pytest.raises(RequestError) as caught:
        runner.chat(messages="Hello", session_id="several", n=2)
    assert caught.value.param == "n"


def test_sessions_in_a_file_outlive_the_runner(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    with Runner(sessions=file) as one:
        one.import_session(
            "a",
            {
                "format": "structgen.session",
                "version": 1,
                "id": "a",
                "created": 1.0,
                "messages": [{"role": "user", "content": "Hello"}],
            },
        )
    with pytest.raises(SessionError, match="closed"):
        one.list_session_ids()
    sessions = Sessions(file)
    with Runner(sessions=sessions) as two:
        assert two.list_session_ids() == ["a"]
    assert sessions.ids() == ["a"]  # they are not the Runner's to close
    sessions.close()
    (tmp_path / "other.db").write_bytes(b"no database" * 100)
    with pytest.raises(SessionError, match="damaged"):
        Runner(sessions=tmp_path / "other.db")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (1,)


# -- metrics and spans ------------------------------------------------------------------------


def test_requests_are_counted(runner: Runner) -> None:
    metrics = runner.metrics

    def counts() -> list[float]:
        found = [metrics.value("requests", "chat", "small")]
        found += [metrics.value("tokens", "small", of) for of in ("prompt", "completion")]
        found.append(metrics.value("requests", "text_completion", "small"))
        found.append(metrics.value("request_errors", "chat", "small", "RequestError"))
        found.append(metrics.histogram("time_to_first_token_seconds", "small").count)
        return found

    before = counts()
    made = runner.chat(messages="Hello", max_tokens=3)
    chunks = list(runner.stream_chat(messages="Hello", max_tokens=3))
    assert all(chunk.usage is None for chunk in chunks)
    text = runner.complete(prompt="Hello", max_tokens=3)
    assert text.usage is not None
    streamed = list(runner.stream_complete(prompt="Hello", max_tokens=3))
    assert all(chunk.usage is None for chunk in streamed)
    with pytest.raises(RequestError):
        runner.chat(messages="Hello", tools=[], tool_choice="required")
    after = [now - then for now, then in zip(counts(), before, strict=True)]
    usages = [made.usage, made.usage, text.usage, text.usage]
    assert after == [
        3,
        sum(usage.prompt_tokens for usage in usages),
        sum(usage.completion_tokens for usage in usages),
        2,
        1,
        4,
    ]
    assert metrics.value("requests_running", "chat", "small") == 0
    assert metrics.value("model_loaded", "small") == 1
    assert 'structgen_requests_waiting{model="small"} 0' in metrics.prometheus()


def test_completions_say_how_sure_the_model_is_as_chats_do(runner: Runner) -> None:
    asked: Any = {"grammar": ["yes", "no"], "grammar_type": "choice", "abstain_below": 1e-9}
    whole = runner.complete(prompt="Is it? ", **asked).choices[0]
    assert whole.confidence["$"].probability > 0
    *_, last = [one for one in runner.stream_complete(prompt="Is it? ", **asked) if one.choices]
    assert last.choices[0].confidence == whole.confidence


def spans(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> tuple[InMemorySpanExporter, TracerProvider]:
    """Where the spans of the runner go, and what makes more of them."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traced = dataclasses.replace(runner._conversations, traces=Traces(provider))
    monkeypatch.setattr(runner, "_conversations", traced)
    return exporter, provider


def ask_with_a_tool(runner: Runner, question: str, tool: Callable[..., Any]) -> None:
    runner.chat(
        messages=question,
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tool_rounds=1,
        output_type=Literal["five"],
        max_tokens=40,
    )


def test_spans_of_a_request_and_its_tools(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter, provider = spans(runner, monkeypatch)
    with provider.get_tracer("mine").start_as_current_span("mine"):
        ask_with_a_tool(runner, "What is two and three? It is a secret.", two_and_three)
    tool, chat, mine = exporter.get_finished_spans()
    assert [span.name for span in (tool, chat, mine)] == [
        "execute_tool two_and_three",
        "chat small",
        "mine",
    ]
    assert tool.parent.span_id == chat.context.span_id
    assert chat.parent.span_id == mine.context.span_id
    assert chat.attributes["gen_ai.usage.input_tokens"] > 10
    assert chat.attributes["gen_ai.response.finish_reasons"] in (("stop",), ("length",))
    for span in (tool, chat):
        assert "secret" not in span.to_json()
        assert '"a": 2' not in span.to_json()
        assert span.status.is_ok


def test_a_span_has_the_tokens_that_are_counted(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text completion's had those of its prompt only, and none those of thoughts and guesses."""
    exporter, _ = spans(runner, monkeypatch)
    made = runner.complete(prompt="Hello", max_tokens=3), runner.chat(messages="Hi", max_tokens=3)
    for span, answer in zip(exporter.get_finished_spans(), made, strict=True):
        assert span.attributes["gen_ai.usage.output_tokens"] == answer.usage.completion_tokens
        for name, tokens in answer.usage.completion_tokens_details:
            kind = name.replace("_prediction", "")
            assert span.attributes[f"structgen.usage.{kind}"] == tokens


def test_the_span_of_a_tool_that_failed_says_so(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, _ = spans(runner, monkeypatch)

    def fail(a: Literal[2]) -> None:
        raise ValueError("secret")

    ask_with_a_tool(runner, "What is two and three?", fail)
    tool, chat = exporter.get_finished_spans()
    assert (tool.status.is_ok, tool.attributes["error.type"]) == (False, "_OTHER")
    assert "secret" not in tool.to_json()
    assert chat.status.is_ok


def test_traces_are_checked() -> None:
    with pytest.raises(StructgenError, match="traces=3"):
        Runner(traces=3)
