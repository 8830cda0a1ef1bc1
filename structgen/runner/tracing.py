"""Spans of requests and tools for OpenTelemetry.

Owns `Traces`: whether there are spans, and what they say, by OpenTelemetry's conventions for
generative models (``gen_ai.*``). It imports ``opentelemetry`` only where that was asked for, or
where the program has imported it already; else a span is one object that does nothing. Prompts,
answers, arguments and results are in no span unless asked for.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, final

from structgen.errors import OptionError

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer


class Span(Protocol):
    """A span, or what stands for one where there are none. Used with ``with``."""

    def set(self, **attributes: Any) -> None:
        """Add attributes of `_NAMES`; None: there is nothing to say."""

    def content(self, name: str, make: Callable[[], Any]) -> None:
        """Add a prompt, an answer, arguments or a result, which is made if that was asked for."""

    def __enter__(self) -> Span: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


@final
class _NoSpan:
    def set(self, **attributes: Any) -> None:
        return None

    def content(self, name: str, make: Callable[[], Any]) -> None:
        return None

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None


NO_SPAN: Span = _NoSpan()
"""Does nothing."""


@final
class Traces:
    """Where spans go.

    Args:
        asked: False: nowhere. True: to the global tracer provider, and an error where
            ``opentelemetry`` is not installed. None: to that one if the program has imported
            ``opentelemetry``. Or a tracer provider.
        contents: whether spans have prompts, answers, arguments and results.

    Raises:
        OptionError: ``opentelemetry`` is not installed.
    """

    def __init__(self, asked: Any = None, contents: bool = False) -> None:
        if asked is True:
            try:
                importlib.import_module("opentelemetry.trace")
            except ImportError as error:
                raise OptionError(
                    "traces=True needs OpenTelemetry, which is not installed: "
                    "pip install 'structgen[otel]'."
                ) from error
        elif asked not in (None, False) and not hasattr(asked, "get_tracer"):
            raise OptionError(
                f"traces={asked!r} is neither a bool nor a tracer provider of OpenTelemetry."
            )
        self._asked = asked
        self._contents = contents

    def begin(
        self, operation: str, name: str, *, parent: Span | None = None, **attributes: Any
    ) -> Span:
        """A span that begins now.

        Args:
            operation: ``chat``, ``execute_tool`` and so on.
            name: of the model or the tool.
            parent: the span that it is part of; None: the current one of the caller.
            attributes: as for `Span.set`.
        """
        tracer = self.tracer()
        if tracer is None:
            return NO_SPAN
        from opentelemetry import trace

        context = None
        if isinstance(parent, _Span):
            context = trace.set_span_in_context(parent.inner)
        span = tracer.start_span(f"{operation} {name}".rstrip(), context)
        made = _Span(span, self._contents)
        made.set(operation=operation, **attributes)
        return made

    def tracer(self) -> Tracer | None:
        """What makes spans; None: nobody wants any."""
        if self._asked is False:
            return None
        if self._asked is None and "opentelemetry.trace" not in sys.modules:
            return None
        from opentelemetry import trace

        provider = None if self._asked in (None, True) else self._asked
        return trace.get_tracer("structgen", tracer_provider=provider)


@final
class _Span:
    def __init__(self, inner: OtelSpan, contents: bool) -> None:
        self.inner = inner
        self._contents = contents

    def set(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            if value is not None:
                self.inner.set_attribute(_NAMES[name], value)

    def content(self, name: str, make: Callable[[], Any]) -> None:
        if self._contents:
            value = make()
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            self.inner.set_attribute(name, text)

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        from opentelemetry.trace import StatusCode

        if isinstance(error, Exception):
            # Not its message, which may quote the prompt or the output.
            about = str(error) if self._contents else ""
            self.inner.set_attribute("error.type", type(error).__name__)
            self.inner.set_status(StatusCode.ERROR, about or None)
        self.inner.end()


_NAMES: Mapping[str, str] = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "structgen.usage.cached_tokens",
    "forced_tokens": "structgen.usage.forced_tokens",
    "request_model": "gen_ai.request.model",
    "finish_reasons": "gen_ai.response.finish_reasons",
    "tool_name": "gen_ai.tool.name",
    "call_id": "gen_ai.tool.call.id",
    "conversation_id": "gen_ai.conversation.id",
    "operation": "gen_ai.operation.name",
}
