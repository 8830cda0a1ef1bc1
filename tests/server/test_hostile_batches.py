"""Files and batches of those who mean harm, and folders that were damaged. No model is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Request
from fastapi.responses import FileResponse, Response

from structgen import Runner
from structgen.errors import OptionError
from structgen.jobs import Parts
from structgen.runner import Metrics, Traces
from structgen.server import Settings, batches, create_app
from structgen.server.batches import Batches, Files
from structgen.server.errors import ApiError
from structgen.server.exchange import sent
from structgen.server.gateway import OWNER, Gateway, Keys, owner_of
from structgen.server.routes.batches import BatchBody, bodies
from structgen.server.shapes import ResponsesBody
from structgen.server.store import Store
from structgen.server.wire import read

CHAT = "/v1/chat/completions"


def line(custom_id: str, **body: Any) -> bytes:
    asked = {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}
    return json.dumps(asked).encode()


class App:
    """Answers each line with a text; one whose body says so waits for the gate."""

    def __init__(self, answer: str = "yes") -> None:
        self.answer = json.dumps({"said": answer}).encode()
        self.asked: list[str] = []
        self.ended = 0
        self.gate = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = json.loads((await receive())["body"])
        self.asked.append(scope[OWNER])
        if body.get("waits"):
            try:
                await self.gate.wait()
            finally:
                self.ended += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self.answer})


class Server:
    """A server's batches, without a server."""

    def __init__(self, folder: Path, app: App, max_bytes: int = 1 << 20, **more: Any) -> None:
        self.files = Files(folder, max_bytes)
        self.batches = Batches(app, self.files, Settings(**more))

    async def create(self, owner: str, *lines: bytes) -> str:
        file = self.files.add(owner, b"\n".join(lines), "x.jsonl")
        return await self.of(owner, file["id"])

    async def of(self, owner: str, file: str) -> str:
        given = {
            "input_file_id": file,
            "endpoint": CHAT,
            "completion_window": "24h",
            "metadata": None,
        }
        id_: str = (await self.batches.create(owner, given))["id"]
        return id_

    async def until(self, owner: str, id_: str, *statuses: str) -> dict[str, Any]:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            batch = self.files.get(owner, id_)
            if batch["status"] in statuses:
                return batch
            await asyncio.sleep(0.005)
        raise AssertionError(batch)

    async def ended(self, owner: str, id_: str) -> dict[str, Any]:
        return await self.until(owner, id_, "completed", "failed", "cancelled")

    def rows(self, owner: str, file: str | None) -> list[dict[str, Any]]:
        assert file is not None
        return [
            json.loads(one)
            for one in self.files.content(owner, file).read_bytes().split(b"\n")
            if one
        ]


def run(
    folder: Path, work: Callable[[Server], Awaitable[None]], app: App | None = None, **more: Any
) -> None:
    """Do something with a server that runs."""

    async def served() -> None:
        server = Server(folder, app or App(), **more)
        server.batches.start()
        try:
            await work(server)
        finally:
            await server.batches.close(5)

    asyncio.run(served())


def form(*parts: bytes, end: bytes = b"--x--\r\n") -> bytes:
    return (
        b"".join(b"--x\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts)
        + end
    )


PURPOSE = b'name="purpose"\r\n\r\nbatch'
FILE = b'name="file"; filename="r.jsonl"\r\nContent-Type: text/plain\r\n\r\n'


def uploaded(
    folder: Path, body: bytes, kind: str = "multipart/form-data; boundary=x", method: str = "POST"
) -> httpx.Response:
    async def asks() -> httpx.Response:
        with Runner({"m": "smollm2-135m-instruct"}) as runner:
            app = create_app(runner, Settings(files=folder, max_file_bytes=32 << 20))
            try:
                transport = httpx.ASGITransport(app)
                async with httpx.AsyncClient(
                    transport=transport, base_url="http://localhost"
                ) as client:
                    return await client.request(
                        method,
                        "/v1/files",
                        content=body,
                        headers={"Content-Type": kind} if kind else {},
                    )
            finally:
                app.state.files.close()

    return asyncio.run(asks())


def test_a_file_that_is_deleted_as_it_is_fetched_is_a_404(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a 500 with a traceback in the log."""
    made = FileResponse.__init__

    def deleted(self: FileResponse, path: Path, **more: Any) -> None:
        made(self, path, **more)
        path.unlink()

    async def fetched() -> httpx.Response:
        with Runner({"m": "smollm2-135m-instruct"}) as runner:
            app = create_app(runner, Settings(files=tmp_path / "files", api_keys=("k",)))
            files: Files = app.state.files
            id_ = files.add(owner_of("k"), b"{}", "a")["id"]
            try:
                over = httpx.ASGITransport(app)
                async with httpx.AsyncClient(transport=over, base_url="http://a") as client:
                    key = {"Authorization": "Bearer k"}
                    return await client.get(f"/v1/files/{id_}/content", headers=key)
            finally:
                files.close()

    assert asyncio.run(fetched()).text == "{}"
    monkeypatch.setattr(FileResponse, "__init__", deleted)
    answer = asyncio.run(fetched())
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_a_form_of_many_parts_takes_no_time(tmp_path: Path) -> None:
    """The thread that reads it is also the one that reads others' bodies."""
    body = form(*[b'name="a"; filename="b"\r\n\r\n'] * 20_000)
    began = time.process_time()
    answer = uploaded(tmp_path / "files", body)
    assert answer.status_code == 400
    assert "more than 16 parts" in answer.text
    assert time.process_time() - began < 1  # it took 2.7 s


@pytest.mark.parametrize("end", [b"", b"--x", b"--y--\r\n"])
def test_a_form_without_an_end_is_none(tmp_path: Path, end: bytes) -> None:
    answer = uploaded(tmp_path, form(PURPOSE, FILE + b"{}", end=end))
    assert answer.status_code == 400
    assert "it is incomplete" in answer.text


def test_what_forms_may_be(tmp_path: Path) -> None:
    content = b"\xff\r\n--\r\n--y\r\n\r\n"
    for body, kind in (
        (form(PURPOSE, FILE + content), "multipart/form-data; boundary=x"),
        (b"before\r\n" + form(PURPOSE, FILE + content), 'Multipart/Form-Data; a=b; boundary="x"'),
        (
            form(b"name=purpose\r\n\r\nbatch", b"filename=r.jsonl; name=file\r\n\r\n" + content),
            "multipart/form-data;boundary=x",
        ),
    ):
        answer = uploaded(tmp_path, body, kind)
        assert answer.status_code == 200, answer.text
        assert (answer.json()["bytes"], answer.json()["filename"]) == (len(content), "r.jsonl")
    encoded = b'name="file"; filename="f"\r\nContent-Transfer-Encoding: base64\r\n\r\ne30='
    for body, kind, said in (
        (form(PURPOSE, encoded), "multipart/form-data; boundary=x", "'base64'"),
        (form(PURPOSE, FILE), "multipart/form-data", "has no boundary"),
        (form(PURPOSE, FILE), "multipart/form-data; boundary=" + "x" * 71, "has no boundary"),
        (form(PURPOSE, FILE), "application/json", "instead of multipart/form-data"),
        (
            form(PURPOSE, b'name="file"\r\n\r\n{}'),
            "multipart/form-data; boundary=x",
            "file is missing",
        ),
    ):
        answer = uploaded(tmp_path, body, kind)
        assert answer.status_code == 400
        assert said in answer.text


def test_another_method_is_told_of_the_method(tmp_path: Path) -> None:
    assert uploaded(tmp_path, b"", "", "PUT").status_code == 405
    answer = uploaded(tmp_path, form(PURPOSE, FILE), "")
    assert answer.status_code == 400
    assert "has no boundary" in answer.text


def test_an_endpoint_says_what_it_takes(tmp_path: Path) -> None:
    assert bodies(Settings(files=tmp_path, max_file_bytes=7))["/v1/files"].most == 7
    assert bodies(Settings(max_body_bytes=5))["/v1/files"].most == 5


def test_a_long_batch_lets_others_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_TURN", 0.0)
    monkeypatch.setattr(batches, "_WINDOW", 1)
    app = App()

    async def work(server: Server) -> None:
        long = await server.create("a", *(line(str(i), waits=i == 0) for i in range(12)))
        await server.until("a", long, "in_progress")
        short = await server.create("b", line("0"))
        app.gate.set()
        await server.ended("b", short)
        batch = await server.ended("a", long)
        made = server.rows("a", batch["output_file_id"])
        assert [one["custom_id"] for one in made] == [str(i) for i in range(12)]

    run(tmp_path, work, app)
    assert app.asked == ["a", "b", *"a" * 11]  # lines that were only read wait, too


def test_a_cancelled_batch_does_not_wait_for_others_of_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_TURN", 0.0)
    monkeypatch.setattr(batches, "_WINDOW", 1)
    app = App()

    async def work(server: Server) -> None:
        long = await server.create("a", *(line(str(i), waits=True) for i in range(3)))
        await server.until("a", long, "in_progress")
        other = await server.create("a", line("0"))
        await server.batches.cancel("a", other)
        while not app.asked:
            await asyncio.sleep(0.005)
        app.gate.set()
        app.gate.clear()
        assert (await server.ended("a", other))["status"] == "cancelled"
        assert server.files.get("a", long)["status"] == "in_progress"
        app.gate.set()

    run(tmp_path, work, app)


def test_cancelled_batches_wait_for_their_owners_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They went first: a key that begins and cancels all the time left others no turn."""
    monkeypatch.setattr(batches, "_TURN", 0.0)
    monkeypatch.setattr(batches, "_WINDOW", 1)
    turns, answer = [], Batches._answer

    def noted(self: Batches, owner: str, *more: Any) -> Any:
        turns.append(owner)
        return answer(self, owner, *more)

    monkeypatch.setattr(Batches, "_answer", noted)
    app = App()

    async def work(server: Server) -> None:
        long = await server.create("a", *(line(str(i), waits=i == 0) for i in range(2)))
        await server.until("a", long, "in_progress")
        for _ in range(2):
            await server.batches.cancel("a", await server.create("a", line("0")))
        short = await server.create("b", line("0"))
        app.gate.set()
        await server.ended("b", short)
        await server.ended("a", long)

    run(tmp_path, work, app)
    assert turns == ["a", "b", "a", "a", "a"]


def test_the_lines_of_a_cancelled_batch_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading those of one took 2 s, in which others waited; a key has 16 batches at once."""
    monkeypatch.setattr(batches, "_TURN", 0.0)
    monkeypatch.setattr(batches, "_WINDOW", 1)
    read, lines = [], Batches._lines

    def noted(self: Batches, owner: str, batch: Any) -> Any:
        read.append(owner)
        return lines(self, owner, batch)

    monkeypatch.setattr(Batches, "_lines", noted)
    app = App()

    async def work(server: Server) -> None:
        long = await server.create("a", *(line(str(i), waits=i == 0) for i in range(3)))
        await server.until("a", long, "in_progress")
        short = await server.create("b", line("0", waits=True))
        new = await server.create("a", line("0"))
        while not app.asked:
            await asyncio.sleep(0.005)
        app.gate.set()
        app.gate.clear()
        await server.until("b", short, "in_progress")
        await server.batches.cancel("a", long)
        await server.batches.cancel("a", new)
        app.gate.set()
        assert (await server.ended("a", new))["status"] == "cancelled"
        batch = await server.ended("a", long)
        assert batch["status"] == "cancelled"
        assert batch["request_counts"] == {"total": 3, "completed": 1, "failed": 0}
        assert len(server.rows("a", batch["output_file_id"])) == 1

    run(tmp_path, work, app)
    assert read == ["a", "b"]


def test_the_next_server_ends_cancelled_batches_first(tmp_path: Path) -> None:
    async def before() -> str:
        server = Server(tmp_path, App())
        long = await server.create("a", line("0", waits=True))
        server.files.note("a", {**server.files.get("a", long), "created_at": 1})
        other = await server.create("b", line("0"))
        server.files.cancel("b", other)
        server.files.close()
        return other

    other, app = asyncio.run(before()), App()

    async def work(server: Server) -> None:
        assert (await server.ended("b", other))["status"] == "cancelled"
        app.gate.set()

    run(tmp_path, work, app)


def test_answers_end_where_there_is_no_room(tmp_path: Path) -> None:
    async def work(server: Server) -> None:
        id_ = await server.create("a", *(line(str(i)) for i in range(500)))
        batch = await server.ended("a", id_)
        assert (batch["status"], batch["errors"]["data"][0]["code"]) == ("failed", "storage_full")
        made = server.rows("a", batch["output_file_id"])
        assert [one["custom_id"] for one in made] == [str(i) for i in range(len(made))]
        assert 0 < len(made) < 60
        with pytest.raises(ApiError, match="Delete some"):
            server.files.add("a", b"0" * (1 << 20), "x")
        assert (await server.ended("b", await server.create("b", line("0"))))[
            "status"
        ] == "completed"

    run(tmp_path, work, App("x" * 50_000))
    assert sum(one.stat().st_size for one in tmp_path.rglob("*") if one.is_file()) < 2 << 20


def test_a_line_refused_beside_one_that_has_ended_since_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as refused alone: in a batch whose lines end quickly, some failed."""
    monkeypatch.setattr(batches, "_ROOM", 0.01)
    monkeypatch.setattr(batches, "_ATTEMPTS", 1)
    asked: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        size = json.loads((await receive())["body"])["size"]
        asked.append(size)
        while size == 1 and 2 not in asked:
            await asyncio.sleep(0.01)
        is_refused = size == 2 and asked.count(2) == 1
        if is_refused:
            await asyncio.sleep(0.3)  # the other has ended by then
        answer = Response("{}", 429 if is_refused else 200, media_type="application/json")
        await answer(scope, receive, send)

    async def work(server: Server) -> None:
        batch = await server.ended(
            "a", await server.create("a", line("1", size=1), line("2", size=2))
        )
        assert batch["request_counts"] == {"total": 2, "completed": 2, "failed": 0}

    run(tmp_path, work, app)


def test_what_lines_hold_counts_and_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight lines with eight pictures of 14 MB took 5 GB. Answers do not count: they are read."""
    monkeypatch.setattr(batches, "_ROOM", 0.01)
    monkeypatch.setattr(batches, "_ATTEMPTS", 1)
    held = [0]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        size = json.loads((await receive())["body"])["size"]
        scope["state"]["taken"](size)  # as pictures do
        held.append(held[-1] + size)
        await asyncio.sleep(0.02)
        held.append(held[-1] - size)
        answer = sent(Request(scope), '{"said": "%s"}' % ("x" * 20_000))
        await answer(scope, receive, send)

    settings = Settings(max_body_bytes=1_000)
    gateway: Any = Gateway(app, settings, Keys([]), Traces(False), Metrics(), {})

    async def work(server: Server) -> None:
        lines = [line(str(size), size=size) for size in (*range(7_000, 7_010), 17_000)]
        batch = await server.ended("a", await server.create("a", *lines))
        assert batch["request_counts"] == {"total": 11, "completed": 10, "failed": 1}
        (row,) = server.rows("a", batch["error_file_id"])
        assert (row["custom_id"], row["response"]["status_code"]) == ("17000", 413)

    run(tmp_path, work, gateway)
    assert 14_000 <= max(held) <= 16_000


def test_the_body_of_a_line_is_no_longer_than_it_was(tmp_path: Path) -> None:
    """Of 3.9 MB of Chinese 7.8 MB were made, and refused."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        said = json.loads((await receive())["body"])["text"]
        await sent(Request(scope), json.dumps({"said": said}))(scope, receive, send)

    gateway: Any = Gateway(
        app, Settings(max_body_bytes=1_000), Keys([]), Traces(False), Metrics(), {}
    )
    text = "中" * 300

    async def work(server: Server) -> None:
        lines = [line("a", text=text).decode("unicode_escape").encode(), line("b", text="\ud800")]
        batch = await server.ended("a", await server.create("a", *lines))
        rows = server.rows("a", batch["output_file_id"])
        assert [row["response"]["body"]["said"] for row in rows] == [text, "\ud800"]

    run(tmp_path, work, gateway)


def test_lines_that_are_always_refused_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever one was refused, another was under way: all batches stood still, for ever."""
    monkeypatch.setattr(batches, "_ROOM", 0)
    monkeypatch.setattr(batches, "_ATTEMPTS", 1)
    latest = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal latest
        await asyncio.sleep(0.01)
        latest.set()
        latest = mine = asyncio.Event()
        with contextlib.suppress(asyncio.TimeoutError):  # until another line is asked
            await asyncio.wait_for(mine.wait(), 0.5)
        await send({"type": "http.response.start", "status": 429, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def work(server: Server) -> None:
        lines = [line(str(n)) for n in range(4)]
        batch = await server.ended("a", await server.create("a", *lines))
        assert batch["request_counts"] == {"total": 4, "completed": 0, "failed": 4}

    asked: Any = app
    run(tmp_path, work, asked)


def test_a_batch_may_end_while_room_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder was listed, and gone when it was opened: before Python 3.13, that was a 500."""
    files = Files(tmp_path, 100)
    files.add("a", b"12345", "x")
    gone = files.parts("a", "batch-0")
    with Parts(gone, "jsonl", {}) as parts:
        parts.write([{"x": 1}], 1)
        scan = os.scandir

        def scanned(path: Any) -> Any:
            if path in (gone, str(gone)):
                gone.rename(tmp_path / "gone")
            return scan(path)

        monkeypatch.setattr(os, "scandir", scanned)
        assert files.room("a") == 95
    files.close()


def test_files_of_too_many_lines_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_MOST_LINES", 5)

    async def work(server: Server) -> None:
        batch = await server.ended("a", await server.create("a", *[b"0"] * 6))
        assert (batch["status"], batch["output_file_id"]) == ("failed", None)
        assert "6 lines" in batch["errors"]["data"][0]["message"]
        batch = await server.ended("a", await server.create("a", *[b""] * 12))
        assert batch["status"] == "failed"
        assert "11 lines" in batch["errors"]["data"][0]["message"]

    run(tmp_path, work)


def test_odd_lines_are_lines_with_an_error(tmp_path: Path) -> None:
    deep = b"[" * 900 + b"]" * 900
    odd = [
        b'{"custom_id":%s,"method":"POST","url":"%s","body":{}}' % (deep, CHAT.encode()),
        b'{"custom_id":"a","method":%s,"url":"%s","body":{}}' % (deep, CHAT.encode()),
        b'{"custom_id":"b","method":"POST","url":"http://h/unload","body":{}}',
        b'{"custom_id":"c","method":"POST","url":"/v1/files","body":{}}',
        b'{"custom_id":"d","method":"POST","url":"/v1/batches","body":{}}',
        b'{"custom_id":"e","body":[%s]}' % b",".join([b"[]"] * 2_000),
        b'{"custom_id":"f","body":"%s"}' % (b"x" * 200_000),
        b"\xff\xfe",
        b"\xe2\x80\x83",  # white space, and no line
        b"\x1c",
        b'{"custom_id":"g","method":"POST","url":"%s","body":{},"model":"x"}' % CHAT.encode(),
        b'{"custom_id":"\\ud800","method":"POST","url":"%s","body":{}}' % CHAT.encode(),
    ]

    async def work(server: Server) -> None:
        batch = await server.ended("a", await server.create("a", *odd, line("last")))
        assert batch["status"] == "completed"
        ids = [one["custom_id"] for one in server.rows("a", batch["error_file_id"])]
        assert ids == [None, "a", "b", "c", "d", None, None, None, "g"]
        ids = [one["custom_id"] for one in server.rows("a", batch["output_file_id"])]
        assert ids == ["\ud800", "last"]

    run(tmp_path, work, max_body_values=1_000, max_body_bytes=100_000)


def test_answers_are_told_from_errors_without_parsing_them(tmp_path: Path) -> None:
    app, id_ = App('"response": {"status_code": 400, '), '"response": {"status_code": 200, '

    async def work(server: Server) -> None:
        other = line(id_).replace(CHAT.encode(), b"/v1/embeddings")
        batch = await server.ended("a", await server.create("a", other, line("good")))
        good = server.files.content("a", batch["output_file_id"]).read_bytes()
        assert app.answer in good
        assert good.count(b"\n") == 1
        (bad,) = server.rows("a", batch["error_file_id"])
        assert bad["custom_id"] == id_

    run(tmp_path, work, app)


def test_cancelling_ends_what_is_under_way_and_is_remembered(tmp_path: Path) -> None:
    app = App()

    async def work(server: Server) -> None:
        first = await server.create(
            "a", line("0"), *(line(str(i), waits=True) for i in range(1, 21))
        )
        second = await server.create("a", line("0"))
        while len(app.asked) < 9:
            await asyncio.sleep(0.005)
        assert (await server.batches.cancel("a", second))["status"] == "cancelling"
        assert (await server.batches.cancel("a", first))["status"] == "cancelling"
        assert (await server.ended("a", second))["status"] == "cancelled"
        batch = await server.ended("a", first)
        assert (batch["status"], batch["request_counts"]["completed"]) == ("cancelled", 1)
        assert app.ended == 8
        assert server.rows("a", batch["output_file_id"])[0]["custom_id"] == "0"
        with pytest.raises(ApiError, match="already cancelled"):
            await server.batches.cancel("a", first)

    run(tmp_path, work, app)
    files = Files(tmp_path, 1 << 20)
    file = files.add("a", line("0"), "x")
    given = {"id": "batch-" + "0" * 24, "input_file_id": file["id"], "endpoint": CHAT}
    left = json.loads(next(tmp_path.glob("*/batch-*.json")).read_bytes()) | given
    files.begin("a", left | {"status": "in_progress"})
    files.cancel("a", left["id"])
    files.close()

    async def go_on(server: Server) -> None:
        assert (await server.ended("a", left["id"]))["status"] == "cancelled"

    run(tmp_path, go_on)


def test_a_server_that_ends_keeps_what_was_answered(tmp_path: Path) -> None:
    app = App()
    made: list[str] = []

    async def work(server: Server) -> None:
        made.append(
            await server.create("a", line("0"), *(line(str(i), waits=True) for i in range(1, 21)))
        )
        while len(app.asked) < 9:
            await asyncio.sleep(0.005)
        await server.batches.close(0.05)

    run(tmp_path, work, app)
    (part,) = tmp_path.glob("*/*.parts/part-*")
    assert len(part.read_bytes().splitlines()) == 1

    async def cancelled(server: Server) -> None:
        assert server.files.get("a", made[0])["status"] == "in_progress"
        await server.batches.cancel("a", made[0])
        assert (await server.ended("a", made[0]))["request_counts"]["completed"] == 1

    run(tmp_path, cancelled, app)


def test_damaged_and_foreign_files_are_not_there(tmp_path: Path) -> None:
    async def work(server: Server) -> None:
        await server.ended("a", await server.create("a", line("0")))

    run(tmp_path, work)
    (folder,) = {one.parent for one in tmp_path.glob("*/owner")}
    good = json.loads(next(folder.glob("batch-*.json")).read_bytes())
    for number, content in enumerate(
        [b"", b"[]", b"{", b"\xff", b'{"id": "batch-1"}', json.dumps(good).encode()]
    ):
        (folder / f"batch-{number:024}.json").write_bytes(content)
        (folder / f"file-{number:024}.json").write_bytes(content)
    (folder / "file-x.json").mkdir()
    for name, content in (("n", b"\xff"), ("o", b"b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "owner").write_bytes(content)
        (tmp_path / name / f"{good['id']}.json").write_text(
            json.dumps(good | {"status": "validating"})
        )

    async def again(server: Server) -> None:
        assert [one["id"] for one in server.files.all("a", "batch")] == [good["id"]]
        assert len(server.files.all("a")) == 2
        with pytest.raises(ApiError, match="There is no"):
            server.files.get("a", "batch-" + "0" * 24)
        await server.ended("b", await server.create("b", line("0")))

    run(tmp_path, again)


def test_a_folder_is_of_one_server(tmp_path: Path) -> None:
    files = Files(tmp_path, 10)
    with pytest.raises(OptionError, match="Another server"):
        Files(tmp_path, 10)
    files.close()
    Files(tmp_path, 10).close()
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(OptionError, match="Cannot store files"):
        Files(tmp_path / "x", 10)


def test_a_batch_goes_on_when_the_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_PAUSE", 0.01)
    write, fails = Parts.write, [True, True]

    def full(self: Parts, *rows: Any) -> Path:
        if fails and fails.pop():
            raise OSError(28, "No space left on device")
        return write(self, *rows)

    monkeypatch.setattr(Parts, "write", full)

    async def work(server: Server) -> None:
        batch = await server.ended("a", await server.create("a", *(line(str(i)) for i in range(9))))
        assert (batch["status"], batch["request_counts"]["completed"]) == ("completed", 9)

    run(tmp_path, work)


def test_a_file_without_room_for_its_description_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(tmp_path, 1000)
    room = files.room("a")

    def full(self: Files, *about: Any) -> None:
        raise ApiError(507, "The file cannot be stored.")

    monkeypatch.setattr(Files, "_describe", full)
    with pytest.raises(ApiError):
        files.add("a", b"x" * 100, "x.jsonl")
    assert files.room("a") == room
    files.close()


def test_a_batch_that_is_found_and_added_runs_once(tmp_path: Path) -> None:
    """A client may make one while a server that starts looks for those that were left."""
    app = App()

    async def work(server: Server) -> None:
        id_ = await server.create("a", line("0"))
        batch = await server.ended("a", id_)
        server.batches._add("a", id_)
        await server.ended("a", await server.create("a", line("1")))
        assert server.files.get("a", id_) == batch

    run(tmp_path, work, app)
    assert len(app.asked) == 2


def test_the_oldest_batch_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could delete one: a key that had 500 could make no more."""
    monkeypatch.setattr(batches, "_MOST_BATCHES", 3)

    async def work(server: Server) -> None:
        made = []
        for _ in range(5):
            made.append(await server.create("a", line("0")))
            await server.ended("a", made[-1])
        known = {one["id"] for one in server.files.all("a", "batch")}
        assert len(known) == 3
        assert made[-1] in known

    run(tmp_path, work)


def test_a_file_that_was_deleted(tmp_path: Path) -> None:
    async def work(server: Server) -> None:
        blocking = await server.create("a", line("0", waits=True))
        await server.until("a", blocking, "in_progress")
        file = server.files.add("a", line("0"), "x")
        id_ = await server.of("a", file["id"])
        server.files.remove("a", file["id"])
        await server.batches.cancel("a", blocking)
        batch = await server.ended("a", id_)
        assert batch["errors"]["data"][0]["code"] == "invalid_file"
        with pytest.raises(ApiError, match="There is no"):
            await server.of("a", file["id"])

    run(tmp_path, work)


def test_who_only_asks_leaves_nothing(tmp_path: Path) -> None:
    files = Files(tmp_path, 10)
    assert files.all("a") == files.all("a", "batch") == []
    for id_ in ("file-" + "0" * 24, "file-../x", "x\0", "file-" + "٠" * 24):
        with pytest.raises(ApiError, match="There is no"):
            files.get("a", id_)
    assert [one.name for one in tmp_path.iterdir()] == [".lock"]
    files.close()


def test_what_a_killed_server_left_takes_no_room(tmp_path: Path) -> None:
    files = Files(tmp_path, 10)
    whole = files.add("a", b"1234", "x")["id"]
    batch = {"id": f"batch-{0:024}", "object": "batch", "endpoint": CHAT, "input_file_id": whole}
    batch |= {"completion_window": "24h", "status": "completed", "created_at": 1, "metadata": None}
    batch |= {"errors": None, "output_file_id": None, "error_file_id": None}
    counts = {"total": 0, "completed": 0, "failed": 0}
    files.begin("a", batch | {"request_counts": counts})
    (parts := files.parts("a", batch["id"])).mkdir()
    (parts / "part-1").write_bytes(b"123456")
    files.close()
    (folder,) = {one.parent for one in tmp_path.glob("*/owner")}
    (folder / f"file-{0:024}.data").write_bytes(b"123456")
    (folder / f".{whole}.json.0a1b2c3d").write_bytes(b"{")
    (folder / f".file-{1:024}.data.0a1b2c3d").write_bytes(b"123456")
    files = Files(tmp_path, 10)
    assert files.room("a") == 6
    assert sorted(one.name for one in folder.iterdir()) == [
        f"batch-{0:024}.json",
        f"{whole}.data",
        f"{whole}.json",
        "owner",
    ]
    files.close()


def test_what_else_is_in_the_folder_stays(tmp_path: Path) -> None:
    """A folder that was in use before lost what looks like files that a server left."""
    names = ("file-1.data", ".mine-a.b.c", "batch-1.parts")
    (tmp_path / "mine").mkdir()
    for name in names:
        (tmp_path / "mine" / name).write_text("mine")
    Files(tmp_path, 10).close()
    assert all((tmp_path / "mine" / name).read_text() == "mine" for name in names)


def test_a_batch_that_ends_twice_has_one_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was killed at the last moment, or had no disk, wrote each output once more."""
    monkeypatch.setattr(batches, "_PAUSE", 0.01)
    end, ended = Batches._end, iter(range(3))

    def breaks(self: Batches, *args: Any) -> None:
        if next(ended) < 2:
            raise ApiError(507, "The disk is full.")
        end(self, *args)

    monkeypatch.setattr(Batches, "_end", breaks)

    async def work(server: Server) -> None:
        batch = await server.ended("a", await server.create("a", line("0"), b"no JSON"))
        made = [one["id"] for one in server.files.all("a") if one["purpose"] == "batch_output"]
        assert sorted(made) == sorted([batch["output_file_id"], batch["error_file_id"]])
        assert [one["custom_id"] for one in server.rows("a", batch["output_file_id"])] == ["0"]

    run(tmp_path, work)


def test_counts_are_those_of_the_answers_on_disk(tmp_path: Path) -> None:
    """A killed server has told of answers that its disk never had; the next one told so, too."""

    async def begun(server: Server) -> None:
        id_ = await server.create("a", b"no JSON", *(line(str(i), waits=True) for i in range(20)))
        await server.until("a", id_, "in_progress")

    run(tmp_path, begun)
    (about,) = tmp_path.glob("*/batch-*.json")
    batch = json.loads(about.read_bytes())
    batch["request_counts"] = {"total": 21, "completed": 15, "failed": 0}
    about.write_text(json.dumps(batch))

    async def work(server: Server) -> None:
        wanted = {"total": 21, "completed": 0, "failed": 1}  # which the killed one may not have had
        for _ in range(2_000):
            counts = server.files.get("a", batch["id"])["request_counts"]
            if counts == wanted:
                break
            await asyncio.sleep(0.005)
        assert counts == wanted
        await server.batches.cancel("a", batch["id"])
        await server.ended("a", batch["id"])

    run(tmp_path, work)


def test_without_keys_all_have_one_budget(tmp_path: Path) -> None:
    """An address is nothing that there are few of."""
    files = Files(tmp_path, 10, by_owner=False)
    files.add("1.1.1.1", b"12345", "x")
    with pytest.raises(ApiError, match="shared by all"):
        files.add("1.1.1.2", b"123456", "x")
    files.add("1.1.1.2", b"12345", "x")
    files.close()


def test_pages_of_lists() -> None:
    found = [{"id": f"batch-{i}"} for i in range(3)]
    assert batches.listed(found, {"purpose": "batch"})["data"] == []
    assert batches.listed(found, {"after": "batch-0", "limit": "1"})["data"] == [{"id": "batch-1"}]
    assert batches.listed(found, {"after": "../x"})["data"] == []
    for query in ({"limit": "0"}, {"limit": "-1"}, {"limit": "1e9"}, {"limit": "٣"}, {"x": "1"}):
        with pytest.raises(ApiError, match="not supported, or wrong"):
            batches.listed(found, query)


@pytest.mark.parametrize("kind", [BatchBody, ResponsesBody])
@pytest.mark.parametrize(
    "metadata", [{"x" * 1_001: ""}, {"x": "x" * 1_001}, {"x": 1}, {str(i): "" for i in range(101)}]
)
def test_metadata_is_short(kind: Any, metadata: Any) -> None:
    """It is kept, and each event of an answer repeats it."""
    body = {"input_file_id": "file-0", "endpoint": CHAT} if kind is BatchBody else {"input": "x"}
    read(kind, {**body, "metadata": {"x" * 1_000: "x" * 1_000}})
    with pytest.raises(ApiError, match="metadata"):
        read(kind, {**body, "metadata": metadata})


@pytest.mark.parametrize("kind", ["files", "answers"])
def test_owners_take_turns_at_the_disk(tmp_path: Path, kind: str) -> None:
    """They had one line, of all of the process: who sent 200 questions had others wait for them."""
    order: list[str] = []

    def work(owner: str) -> None:
        order.append(owner)
        time.sleep(0.002)

    async def asks() -> None:
        kept = Files(tmp_path, 10) if kind == "files" else Store(10)
        many = [asyncio.ensure_future(kept._turns.do("a", lambda: work("a"))) for _ in range(50)]
        await asyncio.sleep(0.005)
        await kept._turns.do("b", lambda: work("b"))
        await asyncio.gather(*many)
        kept.close()

    asyncio.run(asks())
    assert len(order) == 51
    assert order.index("b") < 20
