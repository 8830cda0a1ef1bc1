"""Transcripts over HTTP, and in a Runner: a tiny Whisper of random weights, OpenAI's client."""

from __future__ import annotations

import asyncio
import base64
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import inside
import openai
import pytest
from doc_blocks import run
from models import sounds, tiny_whisper
from one_server import Served, serving

from structgen import Runner
from structgen.errors import ModelNotFound, RequestError
from structgen.media import Audio
from structgen.runner import ModelConfig, hosts
from structgen.server import Settings
from structgen.workers import STRANGER, Stranger, owner

TONE = sounds.wav(sounds.tone())


pytestmark = inside.needs_newer_runtime


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tiny_whisper.converted(tmp_path_factory.mktemp("whisper"))
    with (
        Runner({"whisper": {"source": folder, "in_process": True}}) as runner,
        serving(runner, Settings(max_file_bytes=3_000_000)) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.root}/v1", api_key="-", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def expected(served: Served) -> Any:
    return served.runner.transcribe(Audio(TONE, language="de"), temperature=0.3)


def test_a_runner_transcribes(served: Served, expected: Any) -> None:
    assert expected.task == "transcribe"
    assert expected.language == "de"
    assert expected.duration == expected.usage.seconds == 1.0
    assert expected.text == "".join(one.text for one in expected.segments).strip()
    assert expected.transcript.text == expected.text
    given = {"file": TONE, "language": "de", "temperature": 0.3}
    assert served.runner.transcribe(given) == expected
    translated = served.runner.transcribe(given, translate=True)
    assert translated.task == "translate"
    assert translated.segments != expected.segments


def test_the_page(client: openai.OpenAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talk.mp3").write_bytes(TONE)
    beginning = "client.audio.transcriptions.create("
    run("docs/pictures-and-sound.md", beginning, {"client": client}, {"whisper-tiny.en": "whisper"})


@pytest.mark.parametrize("form", ["json", "text", "srt", "verbose_json", "vtt"])
def test_forms_of_a_transcript(client: openai.OpenAI, expected: Any, form: Any) -> None:
    made: Any = client.audio.transcriptions.create(
        model="whisper",
        file=("a.wav", TONE),
        language="de",
        temperature=0.3,
        response_format=form,
        timestamp_granularities=["segment"] if form not in ("json", "text") else openai.omit,
    )
    told = {
        "json": lambda: made.text == expected.text and made.usage.seconds == 1.0,
        "text": lambda: made == expected.text + "\n",
        "srt": lambda: made == expected.transcript.srt(),
        "vtt": lambda: made == expected.transcript.vtt(),
        "verbose_json": lambda: made.to_dict() == expected.model_dump(),
    }
    assert told[form]()


def test_a_stream_of_a_transcript(client: openai.OpenAI, expected: Any) -> None:
    events = list(
        client.audio.transcriptions.create(
            model="whisper", file=TONE, language="de", temperature=0.3, stream=True
        )
    )
    *deltas, done = events
    assert "".join(one.delta for one in deltas).strip() == done.text == expected.text  # type: ignore[union-attr]
    assert {one.type for one in deltas} == {"transcript.text.delta"}


def test_a_translation(client: openai.OpenAI, served: Served) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the client calls it deprecated
        made = client.audio.translations.create(
            model="whisper",
            file=TONE,
            prompt="the",
            temperature=0.3,
            response_format="verbose_json",
        )
    whole = served.runner.transcribe(TONE, translate=True, prompt="the", temperature=0.3)
    assert made.to_dict() == whole.model_dump()


def test_sounds_in_chats(client: openai.OpenAI) -> None:
    data = base64.b64encode(TONE).decode()
    part: Any = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    made = client.chat.completions.create(
        model="whisper",
        messages=[{"role": "user", "content": [part]}],
        extra_body={"grammar": r"\d{4}", "grammar_type": "regex"},
    )
    assert (made.choices[0].message.content or "").isdigit()


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"language": "xx"}, "file", "does not support the language 'xx'"),
        ({"file": b"hello, I am a text"}, "file", "WAV, MP3 and FLAC are supported"),
        ({"file": sounds.flac([0] * 2000, size=65_535)}, "file", "limits are 1,800"),
        ({"file": sounds.wav(sounds.tone()[:0])}, "file", "it has no samples"),
        ({"file": b""}, "file", "The file is missing"),
        ({"temperature": 1.5}, "temperature", "temperature"),
        ({"temperature": "warm"}, "temperature", "is not a number"),
        ({"response_format": "docx"}, "response_format", "'docx' is not supported"),
        ({"timestamp_granularities": ["word"]}, "timestamp_granularities[]", "'word' is not"),
        ({"timestamp_granularities": ["segment"]}, "timestamp_granularities[]", "verbose_json"),
        ({"extra_body": {"suffix": "x"}}, "suffix", "suffix is not supported"),
        ({"prompt": "x" * 30_000}, "prompt", "more than 20,000 bytes"),
        ({"stream": True, "response_format": "srt"}, "stream", "json or text"),
        ({"model": "other"}, None, "other"),
    ],
)
def test_what_is_wrong_is_told(
    client: openai.OpenAI, fields: dict[str, Any], param: str | None, said: str
) -> None:
    with pytest.raises(openai.APIStatusError, match=said.replace("[", r"\[")) as caught:
        client.audio.transcriptions.create(**{"model": "whisper", "file": TONE, **fields})
    assert 400 <= caught.value.status_code < 500
    assert caught.value.param == param or param is None


def test_bodies_have_bounds_and_a_form(served: Served) -> None:
    url = f"{served.root}/v1/audio/transcriptions"
    large = httpx.post(url, files={"file": ("a.wav", TONE + bytes(3_000_000))}, timeout=60)
    assert large.status_code == 413
    assert httpx.post(url, json={"file": "/etc/passwd"}, timeout=60).status_code == 400
    path = httpx.post(url, data={"file": "/etc/passwd"}, files={"x": b"y"}, timeout=60)
    assert path.status_code == 400
    translated = httpx.post(
        url.replace("transcriptions", "translations"),
        data={"language": "de"},
        files={"file": ("a.wav", TONE)},
        timeout=60,
    )
    assert translated.json()["error"]["param"] == "language"


def test_models_that_hear_nothing(served: Served) -> None:
    with pytest.raises(ModelNotFound):
        served.runner.transcribe(TONE, model="other")
    with pytest.raises(RequestError, match="file: Audio takes a path, bytes"):
        served.runner.transcribe(file=5)


def test_a_newcomer_is_heard_beside_two_whose_long_sounds_have_all_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []

    async def hear(*_: Any, **__: Any) -> AsyncIterator[str]:
        begun.append(owner())
        if owner() != "c":
            await asyncio.Event().wait()
        yield "a window"

    async def asks(host: hosts.TextHost, who: str) -> None:
        STRANGER.set(Stranger(who, 1, 1))
        assert [window async for window in host.transcribe_windows(Audio(TONE), "", 0.0)] == [
            "a window"
        ]

    async def main() -> None:
        model: Any = SimpleNamespace(pid=0)
        host = hosts.TextHost([model], ModelConfig(source="whisper-tiny.en"), is_own=False)
        long = [asyncio.ensure_future(asks(host, who)) for who in "aaaabbbb"]
        await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.ensure_future(asks(host, "c")), 10)
        assert sorted(begun) == ["a", "a", "a", "b", "c"]
        for one in long:
            one.cancel()
        await asyncio.gather(*long, return_exceptions=True)

    monkeypatch.setattr(hosts, "transcribe_windows", hear)
    asyncio.run(main())
