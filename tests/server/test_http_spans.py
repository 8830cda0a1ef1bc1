"""OpenTelemetry: a span for each request, within its client's; the Runner's are within it."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
from one_server import MODEL, serving
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from structgen import Runner
from structgen.server import Settings, create_app, runner_of
from structgen.server.gateway import span_of

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def finished(exporter: InMemorySpanExporter) -> tuple[ReadableSpan, ...]:
    """Two spans; the outer one ends when the client has its answer already."""
    end = time.monotonic() + 60
    while len(found := exporter.get_finished_spans()) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def test_spans_go_on_from_the_clients() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    body = {"messages": [{"role": "user", "content": "a secret"}], "max_tokens": 2}
    with (
        Runner({"small": MODEL}, traces=provider) as runner,
        serving(runner, Settings()) as made,
        httpx.Client(base_url=made.root, timeout=60) as http,
    ):
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
        for streams in (False, True):
            http.post("/v1/chat/completions", json={**body, "stream": streams}, headers=headers)
            inner, outer = finished(exporter)
            assert (outer.name, outer.kind) == ("POST /v1/chat/completions", SpanKind.SERVER)
            assert outer.context is not None
            assert outer.parent is not None
            assert f"{outer.context.trace_id:032x}" == TRACE
            assert f"{outer.parent.span_id:016x}" == PARENT
            assert outer.attributes == {
                "http.request.method": "POST",
                "http.route": "/v1/chat/completions",
                "http.response.status_code": 200,
                "structgen.request_id": "mine",
            }
            assert inner.name == "chat small"
            assert inner.parent is not None
            assert inner.parent.span_id == outer.context.span_id
            assert "secret" not in inner.to_json() + outer.to_json()
            exporter.clear()
        http.get("/v1/models/a/b", headers={"traceparent": "nonsense"})
        http.get("/nothing")
        one, other = finished(exporter)
        assert (one.name, one.parent) == ("GET /v1/models/{model:path}", None)
        assert other.name == "GET"
        assert one.status.status_code is StatusCode.UNSET  # the client's fault is none of ours


def test_the_baggage_of_strangers_is_not_read() -> None:
    with span_of(TracerProvider().get_tracer("x"), "GET", {"baggage": "a=b"}, "mine"):
        assert not baggage.get_all()


def test_without_the_setting_there_are_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """FastAPI sent its own, four a request, wherever the process had a provider; so did we."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    async def ask() -> int:
        settings = Settings(models={"small": MODEL})
        with runner_of(settings) as runner:
            app = httpx.ASGITransport(create_app(runner, settings))
            async with httpx.AsyncClient(transport=app, base_url="http://localhost") as http:
                return (await http.get("/v1/models?a=secret")).status_code

    assert asyncio.run(ask()) == 200
    assert not exporter.get_finished_spans()
