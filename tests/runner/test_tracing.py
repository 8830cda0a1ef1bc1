"""Spans: what they say, what they keep to themselves, and that they cost nothing where absent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from structgen import OptionError
from structgen.runner.telemetry import NO_SPAN, Traces


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def test_a_span_says_what_was_asked_and_not_in_which_words(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with Traces(provider).begin("chat", "small", request_model="small") as span:
        span.content("gen_ai.input.messages", lambda: pytest.fail("it was made"))
        span.set(conversation_id=None, finish_reasons=["stop"])
        span.count({"prompt": 3, "new": 4})
    found = only(exporter)
    assert found.name == "chat small"
    assert found.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "small",
        "gen_ai.usage.input_tokens": 3,
        "structgen.usage.new_tokens": 4,
        "gen_ai.response.finish_reasons": ("stop",),
    }


def test_contents_where_asked_for(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    with Traces(provider, contents=True).begin("chat", "small") as span:
        span.content("gen_ai.input.messages", lambda: [{"content": "told"}])
    assert only(exporter).attributes["gen_ai.input.messages"] == '[{"content": "told"}]'


def test_errors_have_a_class_and_no_words(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with pytest.raises(ValueError, match="secret"), Traces(provider).begin("chat", ""):
        raise ValueError("secret")
    found = only(exporter)
    assert found.name == "chat"
    assert found.attributes["error.type"] == "ValueError"
    assert found.status.status_code is trace.StatusCode.ERROR
    assert "secret" not in found.to_json()


def test_parents(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    traces = Traces(provider)
    with provider.get_tracer("the program").start_as_current_span("outer"):
        chat = traces.begin("chat", "small")
    with chat, traces.begin("execute_tool", "add", parent=chat):
        pass
    outer, tool, made = exporter.get_finished_spans()
    assert tool.parent.span_id == made.context.span_id
    assert made.parent.span_id == outer.context.span_id


def test_where_nobody_asks_there_is_none(provider: TracerProvider) -> None:
    assert Traces(False).begin("chat", "small") is NO_SPAN
    with NO_SPAN as span:
        span.set(input_tokens=3)
        span.content("gen_ai.input.messages", lambda: pytest.fail("it was made"))


def test_what_is_no_provider_is_refused() -> None:
    with pytest.raises(OptionError, match="traces=3"):
        Traces(3)


def test_opentelemetry_is_not_imported_unless_asked_for() -> None:
    code = """
import sys
from structgen.runner.telemetry import NO_SPAN, Traces
assert Traces().begin("chat", "small") is NO_SPAN
assert not any(name.startswith("opentelemetry") for name in sys.modules)
sys.modules["opentelemetry"] = None  # as if it were not installed
try:
    Traces(True)
except Exception as error:
    assert "structgen[otel]" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
