"""The endpoints of OpenAI's API for transcribing and translating sounds."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from structgen.models.listening import Transcript
from structgen.runner import TranscriptionRequest, TranscriptionResponse

from ..errors import api_error
from ..exchange import EventStream, answered, begun, event, sent, settings_of
from ..gateway import Bodies
from ..openapi import answers
from ..settings import Settings
from ..wire import aside, check_form, fields_of, form_schema, refused
from .text import runner_of

router = APIRouter(tags=["sounds"])

_FORMS = ("json", "text", "srt", "verbose_json", "vtt")
_LONGEST = 20_000  # bytes of a text field

_TRANSLATION = {
    "file": {"type": "string", "format": "binary"},
    "model": {"type": "string"},
    "prompt": {"type": "string"},
    "response_format": {"enum": list(_FORMS)},
    "temperature": {"type": "number", "minimum": 0, "maximum": 1},
}
_TRANSCRIPTION = {
    **_TRANSLATION,
    "language": {"type": "string"},
    "timestamp_granularities[]": {"type": "array", "items": {"enum": ["segment"]}},
    "chunking_strategy": {"enum": ["auto"]},
    "stream": {"type": "boolean"},
}


def bodies(settings: Settings) -> dict[str, Bodies]:
    """Return the endpoints that take sound files, by path."""
    taken = Bodies(settings.max_file_bytes, check_form)
    return dict.fromkeys(("/v1/audio/transcriptions", "/v1/audio/translations"), taken)


@router.post(
    "/v1/audio/transcriptions",
    openapi_extra=form_schema(["file"], _TRANSCRIPTION),
    responses=answers(TranscriptionResponse, events="a part of the text"),
)
async def transcriptions(request: Request) -> Response:
    """Transcribe a sound."""
    asked, form, streams = await _read(request, _TRANSCRIPTION)
    if not streams:
        return await _whole(request, asked, form)
    going = await begun(request, runner_of(request).astream_transcribe(asked), api_error)

    async def events() -> AsyncGenerator[bytes, None]:
        async with aclosing(going):
            async for window in going:
                segments, transcript = window
                for one in segments:
                    delta = {"type": "transcript.text.delta", "delta": one.text}
                    yield event(json.dumps(delta, ensure_ascii=False))
            done = {"type": "transcript.text.done", **_short(transcript)}
            yield event(json.dumps(done, ensure_ascii=False))

    return EventStream(events(), most=settings_of(request).request_seconds, to_error=api_error)


@router.post(
    "/v1/audio/translations",
    openapi_extra=form_schema(["file"], _TRANSLATION),
    responses=answers(TranscriptionResponse),
)
async def translations(request: Request) -> Response:
    """Translate a sound into English text."""
    asked, form, _ = await _read(request, _TRANSLATION, translate=True)
    return await _whole(request, asked, form)


async def _read(
    request: Request, known: dict[str, Any], **given: Any
) -> tuple[TranscriptionRequest, str, bool]:
    """Return the request in a form, to which ``given`` is added, the answer's format, and whether
    to stream.

    Raises:
        ApiError: a field is unknown, wrong or missing.
    """
    kind, data = request.headers.get("content-type", ""), await request.body()
    is_timed = False
    for name, field in await aside(request, lambda: fields_of(kind, data, known), is_large=True):
        if name == "file":
            given[name] = field.content
            continue
        if len(field.content) > _LONGEST:
            raise refused(f"{name} has more than {_LONGEST:,} bytes.", name, "invalid_value")
        text = field.content.decode(errors="replace")
        values = known[name].get("enum", known[name].get("items", {}).get("enum"))
        if values is not None and text not in values:
            raise refused(f"{name} {text[:100]!r} is not supported here.", name)
        is_timed = is_timed or name == "timestamp_granularities[]"
        if values is None or name == "response_format":
            given[name] = text
    if not given.get("file"):
        raise refused("The file is missing.", "file", "invalid_value")
    if "temperature" in given:
        try:
            given["temperature"] = float(given["temperature"])
        except ValueError:
            raise refused("temperature is not a number.", "temperature", "invalid_value") from None
    form, streams = given.pop("response_format", "json"), given.pop("stream", "false")
    if streams not in ("true", "false"):
        raise refused("stream must be true or false.", "stream", "invalid_value")
    if is_timed and form in ("json", "text"):
        name = "timestamp_granularities[]"
        raise refused(f"{name} requires the response_format verbose_json, srt or vtt.", name)
    if streams == "true" and form not in ("json", "text"):
        raise refused("stream requires the response_format json or text.", "stream")

    def asks() -> TranscriptionRequest:
        asked = TranscriptionRequest.of(given, {})
        return asked.model_copy(update={"file": asked.audio})

    return await aside(request, asks, is_large=True), form, streams == "true"


async def _whole(request: Request, asked: TranscriptionRequest, form: str) -> Response:
    made = await answered(request, runner_of(request).atranscribe(asked))
    request.state.log["model"] = asked.model
    transcript = made.transcript
    if form == "verbose_json":
        return sent(request, made.model_dump_json())
    if form == "json":
        return sent(request, json.dumps(_short(transcript), ensure_ascii=False))
    forms = {"text": lambda: transcript.text + "\n", "srt": transcript.srt, "vtt": transcript.vtt}
    return sent(request, forms[form](), "text/plain")


def _short(transcript: Transcript) -> dict[str, Any]:
    usage = {"type": "duration", "seconds": transcript.seconds}
    return {"text": transcript.text, "usage": usage}
