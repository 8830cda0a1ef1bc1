"""What goes wrong around a Runner: processes that die, closing in the middle, damaged sessions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from mixed import tiny_model
from pydantic import BaseModel

from structgen import (
    IncompleteOutput,
    ModelError,
    PromptError,
    RequestError,
    Runner,
    StructgenError,
)
from structgen.decoding import chat
from structgen.errors import ModelNotFound, SessionError, WorkerDied
from structgen.runner import Sessions, answers
from structgen.workers import STRANGER, Stranger
from structgen.workers.process import RunningCall
from structgen.workers.worker import _Worker


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def fragile(tiny: Path) -> Iterator[Runner]:
    with Runner({"it": tiny}) as made:
        made.load()
        yield made


LONG: dict[str, Any] = {"prompt": "the the in", "max_tokens": 100}


def send(runner: Runner, number: signal.Signals) -> int:
    """Send a signal to the model's process; its id. One that is stopped answers no more."""
    pid = runner._registry.entry("it").host.models[0].pid  # type: ignore[union-attr]
    assert pid is not None
    os.kill(pid, number)
    return pid


def into(failed: list[StructgenError], work: Callable[[], object]) -> None:
    try:
        work()
    except StructgenError as error:
        failed.append(error)


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(2400):
        if condition():
            return
        time.sleep(0.025)
    raise AssertionError("it never came to be so")


# -- processes that die -----------------------------------------------------------------------


def test_a_process_that_dies_while_nobody_asks(fragile: Runner) -> None:
    fragile.load()
    host = fragile._registry.entry("it").host
    send(fragile, signal.SIGKILL)
    wait_until(lambda: host.models[0].pid is None)  # type: ignore[union-attr]
    assert fragile.get_model_status() == "loaded"
    assert fragile.complete(prompt="the", max_tokens=1).choices


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_process_that_dies_in_other_work(fragile: Runner, is_stopped: bool) -> None:
    """It is stopped first, so that each kind of work finds it there and dead."""
    works: list[Callable[[], Any]] = [
        lambda: fragile.tokenize_text("the"),
        lambda: fragile.complete(prompt="the", max_tokens=1),
        lambda: list(fragile.stream_complete(prompt="the", max_tokens=1)),
        lambda: fragile.load_adapter("x", "/nowhere"),
        lambda: fragile.complete(prompt="the", output_type=Person, retries=1, max_tokens=30),
    ]
    assert fragile.complete(prompt="the", max_tokens=1).choices
    if is_stopped:
        send(fragile, signal.SIGSTOP)
    found: list[BaseException | None] = [None] * len(works)

    def ask(i: int) -> None:
        try:
            works[i]()
        except StructgenError as error:
            found[i] = error

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    if is_stopped:
        process = fragile._registry.entry("it").host.models[0]._host._process  # type: ignore[union-attr]
        wait_until(lambda: len(process._handlers) == len(works))  # type: ignore[union-attr]
    send(fragile, signal.SIGKILL)
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    for error in found:
        assert error is None or isinstance(error, ModelError)
    if is_stopped:
        assert all(isinstance(error, WorkerDied) for error in found)
    entry = fragile._registry.entry("it")
    wait_until(lambda: entry.users == entry.places.active == 0)
    assert fragile.complete(prompt="the", max_tokens=1).choices
    assert fragile.list_adapters() == []


def test_unloading_while_it_dies_and_while_it_is_asked(fragile: Runner) -> None:
    for work in (fragile.unload, fragile.reload):
        assert fragile.complete(prompt="the", max_tokens=1).choices
        send(fragile, signal.SIGSTOP)
        entry = fragile._registry.entry("it")
        failed: list[StructgenError] = []
        asking = threading.Thread(
            target=into, args=(failed, lambda: list(fragile.stream_complete(LONG)))
        )
        asking.start()
        wait_until(lambda entry=entry: entry.users == 1)  # type: ignore[misc]
        going = threading.Thread(target=work)
        going.start()
        wait_until(lambda: fragile.get_model_status() == "unloading")
        send(fragile, signal.SIGKILL)
        for thread in (asking, going):
            thread.join(60)
            assert not thread.is_alive()
        assert [type(error) for error in failed] == [WorkerDied]
        assert fragile.complete(prompt="the", max_tokens=1).choices


# -- closing in the middle --------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_closing_while_requests_run_wait_and_load(tiny: Path) -> None:
    runner = Runner({"it": tiny, "other": tiny}, max_concurrency=2, max_queue=50)
    runner.load("it")
    pid = send(runner, signal.SIGSTOP)
    ended: list[BaseException | None] = []

    def ask(i: int) -> None:
        error: BaseException | None = None
        try:
            if i % 3 == 0:
                runner.complete(LONG, model="it")
            elif i % 3 == 1:
                list(runner.stream_complete(LONG, model="it"))
            else:
                runner.complete(LONG, model="other")
        except BaseException as failure:
            error = failure
        ended.append(error)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    entry = runner._registry.entry("it")
    wait_until(lambda: entry.places.active == 2 and entry.places.waiting >= 4)
    closing = [threading.Thread(target=runner.close) for _ in range(3)]
    for thread in closing:
        thread.start()
    for thread in (*closing, *threads):
        thread.join(60)
        assert not thread.is_alive()
    assert len(ended) == 12
    assert all(isinstance(error, StructgenError) for error in ended)
    with contextlib.suppress(ProcessLookupError):
        for _ in range(400):  # its parent has waited for it, or is about to
            os.kill(pid, 0)
            time.sleep(0.05)
        raise AssertionError("the process is still there")


def test_nothing_but_closing_and_looking_goes_on_after_the_end(tiny: Path) -> None:
    runner = Runner({"it": tiny})
    assert runner.complete(prompt="the", max_tokens=1).choices
    runner.close()
    runner.close()
    asked = {"messages": "Hi"}
    works: list[Callable[[], Any]] = [
        lambda: runner.chat(asked),
        lambda: runner.chat({**asked, "session_id": "x"}),
        lambda: runner.chat({**asked, "tools": [len], "max_tool_rounds": 1}),
        lambda: list(runner.stream_chat(asked)),
        lambda: runner.complete(prompt="the"),
        lambda: list(runner.stream_complete(prompt="the")),
        lambda: runner.embed(input="a"),
        lambda: runner.rerank(query="a", documents=["b"]),
        lambda: runner.decide(state="a", questions={}),
        lambda: runner.explain(before=[], token=1, chosen=1),
        lambda: runner.count_tokens(asked),
        lambda: runner.tokenize_text("the"),
        lambda: runner.detokenize_text([1]),
        lambda: runner.max_sequence_length(),
        lambda: runner.load(),
        lambda: runner.unload(),
        lambda: runner.reload(),
        lambda: runner.remove("it"),
        lambda: runner.add_model("b", tiny),
        lambda: runner.add_alias("b", "it"),
        lambda: runner.remove_alias("b"),
        lambda: runner.load_adapter("a", "b"),
        lambda: runner.unload_adapter("a"),
        lambda: runner.export_session("x"),
        lambda: runner.delete_session("x"),
        lambda: runner.list_session_ids(),
        lambda: asyncio.run(runner.achat(asked)),
        lambda: asyncio.run(runner.acomplete(prompt="the")),
        lambda: asyncio.run(runner.aload()),
    ]
    for number, work in enumerate(works):
        with pytest.raises(StructgenError) as caught:
            work()
        assert "closed" in str(caught.value), number
    assert runner.list_models() == ["it"]
    assert runner.get_model_status() == "unloaded"
    assert runner.list_aliases() == {}
    assert runner.get_default_model_id() == "it"
    assert runner.metrics
    with pytest.raises(ModelNotFound):
        runner.get_model_info("x")


def test_the_form_of_an_explanation_is_read_beside_the_loop(
    fragile: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Half a megabyte took a third of a second, in which no stream of anybody's went on.
    threads: list[str] = []

    def seen(work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any) -> Any:
            threads.append(threading.current_thread().name)
            return work(*given)

        return wrapped

    for name in ("wanted", "refusal"):
        monkeypatch.setattr(answers, name, seen(getattr(answers, name)))
    with pytest.raises(RequestError):
        fragile.explain(grammar="a(", grammar_type="regex", before=[], token=1, chosen=1)
    assert threads == ["structgen-forms"] * 2


def test_the_messages_of_a_stranger_are_read_beside_the_loop_and_once_more(
    fragile: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Calls of tools with 100,000 values took 50 ms, for each of 16 outputs.
    threads: list[str] = []
    parse = chat.parse

    def seen(prompt: Any) -> Any:
        threads.append(threading.current_thread().name)
        return parse(prompt)

    monkeypatch.setattr(chat, "parse", seen)
    before = STRANGER.set(Stranger("a"))
    try:
        asked: dict[str, Any] = {"messages": "Hi", "n": 3, "temperature": 1.0, "max_tokens": 1}
        assert len(fragile.chat(asked).choices) == 3
        assert threads == ["structgen-forms", "structgen-runner"]
        threads.clear()
        assert list(fragile.stream_chat(asked))
        assert threads == ["structgen-forms", "structgen-runner"]
    finally:
        STRANGER.reset(before)


def test_a_prompt_that_is_too_long_is_not_sent_for_each_output(
    fragile: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 12 chats of 4 MB with n=16 were 0.8 GB in the server, and as much in the model's process.
    sent: list[int] = []
    begin = RunningCall.begin

    async def seen(call: RunningCall, host: Any) -> None:
        sent.append(len(str(call._call.prompt)))  # type: ignore[union-attr]
        await begin(call, host)

    monkeypatch.setattr(RunningCall, "begin", seen)
    long = "the " * 1_000_000
    for work in (
        lambda: fragile.chat(messages=long, n=3, temperature=1.0),
        lambda: fragile.complete(prompt=long, n=3, temperature=1.0),
    ):
        with pytest.raises(PromptError) as caught:
            work()
        assert caught.value.is_too_long
    # Arguments are looked through three times: 8 chats made others wait four times longer.
    for n, is_sent in ((20_000, False), (3, True)):
        call = {"function": {"name": "f", "arguments": json.dumps([{"a": 0}] * n)}}
        called = [{"role": "assistant", "tool_calls": [{"id": "a", "type": "function", **call}]}]
        told = {"role": "tool", "tool_call_id": "a", "content": "ok"}
        begun: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}, *called, told]
        with pytest.raises(PromptError, match="is 128"):
            fragile.chat(messages=begun, max_tokens=1)
        assert bool(sent) == is_sent
    sent.clear()
    cut: dict[str, Any] = {"truncate_sequence": True, "max_tokens": 1, "temperature": 1.0}
    assert fragile.chat(messages=long, n=3, **cut).choices
    assert fragile.complete(prompt=long, n=3, **cut).choices
    assert len(sent) == 6
    assert max(sent) < len(long) / 10


def test_a_prompt_that_is_refused_is_read_once_for_all_outputs() -> None:
    # 200,000 tokens took 0.4 s, for each of 16 outputs, in which nothing of others' was prepared.
    worker: Any = object.__new__(_Worker)
    task, prompt = Mock(prepare=Mock(side_effect=PromptError("too long"))), Mock(prepared=None)
    for _ in range(3):
        with pytest.raises(PromptError, match="too long"):
            worker._prepared(task, prompt, Mock())
    assert task.prepare.call_count == 1


# -- what is told -----------------------------------------------------------------------------


def test_what_an_output_that_was_cut_should_have_had_names_no_option_of_generators(
    fragile: Runner,
) -> None:
    asked = {"prompt": "the", "output_type": list[int], "timeout": 1e-6}
    for call in (fragile.complete, lambda **fields: list(fragile.stream_complete(**fields))):
        with pytest.raises(IncompleteOutput, match="Allow more") as caught:
            call(**asked)
        assert caught.value.text == ""
    with pytest.raises(RequestError, match="100,000") as told:
        fragile.complete(prompt="the", logit_bias={"100000": 1})
    assert told.value.param == "logit_bias"


# -- sessions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kept", ["", "{", "3", "null", '[{"role": "user"}]', '[{"role": "x", "content": "y"}]', "[3]"]
)
def test_a_session_that_somebody_has_damaged(tmp_path: Path, kept: str) -> None:
    file = tmp_path / "sessions.db"
    sessions = Sessions(file)

    async def turn(name: str) -> list[dict[str, Any]]:
        async with sessions.turn(name) as one:
            said = one.with_history([{"role": "user", "content": "Hi"}])
            await one.end([*said, {"role": "assistant", "content": "Hi"}])
            return said

    asyncio.run(turn("a"))
    asyncio.run(turn("b"))
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE sessions SET messages = ? WHERE id = 'a'", (kept,))
        connection.commit()
    for work in (
        lambda: sessions.messages("a"),
        lambda: sessions.export("a"),
        lambda: asyncio.run(turn("a")),
    ):
        with pytest.raises(SessionError, match="damaged"):
            work()
    assert len(asyncio.run(turn("b"))) == 3
    assert sessions.delete("a")
    assert len(asyncio.run(turn("a"))) == 1
    sessions.close()
