"""A span of each request for OpenTelemetry, which goes on from the one that its client is in.

Owns what such a span says, by OpenTelemetry's conventions for HTTP. The Runner's own spans are
within it. Where there are no spans it costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


@contextmanager
def span_of(
    tracer: Tracer | None, method: str, headers: Mapping[str, str], id_: str
) -> Iterator[dict[str, Any]]:
    """A span for the length of the block.

    Args:
        tracer: None: there are no spans.
        method: of the request.
        headers: its headers, ``traceparent`` maybe among them.
        id_: of the request.

    Yields:
        What to put the ``status`` into, and the ``route`` if there is one.
    """
    said: dict[str, Any] = {}
    if tracer is None:
        yield said
        return
    from opentelemetry import propagate, trace

    attributes = {"http.request.method": method, "structgen.request_id": id_}
    context = propagate.extract(dict(headers.items()))
    kind = trace.SpanKind.SERVER
    with tracer.start_as_current_span(method, context, kind, attributes) as span:
        yield said
        route, status = said.get("route"), said.get("status", 0)
        if route is not None:
            span.update_name(f"{method} {route}")
            span.set_attribute("http.route", route)
        if status:
            span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_attribute("error.type", str(status))
            span.set_status(trace.StatusCode.ERROR)
