"""RemoteModel and AsyncRemoteModel: a model behind a server that speaks OpenAI's API.

Owns what such a model is, a client, a name and a dialect, and `from_openai`, which makes one. They
make their own generators; nothing is asked before those are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final, overload

from structgen.asking import Asked, AskedAsync
from structgen.decoding import AsyncTypedGenerator
from structgen.errors import ModelError, OptionError
from structgen.generator import Generator

from .dialects import Dialect, DialectName, dialect_of
from .generator import AsyncRemoteGenerator, RemoteGenerator

if TYPE_CHECKING:
    import openai

_OURS = frozenset(
    (
        *("model", "messages", "stream", "stream_options", "response_format", "tools"),
        *("tool_choice", "n", "timeout"),
    )
)


class _Remote:
    """What both kinds have."""

    def __init__(
        self, client: Any, name: str, dialect: Dialect, request: Mapping[str, Any]
    ) -> None:
        self.client = client
        self.name = name
        self.dialect = dialect
        self.request = request

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, dialect={self.dialect.name!r})"


@final
class RemoteModel(_Remote, Asked):
    """A model behind a server, asked by a synchronous client. Safe to share by threads.

    Make one with `structgen.from_openai`. Ask it for values directly, ``model(prompt, T)``, or make
    a `structgen.Generator` of it and an output type.

    Attributes:
        client: the client.
        name: what the server calls the model.
        dialect: how the server is told of types and options.
        request: what every request has beside.
    """

    client: openai.OpenAI

    def make_generator(self, output_type: Any = None, **options: Any) -> Generator[Any]:
        """What ``Generator(model, output_type)`` returns."""
        return RemoteGenerator(self, output_type, **options)

    _make = make_generator


@final
class AsyncRemoteModel(_Remote, AskedAsync):
    """A model behind a server, asked by an asynchronous client; see `RemoteModel`."""

    client: openai.AsyncOpenAI

    def make_generator(self, output_type: Any = None, **options: Any) -> AsyncTypedGenerator[Any]:
        """What ``Generator(model, output_type)`` returns."""
        return AsyncRemoteGenerator(self, output_type, **options)

    _make = make_generator  # a model of sockets may be held

    def _mine(self, generator: Any) -> Any:
        return generator


@overload
def from_openai(
    client: openai.OpenAI,
    model: str,
    *,
    dialect: DialectName = "openai",
    request: Mapping[str, Any] | None = None,
) -> RemoteModel: ...


@overload
def from_openai(
    client: openai.AsyncOpenAI,
    model: str,
    *,
    dialect: DialectName = "openai",
    request: Mapping[str, Any] | None = None,
) -> AsyncRemoteModel: ...


def from_openai(
    client: Any,
    model: str,
    *,
    dialect: DialectName = "openai",
    request: Mapping[str, Any] | None = None,
) -> RemoteModel | AsyncRemoteModel:
    """Return a model behind a server that speaks OpenAI's API, for `structgen.Generator`.

    Args:
        client: an ``openai.OpenAI`` or ``openai.AsyncOpenAI``, with the server's ``base_url`` and
            key; with an asynchronous one generators are `structgen.AsyncTypedGenerator`.
        model: what the server calls the model.
        dialect: which server it is, which says how output types travel and what it enforces:
            ``"openai"``, ``"openai-non-strict"``, ``"json-schema"`` (any other that takes JSON
            Schema as ``response_format``), ``"vllm"``, ``"vllm-guided"`` (before 0.12),
            ``"sglang"``, ``"llama.cpp"``, ``"ollama"`` or ``"none"`` (it is told nothing).
        request: arguments that each request has beside, such as ``{"reasoning_effort": "low"}``;
            ``extra_body`` and ``extra_headers`` among them.

    Raises:
        ModelError: ``openai`` is not installed, or ``client`` is none of its clients.
        OptionError: there is no such dialect, or ``request`` has what structgen says itself.

    Nothing is sent.
    """
    try:
        import openai
    except ImportError as error:
        raise ModelError(
            "from_openai needs the package openai. Install it: pip install 'structgen[openai]'."
        ) from error
    found = dialect_of(dialect)
    if not isinstance(model, str) or not model:
        raise OptionError(f"model={model!r} is not a name. Pass what the server calls the model.")
    others = dict(request or {})
    for name in others:
        if name in _OURS:
            raise OptionError(
                f"request has {name!r}, which structgen says itself: by the output type, the "
                "prompt and the options of a call."
            )
    if isinstance(client, openai.OpenAI):
        return RemoteModel(client, model, found, others)
    if isinstance(client, openai.AsyncOpenAI):
        return AsyncRemoteModel(client, model, found, others)
    raise ModelError(
        f"The client is a {type(client).__name__}, none of the package openai. Pass "
        "openai.OpenAI(base_url=..., api_key=...) or openai.AsyncOpenAI(...)."
    )
