"""A real model in a real process: right answers, streams, cancelling, death, the end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import onnxruntime_genai as og
import pytest
from pydantic import AfterValidator, BaseModel, Field, model_validator

import structgen
from structgen import AsyncModel, Generator, JsonSchema, Regex, Vocabulary
from structgen.sampling import TokenIds
from structgen.workers.protocol import Ping

T = TypeVar("T")
Run = Callable[[Callable[[AsyncModel], Any]], Any]

NAMES = ("Ann", "Bob", "Eve", "Kim", "Leo", "Mia", "Tom", "Zoe")


@dataclass
class Person:
    # Of few names: which of all texts a small model copies right differs between processors.
    name: Literal["Ann", "Bob", "Eve", "Kim", "Leo", "Mia", "Tom", "Zoe"]
    age: int


def about(name: str, age: int) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": "Zed is 7 years old."},
        {"role": "assistant", "content": '{"name": "Zed", "age": 7}'},
        {"role": "user", "content": f"{name} is {age} years old."},
    ]


@pytest.fixture(scope="module")
def worker() -> Iterator[AsyncModel]:
    """One process for the module; each test has an event loop of its own."""
    model = asyncio.run(structgen.load_async("smollm2-135m-instruct"))
    yield model
    asyncio.run(model.aclose())


def pids(model: AsyncModel) -> int:
    async def get() -> int:
        return (await model._host.process()).pid

    return asyncio.run(get())


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to be so")


def test_a_hundred_calls_of_different_types_none_crossed(worker: AsyncModel) -> None:
    calls: list[tuple[Any, Callable[[Any], bool]]] = []

    async def all_of_them() -> list[Any]:
        for i, name in enumerate(NAMES):
            # Only this call's answer fits: what a model copies right differs between processors.
            fields: Any = [("name", Literal[name]), ("age", Literal[20 + i])]
            kind = make_dataclass("Kind", fields)
            value = Generator(worker, kind).parse(about(name, 20 + i), max_new_tokens=30)
            calls.append((value, lambda got, kind=kind: type(got) is kind))
        for i in range(23):
            only = Generator(worker, Regex(f"{i:03}(a|b)"))
            calls.append((only("Say: "), lambda got, i=i: got[:-1] == f"{i:03}"))
            label = Generator(worker, Literal["x", "y"]).parse(f"{i}:")
            calls.append((label, lambda got: got in ("x", "y")))
            number = Generator(worker, Literal[i, -i - 1]).parse("A number: ")
            calls.append((number, lambda got, i=i: got in (i, -i - 1)))
            free = Generator(worker).result(f"One {i} three", max_new_tokens=2)
            calls.append((free, lambda got: 1 <= got.usage.output_tokens <= 2))
        return await asyncio.gather(*[call for call, _ in calls])

    outputs = asyncio.run(all_of_them())
    assert [out for out, (_, right) in zip(outputs, calls, strict=True) if not right(out)] == []


def test_a_call_gives_what_it_gives_in_this_process(worker: AsyncModel, model: Any) -> None:
    prompt = about("Eve", 33)

    async def results() -> Any:
        generator = Generator(worker, Person)
        options = {"max_new_tokens": 30, "top_logprobs": 400}  # comes in parts
        return (
            await generator.result(prompt, **options),
            await generator.result(prompt, max_new_tokens=30, temperature=1.5, seed=3),
            await Generator(worker, Literal["a", "b"], think=14).result(prompt, seed=1),
        )

    one, two, three = asyncio.run(results())
    here = Generator(model, Person)
    expected = here.result(prompt, max_new_tokens=30, top_logprobs=400)
    assert one.value == expected.value
    assert one.logprobs == expected.logprobs
    assert (one.token_ids, one.finish_reason) == (expected.token_ids, expected.finish_reason)
    assert one.usage.output_tokens == expected.usage.output_tokens
    assert one.timings.total_seconds > 0
    assert two.text == here(prompt, max_new_tokens=30, temperature=1.5, seed=3)
    expected = Generator(model, Literal["a", "b"], think=14).result(prompt, seed=1)
    assert (three.text, three.reasoning) == (expected.text, expected.reasoning)


def test_limits_of_rules_hold_there_too(worker: AsyncModel, model: Any) -> None:
    text = 'start: "Name: " n "\\n"\nn[max_tokens=3, temperature=1.5]: /[A-Za-z ]+/'
    grammar = structgen.Cfg(text, dialect="llguidance")

    async def outputs() -> Any:
        generator = Generator(worker, grammar)
        one = [await generator("A name.", max_new_tokens=30, seed=n) for n in (1, 2, 3)]
        return one, await generator("A name.", n=2, max_new_tokens=30, seed=1)

    found, several = asyncio.run(outputs())
    here = Generator(model, grammar)
    assert found == [here("A name.", max_new_tokens=30, seed=n) for n in (1, 2, 3)]
    assert len({*found}) > 1
    assert several == here("A name.", n=2, max_new_tokens=30, seed=1)


def test_the_likeliest_label_is_found_there_too(worker: AsyncModel, model: Any) -> None:
    labels = Literal["not severe, annoying", "severe", "severe, catastrophic"]
    prompt = "The button is the wrong colour. This is "

    async def both() -> Any:
        generator = Generator(worker, labels)
        return [await generator.result(prompt, best=best) for best in (False, True)]

    found = asyncio.run(both())
    here = Generator(model, labels)
    assert [one.text for one in found] == [here(prompt, best=False), here(prompt, best=True)]
    assert found[0].text != found[1].text


def test_classes_of_functions_parse_here(worker: AsyncModel) -> None:
    @dataclass
    class Local:
        kind: Literal["cat", "dog"]

    value = asyncio.run(Generator(worker, Local).parse("A pet: "))
    assert type(value) is Local


def test_tools_and_tags_travel(worker: AsyncModel, model: Any) -> None:
    def weather(city: Literal["Oslo", "Rome"]) -> None:
        """The weather."""

    tools = structgen.ToolCalls([weather], choice="required")
    tagged = structgen.Tagged("<n>", Literal[1, 2], "</n>", at_least=1, at_most=1)
    chat = [{"role": "user", "content": "Weather in Oslo?"}]

    async def calls() -> Any:
        return (
            await Generator(worker, tools).parse(chat, max_new_tokens=50),
            await Generator(worker, tagged)(chat, max_new_tokens=20),
        )

    made, text = asyncio.run(calls())
    assert made == Generator(model, tools).parse(chat, max_new_tokens=50)
    assert "<n>" in text


def test_batch_gives_values_in_order_and_tells_what_failed(worker: AsyncModel) -> None:
    generator = Generator(worker, Person)
    prompts = [about(name, 30 + i) for i, name in enumerate(NAMES[:4])]

    async def both() -> Any:
        values = await generator.batch(prompts, max_new_tokens=30)
        with pytest.raises(structgen.BatchError) as caught:
            await generator.batch([prompts[0], "x" * 50_000], max_new_tokens=30)
        return values, caught.value

    values, error = asyncio.run(both())
    assert values == [Person(name, 30 + i) for i, name in enumerate(NAMES[:4])]
    assert error.results[0] == Person("Ann", 30)
    assert list(error.errors) == [1]
    assert isinstance(error.errors[1], structgen.PromptError)
    assert asyncio.run(generator.batch([])) == []


def test_several_outputs_are_those_of_this_process(worker: AsyncModel, model: Any) -> None:
    there, here = Generator(worker, Person), Generator(model, Person)
    prompts = [about("Ann", 30), about("Bob", 31)]
    sampled = {"max_new_tokens": 30, "temperature": 5.0, "seed": 7}

    async def calls() -> Any:
        with pytest.raises(structgen.OptionError, match="greedy"):
            await there("x", n=2)
        with pytest.raises(structgen.OptionError, match="one output"):
            there.stream("x", n=2)  # type: ignore[call-arg]
        with pytest.raises(structgen.OptionError, match="one output"):
            there.stream(prompts)  # type: ignore[arg-type]
        with pytest.raises(structgen.BatchError) as caught:
            await there.batch([prompts[0], "x" * 50_000], n=2, **sampled)
        return (
            await there(prompts[0], n=3, **sampled),
            await there.parse(prompts, n=2, **sampled),
            await there(prompts, max_new_tokens=30),
            await there.result([prompts[0], "x" * 50_000], return_errors=True, **sampled),
            caught.value,
            await there.parse(prompts[0], n=1),
            await there([]),
        )

    three, twice, two, mixed, error, one, none = asyncio.run(calls())
    assert three == here(prompts[0], n=3, **sampled)
    assert len(set(three)) > 1
    assert twice == here.parse(prompts, n=2, **sampled)
    assert two == here(prompts, max_new_tokens=30)
    assert mixed[0].text == three[0]
    assert isinstance(mixed[1], structgen.PromptError)
    assert sorted(error.errors) == [(1, 0), (1, 1)]
    assert [value is None for values in error.results for value in values] == [False] * 2 + [
        True
    ] * 2
    assert one == [Person("Ann", 30)]
    assert none == []


def test_streams(worker: AsyncModel) -> None:
    generator = Generator(worker, Person)
    prompt = about("Kim", 41)

    async def read() -> Any:
        stream = generator.stream(prompt, max_new_tokens=30)
        with pytest.raises(structgen.StructgenError, match="read to its end"):
            stream.result  # noqa: B018
        with pytest.raises(TypeError, match="Use async for and async with"):
            list(stream)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="Use async for and async with"), stream:  # type: ignore[attr-defined]
            pass
        pieces = [piece async for piece in stream]
        values = [value async for value in generator.stream_values(prompt, max_new_tokens=30)]
        return pieces, stream.result, stream.section, values

    pieces, result, section, values = asyncio.run(read())
    assert len(pieces) > 3
    assert "".join(pieces) == result.text
    assert result.value == Person("Kim", 41)
    assert section == "answer"
    assert values[-1].complete
    assert values[-1].value == Person("Kim", 41)
    assert any(value.done("name") and not value.complete for value in values)


def n_calls(model: AsyncModel) -> int:
    process = model._host._process
    assert process is not None
    return len(process._handlers)


def test_cancelling_a_task_ends_the_output(worker: AsyncModel) -> None:
    """What waits behind it comes at once: 8,000 tokens would take minutes."""

    async def main() -> Any:
        long = asyncio.create_task(Generator(worker)("Once upon a time", min_length=8000))
        stream = Generator(worker).stream("A story:", min_length=8000)
        await anext(stream)

        async def read_on() -> None:
            async for _ in stream:
                pass

        reader = asyncio.create_task(read_on())
        values = Generator(worker).stream("A story:", min_length=8000)
        async for _ in values:
            break
        await values.aclose()
        assert [piece async for piece in values] == []
        del values
        for task in (long, reader):
            task.cancel()
        done = await asyncio.gather(long, reader, return_exceptions=True)
        after = await Generator(worker).result("Hello", max_new_tokens=2)
        return done, after

    done, after = asyncio.run(main())
    assert [type(one) for one in done] == [asyncio.CancelledError] * 2
    assert after.usage.output_tokens == 2
    assert n_calls(worker) == 0


def test_short_forms(worker: AsyncModel) -> None:
    async def main() -> Any:
        value = await worker(about("Eve", 33), Person, max_new_tokens=30)
        stream = worker.stream(about("Eve", 33), Person, max_new_tokens=30)
        text = "".join([piece async for piece in stream])
        values = worker.stream_values(about("Eve", 33), Person, max_new_tokens=30)
        last = [one async for one in values][-1]
        with pytest.raises(structgen.OptionError, match="max_new_tokens"):
            await worker("x", Person, max_tokens=3)  # type: ignore[call-overload]
        return value, text, last.value, await worker("x", max_new_tokens=1)

    value, text, last, free = asyncio.run(main())
    assert value == last == Person("Eve", 33)
    assert text == '{"name": "Eve", "age": 33}'
    assert isinstance(free, str)


def test_a_model_that_was_asked_ends_when_it_is_dropped(model: Any) -> None:
    """Generators that it keeps do not keep it; a stream does."""
    made = model.to_async()

    async def main() -> Any:
        nonlocal made
        assert await made("x", Regex("ok")) == "ok"
        pid = (await made._host.process()).pid
        stream = made.stream("x", Regex("[a-z]{20}"))
        del made
        return pid, "".join([piece async for piece in stream])

    gc.disable()
    try:
        pid, text = asyncio.run(main())
        assert len(text) == 20
        wait_until(lambda: not Path(f"/proc/{pid}").exists())
    finally:
        gc.enable()


def even(value: int) -> int:
    assert threading.current_thread() is threading.main_thread()
    if value % 2:
        raise ValueError("odd")
    return value


def never(value: int) -> int:
    raise ValueError("never")


def broken(value: int) -> int:
    raise KeyError("broken")


class Booking(BaseModel):
    nights: Annotated[int, Field(ge=1, le=9)]
    guests: Annotated[int, Field(ge=1, le=9), AfterValidator(even)]

    @model_validator(mode="after")
    def many(self) -> Booking:
        if self.guests <= self.nights:
            raise ValueError("too few")
        return self


CHECKED = (
    Booking,
    list[Booking],
    Annotated[int, Field(ge=1, le=30), AfterValidator(even)],
    Annotated[int, Field(ge=1, le=2), AfterValidator(never)],
)


@pytest.mark.parametrize("options", [{}, {"temperature": 1.3, "seed": 5}])
def test_retries_are_those_of_this_process(
    worker: AsyncModel, model: Any, options: dict[str, Any]
) -> None:
    """The checks are made here, by code that never travels, while the text is written there."""
    prompt = "Booking as JSON: five nights for one person"
    options |= {"retries": 5, "max_new_tokens": 60}

    def facts(result: Any) -> Any:
        return result.text, result.value, result.attempts, result.usage.retried_tokens

    async def there(generator: Any, *, is_stream: bool) -> Any:
        try:
            if not is_stream:
                return facts(await generator.result(prompt, **options))
            stream = generator.stream(prompt, **options)
            assert "".join([piece async for piece in stream]) == stream.result.text
            return facts(stream.result)
        except structgen.errors.ValidationFailed as error:
            return str(error), error.attempts, str(error.__cause__)

    for output_type in CHECKED:
        generator: Any = Generator(worker, output_type)
        try:
            expected = facts(Generator(model, output_type).result(prompt, **options))
        except structgen.errors.ValidationFailed as error:
            expected = str(error), error.attempts, str(error.__cause__)
        assert asyncio.run(there(generator, is_stream=False)) == expected
        assert asyncio.run(there(generator, is_stream=True)) == expected


def test_code_of_a_check_that_fails_fails_the_call(worker: AsyncModel) -> None:
    generator: Any = Generator(worker, Annotated[int, Field(ge=1, le=2), AfterValidator(broken)])
    with pytest.raises(KeyError, match="broken"):
        asyncio.run(generator("x", retries=1))
    assert n_calls(worker) == 0
    with pytest.raises(structgen.OptionError, match="stop="):
        asyncio.run(Generator(worker, Booking)("x", retries=1, stop="a"))


def test_many_outputs_with_checks_wait_for_them_side_by_side(worker: AsyncModel) -> None:
    generator = Generator(worker, Booking)

    async def main() -> Any:
        calls = [
            generator.parse("Booking: ", retries=9, max_new_tokens=40, temperature=1.5, seed=i)
            for i in range(12)
        ]
        late = asyncio.ensure_future(generator("Booking: ", retries=9, max_new_tokens=40))
        await asyncio.sleep(0.05)
        late.cancel()
        return await asyncio.gather(*calls), await asyncio.gather(late, return_exceptions=True)

    bookings, (late,) = asyncio.run(main())
    assert all(one.guests % 2 == 0 and one.guests > one.nights for one in bookings)
    assert isinstance(late, asyncio.CancelledError)
    assert n_calls(worker) == 0


def test_closing_a_stream_ends_its_reader(worker: AsyncModel) -> None:
    async def main() -> Any:
        stream = Generator(worker).stream("A story:", min_length=8000)

        async def read() -> int:
            return len([piece async for piece in stream])

        reader = asyncio.ensure_future(read())
        while not stream.section:
            await asyncio.sleep(0.01)
        await stream.aclose()
        return await asyncio.wait_for(reader, 30), [piece async for piece in stream]

    n_pieces, after = asyncio.run(main())
    assert n_pieces > 0
    assert after == []
    assert n_calls(worker) == 0


def test_a_stream_may_be_collected_anywhere(worker: AsyncModel) -> None:
    """A garbage collection inside the lock of its process stopped the program."""

    async def main() -> None:
        stream = Generator(worker).stream("A story:", min_length=8000)
        await anext(stream)
        process: Any = worker._host._process

        def collect() -> None:
            with process._lock, worker._host._lock:
                stream.__del__()  # type: ignore[attr-defined]
                worker._host.pid  # noqa: B018

        thread = threading.Thread(target=collect, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()

    asyncio.run(main())


def test_a_dropped_stream_ends_the_output(worker: AsyncModel) -> None:
    async def main() -> None:
        async for _ in Generator(worker).stream("A story:", min_length=8000):
            break
        gc.collect()

    asyncio.run(main())
    assert n_calls(worker) == 0


@pytest.mark.parametrize("kind", [asyncio.Event, threading.Event])
def test_cancel_events_and_timeouts(worker: AsyncModel, kind: Any) -> None:
    async def main() -> Any:
        event = kind()
        asyncio.get_running_loop().call_later(0.1, event.set)
        free = await Generator(worker).result("A story:", min_length=8000, cancel=event)
        with pytest.raises(structgen.IncompleteOutput) as caught:
            await Generator(worker, Regex("a[a-z]{5000,}"))("A story:", timeout=0.2)
        return free, caught.value

    free, error = asyncio.run(main())
    assert free.finish_reason == "cancelled"
    assert "a".startswith(error.text[:1])  # on a busy machine nothing was written in time


def test_calls_that_are_cancelled_before_they_are_prepared_end(worker: AsyncModel) -> None:
    async def main() -> Any:
        event = asyncio.Event()
        event.set()
        prompts = [f"A {i} story: " * 300 for i in range(8)]
        calls = [Generator(worker).result(prompt, cancel=event) for prompt in prompts]
        return await asyncio.wait_for(asyncio.gather(*calls), 60)

    assert [one.finish_reason for one in asyncio.run(main())] == ["cancelled"] * 8
    assert n_calls(worker) == 0


def test_the_automaton_is_where_the_model_is(worker: AsyncModel) -> None:
    # Those of sixty waiting requests of a server were a gigabyte in its own process.
    words = [str(11 ** (190 + i)) for i in range(300)]
    generator = worker.make_generator(words)
    assert generator.constraint is not None
    assert generator.weight < 4_000_000  # without it, what was sent counts 32 times
    assert generator.constraint.allows(words[7])  # as if it were there
    assert generator.weight > 6_000_000
    own = structgen.compile(Literal["a", "b"], worker.vocabulary)
    weight = own.weight
    worker.make_generator(own)
    assert own.weight == weight > 0


def test_errors_are_the_same_as_here(worker: AsyncModel) -> None:
    generator = Generator(worker, Person)

    def keep(token_ids: TokenIds, logits: Any) -> Any:
        return logits

    async def error_of(call: Any) -> Exception:
        with pytest.raises(structgen.StructgenError) as caught:
            await call()
        return caught.value

    async def errors() -> list[Exception]:
        calls: list[Any] = [
            lambda: generator("x", max_new_tokens=2),
            lambda: generator("x", adapter="none"),
            lambda: generator.batch("a"),  # type: ignore[call-overload]
            lambda: generator("x", processor=keep),
            lambda: Generator(worker)("x", retries=1),
            lambda: generator("x", max_tokens=3),  # type: ignore[call-overload]
            lambda: generator("x" * 50_000),
            lambda: generator([{"role": "user", "content": "x", "note": keep}]),
        ]
        return [await error_of(call) for call in calls]

    budget, adapter, many, processor, retries, name, long, note = asyncio.run(errors())
    assert isinstance(budget, structgen.BudgetTooSmall)
    assert (budget.budget, budget.minimum > 2) == (2, True)
    for error in (adapter, processor, retries, name):
        assert isinstance(error, structgen.OptionError)
    assert isinstance(many, structgen.PromptError)
    assert "to_thread" in str(processor)
    assert isinstance(long, structgen.PromptError)
    assert isinstance(note, structgen.PromptError)
    with pytest.raises(structgen.OptionError, match="processor"):
        Generator(worker, Person, processor=keep)
    with pytest.raises(structgen.OutputTypeError):
        Generator(worker, Regex("(a)\\1"))
    with pytest.raises(structgen.OptionError, match="stop"):
        generator.stream("x", stop=3)  # type: ignore[arg-type]


def test_a_trace_comes_in_pieces_and_can_explain(
    worker: AsyncModel, model: structgen.TextModel
) -> None:
    here = structgen.Generator(model, Person).result("Ann is 3: ", max_new_tokens=30, trace=True)
    generator = Generator(worker, Person)

    async def streamed() -> tuple[dict[int, Any], Any]:
        steps = {}
        async with generator.stream("Ann is 3: ", max_new_tokens=30, trace=True) as stream:
            async for chunk in stream:
                steps |= {step.index: step for step in chunk.steps}
        return steps, stream.result

    steps, there = asyncio.run(streamed())
    assert [step.token_id for step in there.trace] == [step.token_id for step in here.trace]
    assert [step.n_allowed for step in there.trace] == [step.n_allowed for step in here.trace]
    assert there.trace.title == here.trace.title
    assert there.trace.explain("\n", 0) == here.trace.explain("\n", 0)
    # What came with the pieces is the trace but for its end.
    assert all(there.trace[i].token_id == step.token_id for i, step in steps.items())
    assert list(steps) == list(range(len(steps)))
    assert len(steps) >= len(there.trace) - 2
    whole = asyncio.run(generator.result("Ann is 3: ", max_new_tokens=30, trace=True))
    assert whole.trace.steps == there.trace.steps
    thought = Generator(worker, think=99).result("Why?", max_new_tokens=9, trace=True, timeout=1e-9)
    assert len(asyncio.run(thought).trace) == 0  # it ended the process


def test_how_sure_the_model_is_comes_where_it_is_asked_for(worker: AsyncModel) -> None:
    generator = Generator(worker, Literal["tea", "coffee"])

    async def main() -> Any:
        result = await generator.result("I drink ", abstain_below=0.9999)
        with pytest.raises(structgen.Abstained) as caught:
            await generator("I drink ", abstain_below=0.9999)
        return result, caught.value, await generator.result("I drink ")

    result, error, other = asyncio.run(main())
    assert [value.path for value in result.abstained] == ["$"]
    assert result.confidence["$"] == error.values[0]
    with pytest.raises(structgen.OptionError, match="abstain_below"):
        other.confidence["$"]


def test_how_sure_the_model_is_of_two_outputs_holds_up_nobody(worker: AsyncModel) -> None:
    """Each takes some hundred passes, between all of which others have theirs."""
    fields = {f"f{i}": {"enum": [f"v{j:02}" for j in range(60)]} for i in range(4)}
    schema = {"type": "object", "properties": fields, "required": [*fields]}
    generator = Generator(worker, JsonSchema({**schema, "additionalProperties": False}))
    ended: list[str] = []

    async def written(stream: Any) -> None:
        text = ""
        while not text.endswith("}"):
            text += await anext(stream)

    async def read(stream: Any) -> None:
        async for _ in stream:
            pass
        ended.append("sure")

    async def main() -> None:
        streams = [generator.stream(f"{i}:", abstain_below=1e-9) for i in range(2)]
        await asyncio.gather(*map(written, streams))
        rest = [asyncio.create_task(read(stream)) for stream in streams]
        await Generator(worker)("x", max_new_tokens=3)
        ended.append("other")
        await asyncio.gather(*rest)

    asyncio.run(main())
    assert ended == ["other", "sure", "sure"]


def test_a_process_that_dies_fails_its_calls_and_comes_back(worker: AsyncModel) -> None:
    pid = pids(worker)

    async def main() -> Any:
        calls = [
            asyncio.create_task(Generator(worker)(f"A story {i}:", min_length=8000))
            for i in range(3)
        ]
        stream = Generator(worker).stream("A story:", min_length=8000)
        await anext(stream)
        os.kill(pid, signal.SIGKILL)
        failed = await asyncio.gather(*calls, return_exceptions=True)
        with pytest.raises(structgen.errors.WorkerDied):
            async for _ in stream:
                pass
        return failed, await Generator(worker, Regex("ok"))("x")

    failed, after = asyncio.run(main())
    for error in failed:
        assert isinstance(error, structgen.errors.WorkerDied)
        assert "SIGKILL" in str(error)
    assert len({id(error) for error in failed}) == 3
    assert after == "ok"
    assert pids(worker) != pid
    assert not is_running(pid)


def test_it_answers_whoever_asks_whether_it_hangs(worker: AsyncModel) -> None:
    async def main() -> None:
        process = await worker._host.process()
        before = process._n_received
        process.send(Ping())
        while process._n_received == before:
            await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_model_that_cannot_be_loaded() -> None:
    with pytest.raises(structgen.errors.ModelNotFound, match="no-such-model"):
        asyncio.run(structgen.load_async("no-such-model"))
    with pytest.raises(structgen.OptionError, match="threads"):
        asyncio.run(structgen.load_async("smollm2-135m-instruct", threads=0))
    with pytest.raises(structgen.OptionError, match="prefix_cache=-1 must be an int"):
        asyncio.run(structgen.load_async("smollm2-135m-instruct", prefix_cache=-1))


def test_a_vocabulary_comes_from_the_process(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign tokenizer.json held this process for 5 s, and took 1 GB of its memory."""
    monkeypatch.setattr(Vocabulary, "from_tokenizer_json", None)

    async def main() -> None:
        async with await structgen.load_async(model.folder) as loaded:
            assert loaded.vocabulary == model.vocabulary
            os.kill((await loaded._host.process()).pid, signal.SIGKILL)
            with contextlib.suppress(structgen.errors.WorkerDied):
                await Generator(loaded, Regex("ok"))("x")
            assert await Generator(loaded, Regex("ok"))("x") == "ok"

    asyncio.run(main())


def test_a_process_keeps_as_much_of_prompts_as_it_is_told(model: Any) -> None:
    async def reused(prefix_cache: int | None) -> list[int]:
        loaded = await structgen.load_async(model.folder, prefix_cache=prefix_cache)
        async with loaded:
            generator = Generator(loaded, Literal["yes", "no"])
            chats = [f"Answer yes or no. Is {n} an even number, or is it odd?" for n in range(5)]
            return [
                (await generator.result(chat, max_new_tokens=4)).usage.reused_tokens
                for chat in (*chats, *chats)
            ]

    assert not any(asyncio.run(reused(0)))
    assert all(asyncio.run(reused(None))[5:])


def test_loading_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    popen = subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> Any:
        process = popen(*arguments, **options)
        started.append(process.pid)
        return process

    monkeypatch.setattr(subprocess, "Popen", noted)

    async def main() -> None:
        loading = asyncio.create_task(structgen.load_async("smollm2-135m-instruct"))
        while not started:
            await asyncio.sleep(0.01)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading

    asyncio.run(main())
    wait_until(lambda: not Path(f"/proc/{started[0]}").exists())


def test_to_async_starts_when_it_is_asked_and_ends_when_dropped(model: Any) -> None:
    made = model.to_async()
    assert made._host._process is None
    assert asyncio.run(Generator(made, Regex("ok"))("x")) == "ok"
    process = made._host._process
    pid = process.pid
    del made
    gc.collect()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert process._process.returncode == 0
    plain = og.Model(str(model.folder))
    wrapped = structgen.from_onnx_genai(plain, og.Tokenizer(plain))
    with pytest.raises(structgen.ModelError, match="objects"):
        wrapped.to_async()


def test_closing_fails_what_is_under_way(model: Any) -> None:
    async def main() -> Any:
        async with model.to_async() as made:
            stream = Generator(made).stream("A story:", min_length=8000)
            await anext(stream)
            pid = (await made._host.process()).pid
        with pytest.raises(structgen.ModelError, match="closed"):
            async for _ in stream:
                pass
        with pytest.raises(structgen.ModelError, match="closed"):
            await Generator(made)("x")
        await made.aclose()
        return pid

    assert not Path(f"/proc/{asyncio.run(main())}").exists()


SCRIPT = """
import asyncio, os, sys, structgen
async def main():
    model = await structgen.load_async("smollm2-135m-instruct")
    stream = structgen.Generator(model).stream("A story:", min_length=8000)
    await anext(stream)
    print((await model._host.process()).pid, flush=True)
    if sys.argv[1] == "exit":
        return
    await asyncio.sleep(600)
asyncio.run(main())
"""


FORKS = """
import asyncio, os, sys, structgen
model = asyncio.run(structgen.load_async("smollm2-135m-instruct"))
generator = structgen.Generator(model, structgen.Regex("ok"))
pid = os.fork()
print(asyncio.run(generator("x")), flush=True)
if pid:
    _, status = os.waitpid(pid, 0)
    print(status, asyncio.run(generator("x")))
asyncio.run(model.aclose())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_child_starts_a_process_of_its_own() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert sorted(done.stdout.split()) == ["0", "ok", "ok", "ok"], done.stderr


@pytest.mark.parametrize("how", ["exit", "killed"])
def test_the_process_ends_with_its_parent(how: str, tmp_path: Path) -> None:
    """A script without a ``__main__`` guard, at whose end the model is still computing."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(
        [sys.executable, str(script), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        if how == "killed":
            process.kill()
        told = process.stderr.read()
        process.wait()
    assert line, told
    wait_until(lambda: not is_running(int(line)))
    if how == "exit":
        assert (process.returncode, told) == (0, "")
