"""Tools: functions, classes and schemas that run, whatever their code does."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import tracemalloc
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from structgen import JsonSchema, OptionError, OutputTypeError, ParseError
from structgen.runner import Tool, ToolFailure, ToolOutcome
from structgen.runner.loops import within
from structgen.runner.tools import as_text, tools_of


def run(tool: Tool, arguments: str = "{}", **options: Any) -> ToolOutcome:
    return asyncio.run(tool.run(arguments, **options))


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    More of it.
    """
    return a + b


async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


class Point(BaseModel):
    """A point."""

    x: int
    y: int = 0


class Adder(BaseModel):
    a: int
    b: int

    def __call__(self) -> int:
        return self.a + self.b


@dataclass
class Order:
    what: str
    when: date


SCHEMA = {
    "type": "object",
    "properties": {"city name": {"type": "string"}},
    "required": ["city name"],
    "additionalProperties": False,
}


# -- what is a tool ---------------------------------------------------------------------------


def test_a_function_runs_with_python_values() -> None:
    seen = []

    def order(when: date, point: Point) -> str:
        seen.append((when, point))
        return f"{when:%d.%m.}"

    outcome = run(Tool(order), '{"when": "2024-02-29", "point": {"x": 1}}')
    assert outcome.content == outcome.result == "29.02."
    assert outcome.error is None
    assert outcome.arguments == {"when": date(2024, 2, 29), "point": Point(x=1)}
    assert seen == [(date(2024, 2, 29), Point(x=1))]


def test_what_a_model_is_told_of_a_function() -> None:
    tool = Tool(add)
    assert tool.name == "add"
    assert tool.schema["function"]["description"].startswith("Add two numbers.")
    assert tool.schema["function"]["parameters"]["required"] == ["a"]


@pytest.mark.parametrize(
    "source",
    [
        {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}},
        {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {}}}}},
        {"title": "f", "type": "object", "properties": {"a": {}}},
    ],
)
def test_arguments_of_a_dict_are_those_that_it_names(source: dict[str, Any]) -> None:
    before = repr(source)
    tool = Tool(source, dict)
    assert tool.schema["function"]["parameters"]["additionalProperties"] is False
    assert repr(source) == before


def test_a_schema_object_says_exactly_what_its_arguments_are() -> None:
    tool = Tool(JsonSchema({"title": "f", "type": "object", "properties": {"a": {}}}))
    assert "additionalProperties" not in tool.schema["function"]["parameters"]


def test_defaults_are_used_and_no_arguments_are_an_empty_object() -> None:
    assert run(Tool(add), '{"a": 2}').result == 3

    def nothing() -> str:
        return "done"

    assert run(Tool(nothing), "").content == "done"


def test_async_functions_run_in_the_loop() -> None:
    assert run(Tool(add_later), '{"a": 2, "b": 3}').content == "5"


def test_a_sync_function_may_return_an_awaitable() -> None:
    def lazily(a: int) -> Any:
        return add_later(a, 1)

    assert run(Tool(lazily), '{"a": 2}').content == "3"


def test_sync_functions_run_in_another_thread() -> None:
    def where() -> int:
        return threading.get_ident()

    assert run(Tool(where)).result != threading.get_ident()


def test_a_class_without_code_is_not_runnable_and_with_a_callback_it_is() -> None:
    assert not Tool(Point).is_runnable
    assert run(Tool(Point), '{"x": 1}').error == "Point has no function to call."
    tool = Tool(Point, lambda point: point.x + point.y)
    assert tool.is_runnable
    assert run(tool, '{"x": 1, "y": 2}').content == "3"


def test_the_instance_of_a_class_is_called() -> None:
    assert Tool(Adder).is_runnable
    assert run(Tool(Adder), '{"a": 1, "b": 2}').content == "3"


def test_dataclasses_are_tools() -> None:
    tool = Tool(Order, lambda order: order)
    outcome = run(tool, '{"what": "tea", "when": "2024-01-01"}')
    assert outcome.result == Order("tea", date(2024, 1, 1))
    assert outcome.content == '{"what":"tea","when":"2024-01-01"}'


@pytest.mark.parametrize(
    "source",
    [
        JsonSchema({"title": "weather", **SCHEMA}),
        {"name": "weather", "parameters": SCHEMA},
        {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    ],
)
def test_schemas_run_their_callback_by_keyword(source: Any) -> None:
    assert not Tool(source).is_runnable
    tool = Tool(source, lambda **given: given)
    assert tool.name == "weather"
    assert run(tool, '{"city name": "Rome"}').result == {"city name": "Rome"}


def test_a_callback_stands_for_the_function() -> None:
    assert run(Tool(add, lambda a, b: a * b), '{"a": 3, "b": 4}').result == 12
    assert run(Tool(add, add_later), '{"a": 3, "b": 4}').result == 7


@pytest.mark.parametrize("value", [3, "add", [], lambda x: x])
def test_what_is_no_tool_is_refused(value: Any) -> None:
    with pytest.raises(OutputTypeError):
        Tool(value)


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match="callback=3"):
        Tool(add, 3)  # type: ignore[arg-type]
    for wrong in (0, -1, "3", float("inf"), True):
        with pytest.raises(OptionError, match="timeout"):
            Tool(add, timeout=wrong)  # type: ignore[arg-type]


def test_several_tools_have_different_names() -> None:
    assert list(tools_of([add, Tool(add_later), Point])) == ["add", "add_later", "Point"]
    with pytest.raises(OutputTypeError, match="both named 'add'"):
        tools_of([add, Tool(add)])
    with pytest.raises(OutputTypeError, match="list of tools"):
        tools_of("add")


# -- what goes wrong --------------------------------------------------------------------------


def test_what_a_tool_raises_is_told() -> None:
    def broken(a: int) -> int:
        raise ValueError(f"no {a}")

    outcome = run(Tool(broken), '{"a": 2}')
    assert outcome.content == "Error: The tool raised ValueError: no 2"
    assert outcome.error == "The tool raised ValueError: no 2"
    assert outcome.result is None
    assert outcome.arguments == {"a": 2}


def test_what_a_tool_raises_is_cut_before_it_is_told() -> None:
    long = "a" * 10_000_000

    def broken() -> int:
        raise ValueError(long)

    tracemalloc.start()
    try:
        outcome = run(Tool(broken))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.error is not None
    assert outcome.error.startswith("The tool raised ValueError: aaa")
    assert most < 2_000_000


def test_a_tool_says_it_in_its_own_words() -> None:
    def broken() -> int:
        raise ToolFailure("There is no such city.")

    assert run(Tool(broken)).content == "Error: There is no such city."


@pytest.mark.parametrize("arguments", ['{"a": "x"}', "{", "[]", '{"a": 1, "c": 2}', "null"])
def test_arguments_that_are_not_valid_are_told_and_nothing_runs(arguments: str) -> None:
    outcome = run(Tool(add), arguments)
    assert outcome.error is not None
    assert "arguments are not valid" in outcome.error
    assert outcome.arguments is None


def test_a_parse_error_of_the_tool_itself_is_not_one_of_its_arguments() -> None:
    def ask() -> int:
        raise ParseError("Nobody knows.", text="?")

    assert run(Tool(ask)).error == "The tool raised ParseError: Nobody knows."


def test_a_tool_that_never_returns_runs_out_of_time() -> None:
    forever = threading.Event()

    def hang() -> None:
        forever.wait()

    tool = Tool(hang, timeout=0.01)
    try:
        assert run(tool).error == "The tool timed out: it did not return within 0.01 s."
        for _ in range(7):
            run(tool)
        last = run(tool).error
        assert last is not None
        assert "8 timed-out calls of it are still running" in last
    finally:
        forever.set()
    for thread in threading.enumerate():
        if thread.name == "tool hang":
            thread.join()
    forever.clear()
    assert "within 0.01 s" in str(run(tool).error)
    forever.set()


def test_a_call_that_is_left_as_it_fails_is_not_reported() -> None:
    """asyncio wrote the error to its log, with a page of traceback."""
    reported: list[Any] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        failed = asyncio.Event()

        async def fail() -> None:
            failed.set()
            raise ValueError("left")

        task = asyncio.ensure_future(within(None, fail()))
        await failed.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    gc.collect()
    assert not reported


def test_an_async_tool_that_never_returns_runs_out_of_time() -> None:
    async def hang() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if cancelled:  # again, by the end of the loop
                    raise
                cancelled.append(True)  # and it goes on

    cancelled: list[bool] = []
    assert "within 0.01 s" in str(run(Tool(hang), timeout=0.01).error)
    assert cancelled


def test_the_timeout_of_the_tool_is_before_that_of_the_call() -> None:
    async def slow() -> str:
        await asyncio.sleep(0.05)
        return "done"

    assert run(Tool(slow, timeout=60), timeout=0.01).content == "done"


def test_checks_of_a_class_run_out_of_time(slow_class: type[BaseModel]) -> None:
    outcome = run(Tool(slow_class), '{"n": 1}', timeout=0.01)
    assert "within 0.01 s" in str(outcome.error)


def test_a_timeout_that_a_tool_raises_is_its_own() -> None:
    def broken() -> None:
        raise TimeoutError("the database")

    assert run(Tool(broken)).error == "The tool raised TimeoutError: the database"


def test_long_results_are_cut_and_that_is_told() -> None:
    def long() -> str:
        return "a" * 10_000_000

    outcome = run(Tool(long))
    assert outcome.cut
    assert outcome.content.endswith("a… (truncated to the first 20,000 of 10,000,000 characters)")
    assert len(outcome.content) < 20_100
    assert len(outcome.result) == 10_000_000
    assert len(run(Tool(long), longest=10).content) < 100


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (float("nan"), '"NaN"'),
        ({"a": [1, date(2024, 1, 2)]}, '{"a":[1,"2024-01-02"]}'),
        (Point(x=1), '{"x":1,"y":0}'),
        ({1, 2}, "[1,2]"),
        ("plain", "plain"),
    ],
)
def test_results_as_text(value: Any, text: str) -> None:
    assert as_text(value) == text


def test_what_no_prompt_can_hold_is_replaced() -> None:
    def odd() -> str:
        return "nul\0 and \ud800"

    assert run(Tool(odd)).content == "nul\ufffd and \ufffd"


def test_a_str_of_a_class_of_its_own_is_told_as_it_is() -> None:
    class Odd(str):
        def __len__(self) -> int:
            raise AssertionError("in the event loop, which this may block for ever")

    found = as_text(Odd("odd"))
    assert (found, type(found)) == ("odd", str)


def test_what_cannot_be_written_is_told() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value in (object(), circle, b"\xff", {"a": object()}, ["\ud800"]):
        with pytest.raises(ToolFailure, match="cannot be written as JSON"):
            as_text(value)
    for endless in (itertools.count(), (i for i in ())):
        with pytest.raises(ToolFailure, match="may never end"):
            as_text(endless)


def test_what_a_tool_prints_is_no_part_of_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    def chatty() -> str:
        print("hello")
        return "done"

    assert run(Tool(chatty)).content == "done"
    assert capsys.readouterr().out == "hello\n"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("there are no words")


class Cancelling(Exception):
    def __str__(self) -> str:
        raise asyncio.CancelledError


class UnspeakableFailure(ToolFailure, Unspeakable):
    __str__ = Unspeakable.__str__


class Nameless(type):
    @property
    def __name__(cls) -> str:
        raise RuntimeError("there is no name")


class OfNoName(Exception, metaclass=Nameless):
    pass


class Slow(Exception):
    ends = threading.Event()
    threads: ClassVar[list[threading.Thread]] = []

    def __str__(self) -> str:
        self.threads.append(threading.current_thread())
        self.ends.wait(10)
        return "said"


class SlowFailure(ToolFailure, Slow):
    __str__ = Slow.__str__


def test_an_exception_of_no_name_is_told() -> None:
    def stop() -> None:
        raise OfNoName("told")

    def returned() -> object:
        return Nameless("It", (), {})()

    assert run(Tool(stop)).error == "The tool raised OfNoName: told"
    assert "returned a value of type It that" in str(run(Tool(returned)).error)


@pytest.mark.parametrize("error", [Slow, SlowFailure])
def test_an_exception_that_takes_for_ever_to_be_told_is_not_waited_for(
    error: type[Exception],
) -> None:
    def stop() -> None:
        raise error

    async def stop_later() -> None:
        raise error

    Slow.ends.clear()
    try:
        for function in (stop, stop_later):
            said = str(run(Tool(stop, function), timeout=0.01).error)
            assert said in (f"The tool raised {error.__name__}: ", "The tool failed.") or (
                "timed out" in said  # the machine is busy
            )
        assert threading.main_thread() not in Slow.threads  # the loop's, which others share
    finally:
        Slow.ends.set()


@pytest.mark.parametrize(
    "error", [Unspeakable, UnspeakableFailure, Cancelling, asyncio.CancelledError]
)
def test_an_exception_of_any_kind_is_told(error: type[BaseException]) -> None:
    """One that cannot be written, and one that nobody but the tool itself has raised."""

    def stop() -> None:
        raise error

    async def stop_later() -> None:
        raise error

    for function in (stop, stop_later, lambda: stop_later()):
        outcome = run(Tool(stop, function))
        assert outcome.error in (
            f"The tool raised {error.__name__}{end}" for end in (".", ": ")
        ) or (outcome.error == "The tool failed.")
        assert outcome.content == f"Error: {outcome.error}"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_goes_through(kind: type[BaseException]) -> None:
    def stop() -> None:
        raise kind

    async def stop_later() -> None:
        raise kind

    for function in (stop, stop_later):
        with pytest.raises(kind):
            run(Tool(function))


def test_a_stop_iteration_is_told() -> None:
    def empty() -> int:
        return next(iter(()))

    assert "StopIteration" in str(run(Tool(empty)).error)


def test_cancelling_goes_through_and_leaves_the_thread() -> None:
    forever = threading.Event()

    def hang() -> None:
        forever.wait()

    async def cancelled() -> None:
        task = asyncio.create_task(Tool(hang).run("{}", timeout=None))
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    forever.set()
