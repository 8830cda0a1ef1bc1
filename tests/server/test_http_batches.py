"""Files and batches with the official client: answers, owners, cancelling, restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from one_server import KEY, MODEL, Served, serving

from structgen import Runner
from structgen.server import Settings

CHAT = "/v1/chat/completions"
OTHER = "sk-other"


def line(custom_id: str, url: str = CHAT, **body: Any) -> bytes:
    chat = {"model": "small", "messages": [{"role": "user", "content": "Yes or no?"}]}
    body = {**chat, "grammar": "yes|no", "grammar_type": "regex", **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}).encode()


def settings(folder: Path, **more: Any) -> Settings:
    return Settings(api_keys=(KEY, OTHER), files=folder, max_file_bytes=100_000, **more)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner({"small": MODEL}) as made:
        yield made


@pytest.fixture(scope="module")
def kept(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(runner, settings(tmp_path_factory.mktemp("kept"))) as made:
        yield made


def client(served: Served, key: str = KEY) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.root}/v1", api_key=key, max_retries=0, timeout=60)


def uploaded(asks: openai.OpenAI, *lines: bytes) -> str:
    return asks.files.create(file=("r.jsonl", b"\n".join(lines)), purpose="batch").id


def begun(asks: openai.OpenAI, file: str, **more: Any) -> str:
    given: Any = {"endpoint": CHAT, "completion_window": "24h", **more}
    return asks.batches.create(input_file_id=file, **given).id


def until(asks: openai.OpenAI, id_: str, is_so: Callable[[Any], bool]) -> Any:
    for _ in range(3000):
        batch = asks.batches.retrieve(id_)
        if is_so(batch):
            return batch
        time.sleep(0.05)
    raise AssertionError(batch)


def rows(asks: openai.OpenAI, file: str | None) -> list[dict[str, Any]]:
    assert file is not None
    return [json.loads(one) for one in asks.files.content(file).text.splitlines()]


def test_a_batch_is_answered_line_by_line(kept: Served) -> None:
    with client(kept) as asks:
        lines = [line(str(i)) for i in range(6)]
        lines[3] = line("3", messages=[])
        lines[4] = line("4", url="/v1/embeddings")
        deep = b'{"custom_id":"6","method":"POST","url":"' + CHAT.encode() + b'","body":{"a":'
        lines.append(deep + b"[" * 900 + b"]" * 900 + b"}}")
        file = uploaded(asks, *lines, b"no JSON")
        about = asks.files.retrieve(file)
        assert (about.filename, about.purpose) == ("r.jsonl", "batch")
        assert about.bytes == len(b"\n".join([*lines, b"no JSON"]))
        id_ = begun(asks, file, metadata={"a": "b"})
        batch = until(asks, id_, lambda one: one.status == "completed")
        assert batch.metadata == {"a": "b"}
        counts = batch.request_counts
        assert (counts.total, counts.completed, counts.failed) == (8, 4, 4)
        good = rows(asks, batch.output_file_id)
        assert [one["custom_id"] for one in good] == ["0", "1", "2", "5"]
        for one in good:
            answer = one["response"]["body"]["choices"][0]["message"]["content"]
            assert answer in ("yes", "no")
        bad = rows(asks, batch.error_file_id)
        assert [one["custom_id"] for one in bad] == ["3", "4", "6", None]
        assert bad[0]["response"]["status_code"] == 400
        assert "for /v1/chat/completions" in bad[1]["error"]["message"]
        assert bad[2]["response"] is None or bad[2]["response"]["status_code"] == 400
        assert "line 8" in bad[3]["error"]["message"]
        listed = [one.id for one in asks.batches.list(limit=1)]
        assert id_ in listed
        assert asks.files.delete(file).deleted
        with pytest.raises(openai.NotFoundError):
            asks.files.content(file)


def test_a_range_of_a_file(kept: Served) -> None:
    with client(kept) as asks:
        file = uploaded(asks, line("1"))
        content = asks.files.content(file)
        part = asks.files.content(file, extra_headers={"Range": "bytes=2-5"})
        assert part.content == content.content[2:6]
        for asked in ("bytes=99999-", "bytes=5-1", "lines=1-2"):
            with pytest.raises(openai.APIStatusError, match="does not have these bytes") as caught:
                asks.files.content(file, extra_headers={"Range": asked})
            assert caught.value.status_code == 416
            assert (caught.value.type, caught.value.code) == (
                "invalid_request_error",
                "invalid_range",
            )


def test_lines_of_one_custom_id(kept: Served) -> None:
    with client(kept) as asks:
        first = b"\xef\xbb\xbf" + line("a")  # a byte order mark
        file = uploaded(asks, first, b"", line("b"), b"no JSON", line("a"), line("b"))
        batch = until(asks, begun(asks, file), lambda one: one.status in ("failed", "completed"))
        assert batch.status == "failed"
        assert batch.output_file_id is batch.error_file_id is None
        assert [(one.code, one.line, one.param) for one in batch.errors.data] == [
            ("duplicate_custom_id", 5, "custom_id"),
            ("duplicate_custom_id", 6, "custom_id"),
        ]
        assert "Lines 1 and 5 have the same custom_id 'a'" in batch.errors.data[0].message


def test_a_line_with_a_name_twice(kept: Served) -> None:
    with client(kept) as asks:
        twice = line("a").replace(b'"body": {', b'"body": {"n": 1, "n": 2, ')
        assert twice != line("a")
        file = uploaded(asks, twice, line("b"))
        batch = until(asks, begun(asks, file), lambda one: one.status == "completed")
        assert [one["custom_id"] for one in rows(asks, batch.output_file_id)] == ["b"]
        (refused,) = rows(asks, batch.error_file_id)
        assert "line 1 " in refused["error"]["message"]
        assert "the name 'n' appears twice" in refused["error"]["message"]


def test_fields_of_an_upload(kept: Served) -> None:
    url, key = f"{kept.root}/v1/files", {"Authorization": f"Bearer {KEY}"}
    for name, said in (("expires_after", "is not supported"), ("purpose", "is given twice")):
        fields = [("file", ("a", b"x")), ("purpose", (None, "batch")), (name, (None, "batch"))]
        answer = httpx.post(url, files=fields, headers=key, timeout=60)
        assert answer.json()["error"]["message"].startswith(f"{name} {said}")


def test_nobody_sees_what_is_anothers(kept: Served) -> None:
    with client(kept) as mine, client(kept, OTHER) as other:
        file = uploaded(mine, line("1"))
        id_ = begun(mine, file)
        until(mine, id_, lambda one: one.status == "completed")
        assert not list(other.files.list())
        assert not list(other.batches.list())
        for ask in (
            lambda: other.files.retrieve(file),
            lambda: other.files.content(file),
            lambda: other.files.delete(file),
            lambda: other.batches.retrieve(id_),
            lambda: other.batches.cancel(id_),
            lambda: begun(other, file),
        ):
            with pytest.raises(openai.NotFoundError):
                ask()
        names = [f"{kept.root}/v1/files/{name}" for name in ("..%2F..%2Fowner", "owner", file[:-1])]
        for name in (*names, f"{kept.root}/v1/batches/{file}"):
            answer = httpx.get(name, headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
            assert answer.status_code == 404


def test_cancelling_keeps_what_was_answered(kept: Served) -> None:
    with client(kept) as asks:
        id_ = begun(asks, uploaded(asks, *(line(str(i)) for i in range(400))))
        lines_done = lambda one: (one.request_counts.completed, one.request_counts.total)  # noqa: E731
        found = until(asks, id_, lambda one: lines_done(one)[0] > 0)
        assert (found.status, lines_done(found)[1]) == ("in_progress", 400)
        assert asks.batches.cancel(id_).status == "cancelling"
        batch = until(asks, id_, lambda one: one.status == "cancelled")
        assert batch.request_counts.completed < 400
        if batch.output_file_id is not None:
            made = rows(asks, batch.output_file_id)
            assert [one["custom_id"] for one in made] == [str(i) for i in range(len(made))]
        with pytest.raises(openai.ConflictError):
            asks.batches.cancel(id_)


def test_a_batch_goes_on_with_the_next_server(runner: Runner, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    with serving(runner, settings(folder)) as first, client(first) as asks:
        file = uploaded(asks, *(line(str(i)) for i in range(60)))
        id_ = begun(asks, file)
        until(asks, id_, lambda one: one.status == "in_progress")
    with serving(runner, settings(folder)) as second, client(second) as asks:
        batch = until(asks, id_, lambda one: one.status == "completed")
        assert batch.request_counts.completed == 60
        made = rows(asks, batch.output_file_id)
        assert [one["custom_id"] for one in made] == [str(i) for i in range(60)]
    assert not list(folder.glob("*/*.parts"))  # after the end: they go when the batch has ended


def test_what_is_refused(kept: Served, served: Served) -> None:
    with client(kept) as asks:
        with pytest.raises(openai.BadRequestError, match="purpose must be batch"):
            asks.files.create(file=("x", b"{}"), purpose="fine-tune")
        with pytest.raises(openai.APIStatusError, match="larger than 100,000 bytes"):
            asks.files.create(file=("x", b"{}" * 100_000), purpose="batch")
        file = uploaded(asks, line("1"))
        with pytest.raises(openai.BadRequestError, match="endpoint"):
            begun(asks, file, endpoint="/v1/models")
        with pytest.raises(openai.NotFoundError):
            begun(asks, "file-" + "0" * 24)
        with pytest.raises(openai.BadRequestError, match="limit"):
            asks.batches.list(limit=0).data  # noqa: B018
        url, key = f"{kept.root}/v1/files", {"Authorization": f"Bearer {KEY}"}
        for kind, data in (
            ("multipart/form-data", b"x"),
            ("multipart/form-data; boundary=a", b"--b\r\n"),
            ("text/plain", b"x"),
        ):
            answer = httpx.post(
                url, content=data, headers={**key, "Content-Type": kind}, timeout=60
            )
            assert answer.status_code == 400, answer.text
    with client(served) as asks, pytest.raises(openai.NotFoundError, match="does not store files"):
        asks.files.list()
