"""What outlives a stream, a worker or the server: answers that are kept, followed, told again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import openai
import pytest
from one_server import KEY, MODEL, Served, serving

from structgen import Runner
from structgen.errors import SessionError
from structgen.runner import ChatChunk
from structgen.server import Settings, store
from structgen.server import store as store_module
from structgen.server.errors import ApiError
from structgen.server.items import BEGUN
from structgen.server.routes import responses
from structgen.server.store import Store, Stored

AUTH = {"Authorization": f"Bearer {KEY}"}
ASK: Any = [{"role": "user", "content": "Count to a thousand."}]


# -- the store --------------------------------------------------------------------------------


def stored(id_: str, owner: str = "me", size: int = 0) -> Stored:
    return Stored({"id": id_}, [{"content": "x" * size}], [], owner)


@pytest.mark.parametrize("is_file", [False, True])
def test_answers_that_are_kept_are_bounded(
    tmp_path: Path, is_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_MOST_BYTES", 1000)

    async def main() -> None:
        now = [0.0]
        path = tmp_path / "kept.sqlite" if is_file else None
        store = Store(2, 100, path, clock=lambda: now[0])
        for number in range(3):
            await store.put(stored(str(number)))
        assert await store.get("0", "me") is None
        assert await store.get("2", "me") == stored("2")
        assert await store.get("2", "you") is None
        assert not await store.remove("2", "you")
        await store.put(stored("1", size=3))  # again: the same one
        assert await store.get("2", "me") is not None
        now[0] = 50.0
        await store.put(stored("a", size=700))
        await store.put(stored("b", size=700))
        assert await store.get("a", "me") is None
        assert await store.get("b", "me") is not None
        now[0] = 151.0
        if is_file:  # reading is not writing: it goes on where the disk is full
            with contextlib.closing(sqlite3.connect(tmp_path / "kept.sqlite")) as other:
                other.execute(
                    "CREATE TRIGGER full BEFORE DELETE ON responses BEGIN "
                    "SELECT RAISE(ABORT, 'full'); END"
                )
        assert await store.get("b", "me") is None
        if is_file:
            with contextlib.closing(sqlite3.connect(tmp_path / "kept.sqlite")) as other:
                other.execute("DROP TRIGGER full")
        assert await store.remove("b", "me")  # it is old, and not deleted yet
        assert not await store.remove("b", "me")
        store.close()

    asyncio.run(main())


def test_an_answer_that_is_too_old_at_once_is_no_error() -> None:
    """Nothing is left then, and the sum of no sizes is none: it was a traceback."""

    async def main() -> None:
        store = Store(4, 1e-9, clock=itertools.count(1.0).__next__)
        await store.put(stored("a"))
        assert await store.get("a", "me") is None
        store.close()

    asyncio.run(main())


def test_nobody_drives_out_what_is_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_MOST_BYTES", 2000)

    async def main() -> None:
        store = Store(4, 100)
        await store.put(stored("mine"))
        for number in range(9):
            await store.put(stored(f"many {number}", "you"))
        for number in range(3):
            await store.put(stored(f"large {number}", "you", size=1500))
        assert await store.get("mine", "me") is not None
        assert await store.get("large 2", "you") is not None
        store.close()

    asyncio.run(main())


def test_a_file_is_kept_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"

    async def written() -> None:
        store = Store(9, path=path)
        await store.put(stored("1"))
        store.close()

    async def read() -> Stored | None:
        store = Store(9, path=path)
        found = await store.get("1", "me")
        store.close()
        with pytest.raises(ApiError, match="Cannot read or write") as caught:
            await store.put(stored("2"))
        assert caught.value.status == 503
        return found

    asyncio.run(written())
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o600
    assert asyncio.run(read()) == stored("1")
    other = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(SessionError, match="of another program"):
        Store(9, path=other)


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "7", "[7]", b"\xff"])
@pytest.mark.parametrize("column", ["response", "items", "messages"])
def test_an_answer_that_somebody_changed_is_told(
    tmp_path: Path, column: str, text: str | bytes
) -> None:
    path = tmp_path / "kept.sqlite"

    async def main() -> None:
        store = Store(9, path=path)
        await store.put(stored("1"))
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"UPDATE responses SET {column} = ?", (text,))
        with pytest.raises(ApiError, match=r"'1' is damaged: .*Send the request again") as caught:
            await store.get("1", "me")
        assert caught.value.status == 503
        assert await store.remove("1", "me")
        store.close()

    asyncio.run(main())


# -- the end of a server, and of a model ------------------------------------------------------


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of its own, and where it is."""
    root = str(Path(__file__).resolve().parents[2])
    made = subprocess.Popen(
        [sys.executable, "-m", "structgen", "serve", f"small={MODEL}", "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root, "STRUCTGEN_API_KEY": f"sk-other,{KEY}"},
    )
    try:
        assert made.stderr is not None
        for line in made.stderr:
            found = re.search(r"running on (http://127\.0\.0\.1:\d+)", line)
            if found:
                break
        else:
            raise AssertionError("the server did not start")
        yield made, found[1]
    finally:
        made.kill()
        made.wait()
        if made.stderr is not None:
            made.stderr.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_is_killed_loses_nothing_on_disk(tmp_path: Path, how: signal.Signals) -> None:
    arguments = ("--lazy", "--sessions", str(tmp_path / "kept.sqlite"))
    body = {"input": "Name a colour.", "max_output_tokens": 3, "temperature": 0}
    with process(*arguments) as (server, root):
        http = httpx.Client(base_url=root, headers=AUTH, timeout=60)
        made = http.post("/v1/responses", json=body).json()
        assert made["status"] == "incomplete"
        gone = http.post("/v1/responses", json={**body, "store": False}).json()
        long = http.post(
            "/v1/responses", json={**body, "max_output_tokens": 4000, "background": True}
        ).json()
        server.send_signal(how)
        server.wait()
        http.close()
    with (
        process(*arguments) as (_, root),
        httpx.Client(base_url=root, headers=AUTH, timeout=60) as http,
    ):
        assert http.get(f"/v1/responses/{made['id']}").json() == made
        assert http.get(f"/v1/responses/{gone['id']}").status_code == 404
        (item,) = http.get(f"/v1/responses/{made['id']}/input_items").json()["data"]
        assert item["content"] == [{"type": "input_text", "text": "Name a colour."}]
        told = http.get(f"/v1/responses/{long['id']}").json()
        assert told["status"] == "failed"
        assert "server stopped" in told["error"]["message"]
        other = {"Authorization": "Bearer sk-other"}
        assert http.get(f"/v1/responses/{made['id']}", headers=other).status_code == 404
        more = http.post("/v1/responses", json={**body, "previous_response_id": made["id"]}).json()
        assert more["usage"]["input_tokens"] > made["usage"]["input_tokens"]


def test_a_model_that_is_killed_comes_back() -> None:
    body = {"messages": ASK, "grammar": "(one )+", "grammar_type": "regex"}
    short = {"messages": ASK, "max_tokens": 2}
    with Runner({"small": MODEL}) as runner, serving(runner, Settings()) as made:
        entry = runner._registry.entry("small")

        def kill() -> None:
            end = time.monotonic() + 60
            while not entry.users:
                assert time.monotonic() < end
                time.sleep(0.01)
            os.kill(entry.host.models[0].pid, signal.SIGKILL)

        with httpx.Client(base_url=made.root, timeout=120) as http:
            # One that has begun to stream ends with an error of its own.
            with http.stream(
                "POST", "/v1/chat/completions", json={**body, "stream": True}
            ) as answer:
                assert answer.status_code == 200
                lines = (line for line in answer.iter_lines() if line)
                next(lines)
                kill()
                last = list(lines)[-1]
            error = json.loads(last.removeprefix("data: "))["error"]
            assert (error["type"], error["code"]) == ("server_error", "worker_died")
            assert http.post("/v1/chat/completions", json=short).status_code == 200
            # One that waits for its answer gets 503.
            with (
                httpx.Client(base_url=made.root, timeout=120) as other,
                ThreadPoolExecutor(1) as pool,
            ):
                waiting = pool.submit(other.post, "/v1/chat/completions", json=body)
                kill()
                answer = waiting.result()
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "worker_died"
            assert int(answer.headers["retry-after"]) >= 1
            assert http.post("/v1/chat/completions", json=short).status_code == 200


def test_a_model_that_cannot_be_loaded_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "structgen.server")
    with (
        Runner({"none": str(tmp_path)}) as runner,
        serving(runner, Settings()) as made,
        httpx.Client(base_url=made.root, timeout=60) as http,
    ):
        answer = http.post("/v1/chat/completions", json={"messages": ASK})
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] == "model_unavailable"
        assert answer.json()["error"]["type"] == "server_error"
        assert int(answer.headers["retry-after"]) >= 1
        assert "is not a model folder" in answer.text
        status = http.get("/v1/models/none/status").json()
        assert "is not a model folder" in status["error"]
        ready = http.get("/health/ready")
        assert (ready.status_code, ready.json()["error"]["code"]) == (503, "not_ready")
        assert http.get("/health/live").status_code == 200
        for said in (answer.text, status["error"], ready.text):
            assert str(tmp_path.parent) not in said
    entries = [record.entry for record in caplog.records if hasattr(record, "entry")]
    assert str(tmp_path) in next(entry["why"] for entry in entries if "why" in entry)


# -- answers that are followed ----------------------------------------------------------------


def test_an_owner_has_so_many_answers_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    def job(owner: str, size: int = 1) -> store.Job:
        return store.Job(Stored({"id": f"resp_{next(numbers)}"}, [], [], owner), size)

    numbers, jobs = itertools.count(), store.Jobs()
    open_ = [job("a") for _ in range(store._MOST_JOBS)]
    for one in open_:
        jobs.add(one)
    with pytest.raises(ApiError, match="Wait for one to finish, or cancel one with POST") as caught:
        jobs.add(job("a"))
    assert caught.value.status == 429
    jobs.add(job("b", store._MOST_JOB_BYTES - 1))
    last = job("b")
    jobs.add(last)
    with pytest.raises(ApiError, match=r"16,777,216 bytes\. The limits are"):
        jobs.add(job("b"))
    last.add(b"grown")
    last.end()
    assert last.size == len(b"grown")  # its input is the store's
    jobs.add(job("b"))
    open_[0].end()
    jobs.add(job("a"))
    monkeypatch.setattr(store, "_FINISHED_JOB_BYTES", 9)
    assert jobs.get(last.stored.response["id"], "b") is last
    for _ in range(2):
        last = job("c")
        jobs.add(last)
        last.add(b"grown")
        last.end()
    jobs.add(job("c"))
    kept = [id_ for id_, one in jobs._jobs.items() if one.is_finished]
    assert kept == [last.stored.response["id"]]


def test_an_answer_that_is_stopped_twice_tells_its_last_events() -> None:
    async def main() -> None:
        job, jobs = store.Job(Stored({"id": "resp_1"}, [], [], "a")), store.Jobs()

        async def made() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)  # they are made in a thread
                job.add(b"cancelled")

        jobs.add(job)
        job.task = asyncio.ensure_future(made())
        await asyncio.sleep(0)
        await asyncio.gather(jobs.stop("resp_1"), jobs.stop("resp_1"))
        assert job.events == [b"cancelled"]

    asyncio.run(main())


def test_an_answer_in_the_background_is_followed_from_any_place(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[store.Job] = []

    def job(stored: Stored, size: int) -> store.Job:
        jobs.append(store.Job(stored, size))
        return jobs[-1]

    monkeypatch.setattr(responses, "Job", job)
    events = []
    stream = client.responses.create(
        model="small", input="Name a colour.", temperature=0, max_output_tokens=12,
        background=True, stream=True,
    )  # fmt: skip
    for event in stream:
        events.append(event)
        if event.sequence_number == 5:
            stream.response.close()  # the connection is lost; the answer goes on
            break
    id_ = events[0].response.id
    more = list(client.responses.retrieve(id_, stream=True, starting_after=5))
    assert [event.sequence_number for event in events + more] == list(
        range(len(events) + len(more))
    )
    made = more[-1].response
    assert more[-1].type == f"response.{made.status}"
    deltas = [e.delta for e in events + more if e.type == "response.output_text.delta"]
    assert "".join(deltas) == made.output_text
    assert client.responses.retrieve(id_).output_text == made.output_text
    items = client.responses.input_items.list(id_)
    assert [item.content[0].text for item in items] == ["Name a colour."]  # type: ignore[union-attr]
    assert not jobs[0].stored.items + jobs[0].stored.messages  # which the store has
    again = list(client.responses.retrieve(id_, stream=True))
    assert [event.type for event in again] == [event.type for event in events + more]
    with client.responses.stream(response_id=id_, starting_after=3) as followed:
        assert next(iter(followed)).sequence_number == 4


def test_an_answer_that_is_there_is_told_again(client: openai.OpenAI) -> None:
    tool: Any = {
        "type": "function", "name": "weather", "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}},
            "required": ["city"], "additionalProperties": False},
    }  # fmt: skip
    for fields in (
        {"max_output_tokens": 3},
        {"reasoning": {"effort": "minimal"}, "max_output_tokens": 24},
        {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False},
        {"include": ["message.output_text.logprobs"], "max_output_tokens": 2},
    ):
        given: Any = {"model": "small", "input": "Hi.", "temperature": 0, **fields}
        live = list(client.responses.create(**given, stream=True))
        made = live[-1].response
        again = list(client.responses.retrieve(made.id, stream=True))

        def kinds(events: Any) -> list[str]:
            return [e.type for e in events if not e.type.endswith(".delta")]

        assert kinds(again) == kinds(live)
        assert again[-1].response == made
        assert [e.sequence_number for e in again] == list(range(len(again)))
        done = [e.item for e in again if e.type == "response.output_item.done"]
        assert done == made.output
        (last,) = client.responses.retrieve(made.id, stream=True, starting_after=10_000)
        assert last.response == made


@pytest.mark.parametrize("ends", ["cancel", "fail"])
def test_an_answer_that_is_cut_as_it_ends_goes_on_from_what_was_told(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Those of the end were made, and not told: 5 to 8 of 10 were missing, its message had no end,
    and what failed or was cancelled said that it was incomplete for its length, too."""

    async def cut(request: Any, work: Any, *, is_large: bool) -> None:
        work()
        raise asyncio.CancelledError

    async def pieces() -> AsyncGenerator[ChatChunk, None]:
        choice = {"delta": {"content": "a"}, "finish_reason": "length"}
        yield ChatChunk.model_validate({"id": "", "created": 0, "model": "", "choices": [choice]})

    async def main() -> list[bytes]:
        stored = Stored({**BEGUN, "background": True, "store": True}, [], [], "me")
        events = responses.Events(stored.response)
        request: Any = SimpleNamespace(state=SimpleNamespace(log={}))
        made = responses._made(request, cast(Any, None), stored, events, pieces())
        told = []
        with contextlib.suppress(asyncio.CancelledError):
            async for one in made:
                told.append(one)
        return told + (
            [*events.cancel()] if ends == "cancel" else [events.fail(ApiError(408, "late"))]
        )

    monkeypatch.setattr(responses, "aside", cut)
    monkeypatch.setattr(responses, "_settle", lambda *given: None)
    said = [json.loads(one.split(b"data: ")[1]) for one in asyncio.run(main())]
    assert [one["sequence_number"] for one in said] == list(range(len(said)))
    done = [one["item"] for one in said if one["type"] == "response.output_item.done"]
    assert said[-1]["response"]["output"] == done
    assert said[-1]["response"]["incomplete_details"] is None


def test_a_cancelled_answer_ends_its_events(served: Served, client: openai.OpenAI) -> None:
    stream = client.responses.create(
        model="small", input="Count.", background=True, stream=True, max_output_tokens=4000,
        extra_body={"grammar": "(one )+", "grammar_type": "regex"},
    )  # fmt: skip
    events = iter(stream)
    id_ = next(events).response.id
    assert client.responses.cancel(id_).status == "cancelled"
    *_, last = events
    assert last.response.status == "cancelled"
    assert client.responses.retrieve(id_).status == "cancelled"
    client.responses.delete(id_)
    for path, param in (
        ("?stream=maybe", "stream"),
        ("?starting_after=1", "starting_after"),
        ("?stream=true&starting_after=-1", "starting_after"),
        ("?foo=1", "foo"),
    ):
        answer = httpx.get(f"{served.root}/v1/responses/x{path}", headers=AUTH, timeout=60)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
