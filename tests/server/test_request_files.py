"""Files of requests in the format of OpenAI's batch API, answered by the command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi import FastAPI

import structgen
from structgen.cli.commands import cli
from structgen.jobs import Source
from structgen.server import request_files
from structgen.server.batches import outcome

CHAT = "/v1/chat/completions"


def line(custom_id: Any, url: str, body: Any, method: str = "POST") -> str:
    return json.dumps({"custom_id": custom_id, "method": method, "url": url, "body": body})


def test_each_line_gets_the_servers_answer(tmp_path: Path, model: structgen.TextModel) -> None:
    chat = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Yes or no?"}]}
    lines = [
        line("a", CHAT, {**chat, "grammar": "yes|no", "grammar_type": "regex"}),
        line("b", CHAT, {"messages": []}),
        line("c", "/v1/models", {}, "GET"),
        line("d", CHAT, {**chat, "stream": True}),
        "no JSON",
        line("e", "/v1/responses", {"input": "Hello", "max_output_tokens": 3}),
        line("f", "/v1/completions", {"prompt": "Once", "max_tokens": 2}),
        line("a", "/v1/completions", {"prompt": "Twice", "max_tokens": 2}),
    ]
    source, output = tmp_path / "requests.jsonl", tmp_path / "answers"
    source.write_text("\n".join(lines), encoding="utf-8")
    command = ["batch", str(source), "-o", str(output), "--model", str(model.folder)]
    ended = CliRunner().invoke(cli, command, standalone_mode=False)
    assert ended.exception is None, ended.output
    assert "8 of 8 rows" in ended.output
    assert ended.output.count("5 errors") == 1
    parts = sorted(output.glob("part-*"))  # several where the machine is slow
    text = "".join([part.read_text(encoding="utf-8") for part in parts])
    made = [json.loads(one) for one in text.splitlines()]
    assert [one["custom_id"] for one in made] == ["a", "b", "c", "d", None, "e", "f", None]
    statuses = [None if one["response"] is None else one["response"] for one in made]
    assert [one and one["status_code"] for one in statuses] == [
        200,
        400,
        None,
        None,
        None,
        200,
        200,
        None,
    ]
    assert "Requests 1 and 8 have the same custom_id 'a'" in made[7]["error"]["message"]
    answer = made[0]["response"]["body"]["choices"][0]["message"]["content"]
    assert answer in ("yes", "no")
    assert "messages" in made[1]["response"]["body"]["error"]["message"]
    assert "method must be POST, and url one of" in made[2]["error"]["message"]
    assert "without stream" in made[3]["error"]["message"]
    assert "line 5 is not JSON" in made[4]["error"]["message"]
    assert made[5]["response"]["body"]["object"] == "response"
    assert sum(outcome(one)[1] for one in made) >= 1 + 3 + 2
    assert made[0]["response"]["request_id"].startswith("req_")
    again = CliRunner().invoke(cli, command, standalone_mode=False)
    assert again.exception is None
    assert sorted(output.glob("part-*")) == parts
    other = CliRunner().invoke(cli, [*command, "--seed", "1"], standalone_mode=False)
    assert "--seed requires rows" in str(other.exception)
    typed = CliRunner().invoke(cli, [*command, "--choice", "yes"], standalone_mode=False)
    assert "An output type requires rows" in str(typed.exception)


def test_an_interrupt_gives_up_the_lines_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, ended = FastAPI(), []

    @app.post(CHAT)
    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(CHAT)

    def stop(job: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(request_files, "create_app", lambda *_, **__: app)
    source = tmp_path / "requests.jsonl"
    source.write_text("no JSON\n" + line("a", CHAT, {}), encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        request_files.answer_files(
            Source.of_files([str(source)]), tmp_path / "answers", progress=stop
        )
    assert len(ended) <= 1  # none, where it had not begun
