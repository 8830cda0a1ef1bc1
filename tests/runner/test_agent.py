"""The agent loop with a scripted model: its whole path is known."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncGenerator, Callable
from decimal import Decimal
from typing import Any

import inside
import pytest
from pydantic import BaseModel, field_validator

from structgen import BudgetTooSmall, OptionError, PromptError, RequestError, StructgenError
from structgen.runner import Metrics, Tool
from structgen.runner.agent import Agent, ToolRequest
from structgen.runner.constraints import wanted
from structgen.runner.loops import Interrupted
from structgen.runner.requests import ChatRequest
from structgen.runner.responses import (
    AgenticToolCall,
    ChatChunk,
    ChatResponse,
    Choice,
    ChunkChoice,
    Delta,
    DeltaFunction,
    DeltaToolCall,
    FunctionCall,
    ResponseMessage,
    ToolCall,
    Usage,
)

Turn = str | list[tuple[str, Any]]


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def capital(country: str) -> str:
    """A lookup table."""
    return {"Italy": "Rome", "Norway": "Oslo"}[country]


class Scripted:
    """A model that says what it is told to, and writes down what it was asked.

    Args:
        turns: in each a text, or calls with their arguments.
        endless: whether the last turn is repeated; else it must be the last one asked for.
    """

    def __init__(self, *turns: Turn, endless: bool = False) -> None:
        self.turns = list(turns)
        self.endless = endless
        self.asked: list[ChatRequest] = []

    def _next(self, request: ChatRequest) -> ChatResponse:
        self.asked.append(request)
        number = len(self.asked)
        turn = self.turns[0] if self.endless else self.turns[number - 1]
        if request.tool_choice == "none" and not isinstance(turn, str):
            turn = "the end"  # what a mask would do
        message = ResponseMessage()
        if isinstance(turn, str):
            message.content = turn
        else:
            message.tool_calls = [
                ToolCall(
                    id=f"call{number:04}{index}",
                    function=FunctionCall(
                        name=name, arguments=given if isinstance(given, str) else json.dumps(given)
                    ),
                )
                for index, (name, given) in enumerate(turn)
            ]
        reason: Any = "tool_calls" if message.tool_calls else "stop"
        return ChatResponse(
            id=f"chat{number}",
            model="scripted",
            choices=[Choice(message=message, finish_reason=reason)],
            usage=Usage(prompt_tokens=10, completion_tokens=number, total_time=0.5),
        )

    async def ask(self, request: ChatRequest) -> AsyncGenerator[ChatChunk | ChatResponse, None]:
        yield self._next(request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatChunk | ChatResponse, None]:
        response = self._next(request)

        def chunk(delta: Delta, reason: Any = None) -> ChatChunk:
            choice = ChunkChoice(delta=delta, finish_reason=reason)
            return ChatChunk(
                id=response.id, created=response.created, model=response.model, choices=[choice]
            )

        yield chunk(Delta(role="assistant", content=""))
        message = response.choices[0].message
        for letter in message.content or "":
            yield chunk(Delta(content=letter))
        for index, call in enumerate(message.tool_calls or []):
            function = DeltaFunction(name=call.function.name, arguments=call.function.arguments)
            more = DeltaToolCall(index=index, id=call.id, type="function", function=function)
            yield chunk(Delta(tool_calls=[more]))
        yield chunk(Delta(), response.choices[0].finish_reason)
        yield response


def request(*tools: Any, rounds: int = 5, **fields: Any) -> ChatRequest:
    return ChatRequest(messages="What is it?", tools=list(tools), max_tool_rounds=rounds, **fields)


def run(model: Scripted, asked: ChatRequest, **options: Any) -> ChatResponse:
    async def work() -> ChatResponse:
        async for piece in Agent(asked, **options).answer(model.ask):
            if isinstance(piece, ChatResponse):
                return piece
        raise AssertionError

    return asyncio.run(work())


def roles(request: ChatRequest) -> list[str]:
    return [message.role for message in request.messages]


def log(response: ChatResponse) -> list[AgenticToolCall]:
    assert response.agentic_tool_calls is not None
    return response.agentic_tool_calls


# -- the path ---------------------------------------------------------------------------------


def test_calls_run_and_their_results_go_back() -> None:
    model = Scripted(
        [("add", {"a": 2, "b": 3})],
        [("capital", {"country": "Italy"}), ("add", {"a": 5, "b": 5})],
        "Five, Rome and ten.",
    )
    response = run(model, request(add, capital))
    assert response.text == "Five, Rome and ten."
    assert response.choices[0].finish_reason == "stop"
    assert [(c.round, c.name, c.result, c.status) for c in log(response)] == [
        (1, "add", "5", "completed"),
        (2, "capital", "Rome", "completed"),
        (2, "add", "10", "completed"),
    ]
    assert [call.value for call in log(response)] == [5, "Rome", 10]
    assert all(call.seconds is not None and call.approved is None for call in log(response))
    last = model.asked[-1]
    assert roles(last) == ["user", "assistant", "tool", "assistant", "tool", "tool"]
    assert last.messages[2].tool_call_id == "call00010"
    assert last.messages[2].content == "5"
    assert last.messages[2].name == "add"
    assert last.messages[5].content == "10"
    assert last.tools == [add, capital]
    assert last.max_tool_rounds is None
    assert response.usage.prompt_tokens == 30
    assert response.usage.completion_tokens == 1 + 2 + 3
    assert response.usage.tokens_per_second == 4


def test_what_the_chat_goes_on_with() -> None:
    model = Scripted([("add", {"a": 2, "b": 3})], "Five.")
    response = run(model, request(add))
    assert [message["role"] for message in response.messages] == ["assistant", "tool", "assistant"]
    assert response.messages[-1] == {"role": "assistant", "content": "Five."}
    again = ChatRequest(messages=[{"role": "user", "content": "?"}, *response.messages])
    assert len(again.messages) == 4


def test_the_wire_form_has_all_rounds() -> None:
    model = Scripted([("add", {"a": 2, "b": 3})], "Five.")
    wire = run(model, request(add)).model_dump(mode="json")
    (call,) = wire["agentic_tool_calls"]
    seconds = call.pop("seconds")
    assert seconds >= 0
    assert call == {
        "round": 1,
        "id": "call00010",
        "name": "add",
        "arguments": '{"a": 2, "b": 3}',
        "status": "completed",
        "result": "5",
    }


def test_an_answer_without_calls_is_the_answer() -> None:
    model = Scripted("Hello.")
    response = run(model, request(add))
    assert response.text == "Hello."
    assert response.agentic_tool_calls == []
    assert len(model.asked) == 1


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_rounds_are_bounded_and_an_answer_always_comes(rounds: int) -> None:
    count = itertools.count()

    def add(a: int, b: int) -> int:
        return a + b + next(count)  # another result each time

    model = Scripted([("add", {"a": 1, "b": 1})], endless=True)
    response = run(model, request(add, rounds=rounds, parallel_tool_calls=True))
    assert response.text == "the end"
    assert response.agentic_end == "rounds"
    assert len(log(response)) == rounds
    assert len(model.asked) == rounds + 1
    assert all(asked.tools == [add] for asked in model.asked)
    assert [asked.tool_choice for asked in model.asked] == [None] * rounds + ["none"]
    assert model.asked[-1].parallel_tool_calls is None
    assert not any(wanted(asked).type.blank for asked in model.asked)
    asked = request(add)
    assert wanted(asked).type.blank
    assert wanted(asked).key != wanted(model.asked[0]).key


@pytest.mark.parametrize("cycle", [1, 2, 3])
def test_a_loop_that_repeats_itself_is_ended_and_that_is_told(cycle: int) -> None:
    """Calls with the same results for the third time, whatever is called in between."""
    turns: list[Turn] = [[("add", {"a": number % cycle, "b": 1})] for number in range(90)]
    model = Scripted(*turns)
    response = run(model, request(add, rounds=90))
    assert response.text == "the end"
    assert response.agentic_end == "repeats"
    assert len(log(response)) == 2 * cycle + 1
    assert model.asked[-1].tool_choice == "none"
    assert response.model_dump()["agentic_end"] == "repeats"


def test_identical_calls_of_one_round_run_once() -> None:
    ran: list[int] = []
    asked: list[str] = []

    def noted(a: int) -> int:
        ran.append(a)
        return len(ran)

    def approve(request: ToolRequest) -> bool:
        asked.append(request.id)
        return True

    calls: Turn = [("noted", '{"a": 1}'), ("noted", '{ "a":1 }'), ("noted", {"a": 2})]
    model = Scripted([*calls, ("noted", {"a": 1})], [("noted", {"a": 1})], "Done.")
    response = run(model, request(noted, approve=approve))
    assert sorted(ran) == [1, 1, 2], "twice in two rounds"
    one, again, other, third, later = log(response)
    assert again.repeats == third.repeats == one.id
    assert one.repeats is other.repeats is later.repeats is None
    assert asked == [one.id, other.id, later.id]
    assert (again.status, again.result, again.value) == ("completed", one.result, one.value)
    told = [message for message in model.asked[1].messages if message.role == "tool"]
    assert [message.tool_call_id for message in told] == [one.id, again.id, other.id, third.id]
    assert response.agentic_end == "answer"
    assert "repeats" not in one.model_dump()


def test_calls_whose_numbers_are_one_float_are_two_calls() -> None:
    ran: list[Decimal] = []

    def pay(amount: Decimal) -> str:
        ran.append(amount)
        return str(amount)

    sums = "0.1", "0.10000000000000000001"
    calls: Turn = [("pay", f'{{"amount": {amount}}}') for amount in sums]
    response = run(Scripted(calls, "Done."), request(pay))
    assert sorted(ran) == [Decimal(amount) for amount in sums]
    assert [one.repeats for one in log(response)] == [None, None]


@pytest.mark.parametrize(
    ("choice", "then"),
    [
        ("required", "auto"),
        ("auto", "auto"),
        (None, None),
        ({"type": "function", "function": {"name": "add"}}, "auto"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": []},
            {"type": "allowed_tools", "mode": "auto", "tools": []},
        ),
    ],
)
def test_a_call_that_is_required_is_so_once(choice: Any, then: Any) -> None:
    model = Scripted([("add", {"a": 1, "b": 1})], [("add", {"a": 1, "b": 1})], "Two.")
    run(model, request(add, tool_choice=choice))
    assert [asked.tool_choice for asked in model.asked] == [choice, then, then]


class Forecast(BaseModel):
    """Only the caller can tell."""

    city: str


@pytest.mark.parametrize("other", [[], [("add", {"a": 1, "b": 1})]])
def test_calls_of_tools_without_code_are_the_callers(other: list[tuple[str, Any]]) -> None:
    ran: list[int] = []
    tool = Tool(add, lambda a, b: ran.append(a))
    model = Scripted([("add", {"a": 7, "b": 1})], [("Forecast", {"city": "Rome"}), *other])
    response = run(model, request(tool, Forecast))
    assert response.choices[0].finish_reason == "tool_calls"
    calls = response.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].function.name == "Forecast"
    assert len(log(response)) == 1
    assert ran == [7]
    assert response.messages[-1]["tool_calls"][0]["function"]["name"] == "Forecast"


def test_calls_of_one_round_run_side_by_side() -> None:
    both = threading.Barrier(2, timeout=60)

    def meet(name: str) -> str:
        both.wait()
        return name

    model = Scripted([("meet", {"name": "a"}), ("meet", {"name": "b"})], "Met.")
    response = run(model, request(meet))
    assert [call.result for call in log(response)] == ["a", "b"]


# -- what goes wrong --------------------------------------------------------------------------


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _even(cls, n: int) -> int:
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n

    def __call__(self) -> int:
        return self.n // 2


class Small(Scripted):
    """Its context holds ``room`` characters of results."""

    room = 1_500
    error: StructgenError = PromptError("It is too long.", is_too_long=True)
    cause: OptionError | None = None
    refused = 0

    def _next(self, request: ChatRequest) -> ChatResponse:
        if sum(len(one.text) for one in request.messages if one.role == "tool") > self.room:
            self.refused += 1
            raise self.error from self.cause
        return super()._next(request)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (Small.error, None),
        (RequestError("It is too long."), OptionError("So it is.", option="max_new_tokens")),
        (RequestError("It is too long."), OptionError("So it is.", option="max_length")),
        (BudgetTooSmall("It is too long for an answer.", minimum=2, budget=1), None),
    ],
)
def test_results_are_cut_until_they_fit_the_context(
    monkeypatch: pytest.MonkeyPatch, error: StructgenError, cause: OptionError | None
) -> None:
    monkeypatch.setattr(Small, "error", error)
    monkeypatch.setattr(Small, "cause", cause)

    def huge() -> str:
        return "x" * 10_000

    def small() -> str:
        return "y" * 300

    model = Small([("huge", {}), ("small", {})], "Long.")
    response = run(model, request(huge, small))
    assert response.text == "Long."
    first, second = log(response)
    assert first.result == "x" * 662 + "… (truncated to the first 662 characters)"
    assert (second.result, first.cut, second.cut) == ("y" * 300, True, None)
    told = [one.text for one in model.asked[1].messages if one.role == "tool"]
    assert told == [first.result, second.result]
    model = Small([("small", {})], "Long.")
    model.room = 100
    with pytest.raises(type(error), match="too long"):
        run(model, request(small))
    monkeypatch.setattr(Small, "cause", None)
    monkeypatch.setattr(Small, "error", BudgetTooSmall("Too few.", minimum=9, budget=5))
    model = Small([("huge", {})], "Long.")
    with pytest.raises(BudgetTooSmall):
        run(model, request(huge, max_tokens=5))
    assert model.refused == 1  # a cut makes no room where so little is asked for
    monkeypatch.setattr(Small, "error", RequestError("Something else is wrong."))
    model = Small([("huge", {})], "Long.")
    with pytest.raises(RequestError, match="Something else"):
        run(model, request(huge))
    assert len(model.asked) == 1


def test_what_is_kept_of_results_of_mcp_servers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 16 MiB with one wide character takes 64 MiB: ten calls took 700 MB."""
    monkeypatch.setattr("structgen.runner.agent._MOST_FOREIGN", 1 << 20)

    def page(number: int) -> str:
        return "\N{GRINNING FACE}" + "x" * (100_000 if number < 5 else 10)

    turns: list[Turn] = [[("page", {"number": n})] for n in range(6)]
    for tool, n_failed in ((inside.foreign(Tool(page)), 3), (Tool(page), 0)):
        calls = log(run(Scripted(*turns, "The end."), request(tool, rounds=6)))
        failed = [call for call in calls if call.status == "failed"]
        assert [call.value for call in failed] == [None] * n_failed
        assert all("have more than 1,048,576 bytes" in str(call.result) for call in failed)
        assert calls[-1].value == page(5)


def test_the_model_is_told_of_failures_and_goes_on() -> None:
    def broken() -> None:
        raise ValueError("the pipe leaks")

    def endless() -> None:
        threading.Event().wait()

    def huge() -> str:
        return "x" * 10_000_000

    def odd() -> Any:
        return object()

    model = Scripted(
        [(name, {}) for name in ("broken", "endless", "huge", "odd", "nowhere")],
        [("Even", {"n": 3}), ("Even", {"n": 4}), ("add", "{"), ("capital", {"country": "Oz"})],
        "Sorry.",
    )
    tools = (broken, Tool(endless, timeout=0.05), huge, odd, Even, add, capital)
    response = run(model, request(*tools, max_tool_result=100))
    assert response.text == "Sorry."
    found = {call.name + str(index): call for index, call in enumerate(log(response))}
    assert found["broken0"].error == "The tool raised ValueError: the pipe leaks"
    assert "did not return within 0.05 s" in str(found["endless1"].error)
    assert found["huge2"].cut
    assert found["huge2"].status == "completed"
    assert len(found["huge2"].result or "") < 200
    assert "cannot be written as JSON" in str(found["odd3"].error)
    assert "There is no tool 'nowhere'. There are: broken" in str(found["nowhere4"].error)
    assert "3 is odd" in str(found["Even5"].error)
    assert found["Even6"].result == "2"
    assert "not valid" in str(found["add7"].error)
    assert "KeyError" in str(found["capital8"].error)
    told = [message.text for message in model.asked[1].messages if message.role == "tool"]
    assert [text.startswith("Error: ") for text in told] == [True, True, False, True, True]
    assert {call.status for call in log(response)} == {"completed", "failed"}


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("there are no words")


class Picky(BaseModel):
    """Its own check raises what Pydantic does not expect."""

    n: int

    @field_validator("n")
    @classmethod
    def check(cls, n: int) -> int:
        raise Unspeakable

    def __call__(self) -> int:
        return self.n


def test_no_exception_of_a_tool_ends_a_chat() -> None:
    def cancelled() -> None:
        raise asyncio.CancelledError

    async def cancelled_later() -> None:
        raise asyncio.CancelledError

    def unspeakable() -> None:
        raise Unspeakable

    calls: Turn = [
        ("cancelled", {}),
        ("cancelled_later", {}),
        ("unspeakable", {}),
        ("Picky", {"n": 1}),
    ]
    response = run(
        Scripted(calls, "Sorry."), request(cancelled, cancelled_later, unspeakable, Picky)
    )
    assert response.text == "Sorry."
    assert [call.error for call in log(response)] == [
        *["The tool raised CancelledError."] * 2,
        *["The tool raised Unspeakable: "] * 2,
    ]


def test_an_approval_that_raises_cancelled_error_is_an_error() -> None:
    def approve(asked: ToolRequest) -> bool:
        raise asyncio.CancelledError

    with pytest.raises(OptionError, match="approve raised CancelledError for a call of add"):
        run(Scripted([("add", {"a": 1, "b": 2})], "?"), request(add, approve=approve))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_is_carried_out(kind: type[BaseException]) -> None:
    def stop() -> None:
        raise kind

    with pytest.raises(Interrupted) as caught:
        run(Scripted([("stop", {})], "?"), request(stop))
    assert isinstance(caught.value.cause, kind)


def test_cancelling_cancels_the_tools() -> None:
    seen: list[str] = []

    async def long() -> None:
        seen.append("began")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def work() -> None:
        agent = Agent(request(long))
        pieces = agent.answer(Scripted([("long", {})], "?").ask)
        task = asyncio.create_task(anext_of(pieces))
        while not seen:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)

    async def anext_of(pieces: Any) -> Any:
        return [piece async for piece in pieces]

    asyncio.run(work())
    assert seen == ["began", "cancelled"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"approve": "yes"}, "approve"),
        ({"tool_timeout": 0.0}, "tool_timeout"),
        ({"tools": None}, "max_tool_rounds"),
        ({"tools": [3]}, "tools"),
        ({"tools": [add, add]}, "tools"),
        ({"max_tool_rounds": 0}, "max_tool_rounds"),
        ({"max_tool_rounds": 101}, "max_tool_rounds"),
        ({"max_tool_result": 0}, "max_tool_result"),
    ],
)
def test_fields_are_checked(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        Agent(ChatRequest(**{"messages": "?", "tools": [add], "max_tool_rounds": 1, **fields}))
    assert caught.value.param == param


# -- approval ---------------------------------------------------------------------------------


def deny_large(asked: ToolRequest) -> bool | str:
    if asked.arguments.get("a", 0) > 100:
        return "Numbers are at most 100."
    return asked.name == "add"


async def deny_large_later(asked: ToolRequest) -> bool | str:
    await asyncio.sleep(0)
    return deny_large(asked)


@pytest.mark.parametrize("approve", [deny_large, deny_large_later, lambda r: deny_large_later(r)])
def test_calls_run_with_leave_only(approve: Callable[[ToolRequest], Any]) -> None:
    ran: list[str] = []

    def noted(a: int, b: int) -> int:
        ran.append(f"{a}")
        return a + b

    noted.__name__ = "add"
    model = Scripted(
        [("add", {"a": 1, "b": 2}), ("add", {"a": 101, "b": 2})],
        [("capital", {"country": "Italy"})],
        "Done.",
    )
    response = run(model, request(noted, capital, approve=approve))
    assert ran == ["1"]
    first, second, third = log(response)
    assert (first.approved, first.status, first.result) == (True, "completed", "3")
    assert (second.approved, second.status) == (False, "refused")
    assert second.result == "Error: The call was not approved. Numbers are at most 100."
    assert third.error == "The call was not approved."


def test_approval_is_asked_with_checked_values() -> None:
    seen: list[ToolRequest] = []

    def approve(asked: ToolRequest) -> bool:
        seen.append(asked)
        return True

    model = Scripted([("add", '{"a": 1, "b": 2}'), ("add", "{")], "Done.")
    run(model, request(add, approve=approve))
    assert seen == [ToolRequest("add", {"a": 1, "b": 2}, "call00010", 1)]
    assert repr(seen[0]) == "ToolRequest(add({'a': 1, 'b': 2}), id='call00010', round=1)"


def test_an_answer_that_is_none_lets_nothing_run() -> None:
    ran: list[int] = []
    tool = Tool(add, lambda a, b: ran.append(a))
    model = Scripted([("add", {"a": 1, "b": 2})], "Done.")
    with pytest.raises(OptionError, match="approve returned None"):
        run(model, request(tool, approve=lambda asked: None))

    def broken(asked: ToolRequest) -> bool:
        raise RuntimeError("no policy")

    model = Scripted([("add", {"a": 1, "b": 2})], "Done.")
    with pytest.raises(RuntimeError, match="no policy"):
        run(model, request(tool, approve=broken))
    assert not ran


# -- loops, metrics, streams ------------------------------------------------------------------


def test_tools_run_in_the_loop_that_is_named() -> None:
    async def where() -> int:
        return threading.get_ident()

    async def answer(loop: asyncio.AbstractEventLoop) -> ChatResponse:
        agent = Agent(request(where, approve=allow), loop)
        async for piece in agent.answer(Scripted([("where", {})], "There.").ask):
            if isinstance(piece, ChatResponse):
                return piece
        raise AssertionError

    async def allow(asked: ToolRequest) -> bool:
        asked_in.append(threading.get_ident())
        return True

    asked_in: list[int] = []
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        response = asyncio.run(answer(loop))
        assert log(response)[0].value == thread.ident
        assert asked_in == [thread.ident]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_tool_that_blocks_its_loop_runs_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structgen.runner.agent._GRACE_SECONDS", 0.05)
    go_on = threading.Event()

    async def block() -> None:
        go_on.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asked = request(block, tool_timeout=0.05)
        response = run(Scripted([("block", {})], "Sorry."), asked, loop=loop)
        assert "blocked its event loop for more than 0.05 s" in str(log(response)[0].error)
        assert response.text == "Sorry."
    finally:
        go_on.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_checks_of_a_tool_run_out_of_time(slow_class: type[BaseModel]) -> None:
    model = Scripted([("Slow", {"n": 1})], "Sorry.")
    response = run(model, request(slow_class, tool_timeout=0.05))
    assert "its checks did not return within 0.05 s" in str(log(response)[0].error)


def test_calls_are_counted() -> None:
    metrics = Metrics()
    model = Scripted(
        [("add", {"a": 1, "b": 2}), ("add", "{"), ("nowhere", {})],
        [("capital", {"country": "Italy"}), ("capital", {"country": "Oz"})],
        "Done.",
    )
    asked = request(add, capital, approve=lambda asked: asked.arguments != {"country": "Italy"})
    run(model, asked, metrics=metrics)
    assert metrics.value("tool_calls", "add", "ok") == 1
    assert metrics.value("tool_calls", "add", "error") == 1
    assert metrics.value("tool_calls", "", "error") == 1
    assert metrics.value("tool_calls", "capital", "refused") == 1
    assert metrics.value("tool_calls", "capital", "error") == 1
    assert metrics.histogram("tool_seconds", "add").count == 1


def pieces_of(model: Scripted, asked: ChatRequest) -> list[ChatChunk | ChatResponse]:
    async def work() -> list[ChatChunk | ChatResponse]:
        return [piece async for piece in Agent(asked).answer(model.stream)]

    return asyncio.run(work())


def test_streams_tell_of_all_rounds() -> None:
    model = Scripted([("add", {"a": 2, "b": 3}), ("add", {"a": 1, "b": 1})], "Five.")
    *chunks, response = pieces_of(model, request(add))
    assert isinstance(response, ChatResponse)
    assert len({piece.id for piece in [*chunks, response]}) == 1
    told: list[Any] = []
    for chunk in chunks:
        assert isinstance(chunk, ChatChunk)
        if chunk.agentic_tool_call is not None:
            assert not chunk.choices
            call = chunk.agentic_tool_call
            told.append((call.id[-1], call.status, call.result))
            continue
        (choice,) = chunk.choices
        assert choice.delta.tool_calls is None
        told.append(choice.delta.role or choice.delta.content or choice.finish_reason)
    assert told[:3] == ["assistant", ("0", "running", None), ("1", "running", None)]
    assert set(told[3:5]) == {("0", "completed", "5"), ("1", "completed", "2")}
    assert told[5:] == [*"Five.", "stop"]


def test_streams_hand_calls_back_where_they_are_the_callers() -> None:
    model = Scripted([("add", {"a": 2, "b": 3})], [("Forecast", {"city": "Rome"})])
    chunks = [
        piece for piece in pieces_of(model, request(add, Forecast)) if isinstance(piece, ChatChunk)
    ]
    calls = [
        call
        for chunk in chunks
        for choice in chunk.choices
        for call in choice.delta.tool_calls or []
    ]
    assert [call.function.name for call in calls] == ["Forecast"]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert sum(choice.finish_reason is not None for c in chunks for choice in c.choices) == 1


def test_a_stream_that_is_left_stops_the_tools() -> None:
    seen: list[str] = []

    async def work() -> None:
        began = asyncio.Event()

        async def long() -> None:
            try:
                seen.append("began")
                began.set()
                await asyncio.sleep(3600)
            finally:
                seen.append("ended")

        pieces = Agent(request(long)).answer(Scripted([("long", {})], "?").stream)

        async def read() -> None:
            async for _ in pieces:
                pass

        reading = asyncio.ensure_future(read())
        await began.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await pieces.aclose()

    asyncio.run(work())
    assert seen == ["began", "ended"]
