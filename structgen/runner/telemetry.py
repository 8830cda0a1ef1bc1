"""What a Runner reports to operators: Prometheus metrics and OpenTelemetry spans.

`Metrics` counts requests, errors by kind, tokens, tool calls, running and waiting work, and times
in histograms with fixed buckets. It returns plain data (`snapshot`) or the Prometheus text format.
It receives `RequestRecord`s and knows no model. Cost: one lock and a few additions, some
microseconds a request.

The text format takes a few dozen lines here. prometheus_client has one registry per process, which
two Runners would share, and a Runner counts whether or not that package is installed.

`Traces` makes spans by OpenTelemetry's conventions for generative models (``gen_ai.*``). It imports
``opentelemetry`` only on request or if the program has imported it already; otherwise a span does
nothing. Spans contain prompts, answers, arguments and results only on request.
"""

from __future__ import annotations

import bisect
import importlib
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

from structgen.errors import OptionError, requires
from structgen.storage import fork_safe

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Bounds of histograms of seconds."""

RATES = (1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)
"""Bounds of histograms of tokens per second."""

MOST_SERIES = 1_000
"""Most combinations of labels of one number; further ones are counted as ``other``."""

_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Histogram:
    """Counts of values between fixed bounds.

    Attributes:
        bounds: in ascending order.
        counts: for each bound, the values up to it and above the bound before; last, the values
            above all bounds.
        sum: the sum of all values.
    """

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def quantile(self, share: float) -> float | None:
        """Return a bound that a share of the values does not exceed; None if there are no values.

        Infinity if that value lies above the last bound.
        """
        need, seen = share * self.count, 0
        if not self.count:
            return None
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if seen >= need:
                return bound
        return math.inf


@dataclass(slots=True)
class _Family:
    """One metric: a number for each combination of its labels."""

    kind: Kind
    about: str
    labels: tuple[str, ...]
    bounds: Sequence[float] = ()
    series: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def key(self, values: tuple[str, ...]) -> tuple[str, ...]:
        if values in self.series or len(self.series) < MOST_SERIES:
            return values
        return ("other",) * len(self.labels)

    def add(self, values: tuple[str, ...], by: float) -> None:
        key = self.key(values)
        if self.kind == "histogram":
            self.series.setdefault(key, Histogram(self.bounds)).add(by)
        else:
            self.series[key] = self.series.get(key, 0) + by


@dataclass(slots=True)
class RequestRecord:
    """One request.

    Attributes:
        kind: OpenTelemetry's name of the operation, such as ``chat`` or ``embeddings``.
        model: the model's id, which may be set until the request ends.
        tokens: numbers of tokens by type.
        times: values for histograms, such as ``tokens_per_second``, by name.
    """

    kind: str
    model: str
    tokens: dict[str, int] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)


@final
class Metrics:
    """The counters of a Runner. Thread-safe."""

    content_type = _FORMAT
    """The Content-Type of `prometheus`."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Start at zero.

        Args:
            clock: gives seconds, for the times of requests.
        """
        self.clock = clock
        self._lock = fork_safe(threading.Lock())
        self._gauges: dict[str, tuple[str, str, Callable[[], Mapping[str, float]]]] = {}
        asked, times = ("kind", "model"), ("model",)
        self._families = {
            "requests": _Family("counter", "Completed requests.", asked),
            "request_errors": _Family("counter", "Failed requests, by error.", (*asked, "error")),
            "requests_cancelled": _Family("counter", "Cancelled requests.", asked),
            "requests_running": _Family("gauge", "Running requests.", asked),
            "request_seconds": _Family("histogram", "Duration of requests.", asked, SECONDS),
            "tokens": _Family("counter", "Tokens, by type.", ("model", "type")),
            "time_to_first_token_seconds": _Family(
                "histogram", "Time to the first text.", times, SECONDS
            ),
            "tokens_per_second": _Family(
                "histogram", "Tokens per second after the first text.", times, RATES
            ),
            "tool_calls": _Family("counter", "Tool calls, by outcome.", ("tool", "outcome")),
            "tool_seconds": _Family("histogram", "Duration of tool calls.", ("tool",), SECONDS),
            "http_responses": _Family(
                "counter", "HTTP responses, by endpoint and status.", ("endpoint", "status")
            ),
        }

    @contextmanager
    def request(self, kind: str, model: str = "") -> Iterator[RequestRecord]:
        """Count the request of a ``with`` block; exceptions are counted by their class."""
        record, begun_as, started = RequestRecord(kind, model), (kind, model), self.clock()
        add = self._families
        with self._lock:
            add["requests_running"].add(begun_as, 1)
        failed: tuple[str, ...] = ()
        try:
            yield record
        except Exception as error:
            failed = ("request_errors", type(error).__name__)
            raise
        except BaseException:
            failed = ("requests_cancelled",)
            raise
        finally:
            key = record.kind, record.model
            with self._lock:
                add["requests_running"].add(begun_as, -1)
                add["requests"].add(key, 1)
                add["request_seconds"].add(key, self.clock() - started)
                for name in failed[:1]:
                    add[name].add((*key, *failed[1:]), 1)
                for name, seconds in record.times.items():
                    add[name].add((record.model,), seconds)
                for name, count in record.tokens.items():
                    if count:
                        add["tokens"].add((record.model, name), count)

    def tool(self, name: str, outcome: str, seconds: float | None) -> None:
        """Count a tool call: ``ok``, ``error`` or ``refused``."""
        with self._lock:
            self._families["tool_calls"].add((name, outcome), 1)
            if seconds is not None:
                self._families["tool_seconds"].add((name,), seconds)

    def http_response(self, endpoint: str, status: int) -> None:
        """Count an answer of the server, whether or not it needed a model.

        Args:
            endpoint: the path of the route, such as ``/v1/models/{model}``; empty: none matched.
            status: the HTTP status; 499: the client disconnected.
        """
        with self._lock:
            self._families["http_responses"].add((endpoint, str(status)), 1)

    def watch(
        self, name: str, about: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """Add a gauge whose numbers are read when the metrics are, such as the length of a queue.

        Args:
            name: the name of the gauge.
            about: its description, one sentence.
            label: the name of its label.
            read: returns the numbers by label; its exceptions reach the reader of the metrics.
        """
        with self._lock:
            self._gauges[name] = (about, label, read)

    def snapshot(self) -> dict[str, list[dict[str, Any]]]:
        """Return all numbers: for each name a list of ``{"labels": ..., "value": ...}``.

        A histogram has ``count``, ``sum`` and ``buckets`` (the number of values up to each bound)
        instead of a value.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        for name, family in self._read().items():
            rows = found[name] = []
            for values, number in family.series.items():
                row: dict[str, Any] = {"labels": dict(zip(family.labels, values, strict=True))}
                if isinstance(number, Histogram):
                    row |= {"count": number.count, "sum": number.sum}
                    row["buckets"] = dict(_buckets(number))
                else:
                    row["value"] = number
                rows.append(row)
        return found

    def histogram(self, name: str, *labels: str) -> Histogram:
        """Return a copy of one histogram; it is empty if nothing was counted."""
        family = self._read()[name]
        found = family.series.get(labels)
        return found if isinstance(found, Histogram) else Histogram(family.bounds)

    def value(self, name: str, *labels: str) -> float:
        """Return one number; 0 if nothing was counted."""
        number: float = self._read()[name].series.get(labels, 0)
        return number

    def prometheus(self) -> str:
        """Return all numbers in the text format of Prometheus; its media type is `content_type`."""
        lines: list[str] = []
        for short, family in self._read().items():
            name = f"structgen_{short}{'_total' if family.kind == 'counter' else ''}"
            lines += [f"# HELP {name} {family.about}", f"# TYPE {name} {family.kind}"]
            for values, number in sorted(family.series.items()):
                pairs = list(zip(family.labels, values, strict=True))
                if isinstance(number, Histogram):
                    for bound, count in _buckets(number):
                        lines.append(f"{name}_bucket{_labels([*pairs, ('le', bound)])} {count}")
                    lines.append(f"{name}_sum{_labels(pairs)} {number.sum!r}")
                    lines.append(f"{name}_count{_labels(pairs)} {number.count}")
                else:
                    lines.append(f"{name}{_labels(pairs)} {number!r}")
        return "\n".join(lines) + "\n"

    def _read(self) -> dict[str, _Family]:
        """Return a copy of all numbers, with those of gauges."""
        with self._lock:
            gauges = dict(self._gauges)
            found = {
                name: _Family(one.kind, one.about, one.labels, one.bounds, _copied(one.series))
                for name, one in self._families.items()
            }
        for name, (about, label, read) in gauges.items():
            series: dict[tuple[str, ...], Any] = {(key,): value for key, value in read().items()}
            found[name] = _Family("gauge", about, (label,), series=series)
        return found


def _copied(series: dict[tuple[str, ...], Any]) -> dict[tuple[str, ...], Any]:
    return {
        key: Histogram(one.bounds, list(one.counts), one.sum) if isinstance(one, Histogram) else one
        for key, one in series.items()
    }


def _buckets(histogram: Histogram) -> list[tuple[str, int]]:
    """Return each bound with the number of values up to it."""
    found, seen = [], 0
    for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        seen += count
        found.append(("+Inf" if bound == math.inf else f"{bound:g}", seen))
    return found


def _labels(pairs: Sequence[tuple[str, str]]) -> str:
    def quoted(value: str) -> str:
        value = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        return value.encode(errors="replace").decode()

    return "{" + ",".join(f'{name}="{quoted(value)}"' for name, value in pairs) + "}"


@final
class Span:
    """A span, used with ``with``. Without ``inner`` it does nothing."""

    def __init__(self, inner: OtelSpan | None = None, contents: bool = False) -> None:
        self.inner = inner
        self._contents = contents

    def set(self, **attributes: Any) -> None:
        """Add attributes of `_NAMES`; those that are None are left out."""
        for name, value in attributes.items():
            if value is not None and self.inner is not None:
                self.inner.set_attribute(_NAMES[name], value)

    def count(self, tokens: Mapping[str, int]) -> None:
        """Add the tokens of a `RequestRecord`."""
        if self.inner is not None:
            for kind, count in tokens.items():
                name = _NAMES.get(kind, f"structgen.usage.{kind}_tokens")
                self.inner.set_attribute(name, count)

    def content(self, name: str, make: Callable[[], Any]) -> None:
        """Add a prompt, an answer, arguments or a result; it is only computed if contents were
        requested."""
        if self._contents and self.inner is not None:
            value = make()
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            self.inner.set_attribute(name, text)

    def failed(self, kind: str, error: object) -> None:
        """Mark it as failed, with the message if contents were requested."""
        if self.inner is not None:
            from opentelemetry.trace import StatusCode

            # Messages may quote the prompt or the output.
            about = str(error) if self._contents else ""
            self.inner.set_attribute("error.type", kind)
            self.inner.set_status(StatusCode.ERROR, about or None)

    def __enter__(self) -> Span:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if self.inner is None:
            return
        if isinstance(error, Exception):
            self.failed(type(error).__name__, error)
        self.inner.end()


NO_SPAN = Span()
"""Does nothing."""


@final
class Traces:
    """Where spans go.

    Args:
        asked: where spans go. False: nowhere. True: to the global tracer provider; an error if
            ``opentelemetry`` is not installed. None: to the global one if the program has imported
            ``opentelemetry``. Or a tracer provider.
        contents: whether spans have prompts, answers, arguments and results.

    Raises:
        OptionError: ``opentelemetry`` is not installed.
    """

    def __init__(self, asked: Any = None, contents: bool = False) -> None:
        if asked is True:
            with requires(
                OptionError, "traces=True needs OpenTelemetry, which is not installed", "otel"
            ):
                importlib.import_module("opentelemetry.trace")
        elif asked not in (None, False) and not hasattr(asked, "get_tracer"):
            raise OptionError(
                f"traces={asked!r} is neither a bool nor an OpenTelemetry tracer provider."
            )
        self._asked = asked
        self._contents = contents

    def begin(
        self, operation: str, name: str, *, parent: Span | None = None, **attributes: Any
    ) -> Span:
        """Return a span that begins now.

        Args:
            operation: ``chat``, ``execute_tool`` and so on.
            name: the name of the model or tool.
            parent: the span that it is part of; None: the caller's current one.
            attributes: as for `Span.set`.
        """
        tracer = self.tracer()
        if tracer is None:
            return NO_SPAN
        from opentelemetry import trace

        context = None
        if parent is not None and parent.inner is not None:
            context = trace.set_span_in_context(parent.inner)
        span = tracer.start_span(f"{operation} {name}".rstrip(), context)
        made = Span(span, self._contents)
        made.set(operation=operation, **attributes)
        return made

    def tracer(self) -> Tracer | None:
        """Return the tracer; None: no spans are wanted."""
        if self._asked is False:
            return None
        if self._asked is None and "opentelemetry.trace" not in sys.modules:
            return None
        from opentelemetry import trace

        provider = None if self._asked in (None, True) else self._asked
        return trace.get_tracer("structgen", tracer_provider=provider)


_NAMES: Mapping[str, str] = {
    "prompt": "gen_ai.usage.input_tokens",
    "completion": "gen_ai.usage.output_tokens",
    "request_model": "gen_ai.request.model",
    "finish_reasons": "gen_ai.response.finish_reasons",
    "tool_name": "gen_ai.tool.name",
    "call_id": "gen_ai.tool.call.id",
    "conversation_id": "gen_ai.conversation.id",
    "operation": "gen_ai.operation.name",
}
